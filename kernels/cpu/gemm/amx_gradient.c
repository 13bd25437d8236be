/* Weight gradients on AMX: dw = dy^T x, summed over the rows of data in runs. Both operands are
 * packed on the way. For stacked weights of experts, each slice sums over the rows of its group.
 *
 *     dw [M, N] = dy [K, M]^T x [K, N]       K: rows of data
 *                       x, a run of 512 rows, <= 512 columns:   packed once as panels of b
 *                     +----------------+
 *     dy, the same    |                |
 *     rows, transposed,   | tile of dw     |     M <= 256 (experts: <= 512, 256 of it at a time)
 *     packed as a     |                |     N <= 512
 *                     +----------------+
 *
 * The sums run over the rows of data, so neither operand lies as the tiles want it. A tile packs
 * a run of both, multiplies it while both are in L2, and goes to the next run; a panel has one
 * step more than a run holds (AMX_PANEL_STEPS), so that panels spread over the cache sets. If dw
 * has few tiles, K is cut into segments (split K) that are added in order.
 *
 *     Mr, Nr  32     Mc  AMX_ROWS_MOST     Nc  AMX_COLUMNS_MOST     Kc  DEPTH_RUN, 512 */
#include "kernels/cpu/gemm/gemm.h"

enum { PANEL_BYTES = AMX_PANEL_STEPS * AMX_STEP_BYTES };

/* Packs the operand row by row, whole cache lines at a time. */
static void pack_columns(char *b, struct matrix x, i64 depth, i64 steps, i64 column, i64 columns)
{
    for (i64 step = 0; step < steps; step++) {
        char *to = b + step * AMX_STEP_BYTES;
        for (i64 i = 0; i < columns; i += AMX_BLOCK, to += PANEL_BYTES)
            amx_pack_b(to, x, false, depth + step * AMX_BLOCK, column + i);
    }
}

static void pack_rows(char *a, struct matrix dy, i64 depth, i64 steps, i64 row, i64 rows)
{
    for (i64 step = 0; step < steps; step++) {
        char *to = a + step * AMX_STEP_BYTES;
        for (i64 i = 0; i < rows; i += AMX_BLOCK, to += PANEL_BYTES)
            amx_pack_a_transposed(to, dy, depth + step * AMX_BLOCK, row + i);
    }
}

static struct amx_rows rows_of(struct matrix m, i64 row, i64 column, i64 columns)
{
    i64 rows = min_i64(DEPTH_RUN, m.rows - row);
    return (struct amx_rows){matrix_at(m, row, column), m.stride * 2, columns * 2, max_i64(rows, 0)};
}

void amx_run_gradient(const struct amx_tile *tile, struct matrix dy, i64 depth, i64 row, struct matrix x, i64 x_depth,
                      i64 column)
{
    pack_columns((char *)(uintptr_t)tile->b, x, x_depth, tile->steps, column, tile->out.columns);
    for (i64 first = 0; first < tile->out.rows; first += AMX_ROWS_MOST) {
        struct amx_tile part = *tile;
        i64 rows = min_i64(AMX_ROWS_MOST, tile->out.rows - first);
        part.out = matrix_rows(tile->out, first, rows);
        part.sums += tile->first && tile->last && !tile->keep ? 0 : first * round_up(tile->out.columns, AMX_BLOCK);
        pack_rows((char *)(uintptr_t)tile->a, dy, depth, tile->steps, row + first, rows);
        if (first + rows < tile->out.rows) {
            part.next[0] =
                rows_of(dy, depth, row + first + rows, min_i64(AMX_ROWS_MOST, tile->out.rows - first - rows));
        } else {
            part.next[0] = rows_of(x, x_depth + DEPTH_RUN, column, tile->out.columns);
            part.next[1] = rows_of(dy, depth + DEPTH_RUN, row, min_i64(AMX_ROWS_MOST, tile->out.rows));
        }
        amx_run_tile(&part, true);
    }
}

void amx_open_gradient(struct amx_tile *tile, i64 depth, int worker)
{
    struct amx_scratch scratch = amx_gradient_scratch(tile->out.rows, tile->out.columns, depth);
    if (!tile->keep)
        tile->sums = cpu_v4_scratch(worker, AMX_SLOT_SUMS, scratch.sums);
    tile->a = cpu_v4_scratch(worker, AMX_SLOT_A, scratch.a);
    tile->b = cpu_v4_scratch(worker, AMX_SLOT_B, scratch.b);
    tile->a_row_bytes = AMX_BLOCK * 2;
    tile->a_step_bytes = AMX_STEP_BYTES;
    tile->a_block_bytes = tile->panel_bytes = PANEL_BYTES;
}

/* Sums over rows begin .. end - 1 of dy and x for the part of dw at [row, column] that `tile`
 * describes. */
static void sum_tile(struct amx_tile *tile, struct matrix dy, struct matrix x, i64 begin, i64 end, i64 row, i64 column,
                     int worker)
{
    dy.rows = x.rows = end;
    amx_open_gradient(tile, end - begin, worker);
    amx_begin();
    for (i64 depth = begin; depth < end; depth += DEPTH_RUN) {
        amx_name_run(tile, begin, depth, end);
        amx_run_gradient(tile, dy, depth, row, x, depth, column);
    }
    amx_end();
}

/* ---- One weight ---- */

struct amx_gradient_job {
    struct matrix dw, dy, x;
    bool add;
    struct amx_gradient_tiling tiling;
    i64 column_tiles, tiles;
    float *segments; /* blocks of sums, per segment and tile */
};

static struct matrix part_of(const struct amx_gradient_job *job, i64 index, i64 *row, i64 *column)
{
    const struct amx_gradient_tiling *t = &job->tiling;
    *row = index / job->column_tiles * t->rows;
    *column = index % job->column_tiles * t->columns;
    struct matrix rows = matrix_rows(job->dw, *row, min_i64(t->rows, job->dw.rows - *row));
    return matrix_columns(rows, *column, min_i64(t->columns, job->dw.columns - *column));
}

static float *segment_of(const struct amx_gradient_job *job, i64 index)
{
    return job->segments + index * job->tiling.rows * job->tiling.columns;
}

static void run_tile(void *context, i64 index, int worker)
{
    const struct amx_gradient_job *job = context;
    i64 row, column, begin = index / job->tiles * job->tiling.depth;
    struct amx_tile tile = {.out = part_of(job, index % job->tiles, &row, &column),
                            .add = job->add,
                            .far = amx_is_far(job->dw),
                            .keep = job->segments != NULL,
                            .sums = job->segments ? segment_of(job, index) : NULL};
    sum_tile(&tile, job->dy, job->x, begin, min_i64(begin + job->tiling.depth, job->x.rows), row, column, worker);
}

static void add_block(float *sums, const float *more)
{
    for (i64 i = 0; i < AMX_SUMS; i++)
        sums[i] += more[i];
}

static void run_segments(void *context, i64 index, int worker)
{
    const struct amx_gradient_job *job = context;
    i64 row, column, at = 0;
    struct matrix part = part_of(job, index, &row, &column);
    (void)worker;
    for (i64 i = 0; i < part.rows; i += AMX_BLOCK)
        for (i64 j = 0; j < part.columns; j += AMX_BLOCK, at += AMX_SUMS) {
            float *sums = segment_of(job, index) + at;
            for (i64 segment = 1; segment < job->tiling.segments; segment++)
                add_block(sums, segment_of(job, segment * job->tiles + index) + at);
            struct amx_drain drain = amx_drain_to(part, i, j, sums, job->add, amx_is_far(job->dw));
            amx_drain_all(&drain);
        }
    _mm_sfence();
}

void amx_gradient(struct matrix dw, struct matrix dy, struct matrix x, bool add)
{
    struct amx_gradient_job job = {
        .dw = dw, .dy = dy, .x = x, .add = add, .tiling = amx_gradient_tiling_of(dw.rows, dw.columns, x.rows)};
    const struct amx_gradient_tiling *t = &job.tiling;
    job.column_tiles = ceil_div(dw.columns, t->columns);
    job.tiles = ceil_div(dw.rows, t->rows) * job.column_tiles;
    if (t->segments > 1)
        job.segments = cpu_v4_scratch(0, AMX_SLOT_SHARED, amx_segments_bytes(t, dw.rows, dw.columns));
    workers_run(job.tiles * t->segments, run_tile, &job);
    if (job.segments)
        workers_run(job.tiles, run_segments, &job);
}

/* ---- Stacked weights ---- */

struct grouped_job {
    struct matrix dw, dy, x;
    /* Rows and columns of a tile; tiles per slice. */
    i64 slice_rows, rows, columns, row_tiles, column_tiles;
    const struct groups *groups;
    const u8 *written;
};

static void run_group_tile(void *context, i64 index, int worker)
{
    const struct grouped_job *job = context;
    i64 tiles = job->row_tiles * job->column_tiles, group = index / tiles, rest = index % tiles;
    i64 row = rest / job->column_tiles * job->rows, column = rest % job->column_tiles * job->columns;
    i64 expert = job->groups->member ? job->groups->member[group] : group;
    i64 begin = job->groups->offsets[group], end = job->groups->offsets[group + 1];
    struct matrix slice = matrix_rows(job->dw, expert * job->slice_rows, job->slice_rows);
    struct matrix rows = matrix_rows(slice, row, min_i64(job->rows, slice.rows - row));
    struct amx_tile tile = {.out = matrix_columns(rows, column, min_i64(job->columns, slice.columns - column)),
                            .add = job->written[expert],
                            .far = true};
    if (begin < end)
        sum_tile(&tile, job->dy, job->x, begin, end, row, column, worker);
}

void cpu_amx_matmul_grouped_weights(struct device *device, struct matrix dw, u8 *written, i64 experts, struct matrix dy,
                                    struct matrix x, const i32 *rows, const struct groups *groups)
{
    i64 slice = dw.rows / experts;
    if (dy.columns != slice || x.columns != dw.columns || !amx_has_gradient(dw, dy, x)) {
        cpu_v4_matmul_grouped_weights(device, dw, written, experts, dy, x, rows, groups);
        return;
    }
    x = amx_gathered(device, x, rows, dy.rows, groups);
    struct grouped_job job = {.dw = dw, .dy = dy, .x = x, .slice_rows = slice, .groups = groups, .written = written};
    amx_slice_tiling(&job.rows, &job.columns, slice, dw.columns, groups->count);
    job.row_tiles = ceil_div(slice, job.rows);
    job.column_tiles = ceil_div(dw.columns, job.columns);
    workers_run(groups->count * job.row_tiles * job.column_tiles, run_group_tile, &job);
    for (i64 g = 0; g < groups->count; g++)
        if (groups->offsets[g + 1] > groups->offsets[g])
            written[groups->member ? groups->member[g] : g] = 1;
}
