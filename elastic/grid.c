#include "elastic/elastic.h"

#include <stdio.h>
#include <string.h>

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
    submodel_spread_layers(&point->sub, c, c->layers - ceil_div(v->layers * c->layers, 8));
    snprintf(point->name, sizeof point->name, "%s", v->name);
    return 0;
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
    bool ranked = model_has_use(model);
    i64 count = 0;
    for (i64 i = 0; i < COUNT_OF(variants) && count < most; i++) {
        struct grid_point *point = &points[count];
        if ((variants[i].experts < 1 && !ranked) || make_point(point, arena, model, &variants[i]))
            continue;
        bool seen = false;
        for (i64 j = 0; j < count; j++)
            seen |= same_choice(&points[j], point);
        grid_point_set_size(point, model);
        count += !seen;
    }
    return count;
}
