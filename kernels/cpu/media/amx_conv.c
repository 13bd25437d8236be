/* Convolutions on AMX. The im2col patches of a tile's positions are gathered as rows just before
 * they are multiplied, so they are read back from L2.
 *
 * As conv.c, with the patches of at most AMX_CONV_POSITIONS_MOST (128) positions as operand a of
 * amx_tile.c, rows an odd number of steps apart (amx_patch_bytes), so that they spread over L1. */
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/media/patches.h"

enum { SLOT_PATCHES = 4 };

static void zero_columns(char *patches, i64 patch_bytes, i64 rows, i64 columns)
{
    i64 bytes = columns * 2;
    if (bytes < patch_bytes)
        for (i64 row = 0; row < rows; row++)
            memset(patches + row * patch_bytes + bytes, 0, (size_t)(patch_bytes - bytes));
}

/* ---- y = patches of x times w^T; dx = patches of dy times the flipped weights ---- */

struct rows_job {
    struct patches patches;
    struct matrix out, w;
    bool transpose_w, add;
    i64 depth, steps; /* depth of a patch, in elements and in steps */
    struct amx_tiling tiling;
    struct amx_scratch scratch;
    const char *image;
};

static void run_positions(void *context, i64 index, int worker)
{
    const struct rows_job *job = context;
    const struct amx_tiling *t = &job->tiling;
    i64 first = index * t->rows, count = min_i64(t->rows, job->out.rows - first);
    i64 patch_bytes = amx_patch_bytes(job->steps);
    char *patches = cpu_v4_scratch(worker, SLOT_PATCHES, job->scratch.a);
    struct amx_tile tile = {.out = matrix_rows(job->out, first, count),
                            .add = job->add,
                            .far = amx_is_far(job->out),
                            .a_row_bytes = patch_bytes,
                            .a_step_bytes = AMX_BLOCK * 2,
                            .a_block_bytes = AMX_BLOCK * patch_bytes,
                            .panel_bytes = job->steps * AMX_STEP_BYTES,
                            .sums = cpu_v4_scratch(worker, AMX_SLOT_SUMS, job->scratch.sums)};
    cpu_v4_patches_gather(patches, patch_bytes, &job->patches, first, count, 0, patches_lines(&job->patches));
    zero_columns(patches, patch_bytes, count, job->depth);
    amx_begin();
    for (i64 step = 0; step < job->steps; step += tile.steps) {
        tile.steps = min_i64(t->run_steps, job->steps - step);
        tile.first = step == 0;
        tile.last = step + tile.steps == job->steps;
        tile.a = patches + step * AMX_BLOCK * 2;
        tile.b = job->image + step * AMX_STEP_BYTES;
        amx_run_tile(&tile, t->a_stays);
    }
    amx_end();
}

static void multiply_patches(struct rows_job *job)
{
    job->depth = product3(job->patches.kernel) * job->patches.x.columns;
    job->steps = amx_steps(job->depth);
    job->tiling = amx_conv_tiling(job->out.rows, job->out.columns, job->depth);
    job->scratch = amx_conv_scratch(&job->tiling, job->out.columns, job->depth);
    job->image = amx_panels_of(job->w, job->transpose_w);
    workers_run(ceil_div(job->out.rows, job->tiling.rows), run_positions, job);
}

void cpu_amx_conv(struct device *device, struct matrix y, struct matrix x, struct matrix w, const struct conv *conv)
{
    if (x.dtype != DTYPE_BF16 || w.dtype != DTYPE_BF16) {
        cpu_v4_conv(device, y, x, w, conv);
        return;
    }
    struct rows_job job = {.out = y, .w = w, .transpose_w = true};
    cpu_v4_patches_open(&job.patches, x, conv, false);
    if (job.patches.identity)
        cpu_amx_matmul(device, y, x, false, w, true, false);
    else
        multiply_patches(&job);
}

/* Flipped weights [kernel * out, in], taps counted from the end: row (tap, o) is w[o, last -
 * tap]. */
static struct matrix transpose_weights(struct matrix w, const struct conv *c)
{
    i64 taps = product3(c->kernel);
    struct matrix transposed =
        matrix_of(cpu_v4_scratch(0, TURNED_SLOT, taps * c->out * c->in * 2), w.dtype, taps * c->out, c->in);
    for (i64 tap = 0; tap < taps; tap++)
        for (i64 o = 0; o < c->out; o++)
            memcpy(matrix_at(transposed, tap * c->out + o, 0), matrix_at(w, o, (taps - 1 - tap) * c->in),
                   (size_t)c->in * 2);
    return transposed;
}

void cpu_amx_conv_backward_data(struct device *device, struct matrix dx, struct matrix dy, struct matrix w,
                                const struct conv *conv, bool add)
{
    if (dy.dtype != DTYPE_BF16 || w.dtype != DTYPE_BF16) {
        cpu_v4_conv_backward_data(device, dx, dy, w, conv, add);
        return;
    }
    struct rows_job job = {.out = dx, .add = add};
    cpu_v4_patches_open(&job.patches, dy, conv, true);
    if (job.patches.identity) {
        cpu_amx_matmul(device, dx, dy, false, w, false, add);
        return;
    }
    job.w = transpose_weights(w, conv);
    multiply_patches(&job);
}

/* ---- dw = dy^T patches ---- */

static void sum_part(const struct patches_part *part, struct matrix dy, const struct patches *g, int worker)
{
    i64 patch_bytes = part->dw.columns * 2, most = min_i64(DEPTH_RUN, part->end - part->begin);
    struct amx_tile tile = {.out = part->dw, .add = part->add};
    struct matrix patches =
        matrix_of(cpu_v4_scratch(worker, SLOT_PATCHES, most * patch_bytes), DTYPE_BF16, most, part->dw.columns);
    dy.rows = part->end;
    amx_open_gradient(&tile, part->end - part->begin, worker);
    for (i64 at = part->begin; at < part->end; at += DEPTH_RUN) {
        patches.rows = min_i64(DEPTH_RUN, part->end - at);
        cpu_v4_patches_gather(patches.data, patch_bytes, g, at, patches.rows, part->line, part->lines);
        amx_name_run(&tile, part->begin, at, part->end);
        amx_begin();
        amx_run_gradient(&tile, dy, at, 0, patches, 0, 0);
        amx_end();
    }
}

void cpu_amx_conv_backward_weights(struct device *device, struct matrix dw, struct matrix dy, struct matrix x,
                                   const struct conv *conv, bool add)
{
    struct patches patches;
    if (!amx_has_gradient(dw, dy, x)) {
        cpu_v4_conv_backward_weights(device, dw, dy, x, conv, add);
        return;
    }
    cpu_v4_patches_open(&patches, x, conv, false);
    if (patches.identity)
        amx_gradient(dw, dy, x, add);
    else
        cpu_v4_patches_gradient(dw, dy, &patches, add, sum_part);
}
