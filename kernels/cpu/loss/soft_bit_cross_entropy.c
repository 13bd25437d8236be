/* Distillation of bits: the mean divergence of each row's bits from the teacher's, and the gradient of
 * the mixed loss. */
#include "kernels/cpu/rows.h"

struct soft_bit_job {
    struct matrix logits, teacher, dlogits;
    const float *coefficient;
    const float *weight;
    float *divergence;
    const u8 *bits;
    i64 rows_tile;
};

/* With q = sigmoid(t): q (log q - log p) + (1 - q) (log(1 - q) - log(1 - p)), where
 * log(1 - p) = log p - x. */
INLINED float bits_divergence(const void *x, const void *t, i64 n, enum dtype dtype)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++) {
        float a = element_load(x, i, dtype), b = element_load(t, i, dtype);
        sum += vector_softplus(-a) - vector_softplus(-b) + vector_sigmoid(-b) * (a - b);
    }
    return sum / (float)n;
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct soft_bit_job *job = context;
    (void)worker;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    for (i64 i = begin; i < end; i++)
        job->divergence[i] = BY_DTYPE(job->logits.dtype, bits_divergence, matrix_at(job->logits, i, 0),
                                      matrix_at(job->teacher, i, 0), n);
}

void CPU(soft_bit_cross_entropy)(struct device *device, float *divergence, struct matrix logits, struct matrix teacher)
{
    (void)device;
    struct soft_bit_job job = {.logits = logits, .teacher = teacher, .divergence = divergence};
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_tile, &job);
}

INLINED void mixed_gradient(void *dx, const void *x, const void *t, const u8 *bits, float coefficient, float weight,
                            i64 n, enum dtype out_dtype, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float a = element_load(x, i, dtype), sign = bits[i] ? -1.0f : 1.0f;
        float hard = sign * vector_sigmoid(sign * a),
              soft = vector_sigmoid(a) - vector_sigmoid(element_load(t, i, dtype));
        element_store(dx, i, coefficient * ((1 - weight) * hard + weight * soft), out_dtype);
    }
}

static void run_backward(void *context, i64 tile, int worker)
{
    const struct soft_bit_job *job = context;
    (void)worker;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    for (i64 i = begin; i < end; i++)
        BY_DTYPES(job->dlogits.dtype, job->logits.dtype, mixed_gradient, matrix_at(job->dlogits, i, 0),
                  matrix_at(job->logits, i, 0), matrix_at(job->teacher, i, 0), job->bits + i * n,
                  job->coefficient[i] / (float)n, job->weight[i], n);
}

void CPU(soft_bit_cross_entropy_backward)(struct device *device, struct matrix dlogits, struct matrix logits,
                                          struct matrix teacher, const u8 *bits, const float *coefficient,
                                          const float *weight)
{
    (void)device;
    struct soft_bit_job job = {.logits = logits, .teacher = teacher, .dlogits = dlogits, .bits = bits};
    job.coefficient = coefficient;
    job.weight = weight;
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_backward, &job);
}
