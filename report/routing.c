/* Expert usage: a heat map per layer, overlap of streams, and entropy of each stream's use; for the page of
 * a run, and as a page and pictures of its own. */
#include "report/page.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OPEN_LAYERS = 9 }; /* further layers are collapsed */

struct routing_report { /* parts of routing.json that are drawn */
    const struct json *layers, *positions;
    const char **streams; /* those with positions */
    i64 *stream_index;    /* index in the file's list of streams */
    i64 stream_count, experts;
    double topk, most; /* most: largest share_of, for the color scale */
};

static const struct json *counts_of(const struct json *layer, const char *stream)
{
    return json_get(json_get(json_get(layer, "streams"), stream), "counts");
}

/* Share of the stream's positions routed to the expert. */
static double share_of(const struct routing_report *r, const struct json *layer, const char *stream, i64 expert)
{
    double positions = json_number(json_get(r->positions, stream), 0);
    return positions > 0 ? json_number(json_at(counts_of(layer, stream), expert), NAN) / positions : NAN;
}

static void routing_open(struct routing_report *r, const struct json *file)
{
    const struct json *names = json_get(file, "streams");
    *r = (struct routing_report){.layers = json_get(file, "layers"),
                                 .positions = json_get(file, "positions"),
                                 .topk = json_number(json_get(file, "topk"), NAN),
                                 .experts = json_count(json_get(json_at(json_get(file, "layers"), 0), "experts"))};
    r->streams = memory_alloc((json_count(names) + 1) * (i64)sizeof *r->streams);
    r->stream_index = memory_alloc((json_count(names) + 1) * 8);
    for (i64 i = 0; i < json_count(names); i++) {
        const char *name = json_string(json_at(names, i), "");
        if (json_number(json_get(r->positions, name), 0) > 0) {
            r->streams[r->stream_count] = name;
            r->stream_index[r->stream_count++] = i;
        }
    }
    for (i64 l = 0; l < json_count(r->layers); l++)
        for (i64 s = 0; s < r->stream_count; s++)
            for (i64 e = 0; e < r->experts; e++)
                r->most = fmax(r->most, share_of(r, json_at(r->layers, l), r->streams[s], e));
}

static void routing_close(struct routing_report *r)
{
    memory_free(r->streams);
    memory_free(r->stream_index);
}

static i64 layer_number(const struct routing_report *r, i64 l)
{
    return json_integer(json_get(json_at(r->layers, l), "layer"), l);
}

/* ---- Use ---- */

static void draw_use(struct buffer *out, const struct routing_report *r, i64 l)
{
    const struct json *layer = json_at(r->layers, l), *ids = json_get(layer, "experts");
    double *values = memory_alloc(max_i64(r->stream_count * r->experts, 1) * 8);
    i32 *numbers = memory_alloc(max_i64(r->experts, 1) * 4);
    char about[160];
    for (i64 e = 0; e < r->experts; e++) {
        numbers[e] = (i32)json_integer(json_at(ids, e), e);
        for (i64 s = 0; s < r->stream_count; s++)
            values[s * r->experts + e] = share_of(r, layer, r->streams[s], e);
    }
    snprintf(about, sizeof about,
             "Map of layer %lld: share of each stream's positions that choose each of %lld experts",
             (long long)layer_number(r, l), (long long)r->experts);
    chart_heat_map(out, &(struct heat_map){.about = about,
                                           .rows = r->stream_count,
                                           .columns = r->experts,
                                           .values = values,
                                           .row_names = r->streams,
                                           .column_numbers = numbers,
                                           .column_title = "expert",
                                           .most = r->most});
    memory_free(values);
    memory_free(numbers);
}

static void put_use(struct page *p, const struct routing_report *r, i64 l)
{
    char title[96];
    snprintf(title, sizeof title, "Layer %lld: who chooses which expert", (long long)layer_number(r, l));
    figure_open(p, "chart", title);
    draw_use(&p->html, r, l);
    figure_close(p);
}

static void put_uses(struct page *p, const struct routing_report *r, const char *name, const struct run_stage *s)
{
    i64 layers = json_count(r->layers), open = min_i64(layers, OPEN_LAYERS);
    group_open(p, "%s: which experts each stream chooses", name);
    put_note(p,
             "A row is a stream, a column an expert; the colour is the share of the stream's positions that choose it "
             "(top-%.0f of %lld; even use would be %.1f\u00a0%%).",
             r->topk, (long long)r->experts, 100 * r->topk / (double)r->experts);
    buffer_printf(&p->html,
                  "<div class='key'><span>0\u00a0%%</span><span class='ramp'></span><span>%.0f\u00a0%%</span></div>",
                  100 * r->most);
    buffer_printf(&p->html, "<div class='charts'>");
    for (i64 l = 0; l < open; l++)
        put_use(p, r, l);
    buffer_printf(&p->html, "</div>");
    if (open < layers) {
        buffer_printf(&p->html, "<details><summary>%lld more layers</summary><div class='charts'>",
                      (long long)(layers - open));
        for (i64 l = open; l < layers; l++)
            put_use(p, r, l);
        buffer_printf(&p->html, "</div></details>");
    }
    group_close(p, s);
}

/* ---- Overlap ---- */

/* Layers that are shown: with one or two, some places coincide. */
enum { PLACES = 3 };
static const char *const places[PLACES] = {"first", "middle", "last"};

static i64 layer_at(i64 layers, i64 place)
{
    return place * (layers - 1) / (PLACES - 1) + (place == 1 && layers % 2 == 0);
}

static bool has_place(i64 layers, i64 place)
{
    return place == 0 || layer_at(layers, place) != layer_at(layers, place - 1);
}

static void draw_overlap(struct buffer *out, const struct routing_report *r, i64 l)
{
    const struct json *rows = json_get(json_at(r->layers, l), "overlap");
    double *values = memory_alloc(max_i64(r->stream_count * r->stream_count, 1) * 8);
    char about[160];
    for (i64 a = 0; a < r->stream_count; a++)
        for (i64 b = 0; b < r->stream_count; b++)
            values[a * r->stream_count + b] =
                a == b ? NAN : json_number(json_at(json_at(rows, r->stream_index[a]), r->stream_index[b]), NAN);
    snprintf(about, sizeof about, "Layer %lld: overlap of the experts that each two streams use most",
             (long long)layer_number(r, l));
    chart_heat_map(out, &(struct heat_map){.about = about,
                                           .rows = r->stream_count,
                                           .columns = r->stream_count,
                                           .values = values,
                                           .row_names = r->streams,
                                           .column_names = r->streams,
                                           .most = 1,
                                           .print = true});
    memory_free(values);
}

static void put_overlap(struct page *p, const struct routing_report *r, i64 l)
{
    char title[96];
    snprintf(title, sizeof title, "Layer %lld: most used experts in common", (long long)layer_number(r, l));
    figure_open(p, "chart", title);
    draw_overlap(&p->html, r, l);
    figure_close(p);
}

static void put_overlaps(struct page *p, const struct routing_report *r, const char *name, const struct run_stage *s)
{
    i64 layers = json_count(r->layers);
    if (r->stream_count < 2)
        return;
    group_open(p, "%s: how much streams share", name);
    put_note(
        p,
        "Of the quarter of experts that two streams use most: intersection over union. 1 is the same experts, 0 none "
        "in common; independent choices would give about 0.14. First, middle and last layer.");
    buffer_printf(&p->html, "<div class='charts'>");
    for (i64 place = 0; place < PLACES; place++)
        if (has_place(layers, place))
            put_overlap(p, r, layer_at(layers, place));
    buffer_printf(&p->html, "</div>");
    group_close(p, s);
}

/* ---- Entropy ---- */

static void draw_spread(struct buffer *out, const struct routing_report *r)
{
    i64 layers = json_count(r->layers);
    struct chart_line *lines = memory_alloc((r->stream_count + 1) * (i64)sizeof *lines);
    double *values = memory_alloc(max_i64(2 * r->stream_count * layers, 1) * 8);
    for (i64 i = 0; i < r->stream_count; i++) {
        double *x = values + 2 * i * layers, *y = x + layers;
        lines[i] = (struct chart_line){r->streams[i], line_colour(r->streams[i]), x, y, 0};
        for (i64 l = 0; l < layers; l++) {
            const struct json *one = json_get(json_get(json_at(r->layers, l), "streams"), r->streams[i]);
            x[lines[i].n] = (double)layer_number(r, l);
            y[lines[i].n] = json_number(json_get(one, "entropy"), NAN);
            lines[i].n += isfinite(y[lines[i].n]);
        }
    }
    chart_draw(out, &(struct chart){.about = "Normalised entropy of expert use by layer, a line for each stream",
                                    .x_name = "layer",
                                    .y_name = "share of the most possible",
                                    .lines = lines,
                                    .line_count = r->stream_count});
    memory_free(lines);
    memory_free(values);
}

static void put_spread(struct page *p, const struct routing_report *r, const char *name, const struct run_stage *s)
{
    group_open(p, "%s: how evenly streams spread over experts", name);
    buffer_printf(&p->html, "<div class='charts'>");
    figure_open(p, "chart", "Entropy of a stream's use of experts; 1 is even, 0 a single expert");
    draw_spread(&p->html, r);
    figure_close(p);
    buffer_printf(&p->html, "</div>");
    group_close(p, s);
}

/* ---- Pages ---- */

static const char lede[] =
    "The router never sees a modality: what specialises does so by itself. Measured on held-out samples.";

void put_routing(struct page *p)
{
    section_open(p, "routing", "Routing", lede);
    for (i64 i = 0; i < p->runs[0].count && p->run_count == 1; i++) {
        const struct run_stage *s = &p->runs[0].stages[i];
        struct json *file = stage_json(s, "routing.json");
        struct routing_report r;
        routing_open(&r, file);
        if (json_count(r.layers) && r.stream_count && r.experts) {
            put_uses(p, &r, s->name, s);
            put_overlaps(p, &r, s->name, s);
            put_spread(p, &r, s->name, s);
        }
        routing_close(&r);
        json_free(file);
    }
    section_close(p);
}

static void put_positions(struct page *p, const struct routing_report *r)
{
    static const char *const heads[] = {"stream", "positions"};
    table_open(p, heads, COUNT_OF(heads));
    for (i64 i = 0; i < r->stream_count; i++) {
        buffer_printf(&p->html, "<tr>");
        cell_words(p, "%s", r->streams[i]);
        cell_figure(p, json_number(json_get(r->positions, r->streams[i]), NAN), UNIT_NUMBER, 0);
        buffer_printf(&p->html, "</tr>");
    }
    table_close(p);
}

/* FOLDER/NAME-PLACE.svg. */
static int save_layers(const struct routing_report *r, const char *folder, const char *name,
                       void (*draw)(struct buffer *out, const struct routing_report *r, i64 layer))
{
    i64 layers = json_count(r->layers);
    int status = 0;
    for (i64 place = 0; place < PLACES && status == 0; place++) {
        if (!has_place(layers, place))
            continue;
        char *path = string_format("%s/%s-%s.svg", folder, name, places[place]);
        struct buffer svg = {0};
        draw(&svg, r, layer_at(layers, place));
        status = chart_save(path, &svg);
        buffer_release(&svg);
        memory_free(path);
    }
    return status;
}

static int save_spread(const struct routing_report *r, const char *folder)
{
    char *path = path_join(folder, "entropy.svg");
    struct buffer svg = {0};
    draw_spread(&svg, r);
    int status = svg.length ? chart_save(path, &svg) : 0;
    buffer_release(&svg);
    memory_free(path);
    return status;
}

int report_routing(const char *folder, const struct json *file)
{
    struct page p = {0};
    struct routing_report r;
    char *path = path_join(folder, "routing.html");
    routing_open(&r, file);
    section_open(&p, "routing", "Routing", lede);
    put_positions(&p, &r);
    put_uses(&p, &r, "Use", NULL);
    put_overlaps(&p, &r, "Overlap", NULL);
    put_spread(&p, &r, "Spread", NULL);
    section_close(&p);
    int status = page_save(path, &p, "routing");
    if (status == 0)
        status = save_layers(&r, folder, "use", draw_use);
    if (status == 0 && r.stream_count > 1)
        status = save_layers(&r, folder, "overlap", draw_overlap);
    if (status == 0)
        status = save_spread(&r, folder);
    routing_close(&r);
    memory_free(path);
    return status;
}
