#include "kernels/cpu/cpu.h"

/* Tiles of the output. A tile is as large as a core likes (rows amortise oneDNN's packing of b) and small enough that
 * there are at least TILES_WANTED; its size follows from the shape alone. */
enum { ROWS_MOST = 256, ROWS_LEAST = 32, COLUMNS_MOST = 512, TILES_WANTED = 8 };

static i64 rows_of_tile(i64 rows, i64 column_tiles)
{
    i64 tile = ROWS_MOST;
    while (tile > ROWS_LEAST && ceil_div(rows, tile) * column_tiles < TILES_WANTED)
        tile /= 2;
    return tile;
}

struct job {
    struct matrix out, a, b;
    bool transpose_a, transpose_b, add;
    i64 k, rows_tile, columns_tile, column_tiles;
};

static void run_tile(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    (void)worker;
    i64 row = tile / job->column_tiles * job->rows_tile, column = tile % job->column_tiles * job->columns_tile;
    struct gemm gemm = {.m = min_i64(job->rows_tile, job->out.rows - row),
                        .n = min_i64(job->columns_tile, job->out.columns - column),
                        .k = job->k,
                        .lda = job->a.stride,
                        .ldb = job->b.stride,
                        .ldc = job->out.stride,
                        .transpose_a = job->transpose_a,
                        .transpose_b = job->transpose_b,
                        .add = job->add,
                        .dtype = job->a.dtype,
                        .out_dtype = job->out.dtype};
    CPU(gemm)
    (matrix_at(job->out, row, column), job->transpose_a ? matrix_at(job->a, 0, row) : matrix_at(job->a, row, 0),
     job->transpose_b ? matrix_at(job->b, column, 0) : matrix_at(job->b, 0, column), &gemm);
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
    i64 columns_tile = min_i64(n, COLUMNS_MOST), column_tiles = ceil_div(n, columns_tile);
    struct job job = {out,          a,           b, transpose_a, transpose_b, add, k, rows_of_tile(m, column_tiles),
                      columns_tile, column_tiles};
    workers_run(ceil_div(m, job.rows_tile) * column_tiles, run_tile, &job);
}
