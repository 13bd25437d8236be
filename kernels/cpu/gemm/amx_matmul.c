/* out = a b^T and out = a b on AMX: activations times weights.
 *
 * M, N and K are the rows of out, its columns, and the columns of a. A job is cut into tiles of
 * Mc x Nc (amx_tiling_of); panels of all of b are packed once, or come with the weight
 * (pack_weight). Each tile walks along K in runs (amx_tile.c). Fewer than AMX_ROWS_LEAST rows
 * take amx_skinny.c, weight gradients amx_gradient.c, and what tiles do not take goes to the
 * level v4 (matmul.c). */
#include "kernels/cpu/gemm/gemm.h"

struct amx_matmul_job {
    struct matrix out, a;
    bool add, far, copy;
    struct amx_tiling tiling;
    struct amx_scratch scratch;
    i64 column_tiles, steps;
    const char *image; /* panels of b over the whole depth */
};

static void run_tile(void *context, i64 index, int worker)
{
    const struct amx_matmul_job *job = context;
    const struct amx_tiling *t = &job->tiling;
    i64 row = index / job->column_tiles * t->rows, column = index % job->column_tiles * t->columns;
    i64 rows = min_i64(t->rows, job->out.rows - row), columns = min_i64(t->columns, job->out.columns - column);
    struct amx_tile tile = {.out = matrix_columns(matrix_rows(job->out, row, rows), column, columns),
                            .add = job->add,
                            .far = job->far,
                            .panel_bytes = job->steps * AMX_STEP_BYTES,
                            .sums = cpu_v4_scratch(worker, AMX_SLOT_SUMS, job->scratch.sums)};
    amx_begin();
    for (i64 step = 0; step < job->steps; step += tile.steps) {
        tile.steps = min_i64(t->run_steps, job->steps - step);
        tile.first = step == 0;
        tile.last = step + tile.steps == job->steps;
        tile.b = job->image + (column / AMX_BLOCK * job->steps + step) * AMX_STEP_BYTES;
        amx_place_a(&tile, job->a, row, step * AMX_BLOCK, job->copy, worker);
        amx_run_tile(&tile, t->a_stays);
    }
    amx_end();
}

static void multiply_rows(struct matrix out, struct matrix a, struct matrix b, bool transpose_b, bool add)
{
    struct amx_matmul_job job = {.out = out,
                                 .a = a,
                                 .add = add,
                                 .far = amx_is_far(out),
                                 .tiling = amx_tiling_of(out.rows, out.columns, a.columns),
                                 .steps = amx_steps(a.columns)};
    job.column_tiles = ceil_div(out.columns, job.tiling.columns);
    job.copy = amx_copies(a, &job.tiling);
    job.scratch = amx_rows_scratch(out, a, b, &job.tiling);
    job.image = amx_panels_of(b, transpose_b);
    workers_run(ceil_div(out.rows, job.tiling.rows) * job.column_tiles, run_tile, &job);
}

void cpu_amx_matmul(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                    bool transpose_b, bool add)
{
    i64 depth = transpose_a ? a.rows : a.columns;
    bool fits = out.rows == (transpose_a ? a.columns : a.rows) && out.columns == (transpose_b ? b.rows : b.columns) &&
                depth == (transpose_b ? b.columns : b.rows);
    if (fits && amx_has_skinny(out, a, transpose_a, b, transpose_b, add))
        amx_skinny(out, a, b, add);
    else if (!fits || !amx_has(out, a, transpose_a, b, transpose_b))
        cpu_v4_matmul(device, out, a, transpose_a, b, transpose_b, add);
    else if (transpose_a)
        amx_gradient(out, a, b, add);
    else
        multiply_rows(out, a, b, transpose_b, add);
}
