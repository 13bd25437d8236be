#include "elastic/expert_sums.h"

#include <math.h>

static double row_norm(const void *row, enum dtype dtype, i64 columns)
{
    double sum = 0;
    for (i64 i = 0; i < columns; i++) {
        double value = dtype == DTYPE_F32 ? ((const float *)row)[i] : bf16_to_f32(((const bf16 *)row)[i]);
        sum += value * value;
    }
    return sqrt(sum);
}

static void add(double *sums, i64 at, double value)
{
    if (sums)
        sums[at] += value;
}

void expert_sums_add(void *context, i64 layer, const struct routing *r, const struct tensor *outputs)
{
    struct expert_sums *s = context;
    struct device *device = s->model->device;
    i64 experts = s->model->config.experts, n = r->n, k = r->k_max,
        row_bytes = outputs->columns * dtype_bytes(outputs->dtype);
    i32 *chosen = memory_alloc(n * k * 4), *slot = memory_alloc(n * k * 4);
    float *weight = memory_alloc(n * k * 4);
    char *rows = memory_alloc(outputs->rows * row_bytes);
    device_get(device, chosen, r->chosen, n * k * 4);
    device_get(device, slot, r->slot, n * k * 4);
    device_get(device, weight, r->weights->data, n * k * 4);
    device_get(device, rows, outputs->data, outputs->rows * row_bytes);
    for (i64 i = 0; i < n * k; i++) {
        if (s->batch->sample[i / k] < 0 || chosen[i] < 0)
            continue;
        i64 at = layer * experts + chosen[i];
        double norm = row_norm(rows + slot[i] * row_bytes, outputs->dtype, outputs->columns);
        add(s->count, at, 1);
        add(s->weight, at, weight[i]);
        add(s->norm, at, norm);
        add(s->gated, at, weight[i] * norm);
    }
    memory_free(chosen);
    memory_free(slot);
    memory_free(weight);
    memory_free(rows);
}
