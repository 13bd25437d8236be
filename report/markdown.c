/* A Markdown table of the figures of one or several runs: for each its part, its baseline, and the
 * mean with the lowest and highest. */
#include "report/arms.h"
#include "report/report.h"

#include <math.h>
#include <string.h>

struct markdown_row {
    const char *stage, *label, *part;
    double before, baseline;
    double low, high; /* 95 % interval, of a single run */
    struct run_spread spread;
    enum unit unit;
    int digits;
};

static struct run_spread spread_at(const struct json *const *values, i64 count, const char *key)
{
    struct run_spread s = {0, NAN, INFINITY, -INFINITY, 0};
    for (i64 r = 0; r < count; r++) {
        double x = number_at(values[r], key);
        if (!isfinite(x))
            continue;
        s.mean += x;
        s.least = fmin(s.least, x);
        s.most = fmax(s.most, x);
        s.n++;
    }
    s.mean = s.n ? s.mean / (double)s.n : NAN;
    return s;
}

static void put_cell(struct buffer *out, const char *text)
{
    buffer_printf(out, " ");
    for (; *text; text++)
        buffer_printf(out, *text == '|' ? "\\|" : *text == '\n' ? " " : "%c", *text);
    buffer_printf(out, " |");
}

static void put_number(struct buffer *out, double value, const struct markdown_row *row)
{
    buffer_printf(out, " ");
    if (isfinite(value))
        put_figure(out, value, row->unit, row->digits);
    buffer_printf(out, " |");
}

static void put_row(struct buffer *out, const struct markdown_row *row, i64 runs)
{
    if (row->spread.n == 0)
        return;
    buffer_printf(out, "|");
    put_cell(out, row->stage);
    put_cell(out, row->label);
    put_cell(out, row->part);
    put_number(out, row->before, row);
    put_number(out, row->baseline, row);
    buffer_printf(out, " ");
    put_figure(out, row->spread.mean, row->unit, row->digits);
    double low = runs > 1 ? row->spread.least : row->low, high = runs > 1 ? row->spread.most : row->high;
    if (isfinite(low) && isfinite(high)) {
        buffer_printf(out, runs > 1 ? " (" : " (95 %%: ");
        put_figure(out, low, row->unit, row->digits);
        buffer_printf(out, " to ");
        put_figure(out, high, row->unit, row->digits);
        if (row->spread.n < runs)
            buffer_printf(out, "; %lld runs", (long long)row->spread.n);
        buffer_printf(out, ")");
    }
    buffer_printf(out, " |\n");
}

/* Figures that say what they were measured on. */
static void put_figures(struct buffer *out, const char *stage, const struct figures *all, i64 runs)
{
    double *values = memory_alloc(runs * 8);
    for (i64 r = 0; r < runs; r++)
        for (i64 i = 0; i < all[r].count; i++) {
            const struct figure *f = &all[r].list[i];
            if (!f->part || strcmp(f->stage, stage) != 0 || !figure_is_first(all, r, f))
                continue;
            struct markdown_row row = {stage,
                                       f->label,
                                       f->part,
                                       NAN,
                                       figure_baseline(all, runs, f),
                                       f->low,
                                       f->high,
                                       figure_spread(values, all, runs, f),
                                       f->unit,
                                       f->digits};
            put_row(out, &row, runs);
        }
    memory_free(values);
}

/* Held-out losses by stream and target, beside the entropy of a predictor of frequencies. */
static void put_losses(struct buffer *out, const char *stage, struct json *const *files, i64 runs)
{
    const struct json **start = memory_alloc(runs * 2 * (i64)sizeof *start), **end = start + runs;
    const struct json *first = NULL;
    for (i64 r = runs - 1; r >= 0; r--)
        first = files[r] ? json_get(files[r], "end") : first;
    for (i64 i = 0; i < json_count(first); i++) {
        const struct json *as = json_at(first, i);
        char *label = string_format("held-out loss, %s: %s", json_string(json_get(as, "stream"), ""),
                                    json_string(json_get(as, "target"), ""));
        for (i64 r = 0; r < runs; r++) {
            start[r] = same_target(json_get(files[r], "start"), as);
            end[r] = same_target(json_get(files[r], "end"), as);
        }
        put_row(out,
                &(struct markdown_row){stage, label, "validation", spread_at(start, runs, "loss").mean,
                                       spread_at(end, runs, "unigram").mean, NAN, NAN, spread_at(end, runs, "loss"),
                                       UNIT_NUMBER, 2},
                runs);
        memory_free(label);
    }
    memory_free(start);
}

static void put_reward_rows(struct buffer *out, const char *stage, struct json *const *files, i64 runs)
{
    static const char *const how[] = {"sampled", "greedy"};
    const struct json **start = memory_alloc(runs * 2 * (i64)sizeof *start), **end = start + runs;
    for (i64 k = 0; k < COUNT_OF(how); k++) {
        char *label = string_format("reward, %s answers", how[k]);
        for (i64 r = 0; r < runs; r++) {
            const struct json *heldout = json_get(files[r], "heldout");
            start[r] = json_get(json_get(heldout, "start"), how[k]);
            end[r] = json_get(json_get(heldout, "end"), how[k]);
        }
        put_row(out,
                &(struct markdown_row){stage, label, "held-out prompts", spread_at(start, runs, "reward").mean, NAN,
                                       NAN, NAN, spread_at(end, runs, "reward"), UNIT_NUMBER, 2},
                runs);
        memory_free(label);
    }
    memory_free(start);
}

static void put_file_rows(struct buffer *out, const struct run *runs, i64 count, const char *stage, const char *file,
                          void (*put)(struct buffer *, const char *, struct json *const *, i64))
{
    struct json **files = memory_alloc(count * (i64)sizeof *files);
    for (i64 r = 0; r < count; r++) {
        const struct run_stage *s = run_find(&runs[r], stage);
        files[r] = s ? stage_json(s, file) : NULL;
    }
    put(out, stage, files, count);
    for (i64 r = 0; r < count; r++)
        json_free(files[r]);
    memory_free(files);
}

static void put_table(struct buffer *out, const struct run *runs, i64 count)
{
    struct figures *all = memory_alloc(count * (i64)sizeof *all);
    buffer_printf(out, "| stage | figure | measured on | before | baseline | %s |\n|---|---|---|---|---|---|\n",
                  count > 1 ? "mean (lowest to highest)" : "value");
    for (i64 r = 0; r < count; r++)
        figures_collect(&all[r], &runs[r]);
    for (i64 r = 0; r < count; r++)
        for (i64 i = 0; i < runs[r].count; i++) {
            const char *stage = runs[r].stages[i].name;
            bool known = false;
            for (i64 before = 0; before < r; before++)
                known |= run_find(&runs[before], stage) != NULL;
            if (known)
                continue;
            put_file_rows(out, runs, count, stage, "heldout.json", put_losses);
            put_figures(out, stage, all, count);
            put_file_rows(out, runs, count, stage, "rl.json", put_reward_rows);
        }
    for (i64 r = 0; r < count; r++)
        figures_release(&all[r]);
    memory_free(all);
}

int report_markdown_against(struct buffer *out, const char *const *runs, i64 count, const char *baseline)
{
    struct run_list list;
    struct arms arms = {0};
    int status = run_list_open(&list, runs, count);
    if (status == 0) {
        status = arms_open(&arms, &list, baseline);
        if (status == 0 && arms.count)
            arms_markdown(out, &arms);
        else if (status == 0)
            put_table(out, list.list, list.count);
        if (status == 0 && !arms.count)
            settings_markdown(out, list.list, list.count);
        arms_close(&arms);
    }
    run_list_close(&list);
    return status;
}

int report_markdown(struct buffer *out, const char *const *runs, i64 count)
{
    return report_markdown_against(out, runs, count, NULL);
}
