/* Aspects: the shapes that pictures are fitted to, and which of them one gets. Shapes of one tokenizer have about the
 * same number of pixels and different proportions (aspect buckets, as SDXL has them, arXiv 2307.01952), so that a
 * picture that is no square neither stands in a white box nor loses its sides:
 *
 *   which shape    the nearest in proportions, a factor wider as far as a factor higher; of two alike the nearer in
 * area how            scaled until it covers the shape, but that no more than the share `crop` of a side is cut off (at
 *                  both ends alike); where that is not enough, white margins make up the rest */
#ifndef WEFT_DATA_ASPECTS_H
#define WEFT_DATA_ASPECTS_H
#include "core/settings.h"

enum { ASPECTS_MOST = 8 };
struct aspect { /* pixels */
    i64 height, width;
};
struct aspect_list {
    i64 count;
    struct aspect items[ASPECTS_MOST];
};

/* What a recipe says of them. */
struct aspect_settings {
    struct string_list shapes;
    double most, crop;
    i64 count;
};
/* Rows for a settings table whose struct has `struct aspect_settings aspects`. */
#define ASPECT_ROWS(type)                                                                                              \
    SETTING(type, aspects.most, "aspects.most", NUMBER, "2", 1, 64, NULL,                                              \
            "proportions of the longest and of the highest shape that pictures and clips are fitted to, all of about " \
            "size x size pixels; those that no picture is nearest to are left out; 1: the square alone"),              \
        SETTING(type, aspects.count, "aspects.count", INTEGER, "7", 1, ASPECTS_MOST, NULL,                             \
                "most shapes of pictures, and as many of clips: the square, and pairs of a long and a high one"),      \
        SETTING(type, aspects.shapes, "aspects.shapes", STRINGS, "", 0, 0, NULL,                                       \
                "the shapes themselves as WIDTHxHEIGHT, each a multiple of the stride and of size x size pixels to "   \
                "within a factor of 2, in place of aspects.most and aspects.count"),                                   \
        SETTING(type, aspects.crop, "aspects.crop", NUMBER, "0.1", 0, 0.5, NULL,                                       \
                "share of a picture's side that may be cut off where no shape has its proportions, once there are "    \
                "several shapes; what is left is a white margin")
/* The square of `size` first, or what is listed, in order. -1: a usage error. */
int aspects_make(struct aspect_list *out, const struct aspect_settings *settings, i64 size, i64 stride);
/* How far a picture of height x width is from a shape: 0 is the same, log 2 is twice as wide. */
double aspect_distance(struct aspect shape, double height, double width);
i64 aspect_nearest(const struct aspect_list *list, double height, double width);
/* WIDTHxHEIGHT. False: it is none. */
bool aspect_parse(struct aspect *out, const char *text);

#endif
