/* Arms: runs of one recipe that differ in what the arm changes and in the seed. Runs of the same seed
 * are pairs: they begin alike, so that their difference is steadier than either.
 *
 *   student.c     Student's t, and paired differences
 *   arms.c        opens runs and groups them by arm; figures of all arms
 *   arms_page.c   the page
 *   arms_text.c   Markdown, JSON, and lines of a log */
#ifndef WEFT_REPORT_ARMS_H
#define WEFT_REPORT_ARMS_H
#include "report/page.h"

/* The value that a share of Student's distribution lies below. NaN but for a share from 0.5 to 1 and
 * at least 1 degree of freedom. */
double student_quantile(double share, double degrees);

struct paired_difference {
    i64 pairs;
    double mean;      /* NaN: no pair */
    double error;     /* standard error; NaN with fewer than 2 pairs, as what follows */
    double low, high; /* 95 % interval */
    double smallest;  /* effect that would have been seen with a power of 80 % at 5 %, two-sided */
    bool resolved;    /* the interval does not hold 0 */
};
/* Of values less those of the baseline; NaN: there is none. */
struct paired_difference paired_difference(const double *values, const double *baseline, i64 count);

/* ---- Runs ---- */
struct run_list {
    const char *const *paths; /* as given */
    i64 path_count;
    struct run *list;
    i64 count;
    struct string_names {
        char **list;
        i64 count;
    } missing; /* folders that a recipe names and that are not there */
};
/* Opens runs; in place of a folder whose recipe has arms or seeds, the runs in it. 0, or -1 and a message. */
int run_list_open(struct run_list *runs, const char *const *paths, i64 count);
void run_list_close(struct run_list *runs);

struct arm {
    const char *name;
    i64 *runs; /* indices into the list */
    i64 count;
    i64 *pairs; /* of each run: index of the baseline's run that it forms a pair with; -1: none */
    i64 paired;
};
struct arms {
    const struct run_list *runs;
    struct arm *list;
    i64 count; /* 0: the runs are of no arms, and are shown side by side */
    i64 baseline;
    struct figures *figures; /* of each run */
};
/* baseline: NULL: the first arm. 0, or -1 and a message. */
int arms_open(struct arms *arms, const struct run_list *runs, const char *baseline);
void arms_close(struct arms *arms);
/* The first run of each arm under the arm's name, for their settings. They are borrowed; memory_free. */
struct run *arms_firsts(const struct arms *arms);
/* Appends the settings that differ between runs as a Markdown table; nothing if none does. */
void settings_markdown(struct buffer *out, const struct run *runs, i64 count);

/* A figure of all arms. */
struct arm_figure {
    const struct figure *figure;
    struct run_spread *spreads;            /* of each arm */
    struct paired_difference *differences; /* of each arm; of the baseline: no pairs */
};
/* Calls `see` for each figure of a stage, "all" or one of a run, in the order of the runs. */
void arms_each_figure(const struct arms *arms, const char *stage,
                      void (*see)(void *context, const struct arms *arms, const struct arm_figure *figure),
                      void *context);
/* Calls `see` for each stage, then for "all". */
void arms_each_stage(const struct arms *arms, void (*see)(void *context, const struct arms *arms, const char *stage),
                     void *context);
/* "lower", "higher", "the same", "not resolved"; with fewer than 2 pairs "1 pair", "no pair". */
const char *difference_words(const struct paired_difference *difference);
/* A difference with its sign, in a figure's unit and one more digit. */
void put_difference(struct buffer *out, double value, const struct figure *figure);

void put_arms_head(struct page *page, const struct arms *arms);
void put_arms(struct page *page, const struct arms *arms); /* all sections */
void arms_markdown(struct buffer *out, const struct arms *arms);
struct json *arms_json(const struct arms *arms);
void arms_log(const struct arms *arms);
#endif
