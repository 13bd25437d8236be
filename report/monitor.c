/* What a stage measured while it trained: the router's load and entropy by layer, the overlap of
 * streams, and the losses of sub-models, over steps. */
#include "report/page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MOST = CHART_COLOURS, COLUMNS_MOST = 90, LAYERS_KNOWN = 256, POINTS_KNOWN = 16 };

struct monitor_report {
    const struct run_stage *stage;
    struct json_lines lines;               /* of the steps that measured something; the objects are the stage's */
    i64 layers[LAYERS_KNOWN], layer_count; /* those with experts, ascending */
    char points[POINTS_KNOWN][64];         /* sub-models, the full one first */
    i64 point_count;
};

static void add_layer(struct monitor_report *m, i64 layer)
{
    i64 at = m->layer_count;
    for (i64 i = 0; i < m->layer_count; i++)
        if (m->layers[i] == layer)
            return;
    if (layer < 0 || at == LAYERS_KNOWN)
        return;
    for (m->layer_count++; at > 0 && m->layers[at - 1] > layer; at--)
        m->layers[at] = m->layers[at - 1];
    m->layers[at] = layer;
}

/* A key grid/NAME/TARGET; the name may have slashes. */
static void add_point(struct monitor_report *m, const char *key)
{
    const char *begin = key + strlen("grid/"), *end = strrchr(begin, '/');
    i64 length = end ? end - begin : 0;
    if (length <= 0 || length >= (i64)sizeof m->points[0] || m->point_count == POINTS_KNOWN)
        return;
    for (i64 i = 0; i < m->point_count; i++)
        if ((i64)strlen(m->points[i]) == length && strncmp(m->points[i], begin, (size_t)length) == 0)
            return;
    memcpy(m->points[m->point_count++], begin, (size_t)length);
}

static void monitor_find(struct monitor_report *m, const struct run_stage *stage)
{
    *m = (struct monitor_report){.stage = stage};
    m->lines.list = memory_alloc((stage->metrics.count + 1) * (i64)sizeof *m->lines.list);
    for (i64 i = 0; i < stage->metrics.count; i++) {
        struct json_iterator it;
        struct json *line = stage->metrics.list[i];
        bool measured = false;
        for (bool more = json_first(&it, line); more; more = json_next(&it, line)) {
            char *end = NULL;
            long layer = strncmp(it.key, "routing/", 8) == 0 ? strtol(it.key + 8, &end, 10) : -1;
            if (end && end > it.key + 8 && *end == '/')
                add_layer(m, layer);
            else if (strncmp(it.key, "grid/", 5) == 0)
                add_point(m, it.key);
            measured |= end || strncmp(it.key, "grid/", 5) == 0;
        }
        if (measured)
            m->lines.list[m->lines.count++] = line;
    }
}

static struct metric_series layer_series(const struct monitor_report *m, i64 layer, const char *figure)
{
    char *key = string_format("routing/%lld/%s", (long long)m->layers[layer], figure);
    struct metric_series s = series_of(&m->lines, key);
    memory_free(key);
    return s;
}

/* The mean over the layers [first, first + count), at the steps where any has the figure. */
static struct metric_series mean_series(const struct monitor_report *m, i64 first, i64 count, const char *figure)
{
    const struct json_lines *lines = &m->lines;
    struct metric_series s = {memory_alloc((lines->count + 1) * 8), memory_alloc((lines->count + 1) * 8), 0};
    char *key[LAYERS_KNOWN];
    for (i64 l = 0; l < count; l++)
        key[l] = string_format("routing/%lld/%s", (long long)m->layers[first + l], figure);
    for (i64 i = 0; i < lines->count; i++) {
        double sum = 0, n = 0;
        for (i64 l = 0; l < count; l++) {
            double value = number_at(lines->list[i], key[l]);
            sum += isfinite(value) ? value : 0;
            n += isfinite(value);
        }
        if (n > 0 && isfinite(number_at(lines->list[i], "step"))) {
            s.x[s.n] = number_at(lines->list[i], "step");
            s.y[s.n++] = sum / n;
        }
    }
    for (i64 l = 0; l < count; l++)
        memory_free(key[l]);
    return s;
}

/* ---- By layer ---- */

struct layer_figure {
    const char *key, *title, *unit;
    double healthy; /* the value of an even use */
};

static void put_layer_lines(struct page *p, const struct monitor_report *m, const struct layer_figure *f)
{
    struct metric_series all[LINES_MOST];
    struct chart_line lines[LINES_MOST];
    char names[LINES_MOST][24],
        *about = string_format("%s of %s over steps, a line for each layer", f->title, m->stage->name);
    for (i64 l = 0; l < m->layer_count; l++) {
        all[l] = layer_series(m, l, f->key);
        snprintf(names[l], sizeof names[l], "layer %lld", (long long)m->layers[l]);
        lines[l] = (struct chart_line){names[l], (int)l, all[l].x, all[l].y, all[l].n};
    }
    figure_chart(p, f->title,
                 &(struct chart){.about = about,
                                 .x_name = "step",
                                 .y_name = f->unit,
                                 .lines = lines,
                                 .line_count = m->layer_count,
                                 .reference = f->healthy,
                                 .reference_name = "even"});
    for (i64 l = 0; l < m->layer_count; l++)
        series_release(&all[l]);
    memory_free(about);
}

/* A map of layers and steps, with the scale from the least to the most value beside it. Many steps
 * are means of neighbours. */
static void put_layer_map(struct page *p, const struct monitor_report *m, const struct layer_figure *f)
{
    struct metric_series steps = mean_series(m, 0, m->layer_count, f->key);
    i64 bin = max_i64(1, ceil_div(steps.n, COLUMNS_MOST)), columns = ceil_div(steps.n, bin), rows = m->layer_count;
    double *values = memory_alloc(max_i64(rows * columns, 1) * 8), low = INFINITY, high = -INFINITY;
    i32 *numbers = memory_alloc(max_i64(columns, 1) * 4);
    char(*names)[24] = memory_alloc(rows * (i64)sizeof *names);
    const char **row_names = memory_alloc(rows * (i64)sizeof *row_names);
    for (i64 c = 0; c < columns; c++)
        numbers[c] = (i32)steps.x[c * bin];
    for (i64 l = 0; l < rows; l++) {
        struct metric_series s = layer_series(m, l, f->key);
        snprintf(names[l], sizeof names[l], "layer %lld", (long long)m->layers[l]);
        row_names[l] = names[l];
        for (i64 c = 0, at = 0; c < columns; c++) {
            double sum = 0, n = 0, end = c + 1 < columns ? steps.x[(c + 1) * bin] : INFINITY;
            for (; at < s.n && s.x[at] < end; at++, n++)
                sum += s.y[at];
            values[l * columns + c] = n > 0 ? sum / n : NAN;
            low = n > 0 ? fmin(low, sum / n) : low;
            high = n > 0 ? fmax(high, sum / n) : high;
        }
        series_release(&s);
    }
    for (i64 i = 0; i < rows * columns; i++)
        values[i] -= low;
    char *about =
        string_format("%s of %s, a row for each layer, a column for each measured step", f->title, m->stage->name);
    char *title = string_format("%s, from %.3g (faint) to %.3g %s", f->title, low, high, f->unit);
    if (columns) {
        figure_open(p, "chart", title);
        chart_heat_map(&p->html, &(struct heat_map){.about = about,
                                                    .rows = rows,
                                                    .columns = columns,
                                                    .values = values,
                                                    .row_names = row_names,
                                                    .column_numbers = numbers,
                                                    .column_title = "step",
                                                    .most = high - low});
        figure_close(p);
    }
    series_release(&steps);
    memory_free(values);
    memory_free(numbers);
    memory_free(names);
    memory_free(row_names);
    memory_free(about);
    memory_free(title);
}

/* ---- Streams ---- */

struct monitor_line {
    const char *name, *key;
    int colour;
};

/* The lines' names and colours above charts that share them. */
static void put_key(struct page *p, const struct monitor_line *lines, i64 count)
{
    buffer_printf(&p->html, "<div class='key'>");
    for (i64 i = 0; i < count; i++) {
        buffer_printf(&p->html, "<span class='c%d'><i></i>", lines[i].colour);
        html_text(&p->html, lines[i].name);
        buffer_printf(&p->html, "</span>");
    }
    buffer_printf(&p->html, "</div>");
}

static void put_mean(struct page *p, const struct monitor_report *m, const struct monitor_line *keys, i64 count,
                     i64 first, i64 layers, const char *title, struct chart *chart)
{
    struct metric_series all[LINES_MOST];
    struct chart_line lines[LINES_MOST];
    char *about = string_format("%s, over the steps of %s", title, m->stage->name);
    for (i64 i = 0; i < count; i++) {
        all[i] = mean_series(m, first, layers, keys[i].key);
        lines[i] = (struct chart_line){"", keys[i].colour, all[i].x, all[i].y, all[i].n};
    }
    chart->about = about;
    chart->x_name = "step";
    chart->lines = lines;
    chart->line_count = count;
    figure_chart(p, title, chart);
    for (i64 i = 0; i < count; i++)
        series_release(&all[i]);
    memory_free(about);
}

/* Lines that have a point in any layer. */
static i64 keep_measured(struct monitor_line *kept, const struct monitor_report *m, const struct monitor_line *all,
                         i64 count)
{
    i64 n = 0;
    for (i64 i = 0; i < count; i++) {
        struct metric_series s = mean_series(m, 0, m->layer_count, all[i].key);
        if (s.n)
            kept[n++] = all[i];
        series_release(&s);
    }
    return n;
}

static void put_streams_of(struct page *p, const struct monitor_report *m)
{
    static const struct monitor_line pairs[] = {{"image-in, video-in", "overlap/image-in/video-in", 4},
                                                {"image-out, video-out", "overlap/image-out/video-out", 1},
                                                {"image-in, image-out", "overlap/image-in/image-out", 2},
                                                {"text, audio", "overlap/text/audio", 0}};
    static const struct monitor_line streams[] = {
        {"text", "entropy/text", 0},           {"image-in", "entropy/image-in", 4},
        {"video-in", "entropy/video-in", 5},   {"image-out", "entropy/image-out", 1},
        {"video-out", "entropy/video-out", 6}, {"audio", "entropy/audio", 2}};
    struct monitor_line kept[LINES_MOST];
    i64 layers = m->layer_count, shown[3] = {0, layers / 2, layers - 1},
        count = keep_measured(kept, m, pairs, COUNT_OF(pairs));
    group_open(p, "%s: how much streams share, over steps", m->stage->name);
    if (count) {
        put_note(
            p, "Of the quarter of experts that two streams use most: intersection over union. 1 is the same experts, 0 "
               "none in common; independent choices would give about 0.14.");
        put_key(p, kept, count);
        buffer_printf(&p->html, "<div class='charts'>");
        put_mean(p, m, kept, count, 0, layers, "Most used experts in common, mean of the layers",
                 &(struct chart){.y_name = "intersection over union", .from_zero = true});
        for (i64 i = 0; i < COUNT_OF(shown) && layers > 1; i++) {
            char title[64];
            snprintf(title, sizeof title, "Most used experts in common, layer %lld", (long long)m->layers[shown[i]]);
            if (i == 0 || shown[i] != shown[i - 1])
                put_mean(p, m, kept, count, shown[i], 1, title,
                         &(struct chart){.y_name = "intersection over union", .from_zero = true});
        }
        buffer_printf(&p->html, "</div>");
    }
    group_close(p, NULL);
    count = keep_measured(kept, m, streams, COUNT_OF(streams));
    group_open(p, "%s: how evenly streams spread over experts, over steps", m->stage->name);
    if (count > 1) {
        put_key(p, kept, count);
        buffer_printf(&p->html, "<div class='charts'>");
        put_mean(p, m, kept, count, 0, layers, "Entropy of a stream's use of experts, mean of the layers",
                 &(struct chart){.y_name = "share of the most possible"});
        buffer_printf(&p->html, "</div>");
    }
    group_close(p, NULL);
}

static void put_router(struct page *p, const struct monitor_report *m)
{
    static const struct layer_figure figures[] = {
        {"load", "Load of the most used expert", "times the mean", 1},
        {"entropy", "Entropy of the use of experts", "of the most possible", 1},
        {"bias", "Spread of the balancing bias", "standard deviation", NAN}};
    group_open(p, "%s: the router over steps", m->stage->name);
    if (m->layer_count) {
        put_note(
            p, "Of the positions of a measured step that choose among all experts with the full top-k. An entropy of 1 "
               "is even use.");
        buffer_printf(&p->html, "<div class='charts'>");
        for (i64 i = 0; i < COUNT_OF(figures); i++)
            (m->layer_count <= LINES_MOST ? put_layer_lines : put_layer_map)(p, m, &figures[i]);
        buffer_printf(&p->html, "</div>");
    }
    group_close(p, NULL);
    if (m->layer_count == 0)
        return;
    i64 begin = p->html.length;
    fold_open(p, "%s: streams and experts over steps", m->stage->name);
    i64 inside = p->html.length;
    put_streams_of(p, m);
    if (p->html.length == inside)
        truncate_text(&p->html, begin);
    else
        fold_close(p);
}

/* ---- Sub-models ---- */

/* The loss of a sub-model above the full model's in thousandths, at the steps where both are known. */
static struct metric_series above_full(const struct monitor_report *m, const char *point, const char *target)
{
    const struct json_lines *lines = &m->lines;
    struct metric_series s = {memory_alloc((lines->count + 1) * 8), memory_alloc((lines->count + 1) * 8), 0};
    char *key = string_format("grid/%s/%s", point, target), *full = string_format("grid/full/%s", target);
    for (i64 i = 0; i < lines->count; i++) {
        double step = number_at(lines->list[i], "step");
        double above = 1e3 * (number_at(lines->list[i], key) - number_at(lines->list[i], full));
        if (isfinite(step) && isfinite(above)) {
            s.x[s.n] = step;
            s.y[s.n++] = above;
        }
    }
    memory_free(key);
    memory_free(full);
    return s;
}

static void put_grid(struct page *p, const struct monitor_report *m)
{
    static const struct {
        const char *target, *title, *unit;
    } targets[] = {{"text", "Text: loss above the full model's", "thousandths of a nat a token"},
                   {"vision", "Bits of pictures and clips: loss above the full model's", "thousandths of a nat a bit"},
                   {"audio", "Codes of sound: loss above the full model's", "thousandths of a nat a code"}};
    struct monitor_line points[LINES_MOST];
    i64 count = 0;
    for (i64 i = 0; i < m->point_count && count < LINES_MOST; i++)
        if (strcmp(m->points[i], "full") != 0) {
            points[count] = (struct monitor_line){m->points[i], m->points[i], (int)count};
            count++;
        }
    group_open(p, "%s: sub-models over steps", m->stage->name);
    if (count) {
        put_note(p, "Held-out losses of the same rows, with a smaller top-k, fewer experts or fewer layers.");
        put_key(p, points, count);
        buffer_printf(&p->html, "<div class='charts'>");
        for (i64 t = 0; t < COUNT_OF(targets); t++) {
            struct metric_series all[LINES_MOST];
            struct chart_line lines[LINES_MOST];
            char *about =
                string_format("%s, over the steps of %s, a line for each sub-model", targets[t].title, m->stage->name);
            for (i64 i = 0; i < count; i++) {
                all[i] = above_full(m, points[i].key, targets[t].target);
                lines[i] = (struct chart_line){"", points[i].colour, all[i].x, all[i].y, all[i].n};
            }
            figure_chart(p, targets[t].title,
                         &(struct chart){.about = about,
                                         .x_name = "step",
                                         .y_name = targets[t].unit,
                                         .lines = lines,
                                         .line_count = count,
                                         .from_zero = true});
            for (i64 i = 0; i < count; i++)
                series_release(&all[i]);
            memory_free(about);
        }
        buffer_printf(&p->html, "</div>");
    }
    group_close(p, NULL);
}

void put_monitor(struct page *p, const struct run_stage *stage)
{
    struct monitor_report *m = memory_alloc(sizeof *m);
    monitor_find(m, stage);
    put_router(p, m);
    put_grid(p, m);
    memory_free(m->lines.list);
    memory_free(m);
}
