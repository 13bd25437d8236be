/* Bias: added to every row, and its gradient, the column sums. Also the partial sums that other ops
 * share (rows.h). */
#include "kernels/cpu/rows.h"

struct bias_job {
    struct matrix out, x, bias;
    float *partials;
    i64 rows_tile;
};

INLINED void add_bias(void *out, const void *x, const float *bias, i64 n, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        element_store(out, i, element_load(x, i, dtype) + bias[i], dtype);
}

static void run_bias(void *context, i64 tile, int worker)
{
    const struct bias_job *job = context;
    i64 n = job->x.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->x.rows);
    const float *bias = row_load(CPU(scratch)(worker, 0, n * 4), job->bias, 0);
    for (i64 i = begin; i < end; i++)
        BY_DTYPE(job->x.dtype, add_bias, matrix_at(job->out, i, 0), matrix_at(job->x, i, 0), bias, n);
}

void CPU(bias_add)(struct device *device, struct matrix out, struct matrix x, struct matrix bias)
{
    (void)device;
    struct bias_job job = {.out = out, .x = x, .bias = bias, .rows_tile = tile_rows(x.columns)};
    workers_run(ceil_div(x.rows, job.rows_tile), run_bias, &job);
}

INLINED void accumulate(float *sum, const void *x, i64 n, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        sum[i] += element_load(x, i, dtype);
}

static void run_sums(void *context, i64 tile, int worker)
{
    const struct bias_job *job = context;
    (void)worker;
    i64 n = job->x.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->x.rows);
    float *sum = job->partials + tile * partials_stride(n);
    memset(sum, 0, (size_t)n * 4);
    for (i64 i = begin; i < end; i++)
        BY_DTYPE(job->x.dtype, accumulate, sum, matrix_at(job->x, i, 0), n);
}

void CPU(column_sums)(struct device *device, struct matrix out, struct matrix x, bool add)
{
    (void)device;
    i64 rows_tile = partials_rows(x.rows, x.columns), tiles = ceil_div(x.rows, rows_tile);
    struct bias_job job = {.x = x, .partials = CPU(partials)(tiles, x.columns), .rows_tile = rows_tile};
    workers_run(tiles, run_sums, &job);
    CPU(partials_sum)(out.data, job.partials, tiles, x.columns, add);
}

/* Worker 0's slot 7 holds the block that all tiles of a job share. */
float *CPU(partials)(i64 count, i64 columns)
{
    return CPU(scratch)(0, 7, count * partials_stride(columns) * 4);
}

struct sum_job {
    float *out;
    const float *partials;
    i64 count, columns;
    bool add;
};
enum { SUM_COLUMNS = 2048 };

static void run_partials(void *context, i64 tile, int worker)
{
    const struct sum_job *job = context;
    (void)worker;
    i64 begin = tile * SUM_COLUMNS, n = min_i64(SUM_COLUMNS, job->columns - begin);
    float *out = job->out + begin;
    if (!job->add)
        memset(out, 0, (size_t)n * 4);
    for (i64 t = 0; t < job->count; t++)
        accumulate(out, job->partials + t * partials_stride(job->columns) + begin, n, DTYPE_F32);
}

void CPU(partials_sum)(float *out, const float *partials, i64 count, i64 columns, bool add)
{
    struct sum_job job = {out, partials, count, columns, add};
    workers_run(ceil_div(columns, SUM_COLUMNS), run_partials, &job);
}
