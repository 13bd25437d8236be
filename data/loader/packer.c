#include "data/loader/fill.h"
#include "data/stream/stream.h"
#include "kernels/kernels.h"
#include "tokenizers/text/text.h"

/* ---- Opening ---- */

static int open_vocabulary(struct loader *l, const char *data)
{
    struct shape shapes[SHAPES_MOST];
    const struct shard_meta *meta = &l->shards.meta;
    for (i64 i = 0; i < meta->shape_count; i++)
        shapes[i] = meta->shapes[i].shape;
    char *first = shard_folders_first(data), *path = first ? path_join(first, "text") : NULL;
    if (!path)
        return -1;
    l->tokenizer = text_tokenizer_load(path);
    int status = l->tokenizer ? vocabulary_init(&l->vocabulary, l->tokenizer, shapes, meta->shape_count) : -1;
    if (status == 0 && text_vocabulary(l->tokenizer) != meta->vocabulary)
        status = error_set("%s: %lld %s where shards.json says %lld; prepare the shards again", path,
                           (long long)text_vocabulary(l->tokenizer), plural(text_vocabulary(l->tokenizer), "id", "ids"),
                           (long long)meta->vocabulary);
    memory_free(first);
    memory_free(path);
    return status;
}

static int check_settings(const struct loader_settings *s)
{
    if (s->micro_rows < 1 || s->rows.count < 1 || s->length.count < 1)
        return error_set("a loader needs batch.rows, batch.length and batch.micro_rows");
    if (s->slice_rows > 0 && s->slice_rows % s->micro_rows)
        return error_set("batch.micro_rows %lld must divide the %lld %s of an elastic slice", (long long)s->micro_rows,
                         (long long)s->slice_rows, plural(s->slice_rows, "row", "rows"));
    return 0;
}

/* Opens the shards. Those of a stream are added later, one by one. */
static int open_shards(struct loader *l, const char *data, const char *split)
{
    const struct loader_settings *s = &l->settings;
    bool stream = !s->in_order && data_lines(data) == 1 && shard_stream_is(data);
    int status = stream ? shards_open_none(&l->shards, data) : shards_open(&l->shards, data, split);
    return status == 0 && (stream || (s->shuffle_shards && !s->in_order)) ? stream_plan_open(l, data) : status;
}

struct loader *loader_open(const char *data, const char *split, const struct loader_settings *settings, u64 seed)
{
    struct loader *l = memory_alloc(sizeof *l);
    *l = (struct loader){.settings = *settings, .seed = seed, .limit = INT64_MAX};
    for (i64 i = 0; i < PLANS_KEPT; i++)
        l->plans[i].step = -1;
    l->device = memory_alloc(sizeof *l->device);
    l->fills = memory_alloc(sizeof *l->fills);
    device_open_cpu(l->device);
    if (check_settings(settings) < 0 || open_shards(l, data, split) < 0 || open_vocabulary(l, data) < 0) {
        loader_close(l);
        return NULL;
    }
    struct grammar_options options = {.window = settings->window,
                                      .reweight = settings->reweight,
                                      .mask_share = settings->in_order ? 0 : settings->frame_mask,
                                      .key = {seed, RNG_FRAME_MASK}};
    grammar_init(&l->grammar, &l->vocabulary, &options);
    if (settings->exchange)
        exchange_init(l);
    if (!l->stream_plan)
        order_init(l);
    return l;
}

void loader_close(struct loader *l)
{
    if (!l)
        return;
    for (i64 i = 0; i < PLANS_KEPT; i++)
        step_plan_release(&l->plans[i]);
    planner_release(&l->planner);
    stream_plan_close(l);
    order_release(&l->order);
    grammar_parts_release(&l->given);
    grammar_release(&l->grammar);
    text_tokenizer_free(l->tokenizer);
    shards_close(&l->shards);
    device_close(l->device);
    memory_free(l->device);
    memory_free(l->exchanged);
    memory_free(l->fills->data);
    memory_free(l->fills);
    memory_free(l);
}

const struct vocabulary *loader_vocabulary(const struct loader *l)
{
    return &l->vocabulary;
}

const struct shard_meta *loader_meta(const struct loader *l)
{
    return &l->shards.meta;
}

i64 loader_distinct_samples(const struct loader *l, i64 most)
{
    i64 count = 0;
    for (i64 i = 0; i < l->shards.sample_count && count < most; i++)
        count += i == 0 || strcmp(shards_name(&l->shards, i), shards_name(&l->shards, i - 1)) != 0;
    return count;
}

struct left_out loader_left_out(const struct loader *l)
{
    return l->stream_plan ? l->stream_plan->next.left_out : l->planner.left_out;
}

int loader_step(struct loader *l, i64 step, struct loader_step *out)
{
    const struct step_plan *plan = plan_step(l, step);
    if (!plan)
        return -1;
    *out = plan->summary;
    return 0;
}

/* ---- One sample: reads ids from the shard and feeds them to the grammar ---- */

static int check_ids(const struct loader *l, i64 index, const i32 *ids)
{
    const struct shard_part *part = shards_part(&l->shards, index);
    for (i64 i = 0; i < part->count; i++)
        if (ids[i] < 0 || ids[i] >= l->shards.meta.vocabulary)
            return error_set("%s/%05u.shard: payload at byte %llu: id %d of a vocabulary of %lld",
                             shards_folder_of_part(&l->shards, index)->directory, part->shard,
                             (unsigned long long)part->offset, ids[i], (long long)l->shards.meta.vocabulary);
    return 0;
}

static int read_text(struct loader *l, const struct plan_entry *entry, struct part *part, i64 index)
{
    const struct shard_part *stored = shards_part(&l->shards, index);
    bool known = shards_is_verified(&l->shards, index);
    const i32 *ids = shards_payload(&l->shards, index);
    if (!ids || (!known && check_ids(l, index, ids) < 0))
        return -1;
    part->ids = ids + entry->first;
    if (entry->count && entry->first + entry->count < stored->count)
        l->given.end = ids[entry->first + entry->count];
    return 0;
}

static int feed_sample(struct loader *l, const struct plan_entry *entry)
{
    struct grammar *g = &l->grammar;
    struct grammar_parts *t = &l->given;
    loader_parts(l, entry, t);
    g->options.identity[0] = entry_identity(entry);
    g->options.identity[1] = entry_showing(entry);
    grammar_begin(g);
    for (i64 i = 0; i < t->count; i++) {
        t->begin[i] = grammar_length(g);
        if ((t->parts[i].kind == STREAM_TEXT && read_text(l, entry, &t->parts[i], t->index[i]) < 0) ||
            grammar_part(g, &t->parts[i]) < 0)
            return error_prefix("%s, sample %lld (%s)", shards_folder_of_sample(&l->shards, entry->sample)->directory,
                                (long long)entry->sample, shards_name(&l->shards, entry->sample));
    }
    require(grammar_length(g) == entry->length, "sample %lld: planned %lld positions, built %lld",
            (long long)entry->sample, (long long)entry->length, (long long)grammar_length(g));
    return grammar_end(g, t->end);
}

/* ---- Parts of a sample: laid out in sequence, so their entries begin at the lists' ends ---- */

static void lay_part(struct loader *l, const struct plan_entry *entry, i64 i, u32 block, struct batch *b, i64 at,
                     i32 sample)
{
    const struct grammar_parts *given = &l->given;
    i64 end = i + 1 < given->count ? given->begin[i + 1] : l->grammar.count;
    const struct stream_row *row = &stream_rows[given->parts[i].kind];
    bool voice = given->parts[i].voice;
    i64 first_target = voice || row->target == TARGETS ? -1 : b->targets[row->target].n;
    struct payload_fill fill = {.part = given->index[i],
                                .input = b->inputs[voice ? INPUT_VOICE : row->input].n,
                                .target = first_target,
                                .identity = {entry_identity(entry), entry_showing(entry) * 4096 + block}};
    batch_lay_part(b, at, &l->grammar, given->begin[i], end, sample);
    if (first_target >= 0 && first_target == b->targets[row->target].n)
        fill.target = -1;
    if (row->form != FORM_IDS)
        fills_push(l->fills, &fill);
}

static void lay_sample(struct loader *l, const struct plan_entry *entry, struct batch *b, i64 at, i32 sample)
{
    u32 block = 0;
    for (i64 i = 0; i < l->given.count; i++) {
        lay_part(l, entry, i, block, b, at, sample);
        block += l->given.parts[i].kind != STREAM_TEXT;
    }
}

/* ---- Microbatches ---- */

int loader_row(struct loader *l, const struct step_plan *plan, i64 row, i64 at, i64 sample, struct batch *b)
{
    i64 end = at + plan->summary.length;
    for (i64 i = plan->rows.offset[row]; i < plan->rows.offset[row + 1]; i++) {
        const struct plan_entry *entry = &plan->rows.entries.data[i];
        if (feed_sample(l, entry) < 0)
            return -1;
        lay_sample(l, entry, b, at, (i32)(sample + i));
        at += entry->length;
    }
    batch_pad(b, at, end - at);
    return 0;
}

int loader_media(struct loader *l, struct batch *b, struct arena *arena)
{
    int status = fill_all(l, l->fills, b, arena);
    l->fills->count = 0;
    return status;
}

void loader_begin_batch(struct loader *l, i64 first, i64 rows, i64 length, struct batch *b, struct arena *arena)
{
    struct token_sizes sizes = shard_token_sizes(&l->shards.meta);
    batch_init(b, arena, rows * length, &sizes);
    b->rows = rows;
    b->first_row = first;
    b->slice = l->settings.slice_rows > 0 ? first / l->settings.slice_rows : 0;
    l->fills->count = 0;
}

int loader_batch(struct loader *l, i64 step, i64 micro, struct batch *b, struct arena *arena)
{
    const struct step_plan *plan = plan_step(l, step);
    if (!plan)
        return -1;
    i64 micro_rows = l->settings.micro_rows, first = micro * micro_rows;
    i64 end = min_i64(first + micro_rows, plan->rows.count);
    require(micro >= 0 && first < plan->rows.count, "micro-batch %lld of step %lld, which has %lld rows",
            (long long)micro, (long long)step, (long long)plan->rows.count);
    loader_begin_batch(l, first, end - first, plan->summary.length, b, arena);
    for (i64 row = first; row < end; row++)
        if (loader_row(l, plan, row, (row - first) * plan->summary.length, 0, b) < 0)
            return -1;
    return loader_media(l, b, arena);
}

void loader_prefetch_row(struct loader *l, const struct step_plan *plan, i64 row)
{
    for (i64 i = plan->rows.offset[row]; i < plan->rows.offset[row + 1]; i++) {
        loader_parts(l, &plan->rows.entries.data[i], &l->given);
        for (i64 part = 0; part < l->given.count; part++)
            shards_prefetch(&l->shards, l->given.index[part]);
    }
}

void loader_prefetch(struct loader *l, i64 step, i64 micro)
{
    const struct step_plan *plan = plan_step(l, step);
    i64 first = micro * l->settings.micro_rows;
    for (i64 row = first; plan && row < min_i64(first + l->settings.micro_rows, plan->rows.count); row++)
        loader_prefetch_row(l, plan, row);
}
