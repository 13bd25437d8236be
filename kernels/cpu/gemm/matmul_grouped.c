/* Grouped gemms on FMA: rows sorted by expert times stacked weights, the same followed by SwiGLU,
 * and the gradient of stacked weights. A tile is a piece of one group's rows by some columns.
 *
 *     rows of a, by expert      w [E, N, K]         out
 *     | expert 0 | piece |   x  | slice 0 |    ->   | columns 0 - 255 | .. |   one tile: gemm.c
 *     | expert 1 | piece |   x  | slice 1 |    ->   | columns 0 - 255 | .. |   on one worker
 *
 * Pieces start in order of their length, longest first, because all workers wait for the last.
 * With SwiGLU a tile computes the same columns of gate and up, and their product while they are
 * in cache. A weight gradient's tile is a part of one slice, summed over the rows of its group.
 *
 *     M  rows of a group, pieces of <= ROWS_MOST (504)      K  depth of a; Mr, Nr, Kc as in gemm.c
 *     N  columns of out, tiles of <= COLUMNS_MOST (256) */
#include "kernels/cpu/gemm/skinny_groups.h"

#include <stdlib.h>

enum { SLOT_GATE_UP, SLOT_PIECES = 7 };

struct matmul_grouped_job {
    struct matrix out, gate_up, a, w;
    /* Rows and columns of a tile; tiles per slice. */
    i64 experts, rows, columns, row_tiles, column_tiles;
    bool transpose;
    /* Row gather of a; for weight gradients, of w. NULL: rows in place. */
    const i32 *from;
    const struct groups *groups;
    struct row_piece *pieces;
    u8 *written;
    /* Non-temporal stores of gradients that are not accumulated. */
    bool streams;
};

static int longer_first(const void *a, const void *b)
{
    const struct row_piece *x = a, *y = b;
    return x->rows != y->rows ? (x->rows < y->rows) - (x->rows > y->rows)
                              : (x->begin > y->begin) - (x->begin < y->begin);
}

/* Cuts groups into pieces and sorts them longest first. Groups differ in length, and all workers
 * wait for the piece that ends last. */
static i64 cut_pieces(struct matmul_grouped_job *job, i64 most)
{
    job->pieces = CPU(scratch)(0, SLOT_PIECES, pieces_bound(job->groups, most) * (i64)sizeof *job->pieces);
    i64 count = cut_groups(job->pieces, job->groups, most);
    qsort(job->pieces, (size_t)count, sizeof *job->pieces, longer_first);
    return count;
}

/* Multiplies a piece of rows. In decoding a group may be one row; its padding rows are set to
 * zero. */
static void run_rows(void *context, i64 tile, int worker)
{
    const struct matmul_grouped_job *job = context;
    const struct row_piece *piece = &job->pieces[tile / job->column_tiles];
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
    check_end(groups, a.rows, "matmul_grouped");
    struct matmul_grouped_job job = {
        .out = out, .a = a, .w = w, .experts = experts, .transpose = transpose, .groups = groups};
    job.columns = even_columns(out.columns);
    job.column_tiles = ceil_div(out.columns, job.columns);
    workers_run(cut_pieces(&job, ROWS_MOST) * job.column_tiles, run_rows, &job);
}

/* ---- SwiGLU after the gemm ---- */

/* Some rows and columns of both halves: parts of gate_up, or scratch if it is not kept. */
struct gate_up_halves {
    struct matrix gate, up;
};
static struct gate_up_halves halves_of(const struct matmul_grouped_job *job, i64 begin, i64 rows, i64 column,
                                       i64 columns, int worker)
{
    struct matrix m = job->gate_up;
    if (m.data) {
        m = matrix_rows(m, begin, rows);
        return (struct gate_up_halves){matrix_columns(m, column, columns),
                                       matrix_columns(m, job->out.columns + column, columns)};
    }
    i64 bytes = rows * 2 * columns * element_bytes(job->a.dtype);
    m = matrix_of(CPU(scratch)(worker, SLOT_GATE_UP, bytes), job->a.dtype, rows, 2 * columns);
    return (struct gate_up_halves){matrix_columns(m, 0, columns), matrix_columns(m, columns, columns)};
}

static void multiply_half(const struct matmul_grouped_job *job, struct matrix half, i64 begin, i64 w_row, int worker)
{
    struct gemm gemm = {.m = half.rows,
                        .n = half.columns,
                        .k = job->a.columns,
                        .lda = job->a.stride,
                        .ldb = job->w.stride,
                        .ldc = half.stride,
                        .transpose_b = true,
                        .dtype = job->a.dtype,
                        .out_dtype = half.dtype,
                        .a_rows = job->from ? job->from + begin : NULL};
    CPU(gemm)
    (half.data, matrix_at(job->a, job->from ? 0 : begin, 0), matrix_at(job->w, w_row, 0), &gemm, worker);
}

static void run_gated(void *context, i64 tile, int worker)
{
    const struct matmul_grouped_job *job = context;
    const struct row_piece *piece = &job->pieces[tile / job->column_tiles];
    i64 column = tile % job->column_tiles * job->columns, width = job->out.columns;
    i64 first = piece->member * 2 * width + column, rows = rows_there(job->a, job->from, piece);
    if (column == 0)
        clear_behind(job->out, piece, rows);
    if (column == 0 && job->gate_up.data)
        clear_behind(job->gate_up, piece, rows);
    if (rows == 0)
        return;
    struct gate_up_halves h = halves_of(job, piece->begin, rows, column, min_i64(job->columns, width - column), worker);
    struct matrix y = matrix_columns(matrix_rows(job->out, piece->begin, rows), column, h.gate.columns);
    multiply_half(job, h.gate, piece->begin, first, worker);
    multiply_half(job, h.up, piece->begin, first + width, worker);
    CPU(swiglu_rows)(y, h.gate, h.up);
}

void CPU(matmul_grouped_swiglu)(struct device *device, struct matrix y, struct matrix gate_up, struct matrix x,
                                const i32 *rows, struct matrix w, i64 experts, const struct groups *groups)
{
    (void)device;
    check_end(groups, y.rows, "matmul_grouped_swiglu");
    struct matmul_grouped_job job = {
        .out = y, .gate_up = gate_up, .a = x, .w = w, .experts = experts, .groups = groups, .from = rows};
    job.columns = even_columns(y.columns);
    job.column_tiles = ceil_div(y.columns, job.columns);
    workers_run(cut_pieces(&job, ROWS_MOST) * job.column_tiles, run_gated, &job);
}

/* ---- Weight gradients ---- */

/* A tile is a part of one expert's slice, summed over the rows of its group. */
static void run_weights(void *context, i64 tile, int worker)
{
    const struct matmul_grouped_job *job = context;
    i64 slice_rows = job->out.rows / job->experts, tiles = job->row_tiles * job->column_tiles;
    const struct row_piece *group = &job->pieces[tile / tiles];
    i64 row = tile % tiles / job->column_tiles * job->rows, column = tile % job->column_tiles * job->columns;
    i64 begin = group->begin, expert = group->member;
    struct gemm gemm = {.m = min_i64(job->rows, slice_rows - row),
                        .n = min_i64(job->columns, job->out.columns - column),
                        .k = group->rows,
                        .lda = job->a.stride,
                        .ldb = job->w.stride,
                        .ldc = job->out.stride,
                        .transpose_a = true,
                        .add = job->written[expert],
                        .streams = job->streams && !job->written[expert],
                        .dtype = job->a.dtype,
                        .out_dtype = DTYPE_F32,
                        .b_rows = job->from ? job->from + begin : NULL};
    CPU(gemm)
    (matrix_at(job->out, expert * slice_rows + row, column), matrix_at(job->a, begin, row),
     matrix_at(job->w, job->from ? 0 : begin, column), &gemm, worker);
}

void CPU(matmul_grouped_weights)(struct device *device, struct matrix dw, u8 *written, i64 experts, struct matrix dy,
                                 struct matrix x, const i32 *rows, const struct groups *groups)
{
    (void)device;
    i64 slice_rows = dw.rows / experts;
    struct matmul_grouped_job job = {.out = dw, .a = dy, .w = x, .experts = experts, .from = rows, .groups = groups};
    job.written = written;
    job.streams = dw.rows * dw.columns * 4 >= STREAMED_LEAST && (uintptr_t)dw.data % 64 == 0 && dw.stride % 16 == 0;
    job.rows = even_rows(slice_rows);
    job.columns = even_columns(dw.columns);
    job.row_tiles = ceil_div(slice_rows, job.rows);
    job.column_tiles = ceil_div(dw.columns, job.columns);
    i64 whole = max_i64(groups->offsets[groups->count], 1);
    workers_run(cut_pieces(&job, whole) * job.row_tiles * job.column_tiles, run_weights, &job);
    for (i64 g = 0; g < groups->count; g++)
        if (groups->offsets[g + 1] > groups->offsets[g])
            written[member_of(groups, g)] = 1;
}
