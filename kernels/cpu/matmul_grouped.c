#include "kernels/cpu/few_groups.h"
#include "kernels/cpu/tiles.h"

enum { SLOT_PIECES = 7 };

struct job {
    struct matrix out, a, w;
    i64 experts, rows, columns, row_tiles, column_tiles; /* of a tile; how many of them in a slice */
    bool transpose;
    const struct groups *groups;
    struct piece *pieces;
    u8 *written;
};

/* What decoding leaves of a group may be one row; what that was rounded up by comes out zero. */
static void run_rows(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    const struct piece *piece = &job->pieces[tile / job->column_tiles];
    i64 column = tile % job->column_tiles * job->columns, first = piece->member * (job->w.rows / job->experts);
    struct gemm gemm = {.m = rows_of_piece(job->out, job->a, piece, column == 0),
                        .n = min_i64(job->columns, job->out.columns - column),
                        .k = job->a.columns,
                        .lda = job->a.stride,
                        .ldb = job->w.stride,
                        .ldc = job->out.stride,
                        .transpose_b = job->transpose,
                        .dtype = job->a.dtype,
                        .out_dtype = job->out.dtype};
    if (gemm.m > 0)
        CPU(gemm)
    (matrix_at(job->out, piece->begin, column), matrix_at(job->a, piece->begin, 0),
     job->transpose ? matrix_at(job->w, first + column, 0) : matrix_at(job->w, first, column), &gemm, worker);
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
    struct job job = {.out = out, .a = a, .w = w, .experts = experts, .transpose = transpose, .groups = groups};
    job.pieces = CPU(scratch)(0, SLOT_PIECES, pieces_bound(groups, ROWS_MOST) * (i64)sizeof *job.pieces);
    job.columns = even_columns(out.columns);
    job.column_tiles = ceil_div(out.columns, job.columns);
    workers_run(cut_few_rows(job.pieces, groups, ROWS_MOST) * job.column_tiles, run_rows, &job);
}

/* A tile is a part of one expert's slice, summed over the rows of its group. */
static void run_weights(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    i64 slice_rows = job->out.rows / job->experts, tiles = job->row_tiles * job->column_tiles;
    i64 group = tile / tiles, row = tile % tiles / job->column_tiles * job->rows;
    i64 column = tile % job->column_tiles * job->columns, expert = member_of(job->groups, group);
    i64 begin = job->groups->offsets[group], end = job->groups->offsets[group + 1];
    struct gemm gemm = {.m = min_i64(job->rows, slice_rows - row),
                        .n = min_i64(job->columns, job->out.columns - column),
                        .k = end - begin,
                        .lda = job->a.stride,
                        .ldb = job->w.stride,
                        .ldc = job->out.stride,
                        .transpose_a = true,
                        .add = job->written[expert],
                        .dtype = job->a.dtype,
                        .out_dtype = DTYPE_F32};
    if (begin < end)
        CPU(gemm)
    (matrix_at(job->out, expert * slice_rows + row, column), matrix_at(job->a, begin, row),
     matrix_at(job->w, begin, column), &gemm, worker);
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
    job.rows = even_rows(slice_rows);
    job.columns = even_columns(dw.columns);
    job.row_tiles = ceil_div(slice_rows, job.rows);
    job.column_tiles = ceil_div(dw.columns, job.columns);
    workers_run(groups->count * job.row_tiles * job.column_tiles, run_weights, &job);
    for (i64 g = 0; g < groups->count; g++)
        if (groups->offsets[g + 1] > groups->offsets[g])
            written[member_of(groups, g)] = 1;
}
