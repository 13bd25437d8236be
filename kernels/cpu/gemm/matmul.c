/* The op matmul on FMA gemms. Tiles of the output run on all workers. A b that fits in cache is
 * packed once for all tiles; weight gradients with few tiles are cut along the depth (split K) and
 * the segments are added in order. */
#include "kernels/cpu/cpu.h"

struct matmul_job {
    struct matrix out, a, b;
    bool transpose_a, transpose_b, add;
    i64 k, row_tiles, column_tiles;
    struct tiling tiling;
    /* Sums of each segment [segments, out.rows, out.columns]; NULL if there is one. */
    float *segments;
    struct gemm_panels panels; /* shared panels of b; count 0: not shared */
};

static void run_tile(void *context, i64 tile, int worker)
{
    struct matmul_job *job = context;
    if (tile < job->panels.count) {
        CPU(gemm_pack)(&job->panels, tile);
        return;
    }
    i64 index = tile - job->panels.count;
    const struct tiling *t = &job->tiling;
    i64 tiles = job->row_tiles * job->column_tiles, segment = index / tiles;
    i64 row = index % tiles / job->column_tiles * t->rows, column = index % job->column_tiles * t->columns;
    i64 begin = segment * t->depth;
    struct matrix out = job->out;
    if (job->segments)
        out = matrix_of(job->segments + segment * out.rows * out.columns, DTYPE_F32, out.rows, out.columns);
    struct gemm gemm = {.m = min_i64(t->rows, out.rows - row),
                        .n = min_i64(t->columns, out.columns - column),
                        .k = min_i64(t->depth, job->k - begin),
                        .lda = job->a.stride,
                        .ldb = job->b.stride,
                        .ldc = out.stride,
                        .transpose_a = job->transpose_a,
                        .transpose_b = job->transpose_b,
                        .add = job->add && !job->segments,
                        .dtype = job->a.dtype,
                        .out_dtype = out.dtype,
                        .panels = job->panels.count > 0 ? &job->panels : NULL,
                        .panels_column = column};
    CPU(gemm)
    (matrix_at(out, row, column), job->transpose_a ? matrix_at(job->a, begin, row) : matrix_at(job->a, row, begin),
     job->transpose_b ? matrix_at(job->b, column, begin) : matrix_at(job->b, begin, column), &gemm, worker);
}

static void run_segments(void *context, i64 index, int worker)
{
    const struct matmul_job *job = context;
    i64 rows = tile_rows(job->out.columns), row = index * rows, elements = job->out.rows * job->out.columns;
    struct matrix part = matrix_rows(job->out, row, min_i64(rows, job->out.rows - row));
    (void)worker;
    for (i64 segment = 0; segment < job->tiling.segments; segment++)
        CPU(store_sums)(part, job->segments + segment * elements + row * part.columns, job->add || segment > 0);
}

void CPU(matmul)(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                 bool transpose_b, bool add)
{
    (void)device;
    i64 m = transpose_a ? a.columns : a.rows, k = transpose_a ? a.rows : a.columns;
    i64 n = transpose_b ? b.rows : b.columns;
    if (m == 0 || n == 0)
        return;
    struct matmul_job job = {out, a, b, transpose_a, transpose_b, add, k};
    bool sums_data = sums_of_data(out, transpose_a, transpose_b);
    job.tiling = tiling_of(m, n, k, sums_data);
    job.row_tiles = ceil_div(m, job.tiling.rows);
    job.column_tiles = ceil_div(n, job.tiling.columns);
    if (job.tiling.segments > 1)
        job.segments = CPU(scratch)(0, GEMM_SHARED, job.tiling.segments * m * n * 4);
    if (tiles_share(m, n, k, sums_data))
        CPU(gemm_share)(&job.panels, b, transpose_b);
    workers_run(job.panels.count + job.row_tiles * job.column_tiles * job.tiling.segments, run_tile, &job);
    if (job.segments)
        workers_run(ceil_div(m, tile_rows(n)), run_segments, &job);
}
