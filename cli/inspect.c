/* weft inspect PATH: describes a file or folder and verifies it. */
#include "cli/cli.h"
#include "survey/inspect.h"

#include <string.h>

/* The index of a word in a list; -1: it is not there. */
static int word_index(const char *words, const char *word)
{
    size_t length = strlen(word);
    int index = 0;
    for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ', index++)
        if (strcspn(at, " ") == length && strncmp(at, word, length) == 0)
            return index;
    return -1;
}

/* Parses NAME=COLUMN,.., and in the same form how tables are written. Columns point into `text`,
 * which is modified and must outlive them. */
static int read_columns(struct source_columns *columns, char *text)
{
    static const char names[] = "text, image, video, audio, messages, question, answer, separator, header, folder, "
                                "ending, outside, lone_texts, captions";
    const struct {
        const char *name, *words; /* words: by value */
        int *value;
    } choices[] = {{"header", "true false", &columns->header},
                   {"outside", "refuse allow", &columns->outside},
                   {"lone_texts", "auto read leave", &columns->lone_texts},
                   {"captions", "files folder name none", &columns->captions}};
    const struct {
        const char *name;
        char **column;
    } known[] = {{"messages", &columns->messages},   {"question", &columns->question}, {"answer", &columns->answer},
                 {"separator", &columns->separator}, {"folder", &columns->folder},     {"ending", &columns->ending}};
    for (char *rest = text, *pair; (pair = strsep(&rest, ","));) {
        char *name = strsep(&pair, "=");
        enum modality kind = modality_named(name);
        char **column = kind == MODALITIES ? NULL : &columns->modality[kind];
        for (i64 i = 0; i < COUNT_OF(known); i++)
            column = strcmp(name, known[i].name) == 0 ? known[i].column : column;
        int *choice = NULL, chosen = -1;
        for (i64 i = 0; i < COUNT_OF(choices) && pair; i++)
            if (strcmp(name, choices[i].name) == 0) {
                choice = choices[i].value;
                chosen = word_index(choices[i].words, pair);
            }
        if (chosen >= 0) {
            *choice = chosen;
            continue;
        }
        if (!column || !pair || !*pair)
            return error_usage("--columns: '%s': expected NAME=COLUMN, where NAME is one of %s", name, names);
        *column = pair;
    }
    return 0;
}

int command_inspect(int argc, char **argv)
{
    struct arguments a;
    bool json = false, verify = false, accept = false;
    const char *columns = NULL;
    const struct option options[] = {
        {"columns", "NAME=COLUMN,...", &columns, NULL,
         "column names of raw data, as in the setting `columns`, outside=allow, lone_texts=read, captions=folder"},
        {"json", NULL, NULL, &json, "print one JSON object; for raw data, list every file and its use"},
        {"verify", NULL, NULL, &verify, "read and verify every byte (default for local paths below 1 GiB)"},
        {"accept", NULL, NULL, &accept,
         "take the files of a finished stage as they are: after an edit by intent, its inventory.json is written anew"},
        {NULL}};
    int status = options_parse(&a, argc, argv, options, 1, 1);
    if (status)
        return status < 0 ? command_failed() : 0;
    const char *path = a.positional[0];
    char *pairs = columns ? string_copy(columns) : NULL;
    struct inspect_options wanted = {.verify = verify, .files = json};
    if (!is_address(path) && !file_exists(path))
        status = error_set("there is no %s", path);
    else if (pairs)
        status = read_columns(&wanted.columns, pairs);
    if (status == 0 && accept)
        status = inspect_accept(path);
    if (status) {
        memory_free(pairs);
        return command_failed();
    }
    struct json *found = inspect_path(path, &wanted);
    memory_free(pairs);
    if (!found) {
        command_failed();
        return 1; /* the file is at fault, not the usage */
    }
    struct buffer out = {0};
    if (json) {
        json_print(&out, found, 0);
        buffer_append(&out, "\n", 1);
    } else {
        inspect_show(&out, found);
    }
    output_text(out.data, out.length);
    buffer_release(&out);
    json_free(found);
    return 0;
}
