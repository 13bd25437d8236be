/* Cross-entropy of rows of logits with lse and optional entropy, and the backward; the backward of the
 * entropy alone. Rows whose target is IGNORED have loss and gradient 0. */
#include "kernels/cpu/rows.h"

enum { IGNORED = -100 };
struct cross_entropy_job {
    struct matrix logits, dlogits;
    float *loss, *lse, *entropy;
    const float *coefficient, *kept_lse;
    const i32 *target;
    i64 rows_tile;
};

INLINED float sum_of_exp(const void *x, float most, i64 n, enum dtype dtype)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++)
        sum += vector_exp(element_load(x, i, dtype) - most);
    return sum;
}

/* Sums of e^z and of z e^z. z = x - most is clamped where e^z is 0, so that -inf contributes
 * nothing. */
INLINED float sum_of_exp_and_x_exp(float *weighted_sum, const void *x, float most, i64 n, enum dtype dtype)
{
    float sum = 0, weighted = 0;
#pragma omp simd reduction(+ : sum, weighted)
    for (i64 i = 0; i < n; i++) {
        float z = element_load(x, i, dtype) - most;
        z = z < -100 ? -100 : z;
        float e = vector_exp(z);
        sum += e;
        weighted += z * e;
    }
    *weighted_sum = weighted;
    return sum;
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct cross_entropy_job *job = context;
    (void)worker;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    enum dtype dtype = job->logits.dtype;
    for (i64 i = begin; i < end; i++) {
        const void *x = matrix_at(job->logits, i, 0);
        float most = row_max(x, n, dtype), sum, weighted_sum;
        if (job->entropy) {
            sum = BY_DTYPE(dtype, sum_of_exp_and_x_exp, &weighted_sum, x, most, n);
            job->entropy[i] = logf(sum) - weighted_sum / sum;
        } else {
            sum = BY_DTYPE(dtype, sum_of_exp, x, most, n);
        }
        job->lse[i] = most + logf(sum);
        i32 target = job->target[i];
        require(target == IGNORED || (target >= 0 && target < n), "cross_entropy: target %d of %lld classes", target,
                (long long)n);
        job->loss[i] = target == IGNORED ? 0 : logf(sum) - (element_load(x, target, dtype) - most);
    }
}

void CPU(cross_entropy)(struct device *device, float *loss, float *lse, float *entropy, struct matrix logits,
                        const i32 *target)
{
    (void)device;
    struct cross_entropy_job job = {.logits = logits, .loss = loss, .lse = lse, .entropy = entropy, .target = target};
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_tile, &job);
}

INLINED void scaled_softmax(void *dx, const void *x, float lse, float coefficient, i64 n, enum dtype out_dtype,
                            enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        element_store(dx, i, coefficient * vector_exp(element_load(x, i, dtype) - lse), out_dtype);
}

static void run_backward(void *context, i64 tile, int worker)
{
    const struct cross_entropy_job *job = context;
    (void)worker;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    enum dtype dtype = job->logits.dtype, out_dtype = job->dlogits.dtype;
    for (i64 i = begin; i < end; i++) {
        void *dx = matrix_at(job->dlogits, i, 0);
        const void *x = matrix_at(job->logits, i, 0);
        float coefficient = job->coefficient[i], lse = job->kept_lse[i];
        i32 target = job->target[i];
        if (target == IGNORED) {
            memset(dx, 0, (size_t)(n * element_bytes(out_dtype)));
            continue;
        }
        float p = vector_exp(element_load(x, target, dtype) - lse);
        BY_DTYPES(out_dtype, dtype, scaled_softmax, dx, x, lse, coefficient, n);
        element_store(dx, target, coefficient * (p - 1), out_dtype);
    }
}

void CPU(cross_entropy_backward)(struct device *device, struct matrix dlogits, struct matrix logits, const float *lse,
                                 const i32 *target, const float *coefficient)
{
    (void)device;
    struct cross_entropy_job job = {.logits = logits, .dlogits = dlogits, .kept_lse = lse, .target = target};
    job.coefficient = coefficient;
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_backward, &job);
}

/* ---- Entropy ---- */

/* log p, clamped where p is 0, so that -inf contributes nothing. */
INLINED float log_share(float x, float lse)
{
    return x - lse < -100 ? -100 : x - lse;
}

INLINED float sum_of_p_log_p(const void *x, float lse, i64 n, enum dtype dtype)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++) {
        float log_p = log_share(element_load(x, i, dtype), lse);
        sum += vector_exp(log_p) * log_p;
    }
    return sum;
}

/* sum: of p log p, which is -H. */
INLINED void add_class_gradients(void *dx, const void *x, float lse, float sum, float coefficient, i64 n,
                                 enum dtype out_dtype, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float log_p = log_share(element_load(x, i, dtype), lse);
        float slope = -vector_exp(log_p) * (log_p - sum);
        element_store(dx, i, element_load(dx, i, out_dtype) + coefficient * slope, out_dtype);
    }
}

INLINED void add_bit_gradients(void *dx, const void *x, float coefficient, i64 n, enum dtype out_dtype,
                               enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float value = element_load(x, i, dtype), slope = -value * vector_sigmoid(value) * vector_sigmoid(-value);
        element_store(dx, i, element_load(dx, i, out_dtype) + coefficient * slope, out_dtype);
    }
}

static void run_entropy_backward(void *context, i64 tile, int worker)
{
    const struct cross_entropy_job *job = context;
    (void)worker;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    enum dtype dtype = job->logits.dtype, out_dtype = job->dlogits.dtype;
    for (i64 i = begin; i < end; i++) {
        void *dx = matrix_at(job->dlogits, i, 0);
        const void *x = matrix_at(job->logits, i, 0);
        if (!job->kept_lse) {
            BY_DTYPES(out_dtype, dtype, add_bit_gradients, dx, x, job->coefficient[i], n);
            continue;
        }
        float sum = BY_DTYPE(dtype, sum_of_p_log_p, x, job->kept_lse[i], n);
        BY_DTYPES(out_dtype, dtype, add_class_gradients, dx, x, job->kept_lse[i], sum, job->coefficient[i], n);
    }
}

void CPU(entropy_backward)(struct device *device, struct matrix dlogits, struct matrix logits, const float *lse,
                           const float *coefficient)
{
    (void)device;
    struct cross_entropy_job job = {.logits = logits, .dlogits = dlogits, .kept_lse = lse, .coefficient = coefficient};
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_entropy_backward, &job);
}
