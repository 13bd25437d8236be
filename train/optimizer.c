#include "dist/dist.h"
#include "train/train.h"

#include <math.h>

/* The update of one part of a weight, without the elements that are kept. A part (one expert, or a
 * whole other weight) has one gradient or none. */
static struct update update_of(const struct weight *w, i64 part)
{
    i64 begin = max_i64(part * w->rows, w->share_first);
    i64 end = min_i64((part + 1) * w->rows, w->share_first + w->share_rows);
    i64 at = max_i64(begin * w->columns, part * w->rows * w->columns + w->kept);
    i64 first = at - w->share_first * w->columns;
    return (struct update){
        .p = w->master + first,
        .m = w->m + first,
        .v = w->v + first,
        .copy = w->value.dtype == DTYPE_F32 ? NULL : (char *)w->value.data + at * dtype_bytes(w->value.dtype),
        .copy_dtype = w->value.dtype,
        .g = (const float *)w->value.grad + at,
        .written = w->value.grad_written ? NULL : w->value.matrices_written + part,
        .count = max_i64(0, end * w->columns - at),
        .lr_factor = w->spec.lr_factor,
        .decay_factor = w->spec.decay};
}

static i64 count_updates(const struct weights *weights)
{
    i64 matrices = 0;
    for (i64 i = 0; i < weights->count; i++)
        matrices += weights->list[i].value.needs_grad ? weights->list[i].matrices : 0;
    return matrices;
}

/* Lists the updates of this rank, or only those that it contributes to the global gradient norm. */
static struct updates list_updates(struct update *list, const struct weights *weights, bool counted_alone)
{
    struct updates updates = {0, list};
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        if (!w->value.needs_grad || (counted_alone && !zero_counted(w, &weights->layout)))
            continue;
        for (i64 p = 0; p < w->matrices; p++) {
            list[updates.count] = update_of(w, p);
            updates.count += list[updates.count].count > 0;
        }
    }
    return updates;
}

/* The list is of the parts that this rank updates. */
static struct updates add_squares(struct update *list, const struct parallel *parallel, struct weights *weights,
                                  double *squares)
{
    struct updates counted = list_updates(list, weights, true);
    weights->device->ops->sum_squares(weights->device, squares, &counted);
    comm_all_reduce(parallel->world, squares, 1, DTYPE_F64);
    return list_updates(list, weights, false);
}

static struct update *new_list(const struct weights *weights)
{
    return memory_alloc(max_i64(count_updates(weights), 1) * (i64)sizeof(struct update));
}

void optimizer_squares(const struct parallel *parallel, struct weights *weights, double *squares)
{
    struct update *list = new_list(weights);
    add_squares(list, parallel, weights, squares);
    memory_free(list);
}

void optimizer_step_over(const struct parallel *parallel, struct weights *weights,
                         const struct optimizer_settings *settings, double lr, i64 step, double *squares)
{
    struct device *device = weights->device;
    struct update *list = new_list(weights);
    struct adamw adamw = {.lr = (float)lr,
                          .beta1 = (float)settings->beta1,
                          .beta2 = (float)settings->beta2,
                          .eps = (float)settings->eps,
                          .decay = (float)settings->weight_decay,
                          .step = step + 1,
                          .cautious = settings->cautious,
                          .cautious_decay = settings->cautious_decay};
    struct updates all = add_squares(list, parallel, weights, squares);
    device->ops->adamw(device, &all, squares, settings->clip, &adamw);
    memory_free(list);
    zero_gather_copies(weights, parallel);
    weights_updated(weights);
}

struct optimizer_result optimizer_result_of(double squares, double lr)
{
    return (struct optimizer_result){sqrt(squares), lr, !isfinite(squares)};
}

struct optimizer_result optimizer_step(struct weights *weights, const struct optimizer_settings *settings, double lr,
                                       i64 step)
{
    struct device *device = weights->device;
    double squares, *sum = device_alloc(device, sizeof *sum);
    device->ops->zero(device, sum, sizeof *sum);
    optimizer_step_over(parallel_alone(), weights, settings, lr, step, sum);
    device_get(device, &squares, sum, sizeof squares);
    device_free(device, sum, sizeof *sum);
    return optimizer_result_of(squares, lr);
}
