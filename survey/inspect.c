/* Chooses how a file or folder is described, by what it holds. */
#include "data/formats/file_name.h"
#include "survey/inspect.h"
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

struct json *inspect_path(const char *path, const struct inspect_options *options)
{
    struct inspect_options wanted = *options;
    struct folder_visits visits = {0};
    bool away = is_address(path);
    wanted.verify |= !away && bytes_below(&visits, path) < VERIFIED_BYTES;
    folder_visits_release(&visits);
    return !away && wanted.verify && inventory_check_all(path) < 0 ? NULL
           : away                    ? inspect_sources(path, wanted.files, &wanted.columns)
           : file_is_directory(path) ? inspect_folder(path, &wanted)
                                     : inspect_file(path, &wanted);
}

int inspect_accept(const char *path)
{
    return has_file(path, "done.json") || has_file(path, INVENTORY_FILE)
               ? inventory_save(path)
               : error_usage("--accept: %s is no finished stage: expected a folder with done.json", path);
}
