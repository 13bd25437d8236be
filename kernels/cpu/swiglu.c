/* SwiGLU (Shazeer 2020): y = silu(gate) . up, and its backward. */
#include "kernels/cpu/rows.h"
#include "kernels/swiglu.h"

struct swiglu_job {
    struct matrix out, dy, gate_up;
    float *dscales;
    i64 rows_tile;
};

INLINED void forward_row(void *y, const void *gate, const void *up, i64 n, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float g = element_load(gate, i, dtype);
        element_store(y, i, swiglu_of(g, element_load(up, i, dtype), vector_sigmoid(g)), dtype);
    }
}

void CPU(swiglu_rows)(struct matrix y, struct matrix gate, struct matrix up)
{
    for (i64 i = 0; i < y.rows; i++)
        BY_DTYPE(y.dtype, forward_row, matrix_at(y, i, 0), matrix_at(gate, i, 0), matrix_at(up, i, 0), y.columns);
}

static void run_forward(void *context, i64 tile, int worker)
{
    const struct swiglu_job *job = context;
    (void)worker;
    i64 n = job->out.columns, begin = tile * job->rows_tile, rows = min_i64(job->rows_tile, job->out.rows - begin);
    struct matrix both = matrix_rows(job->gate_up, begin, rows);
    CPU(swiglu_rows)(matrix_rows(job->out, begin, rows), matrix_columns(both, 0, n), matrix_columns(both, n, n));
}

void CPU(swiglu)(struct device *device, struct matrix y, struct matrix gate_up)
{
    (void)device;
    struct swiglu_job job = {.out = y, .gate_up = gate_up, .rows_tile = tile_rows(y.columns)};
    workers_run(ceil_div(y.rows, job.rows_tile), run_forward, &job);
}

/* Returns dy . y. */
INLINED float backward_row(void *dgate, void *dup, const void *dy, const void *gate, const void *up, i64 n,
                           enum dtype dtype)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++) {
        float g = element_load(gate, i, dtype), u = element_load(up, i, dtype), d = element_load(dy, i, dtype);
        float s = vector_sigmoid(g), dup_i = swiglu_dup(d, g, s);
        element_store(dgate, i, swiglu_dgate(d, g, u, s), dtype);
        element_store(dup, i, dup_i, dtype);
        sum += dup_i * u;
    }
    return sum;
}

static void run_backward(void *context, i64 tile, int worker)
{
    const struct swiglu_job *job = context;
    (void)worker;
    i64 n = job->dy.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->dy.rows);
    for (i64 i = begin; i < end; i++) {
        float sum = BY_DTYPE(job->dy.dtype, backward_row, matrix_at(job->out, i, 0), matrix_at(job->out, i, n),
                             matrix_at(job->dy, i, 0), matrix_at(job->gate_up, i, 0), matrix_at(job->gate_up, i, n), n);
        if (job->dscales)
            job->dscales[i] = sum;
    }
}

void CPU(swiglu_backward)(struct device *device, struct matrix dgate_up, float *dscales, struct matrix dy,
                          struct matrix gate_up)
{
    (void)device;
    struct swiglu_job job = {dgate_up, dy, gate_up, dscales, tile_rows(dy.columns)};
    workers_run(ceil_div(dy.rows, job.rows_tile), run_backward, &job);
}
