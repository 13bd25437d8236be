/* weft init --from: the model that a recipe goes on from, and what its run says about its training. */
#include "survey/init.h"
#include "data/shards/shards.h"
#include "core/json.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shards that the model was trained on: a stage of its run, or a path. NULL: unknown, or gone. */
static char *shards_of(const char *directory, const struct json *settings)
{
    const char *data = json_string(json_get(settings, "data"), NULL);
    if (!data)
        return NULL; /* several sources, or none known */
    char *run = path_folder(directory), *shards = *data == '/' ? string_copy(data) : path_join(run, data);
    bool there = file_is_directory(shards) && shard_folders_exist(shards);
    memory_free(run);
    if (there)
        return shards;
    memory_free(shards);
    return NULL;
}

void init_direction_key(char key[INIT_KEY], enum direction d)
{
    snprintf(key, INIT_KEY, "%s", direction_rows[d].name);
    for (char *c = key; *c; c++)
        *c = *c == '-' ? '_' : *c;
}

static void read_training(struct init_model *m)
{
    char *path = path_join(m->directory, "identity.json");
    struct json *identity = file_exists(path) ? json_load(path) : NULL;
    const struct json *settings = json_get(identity, "settings"), *mixture = json_get(settings, "mixture");
    for (int d = 0; d < DIRECTIONS && mixture; d++) {
        char key[INIT_KEY];
        init_direction_key(key, (enum direction)d);
        m->mixture[d] = json_number(json_get(mixture, key), 0);
    }
    m->shards = shards_of(m->directory, settings);
    json_free(identity);
    memory_free(path);
}

static bool holds(const char *directory, const char *name)
{
    char *path = path_join(directory, name);
    bool there = file_exists(path);
    memory_free(path);
    return there;
}

int init_model_open(struct init_model *m, const char *directory)
{
    struct model_config config;
    char *real = realpath(directory, NULL);
    *m = (struct init_model){0};
    if (!real)
        return error_set("--from %s: there is no such folder; expected the folder of a model, such as out/my/base",
                         directory);
    m->directory = string_copy(real);
    free(real);
    if (model_config_load(&config, m->directory))
        return -1;
    if (!holds(m->directory, "tokenizer.json"))
        return error_set("--from %s: the model has no tokenizer.json, so that no text can be encoded for it",
                         directory);
    m->width = config.width;
    m->vision = holds(m->directory, "weft/vision/config.json");
    m->audio = holds(m->directory, "weft/audio/config.json");
    read_training(m);
    return 0;
}

void init_model_close(struct init_model *m)
{
    memory_free(m->directory);
    memory_free(m->shards);
    *m = (struct init_model){0};
}
