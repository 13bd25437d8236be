#include "tensor/weights.h"

#include "kernels/device/deferred.h"
#include "tensor/inside.h"

#include <math.h>
#include <string.h>

void weights_open(struct weights *weights, struct device *device, enum dtype dtype, bool training,
                  const struct weights_layout *layout)
{
    *weights = (struct weights){.device = device, .dtype = dtype, .training = training};
    weights->list = memory_alloc(WEIGHTS_MOST * (i64)sizeof *weights->list);
    if (training)
        weights->recordings = device_recordings_open(device);
    if (weights->recordings)
        weights->deferred = deferred_open(device);
    if (layout)
        weights->layout = *layout;
    struct weights_layout *l = &weights->layout;
    i64 *sizes[] = {&l->data_ranks, &l->expert_ranks, &l->tensor_ranks, &l->chunk_ranks, &l->chunks};
    for (i64 i = 0; i < COUNT_OF(sizes); i++)
        *sizes[i] = max_i64(*sizes[i], 1);
}

struct weight_spec weight_matrix(const char *name, i64 rows, i64 columns)
{
    return (struct weight_spec){.name = name,
                                .matrices = 1,
                                .rows = rows,
                                .columns = columns,
                                .pieces = {{name, rows}},
                                .disk_rank = 2,
                                .trained = true,
                                .multiplied = true,
                                .decay = true,
                                .init = INIT_NORMAL,
                                .init_std = 1 / sqrtf((float)columns)};
}

struct weight *weights_add(struct weights *weights, const struct weight_spec *spec)
{
    require(weights->count < WEIGHTS_MOST, "more than %d weights", WEIGHTS_MOST);
    struct weight *w = &weights->list[weights->count++];
    *w = (struct weight){.spec = *spec};
    w->spec.name = string_copy(spec->name);
    w->spec.fused = spec->fused ? string_copy(spec->fused) : NULL;
    for (int i = 0; i < 4; i++)
        w->spec.pieces[i].name = spec->pieces[i].name ? string_copy(spec->pieces[i].name) : NULL;
    if (w->spec.lr_factor == 0)
        w->spec.lr_factor = 1;
    weight_place(w, &weights->layout, weights->training);
    return w;
}

static i64 elements_of(const struct weight *w)
{
    return w->matrices * w->rows * w->columns;
}

static enum dtype copy_dtype(const struct weights *weights, const struct weight *w)
{
    return w->spec.type == TYPE_F32 ? DTYPE_F32 : weights->dtype;
}

/* An f32 copy is its own master. Only training updates masters: a table that does not train has none
 * beside bf16 copies. */
static void allocate_values(struct weights *weights, struct weight *w)
{
    bool own_master = w->value.dtype != DTYPE_F32 && weights->training;
    if (quantized_bytes(weights, w))
        quantized_allocate(weights, w);
    if (!quantized_replaces(weights, w))
        w->value.data = arena_alloc(&weights->memory, elements_of(w) * dtype_bytes(w->value.dtype));
    if (own_master)
        w->master = arena_alloc(&weights->memory, w->share_rows * w->columns * 4);
    else if (w->value.data && w->value.dtype == DTYPE_F32)
        w->master = (float *)w->value.data + w->share_first * w->columns;
}

static void allocate_one(struct weights *weights, struct weight *w)
{
    i64 n = elements_of(w), share = w->share_rows * w->columns;
    w->value = (struct tensor){.dtype = copy_dtype(weights, w),
                               .grad_dtype = DTYPE_F32,
                               .rows = w->matrices * w->rows,
                               .columns = w->columns,
                               .matrices = w->matrices,
                               .forms = &w->forms};
    allocate_values(weights, w);
    if (!weights->training || !w->spec.trained || n == 0)
        return;
    w->image_bytes = image_bytes_of(weights, w);
    w->image = w->image_bytes ? arena_alloc(&weights->memory, w->image_bytes) : NULL;
    w->value.needs_grad = true;
    w->m = arena_alloc(&weights->memory, share * 4);
    w->v = arena_alloc(&weights->memory, share * 4);
    weights->written_count += w->matrices;
}

/* Lays out gradients and their flags in table order. */
static void place_gradients(struct weights *weights)
{
    float *grad = weights->grads = arena_alloc(&weights->memory, weights->grad_elements * 4);
    u8 *written = weights->written = arena_alloc(&weights->memory, weights->written_count);
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        if (!w->value.needs_grad)
            continue;
        w->value.grad = grad;
        w->value.matrices_written = written;
        grad += round_up(elements_of(w), 16);
        written += w->matrices;
    }
}

static void forget_gradients(struct weights *weights)
{
    for (i64 i = 0; i < weights->count; i++) {
        weights->list[i].value.grad_written = false;
        weights->list[i].value.uses = 0;
    }
    if (weights->written_count)
        weights->device->ops->zero(weights->device, weights->written, weights->written_count);
}

void weights_allocate(struct weights *weights)
{
    i64 bytes = 0;
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        i64 n = round_up(elements_of(w), 16);
        bytes += n * (weights->training ? 18 : dtype_bytes(copy_dtype(weights, w))) + 384 + w->matrices;
        bytes += image_bytes_of(weights, w) + quantized_bytes(weights, w);
        weights->grad_elements += weights->training && weights->list[i].spec.trained ? n : 0;
    }
    device_arena_open(weights->device, &weights->memory, bytes + 4096);
    for (i64 i = 0; i < weights->count; i++)
        allocate_one(weights, &weights->list[i]);
    place_gradients(weights);
    forget_gradients(weights);
}

void weights_open_shadow(struct weights *shadow, const struct weights *of)
{
    i64 bytes = 4096;
    weights_open(shadow, of->device, DTYPE_BF16, false, &of->layout);
    shadow->training = shadow->shadow = true; /* ranks share it as they share what they train */
    for (i64 i = 0; i < of->count; i++) {
        const struct weight *w = weights_add(shadow, &of->list[i].spec);
        bytes += 2 * (w->share_rows * w->columns * 4 + 64);
    }
    weights_place_experts(shadow, of->layout.placement);
    device_arena_open(shadow->device, &shadow->memory, bytes);
    for (i64 i = 0; i < shadow->count; i++) {
        struct weight *w = &shadow->list[i];
        i64 share = w->share_rows * w->columns * 4;
        w->value = (struct tensor){.dtype = DTYPE_BF16, .rows = w->matrices * w->rows, .columns = w->columns};
        w->master = arena_alloc(&shadow->memory, share);
        w->m = arena_alloc(&shadow->memory, share);
        shadow->device->ops->zero(shadow->device, w->master, share);
        shadow->device->ops->zero(shadow->device, w->m, share);
    }
}

void weights_close(struct weights *weights)
{
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        memory_free((char *)(uintptr_t)w->spec.name);
        memory_free((char *)(uintptr_t)w->spec.fused);
        for (int p = 0; p < 4; p++)
            memory_free((char *)(uintptr_t)w->spec.pieces[p].name);
    }
    memory_free(weights->list);
    memory_free(weights->placement);
    if (weights->deferred)
        deferred_close(weights->deferred);
    device_recordings_close(weights->device, weights->recordings);
    if (weights->memory.base)
        device_arena_close(weights->device, &weights->memory);
    if (weights->rounded.base)
        device_arena_close(weights->device, &weights->rounded);
    *weights = (struct weights){0};
}

struct weight *weights_find(struct weights *weights, const char *name)
{
    for (i64 i = 0; i < weights->count; i++)
        if (strcmp(weights->list[i].spec.name, name) == 0)
            return &weights->list[i];
    panic("no weight named %s", name);
}

/* A caller on a CPU may have changed values in their place. */
static void put_floats(struct weights *weights, float *to, const float *values, i64 count)
{
    if (to != values)
        device_put(weights->device, to, values, count * 4);
}

static void put_copy(struct weights *weights, struct weight *w, i64 at, i64 count, const float *values)
{
    char *to = (char *)w->value.data + at * dtype_bytes(w->value.dtype);
    if (w->value.dtype == DTYPE_F32) {
        put_floats(weights, (float *)(void *)to, values, count);
        return;
    }
    bf16 narrow[4096];
    for (i64 begin = 0, here; begin < count; begin += here) {
        here = min_i64(COUNT_OF(narrow), count - begin);
        for (i64 i = 0; i < here; i++)
            narrow[i] = bf16_from_f32(values[begin + i]);
        device_put(weights->device, to + 2 * begin, narrow, here * 2);
    }
}

void weight_put(struct weights *weights, struct weight *w, i64 row, i64 rows, const float *values)
{
    i64 first = max_i64(row, w->share_first), end = min_i64(row + rows, w->share_first + w->share_rows);
    if (w->forms.quantized)
        quantized_put(weights, w, row, rows, values);
    if (w->value.data)
        put_copy(weights, w, row * w->columns, rows * w->columns, values);
    forms_drop(w);
    if (w->master && w->value.dtype != DTYPE_F32 && first < end)
        put_floats(weights, w->master + (first - w->share_first) * w->columns, values + (first - row) * w->columns,
                   (end - first) * w->columns);
}

void weight_get(const struct weights *weights, const struct weight *w, i64 row, i64 rows, float *values)
{
    i64 count = rows * w->columns;
    if (w->master) {
        device_get(weights->device, values, w->master + (row - w->share_first) * w->columns, count * 4);
        return;
    }
    require(w->value.data || count == 0, "%s is kept in %d bits only", w->spec.name, weights->bits);
    bf16 *narrow = memory_alloc(count * 2);
    device_get(weights->device, narrow, (const bf16 *)w->value.data + row * w->columns, count * 2);
    for (i64 i = 0; i < count; i++)
        values[i] = bf16_to_f32(narrow[i]);
    memory_free(narrow);
}

struct init_job {
    struct weight *weight;
    struct rng_key key;
    u32 identity;
    float *values; /* the values of this rank's slice */
};

/* One normal per draw, although a draw could give four (two Box-Muller pairs): so the value of
 * element i does not depend on its neighbours. */
static float init_value(const struct init_job *job, u64 element)
{
    const struct weight_spec *s = &job->weight->spec;
    if (s->init != INIT_NORMAL)
        return s->init == INIT_ONES;
    return s->init_std * (float)rng_normal(job->key, job->identity, (u32)element, (u32)(element >> 32), 0);
}

static void init_row(void *context, i64 tile, int worker)
{
    const struct init_job *job = context;
    struct weight *w = job->weight;
    (void)worker;
    u64 first = (u64)weight_logical_at(w, tile);
    for (i64 c = 0; c < w->columns; c++)
        job->values[tile * w->columns + c] = init_value(job, first + (u64)c);
}

void weight_clear_moments(struct weights *weights, struct weight *w)
{
    struct device *device = weights->device;
    if (!w->m)
        return;
    device->ops->zero(device, w->m, w->share_rows * w->columns * 4);
    device->ops->zero(device, w->v, w->share_rows * w->columns * 4);
}

void weights_init(struct weights *weights, u64 seed)
{
    for (i64 i = 0; i < weights->count; i++) {
        struct weight *w = &weights->list[i];
        u32 identity = (u32)hash_bytes(w->spec.name, (i64)strlen(w->spec.name), 0);
        struct init_job job = {w, {seed, RNG_INIT}, identity, memory_alloc(elements_of(w) * 4)};
        workers_run(w->matrices * w->rows, init_row, &job);
        weight_put(weights, w, 0, w->matrices * w->rows, job.values);
        weight_clear_moments(weights, w);
        memory_free(job.values);
    }
}

struct device *weights_begin_ops(struct weights *weights)
{
    return weights->deferred ? deferred_begin(weights->deferred) : weights->device;
}

void weights_end_ops(struct weights *weights)
{
    if (weights->deferred)
        deferred_end(weights->deferred, weights->recordings);
}

void weights_begin_step(struct weights *weights)
{
    forget_gradients(weights);
    weights_pack(weights);
}

void weight_settle_gradient(struct weights *weights, struct weight *w)
{
    struct device *device = weights->device;
    if (w->value.needs_grad && !w->value.grad_written)
        device->ops->zero_unwritten(device, matrix_of(w->value.grad, DTYPE_F32, w->matrices * w->rows, w->columns),
                                    w->value.matrices_written, w->matrices);
    w->value.grad_written = w->value.needs_grad;
}

void weights_settle_gradients(struct weights *weights)
{
    for (i64 i = 0; i < weights->count; i++)
        weight_settle_gradient(weights, &weights->list[i]);
}

i64 weights_parameters(const struct weights *weights)
{
    i64 total = 0;
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight_spec *s = &weights->list[i].spec;
        total += s->trained ? s->matrices * s->rows * s->columns : 0;
    }
    return total;
}

i64 weights_bytes(const struct weights *weights)
{
    return weights->memory.used_bytes + weights->rounded.used_bytes;
}
