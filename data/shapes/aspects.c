#include "data/shapes/aspects.h"

#include <math.h>
#include <stdio.h>

double aspect_distance(struct aspect shape, double height, double width)
{
    double h = (double)shape.height, w = (double)shape.width;
    return fabs(log(h / w) - log(height / width)) + 1e-3 * fabs(log(h * w) - log(height * width));
}

i64 aspect_nearest_area(const struct aspect_list *list, double height, double width)
{
    double least = INFINITY;
    i64 area = 0;
    for (i64 i = 0; i < list->count; i++) {
        struct aspect a = list->items[i];
        double away = fabs(log((double)(a.height * a.width)) - log(height * width));
        if (away < least) {
            least = away;
            area = a.area;
        }
    }
    return area;
}

i64 aspect_nearest_of(const struct aspect_list *list, i64 area, double height, double width)
{
    i64 best = -1;
    for (i64 i = 0; i < list->count; i++)
        if (list->items[i].area == area && (best < 0 || aspect_distance(list->items[i], height, width) <
                                                            aspect_distance(list->items[best], height, width)))
            best = i;
    return best;
}

i64 aspect_nearest(const struct aspect_list *list, double height, double width)
{
    return aspect_nearest_of(list, aspect_nearest_area(list, height, width), height, width);
}

bool aspect_parse(struct aspect *out, const char *text)
{
    long long width, height;
    int end = 0;
    if (sscanf(text, "%lldx%lld%n", &width, &height, &end) != 2 || text[end] || width < 1 || height < 1 ||
        width > 1 << 16 || height > 1 << 16)
        return false;
    *out = (struct aspect){height, width};
    return true;
}

/* Twice as many cells count as much as 8 % of the picture. */
static double aspect_cost(double proportions, double columns, double rows, double cells)
{
    double other = columns / rows, lost = 1 - fmin(proportions, other) / fmax(proportions, other);
    return lost + 0.08 * fabs(log2(columns * rows / cells));
}

struct aspect aspect_of(double proportions, i64 size, i64 stride)
{
    i64 side = max_i64(1, size / stride), best_rows = side, best_columns = side;
    double cells = (double)(side * side), least = aspect_cost(proportions, 1, 1, 1);
    for (i64 rows = 1; rows <= 2 * side * side && side > 1; rows++)
        for (i64 columns = 1; columns * rows <= 2 * side * side; columns++) {
            double cost = aspect_cost(proportions, (double)columns, (double)rows, cells);
            if (2 * columns * rows >= side * side && cost < least - 1e-9) {
                least = cost;
                best_rows = rows;
                best_columns = columns;
            }
        }
    return (struct aspect){best_rows * stride, best_columns * stride};
}

void aspect_loss(double *cut, double *white, struct aspect shape, double proportions, double crop)
{
    double other = (double)shape.width / (double)shape.height;
    double lost = 1 - fmin(proportions, other) / fmax(proportions, other);
    *cut = fmin(lost, crop);
    *white = 1 - (1 - lost) / (1 - *cut);
}

/* Parses WIDTH:HEIGHT. */
static bool parse_proportions(double *out, const char *text)
{
    double width, height;
    int end = 0;
    if (sscanf(text, "%lf:%lf%n", &width, &height, &end) != 2 || text[end] || !(width > 0) || !(height > 0))
        return false;
    *out = width / height;
    return *out >= 1.0 / 64 && *out <= 64;
}

static bool has_shape(const struct aspect_list *list, struct aspect a)
{
    for (i64 i = 0; i < list->count; i++)
        if (list->items[i].height == a.height && list->items[i].width == a.width)
            return true;
    return false;
}

/* Two proportions may have the same shape, which is taken once. */
static int take_proportions(struct aspect_list *out, double proportions, i64 size, i64 stride)
{
    struct aspect a = aspect_of(proportions, size, stride);
    if (!has_shape(out, a))
        out->items[out->count++] = a;
    return 0;
}

static int take_shape(struct aspect_list *out, const char *text, i64 size, i64 stride)
{
    struct aspect a;
    double proportions;
    if (parse_proportions(&proportions, text))
        return take_proportions(out, proportions, size, stride);
    if (!aspect_parse(&a, text))
        return error_usage("aspects.shapes: \"%s\" is no shape; expected WIDTHxHEIGHT, as 96x64, or WIDTH:HEIGHT, as "
                           "4:3",
                           text);
    if (a.height % stride || a.width % stride)
        return error_usage("aspects.shapes: %s: width and height must be multiples of the stride, %lld; the nearest is "
                           "%lldx%lld",
                           text, (long long)stride,
                           (long long)max_i64(stride, (a.width + stride / 2) / stride * stride),
                           (long long)max_i64(stride, (a.height + stride / 2) / stride * stride));
    if (a.height * a.width > 2 * size * size || 2 * a.height * a.width < size * size)
        return error_usage("aspects.shapes: %s has %.2g times as many pixels as %lldx%lld (size); shapes of one "
                           "tokenizer have as many to within a factor of 2",
                           text, (double)(a.height * a.width) / (double)(size * size), (long long)size,
                           (long long)size);
    if (has_shape(out, a))
        return error_usage("aspects.shapes: %s is there twice", text);
    out->items[out->count++] = a;
    return 0;
}

static int take_listed(struct aspect_list *out, const struct string_list *shapes, i64 size, i64 stride)
{
    if (shapes->count > ASPECTS_MOST)
        return error_usage("aspects.shapes: %lld shapes, at most %d are possible", (long long)shapes->count,
                           ASPECTS_MOST);
    for (i64 i = 0; i < shapes->count; i++)
        if (take_shape(out, shapes->values[i], size, stride) < 0)
            return -1;
    return 0;
}

/* Cells in the width of a long shape that is `rows` cells high; it never has more cells than the
 * square. */
static i64 columns_of(i64 side, i64 rows)
{
    return side * side / rows;
}

/* Rows of the long shape with proportions nearest to `target`; 0 if none is within `most`. */
static i64 rows_near(double target, i64 side, double most)
{
    i64 best = 0;
    double least = INFINITY;
    for (i64 rows = side - 1; rows >= 1; rows--) {
        double proportions = (double)columns_of(side, rows) / (double)rows, away = fabs(log(proportions / target));
        if (proportions <= most && away < least) {
            least = away;
            best = rows;
        }
    }
    return best;
}

static bool has_height(const struct aspect_list *list, i64 height)
{
    for (i64 i = 0; i < list->count; i++)
        if (list->items[i].height == height)
            return true;
    return false;
}

/* Adds pairs of long and high shapes whose proportions are spaced geometrically up to `most`,
 * rounded to whole cells. */
static void add_spaced(struct aspect_list *out, double most, i64 count, i64 side, i64 stride)
{
    i64 pairs = (count - 1) / 2, last = rows_near(most, side, most);
    double longest = last ? (double)columns_of(side, last) / (double)last : 1;
    for (i64 i = 1; i <= pairs && last; i++) {
        i64 rows = rows_near(pow(longest, (double)i / (double)pairs), side, most), columns = columns_of(side, rows);
        if (has_height(out, rows * stride))
            continue;
        out->items[out->count++] = (struct aspect){rows * stride, columns * stride};
        out->items[out->count++] = (struct aspect){columns * stride, rows * stride};
    }
}

int aspects_make(struct aspect_list *out, const struct aspect_settings *s, i64 size, i64 stride)
{
    *out = (struct aspect_list){0};
    if (s->shapes.count)
        return take_listed(out, &s->shapes, size, stride);
    out->items[out->count++] = (struct aspect){size, size};
    if (size % stride == 0) /* otherwise the tokenizer reports the error */
        add_spaced(out, s->most, s->count, size / stride, stride);
    return 0;
}

int aspects_add_area(struct aspect_list *list, const struct aspect_settings *s, i64 before, i64 side, i64 stride)
{
    struct aspect_list more;
    i64 area = list->items[list->count - 1].area + 1;
    if (side < 2 * before)
        return error_usage("areas: %lld after %lld (size and areas): expected sides that at least double",
                           (long long)side, (long long)before);
    if (side % stride)
        return error_usage("areas: %lld is no multiple of the stride, %lld", (long long)side, (long long)stride);
    if (area == AREAS_MOST)
        return error_usage("areas: size and %lld more; expected at most %d areas in all", (long long)area, AREAS_MOST);
    if (aspects_make(&more, s, side, stride) < 0)
        return -1;
    if (list->count + more.count > ASPECT_LIST_MOST)
        return error_usage("%lld shapes in all areas; expected at most %d: set aspects.count, or aspects.most: 1",
                           (long long)(list->count + more.count), ASPECT_LIST_MOST);
    for (i64 i = 0; i < more.count; i++) {
        more.items[i].area = area;
        list->items[list->count++] = more.items[i];
    }
    return 0;
}
