/* A Markdown table of the figures of one or several runs: for each its part, its baseline, and the
 * mean with its 95 % interval. */
#include "report/arms.h"
#include "report/report.h"

#include <math.h>
#include <string.h>

struct markdown_row {
    const char *stage, *label, *part;
    double before, baseline;
    double low, high; /* 95 % interval of a single run */
    double error;     /* standard error over what was measured, mean square over runs; NaN: not known */
    struct run_spread spread;
    enum unit unit;
    int digits;
};

static const double two_sided = 1.959964; /* quantile of the normal distribution: 2.5 % lie above it */

static struct run_spread spread_at(const struct json *const *values, i64 count, const char *key)
{
    double *numbers = memory_alloc(max_i64(count, 1) * 8);
    for (i64 r = 0; r < count; r++)
        numbers[r] = number_at(values[r], key);
    struct run_spread s = spread_of(numbers, count);
    memory_free(numbers);
    s.mean = s.n ? s.mean : NAN;
    return s;
}

/* Root mean square of what is known of the runs' standard errors. */
static double error_at(const struct json *const *values, i64 count, const char *key)
{
    double sum = 0, n = 0;
    for (i64 r = 0; r < count; r++) {
        double error = number_at(values[r], key);
        sum += isfinite(error) ? error * error : 0;
        n += isfinite(error);
    }
    return n > 0 ? sqrt(sum / n) : NAN;
}

/* Half the width of the 95 % interval of the mean over runs, had other files been measured and other seeds
 * been drawn. All runs measure the same files, so more runs do not make the files' part smaller. The runs'
 * differences hold a share of the files' chance too, so the interval is rather too wide. */
static double reach_of(const struct run_spread *s, double error)
{
    double n = (double)s->n, files = isfinite(error) ? two_sided * error : 0;
    return hypot(files, n > 1 ? student_quantile(0.975, n - 1) * s->deviation / sqrt(n) : 0);
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
    double reach = reach_of(&row->spread, row->error);
    bool several = runs > 1, known = several ? row->spread.n > 1 : isfinite(row->low) && isfinite(row->high);
    if (known && !(several && reach <= 1e-9 * fabs(row->spread.mean))) {
        buffer_printf(out, several ? " (" : " (95 %%: ");
        put_figure(out, several ? row->spread.mean - reach : row->low, row->unit, row->digits);
        buffer_printf(out, " to ");
        put_figure(out, several ? row->spread.mean + reach : row->high, row->unit, row->digits);
        if (several && !isfinite(row->error))
            buffer_printf(out, "; seeds alone");
        if (row->spread.n < runs)
            buffer_printf(out, "; %lld runs", (long long)row->spread.n);
        buffer_printf(out, ")");
    }
    buffer_printf(out, " |\n");
}

/* Standard error of a figure by its 95 % interval, as error_at. */
static double figure_error(const struct figures *all, i64 runs, const struct figure *f)
{
    double sum = 0, n = 0;
    for (i64 r = 0; r < runs; r++) {
        const struct figure *own = figures_find(&all[r], f->stage, f->label);
        double error = own ? (own->high - own->low) / (2 * two_sided) : NAN;
        sum += isfinite(error) ? error * error : 0;
        n += isfinite(error);
    }
    return n > 0 ? sqrt(sum / n) : NAN;
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
                                       figure_error(all, runs, f),
                                       figure_spread(values, all, runs, f),
                                       f->unit,
                                       f->digits};
            put_row(out, &row, runs);
        }
    memory_free(values);
}

/* A row of a key of each run's object, with the interval by `error`. */
static void put_value(struct buffer *out, struct markdown_row *row, const struct json *const *values, const char *key,
                      const char *error, i64 runs)
{
    row->spread = spread_at(values, runs, key);
    row->error = error ? error_at(values, runs, error) : NAN;
    row->low = row->spread.mean - two_sided * row->error;
    row->high = row->spread.mean + two_sided * row->error;
    row->unit = UNIT_NUMBER;
    row->digits = 2;
    put_row(out, row, runs);
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
        struct markdown_row row = {stage, label, "validation", spread_at(start, runs, "loss").mean,
                                   spread_at(end, runs, "unigram").mean};
        put_value(out, &row, end, "loss", "error", runs);
        memory_free(label);
    }
    memory_free(start);
}

/* The lowest mean loss of those without a network. */
static double least_mean(const struct json *const *losses, i64 runs)
{
    static const char *const keys[] = {"unigram", "bigram", "trigram"};
    double least = NAN;
    for (i64 k = 0; k < COUNT_OF(keys); k++)
        least = fmin(least, spread_at(losses, runs, keys[k]).mean); /* of a number and NaN: the number */
    return least;
}

/* Losses of the stage eval. Those after another sample's prompt have a row of their own. */
static void put_evaluated(struct buffer *out, const char *stage, struct json *const *files, i64 runs)
{
    const struct json **losses = memory_alloc(runs * (i64)sizeof *losses);
    const struct json *first = NULL;
    const char *part = "";
    for (i64 r = runs - 1; r >= 0; r--) {
        first = files[r] ? json_get(files[r], "losses") : first;
        part = json_string(json_get(files[r], "part"), part);
    }
    for (i64 i = 0; i < json_count(first); i++) {
        const struct json *as = json_at(first, i);
        char *label = string_format("loss, %s: %s", json_string(json_get(as, "stream"), ""),
                                    json_string(json_get(as, "target"), ""));
        char *exchanged = string_format("%s, after another sample's prompt", label);
        for (i64 r = 0; r < runs; r++)
            losses[r] = same_target(json_get(files[r], "losses"), as);
        struct markdown_row row = {stage, label, part, NAN, least_mean(losses, runs)};
        put_value(out, &row, losses, "loss", "error", runs);
        row.label = exchanged;
        put_value(out, &row, losses, "exchanged", NULL, runs);
        memory_free(label);
        memory_free(exchanged);
    }
    memory_free(losses);
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
        struct markdown_row row = {stage, label, "held-out prompts", spread_at(start, runs, "reward").mean, NAN};
        put_value(out, &row, end, "reward", "standard_error", runs);
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
                  count > 1 ? "mean (95 % over files and seeds)" : "value (95 % over files)");
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
            put_file_rows(out, runs, count, stage, "eval.json", put_evaluated);
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
