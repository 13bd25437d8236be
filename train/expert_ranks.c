#include "train/expert_ranks.h"

#include "train/routing_counts.h"

#include <math.h>
#include <string.h>

int experts_place(struct model *model, const struct stage *stage, const struct pretrain_settings *s, double *use)
{
    const struct model_config *c = &model->config;
    i64 count = model_use_count(c), ranks = stage->ranks->layout.expert;
    if (ranks < 2 || c->experts == 0)
        return 0;
    i32 *placement = memory_alloc(count * (i64)sizeof *placement);
    if (s->elastic_on && s->elastic.expert_groups > 1)
        memset(use, 0, (size_t)count * sizeof *use);
    placement_by_use(placement, use, c->layers, c->experts, ranks);
    int status = stage->ranks_place ? stage->ranks_place(stage->ranks_context, placement, c->layers, c->experts) : 0;
    bool in_a_row = placement_is_in_a_row(placement, c->layers, c->experts);
    if (status == 0)
        weights_place_experts(&model->weights, in_a_row ? NULL : placement);
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
        return error_usage("%s: so far the busiest of %lld %s took %.2f times the mean of rows (layer %lld), "
                           "there is room for %lld times: expected --layout %s=%.0f or more",
                           stage->name, (long long)l->expert, plural(l->expert, "expert rank", "expert ranks"), load,
                           (long long)layer, (long long)room, setting, ceil(load));
    if (stage->ranks->world->rank == 0 && isnan(load))
        log_warn(
            "%s: the model has no counts of its experts' use yet. A rank has room for %lld times the mean of rows, "
            "--layout %s=%lld is enough for any",
            stage->name, (long long)room, setting, (long long)l->expert);
    return 0;
}

int experts_check_room(const struct model *model, const struct stage *stage)
{
    double *use = memory_alloc(model_use_count(&model->config) * (i64)sizeof *use);
    model_use_get(use, model);
    tell_placement(model, stage, use);
    int status = check_room(model, stage, use);
    memory_free(use);
    return status;
}
