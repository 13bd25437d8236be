/* A run folder: its stages in execution order, finished or not. */
#ifndef WEFT_REPORT_RUN_H
#define WEFT_REPORT_RUN_H
#include "core/json.h"

struct json_lines { /* lines of a .jsonl file */
    struct json **list;
    i64 count, capacity;
};
struct metric_series { /* one key of metrics.jsonl, at the steps where it is a number */
    double *x, *y;
    i64 n;
};
/* STAGE_UNFINISHED: more is not known, of older programs. STAGE_STOPPED: its process is gone and said
 * nothing. STAGE_ELSEWHERE: its process is, or was, on another machine. */
enum stage_state {
    STAGE_FINISHED,
    STAGE_UNFINISHED,
    STAGE_RUNNING,
    STAGE_ELSEWHERE,
    STAGE_FAILED,
    STAGE_INTERRUPTED,
    STAGE_STOPPED
};
extern const char *const stage_states[]; /* in a word or two */
struct run_stage {
    char *name, *folder; /* folder: ends in .partial if unfinished */
    bool finished;
    struct json *identity;       /* kind, settings, inputs; NULL: unknown */
    struct json_lines metrics;   /* empty for stages that do not train */
    double seconds, peak_gflops; /* NaN if unknown */
    double peak_bytes;           /* peak of the process so far */
    bool anew;                   /* for run_open: the last timing finished the stage */
    enum stage_state state;
    char *error, *host;                 /* of a failure; where it was begun. "": not known */
    double begun_at, ended_at, seen_at; /* seconds since 1970, the last sign of life; NaN: not known */
};
struct run {
    char *path, *name;  /* path: the folder; name: its last component */
    struct json *about; /* run.json */
    struct run_stage *stages;
    i64 count;
    /* Stages without anything to do, which made nothing: name -> reason. They are not in `stages`. */
    struct json *skipped;
    char *arm;     /* of the recipe; NULL: none */
    bool has_seed; /* one of the recipe's seeds */
    i64 seed;
    i64 origin; /* of the folders given, the one that it lies in */
};
/* Finds out the state of a stage whose files are read. timings: the lines of timings.jsonl. */
void stage_find_state(struct run_stage *stage, const struct json_lines *timings);
/* Appends "base failed, at step 40 of 200, 2026-11-29 02:03:04 UTC: ERROR". */
void put_stage_state(struct buffer *out, const struct run_stage *stage);
double run_finished_at(const struct run *run);   /* NaN: not known, or a stage is not finished */
int run_open(struct run *run, const char *path); /* -1 and a message: not a run folder */
void run_close(struct run *run);
bool run_leaves_folder(const char *name); /* a path that leads out of the folder it is below */
/* Appends a run's place, "out (2)", to names that several runs have. */
void runs_tell_apart(struct run *runs, i64 count);
/* Appends "NAME (REASON), .." of the skipped stages. */
void run_put_skipped(struct buffer *out, const struct run *run);
/* Appends the sizes of the model that the stage made, or else of the one that it starts `from`:
 * "8 layers, 16 experts, top-2, 14.5 M parameters". False, and nothing appended, if unknown. */
bool run_put_model(struct buffer *out, const struct run *run, const struct run_stage *stage);
const struct run_stage *run_find(const struct run *run, const char *name); /* NULL if there is none */

const char *stage_kind(const struct run_stage *stage); /* "" if unknown */
/* Reads FILE from the stage's folder. NULL if it is missing,
 * or unreadable (with a warning). Free with json_free. */
struct json *stage_json(const struct run_stage *stage, const char *file);
/* Path of a file named by the stage; free with memory_free. NULL if it does not exist or is outside
 * the stage's folder. */
char *stage_file(const struct run_stage *stage, const char *name);

/* Median GFLOP/s of a stage's steps. Runs of older programs have a share of a measured peak instead.
 * NaN if unknown. */
double stage_gflops(const struct run_stage *stage);

double number_at(const struct json *object, const char *key); /* NaN if absent */
/* Appends counts by stream, such as {"chat": 12, "image-out": 3}, as "12 chat, 3 image-out". */
void put_streams(struct buffer *out, const struct json *counts);
/* The entry of a list of losses with the stream and target of `as`, or NULL. */
const struct json *same_target(const struct json *list, const struct json *as);

/* 95 % interval of a share of n independent cases (Wilson 1927), of which share * n were right. NaN
 * if n is not positive. */
void share_interval(double *low, double *high, double share, double n);

struct metric_series series_of(const struct json_lines *lines, const char *key);
void series_release(struct metric_series *series);
double series_median(const struct metric_series *series); /* NaN if empty */
#endif
