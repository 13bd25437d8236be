#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tiles.h"

struct job {
    struct matrix out, a, b;
    bool transpose_a, transpose_b, add;
    i64 k, rows_tile, columns_tile, column_tiles;
};
struct tile {
    i64 row, rows, column, columns;
};

static struct gemm gemm_of(const struct job *job, const struct tile *tile)
{
    return (struct gemm){.m = tile->rows,
                         .n = tile->columns,
                         .k = job->k,
                         .lda = job->a.stride,
                         .ldb = job->b.stride,
                         .ldc = job->out.stride,
                         .transpose_a = job->transpose_a,
                         .transpose_b = job->transpose_b,
                         .add = job->add,
                         .dtype = job->a.dtype,
                         .out_dtype = job->out.dtype};
}

static const void *b_of(const struct job *job, const struct tile *tile)
{
    return job->transpose_b ? matrix_at(job->b, tile->column, 0) : matrix_at(job->b, 0, tile->column);
}

/* Fewer rows than a tile has: padded with zeros, in scratch. */
static void run_last_rows(const struct job *job, const struct tile *tile, int worker)
{
    i64 rows = padded_length(tile->rows), row_bytes = tile->columns * element_bytes(job->out.dtype);
    void *a = CPU(scratch)(worker, 0, rows * job->k * element_bytes(job->a.dtype));
    char *out = CPU(scratch)(worker, 1, rows * row_bytes);
    struct gemm gemm = gemm_of(job, tile);
    gemm.m = rows;
    gemm.lda = job->k;
    gemm.ldc = tile->columns;
    CPU(pack)(a, job->a, tile->row, rows, 0, job->k);
    if (job->add)
        CPU(pack)(out, job->out, tile->row, rows, tile->column, tile->columns);
    CPU(gemm)(out, a, b_of(job, tile), &gemm);
    for (i64 i = 0; i < tile->rows; i++)
        memcpy(matrix_at(job->out, tile->row + i, tile->column), out + i * row_bytes, (size_t)row_bytes);
}

/* Sums over rows of data: whole runs of DEPTH_RUN in one product, the rest padded and added. */
static void run_depth(const struct job *job, const struct tile *tile, int worker)
{
    i64 whole = job->k / DEPTH_RUN * DEPTH_RUN, rest = padded_length(job->k - whole),
        bytes = element_bytes(job->a.dtype);
    void *out = matrix_at(job->out, tile->row, tile->column);
    struct gemm gemm = gemm_of(job, tile);
    if (whole) {
        gemm.k = whole;
        CPU(gemm)(out, matrix_at(job->a, 0, tile->row), matrix_at(job->b, 0, tile->column), &gemm);
        gemm.add = true;
    }
    if (whole == job->k)
        return;
    void *a = CPU(scratch)(worker, 0, rest * tile->rows * bytes);
    void *b = CPU(scratch)(worker, 1, rest * tile->columns * bytes);
    CPU(pack)(a, job->a, whole, rest, tile->row, tile->rows);
    CPU(pack)(b, job->b, whole, rest, tile->column, tile->columns);
    gemm.k = rest;
    gemm.lda = tile->rows;
    gemm.ldb = tile->columns;
    CPU(gemm)(out, a, b, &gemm);
}

static void run_tile(void *context, i64 index, int worker)
{
    const struct job *job = context;
    struct tile tile = {.row = index / job->column_tiles * job->rows_tile,
                        .column = index % job->column_tiles * job->columns_tile};
    tile.rows = min_i64(job->rows_tile, job->out.rows - tile.row);
    tile.columns = min_i64(job->columns_tile, job->out.columns - tile.column);
    if (job->transpose_a && !job->transpose_b && job->out.dtype == DTYPE_F32) {
        run_depth(job, &tile, worker);
    } else if (!job->transpose_a && tile.rows < job->rows_tile && job->out.rows > ROWS_LEAST) {
        run_last_rows(job, &tile, worker);
    } else {
        struct gemm gemm = gemm_of(job, &tile);
        const void *a = job->transpose_a ? matrix_at(job->a, 0, tile.row) : matrix_at(job->a, tile.row, 0);
        CPU(gemm)(matrix_at(job->out, tile.row, tile.column), a, b_of(job, &tile), &gemm);
    }
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
