#include "kernels/cpu/media/patches.h"

/* A convolution is a gemm: im2col patches [kernel * channels] of its input times the weights.
 * Patches of one tile of positions at a time are in the worker's scratch and stay in L2. The
 * gradient of x is the same gemm with dy gathered through the inverse tables and with flipped
 * weights, so every tile writes only its own positions.
 *
 *     x [n, t, h, w, in]              patches of one tile          w [out, kernel * in]
 *     | .  a  b  c  .. |   gather     | tap 0 | tap 1 | .. |  x  ^T          ->  y, the tile's rows
 *     | .  d  e  f  .. |   ------>    | tap 0 | tap 1 | .. |                     (one gemm, gemm.c)
 *
 *     M  positions, in tiles of conv_positions: at most POSITIONS_MOST (512) and 768 kB of patches
 *     N  out channels         K  kernel * in channels (dw: M out, N taps * in, K positions)
 *
 * Source: im2col (Chellapilla et al. 2006), of a tile at a time. The weight gradient is cut into
 * lines of the kernel and chunks of positions, which are added in order. */
enum { SLOT_PATCHES };

struct conv_job {
    struct patches patches;
    struct matrix out, w;
    bool transpose_w, add;
    i64 positions_tile;
    struct gemm_panels panels; /* shared panels of w; count 0: not shared */
};

static void run_positions(void *context, i64 tile, int worker)
{
    struct conv_job *job = context;
    const struct patches *g = &job->patches;
    if (tile < job->panels.count) {
        CPU(gemm_pack)(&job->panels, tile);
        return;
    }
    i64 first = (tile - job->panels.count) * job->positions_tile,
        count = min_i64(job->positions_tile, job->out.rows - first);
    i64 columns = product3(g->kernel) * g->x.columns;
    char *patches = CPU(scratch)(worker, SLOT_PATCHES, job->positions_tile * columns * element_bytes(g->x.dtype));
    CPU(patches_gather)(patches, columns * element_bytes(g->x.dtype), g, first, count, 0, patches_lines(g));
    struct gemm gemm = {.m = count,
                        .n = job->out.columns,
                        .k = columns,
                        .lda = columns,
                        .ldb = job->w.stride,
                        .ldc = job->out.stride,
                        .transpose_b = job->transpose_w,
                        .add = job->add,
                        .dtype = g->x.dtype,
                        .out_dtype = job->out.dtype,
                        .panels = job->panels.count > 0 ? &job->panels : NULL};
    CPU(gemm)(matrix_at(job->out, first, 0), patches, job->w.data, &gemm, worker);
}

static void run_all_positions(struct conv_job *job)
{
    const struct patches *g = &job->patches;
    i64 patch_bytes = product3(g->kernel) * g->x.columns * element_bytes(g->x.dtype);
    job->positions_tile = conv_positions(job->out.rows, patch_bytes, CONV_TILES_WANTED);
    if (job->out.rows > job->positions_tile)
        CPU(gemm_share)(&job->panels, job->w, job->transpose_w);
    workers_run(job->panels.count + ceil_div(job->out.rows, job->positions_tile), run_positions, job);
}

void CPU(conv)(struct device *device, struct matrix y, struct matrix x, struct matrix w, const struct conv *conv)
{
    struct conv_job job = {.out = y, .w = w, .transpose_w = true};
    CPU(patches_open)(&job.patches, x, conv, false);
    if (job.patches.identity)
        CPU(matmul)(device, y, x, false, w, true, false);
    else
        run_all_positions(&job);
}

/* Flipped weights [kernel * out, in], taps counted from the end: row (tap, o) is w[o, last -
 * tap]. */
static struct matrix transpose_weights(struct matrix w, const struct conv *c)
{
    i64 taps = product3(c->kernel), row_bytes = c->in * element_bytes(w.dtype);
    char *out = CPU(scratch)(0, TURNED_SLOT, taps * c->out * row_bytes);
    for (i64 tap = 0; tap < taps; tap++)
        for (i64 o = 0; o < c->out; o++)
            memcpy(out + (tap * c->out + o) * row_bytes, matrix_at(w, o, (taps - 1 - tap) * c->in), (size_t)row_bytes);
    return matrix_of(out, w.dtype, taps * c->out, c->in);
}

void CPU(conv_backward_data)(struct device *device, struct matrix dx, struct matrix dy, struct matrix w,
                             const struct conv *conv, bool add)
{
    struct conv_job job = {.out = dx, .add = add};
    CPU(patches_open)(&job.patches, dy, conv, true);
    if (job.patches.identity) {
        CPU(matmul)(device, dx, dy, false, w, false, add);
        return;
    }
    job.w = transpose_weights(w, conv);
    run_all_positions(&job);
}

/* ---- The weight gradient: a part is a chunk of positions and a run of lines ---- */

struct weights_job {
    const struct patches *patches;
    struct matrix dw, dy;
    bool add;
    struct conv_parts parts;
    /* Sums of each chunk [chunks, dw.rows, dw.columns]; NULL if there is one. */
    float *partial;
    patches_sum *sum;
};

static void run_part(void *context, i64 index, int worker)
{
    const struct weights_job *job = context;
    const struct conv_parts *p = &job->parts;
    i64 chunk = index / p->line_parts, line = index % p->line_parts * p->lines;
    i64 columns = patches_line_columns(job->patches), elements = job->dw.rows * job->dw.columns;
    struct patches_part part = {.add = !job->partial && job->add, .line = line};
    part.lines = min_i64(p->lines, patches_lines(job->patches) - line);
    part.begin = chunk * p->chunk_rows;
    part.end = min_i64(part.begin + p->chunk_rows, job->dy.rows);
    struct matrix out = job->dw;
    if (job->partial)
        out = matrix_of(job->partial + chunk * elements, DTYPE_F32, out.rows, out.columns);
    part.dw = matrix_columns(out, line * columns, part.lines * columns);
    job->sum(&part, job->dy, job->patches, worker);
}

/* dw (+)= partial[0] + partial[1] + ... in that order. */
static void run_partial_sums(void *context, i64 row, int worker)
{
    const struct weights_job *job = context;
    float *out = matrix_at(job->dw, row, 0);
    i64 columns = job->dw.columns, elements = job->dw.rows * columns;
    (void)worker;
    for (i64 chunk = 0; chunk < job->parts.chunks; chunk++) {
        const float *partial = job->partial + chunk * elements + row * columns;
        if (chunk == 0 && !job->add)
            memcpy(out, partial, (size_t)columns * 4);
        else
#pragma omp simd
            for (i64 i = 0; i < columns; i++)
                out[i] += partial[i];
    }
}

void CPU(patches_gradient)(struct matrix dw, struct matrix dy, const struct patches *patches, bool add,
                           patches_sum *sum)
{
    struct weights_job job = {.patches = patches, .dw = dw, .dy = dy, .add = add, .sum = sum};
    job.parts = conv_parts_of(dy.rows, patches_lines(patches), patches_line_columns(patches));
    if (job.parts.chunks > 1)
        job.partial = CPU(scratch)(0, PARTIAL_SLOT, job.parts.chunks * dw.rows * dw.columns * 4);
    workers_run(job.parts.chunks * job.parts.line_parts, run_part, &job);
    if (job.partial)
        workers_run(dw.rows, run_partial_sums, &job);
}

static void sum_part(const struct patches_part *part, struct matrix dy, const struct patches *g, int worker)
{
    i64 columns = part->dw.columns, patch_bytes = columns * element_bytes(g->x.dtype);
    i64 at_once = conv_positions(part->end - part->begin, patch_bytes, 1);
    char *patches = CPU(scratch)(worker, SLOT_PATCHES, at_once * patch_bytes);
    struct gemm gemm = {.m = part->dw.rows,
                        .n = columns,
                        .lda = dy.stride,
                        .ldb = g->identity ? g->x.stride : columns,
                        .ldc = part->dw.stride,
                        .transpose_a = true,
                        .add = part->add,
                        .dtype = g->x.dtype,
                        .out_dtype = DTYPE_F32};
    for (i64 at = part->begin; at < part->end; at += gemm.k, gemm.add = true) {
        gemm.k = min_i64(at_once, part->end - at);
        if (!g->identity)
            CPU(patches_gather)(patches, patch_bytes, g, at, gemm.k, part->line, part->lines);
        CPU(gemm)(part->dw.data, matrix_at(dy, at, 0), g->identity ? matrix_at(g->x, at, 0) : patches, &gemm, worker);
    }
}

void CPU(conv_backward_weights)(struct device *device, struct matrix dw, struct matrix dy, struct matrix x,
                                const struct conv *conv, bool add)
{
    struct patches patches;
    (void)device;
    CPU(patches_open)(&patches, x, conv, false);
    CPU(patches_gradient)(dw, dy, &patches, add, sum_part);
}
