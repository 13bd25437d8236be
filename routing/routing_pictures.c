/* Figures 8, 9 and 10 of the ERNIE 5.0 report for a model, and a page that shows them. */
#include "routing/canvas.h"
#include "routing/routing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LEFT = 90,
    TOP = 34,
    GAP = 26,
    BAR_WIDTH = 760,
    BAR_HEIGHT = 64,
    CELL = 68,
    PLOT_WIDTH = 640,
    PLOT_HEIGHT = 300
};
enum { INK = 0x222222, FAINT = 0xdddddd };

/* Color-blind safe palette of Okabe and Ito. */
static double largest_use(const struct routing_counts *c, i64 layer, enum stream s)
{
    double most = 0;
    for (i64 e = 0; e < c->experts; e++)
        most = fmax(most, (double)routing_use(c, layer, s)[e]);
    return most / (double)max_i64(c->positions[s], 1);
}

/* Rounds the axis limit up to a round percentage. */
static double round_axis(double share)
{
    static const double ends[] = {0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1};
    for (i64 i = 0; i < COUNT_OF(ends); i++)
        if (share <= ends[i])
            return ends[i];
    return 1;
}

static void draw_stream_bars(struct canvas *d, const struct routing_counts *c, i64 layer, enum stream s, double y)
{
    const i64 *use = routing_use(c, layer, s);
    double width = (double)BAR_WIDTH / (double)c->experts, axis = round_axis(largest_use(c, layer, s));
    canvas_text(d, LEFT - 8, y + 14, ANCHOR_END, stream_rows[s].colour, "%s", stream_rows[s].name);
    canvas_text(d, LEFT + BAR_WIDTH + 6, y + 10, ANCHOR_START, INK, "%g %%", axis * 100);
    canvas_line(d, LEFT, y, LEFT + BAR_WIDTH, y, 1, FAINT);
    for (i64 e = 0; e < c->experts; e++) {
        double height = BAR_HEIGHT * (double)use[e] / (double)c->positions[s] / axis;
        if (use[e])
            canvas_box(d, LEFT + (double)e * width, y + BAR_HEIGHT - height, fmax(width * 0.85, 0.5), height,
                       stream_rows[s].colour);
    }
    canvas_line(d, LEFT, y + BAR_HEIGHT, LEFT + BAR_WIDTH, y + BAR_HEIGHT, 1, INK);
}

static int draw_use(const struct routing_counts *c, i64 layer, const char *directory, const char *name)
{
    struct canvas d;
    i64 shown = 0;
    for (int s = 0; s < STREAMS; s++)
        shown += c->positions[s] > 0;
    canvas_open(&d, LEFT + BAR_WIDTH + 60, TOP + shown * (BAR_HEIGHT + GAP) + 24);
    canvas_text(&d, LEFT, 20, ANCHOR_START, INK,
                "layer %d: share of a stream's positions that choose each of %lld %s (top-%lld)", c->layer[layer],
                (long long)c->experts, plural(c->experts, "expert", "experts"), (long long)c->topk);
    double y = TOP;
    for (int s = 0; s < STREAMS; s++)
        if (c->positions[s]) {
            draw_stream_bars(&d, c, layer, s, y);
            y += BAR_HEIGHT + GAP;
        }
    const i32 *ids = c->expert + layer * c->experts;
    canvas_text(&d, LEFT, y - 8, ANCHOR_START, INK, "expert %d", ids[0]);
    canvas_text(&d, LEFT + BAR_WIDTH, y - 8, ANCHOR_END, INK, "%d", ids[c->experts - 1]);
    int status = canvas_save(&d, directory, name);
    canvas_close(&d);
    return status;
}

/* Color scale from white to blue. */
static u32 heat_color(double share)
{
    double t = fmin(1, fmax(0, share));
    u32 red = (u32)(255 - 247 * t), green = (u32)(255 - 207 * t), blue = (u32)(255 - 148 * t);
    return red << 16 | green << 8 | blue;
}

static void draw_cell(struct canvas *d, const struct routing_counts *c, i64 layer, enum stream a, enum stream b)
{
    double x = LEFT + CELL * (double)b, y = TOP + 20 + CELL * (double)a;
    double iou = a == b ? NAN : routing_overlap(routing_use(c, layer, a), routing_use(c, layer, b), c->experts);
    bool known = isfinite(iou) && c->positions[a] && c->positions[b];
    canvas_box(d, x, y, CELL - 1, CELL - 1, known ? heat_color(iou) : 0xf4f4f4);
    if (known)
        canvas_text(d, x + CELL / 2.0, y + CELL / 2.0 + 4, ANCHOR_MIDDLE, iou > 0.55 ? 0xffffff : INK, "%.2f", iou);
}

static int draw_overlap(const struct routing_counts *c, i64 layer, const char *directory, const char *name)
{
    struct canvas d;
    canvas_open(&d, LEFT + STREAMS * CELL + 20, TOP + 20 + STREAMS * CELL + 12);
    canvas_text(&d, 8, 20, ANCHOR_START, INK, "layer %d: overlap of the most used quarter of experts", c->layer[layer]);
    for (int s = 0; s < STREAMS; s++) {
        canvas_text(&d, LEFT - 8, TOP + 20 + CELL * (s + 0.5) + 4, ANCHOR_END, stream_rows[s].colour, "%s",
                    stream_rows[s].name);
        canvas_text(&d, LEFT + CELL * (s + 0.5), TOP + 12, ANCHOR_MIDDLE, stream_rows[s].colour, "%s",
                    stream_rows[s].name);
        for (int other = 0; other < STREAMS; other++)
            draw_cell(&d, c, layer, s, other);
    }
    int status = canvas_save(&d, directory, name);
    canvas_close(&d);
    return status;
}

struct axes { /* entropy plot */
    double low;
    i64 layers;
};

static double plot_x(const struct axes *a, i64 layer)
{
    return LEFT + (a->layers > 1 ? PLOT_WIDTH * (double)layer / (double)(a->layers - 1) : PLOT_WIDTH / 2.0);
}

static double plot_y(const struct axes *a, double entropy)
{
    return TOP + PLOT_HEIGHT * (1 - (entropy - a->low) / (1 - a->low));
}

static struct axes entropy_axes(const struct routing_counts *c)
{
    struct axes a = {0.9, c->layers};
    for (i64 l = 0; l < c->layers; l++)
        for (int s = 0; s < STREAMS; s++) {
            double h = routing_entropy(routing_use(c, l, s), c->experts);
            a.low = isfinite(h) ? fmin(a.low, floor(h * 10) / 10) : a.low;
        }
    return a;
}

static void draw_axes(struct canvas *d, const struct routing_counts *c, const struct axes *a)
{
    i64 every = ceil_div(c->layers, 16);
    for (double h = a->low; h < 1.001; h += 0.1) {
        canvas_line(d, LEFT, plot_y(a, h), LEFT + PLOT_WIDTH, plot_y(a, h), 1, FAINT);
        canvas_text(d, LEFT - 8, plot_y(a, h) + 4, ANCHOR_END, INK, "%.1f", h);
    }
    for (i64 l = 0; l < c->layers; l += every)
        canvas_text(d, plot_x(a, l), TOP + PLOT_HEIGHT + 18, ANCHOR_MIDDLE, INK, "%d", c->layer[l]);
    canvas_text(d, LEFT + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT + 36, ANCHOR_MIDDLE, INK, "layer");
    canvas_text(d, LEFT, 20, ANCHOR_START, INK, "normalised entropy of expert use by layer: 1 is even");
}

static void draw_stream_line(struct canvas *d, const struct routing_counts *c, const struct axes *a, enum stream s)
{
    double before = NAN;
    for (i64 l = 0; l < c->layers; l++) {
        double h = routing_entropy(routing_use(c, l, s), c->experts);
        if (isfinite(h) && isfinite(before))
            canvas_line(d, plot_x(a, l - 1), plot_y(a, before), plot_x(a, l), plot_y(a, h), 2, stream_rows[s].colour);
        if (isfinite(h))
            canvas_box(d, plot_x(a, l) - 3, plot_y(a, h) - 3, 6, 6, stream_rows[s].colour);
        before = h;
    }
}

static int draw_entropy(const struct routing_counts *c, const char *directory, const char *name)
{
    struct canvas d;
    struct axes a = entropy_axes(c);
    canvas_open(&d, LEFT + PLOT_WIDTH + 110, TOP + PLOT_HEIGHT + 48);
    draw_axes(&d, c, &a);
    double y = TOP + 12;
    for (int s = 0; s < STREAMS; s++)
        if (c->positions[s]) {
            draw_stream_line(&d, c, &a, s);
            canvas_box(&d, LEFT + PLOT_WIDTH + 18, y - 9, 10, 10, stream_rows[s].colour);
            canvas_text(&d, LEFT + PLOT_WIDTH + 34, y, ANCHOR_START, INK, "%s", stream_rows[s].name);
            y += 20;
        }
    int status = canvas_save(&d, directory, name);
    canvas_close(&d);
    return status;
}

/* ---- The page ---- */

static int put_picture(struct buffer *page, const char *directory, const char *name)
{
    char *path = string_format("%s/%s.svg", directory, name);
    struct buffer svg = {0};
    int status = file_read(&svg, path);
    if (status == 0)
        buffer_append(page, svg.data, svg.length);
    buffer_release(&svg);
    memory_free(path);
    return status;
}

static void put_positions(struct buffer *page, const struct routing_counts *c)
{
    buffer_printf(page, "<table><tr><th>stream</th><th>positions</th></tr>\n");
    for (int s = 0; s < STREAMS; s++)
        buffer_printf(page, "<tr><td>%s</td><td>%lld</td></tr>\n", stream_rows[s].name, (long long)c->positions[s]);
    buffer_printf(page, "</table>\n");
}

static const char page_head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta "
    "charset=\"utf-8\"><title>Routing</title>\n<style>body{font:15px/1.5 "
    "sans-serif;max-width:960px;margin:2em auto;padding:0 "
    "1em;color:#222;background:#fff}svg{max-width:100%;height:auto}"
    "td,th{text-align:right;padding:.1em .8em}td:first-child{text-align:left}</style></head><body>\n<h1>Routing</h1>\n"
    "<p>Which experts the positions of each stream choose, over held-out samples. The router never sees a modality: "
    "what "
    "specialises here does so by itself.</p>\n";
static const char use_caption[] = "<h2>Use of experts</h2>\n<p>First, middle and last routed layer. Even use would be "
                                  "top-k over the number of experts.</p>\n";
static const char overlap_caption[] = "<h2>Overlap</h2>\n<p>Intersection over union of the quarter of experts that two "
                                      "streams use most; independent choices "
                                      "would give about 0.14.</p>\n";
static const char entropy_caption[] =
    "<h2>Spread</h2>\n<p>&minus;&Sigma; p log p / log E of each stream's use: 1 is even, 0 a single expert.</p>\n";

static const char *const places[] = {"first", "middle", "last"};

/* With one or two layers some places coincide and are skipped. */
static bool has_place(const struct routing_counts *c, i64 place)
{
    return place == 0 || (place == 1 ? c->layers > 2 : c->layers > 1);
}

static i64 layer_at(const struct routing_counts *c, i64 place)
{
    return place == 0 ? 0 : place == 1 ? c->layers / 2 : c->layers - 1;
}

static int put_pictures(struct buffer *page, const struct routing_counts *c, const char *directory, const char *kind)
{
    int status = 0;
    char name[32];
    for (i64 place = 0; place < COUNT_OF(places) && status == 0; place++)
        if (has_place(c, place)) {
            snprintf(name, sizeof name, "%s-%s", kind, places[place]);
            status = put_picture(page, directory, name);
        }
    return status;
}

static int save_page(const struct routing_counts *c, const char *directory)
{
    struct buffer page = {0};
    char *path = path_join(directory, "routing.html");
    buffer_printf(&page, "%s", page_head);
    put_positions(&page, c);
    buffer_printf(&page, "%s", use_caption);
    int status = put_pictures(&page, c, directory, "use");
    buffer_printf(&page, "%s", overlap_caption);
    if (status == 0)
        status = put_pictures(&page, c, directory, "overlap");
    buffer_printf(&page, "%s", entropy_caption);
    if (status == 0)
        status = put_picture(&page, directory, "entropy");
    buffer_printf(&page, "</body></html>\n");
    if (status == 0)
        status = file_replace(path, page.data, page.length);
    buffer_release(&page);
    memory_free(path);
    return status;
}

int routing_save_pictures(const struct routing_counts *c, const char *directory)
{
    char name[32];
    int status = draw_entropy(c, directory, "entropy");
    for (i64 place = 0; place < COUNT_OF(places) && status == 0; place++) {
        if (!has_place(c, place))
            continue;
        snprintf(name, sizeof name, "use-%s", places[place]);
        status = draw_use(c, layer_at(c, place), directory, name);
        snprintf(name, sizeof name, "overlap-%s", places[place]);
        if (status == 0)
            status = draw_overlap(c, layer_at(c, place), directory, name);
    }
    return status ? status : save_page(c, directory);
}
