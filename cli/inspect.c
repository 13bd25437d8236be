/* weft inspect PATH: describes a file or folder and verifies it. */
#include "data/formats/file_name.h"
#include "cli/cli.h"
#include "cli/inspect/inspect.h"
#include "core/inventory.h"
#include "core/temporary.h"
#include "data/shards/shards.h"
#include "data/sources/sources.h"
#include "tokenizers/text/text.h"

#include <stdio.h>
#include <string.h>

#define VERIFIED_BYTES ((i64)1 << 30) /* verified without --verify up to this size */

static bool has_file(const char *directory, const char *name)
{
    char *path = path_join(directory, name);
    bool found = file_exists(path);
    memory_free(path);
    return found;
}

static i64 bytes_below(struct folder_visits *visits, const char *path)
{
    char **names;
    i64 count, sum = 0;
    if (!file_is_directory(path))
        return max_i64(file_bytes(path), 0);
    if (!folder_visit(visits, path) || directory_list(&names, &count, path))
        return 0;
    for (i64 i = 0; i < count; i++) {
        char *below = path_join(path, names[i]);
        sum += bytes_below(visits, below);
        memory_free(below);
    }
    string_list_free(names, count);
    return sum;
}

static bool holds_steps(const char *directory)
{
    char **names;
    i64 count;
    bool found = false;
    if (directory_list(&names, &count, directory))
        return false;
    for (i64 i = 0; i < count; i++)
        found |= strncmp(names[i], "step-", 5) == 0 && !is_temporary(names[i]);
    string_list_free(names, count);
    return found;
}

/* A tokenizer's config.json has a "kind", a model's has a model_type. */
static bool is_media_tokenizer(const char *directory)
{
    char *path = path_join(directory, "config.json");
    struct json *config = json_load(path);
    bool found = json_kind(json_get(config, "kind")) == JSON_STRING;
    json_free(config);
    memory_free(path);
    return found;
}

struct inspect_options {
    bool verify, files;            /* files: list each */
    struct source_columns columns; /* column names of data tables */
};

static struct json *inspect_others(const char *path, const struct inspect_options *wanted)
{
    struct json *found = inspect_sources(path, wanted->files, &wanted->columns);
    if (!found) {
        char *why = string_copy(error_text());
        error_set("%s: a folder of no kind known here: no model (config.json), shards (shards.json), tokenizer "
                  "(tokenizer.json), checkpoints (step-*) or run (run.json) in it; and as data: %s",
                  path, why);
        memory_free(why);
    }
    return found;
}

static bool has_tokenizer(const char *path)
{
    char *file = text_tokenizer_file(path);
    memory_free(file);
    return file != NULL;
}

static const char *folder_kind(const char *path)
{
    if (has_file(path, "weft/state.json") || holds_steps(path))
        return "checkpoints";
    if (has_file(path, "shards.json") || has_file(path, "index"))
        return "shards";
    if (has_file(path, "config.json") || has_file(path, "model.safetensors") ||
        has_file(path, "model.safetensors.index.json"))
        return is_media_tokenizer(path) ? "media tokenizer" : "model";
    if (has_tokenizer(path))
        return "tokenizer";
    if (has_file(path, "run.json"))
        return "run";
    return shard_folders_exist(path) ? "folder of shard folders" : "data";
}

static struct json *inspect_folder(const char *path, const struct inspect_options *wanted)
{
    const char *kind = folder_kind(path);
    bool verify = wanted->verify;
    return strcmp(kind, "checkpoints") == 0               ? inspect_checkpoint(path)
           : strcmp(kind, "shards") == 0                  ? inspect_shards(path, verify)
           : strcmp(kind, "media tokenizer") == 0         ? inspect_media_tokenizer(path, verify)
           : strcmp(kind, "model") == 0                   ? inspect_model(path, verify)
           : strcmp(kind, "tokenizer") == 0               ? inspect_tokenizer(path)
           : strcmp(kind, "run") == 0                     ? inspect_run(path, verify)
           : strcmp(kind, "folder of shard folders") == 0 ? inspect_shard_folders(path, verify)
                                                          : inspect_others(path, wanted);
}

static bool is_gguf(const char *path)
{
    struct file_view view;
    if (file_map(&view, path))
        return false;
    bool found = view.bytes >= 4 && memcmp(view.data, "GGUF", 4) == 0;
    file_unmap(&view);
    return found;
}

/* True for a JSON list of records; a tokenizer is an object. */
static bool is_list(const char *path)
{
    struct file_view view;
    i64 at = 0;
    if (file_map(&view, path))
        return false;
    while (at < view.bytes && strchr(" \t\r\n", view.data[at]) && view.data[at])
        at++;
    bool found = at < view.bytes && view.data[at] == '[';
    file_unmap(&view);
    return found;
}

const char *inspect_kind(const char *path)
{
    if (is_address(path))
        return "data";
    if (file_is_directory(path))
        return folder_kind(path);
    return name_ends_with(path, ".json") ? (is_list(path) ? "data" : "tokenizer") : source_reads(path) ? "data" : NULL;
}

static struct json *inspect_file(const char *path, const struct inspect_options *wanted)
{
    if (name_ends_with(path, ".safetensors"))
        return inspect_safetensors(path, wanted->verify);
    if (name_ends_with(path, ".json") && is_list(path))
        return inspect_sources(path, wanted->files, &wanted->columns);
    if (name_ends_with(path, ".json") || name_ends_with(path, ".model") || name_ends_with(path, ".tiktoken"))
        return inspect_tokenizer(path);
    if (name_ends_with(path, ".yaml") || name_ends_with(path, ".yml"))
        return inspect_recipe(path);
    if (name_ends_with(path, ".gguf") || is_gguf(path))
        return inspect_gguf(path);
    if (source_reads(path))
        return inspect_sources(path, wanted->files, &wanted->columns);
    return inspect_media(path);
}

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

static int accept_files(const char *path)
{
    return has_file(path, "done.json") || has_file(path, INVENTORY_FILE)
               ? inventory_save(path)
               : error_usage("--accept: %s is no finished stage: expected a folder with done.json", path);
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
    bool away = is_address(path);
    if (!away && !file_exists(path))
        status = error_set("there is no %s", path);
    else if (pairs)
        status = read_columns(&wanted.columns, pairs);
    if (status == 0 && accept)
        status = accept_files(path);
    if (status) {
        memory_free(pairs);
        return command_failed();
    }
    struct folder_visits visits = {0};
    wanted.verify |= !away && bytes_below(&visits, path) < VERIFIED_BYTES;
    folder_visits_release(&visits);
    struct json *found = !away && wanted.verify && inventory_check_all(path) < 0 ? NULL
                         : away                    ? inspect_sources(path, wanted.files, &wanted.columns)
                         : file_is_directory(path) ? inspect_folder(path, &wanted)
                                                   : inspect_file(path, &wanted);
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
