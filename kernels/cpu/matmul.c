#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tiles.h"

enum { SLOT_A, SLOT_B, SLOT_SUMS, SLOT_SEGMENTS = 7 };

struct job {
    struct matrix out, a, b;
    bool transpose_a, transpose_b, add, sums_data;
    i64 k, row_tiles, column_tiles;
    struct tiling tiling;
    float *segments; /* [segments, out.rows, out.columns]: what each sums; NULL where there is one */
};
struct tile {
    i64 row, rows, column, columns, rows_padded;
};

/* Adds a [rows, depth] times b [depth, columns], columns and rows of the tile, to what `gemm` describes. Rows and,
 * where it is a length of data, depth are padded with zeros. */
static void run_depth(const struct job *job, const struct tile *tile, i64 begin, i64 depth, struct gemm gemm, void *out,
                      int worker)
{
    i64 padded = job->sums_data ? depth == DEPTH_RUN ? depth : padded_length(depth) : depth;
    const void *a = job->transpose_a ? matrix_at(job->a, begin, tile->row) : matrix_at(job->a, tile->row, begin);
    const void *b = job->transpose_b ? matrix_at(job->b, tile->column, begin) : matrix_at(job->b, begin, tile->column);
    i64 bytes = element_bytes(job->a.dtype);
    gemm.k = padded;
    if (job->sums_data && padded != depth) {
        void *a_rows = CPU(scratch)(worker, SLOT_A, padded * tile->rows * bytes);
        void *b_rows = CPU(scratch)(worker, SLOT_B, padded * tile->columns * bytes);
        CPU(pack)(a_rows, job->a, begin, padded, tile->row, tile->rows);
        CPU(pack)(b_rows, job->b, begin, padded, tile->column, tile->columns);
        a = a_rows;
        b = b_rows;
        gemm.lda = tile->rows;
        gemm.ldb = tile->columns;
    } else if (tile->rows_padded != tile->rows) {
        void *a_rows = CPU(scratch)(worker, SLOT_A, tile->rows_padded * depth * bytes);
        CPU(pack)(a_rows, job->a, tile->row, tile->rows_padded, begin, depth);
        a = a_rows;
        gemm.lda = depth;
    }
    CPU(gemm)(out, a, b, &gemm);
}

static struct tile tile_of(const struct job *job, i64 index)
{
    struct tile tile = {.row = index / job->column_tiles * job->tiling.rows,
                        .column = index % job->column_tiles * job->tiling.columns};
    tile.rows = tile.rows_padded = min_i64(job->tiling.rows, job->out.rows - tile.row);
    tile.columns = min_i64(job->tiling.columns, job->out.columns - tile.column);
    if (!job->transpose_a && tile.rows < job->tiling.rows && job->out.rows > ROWS_LEAST)
        tile.rows_padded = padded_length(tile.rows);
    return tile;
}

static struct matrix part_of(const struct job *job, const struct tile *tile)
{
    return matrix_columns(matrix_rows(job->out, tile->row, tile->rows), tile->column, tile->columns);
}

static float *sums_of(const struct job *job, const struct tile *tile, i64 segment)
{
    return job->segments + (segment * job->out.rows + tile->row) * job->out.columns + tile->rows * tile->column;
}

static void run_tile(void *context, i64 index, int worker)
{
    const struct job *job = context;
    i64 tiles = job->row_tiles * job->column_tiles, segment = index / tiles;
    struct tile tile = tile_of(job, index % tiles);
    i64 begin = segment * job->tiling.depth, end = min_i64(begin + job->tiling.depth, job->k);
    bool one_run = depth_of_run(end - begin, job->sums_data) == end - begin;
    bool scratch =
        job->segments || tile.rows_padded != tile.rows || sums_in_scratch(job->a.dtype, job->out.dtype, one_run);
    struct gemm gemm = {.m = tile.rows_padded,
                        .n = tile.columns,
                        .lda = job->a.stride,
                        .ldb = job->b.stride,
                        .ldc = scratch ? tile.columns : job->out.stride,
                        .transpose_a = job->transpose_a,
                        .transpose_b = job->transpose_b,
                        .add = job->add && !scratch,
                        .dtype = job->a.dtype,
                        .out_dtype = scratch ? DTYPE_F32 : job->out.dtype};
    void *out = job->segments ? sums_of(job, &tile, segment)
                : scratch     ? CPU(scratch)(worker, SLOT_SUMS, tile.rows_padded * tile.columns * 4)
                              : matrix_at(job->out, tile.row, tile.column);
    do {
        i64 depth = depth_of_run(end - begin, job->sums_data);
        run_depth(job, &tile, begin, depth, gemm, out, worker);
        gemm.add = true;
        begin += depth;
    } while (begin < end);
    if (scratch && !job->segments)
        CPU(store_sums)(part_of(job, &tile), out, job->add);
}

static void run_segments(void *context, i64 index, int worker)
{
    const struct job *job = context;
    struct tile tile = tile_of(job, index);
    (void)worker;
    for (i64 segment = 0; segment < job->tiling.segments; segment++)
        CPU(store_sums)(part_of(job, &tile), sums_of(job, &tile, segment), job->add || segment > 0);
}

static void run_few_rows(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    i64 column = tile * FEW_COLUMNS, columns = min_i64(FEW_COLUMNS, job->out.columns - column);
    CPU(few_rows)
    (matrix_columns(job->out, column, columns), job->a, matrix_rows(job->b, column, columns), job->add, worker);
}

void CPU(matmul)(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                 bool transpose_b, bool add)
{
    (void)device;
    i64 m = transpose_a ? a.columns : a.rows, k = transpose_a ? a.rows : a.columns;
    i64 n = transpose_b ? b.rows : b.columns;
    require(out.rows == m && out.columns == n && k == (transpose_b ? b.columns : b.rows) && a.dtype == b.dtype,
            "matmul: [%lld,%lld] from [%lld,%lld]%s and [%lld,%lld]%s", (long long)out.rows, (long long)out.columns,
            (long long)a.rows, (long long)a.columns, transpose_a ? "^T" : "", (long long)b.rows, (long long)b.columns,
            transpose_b ? "^T" : "");
    if (m == 0 || n == 0)
        return;
    struct job job = {out, a, b, transpose_a, transpose_b, add, sums_of_data(out, transpose_a, transpose_b), k};
    if (has_few_rows(m, transpose_a, transpose_b)) {
        workers_run(ceil_div(n, FEW_COLUMNS), run_few_rows, &job);
        return;
    }
    job.tiling = tiling_of(m, n, k, job.sums_data);
    job.row_tiles = ceil_div(m, job.tiling.rows);
    job.column_tiles = ceil_div(n, job.tiling.columns);
    if (job.tiling.segments > 1)
        job.segments = CPU(scratch)(0, SLOT_SEGMENTS, job.tiling.segments * m * n * 4);
    workers_run(job.row_tiles * job.column_tiles * job.tiling.segments, run_tile, &job);
    if (job.segments)
        workers_run(job.row_tiles * job.column_tiles, run_segments, &job);
}
