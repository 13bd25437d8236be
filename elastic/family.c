/* Sub-models by rank: which experts and layers stay for given numbers, what they take, and the family that
 * is measured. */
#include "elastic/inside.h"

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

/* The number of other layers that are dropped after this one. */
static i64 layers_above(const struct model_config *c, const double *places, i64 layer)
{
    i64 above = 0;
    for (i64 i = 0; i < c->layers; i++)
        above += !elastic_layer_fixed(c, i) && (places[i] > places[layer] || (places[i] == places[layer] && i < layer));
    return above;
}

void submodel_keep_layers(struct submodel *sub, const struct model_config *c, const double *places, i64 count)
{
    i64 eligible = c->layers - submodel_least_layers(c), seen = 0, dropped = 0;
    i64 drop = min_i64(c->layers - count, eligible);
    sub->layer_count = 0;
    for (i64 i = 0; i < c->layers; i++) {
        if (!elastic_layer_fixed(c, i)) {
            seen++;
            if (places ? layers_above(c, places, i) >= eligible - drop
                       : dropped < drop && seen * drop / eligible > dropped) {
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

static struct grid_shape shape_of(const struct grid_variant *v, const struct model_config *c)
{
    struct grid_shape shape = {"", c->layers - ceil_div(v->layers * c->layers, 8), c->experts, c->topk};
    snprintf(shape.name, sizeof shape.name, "%s", v->name);
    shape.layers = max_i64(shape.layers, submodel_least_layers(c));
    if (c->first_moe_layer < c->layers) {
        shape.topk = max_i64(1, c->topk / v->topk);
        shape.experts = max_i64((i64)((double)c->experts * v->experts), shape.topk);
    }
    return shape;
}

static bool same_shape(const struct grid_shape *a, const struct grid_shape *b)
{
    return a->layers == b->layers && a->experts == b->experts && a->topk == b->topk;
}

void grid_point_set_size(struct grid_point *point, const struct model *model)
{
    struct submodel_size size = submodel_size(&point->sub, model);
    point->parameters = size.parameters;
    point->active = size.active;
    point->bytes = size.bytes;
    struct model_config cut = submodel_config(&point->sub, &model->config);
    enum { ROW = 512 }; /* positions of a row: half of them is seen on average */
    point->cost =
        model_flops_forward(&cut, ROW, ROW / 2.0, ROW) / model_flops_forward(&model->config, ROW, ROW / 2.0, ROW);
}

void grid_point_set(struct grid_point *point, struct arena *arena, const struct model *model,
                    const struct grid_shape *shape, const struct submodel *layers, const double *scores)
{
    memset(point, 0, sizeof *point);
    point->sub = *layers;
    point->sub.topk = shape->topk;
    if (shape->experts < model->config.experts)
        submodel_keep_experts(&point->sub, arena, &model->config, scores, shape->experts);
    snprintf(point->name, sizeof point->name, "%s", shape->name);
    grid_point_set_size(point, model);
}

/* "12 layers, 32 experts, top-4": what is less than the model's. */
static struct grid_shape shape_of_size(const i64 *size, const struct model_config *c)
{
    struct elastic_size whole = elastic_size_of(size, c);
    struct grid_shape s = {"", whole.layers, whole.experts, whole.topk};
    struct buffer name = {0};
    if (s.layers < c->layers)
        buffer_printf(&name, "%lld %s", (long long)s.layers, plural(s.layers, "layer", "layers"));
    if (s.experts < c->experts)
        buffer_printf(&name, "%s%lld %s", name.length ? ", " : "", (long long)s.experts,
                      plural(s.experts, "expert", "experts"));
    if (s.topk < c->topk)
        buffer_printf(&name, "%stop-%lld", name.length ? ", " : "", (long long)s.topk);
    snprintf(s.name, sizeof s.name, "%s", name.length ? name.data : "full");
    buffer_release(&name);
    return s;
}

i64 elastic_grid_shapes(struct grid_shape *shapes, const struct model_config *c, const struct size_list *family)
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
    static const i64 whole[SIZE_NAMES];
    bool listed = family && family->count;
    i64 count = 0, most = listed ? 1 + family->count : COUNT_OF(variants);
    require(most <= GRID_SHAPES, "%lld shapes", (long long)most);
    for (i64 i = 0; i < most; i++) {
        bool seen = false;
        shapes[count] =
            listed ? shape_of_size(i ? family->values + (i - 1) * SIZE_NAMES : whole, c) : shape_of(&variants[i], c);
        for (i64 j = 0; j < count; j++)
            seen |= same_shape(&shapes[j], &shapes[count]);
        count += !seen;
    }
    return count;
}

i64 elastic_grid(struct grid_point *points, i64 most, struct arena *arena, const struct model *model,
                 const struct size_list *family)
{
    const struct model_config *c = &model->config;
    struct grid_shape shapes[GRID_SHAPES];
    double *scores = memory_alloc(model_use_count(c) * (i64)sizeof *scores);
    bool ranked = model_has_use(model);
    i64 listed = elastic_grid_shapes(shapes, c, family), count = 0;
    model_ranking(scores, model);
    for (i64 i = 0; i < listed && count < most; i++) {
        struct submodel layers;
        bool fewer = shapes[i].experts < c->experts;
        if (fewer && !ranked)
            continue;
        submodel_full(&layers, c);
        submodel_keep_layers(&layers, c, model_order_layers(model->order, c), shapes[i].layers);
        grid_point_set(&points[count], arena, model, &shapes[i], &layers, scores);
        bool same = !fewer && shapes[i].layers == c->layers;
        points[count++].chosen = same ? NULL : model->order ? "order" : fewer ? "use" : "spread";
    }
    memory_free(scores);
    return count;
}
