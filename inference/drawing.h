/* Simple drawings rendered twice: as SVG with text, and as RGB
 * pixels without it (there is no font for the PNG). */
#ifndef WEFT_INFERENCE_DRAWING_H
#define WEFT_INFERENCE_DRAWING_H
#include "core/core.h"

enum anchor { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END };
struct drawing {
    struct text svg;
    u8 *pixels; /* [height, width, 3] */
    i64 width, height;
};
void drawing_open(struct drawing *drawing, i64 width, i64 height);
void drawing_close(struct drawing *drawing);
/* Drawing functions take coordinates in pixels and colors as 0xRRGGBB. */
void draw_box(struct drawing *drawing, double x, double y, double width, double height, u32 colour);
void draw_line(struct drawing *drawing, double x1, double y1, double x2, double y2, double thickness, u32 colour);
void draw_words(struct drawing *drawing, double x, double y, enum anchor anchor, u32 colour, const char *format, ...)
    PRINTF(6, 7);
/* Closes the SVG and writes DIRECTORY/NAME.svg and DIRECTORY/NAME.png. Call it once: the SVG text
 * has no end tag before. 0, or -1 and a message. */
int drawing_save(struct drawing *drawing, const char *directory, const char *name);
#endif
