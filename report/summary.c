/* The first screen: results of the run, then the time of each
 * stage. For several runs: key figures side by side. */
#include "report/page.h"

#include <math.h>
#include <string.h>

/* ---- Results ---- */

static const char *const kinds[][2] = {{"tokenizer-text", "a text tokenizer"},
                                       {"tokenizer-vision", "a vision tokenizer"},
                                       {"tokenizer-audio", "an audio tokenizer"},
                                       {"refiner", "a refiner of pictures"},
                                       {"pretrain", "an elastic mixture-of-experts backbone"},
                                       {"extract", "a sub-model cut out of it"},
                                       {"sft", "supervised fine-tuning"},
                                       {"rl", "reinforcement learning"},
                                       {"export", "an export for other software"}};

static bool has_kind(const struct run *run, const char *kind)
{
    for (i64 i = 0; i < run->count; i++)
        if (run->stages[i].finished && strcmp(stage_kind(&run->stages[i]), kind) == 0)
            return true;
    return false;
}

/* The model that a reader looks for: the first that was pre-trained, else the first fine-tuned one. */
static void put_model(struct page *p, const struct run *run)
{
    static const char *const makers[] = {"pretrain", "sft", "rl", "extract"};
    for (i64 k = 0; k < COUNT_OF(makers); k++)
        for (i64 i = 0; i < run->count; i++) {
            struct buffer sizes = {0};
            if (strcmp(stage_kind(&run->stages[i]), makers[k]) != 0 || !run_put_model(&sizes, run, &run->stages[i])) {
                buffer_release(&sizes);
                continue;
            }
            html_element(&p->html, "p", "what", "The model %s: %s.", run->stages[i].name, sizes.data);
            buffer_release(&sizes);
            return;
        }
}

static void put_results(struct page *p, const struct run *run)
{
    struct buffer made = {0};
    i64 left = 0, finished = 0;
    for (i64 i = 0; i < COUNT_OF(kinds); i++)
        left += has_kind(run, kinds[i][0]);
    for (i64 i = 0; i < COUNT_OF(kinds); i++)
        if (has_kind(run, kinds[i][0])) {
            left--;
            buffer_printf(&made, "%s%s", made.length == 0 ? "" : left ? ", " : " and ", kinds[i][1]);
        }
    for (i64 i = 0; i < run->count; i++)
        finished += run->stages[i].finished;
    buffer_printf(&p->html, "<p class='lede'>");
    html_text(&p->html, made.data  ? "Made here: "
                        : finished ? "No tokenizer and no model is finished yet"
                                   : "Nothing is finished here yet");
    html_text(&p->html, made.data);
    buffer_printf(&p->html, ".");
    if (json_count(run->skipped)) {
        struct buffer skipped = {0};
        run_put_skipped(&skipped, run);
        html_text(&p->html, " Skipped: ");
        html_text(&p->html, skipped.data);
        buffer_printf(&p->html, ".");
        buffer_release(&skipped);
    }
    if (json_get(run->about, "precision")) {
        buffer_printf(&p->html, " Arithmetic in ");
        html_text(&p->html, json_string(json_get(run->about, "precision"), ""));
        buffer_printf(&p->html, ".");
    }
    buffer_printf(&p->html, "</p>");
    buffer_release(&made);
}

static void put_tile(struct page *p, const struct figure *f)
{
    buffer_printf(&p->html, "<div class='tile'>");
    html_element(&p->html, "dt", NULL, "%s", f->tile);
    buffer_printf(&p->html, "<dd><b>");
    if (isfinite(f->before)) {
        buffer_printf(&p->html, "<i>");
        put_figure(&p->html, f->before, f->unit, f->digits > 2 ? 2 : f->digits);
        buffer_printf(&p->html, " \u2192 </i>");
    }
    put_figure(&p->html, f->value, f->unit, f->unit == UNIT_SHARE ? 0 : f->digits > 2 ? 2 : f->digits);
    buffer_printf(&p->html, "</b></dd>");
    html_element(&p->html, "dd", "soft", "%s%s%s", f->note, *f->detail ? "; " : "", f->detail);
    buffer_printf(&p->html, "</div>");
}

/* Adds tiles in order of importance. */
static void put_tiles(struct page *p, const struct figures *all)
{
    static const char *const order[] = {"Parameters",
                                        "Loss on text",
                                        "Pictures from new captions",
                                        "Reward",
                                        "Pictures through tokens",
                                        "Speech through tokens",
                                        "Speed",
                                        "Time"};
    buffer_printf(&p->html, "<dl class='tiles'>");
    for (i64 o = 0; o < COUNT_OF(order); o++)
        for (i64 i = 0; i < all->count; i++)
            if (all->list[i].tile && strcmp(all->list[i].tile, order[o]) == 0)
                put_tile(p, &all->list[i]);
    buffer_printf(&p->html, "</dl>");
}

/* ---- Spread over runs ---- */

struct run_spread spread_of(const double *values, i64 count)
{
    struct run_spread s = {0, 0, INFINITY, -INFINITY, 0};
    for (i64 i = 0; i < count; i++)
        if (isfinite(values[i])) {
            s.mean += values[i];
            s.least = fmin(s.least, values[i]);
            s.most = fmax(s.most, values[i]);
            s.n++;
        }
    s.mean /= (double)max_i64(s.n, 1);
    for (i64 i = 0; i < count; i++)
        if (isfinite(values[i]))
            s.deviation += (values[i] - s.mean) * (values[i] - s.mean);
    s.deviation = s.n > 1 ? sqrt(s.deviation / (double)(s.n - 1)) : NAN;
    return s;
}

struct run_spread figure_spread(double *values, const struct figures *all, i64 runs, const struct figure *f)
{
    for (i64 r = 0; r < runs; r++) {
        const struct figure *own = figures_find(&all[r], f->stage, f->label);
        values[r] = own ? own->value : NAN;
    }
    return spread_of(values, runs);
}

double figure_baseline(const struct figures *all, i64 runs, const struct figure *f)
{
    double *values = memory_alloc(runs * 8);
    for (i64 r = 0; r < runs; r++) {
        const struct figure *own = figures_find(&all[r], f->stage, f->label);
        values[r] = own ? own->baseline : NAN;
    }
    struct run_spread s = spread_of(values, runs);
    memory_free(values);
    return s.n ? s.mean : NAN;
}

/* "0.9 to 1.1"; one number if both print the same. */
static void put_range(struct buffer *out, const struct run_spread *s, const struct figure *f)
{
    struct buffer least = {0}, most = {0};
    put_figure(&least, s->least, f->unit, f->digits);
    put_figure(&most, s->most, f->unit, f->digits);
    bool same = strcmp(least.data, most.data) == 0;
    buffer_printf(out, "%s%s%s", least.data, same ? "" : " to ", same ? "" : most.data);
    buffer_release(&least);
    buffer_release(&most);
}

/* Shows the first run's figures as means over runs, with their range. */
static void put_tiles_of_several(struct page *p)
{
    struct figures *all = memory_alloc(p->run_count * (i64)sizeof *all);
    double *values = memory_alloc(p->run_count * 8);
    for (i64 r = 0; r < p->run_count; r++)
        figures_collect(&all[r], &p->runs[r]);
    for (i64 i = 0; i < all[0].count; i++) {
        struct figure *f = &all[0].list[i];
        struct run_spread s = figure_spread(values, all, p->run_count, f);
        struct buffer range = {0};
        if (!f->tile)
            continue;
        put_range(&range, &s, f);
        bool same = !strstr(range.data, " to ");
        memory_free(f->detail);
        f->detail = s.n == 1 ? string_copy("of a single run")
                    : same   ? string_format("the same in %lld runs", (long long)s.n)
                             : string_format("mean of %lld runs, %s", (long long)s.n, range.data);
        f->value = s.mean;
        f->before = NAN;
        buffer_release(&range);
    }
    put_tiles(p, &all[0]);
    for (i64 r = 0; r < p->run_count; r++)
        figures_release(&all[r]);
    memory_free(values);
    memory_free(all);
}

void put_summary(struct page *p)
{
    const struct run *run = p->runs;
    struct figures all;
    buffer_printf(&p->html, "<p class='brand'>Weft: report of %s</p>", p->run_count > 1 ? "several runs" : "a run");
    if (p->run_count > 1) {
        html_element(&p->html, "h1", NULL, "%lld runs", (long long)p->run_count);
        buffer_printf(&p->html, "<p class='lede'>");
        for (i64 i = 0; i < p->run_count; i++) {
            buffer_printf(&p->html, "%s<code>", i ? " " : "");
            html_text(&p->html, p->runs[i].path);
            buffer_printf(&p->html, "</code>");
        }
        buffer_printf(&p->html, "</p>");
        for (i64 i = 0; i < p->run_count; i++)
            put_states(p, &p->runs[i]);
        put_tiles_of_several(p);
        return;
    }
    html_element(&p->html, "h1", NULL, "%s", run->name);
    put_states(p, run);
    put_model(p, run);
    put_results(p, run);
    put_strip(p);
    figures_collect(&all, run);
    put_tiles(p, &all);
    figures_release(&all);
}

/* ---- Time ---- */

static double all_seconds(const struct run *run, double *longest)
{
    double sum = 0;
    *longest = 0;
    for (i64 i = 0; i < run->count; i++)
        if (isfinite(run->stages[i].seconds)) {
            sum += run->stages[i].seconds;
            *longest = fmax(*longest, run->stages[i].seconds);
        }
    return sum;
}

struct summary_columns { /* columns with at least one value */
    bool model, speed, gflops, share, memory;
};

/* Median speed over steps, in units of the training data. */
static void put_speed(struct page *p, const struct run_stage *s, const struct summary_columns *c)
{
    static const char *const keys[][2] = {
        {"tokens_per_s", "tokens/s"}, {"pictures_per_s", "pictures/s"}, {"frames_per_s", "frames/s"}};
    struct metric_series share = series_of(&s->metrics, "product_share");
    buffer_printf(&p->html, "<td>");
    for (i64 i = 0; i < COUNT_OF(keys); i++) {
        struct metric_series speed = series_of(&s->metrics, keys[i][0]);
        if (speed.n) {
            put_figure(&p->html, series_median(&speed), UNIT_COUNT, 0);
            buffer_printf(&p->html, " %s", keys[i][1]);
        }
        series_release(&speed);
    }
    buffer_printf(&p->html, "</td>");
    if (c->gflops)
        cell_figure(p, stage_gflops(s), UNIT_NUMBER, 0);
    if (c->share)
        cell_figure(p, series_median(&share), UNIT_SHARE, 0);
    series_release(&share);
}

static struct summary_columns columns_of(const struct run *run)
{
    struct summary_columns c = {0};
    for (i64 i = 0; i < run->count; i++) {
        struct metric_series share = series_of(&run->stages[i].metrics, "product_share");
        struct buffer sizes = {0};
        c.model |= run_put_model(&sizes, run, &run->stages[i]);
        buffer_release(&sizes);
        c.share |= share.n > 0;
        c.gflops |= isfinite(stage_gflops(&run->stages[i]));
        c.memory |= isfinite(run->stages[i].peak_bytes);
        c.speed |= run->stages[i].metrics.count > 0;
        series_release(&share);
    }
    return c;
}

static void put_stage(struct page *p, const struct run *run, const struct run_stage *s, const struct summary_columns *c,
                      double longest)
{
    buffer_printf(&p->html, "<tr><td>");
    html_text(&p->html, s->name);
    buffer_printf(&p->html, "</td><td class='kind'>");
    html_text(&p->html, stage_kind(s));
    if (!s->finished)
        buffer_printf(&p->html, ", <b>%s</b>", stage_states[s->state]);
    buffer_printf(&p->html, "</td>");
    cell_figure(p, s->seconds, UNIT_SECONDS, 0);
    buffer_printf(&p->html, "<td class='bars'>");
    if (isfinite(s->seconds) && longest > 0)
        buffer_printf(&p->html, "<span class='bar' style='width:%.1f%%'></span>", 100 * s->seconds / longest);
    buffer_printf(&p->html, "</td>");
    if (c->speed)
        put_speed(p, s, c);
    if (c->memory)
        cell_figure(p, s->peak_bytes, UNIT_BYTES, 0);
    if (c->model) {
        struct buffer sizes = {0};
        run_put_model(&sizes, run, s);
        buffer_printf(&p->html, "<td class='model'>");
        html_text(&p->html, sizes.data);
        buffer_printf(&p->html, "</td>");
        buffer_release(&sizes);
    }
    buffer_printf(&p->html, "</tr>");
}

static void put_stage_table(struct page *p, const struct run *run)
{
    struct summary_columns c = columns_of(run);
    const char *heads[9] = {"stage", "<kind", "time", ""};
    i64 n = 4;
    double longest, sum = all_seconds(run, &longest);
    if (c.speed) {
        heads[n++] = "speed, median";
        if (c.gflops)
            heads[n++] = "GFLOP/s";
    }
    if (c.speed && c.share)
        heads[n++] = "of one product";
    if (c.memory)
        heads[n++] = "memory so far";
    if (c.model)
        heads[n++] = "<model that it makes or reads";
    table_open(p, heads, n);
    for (i64 i = 0; i < run->count; i++)
        put_stage(p, run, &run->stages[i], &c, longest);
    if (sum > 0) {
        buffer_printf(&p->html, "<tr class='sum'><td>all</td><td></td>");
        cell_figure(p, sum, UNIT_SECONDS, 0);
        for (i64 i = 3; i < n; i++)
            buffer_printf(&p->html, "<td></td>");
        buffer_printf(&p->html, "</tr>");
    }
    table_close(p);
}

void put_stages(struct page *p)
{
    if (p->run_count > 1)
        return;
    section_open(p, "stages", "Stages", "Each stage writes a folder that later stages read. Blank: not measured.");
    struct summary_columns c = columns_of(&p->runs[0]);
    if (c.gflops)
        put_note(p, "GFLOP/s: additions and multiplications that the model needs, in 10\u2079 a second.");
    if (c.share)
        put_note(p, "Of one product: beside what a single product of the model's commonest matrix reached on this "
                    "machine before the first step.");
    if (p->runs[0].count)
        put_stage_table(p, &p->runs[0]);
    section_close(p);
}

/* ---- Several runs ---- */

struct comparison_columns { /* columns with at least one value */
    bool part, baseline;
};

/* The label without the part, which has its own column: "test/.." or ".., test". */
static void put_label(struct page *p, const struct figure *f)
{
    size_t label = strlen(f->label), part = f->part ? strlen(f->part) : 0;
    const char *begin = f->label;
    if (part && strncmp(begin, f->part, part) == 0 && begin[part] == '/')
        begin += part + 1;
    else if (part && label > part + 2 && strcmp(begin + label - part, f->part) == 0)
        label -= part + 2;
    char *text = string_format("%.*s", (int)(label - (size_t)(begin - f->label)), begin);
    html_element(&p->html, "td", "w", "%s", text);
    memory_free(text);
}

/* A row: the part and the baseline, mean and standard deviation over runs, minimum to maximum, then
 * each run. */
static void put_row(struct page *p, const struct figure *f, const struct figures *all,
                    const struct comparison_columns *c)
{
    double *values = memory_alloc(p->run_count * 8);
    struct run_spread s = figure_spread(values, all, p->run_count, f);
    buffer_printf(&p->html, "<tr>");
    put_label(p, f);
    if (c->part)
        html_element(&p->html, "td", "kind", "%s", f->part ? f->part : "");
    if (c->baseline)
        cell_figure(p, figure_baseline(all, p->run_count, f), f->unit, f->digits);
    cell_figure(p, s.mean, f->unit, f->digits);
    cell_figure(p, s.deviation, f->unit, f->digits);
    buffer_printf(&p->html, "<td>");
    put_range(&p->html, &s, f);
    buffer_printf(&p->html, "</td>");
    for (i64 r = 0; r < p->run_count; r++)
        cell_figure(p, values[r], f->unit, f->digits);
    buffer_printf(&p->html, "</tr>");
    memory_free(values);
}

bool figure_is_first(const struct figures *all, i64 run, const struct figure *f)
{
    for (i64 r = 0; r < run; r++)
        if (figures_find(&all[r], f->stage, f->label))
            return false;
    return true;
}

static void put_stage_rows(struct page *p, const char *stage, const struct figures *all)
{
    bool whole = strcmp(stage, "all") == 0;
    const char **heads = memory_alloc((6 + p->run_count) * (i64)sizeof *heads);
    struct comparison_columns c = {0};
    i64 rows = 0, n = 0;
    for (i64 r = 0; r < p->run_count; r++)
        for (i64 i = 0; i < all[r].count; i++)
            if (strcmp(all[r].list[i].stage, stage) == 0) {
                c.part |= all[r].list[i].part && *all[r].list[i].part;
                c.baseline |= isfinite(all[r].list[i].baseline);
                rows++;
            }
    heads[n++] = "<figure";
    if (c.part)
        heads[n++] = "<on";
    if (c.baseline)
        heads[n++] = "baseline";
    heads[n++] = "mean";
    heads[n++] = "std";
    heads[n++] = "least to most";
    for (i64 r = 0; r < p->run_count; r++)
        heads[n++] = p->runs[r].name;
    group_open(p, "%s%s", whole ? "The whole run" : "Stage ", whole ? "" : stage);
    if (rows) {
        table_open(p, heads, n);
        for (i64 r = 0; r < p->run_count; r++)
            for (i64 i = 0; i < all[r].count; i++)
                if (strcmp(all[r].list[i].stage, stage) == 0 && figure_is_first(all, r, &all[r].list[i]))
                    put_row(p, &all[r].list[i], all, &c);
        table_close(p);
    }
    group_close(p, NULL);
    memory_free(heads);
}

void put_comparison(struct page *p)
{
    if (p->run_count < 2)
        return;
    struct figures *all = memory_alloc(p->run_count * (i64)sizeof *all);
    for (i64 r = 0; r < p->run_count; r++)
        figures_collect(&all[r], &p->runs[r]);
    section_open(
        p, "figures", "Figures and their spread",
        "Standard deviations are over runs. A baseline needs no model: the training medium of the nearest "
        "caption or the length alone, whichever is better; the best fixed answer; the mean spectrum. A blank was "
        "not measured in that run.");
    put_stage_rows(p, "all", all);
    for (i64 i = 0; i < p->stage_count; i++)
        put_stage_rows(p, p->stages[i], all);
    section_close(p);
    for (i64 r = 0; r < p->run_count; r++)
        figures_release(&all[r]);
    memory_free(all);
}
