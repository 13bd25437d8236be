#include "kernels/cpu/rows.h"

struct job {
    struct matrix logits, dlogits;
    float *loss, *entropy;
    const float *coefficient;
    const u8 *bits;
    i64 rows_tile;
};

INLINED float loss_sum(const void *x, const u8 *bits, i64 n, enum dtype dtype)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++) {
        float value = element_load(x, i, dtype);
        sum += vector_softplus(bits[i] ? -value : value);
    }
    return sum;
}

/* Of one bit, with a = |x|, e = exp(-a): log(1 + e) + a e / (1 + e). */
INLINED float entropy_sum(const void *x, i64 n, enum dtype dtype)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++) {
        float a = __builtin_fabsf(element_load(x, i, dtype)), e = vector_exp(-a);
        sum += vector_log1p(e) + a * e / (1 + e);
    }
    return sum;
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    (void)worker;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    enum dtype dtype = job->logits.dtype;
    for (i64 i = begin; i < end; i++) {
        const void *x = matrix_at(job->logits, i, 0);
        job->loss[i] = BY_DTYPE(dtype, loss_sum, x, job->bits + i * n, n) / (float)n;
        if (job->entropy)
            job->entropy[i] = BY_DTYPE(dtype, entropy_sum, x, n) / (float)n;
    }
}

void CPU(bit_cross_entropy)(struct device *device, float *loss, float *entropy, struct matrix logits, const u8 *bits)
{
    (void)device;
    struct job job = {.logits = logits, .loss = loss, .entropy = entropy, .bits = bits};
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_tile, &job);
}

INLINED void backward_row(void *dx, const void *x, const u8 *bits, float coefficient, i64 n, enum dtype out_dtype,
                          enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float value = element_load(x, i, dtype);
        float d = bits[i] ? -vector_sigmoid(-value) : vector_sigmoid(value);
        element_store(dx, i, coefficient * d, out_dtype);
    }
}

static void run_backward(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    (void)worker;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    for (i64 i = begin; i < end; i++)
        BY_DTYPES(job->dlogits.dtype, job->logits.dtype, backward_row, matrix_at(job->dlogits, i, 0),
                  matrix_at(job->logits, i, 0), job->bits + i * n, job->coefficient[i] / (float)n, n);
}

void CPU(bit_cross_entropy_backward)(struct device *device, struct matrix dlogits, struct matrix logits, const u8 *bits,
                                     const float *coefficient)
{
    (void)device;
    require(same_shape(dlogits, logits), "bit_cross_entropy_backward: [%lld,%lld] from [%lld,%lld]",
            (long long)dlogits.rows, (long long)dlogits.columns, (long long)logits.rows, (long long)logits.columns);
    struct job job = {.logits = logits, .dlogits = dlogits, .bits = bits, .coefficient = coefficient};
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_backward, &job);
}
