/* Draws the sub-model of a sample: its layers, experts and top-k. */
#include "elastic/elastic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool elastic_layer_fixed(const struct model_config *c, i64 layer)
{
    return layer == 0 || layer == c->layers - 1 || layer_has_heads(c, layer);
}

static void pick_depth(struct submodel *sub, const struct elastic_settings *s, const struct model_config *c, u64 seed,
                       i64 step, i64 slice)
{
    struct rng_key key = {seed, RNG_DEPTH};
    bool full = rng_uniform(key, (u32)step, (u32)slice, ~0u, 0) < s->depth_full;
    sub->layer_count = 0;
    for (i64 layer = 0; layer < c->layers; layer++)
        if (full || elastic_layer_fixed(c, layer) ||
            rng_uniform(key, (u32)step, (u32)slice, (u32)layer, 1) >= s->depth_drop)
            sub->layer[sub->layer_count++] = (i32)layer;
}

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

/* Experts of each group in the smallest subset. */
static i64 smallest_share(const struct elastic_settings *s, const struct model_config *c)
{
    i64 least = s->experts_min ? s->experts_min : ceil_div(c->experts, 2);
    return ceil_div(max_i64(least, c->topk), s->expert_groups);
}

static void pick_experts(struct submodel *sub, struct arena *arena, const struct elastic_settings *s,
                         const struct model_config *c, u64 seed, i64 step, i64 slice)
{
    struct rng_key key = {seed, RNG_EXPERTS};
    sub->expert_count = c->experts;
    if (c->first_moe_layer == c->layers || rng_uniform(key, (u32)step, (u32)slice, ~0u, 0) < s->experts_full)
        return;
    i64 groups = s->expert_groups, size = c->experts / groups, least = smallest_share(s, c);
    if (least >= size)
        return;
    i64 share = least + rng_below(key, size - least, (u32)step, (u32)slice, ~0u, 1);
    sub->expert_count = groups * share;
    for (i64 layer = c->first_moe_layer; layer < c->layers; layer++) {
        i32 *ids = arena_alloc(arena, sub->expert_count * 4);
        pick_subset(ids, groups, size, share, key, step, slice, layer);
        sub->expert[layer] = ids;
    }
}

static void pick_topk(struct submodel *sub, struct arena *arena, const struct elastic_settings *s,
                      const struct model_config *c, u64 seed, i64 step, const struct batch *batch)
{
    struct rng_key key = {seed, RNG_TOPK};
    i32 most = -1;
    for (i64 i = 0; i < batch->n; i++)
        most = batch->sample[i] > most ? batch->sample[i] : most;
    i32 *k = arena_alloc(arena, (most + 1) * 4);
    i64 choices = c->topk - s->topk_min;
    for (i32 sample = 0; sample <= most; sample++) {
        bool full = choices <= 0 || rng_uniform(key, (u32)step, (u32)sample, 0, 0) < s->topk_full;
        k[sample] = (i32)(full ? c->topk : s->topk_min + rng_below(key, choices, (u32)step, (u32)sample, 1, 0));
    }
    sub->sample_topk = k;
    sub->topk = c->topk;
}

static void check_depth(const struct elastic_settings *s, const struct model_config *c)
{
    i64 fixed = 0;
    for (i64 layer = 0; layer < c->layers; layer++)
        fixed += elastic_layer_fixed(c, layer);
    if (fixed == c->layers && s->depth_full < 1 && s->depth_drop > 0)
        log_info("elastic: every slice runs all %lld layers: the first, the last and those with heads are never "
                 "dropped",
                 (long long)c->layers);
}

static int check_experts(const struct elastic_settings *s, const struct model_config *c)
{
    i64 groups = s->expert_groups, size = c->experts / groups;
    if (c->experts % groups)
        return error_usage("elastic.expert_groups is %lld: expected a divisor of the model's %lld experts",
                           (long long)groups, (long long)c->experts);
    if (s->experts_full < 1 && smallest_share(s, c) >= size && size > 1 && ceil_div(s->experts_min, groups) >= size)
        return error_usage("elastic.experts_min is %lld: no subset of the model's %lld experts in %lld groups is as "
                           "large: expected at most %lld, or elastic.experts_full: 1",
                           (long long)s->experts_min, (long long)c->experts, (long long)groups,
                           (long long)((size - 1) * groups));
    return 0;
}

static int check_topk(const struct elastic_settings *s, const struct model_config *c)
{
    if (s->topk_full == 1 || s->topk_min < c->topk)
        return 0;
    if (c->topk == 1 && s->topk_min > 1)
        return error_usage("elastic.topk_min is %lld: expected at most 1, the model's top-k", (long long)s->topk_min);
    if (c->topk > 1)
        return error_usage("elastic.topk_min is %lld: expected at most %lld, less than the model's top-k of %lld, or "
                           "elastic.topk_full: 1",
                           (long long)s->topk_min, (long long)c->topk - 1, (long long)c->topk);
    return 0;
}

int elastic_check_settings(const struct elastic_settings *s, const struct model_config *c)
{
    if (s->start >= 1)
        return error_usage("elastic.start is %g: expected less than 1, or elastic.on: false to draw nothing", s->start);
    return c->first_moe_layer < c->layers && (check_experts(s, c) || check_topk(s, c)) ? -1 : 0;
}

int elastic_check(const struct elastic_settings *s, const struct model_config *config, i64 expert_ranks)
{
    if (elastic_check_settings(s, config))
        return -1;
    check_depth(s, config);
    if (config->first_moe_layer == config->layers) {
        log_info("elastic: the model has no experts: only its depth is drawn");
        return 0;
    }
    if (s->experts_full < 1 && smallest_share(s, config) >= config->experts / s->expert_groups)
        log_info("elastic: every slice uses all %lld experts: top-%lld in %lld groups leaves no smaller subset",
                 (long long)config->experts, (long long)config->topk, (long long)s->expert_groups);
    if (s->topk_full < 1 && config->topk == 1)
        log_info("elastic: every sample uses the full top-k: the model's is 1");
    if (s->expert_groups % expert_ranks)
        log_warn(
            "elastic.expert_groups is %lld, no multiple of %lld expert ranks: a random subset of experts may lie on "
            "few of them",
            (long long)s->expert_groups, (long long)expert_ranks);
    return 0;
}

/* Rounding: 0.29 of 100 steps are 29. */
static i64 first_step(const struct elastic_settings *s, i64 steps)
{
    return (i64)floor(s->start * (double)steps + 1e-6);
}

void elastic_pick(struct submodel *sub, struct arena *arena, const struct elastic_settings *s,
                  const struct model_config *config, u64 seed, i64 step, i64 steps, const struct batch *batch)
{
    require(config->first_moe_layer == config->layers || config->experts % s->expert_groups == 0,
            "%lld experts in %lld groups", (long long)config->experts, (long long)s->expert_groups);
    if (step < first_step(s, steps)) {
        submodel_full(sub, config);
        return;
    }
    memset(sub, 0, sizeof *sub);
    pick_depth(sub, s, config, seed, step, batch->slice);
    pick_experts(sub, arena, s, config, seed, step, batch->slice);
    pick_topk(sub, arena, s, config, seed, step, batch);
    sub->counts = sub->expert_count == config->experts;
}
