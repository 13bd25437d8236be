/* Draws of a family: one of given sizes for each reduced slice, and the experts that it keeps. */
#include "elastic/inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- Experts ---- */

static int ascending(const void *a, const void *b)
{
    return *(const i32 *)a - *(const i32 *)b;
}

/* Draws `share` experts of each group of `size`, ascending over all groups. The permutation's
 * counter has 2 words, step and slice, so layer and group enter the seed and each layer gets its
 * own draw. */
static void pick_subset(i32 *out, i64 groups, i64 size, i64 share, struct rng_key key, i64 step, i64 slice, i64 layer)
{
    i32 *order = memory_alloc(size * 4);
    for (i64 g = 0; g < groups; g++) {
        struct rng_key keyed = {key.seed ^ (u64)(layer + 1) << 40 ^ (u64)(g + 1) << 20, key.purpose};
        rng_permutation(order, size, keyed, (u32)step, (u32)slice);
        for (i64 i = 0; i < share; i++)
            out[g * share + i] = (i32)(g * size) + order[i];
    }
    memory_free(order);
    qsort(out, (size_t)(groups * share), sizeof *out, ascending);
}

void elastic_pick_subset(struct submodel *sub, struct arena *arena, const struct elastic_draw *d, i64 slice, i64 count)
{
    const struct model_config *c = d->config;
    struct rng_key key = {d->seed ^ (u64)d->pass << 56, RNG_EXPERTS};
    i64 groups = d->settings->expert_groups;
    if (d->settings->nested) {
        submodel_keep_experts(sub, arena, c, d->order, count);
        return;
    }
    sub->expert_count = count;
    for (i64 layer = c->first_moe_layer; layer < c->layers; layer++) {
        i32 *ids = arena_alloc(arena, count * 4);
        pick_subset(ids, groups, c->experts / groups, count / groups, key, d->step, slice, layer);
        sub->expert[layer] = ids;
    }
}

bool elastic_needs_order(const struct elastic_draw *d)
{
    return d->settings->nested && !d->order && d->step >= elastic_first_step(d->settings, d->steps);
}

struct ranked {
    double score;
    i64 id;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

/* The first of every group come before the second of any, so that the first n have equal shares. */
void elastic_order(double *order, const double *scores, const struct elastic_settings *s, const struct model_config *c)
{
    i64 groups = s->expert_groups, size = c->experts / groups;
    struct ranked *list = memory_alloc(size * (i64)sizeof *list);
    memset(order, 0, (size_t)(c->first_moe_layer * max_i64(c->experts, 1)) * sizeof *order);
    for (i64 layer = c->first_moe_layer; layer < c->layers; layer++)
        for (i64 g = 0; g < groups; g++) {
            i64 first = layer * c->experts + g * size;
            for (i64 i = 0; i < size; i++)
                list[i] = (struct ranked){scores[first + i], i};
            qsort(list, (size_t)size, sizeof *list, by_score);
            for (i64 i = 0; i < size; i++)
                order[first + list[i].id] = (double)(c->experts - i * groups - g);
        }
    memory_free(list);
}

/* ---- Sizes ---- */

struct elastic_size elastic_size_of(const i64 *given, const struct model_config *c)
{
    return (struct elastic_size){given[SIZE_LAYERS] ? given[SIZE_LAYERS] : c->layers,
                                 given[SIZE_EXPERTS] ? given[SIZE_EXPERTS] : c->experts,
                                 given[SIZE_TOPK] ? given[SIZE_TOPK] : c->topk};
}

static struct model_config config_of(const struct elastic_size *size, const struct model_config *c)
{
    struct submodel sub;
    submodel_full(&sub, c);
    submodel_keep_layers(&sub, c, NULL, size->layers);
    sub.expert_count = size->experts;
    sub.topk = size->topk;
    return submodel_config(&sub, c);
}

static i64 active_parameters(const struct elastic_size *size, const struct model_config *c)
{
    struct model_config config = config_of(size, c);
    return model_parameters_active(&config);
}

/* By active parameters, then by experts; the first of equals. */
static i64 smallest_size(const struct elastic_settings *s, const struct model_config *c)
{
    i64 at = 0;
    for (i64 i = 1; i < s->family.count; i++) {
        struct elastic_size size = elastic_size_of(s->family.values + i * SIZE_NAMES, c),
                            least = elastic_size_of(s->family.values + at * SIZE_NAMES, c);
        i64 active = active_parameters(&size, c), fewest = active_parameters(&least, c);
        if (active < fewest || (active == fewest && size.experts < least.experts))
            at = i;
    }
    return at;
}

/* Every slice and pass goes through all sizes, in an order drawn anew each time. Without passes the
 * sizes are drawn independently, as the slices are that are reduced. */
static i64 draw_size(const struct elastic_draw *d, i64 slice)
{
    const struct elastic_settings *s = d->settings;
    struct rng_key key = {d->seed ^ (u64)d->pass << 40, RNG_FAMILY};
    i64 since = d->step - elastic_first_step(s, d->steps), sizes = s->family.count;
    if (d->pass == 0)
        return rng_below(key, sizes, (u32)d->step, (u32)slice, 1, 0);
    i64 smallest = s->smallest ? smallest_size(s, d->config) : sizes;
    if (smallest < sizes && (d->pass == 1 || sizes == 1))
        return smallest;
    sizes -= smallest < sizes;
    i64 at = rng_permuted(since % sizes, sizes, key, (u32)(since / sizes), (u32)slice, 2);
    return at + (at >= smallest);
}

void elastic_pick_size(struct submodel *sub, struct arena *arena, const struct elastic_draw *d,
                       const struct batch *batch)
{
    const struct elastic_settings *s = d->settings;
    const struct model_config *c = d->config;
    struct rng_key key = {d->seed, RNG_FAMILY};
    double share = schedule_at(&s->share, d->step);
    bool reduced = s->passes ? d->pass > 0 : rng_uniform(key, (u32)d->step, (u32)batch->slice, 0, 0) < share;
    submodel_full(sub, c);
    if (!reduced)
        return;
    struct elastic_size size = elastic_size_of(s->family.values + draw_size(d, batch->slice) * SIZE_NAMES, c);
    submodel_keep_layers(sub, c, model_order_layers(d->order, c), size.layers);
    if (size.experts < c->experts && c->first_moe_layer < c->layers)
        elastic_pick_subset(sub, arena, d, batch->slice, size.experts);
    sub->topk = size.topk;
}

i64 elastic_pass_count(const struct elastic_settings *s, i64 step, i64 steps)
{
    return step < elastic_first_step(s, steps) ? 1 : 1 + s->passes;
}

double elastic_passes_cost(const struct elastic_settings *s, const struct model_config *c, i64 steps)
{
    enum { ROW = 512 }; /* positions of a row: half of them is seen on average */
    i64 smallest = s->passes && s->smallest ? smallest_size(s, c) : -1;
    double whole = model_flops_forward(c, ROW, ROW / 2.0, ROW), least = 0, sum = 0;
    if (!s->passes)
        return 1;
    for (i64 i = 0; i < s->family.count; i++) {
        struct elastic_size size = elastic_size_of(s->family.values + i * SIZE_NAMES, c);
        struct model_config cut = config_of(&size, c);
        double cost = model_flops_forward(&cut, ROW, ROW / 2.0, ROW) / whole;
        *(i == smallest ? &least : &sum) += cost;
    }
    i64 others = s->family.count - (smallest >= 0), drawn = s->passes - (smallest >= 0);
    double of_step = least + (others ? (double)drawn * sum / (double)others : (double)drawn * least);
    return 1 + of_step * (double)(steps - elastic_first_step(s, steps)) / (double)steps;
}

double elastic_pass_weight(const struct elastic_settings *s, i64 pass)
{
    return pass ? s->pass_weight : 1;
}
