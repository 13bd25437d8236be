#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tiles.h"

/* Groups begin at multiples of GROUP_ROWS, so that tiles have few different shapes. */
struct piece {
    i64 group, begin, rows;
};
struct job {
    struct matrix out, a, w;
    i64 experts, column_tiles;
    bool transpose;
    const struct groups *groups;
    struct piece *pieces;
    u8 *written;
};

static i64 member_of(const struct groups *groups, i64 group)
{
    return groups->member ? groups->member[group] : group;
}

static i64 cut_pieces(struct piece *pieces, const struct groups *groups)
{
    i64 count = 0;
    for (i64 g = 0; g < groups->count; g++)
        for (i64 begin = groups->offsets[g]; begin < groups->offsets[g + 1]; begin += GROUP_ROWS_TILE)
            pieces[count++] = (struct piece){g, begin, min_i64(GROUP_ROWS_TILE, groups->offsets[g + 1] - begin)};
    return count;
}

static bool row_is_zero(struct matrix m, i64 row)
{
    const u8 *bytes = matrix_at(m, row, 0);
    i64 count = m.columns * element_bytes(m.dtype);
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, (size_t)count - 1) == 0;
}

/* A group that decoding leaves with one row or two: what it was rounded up by stands behind them, and comes out zero.
 */
static bool run_few_rows(const struct job *job, const struct piece *piece, i64 first, i64 column, i64 columns,
                         int worker)
{
    i64 rows = piece->rows;
    while (rows > 0 && rows <= GROUP_ROWS && row_is_zero(job->a, piece->begin + rows - 1))
        rows--;
    if (rows > FEW_ROWS)
        return false;
    struct matrix out = matrix_columns(matrix_rows(job->out, piece->begin, piece->rows), column, columns);
    for (i64 i = rows; i < piece->rows; i++)
        memset(matrix_at(out, i, 0), 0, (size_t)(columns * element_bytes(out.dtype)));
    CPU(few_rows)
    (matrix_rows(out, 0, rows), matrix_rows(job->a, piece->begin, rows), matrix_rows(job->w, first + column, columns),
     false, worker);
    return true;
}

static void run_rows(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    const struct piece *piece = &job->pieces[tile / job->column_tiles];
    i64 column = tile % job->column_tiles * GROUP_COLUMNS_TILE, slice_rows = job->w.rows / job->experts;
    i64 first = member_of(job->groups, piece->group) * slice_rows;
    i64 columns = min_i64(GROUP_COLUMNS_TILE, job->out.columns - column);
    if (job->transpose && run_few_rows(job, piece, first, column, columns, worker))
        return;
    struct gemm gemm = {.m = piece->rows,
                        .n = columns,
                        .k = job->a.columns,
                        .lda = job->a.stride,
                        .ldb = job->w.stride,
                        .ldc = job->out.stride,
                        .transpose_b = job->transpose,
                        .dtype = job->a.dtype,
                        .out_dtype = job->out.dtype};
    CPU(gemm)
    (matrix_at(job->out, piece->begin, column), matrix_at(job->a, piece->begin, 0),
     job->transpose ? matrix_at(job->w, first + column, 0) : matrix_at(job->w, first, column), &gemm);
}

void CPU(matmul_grouped)(struct device *device, struct matrix out, struct matrix a, struct matrix w, i64 experts,
                         bool transpose, const struct groups *groups)
{
    (void)device;
    i64 slice_rows = w.rows / experts;
    require(a.columns == (transpose ? w.columns : slice_rows) && out.columns == (transpose ? slice_rows : w.columns) &&
                a.dtype == w.dtype && groups->offsets[groups->count] <= min_i64(a.rows, out.rows),
            "matmul_grouped: [%lld,%lld] from [%lld,%lld] and %lld slices of [%lld,%lld]", (long long)out.rows,
            (long long)out.columns, (long long)a.rows, (long long)a.columns, (long long)experts, (long long)slice_rows,
            (long long)w.columns);
    i64 bound = groups->offsets[groups->count] / GROUP_ROWS_TILE + groups->count;
    struct job job = {.out = out, .a = a, .w = w, .experts = experts, .transpose = transpose, .groups = groups};
    job.pieces = CPU(scratch)(0, 7, bound * (i64)sizeof *job.pieces);
    job.column_tiles = ceil_div(out.columns, GROUP_COLUMNS_TILE);
    workers_run(cut_pieces(job.pieces, groups) * job.column_tiles, run_rows, &job);
}

/* One tile of one slice's gradient: GROUP_OUT_ROWS_TILE x GROUP_COLUMNS_TILE, summed over the group's rows in runs. */
static void run_weights(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    i64 slice_rows = job->out.rows / job->experts, row_tiles = ceil_div(slice_rows, GROUP_OUT_ROWS_TILE);
    i64 group = tile / (row_tiles * job->column_tiles), rest = tile % (row_tiles * job->column_tiles);
    i64 row = rest / job->column_tiles * GROUP_OUT_ROWS_TILE, column = rest % job->column_tiles * GROUP_COLUMNS_TILE;
    i64 rows = min_i64(GROUP_OUT_ROWS_TILE, slice_rows - row);
    i64 columns = min_i64(GROUP_COLUMNS_TILE, job->out.columns - column);
    i64 expert = member_of(job->groups, group), end = job->groups->offsets[group + 1];
    i64 begin = job->groups->offsets[group];
    bool scratch = sums_in_scratch(job->a.dtype, DTYPE_F32, false), add = job->written[expert];
    struct matrix part = matrix_columns(matrix_rows(job->out, expert * slice_rows + row, rows), column, columns);
    float *sums = scratch ? CPU(scratch)(worker, 2, rows * columns * 4) : part.data;
    struct gemm gemm = {.m = rows,
                        .n = columns,
                        .lda = job->a.stride,
                        .ldb = job->w.stride,
                        .ldc = scratch ? columns : job->out.stride,
                        .transpose_a = true,
                        .add = add && !scratch,
                        .dtype = job->a.dtype,
                        .out_dtype = DTYPE_F32};
    if (begin == end)
        return;
    for (; begin < end; begin += gemm.k, gemm.add = true) {
        gemm.k = group_depth(end - begin);
        CPU(gemm)(sums, matrix_at(job->a, begin, row), matrix_at(job->w, begin, column), &gemm);
    }
    if (scratch)
        CPU(store_sums)(part, sums, add);
}

void CPU(matmul_grouped_weights)(struct device *device, struct matrix dw, u8 *written, i64 experts, struct matrix dy,
                                 struct matrix x, const struct groups *groups)
{
    (void)device;
    i64 slice_rows = dw.rows / experts;
    require(dy.columns == slice_rows && x.columns == dw.columns && dy.dtype == x.dtype && dw.dtype == DTYPE_F32,
            "matmul_grouped_weights: %lld slices of [%lld,%lld] from [%lld,%lld] and [%lld,%lld]", (long long)experts,
            (long long)slice_rows, (long long)dw.columns, (long long)dy.rows, (long long)dy.columns, (long long)x.rows,
            (long long)x.columns);
    struct job job = {.out = dw, .a = dy, .w = x, .experts = experts, .groups = groups, .written = written};
    job.column_tiles = ceil_div(dw.columns, GROUP_COLUMNS_TILE);
    workers_run(groups->count * ceil_div(slice_rows, GROUP_OUT_ROWS_TILE) * job.column_tiles, run_weights, &job);
    for (i64 g = 0; g < groups->count; g++)
        if (groups->offsets[g + 1] > groups->offsets[g])
            written[member_of(groups, g)] = 1;
}
