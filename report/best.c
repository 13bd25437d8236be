/* keep_best: the measure over the steps of a stage, and the step whose weights are its result. */
#include "report/page.h"

#include <math.h>
#include <stdio.h>

double best_step(const struct run_stage *s)
{
    struct json *best = stage_json(s, "best.json");
    double step = number_at(best, "step");
    json_free(best);
    return step;
}

void put_best(struct page *p, const struct run_stage *s)
{
    struct json *best = stage_json(s, "best.json");
    const struct json *history = json_get(best, "history");
    i64 n = json_count(history);
    double *x = memory_alloc(max_i64(n, 1) * 8), *y = memory_alloc(max_i64(n, 1) * 8);
    for (i64 i = 0; i < n; i++) {
        x[i] = json_number(json_at(json_at(history, i), 0), NAN);
        y[i] = json_number(json_at(json_at(history, i), 1), NAN);
    }
    const char *measure = json_string(json_get(best, "measure"), "");
    char title[160], kept[40];
    snprintf(title, sizeof title, "keep_best %s: the result is the marked step", measure);
    snprintf(kept, sizeof kept, "step %.0f", number_at(best, "step"));
    const struct chart_line line = {"", 1, x, y, n};
    const struct chart_mark mark = {kept, number_at(best, "step"), number_at(best, "value"), 1, true};
    if (best)
        figure_chart(p, title,
                     &(struct chart){.about = "The measure of keep_best over steps, with the best step marked",
                                     .x_name = "step",
                                     .y_name = measure,
                                     .lines = &line,
                                     .line_count = 1,
                                     .marks = &mark,
                                     .mark_count = 1});
    memory_free(x);
    memory_free(y);
    json_free(best);
}
