/* im2col: tables of sources, and the gathering of patches (patches.h). */
#include "kernels/cpu/media/patches.h"
#include "kernels/cpu/bytes.h"

/* Forward: position p reads p * stride - pad + tap * dilation. */
static i32 source_forward(const struct conv *c, int axis, i64 position, i64 tap)
{
    i64 source = position * c->stride[axis] - c->pad_front[axis] + tap * c->dilation[axis];
    return source >= 0 && source < c->size[axis] ? (i32)source : -1;
}

/* Backward: output q read input p with tap k iff q * stride = p + pad - k * dilation. Taps are
 * counted from the end, so that with stride 1 sources increase with taps and are adjacent. */
static i32 source_backward(const struct conv *c, int axis, i64 position, i64 tap)
{
    i64 scaled = position + c->pad_front[axis] - (c->kernel[axis] - 1 - tap) * c->dilation[axis];
    if (scaled < 0 || scaled % c->stride[axis])
        return -1;
    scaled /= c->stride[axis];
    return scaled < conv_out_size(c, axis) ? (i32)scaled : -1;
}

static void fill_runs(i32 *run, const struct patches *g)
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

void CPU(patches_open)(struct patches *g, struct matrix x, const struct conv *c, bool backward)
{
    i32 *table = CPU(scratch)(0, PATCHES_SLOT, conv_tables_bytes(c, backward));
    g->x = x;
    g->identity = conv_is_gemm(c);
    for (int axis = 0; axis < 3; axis++) {
        i64 out = conv_out_size(c, axis), entries = conv_table_entries(c, axis, backward);
        g->from[axis] = backward ? out : c->size[axis];
        g->to[axis] = backward ? c->size[axis] : out;
        g->kernel[axis] = c->kernel[axis];
        g->source[axis] = table;
        for (i64 i = 0; i < entries; i++)
            table[i] = (backward ? source_backward : source_forward)(c, axis, i / c->kernel[axis], i % c->kernel[axis]);
        table += entries;
    }
    fill_runs(table, g);
    g->run = table;
}

/* Adjacent positions: [w, w + count) of one (n, t, h). */
struct patch_stretch {
    i64 n, t, h, w, count;
};

/* Gathers one line of taps (all of the last axis) for each position of a stretch. base is the
 * source row of coordinate 0. */
static void gather_line(char *out, i64 patch_bytes, const struct patches *g, i64 base, i64 w, i64 count)
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

/* Gathers lines [line, line + lines) of a stretch's patches. */
static void gather_stretch(char *out, i64 patch_bytes, const struct patches *g, const struct patch_stretch *s, i64 line,
                           i64 lines)
{
    i64 line_bytes = patches_line_columns(g) * element_bytes(g->x.dtype);
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

void CPU(patches_gather)(char *out, i64 patch_bytes, const struct patches *g, i64 first, i64 count, i64 line, i64 lines)
{
    for (i64 end = first + count; first < end;) {
        struct patch_stretch s = {.w = first % g->to[2], .h = first / g->to[2] % g->to[1]};
        s.t = first / (g->to[2] * g->to[1]) % g->to[0];
        s.n = first / product3(g->to);
        s.count = min_i64(end - first, g->to[2] - s.w);
        gather_stretch(out, patch_bytes, g, &s, line, lines);
        out += s.count * patch_bytes;
        first += s.count;
    }
}
