/* stream.json: the recipe of a stream's shards. */
#include "data/prepare/prepare.h"

#include "core/json.h"

#include <stdlib.h>
#include <string.h>

enum { VERSION = 1 };
static const char file_name[] = SHARD_STREAM_FILE;

static struct json *path_json(const struct json *value)
{
    const char *path = json_string(value, NULL);
    if (json_kind(value) == JSON_ARRAY) {
        struct json *list = json_array();
        for (i64 i = 0; i < json_count(value); i++)
            json_push(list, path_json(json_at(value, i)));
        return list;
    }
    if (!path || *path == '/' || *path == '.' || is_address(path))
        return json_copy(value);
    char *below = path_join(".", path);
    struct json *out = json_of_string(below);
    memory_free(below);
    return out;
}

/* References are already resolved to paths. A "./" prefix keeps out/corpus from being read as a
 * reference again. */
static void mark_paths(struct json *settings)
{
    struct json *filter = json_get(settings, "filter");
    json_set(settings, "data", path_json(json_get(settings, "data")));
    for (int i = 0; i < TOKENIZERS; i++)
        json_set(settings, tokenizer_names[i], path_json(json_get(settings, tokenizer_names[i])));
    json_set(filter, "against", path_json(json_get(filter, "against")));
    json_set(filter, "seen", path_json(json_get(filter, "seen")));
}

int shard_stream_save(const char *directory, const struct prepare_settings *settings, u64 seed, enum dtype dtype)
{
    char *path = path_join(directory, file_name), *number = string_format("%016llx", (unsigned long long)seed);
    struct json *j = json_object(), *known = settings_to_json(settings, prepare_table);
    mark_paths(known);
    json_set(j, "version", json_of_integer(VERSION));
    json_set(j, "seed", json_of_string(number));
    json_set(j, "precision", json_of_string(dtype == DTYPE_BF16 ? "bf16" : "f32"));
    json_set(j, "settings", known);
    int status = json_save(path, j);
    json_free(j);
    memory_free(number);
    memory_free(path);
    return status;
}

/* Reads the settings from the JSON file with the YAML parser, since JSON is valid YAML. */
static int read_settings(struct prepare_settings *out, const char *path)
{
    static const char *const none[] = {NULL};
    struct yaml *document = yaml_load(path);
    int status =
        document ? settings_read(out, prepare_table, yaml_get(yaml_root(document), "settings"), none, NULL, 0) : -1;
    yaml_free(document);
    return status;
}

static void use_copy(char **tokenizer, const char *directory, const char *name)
{
    if (!*tokenizer || !**tokenizer)
        return;
    memory_free(*tokenizer);
    *tokenizer = path_join(directory, name);
}

int shard_stream_load(struct shard_stream *s, const char *directory)
{
    *s = (struct shard_stream){0};
    if (!shard_stream_is(directory))
        return error_set("%s: no stream: expected the folder of a stage `prepare` with stream.on, which holds %s",
                         directory, file_name);
    char *path = path_join(directory, file_name);
    struct json *j = json_load(path);
    int status = j ? 0 : -1;
    if (status == 0 && json_integer(json_get(j, "version"), 0) != VERSION)
        status = error_set("%s: not a stream of version %d: run the stage that makes it again", path, VERSION);
    if (status == 0)
        status = read_settings(&s->settings, path);
    if (status == 0) {
        s->seed = strtoull(json_string(json_get(j, "seed"), "0"), NULL, 16);
        s->dtype = strcmp(json_string(json_get(j, "precision"), ""), "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32;
        for (int i = 0; i < TOKENIZERS; i++)
            use_copy(&s->settings.tokenizer[i], directory, tokenizer_names[i]);
    } else {
        shard_stream_release(s);
    }
    json_free(j);
    memory_free(path);
    return status;
}

void shard_stream_release(struct shard_stream *s)
{
    settings_release(&s->settings, prepare_table);
    *s = (struct shard_stream){0};
}
