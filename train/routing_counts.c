#include "train/routing_counts.h"

#include "dist/dist.h"
#include "train/train.h"

#include <math.h>
#include <string.h>

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

static bool is_counted(const struct routing_counts *c, const struct batch *batch, const i32 *sample_topk, i64 i)
{
    i32 sample = batch->sample[i];
    return sample >= 0 && (!sample_topk || sample_topk[sample] >= c->topk);
}

void routing_count(struct routing_counts *c, const struct batch *batch, const i32 *routes, const i32 *sample_topk)
{
    for (i64 i = 0; i < batch->n; i++)
        c->positions[batch->stream[i]] += is_counted(c, batch, sample_topk, i);
    for (i64 l = 0; l < c->layers; l++)
        for (i64 i = 0; i < batch->n; i++) {
            const i32 *chosen = routes + (c->layer[l] * batch->n + i) * c->topk;
            i64 *use = c->count + (l * STREAMS + batch->stream[i]) * c->experts;
            for (i64 k = 0; k < c->topk && is_counted(c, batch, sample_topk, i); k++)
                if (chosen[k] >= 0)
                    use[chosen[k]]++;
        }
}

static i64 sum_of(const i64 *use, i64 experts)
{
    i64 sum = 0;
    for (i64 e = 0; e < experts; e++)
        sum += use[e];
    return sum;
}

double routing_load(const i64 *use, i64 experts)
{
    i64 most = 0, sum = sum_of(use, experts);
    for (i64 e = 0; e < experts; e++)
        most = max_i64(most, use[e]);
    return sum ? (double)most * (double)experts / (double)sum : NAN;
}

/* Uses of the busiest rank over the mean; NaN without any. */
static double rank_load(const double *use, const i32 *placement, i64 layer, i64 experts, i64 ranks)
{
    double most = 0, sum = 0;
    for (i64 r = 0; r < ranks; r++) {
        double of_rank = 0;
        for (i64 i = layer * experts + experts * r / ranks; i < layer * experts + experts * (r + 1) / ranks; i++)
            of_rank += use[placement ? layer * experts + placement[i] : i];
        most = fmax(most, of_rank);
        sum += of_rank;
    }
    return sum > 0 ? most * (double)ranks / sum : NAN;
}

double routing_rank_load(i64 *layer, const double *use, const i32 *placement, i64 layers, i64 experts, i64 ranks)
{
    double largest = NAN;
    *layer = 0;
    for (i64 l = 0; l < layers; l++) {
        double load = rank_load(use, placement, l, experts, ranks);
        if (load > largest || isnan(largest)) {
            largest = load;
            *layer = l;
        }
    }
    return largest;
}

double routing_rank_load_mean(const double *use, const i32 *placement, i64 layers, i64 experts, i64 ranks)
{
    double sum = 0, count = 0;
    for (i64 l = 0; l < layers; l++) {
        double load = rank_load(use, placement, l, experts, ranks);
        sum += isnan(load) ? 0 : load;
        count += !isnan(load);
    }
    return count > 0 ? sum / count : NAN;
}

double routing_unused(const i64 *use, i64 experts)
{
    i64 unused = 0;
    for (i64 e = 0; e < experts; e++)
        unused += use[e] == 0;
    return unused < experts ? (double)unused / (double)experts : NAN;
}

/* An expert's rank is the number of experts that are used more, or as much and have a smaller id. */
void routing_most_used(bool *marks, const i64 *use, i64 experts)
{
    i64 quarter = max_i64(1, (experts + 2) / 4);
    for (i64 e = 0; e < experts; e++) {
        i64 rank = 0;
        for (i64 other = 0; other < experts; other++)
            rank += use[other] > use[e] || (use[other] == use[e] && other < e);
        marks[e] = use[e] > 0 && rank < quarter;
    }
}

double routing_overlap_of_sets(const bool *a, const bool *b, i64 experts)
{
    i64 both = 0, either = 0;
    for (i64 e = 0; e < experts; e++) {
        both += a[e] && b[e];
        either += a[e] || b[e];
    }
    return either ? (double)both / (double)either : NAN;
}

double routing_overlap(const i64 *use_a, const i64 *use_b, i64 experts)
{
    bool *a = memory_alloc(2 * experts), *b = a + experts;
    routing_most_used(a, use_a, experts);
    routing_most_used(b, use_b, experts);
    double overlap = routing_overlap_of_sets(a, b, experts);
    memory_free(a);
    return overlap;
}

double routing_entropy(const i64 *use, i64 experts)
{
    double total = (double)sum_of(use, experts), h = 0;
    for (i64 e = 0; e < experts; e++)
        if (use[e] > 0)
            h -= (double)use[e] / total * log((double)use[e] / total);
    return total > 0 && experts > 1 ? h / log((double)experts) : NAN;
}

/* ---- Expert ranks ---- */

int routing_place_experts(struct model *model, const struct stage *stage, double *use, bool in_a_row)
{
    const struct model_config *c = &model->config;
    i64 count = model_use_count(c), ranks = stage->ranks->layout.expert;
    if (ranks < 2 || c->experts == 0)
        return 0;
    i32 *placement = memory_alloc(count * (i64)sizeof *placement);
    if (in_a_row)
        memset(use, 0, (size_t)count * sizeof *use);
    placement_by_use(placement, use, c->layers, c->experts, ranks);
    int status = stage->ranks_place ? stage->ranks_place(stage->ranks_context, placement, c->layers, c->experts) : 0;
    bool is = placement_is_in_a_row(placement, c->layers, c->experts);
    if (status == 0)
        weights_place_experts(&model->weights, is ? NULL : placement);
    memory_free(placement);
    return status;
}

static void tell_placement(const struct model *model, const struct stage *stage, const double *use)
{
    const struct model_config *c = &model->config;
    const i32 *placement = model->weights.layout.placement;
    i64 ranks = stage->ranks->layout.expert;
    if (placement && stage->ranks->world->rank == 0)
        log_info("%s: the experts are placed by their use so far: the busiest of %lld expert ranks takes %.2f times "
                 "the mean of rows, with experts in a row %.2f times (mean of the layers)",
                 stage->name, (long long)ranks, routing_rank_load_mean(use, placement, c->layers, c->experts, ranks),
                 routing_rank_load_mean(use, NULL, c->layers, c->experts, ranks));
}

/* Memory for the rows that reach the experts of a rank is fixed on a GPU and with parts. Room for `expert`
 * times the mean holds all rows of all ranks. */
static int check_room(const struct model *model, const struct stage *stage, const double *use)
{
    const struct layout *l = &stage->ranks->layout;
    const struct model_config *c = &model->config;
    const char *setting = l->capacity_factor ? "part" : "receive";
    i64 room = l->capacity_factor ? l->capacity_factor : device_is_gpu(stage->device) ? l->receive : l->expert, layer;
    if (room >= l->expert)
        return 0;
    double load = routing_rank_load(&layer, use, model->weights.layout.placement, c->layers, c->experts, l->expert);
    if (load > (double)room)
        return error_usage(
            "%s: by the experts' use so far the busiest of %lld %s takes %.2f times the mean of rows (layer %lld), "
            "there is room for %lld times: expected --layout %s=%.0f or more",
            stage->name, (long long)l->expert, plural(l->expert, "expert rank", "expert ranks"), load, (long long)layer,
            (long long)room, setting, ceil(load));
    if (stage->ranks->world->rank == 0 && isnan(load))
        log_warn(
            "%s: the model has no counts of its experts' use yet. A rank has room for %lld times the mean of rows, "
            "--layout %s=%lld is enough for any",
            stage->name, (long long)room, setting, (long long)l->expert);
    return 0;
}

int routing_check_room(const struct model *model, const struct stage *stage)
{
    double *use = memory_alloc(model_use_count(&model->config) * (i64)sizeof *use);
    model_use_get(use, model);
    tell_placement(model, stage, use);
    int status = check_room(model, stage, use);
    memory_free(use);
    return status;
}
