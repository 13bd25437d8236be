/* weft verify RULE [FILE]: scores JSON lines {"truth":..,"answer":..} by a verifier, so that a rule
 * can be tried before a run. */
#define _GNU_SOURCE /* getline */
#include "cli/cli.h"
#include "core/json.h"
#include "core/settings.h"
#include "rl/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int find_rule(enum verifier *out, const char *name)
{
    const char *rules[VERIFY_PROGRAM + 1] = {NULL};
    int rule = setting_choice(VERIFIER_RULES, name), count = 0;
    if (rule >= 0) {
        *out = (enum verifier)(VERIFY_EXACT + rule);
        return 0;
    }
    char *names = string_copy(VERIFIER_RULES);
    for (char *rest = names, *word; (word = strsep(&rest, "|"));)
        rules[count++] = word;
    const char *near = string_nearest(name, rules);
    int status = error_usage("weft verify %s: expected one of " VERIFIER_RULES "%s%s%s", name,
                             near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    memory_free(names);
    return status;
}

/* A truth may be a string or a number, which stands as its text. */
static int score_line(struct json *j, enum verifier rule, const char *path, i64 number)
{
    const struct json *truth = json_get(j, "truth");
    const char *answer = json_string(json_get(j, "answer"), NULL);
    enum json_kind kind = json_kind(truth);
    struct buffer text = {0};
    double score = 0;
    if (kind == JSON_STRING)
        buffer_printf(&text, "%s", json_string(truth, ""));
    else if (kind == JSON_INTEGER || kind == JSON_REAL)
        json_print(&text, truth, 0);
    int status = 0;
    if (!answer || (!text.data && rule != VERIFY_FORMAT))
        status = error_set("%s, line %lld: expected {\"truth\": TEXT, \"answer\": TEXT}", path, (long long)number);
    else if (verify(&score, rule, text.data ? text.data : "", answer))
        status = error_prefix("%s, line %lld", path, (long long)number);
    if (status == 0)
        json_set(j, "score", json_of_number(score));
    buffer_release(&text);
    return status;
}

static int score_lines(FILE *in, const char *path, enum verifier rule)
{
    char *line = NULL;
    size_t room = 0;
    struct buffer out = {0};
    int status = 0;
    i64 number = 0;
    for (ssize_t length; status == 0 && (length = getline(&line, &room, in)) > 0;) {
        number++;
        if (line[strspn(line, " \t\r\n")] == 0)
            continue;
        struct json *j = json_parse_line(line, length, path, number);
        status = j ? score_line(j, rule, path, number) : -1;
        buffer_clear(&out);
        if (status == 0) {
            json_print(&out, j, 0);
            buffer_append(&out, "\n", 1);
            status = output_result(out.data, out.length);
        }
        json_free(j);
    }
    if (status == 0 && ferror(in))
        status = error_errno("%s", path);
    free(line);
    buffer_release(&out);
    return status;
}

int command_verify(int argc, char **argv)
{
    struct arguments a;
    const struct option options[] = {{NULL}};
    enum verifier rule = VERIFY_AUTO;
    int status = options_parse(&a, argc, argv, options, 1, 2);
    if (status == 0)
        status = find_rule(&rule, a.positional[0]);
    if (status)
        return status < 0 ? command_failed() : 0;
    bool named = a.count == 2 && strcmp(a.positional[1], "-") != 0;
    const char *path = named ? a.positional[1] : "stdin";
    int descriptor = named ? file_open(path) : STDIN_FILENO;
    FILE *in = !named ? stdin : descriptor < 0 ? NULL : fdopen(descriptor, "re");
    if (in)
        status = score_lines(in, path, rule);
    else
        status = descriptor < 0 ? -1 : error_errno("%s: cannot be read", path);
    if (named && in)
        fclose(in);
    return status ? command_failed() : 0;
}
