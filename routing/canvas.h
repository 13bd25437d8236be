/* Simple drawings rendered twice: as SVG with text, and as RGB
 * pixels without it (there is no font for the PNG). */
#ifndef WEFT_CANVAS_H
#define WEFT_CANVAS_H
#include "core/core.h"

enum anchor { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END };
struct canvas {
    struct buffer svg;
    u8 *pixels; /* [height, width, 3] */
    i64 width, height;
};
void canvas_open(struct canvas *canvas, i64 width, i64 height);
void canvas_close(struct canvas *canvas);
/* Drawing functions take coordinates in pixels and colors as 0xRRGGBB. */
void canvas_box(struct canvas *canvas, double x, double y, double width, double height, u32 colour);
void canvas_line(struct canvas *canvas, double x1, double y1, double x2, double y2, double thickness, u32 colour);
void canvas_text(struct canvas *canvas, double x, double y, enum anchor anchor, u32 colour, const char *format, ...)
    PRINTF(6, 7);
/* Closes the SVG and writes DIRECTORY/NAME.svg and DIRECTORY/NAME.png. Call it once: the SVG text
 * has no end tag before. 0, or -1 and a message. */
int canvas_save(struct canvas *canvas, const char *directory, const char *name);
#endif
