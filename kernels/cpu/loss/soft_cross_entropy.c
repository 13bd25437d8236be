/* Distillation of a distribution over classes: the divergence of each row from the teacher's, and the
 * gradient of the mixed loss (Hinton et al. 2015, arXiv 1503.02531, at temperature 1). */
#include "kernels/cpu/rows.h"

enum { IGNORED = -100 };
struct soft_cross_entropy_job {
    struct matrix logits, teacher, dlogits;
    const float *lse, *teacher_lse, *coefficient;
    const float *weight;
    float *divergence;
    const i32 *target;
    i64 rows_tile;
};

INLINED float divergence_of(const void *x, const void *t, float lse, float teacher_lse, i64 n, enum dtype dtype)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++) {
        float log_q = element_load(t, i, dtype) - teacher_lse;
        sum += vector_exp(log_q) * (log_q - (element_load(x, i, dtype) - lse));
    }
    return sum;
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct soft_cross_entropy_job *job = context;
    (void)worker;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    for (i64 i = begin; i < end; i++)
        job->divergence[i] = BY_DTYPE(job->logits.dtype, divergence_of, matrix_at(job->logits, i, 0),
                                      matrix_at(job->teacher, i, 0), job->lse[i], job->teacher_lse[i], n);
}

void CPU(soft_cross_entropy)(struct device *device, float *divergence, struct matrix logits, const float *lse,
                             struct matrix teacher, const float *teacher_lse)
{
    (void)device;
    struct soft_cross_entropy_job job = {.logits = logits, .teacher = teacher, .divergence = divergence};
    job.lse = lse;
    job.teacher_lse = teacher_lse;
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_tile, &job);
}

INLINED void mixed_gradient(void *dx, const void *x, const void *t, float lse, float teacher_lse, float coefficient,
                            float weight, i64 n, enum dtype out_dtype, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float p = vector_exp(element_load(x, i, dtype) - lse), q = vector_exp(element_load(t, i, dtype) - teacher_lse);
        element_store(dx, i, coefficient * (p - weight * q), out_dtype);
    }
}

static void run_backward(void *context, i64 tile, int worker)
{
    const struct soft_cross_entropy_job *job = context;
    (void)worker;
    i64 n = job->logits.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->logits.rows);
    enum dtype dtype = job->logits.dtype, out_dtype = job->dlogits.dtype;
    for (i64 i = begin; i < end; i++) {
        void *dx = matrix_at(job->dlogits, i, 0);
        const void *x = matrix_at(job->logits, i, 0), *t = matrix_at(job->teacher, i, 0);
        float coefficient = job->coefficient[i], lse = job->lse[i], teacher_lse = job->teacher_lse[i];
        i32 target = job->target[i];
        if (target == IGNORED) {
            memset(dx, 0, (size_t)(n * element_bytes(out_dtype)));
            continue;
        }
        float p = vector_exp(element_load(x, target, dtype) - lse),
              q = vector_exp(element_load(t, target, dtype) - teacher_lse);
        BY_DTYPES(out_dtype, dtype, mixed_gradient, dx, x, t, lse, teacher_lse, coefficient, job->weight[i], n);
        element_store(dx, target, coefficient * (p - 1 + job->weight[i] * (1 - q)), out_dtype);
    }
}

void CPU(soft_cross_entropy_backward)(struct device *device, struct matrix dlogits, struct matrix logits,
                                      const float *lse, struct matrix teacher, const float *teacher_lse,
                                      const i32 *target, const float *coefficient, const float *weight)
{
    (void)device;
    struct soft_cross_entropy_job job = {.logits = logits, .teacher = teacher, .dlogits = dlogits, .weight = weight};
    job.lse = lse;
    job.teacher_lse = teacher_lse;
    job.target = target;
    job.coefficient = coefficient;
    job.rows_tile = tile_rows(logits.columns);
    workers_run(ceil_div(logits.rows, job.rows_tile), run_backward, &job);
}
