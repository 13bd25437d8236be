/* Refuses settings of draws that the model or each other exclude. */
#include "elastic/inside.h"

static bool always_zero(const struct schedule *share)
{
    bool zero = true;
    for (i64 i = 0; i < share->count; i++)
        zero &= share->values[i] == 0;
    return zero;
}

static int check_depth(const struct elastic_settings *s, const struct model_config *c)
{
    i64 layers = c->layers;
    if (s->depth_groups && layers % s->depth_groups)
        return error_usage("elastic.depth_groups is %lld: expected a divisor of the model's %lld %s",
                           (long long)s->depth_groups, (long long)layers, plural(layers, "layer", "layers"));
    if (s->depth_power != 0 && !s->depth_min)
        return error_usage("elastic.depth_power is %g: it weights the number of layers, which only depth_min draws",
                           s->depth_power);
    if (!s->depth_min || elastic_always_full(&s->depth_full))
        return 0;
    i64 fixed = elastic_count_fixed(s, c), most = layers - elastic_slot_layers(s, c);
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
    if (check_sizes(s, c))
        return -1;
    if (!elastic_always_full(&s->experts_full) && elastic_smallest_share(s, c) >= size && size > 1 &&
        ceil_div(s->experts_min, groups) >= size)
        return error_usage("elastic.experts_min is %lld: no subset of the model's %lld %s in %lld %s is as "
                           "large: expected at most %lld, or elastic.experts_full: 1",
                           (long long)s->experts_min, (long long)c->experts, plural(c->experts, "expert", "experts"),
                           (long long)groups, plural(groups, "group", "groups"), (long long)((size - 1) * groups));
    return 0;
}

static int check_topk(const struct elastic_settings *s, const struct model_config *c)
{
    i64 k = c->topk, least = s->topk_min, most = elastic_largest_reduced_topk(s, c);
    if (elastic_always_full(&s->topk_full))
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

/* ---- A family of sizes ---- */

struct sizes_check { /* a list of sizes that is checked */
    const char *key;
    const struct model_config *config;
    i64 groups;
};

static int wrong_size(const struct sizes_check *check, const char *axis, i64 given, const char *expected, i64 bound,
                      const char *why)
{
    return error_usage("%s: %s %lld: expected %s %lld, %s", check->key, axis, (long long)given, expected,
                       (long long)bound, why);
}

static int check_size(const struct sizes_check *check, const i64 *given, i64 number)
{
    const struct model_config *c = check->config;
    struct elastic_size size = elastic_size_of(given, c);
    bool moe = c->first_moe_layer < c->layers;
    if (size.layers > c->layers)
        return wrong_size(check, "layers", size.layers, "at most", c->layers, "the model's");
    if (size.layers < submodel_least_layers(c))
        return wrong_size(check, "layers", size.layers, "at least", submodel_least_layers(c),
                          "which are never dropped (the first, the last, those with heads)");
    if (!moe && (given[SIZE_EXPERTS] || given[SIZE_TOPK]))
        return error_usage("%s: a size names experts or topk, and the model has no experts: expected layers alone",
                           check->key);
    if (moe && size.experts > c->experts)
        return wrong_size(check, "experts", size.experts, "at most", c->experts, "the model's");
    if (moe && size.topk > c->topk)
        return wrong_size(check, "topk", size.topk, "at most", c->topk, "the model's");
    if (moe && size.experts < size.topk)
        return wrong_size(check, "experts", size.experts, "at least", size.topk, "the top-k of this size");
    if (moe && size.experts % check->groups)
        return wrong_size(check, "experts", size.experts, "a multiple of", check->groups, "elastic.expert_groups");
    if (size.layers == c->layers && (!moe || (size.experts == c->experts && size.topk == c->topk)))
        return error_usage("%s: size %lld is the whole model: expected fewer layers, experts, or a smaller topk",
                           check->key, (long long)number);
    return 0;
}

int elastic_check_sizes(const char *key, const struct size_list *family, i64 groups, const struct model_config *config)
{
    const struct sizes_check check = {key, config, groups};
    if (family->count >= GRID_SHAPES)
        return error_usage("%s: %lld sizes, at most %d are possible", key, (long long)family->count, GRID_SHAPES - 1);
    for (i64 i = 0; i < family->count; i++)
        if (check_size(&check, family->values + i * SIZE_NAMES, i + 1))
            return -1;
    return 0;
}

static int check_family(const struct elastic_settings *s, const struct model_config *c)
{
    if (s->passes && !s->family.count)
        return error_usage("elastic.passes is %lld: expected elastic.family, the sizes that they run",
                           (long long)s->passes);
    if (s->smallest && !s->passes)
        return error_usage(
            "elastic.smallest is true: expected elastic.passes, of which the first is the smallest size");
    if (s->nested && s->depth_groups)
        return error_usage("elastic.nested drops layers in one order, and elastic.depth_groups groups of them: "
                           "expected one of both");
    return elastic_check_sizes("elastic.family", &s->family, s->expert_groups, c);
}

static int check_axes(const struct elastic_settings *s, const struct model_config *c)
{
    if (check_depth(s, c))
        return -1;
    return c->first_moe_layer < c->layers && (check_topk(s, c) || check_experts(s, c)) ? -1 : 0;
}

static int check_groups(const struct elastic_settings *s, const struct model_config *c)
{
    if (c->first_moe_layer == c->layers || c->experts % s->expert_groups == 0)
        return 0;
    return error_usage("elastic.expert_groups is %lld: expected a divisor of the model's %lld %s",
                       (long long)s->expert_groups, (long long)c->experts, plural(c->experts, "expert", "experts"));
}

int elastic_check_settings(const struct elastic_settings *s, const struct model_config *c)
{
    if (s->start >= 1)
        return error_usage("elastic.start is %g: expected less than 1, or elastic.on: false to draw nothing", s->start);
    if (check_groups(s, c) || check_family(s, c) || (!s->family.count && check_axes(s, c)))
        return -1;
    if (s->balance == BALANCE_WIDTH && !c->reduced_bias && c->first_moe_layer < c->layers)
        return error_usage("balance is width, and the model has one selection bias: expected a new model (without "
                           "from), or balance: full or all");
    if (s->balance == BALANCE_ALL && c->reduced_bias)
        return error_usage("balance is all, and the model has a selection bias for each width: expected width or full");
    return 0;
}

int elastic_check(const struct elastic_settings *s, const struct model_config *config, i64 expert_ranks)
{
    if (elastic_check_settings(s, config))
        return -1;
    if (s->family.count)
        return 0;
    if (elastic_count_fixed(s, config) == config->layers && !elastic_always_full(&s->depth_full) &&
        !always_zero(&s->depth_drop))
        log_info("elastic: every slice runs all %lld %s: the first, the last and those with heads are never "
                 "dropped",
                 (long long)config->layers, plural(config->layers, "layer", "layers"));
    if (config->first_moe_layer == config->layers) {
        log_info("elastic: the model has no experts: only its depth is drawn");
        return 0;
    }
    if (!elastic_always_full(&s->experts_full) && s->experts_sizes.count == 0 &&
        elastic_smallest_share(s, config) >= config->experts / s->expert_groups)
        log_info("elastic: every slice uses all %lld %s: top-%lld in %lld %s leaves no smaller subset",
                 (long long)config->experts, plural(config->experts, "expert", "experts"),
                 (long long)elastic_largest_topk(s, config), (long long)s->expert_groups,
                 plural(s->expert_groups, "group", "groups"));
    if (!elastic_always_full(&s->topk_full) && elastic_largest_topk(s, config) == 1)
        log_info("elastic: every sample uses the full top-k: the model's is 1");
    if (s->expert_groups % expert_ranks)
        log_warn(
            "elastic.expert_groups is %lld, no multiple of %lld expert ranks: a random subset of experts may lie on "
            "few of them",
            (long long)s->expert_groups, (long long)expert_ranks);
    return 0;
}
