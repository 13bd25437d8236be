#include "elastic/elastic.h"

#include <stdio.h>
#include <string.h>

/* Drops `drop` eligible layers, evenly spread. */
static void thin_layers(struct submodel *sub, const struct model_config *c, i64 drop)
{
    i64 eligible = 0, seen = 0, dropped = 0;
    for (i64 i = 0; i < c->layers; i++)
        eligible += !elastic_layer_fixed(c, i);
    drop = min_i64(drop, eligible);
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

struct grid_variant {
    const char *name;
    double experts;   /* share kept */
    i64 topk, layers; /* divisor of k; layers dropped, in eighths of the depth */
};

static int make_point(struct grid_point *point, struct arena *arena, const struct model *model,
                      const struct grid_variant *v)
{
    const struct model_config *c = &model->config;
    char experts[32], topk[32];
    i64 k = max_i64(1, c->topk / v->topk), count = (i64)((double)c->experts * v->experts);
    snprintf(experts, sizeof experts, "%lld", (long long)max_i64(count, k));
    snprintf(topk, sizeof topk, "%lld", (long long)k);
    bool moe = c->first_moe_layer < c->layers;
    struct submodel_options options = {NULL, moe ? experts : NULL, moe ? topk : NULL};
    memset(point, 0, sizeof *point);
    if (submodel_parse(&point->sub, arena, &options, model))
        return -1;
    thin_layers(&point->sub, c, ceil_div(v->layers * c->layers, 8));
    snprintf(point->name, sizeof point->name, "%s", v->name);
    return 0;
}

/* Of gemms in layers and of the embedding. */
static i64 parameters_of(const struct model_config *c)
{
    struct model_config all = *c;
    all.topk = all.experts;
    return model_parameters_active(&all) + c->vocabulary * c->width * (c->tied ? 1 : 2);
}

static bool same_choice(const struct grid_point *a, const struct grid_point *b)
{
    return a->sub.layer_count == b->sub.layer_count && a->sub.expert_count == b->sub.expert_count &&
           a->sub.topk == b->sub.topk;
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
    i64 count = 0, rest = weights_parameters(&model->weights) - parameters_of(&model->config);
    for (i64 i = 0; i < COUNT_OF(variants) && count < most; i++) {
        struct grid_point *point = &points[count];
        if (make_point(point, arena, model, &variants[i]))
            continue;
        bool seen = false;
        for (i64 j = 0; j < count; j++)
            seen |= same_choice(&points[j], point);
        struct model_config config = submodel_config(&point->sub, &model->config);
        /* Encoders and heads of media stay whole; each layer dropped takes its two norms along. */
        point->parameters =
            parameters_of(&config) + rest - 2 * model->config.width * (model->config.layers - config.layers);
        point->active = model_parameters_active(&config);
        count += !seen;
    }
    return count;
}
