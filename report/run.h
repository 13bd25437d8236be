/* A run folder as it was left: its stages in the order in which they ran, finished or not. */
#ifndef WEFT_REPORT_RUN_H
#define WEFT_REPORT_RUN_H
#include "core/json.h"

struct lines { /* of a .jsonl file */
    struct json **list;
    i64 count, capacity;
};
struct series { /* of one key of metrics.jsonl: the steps where it is a number */
    double *x, *y;
    i64 n;
};
struct run_stage {
    char *name, *folder; /* the folder ends in .partial where the stage is not finished */
    bool finished;
    struct json *identity;       /* kind, settings, inputs; NULL: not known */
    struct lines metrics;        /* empty for stages that do not train */
    double seconds, peak_gflops; /* NaN where not known or not measured */
    double peak_bytes;           /* of the program so far */
    bool anew;                   /* while timings are read: the last one finished it, so the next is of another time */
};
struct run {
    char *path, *name;  /* the folder; its last part */
    struct json *about; /* run.json */
    struct run_stage *stages;
    i64 count;
};
int run_open(struct run *run, const char *path); /* -1: no folder of a run */
void run_close(struct run *run);
const struct run_stage *run_find(const struct run *run, const char *name); /* NULL if there is none */

const char *stage_kind(const struct run_stage *stage); /* "" where not known */
/* FILE of the stage's folder; NULL where there is none or it cannot be read (a warning says why). json_free. */
struct json *stage_json(const struct run_stage *stage, const char *file);
/* The path of a file that the stage names, which may not lead out of its folder; NULL if it is not there. */
char *stage_file(const struct run_stage *stage, const char *name);

double number_at(const struct json *object, const char *key); /* NaN where there is none */
/* The loss of a list that has the stream and target of `as`; NULL if there is none. */
const struct json *same_target(const struct json *list, const struct json *as);

struct series series_of(const struct lines *lines, const char *key);
void series_release(struct series *series);
double series_median(const struct series *series); /* NaN of none */
#endif
