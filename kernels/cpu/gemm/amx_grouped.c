/* Grouped gemm on AMX: rows of groups times stacked weights. A tile is a piece of one group's rows
 * by some columns of its slice.
 *
 *     rows of a, sorted by group      slices of w            out
 *     | group 0: piece | piece |   x  slice member[0]   ->   | tile | tile |   a tile: one piece by
 *     | group 1: piece         |   x  slice member[1]   ->   | tile | tile |   <= Nc columns
 *     | group 2: (no rows)     |
 *
 * Pieces are cut from the offsets, which on this backend the host can read. Each group has a
 * slice of its own; a panel of it stays in L1 while the rows stream. Panels come with the
 * weight, or a tile packs those of its columns for each run.
 *
 *     M  rows of a group   Mc  AMX_GROUP_ROWS_MOST 512, halved down to 32 for enough tiles
 *     N  columns of out    Nc  AMX_COLUMNS_MOST 512
 *     K  columns of a      Kc  DEPTH_RUN 512;  Mr, Nr  32 (gemm.h)
 *
 * Groups with few rows each (decoding) take amx_skinny.c. Source: experts without dropped rows
 * as in MegaBlocks (Gale et al. 2022, arXiv 2211.15841), with groups in place of block-sparse
 * matrices. */
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/skinny_groups.h"

struct group_piece {
    i64 group, begin, rows;
};
struct amx_grouped_job {
    struct matrix out, a, w;
    bool transpose, far, copy;
    i64 experts, steps, column_tiles;
    struct amx_tiling tiling;
    struct amx_scratch scratch;
    const struct groups *groups;
    struct group_piece *pieces;
};

static i64 cut_pieces(struct group_piece *pieces, const struct groups *groups, i64 rows)
{
    i64 count = 0;
    for (i64 g = 0; g < groups->count; g++)
        for (i64 begin = groups->offsets[g], end = groups->offsets[g + 1]; begin < end; begin += rows)
            pieces[count++] = (struct group_piece){g, begin, min_i64(rows, end - begin)};
    return count;
}

/* Panels of a run for the columns of a tile: those of the packed image, or packed here. */
static void place_b(struct amx_tile *tile, const struct amx_grouped_job *job, i64 expert, i64 step, i64 column,
                    int worker)
{
    if (job->w.packed) {
        tile->b = amx_image_of(job->w, job->experts, expert, job->transpose) +
                  (column / AMX_BLOCK * job->steps + step) * AMX_STEP_BYTES;
        tile->panel_bytes = job->steps * AMX_STEP_BYTES;
        return;
    }
    i64 rows = job->w.rows / job->experts;
    struct matrix slice = matrix_rows(job->w, expert * rows, rows);
    char *out = cpu_v4_scratch(worker, AMX_SLOT_B, job->scratch.b);
    tile->b = out;
    tile->panel_bytes = tile->steps * AMX_STEP_BYTES;
    for (i64 i = 0; i < tile->out.columns; i += AMX_BLOCK, out += tile->panel_bytes)
        amx_pack_panel(out, slice, job->transpose, step * AMX_BLOCK, tile->steps, column + i);
}

static void run_tile(void *context, i64 index, int worker)
{
    const struct amx_grouped_job *job = context;
    const struct group_piece *piece = &job->pieces[index / job->column_tiles];
    i64 column = index % job->column_tiles * job->tiling.columns;
    i64 expert = job->groups->member ? job->groups->member[piece->group] : piece->group;
    struct matrix rows = matrix_rows(job->out, piece->begin, piece->rows);
    struct amx_tile tile = {.out = matrix_columns(rows, column, min_i64(job->tiling.columns, rows.columns - column)),
                            .far = job->far,
                            .sums = cpu_v4_scratch(worker, AMX_SLOT_SUMS, job->scratch.sums)};
    amx_begin();
    for (i64 step = 0; step < job->steps; step += tile.steps) {
        tile.steps = min_i64(job->tiling.run_steps, job->steps - step);
        tile.first = step == 0;
        tile.last = step + tile.steps == job->steps;
        place_b(&tile, job, expert, step, column, worker);
        amx_place_a(&tile, job->a, piece->begin, step * AMX_BLOCK, job->copy, worker);
        amx_run_tile(&tile, false);
    }
    amx_end();
}

void cpu_amx_matmul_grouped(struct device *device, struct matrix out, struct matrix a, struct matrix w, i64 experts,
                            bool transpose, const struct groups *groups)
{
    i64 slice = w.rows / experts, rows = groups->offsets[groups->count];
    bool fits = a.columns == (transpose ? w.columns : slice) && out.columns == (transpose ? slice : w.columns) &&
                rows <= min_i64(a.rows, out.rows);
    if (fits && amx_has_skinny_groups(out, a, w, slice, transpose, groups)) {
        amx_skinny_grouped(out, a, w, experts, groups);
        return;
    }
    if (!fits || !amx_has_groups(out, a, w)) {
        cpu_v4_matmul_grouped(device, out, a, w, experts, transpose, groups);
        return;
    }
    struct amx_grouped_job job = {.out = out,
                                  .a = a,
                                  .w = w,
                                  .transpose = transpose,
                                  .far = amx_is_far(out),
                                  .experts = experts,
                                  .steps = amx_steps(a.columns),
                                  .tiling = amx_groups_tiling(rows, out.columns, a.columns, groups->count),
                                  .groups = groups};
    job.scratch = amx_groups_scratch(a, w, &job.tiling);
    job.copy = amx_copies(a, &job.tiling);
    job.column_tiles = ceil_div(out.columns, job.tiling.columns);
    job.pieces = cpu_v4_scratch(0, AMX_SLOT_SHARED, (rows / job.tiling.rows + groups->count) * (i64)sizeof *job.pieces);
    workers_run(cut_pieces(job.pieces, groups, job.tiling.rows) * job.column_tiles, run_tile, &job);
}

/* ---- Gather before and SwiGLU after the gemm, as separate ops ---- */

enum { SLOT_ROWS = 6, SLOT_GATE_UP = 5 };

struct matrix amx_gathered(struct device *device, struct matrix x, const i32 *rows, i64 bound,
                           const struct groups *groups)
{
    if (!rows)
        return x;
    struct matrix out =
        matrix_of(cpu_v4_scratch(0, SLOT_ROWS, amx_gathered_bytes(bound, x)), x.dtype, bound, x.columns);
    cpu_v4_dispatch(device, out, x, rows, &groups->offsets[groups->count]);
    return out;
}

void cpu_amx_matmul_grouped_swiglu(struct device *device, struct matrix y, struct matrix gate_up, struct matrix x,
                                   const i32 *rows, struct matrix w, i64 experts, const struct groups *groups)
{
    i64 end = groups->offsets[groups->count];
    if (!amx_has_groups(y, x, w)) {
        cpu_v4_matmul_grouped_swiglu(device, y, gate_up, x, rows, w, experts, groups);
        return;
    }
    check_end(groups, y.rows, "matmul_grouped_swiglu");
    if (!gate_up.data) {
        gate_up = matrix_of(NULL, y.dtype, y.rows, 2 * y.columns);
        gate_up.data = cpu_v4_scratch(0, SLOT_GATE_UP, y.rows * 2 * y.columns * element_bytes(y.dtype));
    }
    cpu_amx_matmul_grouped(device, gate_up, amx_gathered(device, x, rows, y.rows, groups), w, experts, true, groups);
    cpu_v4_swiglu(device, matrix_rows(y, 0, end), matrix_rows(gate_up, 0, end));
}
