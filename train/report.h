/* report.html: one self-contained page of a run, good to look at on a phone and on a desk. What a run's stages left
 * behind (metrics.jsonl, heldout.json, grid.json, routing, samples, rl.json, timings.jsonl) is found by name; what is
 * absent is left out. */
#ifndef WEFT_TRAIN_REPORT_H
#define WEFT_TRAIN_REPORT_H
#include "train/train.h"

/* run: the folder of a run; out: the page to write. */
int report_write(const char *run, const char *out);

extern const struct setting report_table[];                        /* empty: the page is of the whole run */
int report_stage(const void *settings, const struct stage *stage); /* $OUT/report.html and RUN/report.html */

/* report_svg.c: a line chart as SVG. Lines share the x axis; NaN breaks a line. */
struct chart_line {
    const char *name, *colour;
    const double *x, *y;
    i64 n;
};
struct chart {
    const char *title, *x_label, *y_label;
    const struct chart_line *lines;
    int line_count;
    bool log_y;
};
void chart_svg(struct text *out, const struct chart *chart);
#endif
