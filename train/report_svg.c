#include "train/report.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 640, HEIGHT = 300, LEFT = 56, RIGHT = 12, TOP = 34, BOTTOM = 40, TICKS = 5 };

struct frame {
    double x0, x1, y0, y1;
    bool log_y;
};

static double value_of(const struct frame *f, double y)
{
    return f->log_y ? log10(fmax(y, 1e-12)) : y;
}

static double place_x(const struct frame *f, double x)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (f->x1 > f->x0 ? (x - f->x0) / (f->x1 - f->x0) : 0.5);
}

static double place_y(const struct frame *f, double y)
{
    return HEIGHT - BOTTOM -
           (HEIGHT - TOP - BOTTOM) * (f->y1 > f->y0 ? (value_of(f, y) - f->y0) / (f->y1 - f->y0) : 0.5);
}

static struct frame frame_of(const struct chart *c)
{
    struct frame f = {INFINITY, -INFINITY, INFINITY, -INFINITY, c->log_y};
    for (int l = 0; l < c->line_count; l++)
        for (i64 i = 0; i < c->lines[l].n; i++) {
            double y = c->lines[l].y[i];
            if (!isfinite(y))
                continue;
            f.x0 = fmin(f.x0, c->lines[l].x[i]);
            f.x1 = fmax(f.x1, c->lines[l].x[i]);
            f.y0 = fmin(f.y0, value_of(&f, y));
            f.y1 = fmax(f.y1, value_of(&f, y));
        }
    if (!isfinite(f.x0))
        f = (struct frame){0, 1, 0, 1, c->log_y};
    double margin = f.y1 > f.y0 ? 0.05 * (f.y1 - f.y0) : 0.5;
    f.y0 -= margin;
    f.y1 += margin;
    return f;
}

/* 1, 2 or 5 times a power of ten. */
static double round_step(double span)
{
    double power = pow(10, floor(log10(span / TICKS))), rest = span / TICKS / power;
    return power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
}

/* 1800, 18k, 1.8M */
static void print_tick(struct text *out, double value)
{
    double size = fabs(value);
    if (size >= 1e6)
        text_printf(out, "%.4gM", value * 1e-6);
    else if (size >= 1e4)
        text_printf(out, "%.4gk", value * 1e-3);
    else
        text_printf(out, "%.4g", value);
}

static void axes(struct text *out, const struct chart *c, const struct frame *f)
{
    double step_x = round_step(fmax(f->x1 - f->x0, 1e-9)), step_y = round_step(fmax(f->y1 - f->y0, 1e-9));
    for (double y = ceil(f->y0 / step_y) * step_y; y <= f->y1; y += step_y) {
        double at = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - f->y0) / (f->y1 - f->y0);
        text_printf(out, "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' class='g'/><text x='%d' y='%.1f' class='t e'>",
                    LEFT, WIDTH - RIGHT, at, at, LEFT - 6, at + 4);
        print_tick(out, f->log_y ? pow(10, y) : fabs(y) < 1e-9 * step_y ? 0 : y);
        text_printf(out, "</text>");
    }
    for (double x = ceil(f->x0 / step_x) * step_x; x <= f->x1; x += step_x)
        text_printf(out, "<text x='%.1f' y='%d' class='t m'>%.6g</text>", place_x(f, x), HEIGHT - BOTTOM + 16, x);
    text_printf(out, "<text x='%d' y='%d' class='t m'>%s</text>", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, c->x_label);
    text_printf(out, "<text x='%d' y='16' class='h'>%s<tspan class='t'>%s%s</tspan></text>", LEFT, c->title,
                *c->y_label ? " " : "", c->y_label);
}

/* At most some hundred points: means of runs, so that a page of long curves stays small. */
static void line(struct text *out, const struct chart_line *l, const struct frame *f)
{
    enum { POINTS = 300 };
    i64 run = max_i64(1, ceil_div(l->n, POINTS));
    bool open = false;
    text_printf(out, "<path class='l' stroke='%s' d='", l->colour);
    for (i64 i = 0; i < l->n; i += run) {
        double x = 0, y = 0;
        i64 n = 0;
        for (i64 k = i; k < l->n && k < i + run; k++)
            if (isfinite(l->y[k])) {
                x += l->x[k];
                y += l->y[k];
                n++;
            }
        if (n)
            text_printf(out, "%c%.1f %.1f", open ? 'L' : 'M', place_x(f, x / (double)n), place_y(f, y / (double)n));
        open = n > 0;
    }
    text_printf(out, "'/>");
}

void chart_svg(struct text *out, const struct chart *c)
{
    struct frame f = frame_of(c);
    int x = WIDTH - RIGHT;
    text_printf(out, "<svg viewBox='0 0 %d %d' role='img' aria-label='%s'>", WIDTH, HEIGHT, c->title);
    axes(out, c, &f);
    for (int l = 0; l < c->line_count; l++)
        line(out, &c->lines[l], &f);
    for (int l = c->line_count - 1; l >= 0 && c->line_count > 1; l--) {
        text_printf(out, "<text x='%d' y='16' class='t e' style='fill:%s'>%s</text>", x, c->lines[l].colour,
                    c->lines[l].name);
        for (const char *at = c->lines[l].name; *at; at++)
            x -= 7;
        x -= 12;
    }
    text_printf(out, "</svg>");
}
