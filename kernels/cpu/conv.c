#include "kernels/cpu/bytes.h"
#include "kernels/conv.h"
#include "kernels/cpu/cpu.h"

/* A convolution is a product: the taps of each position are gathered side by side into a patch [kernel * channels], and
 * patches are multiplied by the weights (im2col; Chellapilla et al. 2006). Patches exist for one tile of positions at a
 * time, in the worker's scratch, and stay in L2. The gradient of x is the same with dy gathered through the inverse
 * tables and the weights turned round, so every tile writes its own positions only. */
enum {
    PATCH_BYTES_MOST = 768 << 10,
    POSITIONS_MOST = 512,
    POSITIONS_LEAST = 64,
    TILES_WANTED = 8,
    COLUMNS_LEAST = 256
};
enum { SLOT_PATCHES, SLOT_PARTIAL, SLOT_WEIGHTS, SLOT_TABLES };

/* Where the taps of a patch come from. Per axis source[position * kernel + tap] is the coordinate read, or -1 for
 * zero; run[...] is how many taps of the last axis, from this one on, are zero or neighbours in memory: one copy. */
struct gather {
    struct matrix x;
    i64 from[3], to[3], kernel[3];
    const i32 *source[3], *run;
    bool identity; /* every patch is the row itself */
};

/* Forward: position p reads p * stride - pad + tap * dilation. */
static i32 source_forward(const struct conv *c, int axis, i64 position, i64 tap)
{
    i64 source = position * c->stride[axis] - c->pad_front[axis] + tap * c->dilation[axis];
    return source >= 0 && source < c->size[axis] ? (i32)source : -1;
}

/* Backward: input p was read by output q with tap k iff q * stride = p + pad - k * dilation. Taps are counted from the
 * end, so that with stride 1 sources rise with taps and lie side by side. */
static i32 source_backward(const struct conv *c, int axis, i64 position, i64 tap)
{
    i64 scaled = position + c->pad_front[axis] - (c->kernel[axis] - 1 - tap) * c->dilation[axis];
    if (scaled < 0 || scaled % c->stride[axis])
        return -1;
    scaled /= c->stride[axis];
    return scaled < conv_out_size(c, axis) ? (i32)scaled : -1;
}

static void fill_runs(i32 *run, const struct gather *g)
{
    const i32 *source = g->source[2];
    i64 kernel = g->kernel[2];
    bool dense = g->x.stride == g->x.columns;
    for (i64 p = 0; p < g->to[2]; p++)
        for (i64 tap = kernel - 1; tap >= 0; tap--) {
            const i32 *s = source + p * kernel + tap;
            bool joins = tap + 1 < kernel && (s[0] < 0 ? s[1] < 0 : dense && s[1] == s[0] + 1);
            run[p * kernel + tap] = joins ? run[p * kernel + tap + 1] + 1 : 1;
        }
}

/* Tables lie in worker 0's scratch and are only read while tiles run. */
static void open_gather(struct gather *g, struct matrix x, const struct conv *c, bool backward)
{
    i64 entries[3], total = 0;
    g->x = x;
    g->identity = true;
    for (int axis = 0; axis < 3; axis++) {
        i64 out = conv_out_size(c, axis);
        g->from[axis] = backward ? out : c->size[axis];
        g->to[axis] = backward ? c->size[axis] : out;
        g->kernel[axis] = c->kernel[axis];
        g->identity &=
            c->kernel[axis] == 1 && c->stride[axis] == 1 && g->from[axis] == g->to[axis] && !c->pad_front[axis];
        entries[axis] = g->to[axis] * c->kernel[axis];
        total += entries[axis];
    }
    i32 *table = CPU(scratch)(0, SLOT_TABLES, (total + entries[2]) * 4);
    for (int axis = 0; axis < 3; axis++, table += entries[axis - 1]) {
        g->source[axis] = table;
        for (i64 i = 0; i < entries[axis]; i++)
            table[i] = (backward ? source_backward : source_forward)(c, axis, i / c->kernel[axis], i % c->kernel[axis]);
    }
    fill_runs(table, g);
    g->run = table;
}

/* A stretch of neighbouring positions: [w, w + count) of one (n, t, h). */
struct stretch {
    i64 n, t, h, w, count;
};

/* One line of taps (all of the last axis) for each position of a stretch; base is the source row of coordinate 0. */
static void gather_line(char *out, i64 patch_bytes, const struct gather *g, i64 base, i64 w, i64 count)
{
    i64 kernel = g->kernel[2], element = element_bytes(g->x.dtype);
    i64 tap_bytes = g->x.columns * element, row_bytes = g->x.stride * element;
    const char *x = (const char *)g->x.data + base * row_bytes;
    const i32 *source = g->source[2] + w * kernel, *run = g->run + w * kernel;
    for (i64 i = 0; i < count; i++, out += patch_bytes, source += kernel, run += kernel) {
        if (run[0] == kernel && source[0] >= 0) {
            copy_short(out, x + source[0] * row_bytes, kernel * tap_bytes);
            continue;
        }
        for (i64 tap = 0; tap < kernel; tap += run[tap]) {
            if (source[tap] < 0)
                zero_short(out + tap * tap_bytes, run[tap] * tap_bytes);
            else
                copy_short(out + tap * tap_bytes, x + source[tap] * row_bytes, run[tap] * tap_bytes);
        }
    }
}

/* Lines [line, line + lines) of (kernel_t, kernel_h) of a stretch's patches. */
static void gather_stretch(char *out, const struct gather *g, const struct stretch *s, i64 line, i64 lines)
{
    i64 line_bytes = g->kernel[2] * g->x.columns * element_bytes(g->x.dtype), patch_bytes = lines * line_bytes;
    for (i64 l = line; l < line + lines; l++, out += line_bytes) {
        i64 from_t = g->source[0][s->t * g->kernel[0] + l / g->kernel[1]];
        i64 from_h = g->source[1][s->h * g->kernel[1] + l % g->kernel[1]];
        if (from_t >= 0 && from_h >= 0) {
            i64 base = ((s->n * g->from[0] + from_t) * g->from[1] + from_h) * g->from[2];
            gather_line(out, patch_bytes, g, base, s->w, s->count);
        } else
            for (i64 i = 0; i < s->count; i++)
                zero_short(out + i * patch_bytes, line_bytes);
    }
}

/* Patches of positions [first, first + count), of each the lines [line, line + lines). */
static void gather_patches(char *out, const struct gather *g, i64 first, i64 count, i64 line, i64 lines)
{
    i64 patch_bytes = lines * g->kernel[2] * g->x.columns * element_bytes(g->x.dtype);
    for (i64 end = first + count; first < end;) {
        struct stretch s = {.w = first % g->to[2], .h = first / g->to[2] % g->to[1]};
        s.t = first / (g->to[2] * g->to[1]) % g->to[0];
        s.n = first / product3(g->to);
        s.count = min_i64(end - first, g->to[2] - s.w);
        gather_stretch(out, g, &s, line, lines);
        out += s.count * patch_bytes;
        first += s.count;
    }
}

static i64 positions_of_tile(i64 positions, i64 patch_bytes, i64 tiles_wanted)
{
    i64 tile = POSITIONS_MOST;
    while (tile > POSITIONS_LEAST && ceil_div(positions, tile) < tiles_wanted)
        tile /= 2;
    while (tile > 16 && tile * patch_bytes > PATCH_BYTES_MOST)
        tile /= 2;
    return tile;
}

struct job {
    struct gather gather;
    struct matrix out, w, dy;
    bool transpose_w, add;
    i64 positions_tile;
    i64 chunks, chunk_rows, lines_tile, line_tiles; /* of the gradient of the weights */
    float *partial;
};

static void run_positions(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    const struct gather *g = &job->gather;
    i64 first = tile * job->positions_tile, count = min_i64(job->positions_tile, job->out.rows - first);
    i64 columns = product3(g->kernel) * g->x.columns, lines = g->kernel[0] * g->kernel[1];
    char *patches = CPU(scratch)(worker, SLOT_PATCHES, job->positions_tile * columns * element_bytes(g->x.dtype));
    gather_patches(patches, g, first, count, 0, lines);
    struct gemm gemm = {.m = count,
                        .n = job->out.columns,
                        .k = columns,
                        .lda = columns,
                        .ldb = job->w.stride,
                        .ldc = job->out.stride,
                        .transpose_b = job->transpose_w,
                        .add = job->add,
                        .dtype = g->x.dtype,
                        .out_dtype = job->out.dtype};
    CPU(gemm)(matrix_at(job->out, first, 0), patches, job->w.data, &gemm);
}

static void run_all_positions(struct job *job)
{
    const struct gather *g = &job->gather;
    i64 patch_bytes = product3(g->kernel) * g->x.columns * element_bytes(g->x.dtype);
    job->positions_tile = positions_of_tile(job->out.rows, patch_bytes, TILES_WANTED);
    workers_run(ceil_div(job->out.rows, job->positions_tile), run_positions, job);
}

void CPU(conv)(struct device *device, struct matrix y, struct matrix x, struct matrix w, const struct conv *conv)
{
    conv_check(conv, x, y, w);
    require(x.dtype == w.dtype, "conv: x is %s, w %s", dtype_name(x.dtype), dtype_name(w.dtype));
    struct job job = {.out = y, .w = w, .transpose_w = true};
    open_gather(&job.gather, x, conv, false);
    if (job.gather.identity)
        CPU(matmul)(device, y, x, false, w, true, false);
    else
        run_all_positions(&job);
}

/* [kernel * out, in] with taps counted from the end: row (tap, o) is w[o, last - tap]. */
static struct matrix turn_weights(struct matrix w, const struct conv *c)
{
    i64 taps = product3(c->kernel), row_bytes = c->in * element_bytes(w.dtype);
    char *out = CPU(scratch)(0, SLOT_WEIGHTS, taps * c->out * row_bytes);
    for (i64 tap = 0; tap < taps; tap++)
        for (i64 o = 0; o < c->out; o++)
            memcpy(out + (tap * c->out + o) * row_bytes, matrix_at(w, o, (taps - 1 - tap) * c->in), (size_t)row_bytes);
    return matrix_of(out, w.dtype, taps * c->out, c->in);
}

void CPU(conv_backward_data)(struct device *device, struct matrix dx, struct matrix dy, struct matrix w,
                             const struct conv *conv, bool add)
{
    conv_check(conv, dx, dy, w);
    require(dy.dtype == w.dtype, "conv_backward_data: dy is %s, w %s", dtype_name(dy.dtype), dtype_name(w.dtype));
    struct job job = {.out = dx, .add = add};
    open_gather(&job.gather, dy, conv, true);
    if (job.gather.identity) {
        CPU(matmul)(device, dx, dy, false, w, false, add);
        return;
    }
    job.w = turn_weights(w, conv);
    run_all_positions(&job);
}

/* One chunk of positions, one run of lines: dw[:, lines] (+)= dy^T patches, summed over tiles of positions in order. */
static void run_weights(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    const struct gather *g = &job->gather;
    i64 chunk = tile / job->line_tiles, line = tile % job->line_tiles * job->lines_tile;
    i64 lines = min_i64(job->lines_tile, g->kernel[0] * g->kernel[1] - line);
    i64 line_columns = g->kernel[2] * g->x.columns, columns = lines * line_columns;
    i64 begin = chunk * job->chunk_rows, end = min_i64(begin + job->chunk_rows, job->dy.rows);
    struct matrix out = job->out;
    if (job->partial)
        out = matrix_of(job->partial + chunk * out.rows * out.columns, DTYPE_F32, out.rows, out.columns);
    char *patches = CPU(scratch)(worker, SLOT_PATCHES, job->positions_tile * columns * element_bytes(g->x.dtype));
    struct gemm gemm = {.m = out.rows, .n = columns, .ldc = out.stride, .transpose_a = true, .out_dtype = DTYPE_F32};
    gemm.add = !job->partial && job->add;
    gemm.dtype = g->x.dtype;
    gemm.lda = job->dy.stride;
    gemm.ldb = g->identity ? g->x.stride : columns;
    for (; begin < end; begin += gemm.k, gemm.add = true) {
        gemm.k = min_i64(job->positions_tile, end - begin);
        if (!g->identity)
            gather_patches(patches, g, begin, gemm.k, line, lines);
        const void *b = g->identity ? matrix_at(g->x, begin, 0) : patches;
        CPU(gemm)(matrix_at(out, 0, line * line_columns), matrix_at(job->dy, begin, 0), b, &gemm);
    }
}

/* dw (+)= partial[0] + partial[1] + ... in that order. */
static void run_partial_sums(void *context, i64 row, int worker)
{
    const struct job *job = context;
    float *out = matrix_at(job->out, row, 0);
    i64 columns = job->out.columns, elements = job->out.rows * columns;
    (void)worker;
    for (i64 chunk = 0; chunk < job->chunks; chunk++) {
        const float *partial = job->partial + chunk * elements + row * columns;
        if (chunk == 0 && !job->add)
            memcpy(out, partial, (size_t)columns * 4);
        else
#pragma omp simd
            for (i64 i = 0; i < columns; i++)
                out[i] += partial[i];
    }
}

/* Lines of the kernel are split first, which costs nothing; positions only as far as tiles are still wanted. */
static void cut_weights(struct job *job)
{
    const struct gather *g = &job->gather;
    i64 lines = g->kernel[0] * g->kernel[1], positions = job->dy.rows;
    i64 line_columns = g->kernel[2] * g->x.columns;
    job->lines_tile = min_i64(lines, ceil_div(COLUMNS_LEAST, line_columns));
    job->line_tiles = ceil_div(lines, job->lines_tile);
    i64 wanted = ceil_div(TILES_WANTED / 2, job->line_tiles), possible = ceil_div(positions, 2 * POSITIONS_LEAST);
    job->chunk_rows = round_up(ceil_div(positions, min_i64(wanted, possible)), 16);
    job->chunks = ceil_div(positions, job->chunk_rows);
    i64 patch_bytes = job->lines_tile * line_columns * element_bytes(g->x.dtype);
    job->positions_tile = positions_of_tile(job->chunk_rows, patch_bytes, 1);
}

void CPU(conv_backward_weights)(struct device *device, struct matrix dw, struct matrix dy, struct matrix x,
                                const struct conv *conv, bool add)
{
    (void)device;
    conv_check(conv, x, dy, dw);
    require(dy.dtype == x.dtype && dw.dtype == DTYPE_F32, "conv_backward_weights: dy is %s, x %s, dw %s",
            dtype_name(dy.dtype), dtype_name(x.dtype), dtype_name(dw.dtype));
    struct job job = {.out = dw, .dy = dy, .add = add};
    open_gather(&job.gather, x, conv, false);
    cut_weights(&job);
    if (job.chunks > 1)
        job.partial = CPU(scratch)(0, SLOT_PARTIAL, job.chunks * dw.rows * dw.columns * 4);
    workers_run(job.chunks * job.line_tiles, run_weights, &job);
    if (job.partial)
        workers_run(dw.rows, run_partial_sums, &job);
}
