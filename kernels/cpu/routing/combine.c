/* Moves rows between positions and experts: combine sums the weighted rows of each position's
 * experts, dispatch copies rows to experts, combine_backward is the adjoint of combine. */
#include "kernels/cpu/rows.h"

struct combine_job {
    struct matrix out, y;    /* dy and dout in the backward */
    struct matrix others[2]; /* other addends; without data: none */
    const i32 *slot, *source;
    const float *weights;
    i64 k_max, rows_tile, rows;
};

INLINED void accumulate(float *sum, const void *y, float weight, i64 n, bool first, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float value = weight * element_load(y, i, dtype);
        sum[i] = first ? value : sum[i] + value;
    }
}

static void run_combine(void *context, i64 tile, int worker)
{
    const struct combine_job *job = context;
    i64 n = job->out.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->out.rows);
    float *sum = CPU(scratch)(worker, 0, n * 4);
    for (i64 i = begin; i < end; i++) {
        bool first = true;
        for (int k = 0; k < 2; k++)
            if (job->others[k].data) {
                BY_FLAG_DTYPE(first, job->out.dtype, accumulate, sum, matrix_at(job->others[k], i, 0), 1, n);
                first = false;
            }
        for (i64 a = i * job->k_max; a < (i + 1) * job->k_max; a++) {
            if (job->slot[a] < 0)
                continue;
            float weight = job->weights ? job->weights[a] : 1;
            BY_FLAG_DTYPE(first, job->y.dtype, accumulate, sum, matrix_at(job->y, job->slot[a], 0), weight, n);
            first = false;
        }
        if (first)
            memset(sum, 0, (size_t)n * 4);
        row_store(job->out, i, sum);
    }
}

void CPU(combine)(struct device *device, struct matrix out, struct matrix a, struct matrix b, struct matrix y,
                  const i32 *slot, const float *weights, i64 k_max)
{
    (void)device;
    struct combine_job job = {.out = out, .y = y, .others = {a, b}, .slot = slot, .weights = weights, .k_max = k_max};
    job.rows_tile = tile_rows(out.columns);
    workers_run(ceil_div(out.rows, job.rows_tile), run_combine, &job);
}

INLINED void weigh_row(void *dy, const void *dout, float weight, i64 n, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        element_store(dy, i, weight * element_load(dout, i, dtype), dtype);
}

static void run_backward(void *context, i64 tile, int worker)
{
    const struct combine_job *job = context;
    (void)worker;
    i64 n = job->y.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->y.rows);
    for (i64 i = begin; i < end; i++)
        for (i64 a = i * job->k_max; a < (i + 1) * job->k_max; a++)
            if (job->slot[a] >= 0)
                BY_DTYPE(job->y.dtype, weigh_row, matrix_at(job->out, job->slot[a], 0), matrix_at(job->y, i, 0),
                         job->weights ? job->weights[a] : 1, n);
}

static void run_zero(void *context, i64 tile, int worker)
{
    const struct combine_job *job = context;
    (void)worker;
    i64 begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->rows);
    for (i64 r = begin; r < end; r++)
        if (job->source[r] < 0)
            memset(matrix_at(job->out, r, 0), 0, (size_t)(job->out.columns * element_bytes(job->out.dtype)));
}

void CPU(combine_backward)(struct device *device, struct matrix dy, struct matrix dout, const i32 *slot,
                           const i32 *source, const i32 *rows, const float *weights, i64 k_max)
{
    (void)device;
    require(*rows <= dy.rows, "combine_backward: %d rows into %lld", *rows, (long long)dy.rows);
    struct combine_job job = {.out = dy, .y = dout, .slot = slot, .source = source, .weights = weights};
    job.k_max = k_max;
    job.rows_tile = tile_rows(dy.columns);
    job.rows = *rows;
    workers_run(ceil_div(dout.rows, job.rows_tile), run_backward, &job);
    workers_run(ceil_div(job.rows, job.rows_tile), run_zero, &job);
}

static void run_dispatch(void *context, i64 tile, int worker)
{
    const struct combine_job *job = context;
    (void)worker;
    i64 begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->rows);
    size_t bytes = (size_t)(job->out.columns * element_bytes(job->out.dtype));
    for (i64 r = begin; r < end; r++) {
        if (job->source[r] < 0)
            memset(matrix_at(job->out, r, 0), 0, bytes);
        else
            memcpy(matrix_at(job->out, r, 0), matrix_at(job->y, job->source[r], 0), bytes);
    }
}

void CPU(dispatch)(struct device *device, struct matrix out, struct matrix x, const i32 *source, const i32 *rows)
{
    (void)device;
    require(*rows <= out.rows, "dispatch: %d rows into %lld", *rows, (long long)out.rows);
    struct combine_job job = {.out = out, .y = x, .source = source, .rows_tile = tile_rows(x.columns), .rows = *rows};
    workers_run(ceil_div(job.rows, job.rows_tile), run_dispatch, &job);
}
