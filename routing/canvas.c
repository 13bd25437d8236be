#include "routing/canvas.h"

#include "data/media/media.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LETTERS = 12 /* font size in pixels */ };

void canvas_open(struct canvas *d, i64 width, i64 height)
{
    *d = (struct canvas){.width = width, .height = height, .pixels = memory_alloc(width * height * 3)};
    memset(d->pixels, 0xff, (size_t)(width * height * 3));
    buffer_printf(
        &d->svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %lld %lld\" width=\"%lld\" height=\"%lld\" "
        "font-family=\"sans-serif\" font-size=\"%d\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        (long long)width, (long long)height, (long long)width, (long long)height, LETTERS);
}

void canvas_close(struct canvas *d)
{
    buffer_release(&d->svg);
    memory_free(d->pixels);
    *d = (struct canvas){0};
}

static void fill_pixel(struct canvas *d, i64 x, i64 y, u32 colour)
{
    if (x < 0 || y < 0 || x >= d->width || y >= d->height)
        return;
    u8 *pixel = d->pixels + (y * d->width + x) * 3;
    for (int c = 0; c < 3; c++)
        pixel[c] = (u8)(colour >> (16 - 8 * c));
}

static void fill_pixels(struct canvas *d, double x, double y, double width, double height, u32 colour)
{
    for (i64 row = (i64)lround(y); row < (i64)lround(y + height); row++)
        for (i64 column = (i64)lround(x); column < (i64)lround(x + width); column++)
            fill_pixel(d, column, row, colour);
}

void canvas_box(struct canvas *d, double x, double y, double width, double height, u32 colour)
{
    buffer_printf(&d->svg, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"#%06x\"/>\n", x, y, width,
                  height, (unsigned)colour);
    fill_pixels(d, x, y, width, height, colour);
}

void canvas_line(struct canvas *d, double x1, double y1, double x2, double y2, double thickness, u32 colour)
{
    buffer_printf(&d->svg,
                  "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"#%06x\" stroke-width=\"%.2f\" "
                  "stroke-linecap=\"round\"/>\n",
                  x1, y1, x2, y2, (unsigned)colour, thickness);
    double steps = ceil(fmax(fabs(x2 - x1), fabs(y2 - y1))) + 1, side = fmax(1, round(thickness));
    for (i64 i = 0; i <= (i64)steps; i++) {
        double share = (double)i / steps;
        fill_pixels(d, x1 + (x2 - x1) * share - side / 2, y1 + (y2 - y1) * share - side / 2, side, side, colour);
    }
}

/* Escapes the characters that are special in XML. */
static void put_escaped(struct buffer *out, const char *words)
{
    for (const char *at = words; *at; at++)
        if (*at == '<' || *at == '>' || *at == '&')
            buffer_printf(out, "&#%d;", *at);
        else
            buffer_append(out, at, 1);
}

void canvas_text(struct canvas *d, double x, double y, enum anchor anchor, u32 colour, const char *format, ...)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    char words[256];
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof words, format, list);
    va_end(list);
    buffer_printf(&d->svg, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\" fill=\"#%06x\">", x, y, anchors[anchor],
                  (unsigned)colour);
    put_escaped(&d->svg, words);
    buffer_printf(&d->svg, "</text>\n");
}

int canvas_save(struct canvas *d, const char *directory, const char *name)
{
    char *svg = string_format("%s/%s.svg", directory, name), *png = string_format("%s/%s.png", directory, name);
    buffer_printf(&d->svg, "</svg>\n");
    int status = file_replace(svg, d->svg.data, d->svg.length);
    if (status == 0)
        status = image_write_png(png, d->pixels, d->height, d->width);
    memory_free(svg);
    memory_free(png);
    return status;
}
