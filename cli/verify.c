/* weft verify [RULE] [FILE]: scores JSON lines {"truth":..,"answer":..} by a verifier, so that a rule
 * can be tried before a run. Without RULE each line names its own, {"verifier":..}. A line may say
 * which score is `expected` of it. */
#define _GNU_SOURCE /* getline */
#include "cli/cli.h"
#include "core/json.h"
#include "core/settings.h"
#include "rl/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* VERIFY_AUTO, which is no rule of a line: there is none of this name. */
static enum verifier rule_of(const char *name)
{
    int rule = setting_choice(VERIFIER_RULES, name);
    return rule < 0 ? VERIFY_AUTO : (enum verifier)(VERIFY_EXACT + rule);
}

/* The status of a message about the word that is no rule. or: what else it may be. */
static int refuse_rule(const char *where, const char *name, const char * or)
{
    const char *rules[VERIFY_PROGRAM + 1] = {NULL};
    int count = 0;
    char *names = string_copy(VERIFIER_RULES);
    for (char *rest = names, *word; (word = strsep(&rest, "|"));)
        rules[count++] = word;
    const char *near = string_nearest(name, rules);
    int status = error_usage("%s%s: expected one of %s%s%s%s%s", where, name, VERIFIER_RULES, or,
                             near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    memory_free(names);
    return status;
}

struct scored_lines {
    enum verifier rule; /* of all lines; VERIFY_AUTO: each names its own */
    const char *path;
    i64 number;          /* of the line */
    i64 expected, wrong; /* lines that expect a score, and those that have another one */
    char *first;         /* such line */
};

/* The rule of a line, or -1 and a message. */
static int find_rule(enum verifier *out, const struct scored_lines *s, const struct json *line)
{
    const char *name = json_string(json_get(line, "verifier"), NULL);
    *out = s->rule != VERIFY_AUTO ? s->rule : rule_of(name);
    if (*out != VERIFY_AUTO)
        return 0;
    char *where = string_format("%s, line %lld: verifier: ", s->path, (long long)s->number);
    int status = refuse_rule(where, name ? name : "it names none", "");
    memory_free(where);
    return status;
}

static void compare_score(struct scored_lines *s, const struct json *line, double score)
{
    const struct json *expected = json_get(line, "expected");
    if (json_kind(expected) != JSON_INTEGER && json_kind(expected) != JSON_REAL)
        return;
    s->expected++;
    if (fabs(score - json_number(expected, 0)) <= 1e-9)
        return;
    if (s->wrong++ == 0)
        s->first = string_format("line %lld: %g, expected %g", (long long)s->number, score, json_number(expected, 0));
}

/* A truth may be a string or a number, which stands as its text. */
static int score_line(struct json *j, struct scored_lines *s)
{
    const struct json *truth = json_get(j, "truth");
    const char *answer = json_string(json_get(j, "answer"), NULL);
    enum json_kind kind = json_kind(truth);
    struct buffer text = {0};
    enum verifier rule;
    double score = 0;
    if (find_rule(&rule, s, j))
        return -1;
    if (kind == JSON_STRING)
        buffer_printf(&text, "%s", json_string(truth, ""));
    else if (kind == JSON_INTEGER || kind == JSON_REAL)
        json_print(&text, truth, 0);
    int status = 0;
    if (!answer || (!text.data && rule != VERIFY_FORMAT))
        status =
            error_set("%s, line %lld: expected {\"truth\": TEXT, \"answer\": TEXT}", s->path, (long long)s->number);
    else if (verify(&score, rule, text.data ? text.data : "", answer))
        status = error_prefix("%s, line %lld", s->path, (long long)s->number);
    if (status == 0) {
        json_set(j, "score", json_of_number(score));
        compare_score(s, j, score);
    }
    buffer_release(&text);
    return status;
}

static int score_lines(FILE *in, struct scored_lines *s)
{
    char *line = NULL;
    size_t room = 0;
    struct buffer out = {0};
    int status = 0;
    for (ssize_t length; status == 0 && (length = getline(&line, &room, in)) > 0;) {
        s->number++;
        if (line[strspn(line, " \t\r\n")] == 0)
            continue;
        struct json *j = json_parse_line(line, length, s->path, s->number);
        status = j ? score_line(j, s) : -1;
        buffer_clear(&out);
        if (status == 0) {
            json_print(&out, j, 0);
            buffer_append(&out, "\n", 1);
            status = output_result(out.data, out.length);
        }
        json_free(j);
    }
    if (status == 0 && ferror(in))
        status = error_errno("%s", s->path);
    if (status == 0 && s->wrong)
        status = error_set("%s: %lld of %lld scores are not as expected; first %s", s->path, (long long)s->wrong,
                           (long long)s->expected, s->first);
    free(line);
    buffer_release(&out);
    return status;
}

/* The rule, if one is named, and the file; NULL: stdin. */
static int read_words(struct scored_lines *s, const char **file, const struct arguments *a)
{
    const char *first = a->count ? a->positional[0] : "-";
    s->rule = rule_of(first);
    bool named = s->rule != VERIFY_AUTO;
    if (!named && (a->count == 2 || (strcmp(first, "-") != 0 && !file_exists(first))))
        return refuse_rule("weft verify ", first, ", or a file of lines that name theirs");
    *file = !named ? first : a->count == 2 ? a->positional[1] : "-";
    if (strcmp(*file, "-") == 0)
        *file = NULL;
    s->path = *file ? *file : "stdin";
    return 0;
}

int command_verify(int argc, char **argv)
{
    struct arguments a;
    struct scored_lines lines = {0};
    const struct option options[] = {{NULL}};
    const char *file = NULL;
    int status = options_parse(&a, argc, argv, options, 0, 2);
    if (status == 0)
        status = read_words(&lines, &file, &a);
    if (status)
        return status < 0 ? command_failed() : 0;
    int descriptor = file ? file_open(file) : STDIN_FILENO;
    FILE *in = !file ? stdin : descriptor < 0 ? NULL : fdopen(descriptor, "re");
    if (in)
        status = score_lines(in, &lines);
    else
        status = descriptor < 0 ? -1 : error_errno("%s: cannot be read", file);
    if (file && in)
        fclose(in);
    memory_free(lines.first);
    return status ? command_failed() : 0;
}
