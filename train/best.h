/* keep_best: the result of a stage is the checkpoint with the best measure on held-out data.
 *
 * The measure is a name that the stage knows, such as `heldout`. Each measurement belongs to a number
 * of completed steps. The state travels with the checkpoints, so a resumed stage chooses as an unbroken
 * one does. */
#ifndef WEFT_TRAIN_BEST_H
#define WEFT_TRAIN_BEST_H
#include "core/json.h"

struct best_settings {
    char *measure; /* empty or NULL: the result is the last step, and `heldout` is measured for a warning */
    i64 patience;
};
/* Rows for a settings table whose struct has a field `struct best_settings best`. */
#define BEST_ROWS(type, measures)                                                                                      \
    SETTING(type, best.measure, "keep_best", STRING, "", 0, 0, NULL,                                                   \
            "the stage's result is the step with the best measure: " measures "; empty: the last step"),               \
        SETTING(type, best.patience, "patience", INTEGER, "0", 0, 1e9, NULL,                                           \
                "with keep_best: measurements in a row without a better one that end the stage; 0: none do")
/* every: the setting of the steps between measurements, and its value. -1: usage error. */
int best_check(const struct best_settings *settings, const char *every, i64 steps);

#define BEST_FILE "best.json" /* in the stage's folder once its last step is done */
struct best {
    const struct best_settings *settings;
    bool higher;          /* higher values are better */
    i64 step, seen;       /* best step, and last step measured; -1: none */
    double value, last;   /* of the best step, and of the last measurement */
    i64 worse;            /* measurements since the best one */
    struct json *history; /* [[step, value], ..] */
};
void best_init(struct best *best, const struct best_settings *settings, bool higher);
void best_release(struct best *best);
bool best_is_kept(const struct best *best);         /* the best step is the result */
i64 best_kept(const struct best *best);             /* the best step if it is the result; -1: none yet, or not */
bool best_on(const struct best_settings *settings); /* there is a measure */
const char *best_measure(const struct best_settings *settings);
/* Adds a measurement after `step` steps. Returns true if it is the best so far. */
bool best_add(struct best *best, i64 step, double value);
bool best_ends(const struct best *best); /* patience is exhausted */
/* Between `best` and JSON, in the state of a checkpoint and in BEST_FILE. */
struct json *best_json(const struct best *best);
void best_get(struct best *best, const struct json *json);

#endif
