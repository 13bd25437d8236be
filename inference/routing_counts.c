#include "inference/routing.h"

#include <math.h>

static bool is_routed(const struct model_config *config, i64 layer)
{
    return layer >= config->first_moe_layer;
}

void routing_counts_init(struct routing_counts *c, const struct model_config *config, const struct submodel *sub)
{
    *c = (struct routing_counts){.experts = sub->expert_count, .topk = sub->topk};
    c->layer = memory_alloc(LAYERS_MOST * 4);
    for (i64 i = 0; i < sub->layer_count; i++)
        if (is_routed(config, sub->layer[i]))
            c->layer[c->layers++] = sub->layer[i];
    c->expert = memory_alloc(max_i64(c->layers * c->experts, 1) * 4);
    c->count = memory_alloc(max_i64(c->layers * STREAMS * c->experts, 1) * 8);
    for (i64 l = 0; l < c->layers; l++)
        for (i64 e = 0; e < c->experts; e++)
            c->expert[l * c->experts + e] = sub->expert[c->layer[l]] ? sub->expert[c->layer[l]][e] : (i32)e;
}

void routing_counts_release(struct routing_counts *c)
{
    memory_free(c->layer);
    memory_free(c->expert);
    memory_free(c->count);
    *c = (struct routing_counts){0};
}

void routing_count(struct routing_counts *c, const struct batch *batch, const i32 *routes)
{
    for (i64 i = 0; i < batch->n; i++)
        c->positions[batch->stream[i]] += batch->sample[i] >= 0;
    for (i64 l = 0; l < c->layers; l++)
        for (i64 i = 0; i < batch->n; i++) {
            const i32 *chosen = routes + (c->layer[l] * batch->n + i) * c->topk;
            i64 *use = c->count + (l * STREAMS + batch->stream[i]) * c->experts;
            for (i64 k = 0; k < c->topk && batch->sample[i] >= 0; k++)
                if (chosen[k] >= 0)
                    use[chosen[k]]++;
        }
}

/* marks[e]: expert e is in the top quarter by use. An expert's rank is the number of experts that
 * are used more, or as much and have a smaller id. */
static void mark_most_used(bool *marks, const i64 *use, i64 experts)
{
    i64 quarter = max_i64(1, (experts + 2) / 4);
    for (i64 e = 0; e < experts; e++) {
        i64 rank = 0;
        for (i64 other = 0; other < experts; other++)
            rank += use[other] > use[e] || (use[other] == use[e] && other < e);
        marks[e] = use[e] > 0 && rank < quarter;
    }
}

double routing_overlap(const i64 *use_a, const i64 *use_b, i64 experts)
{
    bool *a = memory_alloc(2 * experts), *b = a + experts;
    i64 both = 0, either = 0;
    mark_most_used(a, use_a, experts);
    mark_most_used(b, use_b, experts);
    for (i64 e = 0; e < experts; e++) {
        both += a[e] && b[e];
        either += a[e] || b[e];
    }
    memory_free(a);
    return either ? (double)both / (double)either : NAN;
}

double routing_entropy(const i64 *use, i64 experts)
{
    double total = 0, h = 0;
    for (i64 e = 0; e < experts; e++)
        total += (double)use[e];
    for (i64 e = 0; e < experts; e++)
        if (use[e] > 0)
            h -= (double)use[e] / total * log((double)use[e] / total);
    return total > 0 && experts > 1 ? h / log((double)experts) : NAN;
}
