/* Figures of arms as Markdown, as JSON, and in lines of a log. */
#include "report/arms.h"

#include "core/json.h"

#include <math.h>
#include <string.h>

/* ---- Markdown ---- */

static void put_cell(struct buffer *out, const char *text)
{
    buffer_printf(out, " ");
    for (; *text; text++)
        buffer_printf(out, *text == '|' ? "\\|" : *text == '\n' ? " " : "%c", *text);
    buffer_printf(out, " |");
}

static void put_spread(struct buffer *out, const struct run_spread *s, const struct figure *f, i64 runs)
{
    if (s->n == 0)
        return;
    put_figure(out, s->mean, f->unit, f->digits);
    if (s->n > 1) {
        buffer_printf(out, " (");
        put_figure(out, s->least, f->unit, f->digits);
        buffer_printf(out, " to ");
        put_figure(out, s->most, f->unit, f->digits);
        buffer_printf(out, ")");
    }
    if (s->n < runs)
        buffer_printf(out, " of %lld run%s", (long long)s->n, s->n == 1 ? "" : "s");
}

static void put_means(void *context, const struct arms *all, const struct arm_figure *f)
{
    struct buffer *out = context;
    buffer_printf(out, "|");
    put_cell(out, f->figure->stage);
    put_cell(out, f->figure->label);
    for (i64 a = 0; a < all->count; a++) {
        buffer_printf(out, " ");
        put_spread(out, &f->spreads[a], f->figure, all->list[a].count);
        buffer_printf(out, " |");
    }
    buffer_printf(out, "\n");
}

static void put_means_of(void *context, const struct arms *all, const char *stage)
{
    arms_each_figure(all, stage, put_means, context);
}

static void put_differences(void *context, const struct arms *all, const struct arm_figure *f)
{
    struct buffer *out = context;
    for (i64 a = 0; a < all->count; a++) {
        const struct paired_difference *d = &f->differences[a];
        if (a == all->baseline)
            continue;
        buffer_printf(out, "|");
        put_cell(out, f->figure->stage);
        put_cell(out, f->figure->label);
        put_cell(out, all->list[a].name);
        buffer_printf(out, " ");
        put_difference(out, d->mean, f->figure);
        buffer_printf(out, " | ");
        if (isfinite(d->error))
            put_figure(out, d->error, f->figure->unit, f->figure->digits + 1);
        buffer_printf(out, " | ");
        put_difference(out, d->low, f->figure);
        buffer_printf(out, isfinite(d->low) ? " to " : "");
        put_difference(out, d->high, f->figure);
        buffer_printf(out, " | ");
        if (isfinite(d->smallest))
            put_figure(out, d->smallest, f->figure->unit, f->figure->digits + 1);
        buffer_printf(out, " | %lld | %s |\n", (long long)d->pairs, difference_words(d));
    }
}

static void put_differences_of(void *context, const struct arms *all, const char *stage)
{
    arms_each_figure(all, stage, put_differences, context);
}

void arms_markdown(struct buffer *out, const struct arms *all)
{
    buffer_printf(out, "| stage | figure |");
    for (i64 a = 0; a < all->count; a++) {
        char *head = string_format("%s, %lld run%s", all->list[a].name, (long long)all->list[a].count,
                                   all->list[a].count == 1 ? "" : "s");
        put_cell(out, head);
        memory_free(head);
    }
    buffer_printf(out, "\n|---|---|");
    for (i64 a = 0; a < all->count; a++)
        buffer_printf(out, "---|");
    buffer_printf(out, "\n");
    arms_each_stage(all, put_means_of, out);
    if (all->runs->missing.count)
        buffer_printf(out, "\n%lld run%s of the recipe %s missing.\n", (long long)all->runs->missing.count,
                      all->runs->missing.count == 1 ? "" : "s", all->runs->missing.count == 1 ? "is" : "are");
    if (all->count < 2)
        return;
    char *less = string_format("less %s", all->list[all->baseline].name);
    buffer_printf(out, "\n| stage | figure | arm |");
    put_cell(out, less);
    buffer_printf(out, " s.e. | 95 %% interval | smallest visible effect | pairs | |\n"
                       "|---|---|---|---|---|---|---|---|---|\n");
    memory_free(less);
    arms_each_stage(all, put_differences_of, out);
    struct run *firsts = arms_firsts(all);
    settings_markdown(out, firsts, all->count);
    memory_free(firsts);
}

void settings_markdown(struct buffer *out, const struct run *runs, i64 count)
{
    struct json *rows = settings_that_differ(runs, count);
    for (i64 i = -1; i < json_count(rows) && json_count(rows); i++) {
        buffer_printf(out, i < 0 ? "\n|" : "|");
        put_cell(out, i < 0 ? "setting" : json_string(json_get(json_at(rows, i), "setting"), ""));
        for (i64 r = 0; r < count; r++) {
            struct buffer text = {0};
            if (i >= 0)
                put_setting_value(&text, json_get(json_get(json_at(rows, i), "values"), runs[r].name));
            put_cell(out, i < 0 ? runs[r].name : text.data ? text.data : "");
            buffer_release(&text);
        }
        buffer_printf(out, "\n");
        for (i64 r = 0; r <= count && i < 0; r++)
            buffer_printf(out, r == count ? "---|\n" : r ? "---|" : "|---|");
    }
    json_free(rows);
}

/* ---- JSON ---- */

struct json_lists {
    struct json *figures, *differences;
};

static void set_place(struct json *j, const struct arms *all, i64 arm, const struct figure *f)
{
    json_set(j, "arm", json_of_string(all->list[arm].name));
    json_set(j, "stage", json_of_string(f->stage));
    json_set(j, "figure", json_of_string(f->label));
}

static void push_figure(void *context, const struct arms *all, const struct arm_figure *f)
{
    static const char *const units[] = {[UNIT_NUMBER] = "number",   [UNIT_COUNT] = "count", [UNIT_BYTES] = "bytes",
                                        [UNIT_SECONDS] = "seconds", [UNIT_SHARE] = "share", [UNIT_DECIBEL] = "decibel"};
    struct json_lists *lists = context;
    for (i64 a = 0; a < all->count; a++) {
        const struct run_spread *s = &f->spreads[a];
        const struct paired_difference *d = &f->differences[a];
        struct json *j = json_object();
        set_place(j, all, a, f->figure);
        json_set(j, "unit", json_of_string(units[f->figure->unit]));
        json_set(j, "runs", json_of_integer(s->n));
        json_set(j, "mean", json_of_number(s->n ? s->mean : NAN));
        json_set(j, "deviation", json_of_number(s->deviation));
        json_set(j, "least", json_of_number(s->least));
        json_set(j, "most", json_of_number(s->most));
        if (s->n)
            json_push(lists->figures, json_copy(j));
        json_free(j);
        if (a == all->baseline)
            continue;
        j = json_object();
        set_place(j, all, a, f->figure);
        json_set(j, "pairs", json_of_integer(d->pairs));
        json_set(j, "mean", json_of_number(d->mean));
        json_set(j, "error", json_of_number(d->error));
        json_set(j, "low", json_of_number(d->low));
        json_set(j, "high", json_of_number(d->high));
        json_set(j, "smallest", json_of_number(d->smallest));
        json_set(j, "resolved", json_of_bool(d->resolved));
        json_push(lists->differences, j);
    }
}

static void push_stage(void *context, const struct arms *all, const char *stage)
{
    arms_each_figure(all, stage, push_figure, context);
}

struct json *arms_json(const struct arms *all)
{
    struct json *j = json_object(), *arms = json_array(), *missing = json_array();
    struct json_lists lists = {json_array(), json_array()};
    for (i64 a = 0; a < all->count; a++) {
        const struct arm *arm = &all->list[a];
        struct json *one = json_object(), *runs = json_array();
        for (i64 i = 0; i < arm->count; i++)
            json_push(runs, json_of_string(all->runs->list[arm->runs[i]].path));
        json_set(one, "arm", json_of_string(arm->name));
        json_set(one, "runs", runs);
        if (a != all->baseline)
            json_set(one, "pairs", json_of_integer(arm->paired));
        json_push(arms, one);
    }
    for (i64 i = 0; i < all->runs->missing.count; i++)
        json_push(missing, json_of_string(all->runs->missing.list[i]));
    arms_each_stage(all, push_stage, &lists);
    json_set(j, "baseline", json_of_string(all->list[all->baseline].name));
    json_set(j, "arms", arms);
    json_set(j, "missing", missing);
    json_set(j, "figures", lists.figures);
    json_set(j, "differences", lists.differences);
    return j;
}

/* ---- Log ---- */

/* Losses on held-out contents of streams, and rewards. */
static void log_difference(void *context, const struct arms *all, const struct arm_figure *f)
{
    (void)context;
    const char *colon = strstr(f->figure->label, ": ");
    bool loss = strncmp(f->figure->label, "held-out loss", 13) == 0;
    if (!(loss || strncmp(f->figure->label, "reward", 6) == 0) || (loss && colon && strcmp(colon, ": vision") != 0))
        return;
    for (i64 a = 0; a < all->count; a++) {
        const struct paired_difference *d = &f->differences[a];
        struct buffer line = {0};
        if (a == all->baseline || d->pairs == 0)
            continue;
        put_difference(&line, d->mean, f->figure);
        if (isfinite(d->error)) {
            buffer_printf(&line, " (95 %%: ");
            put_difference(&line, d->low, f->figure);
            buffer_printf(&line, " to ");
            put_difference(&line, d->high, f->figure);
            buffer_printf(&line, "), %s", difference_words(d));
        }
        log_info("%s less %s: %s, %s: %s; %lld pair%s", all->list[a].name, all->list[all->baseline].name,
                 f->figure->stage, f->figure->label, line.data, (long long)d->pairs, d->pairs == 1 ? "" : "s");
        buffer_release(&line);
    }
}

static void log_stage_differences(void *context, const struct arms *all, const char *stage)
{
    arms_each_figure(all, stage, log_difference, context);
}

void arms_log(const struct arms *all)
{
    if (all->count > 1)
        arms_each_stage(all, log_stage_differences, NULL);
}
