/* The page of arms: a table of means, the paired differences, and curves. */
#include "report/arms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Head ---- */

void put_arms_head(struct page *p, const struct arms *all)
{
    const struct run_list *runs = all->runs;
    i64 paired = 0, others = 0;
    for (i64 a = 0; a < all->count; a++)
        if (a != all->baseline) {
            paired += all->list[a].paired;
            others += all->list[a].count;
        }
    buffer_printf(&p->html, "<p class='brand'>Weft: report of arms</p>");
    html_element(&p->html, "h1", NULL, "%lld arm%s, %lld run%s", (long long)all->count, all->count == 1 ? "" : "s",
                 (long long)runs->count, runs->count == 1 ? "" : "s");
    buffer_printf(&p->html, "<p class='lede'>");
    for (i64 i = 0; i < runs->path_count; i++) {
        html_element(&p->html, "code", NULL, "%s", runs->paths[i]);
        buffer_printf(&p->html, " ");
    }
    buffer_printf(&p->html, "</p><p class='lede'>");
    for (i64 a = 0; a < all->count; a++) {
        buffer_printf(&p->html, a ? ", " : "");
        html_text(&p->html, all->list[a].name);
        buffer_printf(&p->html, a == all->baseline ? " (baseline, %lld run%s)" : " (%lld run%s)",
                      (long long)all->list[a].count, all->list[a].count == 1 ? "" : "s");
    }
    buffer_printf(&p->html, ". ");
    if (all->count > 1)
        buffer_printf(&p->html, "%lld of %lld runs have a run of the baseline with the same seed.", (long long)paired,
                      (long long)others);
    buffer_printf(&p->html, "</p>");
    if (runs->missing.count) {
        buffer_printf(&p->html, "<p class='what'>Not begun:");
        for (i64 i = 0; i < runs->missing.count; i++)
            html_element(&p->html, "code", NULL, "%s", runs->missing.list[i]);
        buffer_printf(&p->html, "</p>");
    }
    for (i64 r = 0; r < runs->count; r++)
        put_states(p, &runs->list[r]);
}

/* ---- Tables ---- */

static void put_means_row(void *context, const struct arms *all, const struct arm_figure *f)
{
    struct page *p = context;
    buffer_printf(&p->html, "<tr>");
    html_element(&p->html, "td", "w", "%s", f->figure->label);
    for (i64 a = 0; a < all->count; a++) {
        const struct run_spread *s = &f->spreads[a];
        cell_figure(p, s->n ? s->mean : NAN, f->figure->unit, f->figure->digits);
        buffer_printf(&p->html, "<td class='kind'>");
        if (s->n > 1) {
            put_figure(&p->html, s->least, f->figure->unit, f->figure->digits);
            buffer_printf(&p->html, " to ");
            put_figure(&p->html, s->most, f->figure->unit, f->figure->digits);
        }
        if (s->n && s->n < all->list[a].count)
            buffer_printf(&p->html, "%sof %lld run%s", s->n > 1 ? ", " : "", (long long)s->n, s->n == 1 ? "" : "s");
        buffer_printf(&p->html, "</td>");
    }
    buffer_printf(&p->html, "</tr>");
}

static void group_of(struct page *p, const char *stage)
{
    bool whole = strcmp(stage, "all") == 0;
    group_open(p, "%s%s", whole ? "The whole run" : "Stage ", whole ? "" : stage);
}

/* Closes a table, or takes it back if it has no row. */
static void close_table(struct page *p, i64 begin, i64 rows)
{
    if (p->html.length == rows)
        truncate_text(&p->html, begin);
    else
        table_close(p);
    group_close(p, NULL);
}

static void put_means_table(void *context, const struct arms *all, const char *stage)
{
    struct page *p = context;
    const char **heads = memory_alloc((1 + 2 * all->count) * (i64)sizeof *heads);
    heads[0] = "<figure";
    for (i64 a = 0; a < all->count; a++) {
        heads[1 + 2 * a] = all->list[a].name;
        heads[2 + 2 * a] = "<least to most";
    }
    group_of(p, stage);
    i64 begin = p->html.length;
    table_open(p, heads, 1 + 2 * all->count);
    i64 rows = p->html.length;
    arms_each_figure(all, stage, put_means_row, p);
    close_table(p, begin, rows);
    memory_free(heads);
}

static void put_signed_cell(struct page *p, double value, const struct figure *f)
{
    buffer_printf(&p->html, "<td>");
    put_difference(&p->html, value, f);
    buffer_printf(&p->html, "</td>");
}

struct difference_table {
    struct page *page;
    i64 arm;
};

static void put_difference_row(void *context, const struct arms *all, const struct arm_figure *f)
{
    const struct difference_table *table = context;
    struct page *p = table->page;
    const struct paired_difference *d = &f->differences[table->arm];
    bool same = d->error == 0 && d->mean == 0;
    (void)all;
    buffer_printf(&p->html, "<tr>");
    html_element(&p->html, "td", "w", "%s", f->figure->label);
    put_signed_cell(p, d->mean, f->figure);
    buffer_printf(&p->html, d->resolved ? "<td class='kind'><b>%s</b></td><td>" : "<td class='kind'>%s</td><td>",
                  difference_words(d));
    if (isfinite(d->error) && !same) {
        put_difference(&p->html, d->low, f->figure);
        buffer_printf(&p->html, " to ");
        put_difference(&p->html, d->high, f->figure);
    }
    buffer_printf(&p->html, "</td>");
    cell_figure(p, same ? NAN : d->error, f->figure->unit, f->figure->digits + 1);
    cell_figure(p, same ? NAN : d->smallest, f->figure->unit, f->figure->digits + 1);
    buffer_printf(&p->html, "<td>%lld</td></tr>", (long long)d->pairs);
}

static void put_differences_tables(void *context, const struct arms *all, const char *stage)
{
    struct page *p = context;
    for (i64 a = 0; a < all->count; a++) {
        struct difference_table table = {p, a};
        static const char *const heads[] = {
            "<figure", "difference", "<", "95\u00a0% interval", "s.e.", "smallest visible effect", "pairs"};
        bool whole = strcmp(stage, "all") == 0;
        if (a == all->baseline)
            continue;
        group_open(p, "%s%s: %s less %s", whole ? "The whole run" : "Stage ", whole ? "" : stage, all->list[a].name,
                   all->list[all->baseline].name);
        i64 begin = p->html.length;
        table_open(p, heads, COUNT_OF(heads));
        i64 rows = p->html.length;
        arms_each_figure(all, stage, put_difference_row, &table);
        close_table(p, begin, rows);
    }
}

/* ---- Curves ---- */

struct arm_curve { /* of an arm's runs at the steps where any has the metric */
    double *x, *y, *low, *high;
    i64 n;
};
struct curve_point {
    double x, y;
};

static int by_step(const void *a, const void *b)
{
    const struct curve_point *p = a, *q = b;
    return p->x != q->x ? (p->x > q->x) - (p->x < q->x) : (p->y > q->y) - (p->y < q->y);
}

static struct arm_curve curve_of(const struct arms *all, const struct arm *arm, const char *stage, const char *key)
{
    struct curve_point *points = NULL;
    i64 count = 0;
    for (i64 i = 0; i < arm->count; i++) {
        const struct run_stage *s = run_find(&all->runs->list[arm->runs[i]], stage);
        struct metric_series series = series_of(s ? &s->metrics : &(struct json_lines){0}, key);
        i64 size = (i64)sizeof *points;
        points = memory_resize(points, count * size, max_i64(count + series.n, 1) * size);
        for (i64 k = 0; k < series.n; k++)
            points[count++] = (struct curve_point){series.x[k], series.y[k]};
        series_release(&series);
    }
    if (count)
        qsort(points, (size_t)count, sizeof *points, by_step);
    struct arm_curve c = {memory_alloc(max_i64(4 * count, 1) * 8), NULL, NULL, NULL, 0};
    c.y = c.x + count;
    c.low = c.y + count;
    c.high = c.low + count;
    for (i64 i = 0, end; i < count; i = end, c.n++) {
        double sum = 0;
        for (end = i; end < count && points[end].x == points[i].x; end++)
            sum += points[end].y;
        c.x[c.n] = points[i].x;
        c.y[c.n] = sum / (double)(end - i);
        c.low[c.n] = points[i].y;
        c.high[c.n] = points[end - 1].y;
    }
    memory_free(points);
    return c;
}

static void put_curve(struct page *p, const struct arms *all, const char *stage, const char *key, const char *title,
                      const char *unit)
{
    struct arm_curve *curves = memory_alloc(all->count * (i64)sizeof *curves);
    struct chart_line *lines = memory_alloc(all->count * (i64)sizeof *lines);
    char **names = memory_alloc(all->count * (i64)sizeof *names);
    struct buffer about = {0};
    buffer_printf(&about, "%s of %s over steps, means over seeds", title, stage);
    for (i64 a = 0; a < all->count; a++) {
        struct arm_curve *c = &curves[a];
        *c = curve_of(all, &all->list[a], stage, key);
        names[a] = short_name(all->list[a].name);
        lines[a] = (struct chart_line){names[a], (int)a, c->x, c->y, c->n, c->low, c->high};
        if (c->n)
            buffer_printf(&about, "; %s from %.4g to %.4g", all->list[a].name, c->y[0], c->y[c->n - 1]);
    }
    figure_chart(p, title,
                 &(struct chart){.about = about.data,
                                 .x_name = "step",
                                 .y_name = unit,
                                 .lines = lines,
                                 .line_count = all->count,
                                 .reference = NAN});
    for (i64 a = 0; a < all->count; a++) {
        memory_free(curves[a].x);
        memory_free(names[a]);
    }
    memory_free(names);
    memory_free(curves);
    memory_free(lines);
    buffer_release(&about);
}

/* Charts of all keys of metrics.jsonl that begin with `heldout/`, in the order in which they come. */
static void put_heldout_curves(struct page *p, const struct arms *all, const char *stage)
{
    struct json *seen = json_object();
    struct json_iterator it;
    for (i64 r = 0; r < all->runs->count; r++) {
        const struct run_stage *s = run_find(&all->runs->list[r], stage);
        for (i64 i = 0; s && i < s->metrics.count; i++)
            for (bool more = json_first(&it, s->metrics.list[i]); more; more = json_next(&it, s->metrics.list[i])) {
                if (strncmp(it.key, "heldout/", 8) != 0 || json_get(seen, it.key))
                    continue;
                bool loss = strcmp(it.key, "heldout/reward") != 0 && strcmp(it.key, "heldout/entropy") != 0;
                char *title = string_format(loss ? "Held-out loss, %s" : "Held-out %s", it.key + 8);
                put_curve(p, all, stage, it.key, title, loss ? "nats a target" : "mean over answers");
                json_set(seen, it.key, json_of_bool(true));
                memory_free(title);
            }
    }
    json_free(seen);
}

static void put_curves(void *context, const struct arms *all, const char *stage)
{
    static const char *const panels[][3] = {
        {"loss/text", "Training loss on text", "nats a token"},
        {"loss/vision", "Training loss on bits of pictures and clips", "nats a bit"},
        {"loss/audio", "Training loss on codes of sound", "nats a code"},
        {"stills/loss", "Training loss on stills", "sum of its terms"},
        {"clips/loss", "Training loss on clips", "sum of its terms"},
        {"loss", "Training loss", "sum of its terms"},
        {"reward", "Reward", "mean of a step"},
    };
    struct page *p = context;
    group_open(p, "Stage %s", stage);
    i64 begin = p->html.length;
    buffer_printf(&p->html, "<div class='charts'>");
    i64 inside = p->html.length;
    for (i64 i = 0; i < COUNT_OF(panels); i++)
        put_curve(p, all, stage, panels[i][0], panels[i][1], panels[i][2]);
    put_heldout_curves(p, all, stage);
    if (p->html.length == inside)
        truncate_text(&p->html, begin);
    else
        buffer_printf(&p->html, "</div>");
    group_close(p, NULL);
}

/* ---- Settings: the first run of each arm beside the others' ---- */

static void put_arm_settings(struct page *p, const struct arms *all)
{
    struct run *firsts = arms_firsts(all);
    const struct run *runs = p->runs;
    i64 count = p->run_count;
    p->runs = firsts;
    p->run_count = all->count;
    put_settings(p);
    p->runs = runs;
    p->run_count = count;
    memory_free(firsts);
}

void put_arms(struct page *p, const struct arms *all)
{
    if (all->count > 1)
        put_arm_settings(p, all);
    section_open(p, "curves", "Curves",
                 "Each stage over its steps: the mean over the seeds of an arm; the pale band spans the least and the "
                 "most of them.");
    arms_each_stage(all, put_curves, p);
    section_close(p);
    if (all->count > 1) {
        section_open(p, "differences", "Differences",
                     "Each arm less the baseline, a mean over pairs of runs of one seed, which begin alike. s.e.: "
                     "standard error of that mean. The interval is Student's: if it holds 0, the difference is not "
                     "resolved. The smallest visible effect is what so many pairs would show in four of five such "
                     "experiments. Of twenty figures that do not differ, one seems to by chance.");
        arms_each_stage(all, put_differences_tables, p);
        section_close(p);
    }
    section_open(p, "arms", "Arms", "Means over the runs of each arm, and their range. A blank was not measured.");
    arms_each_stage(all, put_means_table, p);
    section_close(p);
}
