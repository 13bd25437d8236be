/* One tile of the output on AMX, for one run of the depth. gemm.h shows a single block of 32 x
 * 32.
 *
 *     a tile, Mc x Nc,        order of its blocks where        order where
 *     in blocks of 32 x 32    a stays in L1 (a_stays)          b stays in L1
 *     +----+----+----+
 *     |    |    |    |            0   1   2                        0   2   4
 *     +----+----+----+
 *     |    |    |    |            3   4   5                        1   3   5
 *     +----+----+----+
 *
 * One operand's share of a block and run is 32 kB and stays in L1; the other operand streams
 * past it from L2. While a block is multiplied, the sums of the block before it are written out,
 * and its share of the operands of later blocks is prefetched. Sums of a depth of several runs
 * wait in memory, one block each; otherwise two blocks of sums take turns.
 *
 *     Mr, Nr  AMX_BLOCK  32      Mc  amx_tiling.rows, at most 256 (128 where a stays; groups 512)
 *     Kc      DEPTH_RUN  512     Nc  amx_tiling.columns, at most 512 (all where a stays)
 *     Convolutions have runs of up to AMX_CONV_RUN_STEPS (20) steps of 32 instead.
 *
 * Source: as for gemm.c, with the tile loops of Intel's Optimization Reference Manual (Intel
 * AMX). */
#include "kernels/cpu/gemm/gemm.h"

/* Prefetch for the product of panel `column` with block `row`: this block's share of the next panel
 * of b or, if b streams (a_stays), of the next block of a. All blocks of a pass together fetch the
 * whole. */
static struct amx_ahead ahead_of(const struct amx_tile *t, bool a_stays, i64 row, i64 rows, i64 column, i64 columns)
{
    i64 lines = AMX_STEP_BYTES / 64, share;
    if (a_stays) {
        share = ceil_div(AMX_BLOCK, columns);
        if (row + 1 == rows || column * share >= AMX_BLOCK)
            return (struct amx_ahead){0};
        return (struct amx_ahead){t->a + (row + 1) * t->a_block_bytes + column * share * t->a_row_bytes, t->a_row_bytes,
                                  t->a_step_bytes, share};
    }
    share = ceil_div(lines, rows);
    if (column + 1 == columns || row * share >= lines)
        return (struct amx_ahead){0};
    return (struct amx_ahead){t->b + (column + 1) * t->panel_bytes + row * share * 64, 64, AMX_STEP_BYTES, share};
}

/* Share of block number `block` in prefetching `rows`: each step takes one line, or part of one, of
 * a few rows. */
static struct amx_ahead share_of(const struct amx_rows *rows, i64 block, i64 blocks, i64 steps)
{
    i64 share = ceil_div(rows->rows, blocks), first = block * share;
    if (first >= rows->rows)
        return (struct amx_ahead){0};
    return (struct amx_ahead){rows->at + first * rows->row_bytes, rows->row_bytes, ceil_div(rows->bytes, steps),
                              min_i64(share, rows->rows - first)};
}

INLINED void run(const struct amx_tile *t, bool a_stays)
{
    i64 rows = ceil_div(t->out.rows, AMX_BLOCK), columns = ceil_div(t->out.columns, AMX_BLOCK);
    struct amx_drain drain = {.store = STORE_NONE};
    bool alone = t->first && t->last && !t->keep;
    for (i64 i = 0; i < rows * columns; i++) {
        i64 row = a_stays ? i / columns : i % rows, column = a_stays ? i % columns : i / rows;
        struct amx_block block = {.a = t->a + row * t->a_block_bytes,
                                  .b = t->b + column * t->panel_bytes,
                                  .a_row_bytes = t->a_row_bytes,
                                  .a_step_bytes = t->a_step_bytes,
                                  .steps = t->steps,
                                  .sums = t->sums + (alone ? i % 2 : row * columns + column) * AMX_SUMS,
                                  .resume = !t->first,
                                  .ahead = {ahead_of(t, a_stays, row, rows, column, columns)}};
        for (int k = 0; k < 2; k++)
            if (t->next[k].rows > 0)
                block.ahead[k] = share_of(&t->next[k], i, rows * columns, t->steps);
        amx_multiply(&block, !a_stays, &drain);
        if (t->last && !t->keep)
            drain = amx_drain_to(t->out, row * AMX_BLOCK, column * AMX_BLOCK, block.sums, t->add, t->far);
    }
    amx_drain_all(&drain);
}

void amx_run_tile(const struct amx_tile *tile, bool a_stays)
{
    if (a_stays)
        run(tile, true);
    else
        run(tile, false);
}

static void copy_block(char *out, struct matrix a, i64 row, i64 depth, i64 steps)
{
    for (i64 i = 0; i < AMX_BLOCK; i++)
        for (i64 step = 0; step < steps; step++)
            _mm512_store_si512(
                out + step * AMX_STEP_BYTES + i * 64,
                amx_load_row(a, row + i, depth + step * AMX_BLOCK, amx_mask(a.columns - depth - step * AMX_BLOCK)));
}

void amx_place_a(struct amx_tile *t, struct matrix a, i64 row, i64 depth, bool copy, int worker)
{
    i64 blocks = ceil_div(t->out.rows, AMX_BLOCK);
    if (!copy && row + blocks * AMX_BLOCK <= a.rows) {
        t->a = matrix_at(a, row, depth);
        t->a_row_bytes = a.stride * 2;
        t->a_step_bytes = AMX_BLOCK * 2;
        t->a_block_bytes = AMX_BLOCK * a.stride * 2;
        return;
    }
    char *scratch = cpu_v4_scratch(worker, AMX_SLOT_A, blocks * t->steps * AMX_STEP_BYTES);
    t->a = scratch;
    t->a_row_bytes = AMX_BLOCK * 2;
    t->a_step_bytes = AMX_STEP_BYTES;
    t->a_block_bytes = t->steps * AMX_STEP_BYTES;
    for (i64 block = 0; block < blocks; block++)
        copy_block(scratch + block * t->a_block_bytes, a, row + block * AMX_BLOCK, depth, t->steps);
}
