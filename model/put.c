/* Prepares the inputs of a forward on the host and copies them to the device in one
 * block: columns, lists, and data derived from them (attention ranges inside a branch,
 * rows of stacked embeddings). */
#include "model/inside.h"

#include <string.h>

static const void *put(struct pass *p, const void *values, i64 bytes)
{
    return values ? tape_stage_copy(p->tape, values, bytes) : NULL;
}

/* ---- Columns ---- */

static void put_columns(struct pass *p)
{
    const struct batch *b = p->batch;
    p->coordinates = put(p, b->coordinates, b->n * 12);
    p->intervals = (struct intervals){.queries = b->n,
                                      .keys = b->keys,
                                      .query = put(p, b->query, b->n * 4),
                                      .begin = put(p, b->begin, b->keys * 4),
                                      .end = put(p, b->end, b->keys * 4),
                                      .hole_begin = put(p, b->hole_begin, b->keys * 4),
                                      .hole_end = put(p, b->hole_end, b->keys * 4)};
    p->cache_row = put(p, b->cache_row, b->n * 4);
}

/* Stages k of each position, and the flag that lets a position update the router's bias. */
static void put_topk(struct pass *p)
{
    const struct batch *b = p->batch;
    void *topk, *counted;
    p->topk = tape_stage(p->tape, &topk, b->n * 4);
    p->counted = tape_stage(p->tape, &counted, b->n);
    for (i64 i = 0; i < b->n; i++) {
        i64 k = p->sub->sample_topk && b->sample[i] >= 0 ? p->sub->sample_topk[b->sample[i]] : p->sub->topk;
        ((i32 *)topk)[i] = b->sample[i] < 0 ? 0 : (i32)k;
        ((u8 *)counted)[i] = b->sample[i] >= 0 && p->sub->counts && k == p->model->config.topk;
    }
}

/* Reserves room for all experts in every layer, so that a layer's offset does not
 * depend on the sub-model. */
static const i32 *put_members(struct pass *p, i64 layer)
{
    void *host;
    const i32 *there = tape_stage(p->tape, &host, p->model->config.experts * 4);
    memcpy(host, p->sub->expert[layer], (size_t)p->sub->expert_count * 4);
    return there;
}

static void put_experts(struct pass *p)
{
    i64 layers = p->model->config.layers;
    p->routes = put(p, p->options->routes, layers * p->batch->n * p->sub->topk * 4);
    for (i64 layer = 0; layer < layers; layer++) {
        const i32 *member = p->sub->expert[layer] ? put_members(p, layer) : NULL;
        p->member[layer] = p->part[layer] == LAYER_RUN ? member : NULL;
    }
}

/* ---- Lists ---- */

static void put_lists(struct pass *p)
{
    const struct model_config *c = &p->model->config;
    i64 floats[INPUTS] = {[INPUT_VISION_IN] = CELLS * c->cell_features, [INPUT_VISION_OUT] = c->bits};
    for (int kind = 0; kind < INPUTS; kind++) {
        const struct input_list *from = &p->batch->inputs[kind];
        struct input_list *to = &p->inputs[kind];
        *to = (struct input_list){.n = from->n};
        if (!from->n)
            continue;
        to->position = (i32 *)(uintptr_t)put(p, from->position, from->n * 4);
        const float *there = kind == INPUT_VISION_OUT ? p->options->scale_sums : NULL;
        to->features = (float *)(uintptr_t)(there ? there : put(p, from->features, from->n * floats[kind] * 4));
        if (kind == INPUT_TEXT)
            to->ids = (i32 *)(uintptr_t)put(p, from->ids, from->n * 4);
        if (kind == INPUT_VISION_OUT)
            to->scale = (i32 *)(uintptr_t)put(p, from->scale, from->n * 4);
        if (kind == INPUT_VISION_IN)
            to->pixels = (u8 *)(uintptr_t)put(p, from->pixels, from->n * CELLS * c->patch_values);
    }
    for (int kind = 0; kind < TARGETS; kind++) {
        const struct target_list *from = &p->batch->targets[kind];
        struct target_list *to = &p->targets[kind];
        *to = (struct target_list){.n = from->n};
        if (!from->n)
            continue;
        to->position = (i32 *)(uintptr_t)put(p, from->position, from->n * 4);
        to->weight = (float *)(uintptr_t)put(p, from->weight, from->n * 4);
        to->stream = (u8 *)(uintptr_t)put(p, from->stream, from->n);
        if (kind == TARGET_TEXT || kind == TARGET_MTP)
            to->ids = (i32 *)(uintptr_t)put(p, from->ids, from->n * 4);
        if (kind == TARGET_VISION)
            to->bits = (u8 *)(uintptr_t)put(p, from->bits, from->n * c->bits);
        p->out->weight[kind] = to->weight;
        p->out->stream[kind] = to->stream;
    }
}

/* Stages the text id at the next position of the same sample; -1: none. */
static void put_next(struct pass *p)
{
    const struct batch *b = p->batch;
    const struct input_list *text = &b->inputs[INPUT_TEXT];
    void *host;
    p->next = tape_stage(p->tape, &host, b->n * 4);
    i32 *next = host;
    for (i64 i = 0; i < b->n; i++)
        next[i] = -1;
    for (i64 i = 0; i < text->n; i++) {
        i64 at = text->position[i];
        if (at > 0 && b->sample[at] >= 0 && b->sample[at] == b->sample[at - 1])
            next[at - 1] = text->ids[i];
    }
}

/* ---- Audio: level by level ---- */

/* Rows of the stacked embeddings, [levels, n]; -1 for a negative code. */
static const i32 *level_rows(struct pass *p, const i32 *codes, i64 n)
{
    i64 levels = p->model->config.levels, words = p->model->config.codes + 1;
    void *host;
    const i32 *device = tape_stage(p->tape, &host, levels * n * 4);
    for (i64 level = 0; level < levels; level++)
        for (i64 i = 0; i < n; i++) {
            i32 code = codes[i * levels + level];
            ((i32 *)host)[level * n + i] = code < 0 ? -1 : (i32)(level * words + code);
        }
    return device;
}

static const i32 *by_level(struct pass *p, const i32 *ids, i64 n)
{
    i64 levels = p->model->config.levels;
    void *host;
    const i32 *device = tape_stage(p->tape, &host, levels * n * 4);
    for (i64 i = 0; i < levels * n; i++)
        ((i32 *)host)[i] = ids[i % n * levels + i / n];
    return device;
}

/* Random keys of the draws, [levels, n, 4]; the last word is the level. */
static const u32 *level_identities(struct pass *p, i64 n)
{
    i64 levels = p->model->config.levels;
    const u32 *identity = p->options->audio_identity;
    void *host;
    const u32 *device = tape_stage(p->tape, &host, levels * n * 16);
    for (i64 i = 0; i < levels * n * 4; i++)
        ((u32 *)host)[i] = i % 4 == 3 ? (u32)(i / (4 * n)) : identity[i % (4 * n)];
    return device;
}

static void put_audio(struct pass *p)
{
    const struct input_list *in = &p->batch->inputs[INPUT_AUDIO];
    const struct target_list *t = &p->batch->targets[TARGET_AUDIO];
    if (in->n)
        p->audio.input_rows = level_rows(p, in->ids, in->n);
    if (!t->n)
        return;
    if (p->options->audio_sampling) {
        p->audio.identity = level_identities(p, t->n);
        return;
    }
    p->audio.target_rows = level_rows(p, t->ids, t->n);
    p->audio.target_ids = by_level(p, t->ids, t->n);
}

/* ---- Branches that attend among positions of their own ---- */

/* Positions of one bidirectional block share `begin`. Keys are cache columns while generating. */
static bool same_block(const struct batch *b, i64 first, i64 other)
{
    return b->begin[b->query[first]] == b->begin[b->query[other]];
}

/* Host pointers into the staged block. */
struct put_columns {
    i32 *query, *begin, *end, *hole_begin, *hole_end;
    float *coordinates; /* [n, 3] */
};

static struct put_columns stage_branch(struct pass *p, struct branch *branch, i64 n)
{
    struct put_columns c;
    void *host, *coordinates;
    const i32 *device = tape_stage(p->tape, &host, n * 5 * 4);
    branch->coordinates = tape_stage(p->tape, &coordinates, n * 12);
    branch->intervals = (struct intervals){n, n, device, device + n, device + 2 * n, device + 3 * n, device + 4 * n};
    c = (struct put_columns){.query = host, .coordinates = coordinates};
    c.begin = c.query + n;
    c.end = c.begin + n;
    c.hole_begin = c.end + n;
    c.hole_end = c.hole_begin + n;
    for (i64 i = 0; i < n; i++) {
        c.query[i] = (i32)i;
        c.hole_begin[i] = c.hole_end[i] = 0;
    }
    return c;
}

/* Cells of one image or latent frame attend to each other: its positions are adjacent and share
 * `begin`. A cell has the time coordinate of its position and its own height and width: the 4 cells
 * (index 2r + c) lie half a step from the position's centre. */
static void put_cells(struct pass *p)
{
    const struct input_list *in = &p->batch->inputs[INPUT_VISION_IN];
    struct put_columns c = stage_branch(p, &p->cells, in->n * CELLS);
    for (i64 first = 0, next; first < in->n; first = next) {
        next = first + 1;
        while (next < in->n && same_block(p->batch, in->position[first], in->position[next]))
            next++;
        for (i64 i = first * CELLS; i < next * CELLS; i++) {
            c.begin[i] = (i32)(first * CELLS);
            c.end[i] = (i32)(next * CELLS);
        }
    }
    for (i64 i = 0; i < in->n * CELLS; i++) {
        const float *at = p->batch->coordinates + 3 * in->position[i / CELLS];
        c.coordinates[3 * i] = at[0];
        c.coordinates[3 * i + 1] = 2 * at[1] + (float)(i % CELLS / 2) - 0.5f;
        c.coordinates[3 * i + 2] = 2 * at[2] + (float)(i % CELLS % 2) - 0.5f;
    }
}

/* The 8 tokens of 4 cells (K = 4) attend to each other without an order. Row 2K i + k holds the
 * encoder's features, row 2K i + K + k the ViT's output. */
static void put_merger(struct pass *p)
{
    i64 n = p->batch->inputs[INPUT_VISION_IN].n, cells = n * CELLS;
    struct put_columns c = stage_branch(p, &p->merger, 2 * cells);
    void *host;
    p->side_by_side = tape_stage(p->tape, &host, 2 * cells * 4);
    for (i64 i = 0; i < 2 * cells; i++) {
        c.begin[i] = (i32)(i / (2 * CELLS) * 2 * CELLS);
        c.end[i] = c.begin[i] + 2 * CELLS;
        for (i64 axis = 0; axis < 3; axis++)
            c.coordinates[3 * i + axis] = 0;
    }
    for (i64 i = 0; i < cells; i++) {
        i32 at = (i32)(i / CELLS * 2 * CELLS + i % CELLS);
        ((i32 *)host)[i] = at;
        ((i32 *)host)[cells + i] = at + CELLS;
    }
}

/* Stages the inputs of tape segments first, so that their offsets do not depend
 * on the batch's lists. */
void pass_put(struct pass *p)
{
    put_columns(p);
    put_topk(p);
    put_experts(p);
    if (p->model->config.mtp && p->batch->targets[TARGET_MTP].n)
        put_next(p);
    put_lists(p);
    put_audio(p);
    if (p->batch->inputs[INPUT_VISION_IN].n) {
        put_cells(p);
        put_merger(p);
    }
    tape_put(p->tape);
}
