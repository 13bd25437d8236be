/* The page under construction, and the sections that append themselves to it. */
#ifndef WEFT_REPORT_PAGE_H
#define WEFT_REPORT_PAGE_H
#include "report/chart.h"
#include "report/html.h"
#include "report/run.h"

struct page {
    struct buffer html, contents, css;
    const struct run *runs;
    i64 run_count;
    const char **stages; /* union of the runs' stage names, in order of appearance */
    i64 stage_count;
    i64 section_begin, section_body, group_begin, group_body; /* offsets in html */
    char *section_id, *section_title;
    i64 sheets;
};

int page_save(const char *out, struct page *page, const char *title); /* a page of sections alone; releases it */
void truncate_text(struct buffer *text, i64 length);                  /* truncates to `length` */
/* Sections and groups. Closing one to which nothing was added removes it. */
void section_open(struct page *page, const char *id, const char *title, const char *lede);
void section_close(struct page *page);
void group_open(struct page *page, const char *title_format, ...) PRINTF(2, 3);
void group_close(struct page *page, const struct run_stage *maker);     /* maker: its command is shown; NULL: none */
void put_note(struct page *page, const char *format, ...) PRINTF(2, 3); /* a paragraph under a title */
void put_made_by(struct page *page, const char *command);

void figure_open(struct page *page, const char *class, const char *title);
void figure_close(struct page *page);
/* Appends a chart as a figure with a title; nothing if the chart is empty. */
void figure_chart(struct page *page, const char *title, const struct chart *chart);
/* A metric of a stage over steps, with a line per run. With
 * one run, its final value labels the line. */
struct panel {
    const char *key, *title, *unit;
    int colour;
    bool from_zero, percent;
    const char
        *heldout[2]; /* keys of the same loss on held-out rows: with one run, a second line shows the first known */
    double per;      /* what the unit is of the metric's; 0: 1 */
};
void figure_panel(struct page *page, const char *stage, const struct panel *panel);
char *short_name(const char *name);                             /* the end of a long one; memory_free */
bool stage_trained(const struct page *page, const char *stage); /* metrics in any run */

/* Shell command that makes a stage of the run. Free with memory_free. */
char *command_of(const struct run *run, const struct run_stage *stage);

/* A note on the samples longer than a row that FILE of a stage counts by stream under `key`, for
 * each run that has some. done: what became of them. */
void put_long_samples(struct page *page, const char *stage, const char *file, const char *key, const char *done);

/* A table of numbers, which scrolls on narrow screens. A
 * heading that begins with < is above a text column. */
void table_open(struct page *page, const char *const *heads, i64 count);
void cell_words(struct page *page, const char *format, ...) PRINTF(2, 3);
void cell_figure(struct page *page, double value, enum unit unit, int digits);
void cell_interval(struct page *page, double low, double high); /* of a share; blank if not finite */
void table_close(struct page *page);

/* A part that the reader unfolds, and that is printed. */
void fold_open(struct page *page, const char *summary_format, ...) PRINTF(2, 3);
void fold_close(struct page *page);
/* A grid in one row, which scrolls on narrow screens. Closed with </div>. */
void row_open(struct page *page, const char *class);

/* Color index of a stream or target, the same in all charts. */
int line_colour(const char *name);

/* ---- Media ---- */
/* Appends <img>, <video> or <audio> with a file of the stage embedded. False, and nothing appended,
 * if the file is missing. */
bool put_medium(struct page *page, const struct run_stage *stage, const char *file, const char *about);

/* keep_best: the step whose weights are the stage's result; NaN without. put_best draws its measures. */
double best_step(const struct run_stage *stage);
void put_best(struct page *page, const struct run_stage *stage);

/* ---- Key figures of a run: for the first screen and for tables of several runs ---- */
struct figure {
    char *stage, *label;
    double before, value; /* NaN: none */
    enum unit unit;
    int digits;
    char *tile, *note, *detail; /* first screen, or NULL: title, subject, further numbers */
    const char *part;           /* what was measured on: "test"; NULL: not said */
    double baseline, low, high; /* of an answer that needs no model; 95 % interval; NaN: none */
};
struct figures {
    struct figure *list;
    i64 count, capacity;
};
void figures_collect(struct figures *figures, const struct run *run);
void figures_collect_grid(struct figures *figures, const struct run *run); /* appends losses of sub-models by target */
void figures_release(struct figures *figures);
const struct figure *figures_find(const struct figures *figures, const char *stage, const char *label);
struct run_spread {
    double mean, deviation, least, most;
    i64 n; /* runs that have it */
};
/* Spread of a figure over the figures of several runs. values: receives each run's, NaN: none. */
struct run_spread spread_of(const double *values, i64 count); /* of those that are finite */
struct run_spread figure_spread(double *values, const struct figures *all, i64 runs, const struct figure *figure);
double figure_baseline(const struct figures *all, i64 runs, const struct figure *figure); /* its mean */
/* True if no run before `run` has the figure. */
bool figure_is_first(const struct figures *all, i64 run, const struct figure *figure);

/* ---- Sections ---- */
void put_summary(struct page *page);                       /* 1 run: a sentence and tiles */
void put_states(struct page *page, const struct run *run); /* of its stages that are not finished */
void put_stages(struct page *page);                        /* time, speed and memory of each stage */
void put_comparison(struct page *page);                    /* several runs: key figures with their spread */
void put_samples(struct page *page);                       /* media from captions, text from media */
void put_strip(struct page *page);    /* 1 run: a few of the pictures or clips, for the first screen */
void put_training(struct page *page); /* loss, speed, share of peak of each stage */
/* The router, streams and sub-models of a stage over its steps, if it measured them. */
void put_monitor(struct page *page, const struct run_stage *stage);
/* Entropy or perplexity, and what is dead, by scale and level of a tokenizer over its steps. */
void put_code_use(struct page *page, const struct run_stage *stage);
void put_curation(struct page *page);   /* documents removed by filters */
void put_sources(struct page *page);    /* samples drawn from each data source */
void put_heldout(struct page *page);    /* losses before and after training */
void put_submodels(struct page *page);  /* the grid of sub-models */
void put_rewards(struct page *page);    /* RL and evaluation */
void put_routing(struct page *page);    /* expert usage */
void put_tokenizers(struct page *page); /* reconstruction quality of tokenizers */
void put_settings(struct page *page);   /* commands and settings to reproduce the run; of several, what differs */
/* [{"setting": "base.optimizer.lr", "values": {RUN: 0.003, ..}}, ..] of the settings that are not the same
 * in all runs; a run that does not have one is not among its values. */
struct json *settings_that_differ(const struct run *runs, i64 count);
void put_setting_value(struct buffer *out, const struct json *value); /* a string without its quotes */

extern const char page_style[], page_script[];
#endif
