/* Nested draws: the order in which sub-models keep experts and layers, fixed once from the rows of a step. */
#include "elastic/expert_sums.h"
#include "train/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int trainer_check_nested(const struct trainer *t)
{
    const struct layout *l = &t->model->parallel->layout;
    if (l->pipeline * l->chunks * l->expert * l->tensor == 1)
        return 0;
    return error_usage("elastic.nested: the order of experts is found on ranks that hold the whole model, and --layout "
                       "divides it: expected elastic.nested: false, or a layout of data ranks alone");
}

struct rows { /* of the step */
    struct step_result *result;
    struct trainer *trainer;
    i64 step, micro_batches;
};

/* Runs a sub-model on the micro-batches of this rank. The losses go into trainer->sums. sums: NULL, or
 * receives what the experts do. */
static int run_rows(const struct rows *rows, const struct submodel *sub, struct expert_sums *sums)
{
    struct trainer *t = rows->trainer;
    struct micro_batch *f = &t->in_flight[0];
    const struct comm *data = t->model->parallel->data;
    const struct forward_options options = {
        .losses_only = true, .see_experts = sums ? expert_sums_add : NULL, .see_context = sums};
    step_sums_clear(t->model->device, t->sums);
    for (i64 micro = data->rank; micro < rows->micro_batches; micro += data->size) {
        struct forward out;
        arena_reset(&f->arena, 0);
        t->next_micro = micro + data->size < rows->micro_batches ? micro + data->size : -1;
        if (t->source.fill(t->source.context, rows->step, micro, &f->batch, &f->arena))
            return -1;
        if (sums)
            sums->batch = &f->batch;
        tape_clear(&f->tape, false);
        model_forward(&out, &f->tape, t->model, &f->batch, sub, &options);
        step_sums_add(t->model->device, t->sums, &out, &t->model->config);
        rows->result->flops += step_flops(&t->model->config, &f->batch, sub);
    }
    return 0;
}

/* ---- Experts ---- */

static int order_experts(double *order, const struct rows *rows)
{
    struct trainer *t = rows->trainer;
    struct device *device = t->model->device;
    const struct model_config *c = &t->model->config;
    i64 bytes = model_use_count(c) * (i64)sizeof *order;
    double *there = device_alloc(device, bytes);
    struct expert_sums sums = {.model = t->model, .gated = order};
    struct submodel full;
    submodel_full(&full, c);
    memset(order, 0, (size_t)bytes);
    int status = run_rows(rows, &full, &sums);
    if (status == 0) {
        const struct comm_sum sum = {there, model_use_count(c), DTYPE_F64};
        device_put(device, there, order, bytes);
        comm_all_reduce_list(t->model->parallel->data, &sum, 1);
        device_get(device, order, there, bytes);
        elastic_order(order, order, t->elastic, c);
    }
    device_free(device, there, bytes);
    return status;
}

/* ---- Layers ---- */

/* As trained: each kind's mean loss times its weight. One that is not finite is the largest. */
static int loss_without(double *loss, const struct rows *rows, const struct submodel *sub, i64 at)
{
    struct trainer *t = rows->trainer;
    struct submodel without = *sub;
    struct step_result sums = {0};
    struct step_end end;
    without.layer_count--;
    memmove(without.layer + at, without.layer + at + 1, (size_t)(without.layer_count - at) * sizeof *without.layer);
    if (run_rows(rows, &without, NULL))
        return -1;
    step_sums_reduce(t->model->parallel->data, t->sums);
    step_sums_get(&sums, &end, t->model->device, t->sums);
    *loss = 0;
    for (enum target_kind kind = 0; kind < TARGETS; kind++) {
        double targets = 0;
        for (int stream = 0; stream < LOSS_STREAMS; stream++)
            targets += sums.weight[stream][kind];
        *loss += targets > 0 ? trainer_weight(t, kind) * step_mean_loss(&sums, kind) : 0;
    }
    *loss = isfinite(*loss) ? *loss : INFINITY;
    return 0;
}

struct layer_loss {
    double loss; /* without it */
    i32 layer;
};

static int by_loss(const void *a, const void *b)
{
    const struct layer_loss *x = a, *y = b;
    return x->loss != y->loss ? (x->loss > y->loss) - (x->loss < y->loss) : y->layer - x->layer;
}

static void drop_layer(struct submodel *sub, i32 layer)
{
    i64 kept = 0;
    for (i64 i = 0; i < sub->layer_count; i++)
        if (sub->layer[i] != layer)
            sub->layer[kept++] = sub->layer[i];
    sub->layer_count = kept;
}

/* The layers that are never dropped come first, at [L]; the first to go has 1. */
static int order_layers(double *places, const struct rows *rows)
{
    const struct model_config *c = &rows->trainer->model->config;
    struct submodel sub;
    i64 place = 0;
    submodel_full(&sub, c);
    for (i64 i = 0; i < c->layers; i++)
        places[i] = (double)c->layers;
    while (sub.layer_count > submodel_least_layers(c)) {
        struct layer_loss list[LAYERS_MOST];
        i64 count = 0, drop = max_i64(1, sub.layer_count / 4);
        for (i64 i = 0; i < sub.layer_count; i++) {
            if (elastic_layer_fixed(c, sub.layer[i]))
                continue;
            list[count].layer = sub.layer[i];
            if (loss_without(&list[count++].loss, rows, &sub, i))
                return -1;
        }
        qsort(list, (size_t)count, sizeof *list, by_loss);
        for (i64 i = 0; i < min_i64(drop, count); i++) {
            places[list[i].layer] = (double)++place;
            drop_layer(&sub, list[i].layer);
        }
    }
    return 0;
}

int trainer_fix_order(struct step_result *result, struct trainer *t, i64 step, i64 micro_batches)
{
    const struct rows rows = {result, t, step, micro_batches};
    const struct model_config *c = &t->model->config;
    double *order = memory_alloc(model_order_count(c) * (i64)sizeof *order);
    int status = order_experts(order, &rows) || order_layers(order + model_use_count(c), &rows) ? -1 : 0;
    if (status == 0)
        model_set_order(t->model, order);
    memory_free(order);
    return status;
}
