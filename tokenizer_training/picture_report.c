#include "tokenizer_training/picture_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- sheets ---- */

struct picture_sheet picture_sheet_open(i64 height, i64 width, i64 frames, i64 items, i64 parts)
{
    struct picture_sheet s = {.height = height, .width = width, .parts = parts, .items = items, .frames = frames};
    s.rows = frames > 1 ? parts * items : ceil_div(items, SHEET_COLUMNS);
    s.columns = frames > 1 ? frames : parts * SHEET_COLUMNS;
    i64 bytes = height * width * 3 * s.rows * s.columns;
    s.pixels = memory_alloc(bytes);
    memset(s.pixels, 255, (size_t)bytes);
    return s;
}

static void put_picture(struct picture_sheet *sheet, const u8 *picture, i64 row, i64 column)
{
    i64 line = sheet->width * 3, stride = sheet->columns * line;
    for (i64 y = 0; y < sheet->height; y++)
        memcpy(sheet->pixels + (row * sheet->height + y) * stride + column * line, picture + y * line, (size_t)line);
}

void picture_sheet_put(struct picture_sheet *s, i64 item, const u8 *const parts[])
{
    i64 bytes = s->height * s->width * 3;
    for (i64 p = 0; p < s->parts && item < s->items; p++)
        for (i64 f = 0; f < s->frames; f++)
            if (s->frames > 1)
                put_picture(s, parts[p] + f * bytes, s->parts * item + p, f);
            else
                put_picture(s, parts[p], item / SHEET_COLUMNS, item % SHEET_COLUMNS * s->parts + p);
}

int picture_sheet_close(struct picture_sheet *sheet, const char *folder, const char *name)
{
    char *samples = path_join(folder, "samples"), *path = path_join(samples, name);
    int status = directory_make_one(samples);
    if (status == 0)
        status = image_write_png(path, sheet->pixels, sheet->rows * sheet->height, sheet->columns * sheet->width);
    memory_free(sheet->pixels);
    memory_free(samples);
    memory_free(path);
    return status;
}

struct json *picture_sheet_json(const struct picture_sheet *s, const char *name, double rate_hz)
{
    struct json *j = json_object();
    char *file = path_join("samples", name);
    json_set(j, "file", json_of_string(file));
    json_set(j, "pairs", json_of_integer(s->items));
    if (s->parts != 2)
        json_set(j, "parts", json_of_integer(s->parts));
    json_set(j, "frames", json_of_integer(s->frames));
    json_set(j, "rate_hz", json_of_number(rate_hz));
    json_set(j, "rows", json_of_integer(s->rows));
    json_set(j, "columns", json_of_integer(s->columns));
    json_set(j, "height", json_of_integer(s->height));
    json_set(j, "width", json_of_integer(s->width));
    memory_free(file);
    return j;
}

/* ---- measures ---- */

/* The picture inside the margins of a clip. */
struct inner_area {
    i64 top, left, height, width;
};

static struct inner_area area_of(const struct clip *item)
{
    struct inner_area a = {.height = item->inner_height ? item->inner_height : item->height,
                           .width = item->inner_width ? item->inner_width : item->width};
    a.top = (item->height - a.height) / 2;
    a.left = (item->width - a.width) / 2;
    return a;
}

double picture_edges(const struct clip *item, const u8 *pixels)
{
    struct inner_area a = area_of(item);
    i64 line = item->width * 3, sum = 0;
    for (i64 y = 0; y < item->frames * a.height; y++) {
        const u8 *at = pixels + ((y / a.height * item->height + a.top + y % a.height) * item->width + a.left) * 3;
        for (i64 i = 0; i < a.width * 3; i++) {
            sum += i + 3 < a.width * 3 ? abs(at[i + 3] - at[i]) : 0;
            sum += y % a.height + 1 < a.height ? abs(at[i + line] - at[i]) : 0;
        }
    }
    return (double)sum;
}

enum { WINDOW = 11, MOMENTS = 5 }; /* means of x, y, x^2, y^2 and x y */

/* Of the pixels of an area, ITU-R BT.601. */
static void luminance(double *out, const u8 *pixels, const struct inner_area *a, i64 width)
{
    for (i64 y = 0; y < a->height; y++)
        for (i64 x = 0; x < a->width; x++) {
            const u8 *p = pixels + ((a->top + y) * width + a->left + x) * 3;
            out[y * a->width + x] = 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2];
        }
}

/* Gaussian weights of `taps` values, whose sum is 1. */
static void gaussian(double *out, i64 taps)
{
    double sum = 0;
    for (i64 i = 0; i < taps; i++) {
        double x = ((double)i - 0.5 * (double)(taps - 1)) / 1.5;
        sum += out[i] = exp(-0.5 * x * x);
    }
    for (i64 i = 0; i < taps; i++)
        out[i] /= sum;
}

static double similarity(const double m[MOMENTS])
{
    const double c1 = 0.01 * 255 * 0.01 * 255, c2 = 0.03 * 255 * 0.03 * 255;
    double x = m[2] - m[0] * m[0], y = m[3] - m[1] * m[1], both = m[4] - m[0] * m[1];
    return (2 * m[0] * m[1] + c1) * (2 * both + c2) / ((m[0] * m[0] + m[1] * m[1] + c1) * (x + y + c2));
}

/* Of two frames of luminance [height, width]. */
static double frame_similarity(const double *x, const double *y, i64 height, i64 width)
{
    i64 down = min_i64(WINDOW, height), across = min_i64(WINDOW, width), wide = width - across + 1;
    double weights[2][WINDOW], sum = 0;
    double(*rows)[MOMENTS] = memory_alloc(height * wide * (i64)sizeof *rows);
    gaussian(weights[0], down);
    gaussian(weights[1], across);
    for (i64 at = 0; at < height * wide; at++)
        for (i64 k = 0; k < across; k++) {
            i64 i = at / wide * width + at % wide + k;
            const double of[MOMENTS] = {x[i], y[i], x[i] * x[i], y[i] * y[i], x[i] * y[i]};
            for (int m = 0; m < MOMENTS; m++)
                rows[at][m] += weights[1][k] * of[m];
        }
    for (i64 at = 0; at < (height - down + 1) * wide; at++) {
        double moments[MOMENTS] = {0};
        for (i64 k = 0; k < down; k++)
            for (int m = 0; m < MOMENTS; m++)
                moments[m] += weights[0][k] * rows[at + k * wide][m];
        sum += similarity(moments);
    }
    memory_free(rows);
    return sum / (double)((height - down + 1) * wide);
}

double picture_similarity(const struct clip *item, const u8 *pixels)
{
    struct inner_area a = area_of(item);
    i64 bytes = item->height * item->width * 3;
    double *x = memory_alloc(a.height * a.width * 8), *y = memory_alloc(a.height * a.width * 8), sum = 0;
    for (i64 f = 0; f < item->frames; f++) {
        luminance(x, item->pixels + f * bytes, &a, item->width);
        luminance(y, pixels + f * bytes, &a, item->width);
        sum += frame_similarity(x, y, a.height, a.width);
    }
    memory_free(x);
    memory_free(y);
    return sum / (double)item->frames;
}
