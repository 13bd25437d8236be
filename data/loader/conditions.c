/* Selects the parts of a sample that the grammar gets, their loss weights, and the id after the
 * last. */
#include "data/loader/plan.h"

void grammar_parts_release(struct grammar_parts *t)
{
    memory_free(t->parts);
    memory_free(t->index);
    memory_free(t->begin);
    *t = (struct grammar_parts){0};
}

static void push_part(struct grammar_parts *t, const struct part *part, i64 index)
{
    if (t->count == t->capacity) {
        i64 wanted = max_i64(16, 2 * t->capacity);
        t->parts = memory_resize(t->parts, t->capacity * (i64)sizeof *part, wanted * (i64)sizeof *part);
        t->index = memory_resize(t->index, t->capacity * 8, wanted * 8);
        t->begin = memory_resize(t->begin, t->capacity * 8, wanted * 8);
        t->capacity = wanted;
    }
    t->index[t->count] = index;
    t->parts[t->count++] = *part;
}

static bool drops_conditions(const struct loader *l, const struct plan_entry *entry, enum direction direction)
{
    const struct loader_settings *s = &l->settings;
    struct rng_key key = {l->seed, RNG_CONDITION};
    return direction_rows[direction].makes && !s->in_order && s->condition_drop > 0 &&
           rng_uniform(key, entry_identity(entry), entry_showing(entry), 0, 0) < s->condition_drop;
}

/* The speaker vector that an entry is shown for that of part `own`: of another recording. -1: none, as
 * it is dropped or the only one. */
static i64 draw_voice(const struct loader *l, const struct plan_entry *entry, i64 own, bool whole)
{
    const struct loader_settings *s = &l->settings;
    struct rng_key key = {l->seed, RNG_CONDITION};
    u32 identity = entry_identity(entry), showing = entry_showing(entry);
    if (!whole && !s->in_order && s->voice_drop > 0 && rng_uniform(key, identity, showing, 1, 0) < s->voice_drop)
        return -1;
    return shards_other_voice(&l->shards, own, rng_uniform(key, identity, showing, 2, 0));
}

static float weight_of(const struct loader *l, const struct shard_part *part, enum direction direction)
{
    if (!part->condition)
        return 1;
    if (direction == DIRECTION_CHAT)
        return 0;
    return (float)l->settings.condition[stream_rows[part->kind].modality];
}

/* Converts a part. Input pictures have one position per 2 x 2 cells. */
static struct part part_for_grammar(const struct loader *l, const struct shard_part *part, enum direction direction)
{
    if (part->kind == PART_VOICE)
        return (struct part){.kind = STREAM_AUDIO, .voice = true};
    return (struct part){.kind = part->kind,
                         .weight = weight_of(l, part, direction),
                         .count = part->count,
                         .frames = part->frames,
                         .height = ceil_div(part->height, 2),
                         .width = ceil_div(part->width, 2),
                         .shape = part->shape};
}

/* Appends part `index` of a sample of a direction. */
static void push_stored(const struct loader *l, const struct plan_entry *entry, enum direction direction, i64 index,
                        bool whole, struct grammar_parts *out)
{
    const struct shard_part *part = shards_part(&l->shards, index);
    struct part given = part_for_grammar(l, part, direction);
    if (given.voice)
        index = draw_voice(l, entry, index, whole);
    if (index >= 0)
        push_part(out, &given, index);
}

/* Appends the prompt of another sample. */
static void push_exchanged(const struct loader *l, const struct plan_entry *entry, i64 other, bool whole,
                           struct grammar_parts *out)
{
    struct shard_sample sample = shards_sample(&l->shards, other);
    for (i64 i = (i64)sample.first_part; i < (i64)sample.first_part + sample.parts; i++) {
        const struct shard_part *part = shards_part(&l->shards, i);
        if (part->kind == PART_NOTE || !part->condition)
            continue;
        push_stored(l, entry, sample.direction, i, whole, out);
    }
}

/* whole: nothing is dropped. */
static void list_parts(const struct loader *l, const struct plan_entry *entry, bool whole, struct grammar_parts *out)
{
    struct shard_sample sample = shards_sample(&l->shards, entry->sample);
    const struct shard_part *parts = shards_part(&l->shards, (i64)sample.first_part);
    i64 other = l->exchanged ? l->exchanged[entry->sample] : -1;
    bool taken = false, drop = !whole && drops_conditions(l, entry, sample.direction);
    out->count = 0;
    out->end = sample.goes_on ? -1 : l->vocabulary.end;
    for (i64 i = 0; i < sample.parts; i++) {
        const struct shard_part *part = &parts[i];
        if (part->kind == PART_NOTE || (drop && part->condition))
            continue;
        if (other >= 0 && part->condition) {
            if (!taken)
                push_exchanged(l, entry, other, whole, out);
            taken = true;
            continue;
        }
        push_stored(l, entry, sample.direction, (i64)sample.first_part + i, whole, out);
        if (entry->count) {
            out->parts[out->count - 1].count = entry->count;
            if (entry->first + entry->count < part->count)
                out->end = 0; /* stands for the next id of the text */
        }
    }
}

void loader_parts(const struct loader *l, const struct plan_entry *entry, struct grammar_parts *out)
{
    list_parts(l, entry, false, out);
}

void loader_parts_whole(const struct loader *l, i64 sample, struct grammar_parts *out)
{
    list_parts(l, &(struct plan_entry){.sample = sample}, true, out);
}
