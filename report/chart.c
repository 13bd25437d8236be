#include "report/chart.h"
#include "report/page.h"

#include "report/html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 360, HEIGHT = 216, LEFT = 50, TOP = 26, BOTTOM = 34, TICKS = 4, POINTS = 120, LETTER = 13 };

struct chart_axis { /* maps values lo..hi to pixels from..to */
    double lo, hi, from, to;
};
struct chart_frame {
    struct chart_axis x, y;
};

static double axis_position(const struct chart_axis *a, double value)
{
    double share = a->hi > a->lo ? (value - a->lo) / (a->hi - a->lo) : 0.5;
    return a->from + (a->to - a->from) * fmin(fmax(share, -0.02), 1.02);
}

static void axis_include(struct chart_axis *a, double value)
{
    if (isfinite(value)) {
        a->lo = fmin(a->lo, value);
        a->hi = fmax(a->hi, value);
    }
}

/* Rounds a tick step to 1, 2 or 5 times a power of ten. */
static double round_step(double span)
{
    double power = pow(10, floor(log10(span / TICKS))), rest = span / TICKS / power;
    return power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
}

static int decimals(double step)
{
    return step > 0 ? (int)fmax(0, ceil(-log10(step) - 1e-9)) : 0;
}

/* Writes a tick label such as 1800, 18 k, 1.8 M or 2e-5, with enough digits to distinguish it from its
 * neighbors. All ticks of an axis have the unit of the largest. */
static void put_tick(struct buffer *out, const struct chart_axis *a, double value, double step, bool percent)
{
    double size = fmax(fmax(fabs(a->lo), fabs(a->hi)), 4 * step);
    double by = percent ? 1e-2 : size >= 1e6 ? 1e6 : size >= 1e4 ? 1e3 : 1;
    const char *unit = percent ? "\u00a0%" : size >= 1e6 ? "\u00a0M" : size >= 1e4 ? "\u00a0k" : "";
    int exponent = (int)floor(log10(fmax(fmax(fabs(a->lo), fabs(a->hi)), step)));
    if (fabs(value) < 1e-6 * step)
        buffer_printf(out, percent ? "0\u00a0%%" : "0");
    else if (exponent < -3 && !percent)
        buffer_printf(out, "%.*fe%d", decimals(step / pow(10, exponent)), value / pow(10, exponent), exponent);
    else
        buffer_printf(out, "%.*f%s", decimals(step / by), value / by, unit);
}

static void put_svg(struct buffer *out, double height, const char *about)
{
    buffer_printf(out, "<svg viewBox='0 0 %d %.0f' role='img' aria-label='", WIDTH, height);
    html_text(out, about);
    buffer_printf(out, "'>");
}

static void put_words(struct buffer *out, double x, double y, const char *class, const char *words)
{
    buffer_printf(out, "<text x='%.1f' y='%.1f' class='%s'>", x, y, class);
    html_text(out, words);
    buffer_printf(out, "</text>");
}

static void draw_y_axis(struct buffer *out, const struct chart_frame *f, const struct chart *c)
{
    double span = f->y.hi - f->y.lo, step = round_step(span);
    for (i64 i = (i64)ceil(f->y.lo / step - 1e-6); (double)i * step <= f->y.hi + 1e-6 * span; i++) {
        double value = (double)i * step, y = axis_position(&f->y, value);
        buffer_printf(out, "<path class='g' d='M%.1f %.1fH%.1f'/><text x='%d' y='%.1f' class='e'>", f->x.from, y,
                      f->x.to, LEFT - 6, y + 4);
        put_tick(out, &f->y, value, step, c->percent);
        buffer_printf(out, "</text>");
    }
    put_words(out, 2, 12, "u", c->y_name);
}

static void draw_x_axis(struct buffer *out, const struct chart_axis *a, double y, double least_step, const char *name)
{
    double span = a->hi - a->lo, step = fmax(round_step(span), least_step);
    for (i64 i = (i64)ceil(a->lo / step - 1e-6); (double)i * step <= a->hi + 1e-6 * span; i++) {
        double x = axis_position(a, (double)i * step);
        buffer_printf(out, "<path class='k' d='M%.1f %.1fv4'/><text x='%.1f' y='%.1f' class='m'>", x, y, x, y + 17);
        put_tick(out, a, (double)i * step, step, false);
        buffer_printf(out, "</text>");
    }
    buffer_printf(out, "<path class='k' d='M%.1f %.1fH%.1f'/>", a->from, y, a->to);
    put_words(out, WIDTH - 4, y + 31, "e u", name);
}

/* ---- Lines ---- */

struct chart_bin {
    double x, y, low, high;
};

static struct chart_bin bin_of(const struct chart_line *l, i64 begin, i64 end)
{
    struct chart_bin b = {0, 0, INFINITY, -INFINITY};
    for (i64 i = begin; i < end; i++) {
        b.x += l->x[i] / (double)(end - begin);
        b.y += l->y[i] / (double)(end - begin);
        b.low = fmin(b.low, l->low ? l->low[i] : l->y[i]);
        b.high = fmax(b.high, l->high ? l->high[i] : l->y[i]);
    }
    return b;
}

static i64 bin_length(const struct chart_line *l)
{
    return max_i64(1, ceil_div(l->n, POINTS));
}

static struct chart_bin last_bin(const struct chart_line *l)
{
    i64 run = bin_length(l), begin = (l->n - 1) / run * run;
    return bin_of(l, begin, l->n);
}

static void draw_band(struct buffer *out, const struct chart_frame *f, const struct chart_line *l)
{
    i64 run = bin_length(l), bins = ceil_div(l->n, run);
    buffer_printf(out, "<path class='b c%d' d='", l->colour % CHART_COLOURS);
    for (i64 i = 0; i < bins; i++) {
        struct chart_bin b = bin_of(l, i * run, min_i64((i + 1) * run, l->n));
        buffer_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', axis_position(&f->x, b.x), axis_position(&f->y, b.high));
    }
    for (i64 i = bins - 1; i >= 0; i--) {
        struct chart_bin b = bin_of(l, i * run, min_i64((i + 1) * run, l->n));
        buffer_printf(out, "L%.1f %.1f", axis_position(&f->x, b.x), axis_position(&f->y, b.low));
    }
    buffer_printf(out, "Z'/>");
}

static void draw_line(struct buffer *out, const struct chart_frame *f, const struct chart_line *l)
{
    i64 run = bin_length(l);
    if (run > 1 || l->low)
        draw_band(out, f, l);
    buffer_printf(out, "<path class='l c%d' d='", l->colour % CHART_COLOURS);
    for (i64 i = 0; i < l->n; i += run) {
        struct chart_bin b = bin_of(l, i, min_i64(i + run, l->n));
        buffer_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', axis_position(&f->x, b.x), axis_position(&f->y, b.y));
    }
    buffer_printf(out, "'/>");
    if (l->n == 1)
        buffer_printf(out, "<circle class='f c%d' r='3' cx='%.1f' cy='%.1f'/>", l->colour % CHART_COLOURS,
                      axis_position(&f->x, l->x[0]), axis_position(&f->y, l->y[0]));
}

/* ---- Labels of lines ---- */

struct chart_label {
    double y;
    const char *name;
    int colour;
};

/* Sorts labels from top to bottom and moves them a text height apart, within the frame. */
static void separate_labels(struct chart_label *labels, i64 count, double top, double bottom)
{
    for (i64 i = 1; i < count; i++)
        for (i64 k = i; k > 0 && labels[k].y < labels[k - 1].y; k--) {
            struct chart_label other = labels[k];
            labels[k] = labels[k - 1];
            labels[k - 1] = other;
        }
    for (i64 i = 0; i < count; i++)
        labels[i].y = fmax(labels[i].y, i ? labels[i - 1].y + LETTER : top);
    double below = bottom;
    for (i64 i = count - 1; i >= 0; i--, below -= LETTER)
        labels[i].y = fmin(labels[i].y, below);
}

static void draw_labels(struct buffer *out, const struct chart_frame *f, const struct chart *c)
{
    struct chart_label *labels = memory_alloc((c->line_count + 1) * (i64)sizeof *labels);
    i64 count = 0;
    for (i64 i = 0; i < c->line_count; i++)
        if (c->lines[i].n && *c->lines[i].name)
            labels[count++] = (struct chart_label){axis_position(&f->y, last_bin(&c->lines[i]).y), c->lines[i].name,
                                                   c->lines[i].colour};
    separate_labels(labels, count, TOP + 4, HEIGHT - BOTTOM - 2);
    for (i64 i = 0; i < count; i++) {
        char class[24];
        snprintf(class, sizeof class, "d c%d", labels[i].colour % CHART_COLOURS);
        put_words(out, f->x.to + 6, labels[i].y + 4, class, labels[i].name);
    }
    memory_free(labels);
}

/* ---- Marks, with labels where there is room ---- */

struct label_box {
    double x, y, width, height;
};

static bool overlap(const struct label_box *a, const struct label_box *b)
{
    return a->x < b->x + b->width && b->x < a->x + a->width && a->y < b->y + b->height && b->y < a->y + a->height;
}

/* Box of the label of a mark at x, y: the first candidate position that overlaps no other box. */
static struct label_box place_words(const struct chart_frame *f, const struct label_box *boxes, i64 count, double x,
                                    double y, const char *words)
{
    double width = 7.2 * (double)strlen(words), height = LETTER;
    const struct label_box places[] = {{x + 7, y - 14, width, height},         {x - 7 - width, y - 14, width, height},
                                       {x + 7, y + 2, width, height},          {x - 7 - width, y + 2, width, height},
                                       {x - width / 2, y - 22, width, height}, {x - width / 2, y + 10, width, height},
                                       {x - 12 - width, y - 6, width, height}, {x + 12, y - 6, width, height}};
    for (i64 i = 0; i < COUNT_OF(places); i++) {
        bool free = places[i].x >= f->x.from && places[i].x + width <= WIDTH && places[i].y + height <= f->y.from;
        for (i64 k = 0; k < count && free; k++)
            free = !overlap(&places[i], &boxes[k]);
        if (free)
            return places[i];
    }
    return places[0];
}

static void draw_marks(struct buffer *out, const struct chart_frame *f, const struct chart *c)
{
    struct label_box *boxes = memory_alloc((2 * c->mark_count + 1) * (i64)sizeof *boxes);
    i64 count = 0;
    for (i64 i = 0; i < c->mark_count; i++) {
        const struct chart_mark *m = &c->marks[i];
        double x = axis_position(&f->x, m->x), y = axis_position(&f->y, m->y), r = m->main ? 8 : 4;
        if (!isfinite(m->x) || !isfinite(m->y))
            continue;
        if (m->main)
            buffer_printf(out, "<circle class='r c%d' r='8' cx='%.1f' cy='%.1f'/>", m->colour % CHART_COLOURS, x, y);
        buffer_printf(out, "<circle class='f c%d' r='4' cx='%.1f' cy='%.1f'/>", m->colour % CHART_COLOURS, x, y);
        boxes[count++] = (struct label_box){x - r, y - r, 2 * r, 2 * r};
    }
    for (i64 i = 0; i < c->mark_count; i++) {
        const struct chart_mark *m = &c->marks[i];
        if (!isfinite(m->x) || !isfinite(m->y) || *m->name == 0)
            continue;
        struct label_box b =
            place_words(f, boxes, count, axis_position(&f->x, m->x), axis_position(&f->y, m->y), m->name);
        boxes[count++] = b;
        put_words(out, b.x + b.width / 2, b.y + 11, "w m", m->name);
    }
    memory_free(boxes);
}

static void draw_reference(struct buffer *out, const struct chart_frame *f, const struct chart *c)
{
    if (!isfinite(c->reference) || !c->reference_name)
        return;
    double y = axis_position(&f->y, c->reference);
    buffer_printf(out, "<path class='o' d='M%.1f %.1fH%.1f'/>", f->x.from, y, f->x.to);
    put_words(out, f->x.from + 4, y - 4, "w", c->reference_name);
}

/* ---- Chart ---- */

/* Width reserved for the longest line label. */
static double room_for_words(const struct chart *c)
{
    size_t longest = 0;
    for (i64 i = 0; i < c->line_count; i++)
        longest = c->lines[i].n && strlen(c->lines[i].name) > longest ? strlen(c->lines[i].name) : longest;
    return longest ? fmin(14 + 7.4 * (double)longest, 132) : 12;
}

static struct chart_frame frame_of(const struct chart *c)
{
    struct chart_frame f = {{INFINITY, -INFINITY, LEFT, WIDTH - room_for_words(c)},
                            {INFINITY, -INFINITY, HEIGHT - BOTTOM, TOP}};
    for (i64 i = 0; i < c->line_count; i++)
        for (i64 k = 0, run = bin_length(&c->lines[i]); k < c->lines[i].n; k += run) {
            struct chart_bin b = bin_of(&c->lines[i], k, min_i64(k + run, c->lines[i].n));
            axis_include(&f.x, b.x);
            axis_include(&f.y, b.y);
        }
    for (i64 i = 0; i < c->mark_count; i++)
        if (isfinite(c->marks[i].x) && isfinite(c->marks[i].y)) {
            axis_include(&f.x, c->marks[i].x);
            axis_include(&f.y, c->marks[i].y);
        }
    if (!isfinite(f.x.lo))
        return f;
    if (c->reference_name)
        axis_include(&f.y, c->reference);
    if (c->from_zero)
        axis_include(&f.y, 0);
    double y = f.y.hi - f.y.lo, x = f.x.hi - f.x.lo, least = f.y.lo, most = f.y.hi;
    double room = 0.25 * y;
    for (i64 i = 0; i < c->line_count; i++) /* bands, but for points that would flatten the lines */
        for (i64 k = 0; k < c->lines[i].n && (bin_length(&c->lines[i]) > 1 || c->lines[i].low); k++) {
            const struct chart_line *l = &c->lines[i];
            axis_include(&f.y, fmin(fmax(l->low ? l->low[k] : l->y[k], least - room), most + room));
            axis_include(&f.y, fmin(fmax(l->high ? l->high[k] : l->y[k], least - room), most + room));
        }
    y = f.y.hi - f.y.lo;
    double above = y > 0 ? (c->mark_count ? 0.14 : 0.08) * y : f.y.hi != 0 ? 0.1 * fabs(f.y.hi) : 1;
    f.y.hi += above;
    f.y.lo -= c->from_zero && f.y.lo >= 0 ? 0 : above;
    double beside = x > 0 ? (c->mark_count ? 0.06 * x : 0) : 1;
    f.x.lo -= beside;
    f.x.hi += beside;
    return f;
}

bool chart_draw(struct buffer *out, const struct chart *c)
{
    struct chart_frame f = frame_of(c);
    if (!isfinite(f.x.lo))
        return false;
    put_svg(out, HEIGHT, c->about);
    draw_y_axis(out, &f, c);
    draw_x_axis(out, &f.x, HEIGHT - BOTTOM, 1, c->x_name); /* integer ticks: steps, layers, parameters */
    draw_reference(out, &f, c);
    for (i64 i = 0; i < c->line_count; i++)
        if (c->lines[i].n)
            draw_line(out, &f, &c->lines[i]);
    draw_marks(out, &f, c);
    draw_labels(out, &f, c);
    buffer_printf(out, "</svg>");
    return true;
}

/* ---- Before and after ---- */

enum { ROW = 22, NAMES = 122 };

static void draw_range(struct buffer *out, const struct chart_axis *a, const struct chart_range *r, double y)
{
    double before = axis_position(a, r->before), after = axis_position(a, r->after);
    int colour = r->colour % CHART_COLOURS;
    put_words(out, NAMES - 8, y + 4, "e", r->name);
    buffer_printf(out, "<path class='g' d='M%.1f %.1fH%.1f'/>", a->from, y, a->to);
    if (isfinite(r->reference))
        buffer_printf(out, "<path class='t' d='M%.1f %.1fv12'/>", axis_position(a, r->reference), y - 6);
    if (isfinite(r->before))
        buffer_printf(out, "<path class='l c%d' d='M%.1f %.1fH%.1f'/><circle class='h c%d' r='4' cx='%.1f' cy='%.1f'/>",
                      colour, before, y, isfinite(r->after) ? after : before, colour, before, y);
    if (isfinite(r->after))
        buffer_printf(out, "<circle class='f c%d' r='4.5' cx='%.1f' cy='%.1f'/>", colour, after, y);
}

bool chart_ranges(struct buffer *out, const char *about, const char *x_name, const struct chart_range *rows, i64 count)
{
    struct chart_axis a = {0, 0, NAMES, WIDTH - 12};
    double bottom = (double)count * ROW + 8;
    for (i64 i = 0; i < count; i++) {
        axis_include(&a, rows[i].before);
        axis_include(&a, rows[i].after);
        axis_include(&a, rows[i].reference);
    }
    if (!(a.hi > a.lo))
        return false;
    a.hi *= 1.03;
    put_svg(out, bottom + BOTTOM, about);
    for (i64 i = 0; i < count; i++)
        draw_range(out, &a, &rows[i], (double)i * ROW + 12);
    draw_x_axis(out, &a, bottom, 0, x_name);
    buffer_printf(out, "</svg>");
    return true;
}

/* ---- Heat map ---- */

static void draw_cell(struct buffer *out, const struct heat_map *h, i64 row, i64 column, double x, double y,
                      double width, double height)
{
    double value = h->values[row * h->columns + column], share = h->most > 0 ? value / h->most : 0;
    if (!isfinite(value)) {
        buffer_printf(out, "<rect class='n' x='%.2f' y='%.1f' width='%.2f' height='%.1f'/>", x, y, width, height);
        if (h->print)
            put_words(out, x + width / 2, y + height / 2 + 4, "m u", "\u2013");
        return;
    }
    share = fmin(fmax(share, 0), 1) * (h->print ? 0.6 : 1); /* keeps text on the cell readable */
    buffer_printf(out, "<rect class='v' x='%.2f' y='%.1f' width='%.2f' height='%.1f' fill-opacity='%.3f'/>", x, y,
                  width, height, share);
    if (h->print)
        buffer_printf(out, "<text class='m' x='%.1f' y='%.1f'>%.2f</text>", x + width / 2, y + height / 2 + 4, value);
}

static void draw_column_name(struct buffer *out, const struct heat_map *h, i64 column, double x, double y)
{
    if (h->column_names)
        put_words(out, x, y + (double)(column % 2) * 12, "m s", h->column_names[column]);
    else if (column % max_i64(1, ceil_div(h->columns, 8)) == 0)
        buffer_printf(out, "<text class='m' x='%.1f' y='%.1f'>%d</text>", x, y, h->column_numbers[column]);
}

void chart_heat_map(struct buffer *out, const struct heat_map *h)
{
    enum { HEAT_NAMES = 72, TITLE = 18 };
    double width = (double)(WIDTH - HEAT_NAMES - 2) / (double)max_i64(h->columns, 1), height = h->print ? 34 : 20;
    double gap = width > 6 ? 1 : 0, bottom = (double)h->rows * height;
    put_svg(out, bottom + 18 + (h->column_title || h->column_names ? TITLE : 0), h->about);
    for (i64 r = 0; r < h->rows; r++) {
        put_words(out, HEAT_NAMES - 6, (double)r * height + height / 2 + 4, "e", h->row_names[r]);
        for (i64 c = 0; c < h->columns; c++)
            draw_cell(out, h, r, c, HEAT_NAMES + (double)c * width, (double)r * height, width - gap, height - 1);
    }
    for (i64 c = 0; c < h->columns; c++)
        draw_column_name(out, h, c, HEAT_NAMES + ((double)c + 0.5) * width, bottom + 14);
    if (h->column_title)
        put_words(out, WIDTH - 2, bottom + 14 + TITLE, "e u", h->column_title);
    buffer_printf(out, "</svg>");
}

int chart_save(const char *path, const struct buffer *chart)
{
    static const char tag[] = "<svg ";
    struct buffer file = {0};
    const char *end = strchr(chart->data, '>');
    buffer_printf(&file, "<svg xmlns='http://www.w3.org/2000/svg' %.*s><style>%s</style>%s\n",
                  (int)(end - chart->data - (i64)strlen(tag)), chart->data + strlen(tag), page_style, end + 1);
    int status = file_replace(path, file.data, file.length);
    buffer_release(&file);
    return status;
}
