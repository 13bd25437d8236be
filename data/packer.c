#include "data/fill.h"
#include "kernels/kernels.h"
#include "tokenizers/text.h"

/* ---- opening ---- */

static int open_vocabulary(struct loader *l, const char *directory)
{
    struct shape shapes[SHAPES_MOST];
    const struct shard_meta *meta = &l->shards.meta;
    for (i64 i = 0; i < meta->shape_count; i++)
        shapes[i] = meta->shapes[i].shape;
    char *path = path_join(directory, "text");
    l->tokenizer = text_tokenizer_load(path);
    int status = l->tokenizer ? vocabulary_init(&l->vocabulary, l->tokenizer, shapes, meta->shape_count) : -1;
    if (status == 0 && text_vocabulary(l->tokenizer) != meta->vocabulary)
        status = error_set("%s: %lld ids where shards.json says %lld; prepare the shards again", path,
                           (long long)text_vocabulary(l->tokenizer), (long long)meta->vocabulary);
    memory_free(path);
    return status;
}

static int check_settings(const struct loader_settings *s)
{
    if (s->micro_rows < 1 || s->rows.count < 1 || s->length.count < 1)
        return error_set("a loader needs batch.rows, batch.length and batch.micro_rows");
    if (s->slice_rows > 0 && s->slice_rows % s->micro_rows)
        return error_set("batch.micro_rows %lld must divide the %lld rows of an elastic slice",
                         (long long)s->micro_rows, (long long)s->slice_rows);
    return 0;
}

struct loader *loader_open(const char *directory, const char *part, const struct loader_settings *settings, u64 seed)
{
    struct loader *l = memory_alloc(sizeof *l);
    *l = (struct loader){.settings = *settings, .seed = seed};
    for (i64 i = 0; i < PLANS_KEPT; i++)
        l->plans[i].step = -1;
    l->device = memory_alloc(sizeof *l->device);
    l->fills = memory_alloc(sizeof *l->fills);
    device_open_cpu(l->device);
    if (check_settings(settings) < 0 || shards_open(&l->shards, directory, part) < 0 ||
        open_vocabulary(l, directory) < 0) {
        loader_close(l);
        return NULL;
    }
    struct grammar_options options = {.window = settings->window,
                                      .reweight = settings->reweight,
                                      .mask_share = settings->in_order ? 0 : settings->frame_mask,
                                      .key = {seed, RNG_FRAME_MASK}};
    grammar_init(&l->grammar, &l->vocabulary, &options);
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
    order_release(&l->order);
    telling_release(&l->telling);
    grammar_release(&l->grammar);
    text_tokenizer_free(l->tokenizer);
    shards_close(&l->shards);
    device_close(l->device);
    memory_free(l->device);
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

i64 loader_left_out(const struct loader *l)
{
    return l->planner.left_out;
}

int loader_step(struct loader *l, i64 step, struct loader_step *out)
{
    const struct step_plan *plan = plan_step(l, step);
    if (!plan)
        return -1;
    *out = plan->summary;
    return 0;
}

/* ---- one sample: ids from the shard, told to the grammar ---- */

static int check_ids(const struct loader *l, const struct shard_part *part, const i32 *ids)
{
    for (i64 i = 0; i < part->count; i++)
        if (ids[i] < 0 || ids[i] >= l->shards.meta.vocabulary)
            return error_set("%s/%05u.shard: payload at byte %llu: id %d of a vocabulary of %lld", l->shards.directory,
                             part->shard, (unsigned long long)part->offset, ids[i],
                             (long long)l->shards.meta.vocabulary);
    return 0;
}

static int read_text(struct loader *l, const struct entry *entry, struct part *part, i64 index)
{
    const struct shard_part *stored = &l->shards.parts[index];
    bool known = l->shards.verified[index];
    const i32 *ids = shards_payload(&l->shards, index);
    if (!ids || (!known && check_ids(l, stored, ids) < 0))
        return -1;
    part->ids = ids + entry->first;
    if (entry->count && entry->first + entry->count < stored->count)
        l->telling.end = ids[entry->first + entry->count];
    return 0;
}

static int tell_sample(struct loader *l, const struct entry *entry)
{
    struct grammar *g = &l->grammar;
    struct telling *t = &l->telling;
    loader_tell(l, entry, t);
    g->options.identity[0] = (u32)entry->sample;
    g->options.identity[1] = entry_showing(entry);
    grammar_begin(g);
    for (i64 i = 0; i < t->count; i++)
        if ((t->parts[i].kind == STREAM_TEXT && read_text(l, entry, &t->parts[i], t->index[i]) < 0) ||
            grammar_part(g, &t->parts[i]) < 0)
            return error_prefix("%s, sample %d (%s)", l->shards.directory, entry->sample,
                                shards_name(&l->shards, entry->sample));
    require(grammar_length(g) == entry->length, "sample %d: planned %lld positions, built %lld", entry->sample,
            (long long)entry->length, (long long)grammar_length(g));
    return grammar_end(g, t->end);
}

/* ---- its media: where their entries begin, in order of the parts ---- */

struct counters {
    i64 input[INPUTS], target[TARGETS];
};

static void counters_read(struct counters *c, const struct batch *b)
{
    for (int i = 0; i < INPUTS; i++)
        c->input[i] = b->inputs[i].n;
    for (int i = 0; i < TARGETS; i++)
        c->target[i] = b->targets[i].n;
}

static void note_fill(struct loader *l, struct counters *c, const struct part *part, struct fill fill)
{
    bool listed = part->weight > 0;
    enum input_kind input = part->kind == STREAM_AUDIO ? INPUT_AUDIO : INPUT_VISION_OUT;
    enum target_kind target = part->kind == STREAM_AUDIO ? TARGET_AUDIO : TARGET_VISION;
    i64 inputs = part->count + 1, targets = listed ? part->count + 1 : 0;
    if (part->kind == STREAM_IMAGE_IN || part->kind == STREAM_VIDEO_IN) {
        input = INPUT_VISION_IN;
        inputs = part->frames * part->height * part->width;
        targets = 0;
    } else if (part->kind != STREAM_AUDIO) {
        inputs = part->frames * shape_positions(&l->vocabulary.shapes[part->shape]);
        targets = listed ? part->frames * shape_tokens(&l->vocabulary.shapes[part->shape]) : 0;
    }
    fill.input = c->input[input];
    fill.target = targets ? c->target[target] : -1;
    c->input[input] += inputs;
    c->target[target] += targets;
    fills_push(l->fills, &fill);
}

static void note_fills(struct loader *l, const struct entry *entry, struct counters *c)
{
    u32 block = 0;
    for (i64 i = 0; i < l->telling.count; i++) {
        const struct part *part = &l->telling.parts[i];
        struct fill fill = {.part = l->telling.index[i],
                            .identity = {(u32)entry->sample, entry_showing(entry) * 4096 + block}};
        if (part->kind == STREAM_TEXT)
            continue;
        note_fill(l, c, part, fill);
        block++;
    }
}

/* ---- a micro-batch ---- */

static int build_row(struct loader *l, const struct step_plan *plan, i64 row, i64 at, struct batch *b)
{
    i64 end = at + plan->summary.length;
    for (i64 i = plan->rows.offset[row]; i < plan->rows.offset[row + 1]; i++) {
        const struct entry *entry = &plan->rows.entries.data[i];
        struct counters counters;
        counters_read(&counters, b);
        if (tell_sample(l, entry) < 0)
            return -1;
        batch_lay(b, at, &l->grammar, (i32)i);
        note_fills(l, entry, &counters);
        at += entry->length;
    }
    batch_pad(b, at, end - at);
    return 0;
}

static int fill_media(struct loader *l, struct batch *b, struct arena *arena)
{
    for (i64 i = 0; i < l->fills->count; i++) {
        const struct fill *fill = &l->fills->data[i];
        int kind = l->shards.parts[fill->part].kind;
        if (kind == STREAM_AUDIO && fill_audio(l, fill, b) < 0)
            return -1;
        if ((kind == STREAM_IMAGE_IN || kind == STREAM_VIDEO_IN) && fill_vision_in(l, fill, b) < 0)
            return -1;
    }
    return fill_vision_out(l, l->fills, b, arena);
}

static void init_batch(struct loader *l, const struct step_plan *plan, i64 first, i64 end, struct batch *b,
                       struct arena *arena)
{
    const struct shard_meta *m = &l->shards.meta;
    struct batch_widths widths = {.bits = m->bits,
                                  .levels = m->levels,
                                  .cell_features = m->cell_features,
                                  .patch_values = 4 * m->stride * m->stride * 3};
    batch_init(b, arena, (end - first) * plan->summary.length, &widths);
    b->rows = end - first;
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
    init_batch(l, plan, first, end, b, arena);
    for (i64 row = first; row < end; row++)
        if (build_row(l, plan, row, (row - first) * plan->summary.length, b) < 0)
            return -1;
    return fill_media(l, b, arena);
}

void loader_prefetch(struct loader *l, i64 step, i64 micro)
{
    const struct step_plan *plan = plan_step(l, step);
    i64 first = micro * l->settings.micro_rows;
    if (!plan || first >= plan->rows.count)
        return;
    i64 end = min_i64(first + l->settings.micro_rows, plan->rows.count);
    for (i64 i = plan->rows.offset[first]; i < plan->rows.offset[end]; i++) {
        loader_tell(l, &plan->rows.entries.data[i], &l->telling);
        for (i64 part = 0; part < l->telling.count; part++)
            shards_prefetch(&l->shards, l->telling.index[part]);
    }
}
