/* The page in the making, and the sections that add themselves to it. */
#ifndef WEFT_REPORT_PAGE_H
#define WEFT_REPORT_PAGE_H
#include "report/chart.h"
#include "report/html.h"
#include "report/run.h"

struct page {
    struct text html, contents, css;
    const struct run *runs;
    i64 run_count;
    const char **stages; /* names in any of the runs, in the order of the first that has them */
    i64 stage_count;
    i64 section_begin, section_body, group_begin, group_body; /* places in the html */
    char *section_id, *section_title;
    i64 sheets;
};

void cut_back(struct text *text, i64 length); /* forgets what was added since */
/* A section or a group to which nothing was added leaves nothing behind. */
void section_open(struct page *page, const char *id, const char *title, const char *lede);
void section_close(struct page *page);
void group_open(struct page *page, const char *title_format, ...) PRINTF(2, 3);
void group_close(struct page *page, const struct run_stage *maker);     /* with the command that makes it; NULL: none */
void put_note(struct page *page, const char *format, ...) PRINTF(2, 3); /* a paragraph below a title */
void put_made_by(struct page *page, const char *command);

void figure_open(struct page *page, const char *class, const char *title);
void figure_close(struct page *page);
/* A chart as a figure with its title; nothing where there is nothing to draw. */
void figure_chart(struct page *page, const char *title, const struct chart *chart);
/* KEY of a stage's metrics over steps, a line for each run; of a single one its last value stands beside it. */
struct panel {
    const char *key, *title, *unit;
    int colour;
    bool from_zero, percent;
};
void figure_panel(struct page *page, const char *stage, const struct panel *panel);
bool stage_trained(const struct page *page, const char *stage); /* in any run */

/* Of a stage that the run has: the command that makes it. memory_free */
char *command_of(const struct run *run, const struct run_stage *stage);

/* A table of numbers, which scrolls on a narrow screen. A head that begins with < stands over words. */
void table_open(struct page *page, const char *const *heads, i64 count);
void cell_words(struct page *page, const char *format, ...) PRINTF(2, 3);
void cell_figure(struct page *page, double value, enum unit unit, int digits);
void table_close(struct page *page);

/* Colours that a name has everywhere. */
int line_colour(const char *name);

/* ---- Media ---- */
/* <img>, <video> or <audio> of a file that the stage names. False and nothing where there is none. */
bool put_medium(struct page *page, const struct run_stage *stage, const char *file, const char *about);

/* ---- Key figures of a run: the first screen, and tables of several runs ---- */
struct figure {
    char *stage, *label;
    double before, value; /* NaN: none */
    enum unit unit;
    int digits;
    char *tile, *note, *detail; /* on the first screen, or NULL: title, what the number is of, numbers beside it */
};
struct figures {
    struct figure *list;
    i64 count, capacity;
};
void figures_collect(struct figures *figures, const struct run *run);
void figures_release(struct figures *figures);
const struct figure *figures_find(const struct figures *figures, const char *stage, const char *label);

/* ---- Sections ---- */
void put_summary(struct page *page);    /* one run: sentence, tiles */
void put_stages(struct page *page);     /* time, speed, memory by stage */
void put_comparison(struct page *page); /* several runs: every key figure with its spread */
void put_samples(struct page *page);    /* made from words, words from media */
void put_training(struct page *page);   /* loss, speed, share of peak by stage */
void put_curation(struct page *page);   /* what filters left out */
void put_sources(struct page *page);    /* what each of a mixture gave */
void put_heldout(struct page *page);    /* losses before and after */
void put_submodels(struct page *page);  /* the grid */
void put_rewards(struct page *page);    /* reinforcement learning, evaluation */
void put_routing(struct page *page);    /* who uses which expert */
void put_tokenizers(struct page *page); /* what they keep */
void put_settings(struct page *page);   /* how to make it again */

extern const char page_style[], page_script[];
#endif
