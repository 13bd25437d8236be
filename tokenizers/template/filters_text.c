/* Filters that give texts. */
#define _GNU_SOURCE /* memrchr */
#include "tokenizers/template/inside.h"

#include <stdio.h>
#include <string.h>

static struct jinja_value escape(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_escape(run, call->subject);
}

static struct jinja_value forceescape(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value text = jinja_str(run, call->subject);
    return jinja_escape(run, jinja_markup(run, text, false));
}

static struct jinja_value safe(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_markup(run, jinja_str(run, call->subject), true);
}

static struct jinja_value string(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_str(run, call->subject);
}

static struct jinja_value format(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value values = jinja_sequence(run, JINJA_TUPLE, call->given.count);
    if (call->given.count && call->given.named_count)
        jinja_fail(run, "format: can't handle positional and keyword arguments at the same time");
    for (i64 i = 0; i < call->given.count; i++)
        values.list->items[i] = call->given.values[i];
    if (call->given.named_count) {
        values = jinja_dict(run);
        for (i64 i = 0; i < call->given.named_count; i++)
            jinja_put(run, values.dict, call->given.names[i], call->given.named[i]);
    }
    return jinja_percent(run, jinja_str(run, call->subject), values);
}

/* Parameters: width first blank. */
static struct jinja_value indent(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_builder out = {0};
    bool first = jinja_want_bool(run, call, 1, false), blank = jinja_want_bool(run, call, 2, false);
    struct jinja_value indention = call->at[0];
    jinja_need_defined(run, call->subject);
    if (call->subject.kind != JINJA_TEXT)
        jinja_fail(run, "indent: expected a text, found a value of type %s", jinja_type_name(call->subject));
    if (!jinja_given(call, 0) || indention.kind != JINJA_TEXT)
        indention = jinja_binary(run, "*", jinja_words(run, " "), jinja_integer(jinja_want_integer(run, call, 0, 4)));
    const struct jinja_text *text = call->subject.text, *spaces = indention.text;
    if (text->markup)
        spaces = jinja_escape(run, indention).text;
    jinja_append(run, &out, spaces->bytes, first ? spaces->length : 0);
    for (i64 at = 0, line = 0;; line++) {
        i64 end = at, size = 0, bytes;
        for (; end < text->length && (size = jinja_line_end(text->bytes + end, text->length - end)) == 0; end += bytes)
            jinja_point(text->bytes + end, text->length - end, &bytes);
        if (line)
            jinja_append(run, &out, "\n", 1);
        if (line && (blank || end > at))
            jinja_append(run, &out, spaces->bytes, spaces->length);
        jinja_append(run, &out, text->bytes + at, end - at);
        if (size == 0)
            break;
        at = end + size;
        jinja_charge(run, 1 + size);
    }
    return jinja_markup(run, jinja_built(run, &out), text->markup);
}

static struct jinja_value replace(struct jinja_run *run, const struct jinja_call *call)
{
    i64 most = call->at[2].kind == JINJA_NONE ? -1 : jinja_want_integer(run, call, 2, -1);
    return jinja_replace_text(run, jinja_subject(run, call), jinja_str(run, call->at[0]).text,
                              jinja_str(run, call->at[1]).text, most < 0 ? INT64_MAX : most);
}

/* Text without tags and comments of HTML, its runs of spaces as one. */
static struct jinja_value striptags(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *text = jinja_subject(run, call);
    if (memchr(text->bytes, '<', (size_t)text->length) || memchr(text->bytes, '&', (size_t)text->length))
        jinja_fail(run, "striptags of a text with < or & is not supported");
    struct jinja_builder out = {0};
    const char *at = text->bytes, *end = at + text->length;
    for (i64 bytes;;) {
        at += jinja_spaces_before(at, end - at);
        if (at == end)
            break;
        const char *stop = at;
        while (stop < end && !jinja_is_space(jinja_point(stop, end - stop, &bytes)))
            stop += bytes;
        jinja_append(run, &out, " ", out.length ? 1 : 0);
        jinja_append(run, &out, at, stop - at);
        at = stop;
    }
    return jinja_built(run, &out);
}

static bool begins_word(u32 point)
{
    return point == '-' || jinja_is_space(point) || (point && point < 128 && strchr("({[<", (int)point));
}

/* Words begin at the start and behind spaces and opening brackets. */
static struct jinja_value title(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *text = jinja_subject(run, call);
    struct jinja_builder out = {0};
    const struct jinja_arguments none = {0};
    static const struct jinja_function upper = {"title", "", 0, jinja_upper}, lower = {"title", "", 0, jinja_lower};
    for (i64 at = 0, end, bytes; at < text->length; at = end) {
        u32 point = jinja_point(text->bytes + at, text->length - at, &bytes);
        end = at + bytes;
        i64 head = end;
        bool between = begins_word(point);
        while (end < text->length && begins_word(jinja_point(text->bytes + end, text->length - end, &bytes)) == between)
            end += bytes;
        struct jinja_value first = jinja_text(run, text->bytes + at, head - at);
        struct jinja_value rest = jinja_text(run, text->bytes + head, end - head);
        jinja_show(run, &out, jinja_invoke(run, &upper, first, &none));
        jinja_show(run, &out, jinja_invoke(run, &lower, rest, &none));
    }
    return jinja_built(run, &out);
}

/* Parameters: length killwords end leeway. */
static struct jinja_value truncate(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value end = jinja_given(call, 2) ? call->at[2] : jinja_words(run, "...");
    i64 most = jinja_want_integer(run, call, 0, 255);
    i64 leeway = call->at[3].kind == JINJA_NONE ? 5 : jinja_want_integer(run, call, 3, 5);
    i64 cut = most - jinja_length(run, end);
    if (cut < 0 || leeway < 0)
        jinja_fail(run, "truncate: expected a length of at least that of its end, and no negative leeway");
    if (jinja_length(run, call->subject) <= most + leeway)
        return call->subject;
    if (call->subject.kind != JINJA_TEXT || end.kind != JINJA_TEXT)
        jinja_fail(run, "truncate: expected a text, found a value of type %s", jinja_type_name(call->subject));
    const struct jinja_value bounds[] = {JINJA_MISSING_VALUE, jinja_integer(cut), JINJA_MISSING_VALUE};
    struct jinja_value kept = jinja_slice(run, call->subject, bounds);
    const char *space = memrchr(kept.text->bytes, ' ', (size_t)kept.text->length);
    if (space && !jinja_want_bool(run, call, 1, false)) {
        bool markup = kept.text->markup;
        kept = jinja_markup(run, jinja_text(run, kept.text->bytes, space - kept.text->bytes), markup);
    }
    return jinja_binary(run, "+", kept, end);
}

static void quote(struct jinja_run *run, struct jinja_builder *out, struct jinja_value value, bool query)
{
    const struct jinja_text *text = jinja_str(run, value).text;
    for (i64 i = 0; i < text->length; i++) {
        u8 c = (u8)text->bytes[i];
        bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c && strchr("_.-~", c));
        if (plain || (c == '/' && !query))
            jinja_append(run, out, text->bytes + i, 1);
        else if (c == ' ' && query)
            jinja_append(run, out, "+", 1);
        else
            jinja_print(run, out, "%%%02X", c);
    }
}

static struct jinja_value urlencode(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_builder out = {0};
    if (call->subject.kind == JINJA_TEXT || !jinja_is_iterable(call->subject)) {
        quote(run, &out, call->subject, false);
        return jinja_built(run, &out);
    }
    bool dict = call->subject.kind == JINJA_DICT;
    struct jinja_list *items = jinja_collect(run, call->subject);
    for (i64 i = 0; i < items->count; i++) {
        struct jinja_value pair = items->items[i];
        if (dict)
            pair = jinja_pair(run, pair, call->subject.dict->entries[i].value);
        struct jinja_list *parts = jinja_collect(run, pair);
        if (parts->count != 2)
            jinja_fail(run, "urlencode: expected pairs of a name and a value");
        jinja_append(run, &out, "&", i ? 1 : 0);
        quote(run, &out, parts->items[0], true);
        jinja_append(run, &out, "=", 1);
        quote(run, &out, parts->items[1], true);
    }
    return jinja_built(run, &out);
}

static struct jinja_value wordcount(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_text *text = jinja_subject(run, call);
    i64 words = 0;
    bool inside = false;
    for (i64 at = 0, bytes; at < text->length; at += bytes) {
        u32 point = jinja_point(text->bytes + at, text->length - at, &bytes);
        bool letter =
            point == '_' || (jinja_classes(point) & (JINJA_ALPHA | JINJA_DECIMAL | JINJA_DIGIT | JINJA_NUMERIC));
        words += letter && !inside;
        inside = letter;
    }
    return jinja_integer(words);
}

const struct jinja_function JINJA_TEXT_FILTERS[] = {
    {"capitalize", "", 0, jinja_capitalize},
    {"center", "width", 0, jinja_center},
    {"e", "", 0, escape},
    {"escape", "", 0, escape},
    {"filesizeformat", NULL, 0, NULL},
    {"forceescape", "", 0, forceescape},
    {"format", NULL, 0, format},
    {"indent", "width first blank", 0, indent},
    {"lower", "", 0, jinja_lower},
    {"pprint", NULL, 0, NULL},
    {"replace", "old new count", 2, replace},
    {"safe", "", 0, safe},
    {"string", "", 0, string},
    {"striptags", "", 0, striptags},
    {"title", "", 0, title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, jinja_tojson},
    {"trim", "chars", 0, jinja_strip},
    {"truncate", "length killwords end leeway", 0, truncate},
    {"upper", "", 0, jinja_upper},
    {"urlencode", "", 0, urlencode},
    {"urlize", NULL, 0, NULL},
    {"wordcount", "", 0, wordcount},
    {"wordwrap", NULL, 0, NULL},
    {"xmlattr", NULL, 0, NULL},
    {0},
};
