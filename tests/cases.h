/* Cases as data: a file below tests/cases/ has one case a line, an object of JSON. README.md there
 * lists the files and their keys. A test reads a file in a loop, and a case that is wrong does not
 * end it:
 *
 *     EACH_CASE(c, "verify.jsonl")
 *         if (...case_text(c, "answer")...)
 *             case_wrong(c, "scored %g", score);
 *
 * At the end of the file the test fails if a case was wrong, after naming file, line and case. */
#ifndef WEFT_TESTS_CASES_H
#define WEFT_TESTS_CASES_H
#include "core/json.h"
#include "tests/test.h"

#include <stdio.h>

struct cases {
    const char *name; /* of the file, below tests/cases */
    struct buffer file;
    char *at;  /* the next line */
    i64 line;  /* of the case, from 1 */
    i64 wrong; /* cases that were, so far */
    i64 told;  /* line of the last one */
    struct json *row;
    const char *text; /* the case as it is written */
};

#define EACH_CASE(c, file) for (struct cases c[1] = {{.name = file}}; case_next(c);)

static inline void case_wrong(struct cases *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void case_wrong(struct cases *c, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "tests/cases/%s:%lld: ", c->name, (long long)c->line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n    of %s\n", c->text);
    c->wrong += c->told != c->line;
    c->told = c->line;
}

static inline void case_open(struct cases *c)
{
    char *path = string_format("%s/tests/cases/%s", SOURCE_TREE, c->name);
    if (file_read(&c->file, path))
        fail_msg("%s", error_text());
    if (c->file.length == 0 || c->file.data[c->file.length - 1] != '\n')
        fail_msg("%s: expected lines", path);
    memory_free(path);
    c->at = c->file.data;
}

/* Goes to the next case. At the end: false, and the test fails if a case was wrong. */
static inline bool case_next(struct cases *c)
{
    json_free(c->row);
    c->row = NULL;
    if (!c->at)
        case_open(c);
    if (*c->at) {
        char *end = strchr(c->at, '\n');
        *end = 0;
        c->text = c->at;
        if (!(c->row = json_parse_line(c->at, end - c->at, c->name, ++c->line)))
            fail_msg("tests/cases/%s", error_text());
        c->at = end + 1;
        return true;
    }
    buffer_release(&c->file);
    if (c->wrong)
        fail_msg("tests/cases/%s: %lld of %lld cases are wrong", c->name, (long long)c->wrong, (long long)c->line);
    return false;
}

/* A string that each case has; valid until the next case. */
static inline const char *case_text(struct cases *c, const char *key)
{
    const char *text = json_string(json_get(c->row, key), NULL);
    if (!text)
        fail_msg("tests/cases/%s:%lld: expected a string \"%s\" in %s", c->name, (long long)c->line, key, c->text);
    return text;
}

static inline double case_number(struct cases *c, const char *key)
{
    const struct json *value = json_get(c->row, key);
    if (json_kind(value) != JSON_INTEGER && json_kind(value) != JSON_REAL)
        fail_msg("tests/cases/%s:%lld: expected a number \"%s\" in %s", c->name, (long long)c->line, key, c->text);
    return json_number(value, 0);
}

/* The case is wrong if `got` is not the string `key`. */
static inline void case_expect(struct cases *c, const char *key, const char *got)
{
    if (strcmp(case_text(c, key), got) != 0)
        case_wrong(c, "%s is \"%s\"", key, got);
}

#endif
