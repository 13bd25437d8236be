/* Nested draws: the order in which sub-models keep experts, fixed once from the rows of a step. */
#include "elastic/expert_sums.h"
#include "train/step.h"

#include <string.h>

int trainer_check_nested(const struct trainer *t)
{
    const struct layout *l = &t->model->parallel->layout;
    if (l->pipeline * l->chunks * l->expert * l->tensor == 1)
        return 0;
    return error_usage("elastic.nested: the order of experts is found on ranks that hold the whole model, and --layout "
                       "divides it: expected elastic.nested: false, or a layout of data ranks alone");
}

/* Adds what the experts do on the micro-batches of this rank. */
static int sum_experts(double *gated, struct trainer *t, i64 step, i64 micro_batches)
{
    struct micro_batch *f = &t->in_flight[0];
    const struct comm *data = t->model->parallel->data;
    struct expert_sums sums = {.model = t->model, .batch = &f->batch, .gated = gated};
    const struct forward_options options = {.losses_only = true, .see_experts = expert_sums_add, .see_context = &sums};
    struct submodel full;
    submodel_full(&full, &t->model->config);
    for (i64 micro = data->rank; micro < micro_batches; micro += data->size) {
        struct forward out;
        arena_reset(&f->arena, 0);
        if (t->source.fill(t->source.context, step, micro, &f->batch, &f->arena))
            return -1;
        tape_clear(&f->tape, false);
        model_forward(&out, &f->tape, t->model, &f->batch, &full, &options);
    }
    return 0;
}

int trainer_order_experts(struct trainer *t, i64 step, i64 micro_batches)
{
    struct model *model = t->model;
    struct device *device = model->device;
    i64 bytes = model_use_count(&model->config) * (i64)sizeof(double);
    double *gated = memory_alloc(bytes), *there = device_alloc(device, bytes);
    memset(gated, 0, (size_t)bytes);
    int status = sum_experts(gated, t, step, micro_batches);
    if (status == 0) {
        const struct comm_sum sum = {there, model_use_count(&model->config), DTYPE_F64};
        device_put(device, there, gated, bytes);
        comm_all_reduce_list(model->parallel->data, &sum, 1);
        device_get(device, gated, there, bytes);
        elastic_order(gated, gated, t->elastic, &model->config);
        model_set_order(model, gated);
    }
    device_free(device, there, bytes);
    memory_free(gated);
    return status;
}
