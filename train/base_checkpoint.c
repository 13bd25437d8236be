/* The setting `continue:`: opens the newest intact checkpoint of another stage, and checks that the
 * new settings agree with it. */
#include "train/base_checkpoint.h"

#include "core/json.h"
#include "tokenizers/vision/vision.h"

#include <stdlib.h>
#include <string.h>

/* ---- The checkpoint ---- */

static int read_state(struct base_checkpoint *c)
{
    char *path = string_format("%s/weft/state.json", c->folder);
    struct json *j = json_load(path);
    const char *seed = json_string(json_get(json_get(j, "state"), "seed"), NULL);
    c->step = json_integer(json_get(j, "step"), -1);
    int status = j ? 0 : -1;
    if (status == 0 && !seed)
        status = error_set(
            "%s: it has no seed, so its random draws cannot continue: expected a checkpoint of a stage of this kind "
            "and version; train that stage anew (--redo), or start from its result (from:)",
            path);
    if (status == 0)
        c->seed = strtoull(seed, NULL, 16);
    json_free(j);
    memory_free(path);
    return status;
}

int base_checkpoint_open(struct base_checkpoint *c, const char *stage_folder)
{
    *c = (struct base_checkpoint){.checkpoints = path_join(stage_folder, "checkpoints")};
    return checkpoint_verify(c->checkpoints, &c->folder) ? error_prefix("continue") : read_state(c);
}

void base_checkpoint_close(struct base_checkpoint *c)
{
    memory_free(c->checkpoints);
    memory_free(c->folder);
    *c = (struct base_checkpoint){0};
}

/* ---- Compatibility ---- */

static double value_of(const struct setting *row, const void *settings)
{
    const char *field = (const char *)settings + row->offset;
    if (row->type == SETTING_BOOL)
        return *(const bool *)field;
    return row->type == SETTING_INTEGER ? (double)*(const i64 *)field : *(const double *)field;
}

static double fallback_of(const struct setting *row)
{
    return row->type == SETTING_BOOL ? strcmp(row->fallback, "true") == 0 : strtod(row->fallback, NULL);
}

/* A size left at its default takes the model's value; any other size must equal it. holder: what has
 * that model. */
static int check_sizes(const struct pretrain_settings *stands, const struct pretrain_settings *s, const char *holder)
{
    for (const struct setting *row = pretrain_table; row->key; row++) {
        if (strncmp(row->key, "model.", 6) != 0 || row->type == SETTING_INTEGERS)
            continue;
        double asked = value_of(row, s), has = value_of(row, stands);
        if (asked != fallback_of(row) && asked != has)
            return error_usage("%s is %g, and the model of %s has %g: a continued run keeps its sizes; omit it, "
                               "or train a new model",
                               row->key, asked, holder, has);
    }
    return 0;
}

/* The layers of audio heads, if the settings and `has` name or imply any. */
static int check_audio_layers(const struct model_config *has, const struct pretrain_settings *s, const char *holder)
{
    i64 asked = s->audio_layers.count, count = has->audio_layer_count ? has->audio_layer_count : has->levels;
    bool same = asked == 0 || count == 0 || asked == count;
    for (i64 i = 0; i < asked && count && same; i++)
        same = s->audio_layers.values[i] == audio_head_layer(has, i);
    return same ? 0
                : error_usage("model.audio_layers differs from the layers of %s: a continued run keeps its model; "
                              "omit it, or train a new model",
                              holder);
}

static int check_steps(const struct pretrain_settings *s, i64 gone, const char *holder)
{
    return gone < s->steps
               ? 0
               : error_usage(
                     "steps is %lld, and %s has gone %lld already: expected more; steps count from the beginning",
                     (long long)s->steps, holder, (long long)gone);
}

/* Compares one tokenizer file of the model directory with that of the shards. */
static int compare_files(const char *has, const char *now)
{
    struct buffer a = {0}, b = {0};
    int status = file_read(&a, has) || file_read(&b, now) ? -1 : 0;
    if (status == 0 && (a.length != b.length || memcmp(a.data, b.data, (size_t)a.length) != 0))
        status = error_set("%s differs from %s: the shards were made with another tokenizer, and the model to go on "
                           "with knows only its own; prepare shards with that one",
                           now, has);
    buffer_release(&a);
    buffer_release(&b);
    return status;
}

static int compare_folders(const char *has, const char *now)
{
    char **names;
    i64 count;
    if (!file_is_directory(has) || directory_list(&names, &count, has))
        return file_is_directory(has) ? -1 : 0;
    int status = 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        char *a = path_join(has, names[i]), *b = path_join(now, names[i]);
        if (!file_is_directory(a))
            status = compare_files(a, b);
        memory_free(a);
        memory_free(b);
    }
    string_list_free(names, count);
    return status;
}

/* Those from `first` on, and that of text. */
static int check_tokenizers(const char *model, const char *shards, int first)
{
    char *text = path_join(shards, "text"), *now = text_tokenizer_file(text);
    char *has = path_join(model, now ? strrchr(now, '/') + 1 : "tokenizer.json");
    if (!now)
        now = path_join(text, "tokenizer.json");
    int status = compare_files(has, now);
    memory_free(text);
    memory_free(has);
    memory_free(now);
    for (int i = first; i < TOKENIZERS && status == 0; i++) {
        has = string_format("%s/weft/%s", model, tokenizer_names[i]);
        now = path_join(shards, tokenizer_names[i]);
        status = compare_folders(has, now);
        memory_free(has);
        memory_free(now);
    }
    return status;
}

int base_tokenizers_grow(const char *model, const char *shards)
{
    if (check_tokenizers(model, shards, TOKENIZER_VISION + 1))
        return -1;
    char *base = string_format("%s/weft/%s", model, tokenizer_names[TOKENIZER_VISION]);
    char *grown = path_join(shards, tokenizer_names[TOKENIZER_VISION]);
    int same = vision_bits_stay(base, grown);
    if (same == 0)
        log_warn("%s: its first bits are not those of %s, from which it did not grow with train: bits: their losses "
                 "begin anew",
                 grown, base);
    memory_free(base);
    memory_free(grown);
    return same < 0 ? -1 : 0;
}

int base_checkpoint_check(const struct base_checkpoint *c, const struct pretrain_settings *s)
{
    struct pretrain_settings stands = {0};
    if (check_steps(s, c->step, c->folder) || model_config_load(&stands.model, c->folder))
        return -1;
    char *shards = shard_folders_first(s->data.all);
    int status = !shards || check_sizes(&stands, s, c->folder) || check_audio_layers(&stands.model, s, c->folder) ||
                         check_tokenizers(c->folder, shards, TOKENIZER_VISION)
                     ? -1
                     : 0;
    memory_free(shards);
    return status;
}

int pretrain_check_continued(const struct pretrain_settings *s, const struct pretrain_settings *other, const char *name)
{
    bool starts = !(other->from && *other->from) && !(other->continues && *other->continues);
    if (check_steps(s, other->steps, name))
        return -1;
    struct model_config made = pretrain_config(other);
    return starts && (check_sizes(other, s, name) || check_audio_layers(&made, s, name)) ? -1 : 0;
}
