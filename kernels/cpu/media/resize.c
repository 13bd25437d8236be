#include "kernels/resample.h"
#include "kernels/cpu/cpu.h"

/* Both kinds of resize are separable: rows of pixels are blended vertically, then pixels
 * horizontally. For each axis a table gives the sources of a destination, which are always
 * adjacent, and their weights. The backward does the same with transposed tables, so every tile
 * (one destination row of one image) writes only its own row. */
struct resize_taps {
    i64 count;  /* destinations */
    i32 *start; /* [count + 1] offsets into weight */
    i32 *first; /* [count] first source */
    float *weight;
};
struct resize_job {
    struct matrix to, from;
    struct resize_taps y, x;
    i64 from_h, from_w;
    bool add;
};
enum { SLOT_LINE, SLOT_PIXELS, SLOT_LOAD, SLOT_TABLES_Y, SLOT_TABLES_X, SLOT_TABLES_FORWARD };

static i64 weights_bound(i64 n_in, i64 n_out)
{
    return n_in + 2 * n_out + 2;
}

static struct resize_taps taps_alloc(int slot, i64 count, i64 n_in, i64 n_out)
{
    i32 *table = CPU(scratch)(0, slot, (2 * count + 1 + weights_bound(n_in, n_out)) * 4);
    return (struct resize_taps){count, table, table + count + 1, (float *)(table + 2 * count + 1)};
}

static struct resize_taps taps_forward(int slot, i64 n_in, i64 n_out, enum resize kind)
{
    struct resize_taps taps = taps_alloc(slot, n_out, n_in, n_out);
    i32 at = 0;
    for (i64 i = 0; i < n_out; i++) {
        struct bilinear_source b = bilinear_source_of(i, n_in, n_out);
        i64 begin = kind == RESIZE_AREA ? area_begin(i, n_in, n_out) : b.low;
        i64 end = kind == RESIZE_AREA ? area_end(i, n_in, n_out) : b.high + 1;
        taps.start[i] = at;
        taps.first[i] = (i32)begin;
        if (kind == RESIZE_AREA)
            for (i64 j = begin; j < end; j++)
                taps.weight[at++] = 1.0f / (float)(end - begin);
        else if (b.low == b.high)
            taps.weight[at++] = 1.0f;
        else {
            taps.weight[at++] = 1.0f - b.weight;
            taps.weight[at++] = b.weight;
        }
    }
    taps.start[n_out] = at;
    return taps;
}

/* Transposed tables: the outputs that read each input. Sources never decrease from one output to
 * the next, so these outputs are adjacent. */
static struct resize_taps taps_backward(int slot, i64 n_in, i64 n_out, enum resize kind)
{
    struct resize_taps forward = taps_forward(SLOT_TABLES_FORWARD, n_in, n_out, kind);
    struct resize_taps taps = taps_alloc(slot, n_in, n_in, n_out);
    i64 first = 0;
    i32 at = 0;
    for (i64 i = 0; i < n_in; i++) {
        taps.start[i] = at;
        while (first < n_out && forward.first[first] + forward.start[first + 1] - forward.start[first] <= i)
            first++;
        taps.first[i] = (i32)first;
        for (i64 o = first; o < n_out && forward.first[o] <= i; o++)
            taps.weight[at++] = forward.weight[forward.start[o] + i - forward.first[o]];
    }
    taps.start[n_in] = at;
    return taps;
}

static void blend(float *restrict out, const float *restrict in, i64 n, float weight, bool add)
{
    if (add) {
#pragma omp simd
        for (i64 i = 0; i < n; i++)
            out[i] += weight * in[i];
    } else {
#pragma omp simd
        for (i64 i = 0; i < n; i++)
            out[i] = weight * in[i];
    }
}

/* Blends the pixels of one destination row, [w, C], from the vertically blended line. */
static void blend_pixels(float *restrict out, const float *restrict line, const struct resize_taps *taps, i64 channels)
{
    for (i64 x = 0; x < taps->count; x++, out += channels) {
        const float *from = line + taps->first[x] * channels, *weight = taps->weight + taps->start[x];
        i64 count = taps->start[x + 1] - taps->start[x];
        if (count == 2) { /* nearly all pixels if bilinear */
#pragma omp simd
            for (i64 c = 0; c < channels; c++)
                out[c] = weight[0] * from[c] + weight[1] * from[channels + c];
            continue;
        }
        if (count == 0)
            memset(out, 0, (size_t)channels * 4);
        for (i64 tap = 0; tap < count; tap++)
            blend(out, from + tap * channels, channels, weight[tap], tap > 0);
    }
}

/* Rows [row, row + w) of a matrix, as one long row if they are contiguous. */
static struct matrix line_of(struct matrix m, i64 row, i64 w)
{
    struct matrix pixels = matrix_rows(m, row, w);
    return m.stride == m.columns ? matrix_of(pixels.data, m.dtype, 1, w * m.columns) : pixels;
}

static void run_row(void *context, i64 tile, int worker)
{
    const struct resize_job *job = context;
    i64 image = tile / job->y.count, y = tile % job->y.count, channels = job->to.columns;
    i64 from_floats = job->from_w * channels, taps = job->y.start[y + 1] - job->y.start[y];
    float *line = CPU(scratch)(worker, SLOT_LINE, from_floats * 4),
          *load = CPU(scratch)(worker, SLOT_LOAD, from_floats * 4);
    float *pixels = CPU(scratch)(worker, SLOT_PIXELS, job->x.count * channels * 4);
    if (taps == 0)
        memset(line, 0, (size_t)from_floats * 4);
    for (i64 tap = 0; tap < taps; tap++) {
        i64 row = (image * job->from_h + job->y.first[y] + tap) * job->from_w;
        struct matrix from = line_of(job->from, row, job->from_w);
        for (i64 i = 0; i < from.rows; i++)
            blend(line + i * from.columns, row_load(load, from, i), from.columns, job->y.weight[job->y.start[y] + tap],
                  tap > 0);
    }
    blend_pixels(pixels, line, &job->x, channels);
    struct matrix to = line_of(job->to, tile * job->x.count, job->x.count);
    for (i64 i = 0; i < to.rows; i++)
        (job->add ? row_store_add : row_store)(to, i, pixels + i * to.columns);
}

void CPU(resize)(struct device *device, struct matrix out, struct matrix x, i64 n, i64 h_in, i64 w_in, i64 h_out,
                 i64 w_out, enum resize kind)
{
    (void)device;
    struct resize_job job = {.to = out, .from = x, .from_h = h_in, .from_w = w_in};
    job.y = taps_forward(SLOT_TABLES_Y, h_in, h_out, kind);
    job.x = taps_forward(SLOT_TABLES_X, w_in, w_out, kind);
    workers_run(n * h_out, run_row, &job);
}

void CPU(resize_backward)(struct device *device, struct matrix dx, struct matrix dout, i64 n, i64 h_in, i64 w_in,
                          i64 h_out, i64 w_out, enum resize kind)
{
    (void)device;
    struct resize_job job = {.to = dx, .from = dout, .from_h = h_out, .from_w = w_out, .add = true};
    job.y = taps_backward(SLOT_TABLES_Y, h_in, h_out, kind);
    job.x = taps_backward(SLOT_TABLES_X, w_in, w_out, kind);
    workers_run(n * h_in, run_row, &job);
}
