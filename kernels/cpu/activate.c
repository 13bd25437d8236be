/* SiLU and GELU, and their backward. */
#include "kernels/activate.h"
#include "kernels/cpu/rows.h"

struct activate_job {
    struct matrix out, dy, x;
    enum activation kind;
    bool add;
    struct matrix_cut cut;
};

/* erf as a ratio of polynomials on [-4, 4], beyond which it is 1 in f32 (Eigen's generic_fast_erf).
 * The error is below 3e-7. */
static inline float vector_erf(float x)
{
    float t = x < -4.0f ? -4.0f : x > 4.0f ? 4.0f : x, s = t * t;
    float p = -2.72614225801306e-10f;
    p = p * s + 2.77068142495902e-08f;
    p = p * s - 2.10102402082508e-06f;
    p = p * s - 5.69250639462346e-05f;
    p = p * s - 7.34990630326855e-04f;
    p = p * s - 2.95459980854025e-03f;
    p = p * s - 1.60960333262415e-02f;
    float q = -1.45660718464996e-05f;
    q = q * s - 2.13374055278905e-04f;
    q = q * s - 1.68282697438203e-03f;
    q = q * s - 7.37332916720468e-03f;
    q = q * s - 1.42647390514189e-02f;
    return t * p / q;
}

INLINED float activation(float x, enum activation kind)
{
    if (kind == ACTIVATION_SILU)
        return silu_of(x, vector_sigmoid(x));
    return gelu_of(x, vector_erf(x * GELU_ARGUMENT));
}

INLINED float derivative(float x, enum activation kind)
{
    if (kind == ACTIVATION_SILU)
        return silu_slope(x, vector_sigmoid(x));
    return gelu_slope(x, vector_erf(x * GELU_ARGUMENT), vector_exp(-0.5f * x * x));
}

INLINED void forward_row(void *y, const void *x, i64 n, enum activation kind, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        element_store(y, i, activation(element_load(x, i, dtype), kind), dtype);
}

static void run_forward(void *context, i64 index, int worker)
{
    const struct activate_job *job = context;
    struct matrix_tile tile = cut_tile(&job->cut, index);
    (void)worker;
    for (i64 i = tile.row; i < tile.end; i++) {
        void *y = matrix_at(job->out, i, tile.column);
        const void *x = matrix_at(job->x, i, tile.column);
        if (job->kind == ACTIVATION_SILU)
            BY_DTYPE(job->x.dtype, forward_row, y, x, tile.columns, ACTIVATION_SILU);
        else
            BY_DTYPE(job->x.dtype, forward_row, y, x, tile.columns, ACTIVATION_GELU);
    }
}

void CPU(activate)(struct device *device, struct matrix y, struct matrix x, enum activation kind)
{
    (void)device;
    struct activate_job job = {.out = y, .x = x, .kind = kind};
    if (matrix_is_dense(y) && matrix_is_dense(x)) {
        job.out = matrix_flat(y);
        job.x = matrix_flat(x);
    }
    job.cut = cut_of(job.x.rows, job.x.columns);
    workers_run(cut_tiles(&job.cut), run_forward, &job);
}

INLINED void backward_row(void *dx, const void *dy, const void *x, i64 n, enum activation kind, bool add,
                          enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float d = element_load(dy, i, dtype) * derivative(element_load(x, i, dtype), kind);
        element_store(dx, i, add ? element_load(dx, i, dtype) + d : d, dtype);
    }
}

static void run_backward(void *context, i64 index, int worker)
{
    const struct activate_job *job = context;
    struct matrix_tile tile = cut_tile(&job->cut, index);
    (void)worker;
    for (i64 i = tile.row; i < tile.end; i++) {
        void *dx = matrix_at(job->out, i, tile.column);
        const void *dy = matrix_at(job->dy, i, tile.column), *x = matrix_at(job->x, i, tile.column);
        if (job->kind == ACTIVATION_SILU)
            BY_FLAG_DTYPE(job->add, job->x.dtype, backward_row, dx, dy, x, tile.columns, ACTIVATION_SILU);
        else
            BY_FLAG_DTYPE(job->add, job->x.dtype, backward_row, dx, dy, x, tile.columns, ACTIVATION_GELU);
    }
}

void CPU(activate_backward)(struct device *device, struct matrix dx, struct matrix dy, struct matrix x,
                            enum activation kind, bool add)
{
    (void)device;
    struct activate_job job = {dx, dy, x, kind, add, cut_of(x.rows, x.columns)};
    workers_run(cut_tiles(&job.cut), run_backward, &job);
}
