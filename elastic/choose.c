/* Sub-models by rank and by size: which experts and layers stay for given numbers, what a sub-model
 * takes, and the sub-models that fit a target. */
#include "elastic/elastic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ranked_expert {
    double score;
    i32 id;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked_expert *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->id - y->id;
}

static int by_id(const void *a, const void *b)
{
    return *(const i32 *)a - *(const i32 *)b;
}

void submodel_keep_experts(struct submodel *sub, struct arena *arena, const struct model_config *c,
                           const double *scores, i64 count)
{
    struct ranked_expert *ranked = memory_alloc(c->experts * (i64)sizeof *ranked);
    for (i64 layer = c->first_moe_layer; layer < c->layers; layer++) {
        i32 *ids = arena_alloc(arena, count * 4);
        for (i64 e = 0; e < c->experts; e++)
            ranked[e] = (struct ranked_expert){scores[layer * c->experts + e], (i32)e};
        qsort(ranked, (size_t)c->experts, sizeof *ranked, by_score);
        for (i64 i = 0; i < count; i++)
            ids[i] = ranked[i].id;
        qsort(ids, (size_t)count, 4, by_id);
        sub->expert[layer] = count < c->experts ? ids : NULL;
    }
    sub->expert_count = count;
    sub->counts = count == c->experts;
    memory_free(ranked);
}

i64 submodel_least_layers(const struct model_config *c)
{
    i64 fixed = 0;
    for (i64 i = 0; i < c->layers; i++)
        fixed += elastic_layer_fixed(c, i);
    return fixed;
}

void submodel_spread_layers(struct submodel *sub, const struct model_config *c, i64 count)
{
    i64 eligible = c->layers - submodel_least_layers(c), seen = 0, dropped = 0;
    i64 drop = min_i64(c->layers - count, eligible);
    sub->layer_count = 0;
    for (i64 i = 0; i < c->layers; i++) {
        if (!elastic_layer_fixed(c, i)) {
            seen++;
            if (dropped < drop && seen * drop / eligible > dropped) {
                dropped++;
                continue;
            }
        }
        sub->layer[sub->layer_count++] = (i32)i;
    }
}

struct submodel_size submodel_size(const struct submodel *sub, const struct model *model)
{
    const struct model_config *c = &model->config;
    struct model_config config = submodel_config(sub, c);
    struct submodel_size size = {.active = model_parameters_active(&config)};
    bool kept[LAYERS_MOST] = {false};
    for (i64 i = 0; i < sub->layer_count; i++)
        kept[sub->layer[i]] = true;
    for (i64 i = 0; i < model->weights.count; i++) {
        const struct weight_spec *s = &model->weights.list[i].spec;
        i64 n = s->matrices * s->rows * s->columns;
        if (s->layer >= 0 && s->layer < c->layers && !kept[s->layer])
            continue;
        if (s->elastic != ELASTIC_NONE)
            n = n / c->experts * sub->expert_count;
        size.parameters += s->trained ? n : 0;
        size.bytes += n * dtype_bytes(s->type == TYPE_F32 ? DTYPE_F32 : model->weights.dtype);
    }
    return size;
}

/* ---- Targets ---- */

bool submodel_fits(const struct submodel_size *size, const struct submodel_size *full, const struct submodel_target *t)
{
    return (t->active == 0 || (double)size->active <= t->active * (double)full->active) &&
           (t->parameters == 0 || (double)size->parameters <= t->parameters * (double)full->parameters) &&
           (t->bytes == 0 || size->bytes <= t->bytes);
}

static bool fits(const struct model *model, const struct submodel_shape *shape, const struct submodel_target *t)
{
    struct submodel full, sub;
    submodel_full(&full, &model->config);
    sub = full;
    submodel_spread_layers(&sub, &model->config, shape->layers);
    sub.expert_count = shape->experts;
    sub.topk = shape->topk;
    struct submodel_size all = submodel_size(&full, model), size = submodel_size(&sub, model);
    return submodel_fits(&size, &all, t);
}

/* The numbers of experts that are tried: eighths of all, or all where there are fewer than 8. */
static i64 expert_step(const struct model_config *c)
{
    return max_i64(1, c->experts / 8);
}

/* Replaces *value by the largest one below it in steps, or by the least one; false: there is none. */
static bool lower(i64 *value, i64 step, i64 least)
{
    if (*value <= least)
        return false;
    *value = max_i64(least, *value - step);
    return true;
}

i64 submodel_shapes(struct submodel_shape *shapes, i64 most, const struct model *model,
                    const struct submodel_shape *least, const struct submodel_shape *top,
                    const struct submodel_target *target)
{
    i64 count = 0, step = expert_step(&model->config);
    struct submodel_shape s;
    for (s.layers = top->layers;;) {
        for (s.experts = top->experts;;) {
            /* The largest k that fits; a larger shape with the same k makes this one needless. */
            for (s.topk = s.experts ? min_i64(top->topk, s.experts) : top->topk;
                 s.topk > least->topk && !fits(model, &s, target); s.topk--)
                ;
            bool needless = !fits(model, &s, target);
            for (i64 i = 0; i < count; i++)
                needless |= shapes[i].layers >= s.layers && shapes[i].experts >= s.experts && shapes[i].topk >= s.topk;
            if (!needless && count < most)
                shapes[count++] = s;
            if (!lower(&s.experts, step, max_i64(least->experts, least->topk)))
                break;
        }
        if (!lower(&s.layers, 1, least->layers))
            break;
    }
    return count;
}

bool submodel_shape_in_order(struct submodel_shape *s, const struct model *model, const struct submodel_shape *least,
                             const struct submodel_shape *top, const struct submodel_target *target)
{
    const struct submodel_shape mild = {max_i64(least->layers, ceil_div(3 * top->layers, 4)),
                                        max_i64(least->experts, ceil_div(top->experts, 2)),
                                        max_i64(least->topk, ceil_div(top->topk, 4))};
    const struct submodel_shape *bounds[] = {&mild, least};
    const struct submodel_target active = {.active = target->active};
    i64 step = expert_step(&model->config);
    *s = *top;
    for (int round = 0; round < 2; round++) {
        const struct submodel_shape *b = bounds[round];
        while (!fits(model, s, &active) && lower(&s->topk, 1, b->topk)) /* k changes nothing else */
            ;
        while (!fits(model, s, target) && lower(&s->layers, 1, b->layers))
            ;
        while (!fits(model, s, target) && lower(&s->experts, step, max_i64(b->experts, s->topk)))
            ;
    }
    return fits(model, s, target);
}
