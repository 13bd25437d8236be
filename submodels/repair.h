/* Repair: a cut model is trained on for a few steps, as the run that made it was trained at its end. */
#ifndef WEFT_REPAIR_H
#define WEFT_REPAIR_H
#include "model/model.h"
#include "train/train.h"

struct repair_settings {
    i64 steps;       /* 0: the model stays as it was cut */
    double lr_share; /* rate of the first step, as a share of the peak rate */
};
#define REPAIR_ROWS(type, member)                                                                                      \
    SETTING(type, member.steps, "repair", INTEGER, "0", 0, 1e9, NULL,                                                  \
            "steps by which the cut model is trained on, on the data and with the settings of the stage that trained " \
            "the model; 0: none"),                                                                                     \
        SETTING(type, member.lr_share, "repair_lr", NUMBER, "0.25", 0, 1, NULL,                                        \
                "learning rate of the first of these steps, as a share of the peak rate; it decays to the last")

/* Trains the model in `cut`, a sub-model of the one in `from`, on for settings->steps steps, and writes
 * the result into stage->out. The record (identity.json) of the stage pretrain or sft that made `from`, or
 * of the first such stage before it, names the data and all settings: schedules stay at their last value,
 * nothing is drawn on the way, few rows are measured, and the rate decays from lr_share of its peak to its least.
 * data: shards to train on if there is no such record, or if its shards are gone; NULL or empty: none.
 * Without any it is a usage error. Returns 0, -1 and a message, or STAGE_INTERRUPTED. */
int repair_run(const struct repair_settings *settings, const char *from, const char *cut, const char *data,
               const struct stage *stage);
/* The same of a sub-model that is cut out for it: writes the model into an existing folder, and opens it.
 * `from` is the model in `directory`, and stays open. */
int repair_submodel(struct model *out, struct model *from, const struct submodel *sub,
                    const struct repair_settings *settings, const char *directory, const char *data,
                    const char *folder);
/* Returns -1 and a message if repair_run would find no data. */
int repair_check(const struct repair_settings *settings, const char *from, const char *data);

#endif
