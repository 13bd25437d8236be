/* Sub-models by rank: which experts and layers stay for given numbers, what they take, and the family that
 * is measured. */
#include "elastic/elastic.h"

#include <stdio.h>
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

bool model_has_use(const struct model *model)
{
    i64 count = model_use_count(&model->config);
    if (model->order)
        return true;
    double *use = memory_alloc(count * (i64)sizeof *use), sum = 0;
    model_use_get(use, model);
    for (i64 i = 0; i < count; i++)
        sum += use[i];
    memory_free(use);
    return sum > 0;
}

/* ---- The family that is measured ---- */

struct grid_variant {
    const char *name;
    double experts;   /* share kept */
    i64 topk, layers; /* divisor of k; layers dropped, in eighths of the depth */
};

static void make_point(struct grid_point *point, struct arena *arena, const struct model *model, const double *use,
                       const struct grid_variant *v)
{
    const struct model_config *c = &model->config;
    memset(point, 0, sizeof *point);
    submodel_full(&point->sub, c);
    if (c->first_moe_layer < c->layers) {
        i64 k = max_i64(1, c->topk / v->topk), count = max_i64((i64)((double)c->experts * v->experts), k);
        if (count < c->experts)
            submodel_keep_experts(&point->sub, arena, c, use, count);
        point->sub.topk = k;
    }
    submodel_spread_layers(&point->sub, c, c->layers - ceil_div(v->layers * c->layers, 8));
    snprintf(point->name, sizeof point->name, "%s", v->name);
}

static bool same_choice(const struct grid_point *a, const struct grid_point *b)
{
    return a->sub.layer_count == b->sub.layer_count && a->sub.expert_count == b->sub.expert_count &&
           a->sub.topk == b->sub.topk;
}

void grid_point_set_size(struct grid_point *point, const struct model *model)
{
    struct submodel_size size = submodel_size(&point->sub, model);
    point->parameters = size.parameters;
    point->active = size.active;
    point->bytes = size.bytes;
}

i64 elastic_grid(struct grid_point *points, i64 most, struct arena *arena, const struct model *model)
{
    static const struct grid_variant variants[] = {
        {"full", 1, 1, 0},
        {"k/2", 1, 2, 0},
        {"k/4", 1, 4, 0},
        {"k/8", 1, 8, 0},
        {"experts 3/4", 0.75, 1, 0},
        {"experts 1/2", 0.5, 1, 0},
        {"layers -1/8", 1, 1, 1},
        {"layers -2/8", 1, 1, 2},
        {"layers -1/8, experts 3/4, k/2", 0.75, 2, 1},
        {"layers -2/8, experts 1/2, k/2", 0.5, 2, 2},
    };
    double *use = memory_alloc(model_use_count(&model->config) * (i64)sizeof *use);
    bool ranked = model_has_use(model);
    i64 count = 0;
    model_ranking(use, model);
    for (i64 i = 0; i < COUNT_OF(variants) && count < most; i++) {
        struct grid_point *point = &points[count];
        if (variants[i].experts < 1 && !ranked)
            continue;
        bool seen = false;
        make_point(point, arena, model, use, &variants[i]);
        for (i64 j = 0; j < count; j++)
            seen |= same_choice(&points[j], point);
        grid_point_set_size(point, model);
        count += !seen;
    }
    memory_free(use);
    return count;
}
