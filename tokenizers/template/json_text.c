/* tojson, as transformers writes it: Python's json.dumps without escapes for HTML. */
#include "tokenizers/template/inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct style {
    bool ascii, sorted;
    const struct jinja_text *indent; /* NULL: one line */
    struct jinja_text between, colon;
    struct jinja_builder *out;
};

static void write_escaped(struct jinja_run *run, const struct style *style, u32 point)
{
    static const char marks[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    const char *mark = point && point < 128 ? strchr(marks, (int)point) : NULL;
    if (mark)
        jinja_print(run, style->out, "\\%c", letters[mark - marks]);
    else if (point < 0x10000)
        jinja_print(run, style->out, "\\u%04x", point);
    else
        jinja_print(run, style->out, "\\u%04x\\u%04x", 0xd800 + ((point - 0x10000) >> 10),
                    0xdc00 + ((point - 0x10000) & 0x3ff));
}

static void write_text(struct jinja_run *run, const struct style *style, const struct jinja_text *text)
{
    jinja_append(run, style->out, "\"", 1);
    jinja_charge(run, text->length >> 4);
    i64 plain = 0;
    for (i64 at = 0, bytes; at < text->length; at += bytes) {
        u32 point = jinja_point(text->bytes + at, text->length - at, &bytes);
        bool escaped = point < 0x20 || point == '"' || point == '\\' || (style->ascii && point > 0x7e);
        if (!escaped)
            continue;
        jinja_append(run, style->out, text->bytes + plain, at - plain);
        write_escaped(run, style, point);
        plain = at + bytes;
    }
    jinja_append(run, style->out, text->bytes + plain, text->length - plain);
    jinja_append(run, style->out, "\"", 1);
}

static void write_float(struct jinja_run *run, const struct style *style, double value)
{
    char digits[40];
    jinja_float_repr(digits, value);
    const char *words = isnan(value) ? "NaN" : isinf(value) ? value > 0 ? "Infinity" : "-Infinity" : digits;
    jinja_append(run, style->out, words, (i64)strlen(words));
}

static void new_line(struct jinja_run *run, const struct style *style, int depth)
{
    if (!style->indent)
        return;
    jinja_append(run, style->out, "\n", 1);
    jinja_fill(run, style->out, style->indent->bytes, style->indent->length, depth);
}

static void write_value(struct jinja_run *run, const struct style *style, struct jinja_value value, int depth);

static void write_key(struct jinja_run *run, const struct style *style, struct jinja_value key)
{
    if (key.kind == JINJA_TEXT) {
        write_text(run, style, key.text);
        return;
    }
    if (key.kind != JINJA_NONE && !jinja_is_number(key))
        jinja_fail(run, "keys must be str, int, float, bool or None, not %s", jinja_type_name(key));
    jinja_append(run, style->out, "\"", 1);
    write_value(run, style, key, 0);
    jinja_append(run, style->out, "\"", 1);
}

/* Indices of the entries in the order of their keys. */
static struct jinja_list *sorted_entries(struct jinja_run *run, const struct jinja_dict *dict)
{
    struct jinja_list *keys = jinja_sequence(run, JINJA_LIST, dict->count).list;
    struct jinja_list *values = jinja_sequence(run, JINJA_LIST, dict->count).list;
    for (i64 i = 0; i < dict->count; i++) {
        keys->items[i] = dict->entries[i].key;
        values->items[i] = jinja_integer(i);
    }
    jinja_sort(run, values, keys, false);
    return values;
}

static void write_dict(struct jinja_run *run, const struct style *style, const struct jinja_dict *dict, int depth)
{
    struct jinja_list *order = style->sorted ? sorted_entries(run, dict) : NULL;
    jinja_append(run, style->out, "{", 1);
    for (i64 i = 0; i < dict->count; i++) {
        const struct jinja_entry *entry = &dict->entries[order ? order->items[i].integer : i];
        if (i)
            jinja_append(run, style->out, style->between.bytes, style->between.length);
        new_line(run, style, depth + 1);
        write_key(run, style, entry->key);
        jinja_append(run, style->out, style->colon.bytes, style->colon.length);
        write_value(run, style, entry->value, depth + 1);
    }
    if (dict->count)
        new_line(run, style, depth);
    jinja_append(run, style->out, "}", 1);
}

static void write_list(struct jinja_run *run, const struct style *style, const struct jinja_list *list, int depth)
{
    jinja_append(run, style->out, "[", 1);
    for (i64 i = 0; i < list->count; i++) {
        if (i)
            jinja_append(run, style->out, style->between.bytes, style->between.length);
        new_line(run, style, depth + 1);
        write_value(run, style, list->items[i], depth + 1);
    }
    if (list->count)
        new_line(run, style, depth);
    jinja_append(run, style->out, "]", 1);
}

static void write_value(struct jinja_run *run, const struct style *style, struct jinja_value value, int depth)
{
    jinja_enter(run);
    switch (value.kind) {
    case JINJA_NONE:
        jinja_append(run, style->out, "null", 4);
        break;
    case JINJA_BOOL:
        jinja_append(run, style->out, value.truth ? "true" : "false", value.truth ? 4 : 5);
        break;
    case JINJA_INTEGER:
        jinja_repr(run, style->out, value);
        break;
    case JINJA_FLOAT:
        write_float(run, style, value.real);
        break;
    case JINJA_TEXT:
        write_text(run, style, value.text);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        write_list(run, style, value.list, depth);
        break;
    case JINJA_DICT:
        write_dict(run, style, value.dict, depth);
        break;
    default: {
        const char *name = jinja_type_name(value), *dot = strrchr(name, '.');
        jinja_fail(run, "Object of type %s is not JSON serializable", dot ? dot + 1 : name);
    }
    }
    jinja_leave(run, 1);
}

/* separators=(between, colon) */
static void read_separators(struct jinja_run *run, struct style *style, struct jinja_value value)
{
    struct jinja_list *pair = jinja_collect(run, value);
    if (pair->count != 2 || pair->items[0].kind != JINJA_TEXT || pair->items[1].kind != JINJA_TEXT)
        jinja_fail(run, "tojson: expected two texts as separators");
    style->between = *pair->items[0].text;
    style->colon = *pair->items[1].text;
}

/* Parameters: ensure_ascii indent separators sort_keys. */
struct jinja_value jinja_tojson(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_builder out = {0};
    struct style style = {.ascii = jinja_want_bool(run, call, 0, false),
                          .sorted = jinja_want_bool(run, call, 3, false),
                          .between = {.bytes = ", ", .length = 2},
                          .colon = {.bytes = ": ", .length = 2},
                          .out = &out};
    if (jinja_given(call, 1) && call->at[1].kind != JINJA_NONE) {
        style.indent =
            call->at[1].kind == JINJA_TEXT
                ? call->at[1].text
                : jinja_binary(run, "*", jinja_words(run, " "),
                               jinja_integer(min_i64(jinja_want_integer(run, call, 1, 0), JINJA_DIGITS_MOST)))
                      .text;
        style.between.length = 1;
    }
    if (jinja_given(call, 2) && call->at[2].kind != JINJA_NONE)
        read_separators(run, &style, call->at[2]);
    write_value(run, &style, call->subject, 0);
    return jinja_built(run, &out);
}
