/* Binary cross-entropy of bits with logits: the mean loss and mean entropy of each row, and the
 * backward. */
#include "kernels/cpu/rows.h"

struct bit_cross_entropy_job {
    struct matrix logits, dlogits;
    float *loss, *entropy;
    const float *coefficient;
    const u8 *bits;
    i64 rows_tile;
};

INLINED void fill_losses(float *out, const void *x, const u8 *bits, i64 n, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float value = element_load(x, i, dtype);
        out[i] = vector_softplus(bits[i] ? -value : value);
    }
}

/* Entropy of one bit with a = |x|, e = exp(-a): log(1 + e) + a e / (1 + e). */
INLINED void fill_entropies(float *out, const void *x, i64 n, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float a = __builtin_fabsf(element_load(x, i, dtype)), e = vector_exp(-a);
        out[i] = vector_log1p(e) + a * e / (1 + e);
    }
}

static void store_means(float *out, const float *each, i64 rows, i64 n)
{
    for (i64 i = 0; i < rows; i++)
        out[i] = row_sum(each + i * n, n) / (float)n;
}

/* Rows are short. If they are contiguous, a tile's elements are processed as one run. */
static void run_tile(void *context, i64 tile, int worker)
{
    const struct bit_cross_entropy_job *job = context;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    enum dtype dtype = job->logits.dtype;
    i64 rows = end - begin, run = matrix_is_dense(job->logits) ? rows : 1;
    float *each = CPU(scratch)(worker, 0, rows * n * 4);
    for (i64 i = 0; i < rows; i += run)
        BY_DTYPE(dtype, fill_losses, each + i * n, matrix_at(job->logits, begin + i, 0), job->bits + (begin + i) * n,
                 run * n);
    store_means(job->loss + begin, each, rows, n);
    if (!job->entropy)
        return;
    for (i64 i = 0; i < rows; i += run)
        BY_DTYPE(dtype, fill_entropies, each + i * n, matrix_at(job->logits, begin + i, 0), run * n);
    store_means(job->entropy + begin, each, rows, n);
}

void CPU(bit_cross_entropy)(struct device *device, float *loss, float *entropy, struct matrix logits, const u8 *bits)
{
    (void)device;
    struct bit_cross_entropy_job job = {.logits = logits, .loss = loss, .entropy = entropy, .bits = bits};
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_tile, &job);
}

INLINED void backward_row(void *dx, const void *x, const u8 *bits, float coefficient, i64 n, enum dtype out_dtype,
                          enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float value = element_load(x, i, dtype), sign = bits[i] ? -1.0f : 1.0f;
        element_store(dx, i, coefficient * sign * vector_sigmoid(sign * value), out_dtype);
    }
}

static void run_backward(void *context, i64 tile, int worker)
{
    const struct bit_cross_entropy_job *job = context;
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
    struct bit_cross_entropy_job job = {.logits = logits, .dlogits = dlogits, .bits = bits, .coefficient = coefficient};
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_backward, &job);
}
