/* weft inspect: shards, media, recipes and runs. */
#include "survey/inspect.h"
#include "pipeline/pipeline.h"
#include "core/inventory.h"
#include "data/stream/stream.h"
#include "data/media/media.h"
#include "data/loader/packer.h"

#include <stdio.h>
#include <string.h>

/* ---- Shards ---- */

struct inspect_data_tally {
    i64 samples, positions, films; /* films: clips with sound */
};

/* Positions of a sample when the packer lays it in one piece. */
static i64 positions_of(const struct shards *shards, const struct shard_sample *sample,
                        const struct vocabulary *vocabulary)
{
    struct part *parts = memory_alloc(max_i64(sample->parts, 1) * (i64)sizeof *parts);
    struct sample_measure measure;
    i64 count = 0;
    for (i64 i = 0; i < sample->parts; i++) {
        const struct shard_part *p = shards_part(shards, (i64)sample->first_part + i);
        if (p->kind != PART_NOTE)
            parts[count++] = (struct part){.kind = p->kind == PART_VOICE ? STREAM_AUDIO : p->kind,
                                           .voice = p->kind == PART_VOICE,
                                           .count = p->count,
                                           .frames = p->frames,
                                           .shape = p->shape,
                                           .height = ceil_div(p->height, 2),
                                           .width = ceil_div(p->width, 2)};
    }
    grammar_measure(&measure, vocabulary, parts, count, vocabulary->end);
    memory_free(parts);
    return measure.length;
}

static bool is_film(const struct shards *shards, const struct shard_sample *sample)
{
    u32 kinds = 0;
    for (i64 i = 0; i < sample->parts; i++)
        kinds |= 1u << shards_part(shards, (i64)sample->first_part + i)->kind;
    return kinds & (1 << STREAM_VIDEO_IN | 1 << STREAM_VIDEO_OUT) && kinds & 1 << STREAM_AUDIO;
}

static struct json *directions_json(const struct inspect_data_tally *tally)
{
    struct json *all = json_array();
    for (int d = 0; d < DIRECTIONS; d++) {
        struct json *j = json_object();
        if (tally[d].samples == 0) {
            json_free(j);
            continue;
        }
        json_set(j, "direction", json_of_string(direction_rows[d].name));
        json_set(j, "samples", json_of_integer(tally[d].samples));
        json_set(j, "positions", json_of_integer(tally[d].positions));
        if (tally[d].films)
            json_set(j, "clips_with_sound", json_of_integer(tally[d].films));
        json_push(all, j);
    }
    return all;
}

static struct json *tally_json(const struct shards *shards, const struct vocabulary *vocabulary)
{
    struct inspect_data_tally tally[DIRECTIONS] = {{0}};
    i64 positions = 0, longest = 0;
    for (i64 i = 0; i < shards->sample_count; i++) {
        struct shard_sample sample = shards_sample(shards, i);
        i64 length = positions_of(shards, &sample, vocabulary);
        tally[sample.direction].samples++;
        tally[sample.direction].films += is_film(shards, &sample);
        tally[sample.direction].positions += length;
        positions += length;
        longest = max_i64(longest, length);
    }
    struct json *j = json_object();
    json_set(j, "samples", json_of_integer(shards->sample_count));
    json_set(j, "positions", json_of_integer(positions));
    json_set(j, "longest", json_of_integer(longest));
    json_set(j, "shards", json_of_integer(shards->shard_count));
    json_set(j, "bytes", json_of_integer(shards->bytes));
    json_set(j, "directions", directions_json(tally));
    return j;
}

/* Opens a loader for its vocabulary, which also checks that the folder's tokenizer matches. */
static struct json *part_json(const char *directory, const char *part, bool verify)
{
    i64 zero = 0;
    double one = 1, length = 1 << 20;
    const struct loader_settings settings = {.rows = {&zero, &one, 1, false},
                                             .length = {&zero, &length, 1, false},
                                             .micro_rows = 1,
                                             .slice_rows = 1,
                                             .in_order = true};
    struct shards shards;
    struct loader *loader = loader_open(directory, part, &settings, 0);
    struct json *j = NULL;
    if (!loader)
        return NULL;
    if (shards_open(&shards, directory, part) == 0) {
        if (!verify || shards_verify(&shards) == 0)
            j = tally_json(&shards, loader_vocabulary(loader));
        shards_close(&shards);
    }
    loader_close(loader);
    return j;
}

static int add_parts(struct json *j, const char *directory, bool verify)
{
    char **names;
    i64 count, found = 0;
    struct json *parts = json_object();
    int status = directory_list(&names, &count, directory);
    for (i64 i = 0; status == 0 && i < count; i++) {
        char *index = string_format("%s/%s/index", directory, names[i]);
        char *shard = string_format("%s/%s/00000.shard", directory, names[i]);
        struct json *part = NULL;
        if (file_exists(index) || file_exists(shard)) {
            part = part_json(directory, names[i], verify);
            status = part ? 0 : -1;
        }
        if (part)
            json_set(parts, names[i], part);
        found += part != NULL;
        memory_free(index);
        memory_free(shard);
    }
    if (status == 0)
        string_list_free(names, count);
    if (status == 0 && found == 0 && shard_stream_is(directory))
        status = error_set("%s: a stream: its shards are made while a stage pretrain or sft trains on them", directory);
    else if (status == 0 && found == 0)
        status = error_set("%s: no part with an index in it (train/index, ...): prepare did not finish", directory);
    json_set(j, "parts", parts);
    return status;
}

static void set_meta(struct json *j, const struct shard_meta *meta)
{
    const struct {
        const char *name;
        i64 value;
    } sizes[] = {
        {"vocabulary", meta->vocabulary}, {"bits", meta->bits},     {"cell_features", meta->cell_features},
        {"stride", meta->stride},         {"levels", meta->levels}, {"codes", meta->codes},
        {"shapes", meta->shape_count},
    };
    for (i64 i = 0; i < COUNT_OF(sizes); i++)
        json_set(j, sizes[i].name, json_of_integer(sizes[i].value));
}

struct json *inspect_shards(const char *directory, bool verify)
{
    struct shard_meta meta;
    char *meta_path = path_join(directory, "shards.json");
    bool whole = file_exists(meta_path);
    memory_free(meta_path);
    if (!whole) {
        error_set("%s: a part of a shard folder; name the folder above it, which has shards.json", directory);
        return NULL;
    }
    struct json *j = json_object();
    json_set(j, "kind", json_of_string("shards"));
    int status = shard_meta_load(&meta, directory);
    if (status == 0) {
        set_meta(j, &meta);
        status = add_parts(j, directory, verify);
    }
    json_set(j, "verified", json_of_bool(verify));
    if (status) {
        json_free(j);
        return NULL;
    }
    return j;
}

/* ---- Media ---- */

static int describe_clip(struct json *j, const struct file_view *view, const char *path, bool video)
{
    struct clip clip;
    if (video ? clip_read(&clip, view->data, view->bytes, path, &(struct clip_request){0})
              : image_read(&clip, view->data, view->bytes, path))
        return -1;
    json_set(j, "width", json_of_integer(clip.width));
    json_set(j, "height", json_of_integer(clip.height));
    if (video) {
        json_set(j, "frames", json_of_integer(clip.frames));
        json_set(j, "rate_hz", json_of_number(clip.rate_hz));
        json_set(j, "seconds", json_of_number(clip.rate_hz > 0 ? (double)clip.frames / clip.rate_hz : 0));
    }
    clip_release(&clip);
    return 0;
}

static int describe_sound(struct json *j, const struct file_view *view, const char *path)
{
    struct sound sound;
    if (sound_read(&sound, view->data, view->bytes, path, 0))
        return -1;
    json_set(j, "sound_samples", json_of_integer(sound.samples));
    json_set(j, "sound_rate_hz", json_of_integer(sound.rate_hz));
    json_set(j, "sound_seconds", json_of_number((double)sound.samples / (double)sound.rate_hz));
    sound_release(&sound);
    return 0;
}

static void describe_subtitles(struct json *j, const struct file_view *view, const char *path)
{
    struct buffer cues = {0};
    i64 count = film_subtitles(&cues, view->data, view->bytes, path, NULL);
    if (count > 0)
        json_set(j, "subtitles", json_of_integer(count));
    buffer_release(&cues);
}

struct json *inspect_media(const char *path)
{
    static const char *const kinds[] = {"unknown", "PNG picture", "picture", "clip", "sound"};
    struct file_view view;
    if (file_map(&view, path))
        return NULL;
    enum media_kind kind = media_kind(view.data, view.bytes, path);
    struct json *j = json_object();
    json_set(j, "kind", json_of_string(kinds[kind]));
    json_set(j, "bytes", json_of_integer(view.bytes));
    int status = kind == MEDIA_UNKNOWN ? -1
                 : kind == MEDIA_SOUND ? describe_sound(j, &view, path)
                                       : describe_clip(j, &view, path, kind == MEDIA_VIDEO);
    if (status == 0 && kind == MEDIA_VIDEO)
        json_set(j, "sound", json_of_bool(describe_sound(j, &view, path) == 0)); /* a clip may have no sound */
    if (status == 0 && kind == MEDIA_VIDEO)
        describe_subtitles(j, &view, path);
    file_unmap(&view);
    if (status) {
        json_free(j);
        return NULL;
    }
    return j;
}

/* ---- Recipes and runs ---- */

static struct json *stage_json(const struct recipe_stage *s)
{
    struct json *j = json_object();
    json_set(j, "name", json_of_string(s->name));
    json_set(j, "kind", json_of_string(s->kind->name));
    json_set(j, "settings", json_copy(s->resolved));
    return j;
}

/* The keys that each arm sets, as resolved. */
static struct json *arms_json(const struct recipe_runs *runs)
{
    struct json *arms = json_object();
    for (i64 a = 0; a < runs->arm_count; a++) {
        const struct recipe *r = &runs->list[a];
        struct json *keys = json_object();
        for (i64 i = 0; i < yaml_count(r->values); i++) {
            const char *key = yaml_key(r->values, i);
            struct json *value = recipe_value(r, key);
            json_set(keys, key, value ? value : json_of_null());
        }
        json_set(arms, r->arm, keys);
    }
    return arms;
}

struct json *inspect_recipe(const char *path)
{
    struct recipe_runs runs;
    struct json *j = NULL;
    int status = recipe_runs_open(&runs, path, NULL, 0, NULL, NULL);
    for (i64 i = 0; i < runs.count && status == 0; i++)
        status = recipe_check(&runs.list[i], NULL, false);
    if (status == 0) {
        const struct recipe *first = &runs.list[0];
        struct json *stages = json_object(), *seeds = json_array();
        for (i64 i = 0; i < first->count; i++)
            json_set(stages, first->stages[i].name, stage_json(&first->stages[i]));
        for (i64 i = 0; i < runs.seed_count; i++)
            json_push(seeds, json_of_integer((i64)runs.list[i * max_i64(runs.arm_count, 1)].seed));
        j = json_object();
        json_set(j, "kind", json_of_string("recipe"));
        json_set(j, "run", json_of_string(first->root));
        if (runs.seed_count)
            json_set(j, "seeds", seeds);
        else
            json_set(j, "seed", json_of_integer((i64)first->seed));
        json_set(j, "precision", json_of_string(first->precision));
        if (runs.arm_count)
            json_set(j, "arms", arms_json(&runs));
        json_set(j, "stages", stages);
        if (!runs.seed_count)
            json_free(seeds);
    }
    recipe_runs_close(&runs);
    return j;
}

static void add_stage(struct json *stages, const char *directory, const char *name, bool verify)
{
    char *done = string_format("%s/%s/done.json", directory, name),
         *begun = string_format("%s/%s/identity.json", directory, name);
    const char *path = file_exists(done) ? done : begun;
    struct json *j = file_exists(path) ? json_load(path) : NULL;
    const struct json *identity = json_get(j, "identity") ? json_get(j, "identity") : j;
    char *folder = path_join(directory, name);
    bool damaged = file_exists(path) && (!j || (verify && inventory_check_all(folder) < 0));
    if (damaged)
        log_warn("%s", error_text());
    if (file_exists(path)) {
        struct json *row = json_object();
        json_set(row, "stage", json_of_string(name));
        json_set(row, "kind", json_of_string(json_string(json_get(identity, "kind"), "?")));
        json_set(row, "state",
                 json_of_string(damaged                  ? "damaged"
                                : path != done           ? "cut short"
                                : json_get(j, "skipped") ? "skipped"
                                                         : "done"));
        json_push(stages, row);
    }
    json_free(j);
    memory_free(folder);
    memory_free(done);
    memory_free(begun);
}

struct json *inspect_run(const char *directory, bool verify)
{
    char *path = path_join(directory, "run.json"), **names;
    struct json *run = json_load(path), *j = NULL;
    i64 count;
    if (run && directory_list(&names, &count, directory) == 0) {
        struct json *stages = json_array();
        for (i64 i = 0; i < count; i++)
            add_stage(stages, directory, names[i], verify);
        j = json_object();
        json_set(j, "kind", json_of_string("run"));
        json_set(j, "precision", json_of_string(json_string(json_get(run, "precision"), "?")));
        json_set(j, "recipe", json_of_string(json_string(json_get(run, "recipe"), "?")));
        if (json_get(run, "runs"))
            json_set(j, "runs", json_copy(json_get(run, "runs")));
        json_set(j, "stages", stages);
        string_list_free(names, count);
    }
    json_free(run);
    memory_free(path);
    return j;
}
