/* Draws the sub-model of a sample: its layers, experts and top-k. */
#include "elastic/elastic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool elastic_layer_fixed(const struct model_config *c, i64 layer)
{
    return layer == 0 || layer == c->layers - 1 || layer_has_heads(c, layer);
}

/* ---- Depth: slots, each a layer or a group of them, are kept or dropped ---- */

static i64 slot_layers(const struct elastic_settings *s, const struct model_config *c)
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

static i64 count_fixed(const struct elastic_settings *s, const struct model_config *c)
{
    i64 size = slot_layers(s, c), fixed = 0;
    for (i64 slot = 0; slot < c->layers / size; slot++)
        fixed += slot_fixed(c, slot, size) ? size : 0;
    return fixed;
}

/* Number of slots to drop, at least 1 where there is a choice. */
static i64 draw_drop(const struct elastic_settings *s, const struct model_config *c, struct rng_key key, i64 step,
                     i64 slice)
{
    i64 size = slot_layers(s, c), drop = 1;
    i64 most = (c->layers - max_i64(s->depth_min, count_fixed(s, c))) / size;
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
    i64 size = slot_layers(s, c), left = (c->layers - count_fixed(s, c)) / size;
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

/* True if no step draws anything but the full axis. */
static bool always_full(const struct schedule *share)
{
    bool full = share->count > 0;
    for (i64 i = 0; i < share->count; i++)
        full &= share->values[i] == 1;
    return full;
}

static bool always_zero(const struct schedule *share)
{
    bool zero = true;
    for (i64 i = 0; i < share->count; i++)
        zero &= share->values[i] == 0;
    return zero;
}

static i64 largest_reduced_topk(const struct elastic_settings *s, const struct model_config *c)
{
    return s->topk_max ? s->topk_max : c->topk;
}

i64 elastic_largest_topk(const struct elastic_settings *s, const struct model_config *c)
{
    return always_full(&s->topk_full) ? c->topk : max_i64(c->topk, largest_reduced_topk(s, c));
}

/* Experts of each group in the smallest subset. */
static i64 smallest_share(const struct elastic_settings *s, const struct model_config *c)
{
    i64 least = s->experts_min ? s->experts_min : ceil_div(c->experts, 2);
    return ceil_div(max_i64(least, elastic_largest_topk(s, c)), s->expert_groups);
}

/* Experts of each group in the slice's subset. */
static i64 draw_share(const struct elastic_settings *s, const struct model_config *c, struct rng_key key, i64 step,
                      i64 slice)
{
    i64 groups = s->expert_groups, size = c->experts / groups, least = smallest_share(s, c);
    const struct integer_list *sizes = &s->experts_sizes;
    if (sizes->count)
        return sizes->values[rng_below(key, sizes->count, (u32)step, (u32)slice, ~0u, 1)] / groups;
    return least < size ? least + rng_below(key, size - least, (u32)step, (u32)slice, ~0u, 1) : size;
}

static void pick_experts(struct submodel *sub, struct arena *arena, const struct elastic_settings *s,
                         const struct model_config *c, u64 seed, i64 step, i64 slice)
{
    struct rng_key key = {seed, RNG_EXPERTS};
    i64 groups = s->expert_groups, size = c->experts / groups;
    double full = schedule_at(&s->experts_full, step);
    sub->expert_count = c->experts;
    if (c->first_moe_layer == c->layers || rng_uniform(key, (u32)step, (u32)slice, ~0u, 0) < full)
        return;
    i64 share = draw_share(s, c, key, step, slice);
    if (share == size)
        return;
    sub->expert_count = groups * share;
    for (i64 layer = c->first_moe_layer; layer < c->layers; layer++) {
        i32 *ids = arena_alloc(arena, sub->expert_count * 4);
        pick_subset(ids, groups, size, share, key, step, slice, layer);
        sub->expert[layer] = ids;
    }
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
    i64 most = largest_reduced_topk(s, c);
    bool choice = s->topk_min < c->topk || most > c->topk;
    double share = schedule_at(&s->topk_full, step);
    for (i32 sample = 0; sample <= last; sample++) {
        bool full = !choice || rng_uniform(key, (u32)step, (u32)sample, 0, 0) < share;
        k[sample] = (i32)(full ? c->topk : draw_topk(s, c->topk, most, key, step, sample));
    }
    sub->sample_topk = k;
    sub->topk = elastic_largest_topk(s, c);
}

/* ---- Checks ---- */

static int check_depth(const struct elastic_settings *s, const struct model_config *c)
{
    i64 layers = c->layers;
    if (s->depth_groups && layers % s->depth_groups)
        return error_usage("elastic.depth_groups is %lld: expected a divisor of the model's %lld %s",
                           (long long)s->depth_groups, (long long)layers, plural(layers, "layer", "layers"));
    if (s->depth_power != 0 && !s->depth_min)
        return error_usage("elastic.depth_power is %g: it weights the number of layers, which only depth_min draws",
                           s->depth_power);
    if (!s->depth_min || always_full(&s->depth_full))
        return 0;
    i64 fixed = count_fixed(s, c), most = layers - slot_layers(s, c);
    if (fixed == layers)
        return error_usage("elastic.depth_min is %lld: no layer of %lld can be dropped: expected 0, or "
                           "elastic.depth_full: 1",
                           (long long)s->depth_min, (long long)layers);
    if (s->depth_min < fixed)
        return error_usage("elastic.depth_min is %lld: expected at least %lld: that many layers are never dropped "
                           "(the first, the last, those with heads%s)",
                           (long long)s->depth_min, (long long)fixed, s->depth_groups ? ", and their groups" : "");
    if (s->depth_min > most)
        return error_usage("elastic.depth_min is %lld: expected at most %lld, fewer than all %lld %s, or "
                           "elastic.depth_full: 1",
                           (long long)s->depth_min, (long long)most, (long long)layers,
                           plural(layers, "layer", "layers"));
    return 0;
}

static int check_sizes(const struct elastic_settings *s, const struct model_config *c)
{
    const struct integer_list *sizes = &s->experts_sizes;
    if (s->experts_min && sizes->count)
        return error_usage("elastic.experts_sizes and elastic.experts_min exclude each other: expected one of them");
    for (i64 i = 0; i < sizes->count; i++) {
        i64 size = sizes->values[i];
        if (size % s->expert_groups)
            return error_usage("elastic.experts_sizes: %lld is no multiple of the %lld expert groups "
                               "(elastic.expert_groups)",
                               (long long)size, (long long)s->expert_groups);
        if (size >= c->experts)
            return error_usage("elastic.experts_sizes: %lld: expected fewer than the model's %lld %s", (long long)size,
                               (long long)c->experts, plural(c->experts, "expert", "experts"));
        if (size < elastic_largest_topk(s, c))
            return error_usage("elastic.experts_sizes: %lld: expected at least %lld, the largest top-k of a sample",
                               (long long)size, (long long)elastic_largest_topk(s, c));
    }
    return 0;
}

static int check_experts(const struct elastic_settings *s, const struct model_config *c)
{
    i64 groups = s->expert_groups, size = c->experts / groups;
    if (c->experts % groups)
        return error_usage("elastic.expert_groups is %lld: expected a divisor of the model's %lld %s",
                           (long long)groups, (long long)c->experts, plural(c->experts, "expert", "experts"));
    if (check_sizes(s, c))
        return -1;
    if (!always_full(&s->experts_full) && smallest_share(s, c) >= size && size > 1 &&
        ceil_div(s->experts_min, groups) >= size)
        return error_usage("elastic.experts_min is %lld: no subset of the model's %lld %s in %lld %s is as "
                           "large: expected at most %lld, or elastic.experts_full: 1",
                           (long long)s->experts_min, (long long)c->experts, plural(c->experts, "expert", "experts"),
                           (long long)groups, plural(groups, "group", "groups"), (long long)((size - 1) * groups));
    return 0;
}

static int check_topk(const struct elastic_settings *s, const struct model_config *c)
{
    i64 k = c->topk, least = s->topk_min, most = largest_reduced_topk(s, c);
    if (always_full(&s->topk_full))
        return 0;
    if (most > c->experts)
        return error_usage("elastic.topk_max is %lld: expected at most %lld, the model's experts", (long long)most,
                           (long long)c->experts);
    if (s->topk_mean && (least >= k || most <= k))
        return error_usage("elastic.topk_mean is true, and topk_min is %lld and topk_max %lld: a mean of the model's "
                           "top-k %lld needs topk_min below and topk_max above it, or elastic.topk_full: 1",
                           (long long)least, (long long)most, (long long)k);
    if (s->topk_max && least > most)
        return error_usage("elastic.topk_min is %lld: expected at most %lld, elastic.topk_max", (long long)least,
                           (long long)most);
    if (least < k || most > k)
        return 0;
    if (k == 1 && least > 1)
        return error_usage("elastic.topk_min is %lld: expected at most 1, the model's top-k", (long long)least);
    if (k > 1)
        return error_usage("elastic.topk_min is %lld: expected at most %lld, less than the model's top-k of %lld, or "
                           "elastic.topk_full: 1",
                           (long long)least, (long long)k - 1, (long long)k);
    return 0;
}

int elastic_check_settings(const struct elastic_settings *s, const struct model_config *c)
{
    if (s->start >= 1)
        return error_usage("elastic.start is %g: expected less than 1, or elastic.on: false to draw nothing", s->start);
    if (check_depth(s, c))
        return -1;
    if (s->balance == BALANCE_WIDTH && !c->reduced_bias && c->first_moe_layer < c->layers)
        return error_usage("balance is width, and the model has one selection bias: expected a new model (without "
                           "from), or balance: full or all");
    if (s->balance == BALANCE_ALL && c->reduced_bias)
        return error_usage("balance is all, and the model has a selection bias for each width: expected width or full");
    return c->first_moe_layer < c->layers && (check_topk(s, c) || check_experts(s, c)) ? -1 : 0;
}

int elastic_check(const struct elastic_settings *s, const struct model_config *config, i64 expert_ranks)
{
    if (elastic_check_settings(s, config))
        return -1;
    if (count_fixed(s, config) == config->layers && !always_full(&s->depth_full) && !always_zero(&s->depth_drop))
        log_info("elastic: every slice runs all %lld %s: the first, the last and those with heads are never "
                 "dropped",
                 (long long)config->layers, plural(config->layers, "layer", "layers"));
    if (config->first_moe_layer == config->layers) {
        log_info("elastic: the model has no experts: only its depth is drawn");
        return 0;
    }
    if (!always_full(&s->experts_full) && s->experts_sizes.count == 0 &&
        smallest_share(s, config) >= config->experts / s->expert_groups)
        log_info("elastic: every slice uses all %lld %s: top-%lld in %lld %s leaves no smaller subset",
                 (long long)config->experts, plural(config->experts, "expert", "experts"),
                 (long long)elastic_largest_topk(s, config), (long long)s->expert_groups,
                 plural(s->expert_groups, "group", "groups"));
    if (!always_full(&s->topk_full) && elastic_largest_topk(s, config) == 1)
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
    } else {
        memset(sub, 0, sizeof *sub);
        pick_depth(sub, s, config, seed, step, batch->slice);
        pick_experts(sub, arena, s, config, seed, step, batch->slice);
        pick_topk(sub, arena, s, config, seed, step, batch);
        sub->counts = sub->expert_count == config->experts;
    }
    bool subset = sub->expert_count < config->experts;
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
