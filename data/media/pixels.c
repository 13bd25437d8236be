/* Blends, turns and resamples pixels (Lanczos), in integers, so that every machine gives the same
 * result. The kernel has three lobes and is widened by the factor when shrinking (Turkowski 1990,
 * "Filters for common resampling tasks"). */
#include "data/media/file_kind.h"
#include <math.h>
#include <string.h>

enum { WEIGHT_BITS = 14 }; /* 255 * 2^14 * the sum of absolute weights (below 2) stays far below 2^31 */

/* Weights of one axis: output i reads `taps` inputs from first[i] on. */
struct pixels_axis {
    i64 outputs, taps;
    i32 *first, *weights; /* [outputs], [outputs, taps] */
};

static double lanczos3(double x)
{
    x = fabs(x);
    if (x < 1e-9)
        return 1;
    if (x >= 3)
        return 0;
    double a = M_PI * x;
    return 3 * sin(a) * sin(a / 3) / (a * a);
}

/* Rounds weights to integers that sum to exactly one, so that a flat area keeps its value. */
static void weights_round(i32 *out, const double *weights, i64 taps)
{
    double sum = 0;
    for (i64 t = 0; t < taps; t++)
        sum += weights[t];
    i32 left = 1 << WEIGHT_BITS;
    i64 largest = 0;
    for (i64 t = 0; t < taps; t++) {
        out[t] = (i32)lround(weights[t] / sum * (1 << WEIGHT_BITS));
        left -= out[t];
        if (out[t] > out[largest])
            largest = t;
    }
    out[largest] += left;
}

static void axis_init(struct pixels_axis *axis, i64 outputs, i64 inputs)
{
    double scale = (double)inputs / (double)outputs, widen = fmax(scale, 1);
    i64 taps = min_i64((i64)ceil(6 * widen) + 1, inputs);
    *axis = (struct pixels_axis){.outputs = outputs, .taps = taps};
    axis->first = memory_alloc(outputs * (i64)sizeof(i32));
    axis->weights = memory_alloc(outputs * taps * (i64)sizeof(i32));
    double *weights = memory_alloc(taps * (i64)sizeof(double));
    for (i64 i = 0; i < outputs; i++) {
        double centre = ((double)i + 0.5) * scale;
        i64 first = (i64)ceil(centre - 3 * widen - 0.5);
        first = max_i64(0, min_i64(first, inputs - taps));
        for (i64 t = 0; t < taps; t++)
            weights[t] = lanczos3(((double)(first + t) + 0.5 - centre) / widen);
        axis->first[i] = (i32)first;
        weights_round(axis->weights + i * taps, weights, taps);
    }
    memory_free(weights);
}

static void axis_release(struct pixels_axis *axis)
{
    memory_free(axis->first);
    memory_free(axis->weights);
}

static u8 to_byte(i32 sum)
{
    i32 value = (sum + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS;
    return (u8)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void resize_row(u8 *out, const u8 *in, const struct pixels_axis *axis)
{
    for (i64 i = 0; i < axis->outputs; i++, out += 3) {
        const u8 *pixel = in + axis->first[i] * 3;
        const i32 *weight = axis->weights + i * axis->taps;
        i32 red = 0, green = 0, blue = 0;
        for (i64 t = 0; t < axis->taps; t++, pixel += 3) {
            red += weight[t] * pixel[0];
            green += weight[t] * pixel[1];
            blue += weight[t] * pixel[2];
        }
        out[0] = to_byte(red);
        out[1] = to_byte(green);
        out[2] = to_byte(blue);
    }
}

static void combine_rows(u8 *out, i32 *sums, const u8 *rows, i64 row_bytes, const i32 *weights, i64 taps)
{
    memset(sums, 0, (size_t)row_bytes * sizeof *sums);
    for (i64 t = 0; t < taps; t++)
        for (i64 i = 0; i < row_bytes; i++)
            sums[i] += weights[t] * rows[t * row_bytes + i];
    for (i64 i = 0; i < row_bytes; i++)
        out[i] = to_byte(sums[i]);
}

/* Resizes in [height, width, 3] into a window of a frame whose rows are stride_bytes apart. */
static void resize_frame(u8 *out, i64 stride_bytes, const u8 *in, i64 height, i64 width, const struct pixels_axis *down,
                         const struct pixels_axis *across)
{
    i64 row_bytes = across->outputs * 3;
    u8 *narrow = memory_alloc(height * row_bytes);
    i32 *sums = memory_alloc(row_bytes * (i64)sizeof(i32));
    for (i64 y = 0; y < height; y++)
        resize_row(narrow + y * row_bytes, in + y * width * 3, across);
    for (i64 y = 0; y < down->outputs; y++)
        combine_rows(out + y * stride_bytes, sums, narrow + down->first[y] * row_bytes, row_bytes,
                     down->weights + y * down->taps, down->taps);
    memory_free(sums);
    memory_free(narrow);
}

void pixels_resize(u8 *out, i64 out_height, i64 out_width, const u8 *in, i64 height, i64 width)
{
    struct pixels_axis down, across;
    axis_init(&down, out_height, height);
    axis_init(&across, out_width, width);
    resize_frame(out, out_width * 3, in, height, width, &down, &across);
    axis_release(&down);
    axis_release(&across);
}

void picture_fit(i64 *out_height, i64 *out_width, double height, double width, i64 fit_height, i64 fit_width)
{
    double scale = fmin((double)fit_height / height, (double)fit_width / width);
    *out_height = max_i64(1, min_i64(fit_height, llround(height * scale)));
    *out_width = max_i64(1, min_i64(fit_width, llround(width * scale)));
}

void picture_fill(i64 *out_height, i64 *out_width, double height, double width, i64 fit_height, i64 fit_width,
                  double crop)
{
    double down = (double)fit_height / height, across = (double)fit_width / width;
    double cover = fmax(down, across), scale = fmin(cover, fmin(down, across) / (1 - crop));
    if (crop <= 0) {
        picture_fit(out_height, out_width, height, width, fit_height, fit_width);
        return;
    }
    *out_height = max_i64(scale == cover ? fit_height : 1, llround(height * scale));
    *out_width = max_i64(scale == cover ? fit_width : 1, llround(width * scale));
}

/* A view of the outputs [first, first + count) of an axis; borrows its arrays. */
static struct pixels_axis axis_part(const struct pixels_axis *axis, i64 first, i64 count)
{
    return (struct pixels_axis){count, axis->taps, axis->first + first, axis->weights + first * axis->taps};
}

void clip_resize(struct clip *out, const struct clip *in, i64 height, i64 width)
{
    clip_fill(out, in, height, width, 0);
}

void clip_fill(struct clip *out, const struct clip *in, i64 height, i64 width, double crop)
{
    require(height > 0 && width > 0 && in->height > 0 && in->width > 0, "a picture of %lldx%lld to %lldx%lld",
            (long long)in->height, (long long)in->width, (long long)height, (long long)width);
    i64 whole_height, whole_width;
    bool smaller = in->stored_height > 0;
    picture_fill(&whole_height, &whole_width, (double)(smaller ? in->stored_height : in->height),
                 (double)(smaller ? in->stored_width : in->width), height, width, crop);
    i64 inner_height = min_i64(whole_height, height), inner_width = min_i64(whole_width, width);
    struct pixels_axis all_down, all_across;
    axis_init(&all_down, whole_height, in->height);
    axis_init(&all_across, whole_width, in->width);
    struct pixels_axis down = axis_part(&all_down, (whole_height - inner_height) / 2, inner_height);
    struct pixels_axis across = axis_part(&all_across, (whole_width - inner_width) / 2, inner_width);
    clip_init(out, in->frames, height, width, in->rate_hz);
    out->inner_height = inner_height;
    out->inner_width = inner_width;
    out->cut = 1 - (double)(inner_height * inner_width) / (double)(whole_height * whole_width);
    memset(out->pixels, 255, (size_t)(out->frames * height * width * 3));
    i64 corner = ((height - inner_height) / 2 * width + (width - inner_width) / 2) * 3;
    for (i64 f = 0; f < in->frames; f++)
        resize_frame(out->pixels + f * height * width * 3 + corner, width * 3,
                     in->pixels + f * in->height * in->width * 3, in->height, in->width, &down, &across);
    axis_release(&all_down);
    axis_release(&all_across);
}

void pixels_blend(u8 *out, const u8 *rgba, i64 pixels, const u8 background[3])
{
    for (i64 i = 0; i < pixels; i++, out += 3, rgba += 4) {
        int alpha = rgba[3];
        for (int c = 0; c < 3; c++)
            out[c] = (u8)((rgba[c] * alpha + background[c] * (255 - alpha) + 127) / 255);
    }
}

void pixels_place(u8 *out, i64 stride, const u8 *pixels, i64 row_bytes, i64 height, i64 width, struct orientation turn)
{
    for (i64 y = 0; y < height; y++) {
        const u8 *row = pixels + y * row_bytes;
        i64 along_y = (turn.transposed ? turn.mirror_x : turn.mirror_y) ? height - 1 - y : y;
        if (!turn.transposed && !turn.mirror_x) {
            memcpy(out + along_y * stride * 3, row, (size_t)width * 3);
            continue;
        }
        for (i64 x = 0; x < width; x++) {
            i64 along_x = (turn.transposed ? turn.mirror_y : turn.mirror_x) ? width - 1 - x : x;
            i64 at = turn.transposed ? along_x * stride + along_y : along_y * stride + along_x;
            memcpy(out + at * 3, row + x * 3, 3);
        }
    }
}
