/* Prepares the inputs of a forward on the host and copies them to the device in one
 * block: columns, lists, and what modalities derive from them. */
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

/* k of a position; 0: none. */
i64 submodel_topk(const struct submodel *sub, const struct batch *batch, i64 position)
{
    i64 sample = batch->sample[position];
    return sample < 0 ? 0 : sub->sample_topk ? sub->sample_topk[sample] : sub->topk;
}

/* Stages k of each position, and the flag that lets a position update the router's bias. */
static void put_topk(struct pass *p)
{
    const struct batch *b = p->batch;
    const struct model_config *c = &p->model->config;
    bool scales = c->topk_power > 0 || c->routed_scale > 0;
    void *topk, *counted, *scale = NULL;
    p->topk = tape_stage(p->tape, &topk, b->n * 4);
    p->counted = tape_stage(p->tape, &counted, b->n);
    p->scale = scales ? tape_stage(p->tape, &scale, b->n * 4) : NULL;
    for (i64 i = 0; i < b->n; i++) {
        i64 k = submodel_topk(p->sub, b, i);
        ((i32 *)topk)[i] = (i32)k;
        if (scales)
            ((float *)scale)[i] = (float)model_routed_scale(c, k);
        bool counts = p->sub->counts_all || (p->sub->counts && k == p->model->config.topk);
        ((u8 *)counted)[i] = b->sample[i] >= 0 && counts;
    }
}

/* Reserves room for all experts in every layer, so that a layer's offset does not
 * depend on the sub-model. */
static const i32 *put_kept_experts(struct pass *p, i64 layer)
{
    void *host;
    const i32 *there = tape_stage(p->tape, &host, p->model->config.experts * 4);
    memcpy(host, p->sub->expert[layer], (size_t)p->sub->expert_count * 4);
    return there;
}

/* Over expert ranks: where the kept experts of a layer lie. Reserves room for all experts, too. */
static struct expert_slots put_slots(struct pass *p, i64 layer)
{
    const i32 *placement = p->model->weights.layout.placement, *kept = p->sub->expert[layer];
    i64 experts = p->model->config.experts, count = 0;
    if (!placement)
        return (struct expert_slots){NULL, p->member[layer]};
    void *group, *slot;
    struct expert_slots there = {tape_stage(p->tape, &group, experts * 4), tape_stage(p->tape, &slot, experts * 4)};
    i32 *number = arena_alloc(&p->tape->host, experts * 4); /* of each expert among the kept ones; -1: dropped */
    for (i64 e = 0; e < experts; e++)
        number[e] = kept ? -1 : (i32)e;
    for (i64 i = 0; i < p->sub->expert_count && kept; i++)
        number[kept[i]] = (i32)i;
    for (i64 s = 0; s < experts; s++) {
        i32 at = number[placement[layer * experts + s]];
        if (at < 0)
            continue;
        ((i32 *)group)[at] = (i32)count;
        ((i32 *)slot)[count++] = (i32)s;
    }
    return there;
}

static void put_experts(struct pass *p)
{
    i64 layers = p->model->config.layers;
    p->routes = put(p, p->options->routes, layers * p->batch->n * p->sub->topk * 4);
    for (i64 layer = 0; layer < layers; layer++) {
        const i32 *member = p->sub->expert[layer] ? put_kept_experts(p, layer) : NULL;
        p->member[layer] = p->layer_state[layer] == LAYER_RUN ? member : NULL;
        if (p->model->parallel->expert->size > 1)
            p->slots[layer] = put_slots(p, layer);
    }
}

/* ---- Lists ---- */

static void put_input(struct pass *p, enum input_kind kind)
{
    const struct token_sizes *sizes = &p->model->config.sizes;
    const struct input_row *row = &input_rows[kind];
    const struct input_list *from = &p->batch->inputs[kind];
    struct input_list *to = &p->inputs[kind];
    i64 n = from->n, features = list_width(row->features, sizes);
    *to = (struct input_list){.n = n};
    if (!n)
        return;
    to->position = (i32 *)(uintptr_t)put(p, from->position, n * 4);
    const float *there = row->scaled ? p->options->scale_sums : NULL;
    to->features = (float *)(uintptr_t)(there ? there : put(p, from->features, n * features * 4));
    if (row->ids.times && !row->by_level)
        to->ids = (i32 *)(uintptr_t)put(p, from->ids, n * list_width(row->ids, sizes) * 4);
    if (row->scaled)
        to->scale = (i32 *)(uintptr_t)put(p, from->scale, n * 4);
    if (row->pixels.times)
        to->pixels = (u8 *)(uintptr_t)put(p, from->pixels, n * list_width(row->pixels, sizes));
}

/* Stages the weight of the teacher in the loss of each target, and the weights of the taught targets. */
static void put_taught(struct pass *p, enum target_kind kind)
{
    const struct teacher *teacher = p->options->teacher;
    const struct target_list *from = &p->batch->targets[kind];
    void *soft_weight, *taught;
    if (!teacher || !teacher->rows[kind][0])
        return;
    p->soft_weight[kind] = tape_stage(p->tape, &soft_weight, from->n * 4);
    p->out->taught[kind] = tape_stage(p->tape, &taught, from->n * 4);
    for (i64 i = 0; i < from->n; i++) {
        bool is_taught =
            teacher->all || submodel_is_smaller(p->sub, &p->model->config, p->batch->sample[from->position[i]]);
        ((float *)soft_weight)[i] = is_taught ? teacher->weight : 0;
        ((float *)taught)[i] = is_taught ? from->weight[i] : 0;
    }
}

static void put_target(struct pass *p, enum target_kind kind)
{
    const struct token_sizes *sizes = &p->model->config.sizes;
    const struct target_row *row = &target_rows[kind];
    const struct target_list *from = &p->batch->targets[kind];
    struct target_list *to = &p->targets[kind];
    *to = (struct target_list){.n = from->n};
    if (!from->n)
        return;
    to->position = (i32 *)(uintptr_t)put(p, from->position, from->n * 4);
    to->weight = (float *)(uintptr_t)put(p, from->weight, from->n * 4);
    to->stream = (u8 *)(uintptr_t)put(p, from->stream, from->n);
    if (row->ids.times && !row->by_level)
        to->ids = (i32 *)(uintptr_t)put(p, from->ids, from->n * list_width(row->ids, sizes) * 4);
    if (row->bits.times)
        to->bits = (u8 *)(uintptr_t)put(p, from->bits, from->n * list_width(row->bits, sizes));
    p->out->weight[kind] = to->weight;
    p->out->stream[kind] = to->stream;
    put_taught(p, kind);
}

/* Copies the inputs. Data derived by modalities is staged in the order of their rows in heads.c. */
void pass_put(struct pass *p)
{
    put_columns(p);
    put_topk(p);
    put_experts(p);
    modality_put_columns(p);
    for (int kind = 0; kind < INPUTS; kind++)
        put_input(p, (enum input_kind)kind);
    for (int kind = 0; kind < TARGETS; kind++)
        put_target(p, (enum target_kind)kind);
    modality_put_lists(p);
    tape_put(p->tape);
}
