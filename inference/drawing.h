/* Plain pictures, drawn once and kept twice: as SVG with its words, and as pixels without them (a PNG has no font). */
#ifndef WEFT_STUDIO_DRAWING_H
#define WEFT_STUDIO_DRAWING_H
#include "core/core.h"

enum anchor { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END };
struct drawing {
    struct text svg;
    u8 *pixels; /* [height, width, 3] */
    i64 width, height;
};
void drawing_open(struct drawing *drawing, i64 width, i64 height);
void drawing_close(struct drawing *drawing);
/* colour 0xRRGGBB */
void draw_box(struct drawing *drawing, double x, double y, double width, double height, u32 colour);
void draw_line(struct drawing *drawing, double x1, double y1, double x2, double y2, double thickness, u32 colour);
void draw_words(struct drawing *drawing, double x, double y, enum anchor anchor, u32 colour, const char *format, ...)
    PRINTF(6, 7);
/* DIRECTORY/NAME.svg and .png. The SVG's text goes on without its end tag until here. */
int drawing_save(struct drawing *drawing, const char *directory, const char *name);
#endif
