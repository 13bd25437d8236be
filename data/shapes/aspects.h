/* Aspect buckets: the shapes that pictures and clips are fitted to (as in SDXL, arXiv 2307.01952).
 * The shapes of one tokenizer have about the same number of pixels and different proportions, so
 * that a picture that is not square neither gets wide white margins nor loses its sides.
 *
 *   areas     a tokenizer may have several, each with its shapes: a picture gets the area nearest to its own
 *   choice    of these the shape nearest in proportions (log scale), ties broken by area
 *   fitting   the picture is scaled until it covers the shape, but at most the share `crop` of a
 *             side is cut off, half at each end; beyond that, white margins make up the rest */
#ifndef WEFT_DATA_ASPECTS_H
#define WEFT_DATA_ASPECTS_H
#include "core/settings.h"

enum {
    AREAS_MOST = 4,
    ASPECTS_MOST = 8,     /* of one area */
    ASPECT_LIST_MOST = 16 /* of all areas */
};
struct aspect { /* pixels */
    i64 height, width;
    i64 area; /* number of its area, from the smallest */
};
struct aspect_list {
    i64 count;
    struct aspect items[ASPECT_LIST_MOST];
};

/* The recipe's settings for aspect buckets. */
struct aspect_settings {
    struct string_list shapes;
    double most, crop;
    i64 count;
};
/* Rows for a settings table whose struct has `struct aspect_settings aspects`. */
#define ASPECT_ROWS(type)                                                                                              \
    SETTING(type, aspects.most, "aspects.most", NUMBER, "2", 1, 64, NULL,                                              \
            "largest aspect ratio of the shapes, which all have about size x size pixels; shapes nearest to no "       \
            "image are dropped; 1: only the square"),                                                                  \
        SETTING(type, aspects.count, "aspects.count", INTEGER, "7", 1, ASPECTS_MOST, NULL,                             \
                "maximum shapes of images, and of clips: the square and landscape/portrait pairs"),                    \
        SETTING(                                                                                                       \
            type, aspects.shapes, "aspects.shapes", STRINGS, "", 0, 0, NULL,                                           \
            "explicit shapes, WIDTHxHEIGHT: multiples of the stride, area within a factor of 2 of size x size; or "    \
            "proportions WIDTH:HEIGHT, such as 4:3, of which each gets the best such shape; replaces "                 \
            "aspects.most and aspects.count"),                                                                         \
        SETTING(type, aspects.crop, "aspects.crop", NUMBER, "0.1", 0, 0.5, NULL,                                       \
                "maximum share of an image side cropped to fit a shape, if there are several shapes; white margins "   \
                "fill the rest")
/* Makes the list of shapes: the ones in settings->shapes, else the size x size square first and
 * then pairs of a long and a high shape. -1: usage error. */
int aspects_make(struct aspect_list *out, const struct aspect_settings *settings, i64 size, i64 stride);
/* Appends the shapes of a further area, about side x side pixels. -1: usage error: the side is not at least
 * twice that of the area before, `before`, or there are too many shapes. */
int aspects_add_area(struct aspect_list *list, const struct aspect_settings *settings, i64 before, i64 side,
                     i64 stride);
/* The shape for pictures of these proportions, width to height: of at least half and at most twice as
 * many cells as the square, with little to cut off and about as many cells. */
struct aspect aspect_of(double proportions, i64 size, i64 stride);
/* Distance of a height x width picture from a shape, in log proportions: 0 if equal, log 2 if twice
 * as wide. The areas' distance counts 1/1000 and only breaks ties. */
double aspect_distance(struct aspect shape, double height, double width);
i64 aspect_nearest(const struct aspect_list *list, double height, double width);
/* The area nearest to a height x width picture; the nearest shape of an area, -1: it has none. */
i64 aspect_nearest_area(const struct aspect_list *list, double height, double width);
i64 aspect_nearest_of(const struct aspect_list *list, i64 area, double height, double width);
/* What a picture of proportions `proportions` (width to height) loses in a shape: the share of its area
 * that is cut off, at most `crop`, and the share of the shape that stays white. */
void aspect_loss(double *cut, double *white, struct aspect shape, double proportions, double crop);
/* Parses WIDTHxHEIGHT. False if the text is malformed. */
bool aspect_parse(struct aspect *out, const char *text);

#endif
