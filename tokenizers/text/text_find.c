/* Shared helpers for reading a tokenizer's settings: error messages that name the place, and
 * search patterns (strings or regular expressions). */
#define _GNU_SOURCE /* for memmem */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <stdio.h>
#include <string.h>

const char *kind_of(const struct json *value)
{
    return json_string(json_get(value, "type"), "");
}

int refuse(const struct json_origin *source, const struct json *value, const char *expected)
{
    struct buffer shown = {0};
    if (value)
        json_print(&shown, value, 0);
    error_set("%s: %s is %.200s; expected %s", source->origin, source->place, shown.length ? shown.data : "missing",
              expected);
    buffer_release(&shown);
    return -1;
}

int refuse_growth(const char *origin, const char *place, i64 bytes)
{
    return error_set("%s: %s makes more than %lld bytes of a text of %lld; a tokenizer may make 64 times as many: take "
                     "the file from its author again",
                     origin, place, (long long)most_grown(bytes), (long long)bytes);
}

struct json_origin source_of(const struct json_origin *source, const char *key, i64 index)
{
    struct json_origin part = {.origin = source->origin};
    const char *dot = *source->place ? "." : "";
    if (index < 0)
        snprintf(part.place, sizeof part.place, "%s%s%s", source->place, dot, key);
    else
        snprintf(part.place, sizeof part.place, "%s%s%s[%lld]", source->place, dot, key, (long long)index);
    return part;
}

int refuse_kind(const struct json_origin *source, const char *name, const char *const *known)
{
    struct buffer all = {0};
    for (i64 i = 0; known[i]; i++)
        buffer_printf(&all, "%s%s", i ? ", " : "", known[i]);
    if (*name)
        error_set("%s: %s: type '%.100s' is not supported; expected one of %s", source->origin, source->place, name,
                  all.data);
    else
        error_set("%s: %s has no type; expected one of %s", source->origin, source->place, all.data);
    buffer_release(&all);
    return -1;
}

int sequence_read(struct text_tokenizer *tokenizer, const struct json *sequence, const char *key, part_fn *read,
                  const struct json_origin *source)
{
    const struct json *parts = json_get(sequence, key);
    char expected[64];
    snprintf(expected, sizeof expected, "a Sequence with a list of %s", key);
    if (json_kind(parts) != JSON_ARRAY)
        return refuse(source, sequence, expected);
    for (i64 i = 0; i < json_count(parts); i++) {
        struct json_origin part = source_of(source, key, i);
        if (read(tokenizer, json_at(parts, i), &part))
            return -1;
    }
    return 0;
}

int finder_init(struct finder *finder, const struct json *pattern, const struct json_origin *source)
{
    const struct json *string = json_get(pattern, "String"), *regex = json_get(pattern, "Regex");
    const struct json *value = string ? string : regex;
    *finder = (struct finder){0};
    i64 length = json_string_length(value);
    if (json_kind(value) != JSON_STRING || length == 0 || strlen(json_string(value, "")) != (size_t)length)
        return refuse(source, pattern, "{\"String\": TEXT} or {\"Regex\": TEXT}, not empty and without U+0000");
    if (regex)
        return (finder->regex = regex_open(json_string(regex, ""), source->origin)) ? 0 : -1;
    finder->string = string_copy(json_string(string, ""));
    finder->length = length;
    return 0;
}

void finder_release(struct finder *finder)
{
    regex_close(finder->regex);
    memory_free(finder->string);
    *finder = (struct finder){0};
}

static int next_string(const struct finder *finder, struct find_cursor *cursor, const u8 *text, i64 length)
{
    const u8 *found = cursor->from < length ? memmem(text + cursor->from, (size_t)(length - cursor->from),
                                                     finder->string, (size_t)finder->length)
                                            : NULL;
    if (!found)
        return 0;
    cursor->begin = found - text;
    cursor->end = cursor->from = cursor->begin + finder->length;
    return 1;
}

/* An empty match directly after a match does not count; the search continues one character later,
 * as in Oniguruma's iterator. */
int finder_next(const struct finder *finder, struct find_cursor *cursor, struct regex_scratch *scratch, const u8 *text,
                i64 length)
{
    if (!finder->regex)
        return next_string(finder, cursor, text, length);
    while (cursor->from <= length) {
        i64 begin, end;
        int found = regex_find(&begin, &end, finder->regex, scratch, text, cursor->from, length);
        if (found <= 0)
            return found;
        if (begin == end && cursor->any && cursor->end == end) {
            u32 c;
            cursor->from += cursor->from < length ? utf8_decode(&c, text + cursor->from) : 1;
            continue;
        }
        cursor->any = true;
        cursor->begin = begin, cursor->end = cursor->from = end;
        return 1;
    }
    return 0;
}
