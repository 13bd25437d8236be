/* Draws the sub-model of a sample: its layers, experts and top-k. */
#include "elastic/inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool elastic_layer_fixed(const struct model_config *c, i64 layer)
{
    return layer == 0 || layer == c->layers - 1 || layer_has_heads(c, layer);
}

/* ---- Depth: slots, each a layer or a group of them, are kept or dropped ---- */

i64 elastic_slot_layers(const struct elastic_settings *s, const struct model_config *c)
{
    return s->depth_groups ? c->layers / s->depth_groups : 1;
}

static bool slot_fixed(const struct model_config *c, i64 slot, i64 size)
{
    bool fixed = false;
    for (i64 layer = slot * size; layer < (slot + 1) * size; layer++)
        fixed |= elastic_layer_fixed(c, layer);
    return fixed;
}

i64 elastic_count_fixed(const struct elastic_settings *s, const struct model_config *c)
{
    i64 size = elastic_slot_layers(s, c), fixed = 0;
    for (i64 slot = 0; slot < c->layers / size; slot++)
        fixed += slot_fixed(c, slot, size) ? size : 0;
    return fixed;
}

/* Number of slots to drop, at least 1 where there is a choice. */
static i64 draw_drop(const struct elastic_settings *s, const struct model_config *c, struct rng_key key, i64 step,
                     i64 slice)
{
    i64 size = elastic_slot_layers(s, c), drop = 1;
    i64 most = (c->layers - max_i64(s->depth_min, elastic_count_fixed(s, c))) / size;
    double weight[LAYERS_MOST + 1], total = 0;
    for (i64 i = 1; i <= most; i++)
        total += weight[i] = pow((double)(c->layers - i * size) / (double)c->layers, s->depth_power);
    double at = total * rng_uniform(key, (u32)step, (u32)slice, ~0u, 1);
    for (; drop < most && at >= weight[drop]; drop++)
        at -= weight[drop];
    return min_i64(drop, most);
}

/* With a depth_min each eligible slot is dropped with probability (left to drop) / (left to see), which
 * makes every subset of that size equally likely. */
static void pick_depth(struct submodel *sub, const struct elastic_settings *s, const struct model_config *c, u64 seed,
                       i64 step, i64 slice)
{
    struct rng_key key = {seed, RNG_DEPTH};
    bool full = rng_uniform(key, (u32)step, (u32)slice, ~0u, 0) < schedule_at(&s->depth_full, step);
    double drop_share = schedule_at(&s->depth_drop, step);
    i64 size = elastic_slot_layers(s, c), left = (c->layers - elastic_count_fixed(s, c)) / size;
    i64 drop = s->depth_min ? draw_drop(s, c, key, step, slice) : 0;
    sub->layer_count = 0;
    for (i64 slot = 0; slot < c->layers / size; slot++) {
        bool dropped = false;
        if (!full && !slot_fixed(c, slot, size)) {
            dropped = s->depth_min ? rng_below(key, left--, (u32)step, (u32)slice, (u32)slot, 2) < drop
                                   : rng_uniform(key, (u32)step, (u32)slice, (u32)slot, 1) < drop_share;
            drop -= dropped;
        }
        for (i64 i = 0; i < size && !dropped; i++)
            sub->layer[sub->layer_count++] = (i32)(slot * size + i);
    }
}

/* ---- Experts ---- */

/* True if no step draws anything but the full axis. */
bool elastic_always_full(const struct schedule *share)
{
    bool full = share->count > 0;
    for (i64 i = 0; i < share->count; i++)
        full &= share->values[i] == 1;
    return full;
}

i64 elastic_largest_reduced_topk(const struct elastic_settings *s, const struct model_config *c)
{
    return s->topk_max ? s->topk_max : c->topk;
}

i64 elastic_largest_topk(const struct elastic_settings *s, const struct model_config *c)
{
    return s->family.count || elastic_always_full(&s->topk_full) ? c->topk
                                                                 : max_i64(c->topk, elastic_largest_reduced_topk(s, c));
}

/* Experts of each group in the smallest subset. */
i64 elastic_smallest_share(const struct elastic_settings *s, const struct model_config *c)
{
    i64 least = s->experts_min ? s->experts_min : ceil_div(c->experts, 2);
    return ceil_div(max_i64(least, elastic_largest_topk(s, c)), s->expert_groups);
}

/* Experts of each group in the slice's subset. */
static i64 draw_share(const struct elastic_settings *s, const struct model_config *c, struct rng_key key, i64 step,
                      i64 slice)
{
    i64 groups = s->expert_groups, size = c->experts / groups, least = elastic_smallest_share(s, c);
    const struct integer_list *sizes = &s->experts_sizes;
    if (sizes->count)
        return sizes->values[rng_below(key, sizes->count, (u32)step, (u32)slice, ~0u, 1)] / groups;
    return least < size ? least + rng_below(key, size - least, (u32)step, (u32)slice, ~0u, 1) : size;
}

static void pick_experts(struct submodel *sub, struct arena *arena, const struct elastic_draw *d, i64 slice)
{
    const struct elastic_settings *s = d->settings;
    const struct model_config *c = d->config;
    struct rng_key key = {d->seed, RNG_EXPERTS};
    double full = schedule_at(&s->experts_full, d->step);
    sub->expert_count = c->experts;
    if (c->first_moe_layer == c->layers || rng_uniform(key, (u32)d->step, (u32)slice, ~0u, 0) < full)
        return;
    i64 count = s->expert_groups * draw_share(s, c, key, d->step, slice);
    if (count < c->experts)
        elastic_pick_subset(sub, arena, d, slice, count);
}

/* ---- Top-k ---- */

/* A k of [topk_min, most] that is not the model's. */
static i64 draw_topk(const struct elastic_settings *s, i64 model_k, i64 most, struct rng_key key, i64 step, i64 sample)
{
    i64 below = model_k - s->topk_min, above = most - model_k, first = s->topk_min;
    i64 choices = most - first + 1 - (below >= 0 && above >= 0);
    if (s->topk_mean) {
        double share = (double)(above + 1) / (double)(below + above + 2);
        bool lower = rng_uniform(key, (u32)step, (u32)sample, 2, 0) < share;
        choices = lower ? below : above;
        first = lower ? s->topk_min : model_k + 1;
    }
    i64 k = first + rng_below(key, choices, (u32)step, (u32)sample, 1, 0);
    return k + (first <= model_k && k >= model_k);
}

static void pick_topk(struct submodel *sub, struct arena *arena, const struct elastic_settings *s,
                      const struct model_config *c, u64 seed, i64 step, const struct batch *batch)
{
    struct rng_key key = {seed, RNG_TOPK};
    i32 last = -1;
    for (i64 i = 0; i < batch->n; i++)
        last = batch->sample[i] > last ? batch->sample[i] : last;
    i32 *k = arena_alloc(arena, (last + 1) * 4);
    i64 most = elastic_largest_reduced_topk(s, c);
    bool choice = s->topk_min < c->topk || most > c->topk;
    double share = schedule_at(&s->topk_full, step);
    for (i32 sample = 0; sample <= last; sample++) {
        bool full = !choice || rng_uniform(key, (u32)step, (u32)sample, 0, 0) < share;
        k[sample] = (i32)(full ? c->topk : draw_topk(s, c->topk, most, key, step, sample));
    }
    sub->sample_topk = k;
    sub->topk = elastic_largest_topk(s, c);
}

/* ---- A pass ---- */

/* Rounding: 0.29 of 100 steps are 29. */
i64 elastic_first_step(const struct elastic_settings *s, i64 steps)
{
    return (i64)floor(s->start * (double)steps + 1e-6);
}

static void pick_axes(struct submodel *sub, struct arena *arena, const struct elastic_draw *d,
                      const struct batch *batch)
{
    memset(sub, 0, sizeof *sub);
    pick_depth(sub, d->settings, d->config, d->seed, d->step, batch->slice);
    if (d->settings->nested)
        submodel_keep_layers(sub, d->config, model_order_layers(d->order, d->config), sub->layer_count);
    pick_experts(sub, arena, d, batch->slice);
    pick_topk(sub, arena, d->settings, d->config, d->seed, d->step, batch);
}

void elastic_pick(struct submodel *sub, struct arena *arena, const struct elastic_draw *d, const struct batch *batch)
{
    const struct elastic_settings *s = d->settings;
    const struct model_config *c = d->config;
    require(c->first_moe_layer == c->layers || c->experts % s->expert_groups == 0, "%lld experts in %lld groups",
            (long long)c->experts, (long long)s->expert_groups);
    require(!elastic_needs_order(d), "nested draws without an order");
    if (d->step < elastic_first_step(s, d->steps))
        submodel_full(sub, c);
    else if (s->family.count)
        elastic_pick_size(sub, arena, d, batch);
    else
        pick_axes(sub, arena, d, batch);
    bool subset = sub->expert_count < c->experts;
    sub->counts = !subset && d->pass == 0;
    sub->counts_all = s->balance == BALANCE_ALL || (s->balance == BALANCE_WIDTH && subset);
}

void elastic_expect(double *expected, const struct submodel *sub, const struct model_config *c,
                    const struct batch *batch)
{
    i64 assignments = 0;
    for (i64 i = 0; i < batch->n; i++)
        assignments += submodel_topk(sub, batch, i);
    double share = (double)assignments / (double)max_i64(sub->expert_count, 1);
    for (i64 i = 0; i < sub->layer_count; i++) {
        i64 layer = sub->layer[i];
        const i32 *ids = sub->expert[layer];
        for (i64 e = 0; e < sub->expert_count && layer >= c->first_moe_layer; e++)
            expected[layer * c->experts + (ids ? ids[e] : e)] += share;
    }
}

/* ---- Distillation ---- */

bool elastic_is_taught(const struct elastic_settings *s, const struct submodel *sub, const struct model_config *c,
                       u64 seed, i64 step, const struct batch *batch)
{
    bool smaller = false;
    for (i64 i = 0; i < batch->n && !smaller; i++)
        smaller = batch->sample[i] >= 0 && submodel_is_smaller(sub, c, batch->sample[i]);
    return smaller && rng_uniform((struct rng_key){seed, RNG_DISTILL}, (u32)step, (u32)batch->slice, 0, 0) < s->distill;
}
