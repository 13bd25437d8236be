/* Texts of values: Python's str() and repr(). */
#include "tokenizers/template/inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest digits that read back as the value; with an exponent below 1e-4 and from 1e16. */
void jinja_float_repr(char out[40], double value)
{
    char digits[40];
    int precision = 0;
    if (!isfinite(value)) {
        snprintf(out, 40, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    do
        snprintf(digits, sizeof digits, "%.*e", precision, value);
    while (strtod(digits, NULL) != value && ++precision <= 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        snprintf(out, 40, "%.*f", (int)max_i64(precision - exponent, 1), value);
        return;
    }
    *strchr(digits, 'e') = 0;
    snprintf(out, 40, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
}

static void repr_point(struct jinja_run *run, struct jinja_builder *out, const char *bytes, i64 length, u32 point,
                       char quote)
{
    static const char escaped[] = "\n\r\t\\", letters[] = "nrt\\";
    const char *found = point && point < 128 ? strchr(escaped, (int)point) : NULL;
    if (found)
        jinja_print(run, out, "\\%c", letters[found - escaped]);
    else if (point == (u32)quote)
        jinja_print(run, out, "\\%c", quote);
    else if (point < 0x20 || point == 0x7f || (point >= 0x80 && !(jinja_classes(point) & JINJA_PRINTABLE)))
        jinja_print(run, out, point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x", point);
    else
        jinja_append(run, out, bytes, length);
}

static void repr_text(struct jinja_run *run, struct jinja_builder *out, const struct jinja_text *text)
{
    bool single = memchr(text->bytes, '\'', (size_t)text->length),
         twice = memchr(text->bytes, '"', (size_t)text->length);
    char quote = single && !twice ? '"' : '\'';
    if (text->markup)
        jinja_append(run, out, "Markup(", 7);
    jinja_append(run, out, &quote, 1);
    jinja_charge(run, text->length >> 4);
    for (i64 at = 0, bytes; at < text->length; at += bytes) {
        u32 point = jinja_point(text->bytes + at, text->length - at, &bytes);
        repr_point(run, out, text->bytes + at, bytes, point, quote);
    }
    jinja_append(run, out, &quote, 1);
    if (text->markup)
        jinja_append(run, out, ")", 1);
}

static void repr_items(struct jinja_run *run, struct jinja_builder *out, struct jinja_value value, const char *open,
                       const char *close)
{
    struct jinja_iterator *iterator = jinja_iterate(run, value);
    jinja_append(run, out, open, (i64)strlen(open));
    i64 count = 0;
    for (struct jinja_value each; iterator->next(&each, run, iterator); count++) {
        jinja_append(run, out, ", ", count ? 2 : 0);
        jinja_repr(run, out, each);
    }
    if (value.kind == JINJA_TUPLE && count == 1)
        jinja_append(run, out, ",", 1);
    jinja_append(run, out, close, (i64)strlen(close));
}

static void repr_dict(struct jinja_run *run, struct jinja_builder *out, const struct jinja_dict *dict)
{
    jinja_append(run, out, "{", 1);
    for (i64 i = 0; i < dict->count; i++) {
        jinja_append(run, out, ", ", i ? 2 : 0);
        jinja_repr(run, out, dict->entries[i].key);
        jinja_append(run, out, ": ", 2);
        jinja_repr(run, out, dict->entries[i].value);
    }
    jinja_append(run, out, "}", 1);
}

static void repr_range(struct jinja_run *run, struct jinja_builder *out, const struct jinja_range *range)
{
    jinja_print(run, out, "range(%lld, %lld", (long long)range->start, (long long)range->stop);
    if (range->step != 1)
        jinja_print(run, out, ", %lld", (long long)range->step);
    jinja_append(run, out, ")", 1);
}

static void repr_compound(struct jinja_run *run, struct jinja_builder *out, struct jinja_value value)
{
    char open[32];
    switch (value.kind) {
    case JINJA_LIST:
        repr_items(run, out, value, "[", "]");
        break;
    case JINJA_TUPLE:
        repr_items(run, out, value, "(", ")");
        break;
    case JINJA_VIEW:
        snprintf(open, sizeof open, "%s([", jinja_type_name(value));
        repr_items(run, out, value, open, "])");
        break;
    case JINJA_DICT:
        repr_dict(run, out, value.dict);
        break;
    case JINJA_NAMESPACE:
        jinja_append(run, out, "<Namespace ", 11);
        repr_dict(run, out, value.dict);
        jinja_append(run, out, ">", 1);
        break;
    case JINJA_RANGE:
        repr_range(run, out, value.range);
        break;
    case JINJA_LOOP:
        jinja_print(run, out, "<LoopContext %lld/%lld>", (long long)value.loop->index0 + 1,
                    (long long)jinja_length(run, value));
        break;
    case JINJA_MACRO:
        jinja_append(run, out, "<Macro ", 7);
        if (value.macro->node->name)
            repr_text(run, out, value.macro->node->name);
        else
            jinja_append(run, out, "'caller'", 8);
        jinja_append(run, out, ">", 1);
        break;
    default:
        /* Python would write an address. */
        jinja_fail(run, "a %s cannot be written: expected a text, number, list or dict", jinja_type_name(value));
    }
}

void jinja_repr(struct jinja_run *run, struct jinja_builder *out, struct jinja_value value)
{
    char digits[40];
    jinja_enter(run);
    switch (value.kind) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
        jinja_append(run, out, "Undefined", 9);
        break;
    case JINJA_NONE:
        jinja_append(run, out, "None", 4);
        break;
    case JINJA_BOOL:
        jinja_append(run, out, value.truth ? "True" : "False", value.truth ? 4 : 5);
        break;
    case JINJA_INTEGER:
        jinja_print(run, out, "%lld", (long long)value.integer);
        break;
    case JINJA_FLOAT:
        jinja_float_repr(digits, value.real);
        jinja_append(run, out, digits, (i64)strlen(digits));
        break;
    case JINJA_TEXT:
        repr_text(run, out, value.text);
        break;
    default:
        repr_compound(run, out, value);
    }
    jinja_leave(run, 1);
}

void jinja_show(struct jinja_run *run, struct jinja_builder *out, struct jinja_value value)
{
    if (value.kind == JINJA_TEXT)
        jinja_append(run, out, value.text->bytes, value.text->length);
    else if (value.kind != JINJA_UNDEFINED)
        jinja_repr(run, out, value);
}

struct jinja_value jinja_str(struct jinja_run *run, struct jinja_value value)
{
    struct jinja_builder out = {0};
    if (value.kind == JINJA_TEXT)
        return value;
    jinja_show(run, &out, value);
    return jinja_built(run, &out);
}

const char *jinja_repr_text(struct jinja_run *run, struct jinja_value value)
{
    struct jinja_builder out = {0};
    jinja_repr(run, &out, value);
    jinja_append(run, &out, "", 1);
    return out.bytes;
}

struct jinja_value jinja_escape(struct jinja_run *run, struct jinja_value value)
{
    static const char marks[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct jinja_builder out = {0};
    if (value.kind == JINJA_TEXT && value.text->markup)
        return value;
    value = jinja_str(run, value);
    for (i64 at = 0; at < value.text->length; at++) {
        char c = value.text->bytes[at];
        const char *mark = c ? strchr(marks, c) : NULL;
        if (mark)
            jinja_append(run, &out, names[mark - marks], (i64)strlen(names[mark - marks]));
        else
            jinja_append(run, &out, &c, 1);
    }
    return jinja_markup(run, jinja_built(run, &out), true);
}
