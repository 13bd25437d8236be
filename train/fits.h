/* Whether a stage fits into a GPU, said before anything of it is opened: what it takes, what is left, what would fit.
 */
#ifndef WEFT_TRAIN_FITS_H
#define WEFT_TRAIN_FITS_H
#include "train/plan.h"

struct memory_wanted {
    const char *what; /* "a step" */
    struct step_memory memory;
    i64 certain_bytes; /* of it, whatever data are like */
    /* Adds settings that would do, by memory_offer, or says that none would. */
    void (*say_what_fits)(struct text *out, const void *context, i64 left_bytes);
    const void *context;
};
/* -1 and a message where a GPU has less left than what is certain; a warning where the rest may be too much. */
int memory_check(const struct memory_wanted *wanted, const struct device *device);
/* Adds "SETTINGS would take N MB", and returns whether that is left. */
bool memory_offer(struct text *out, const struct step_memory *memory, i64 left_bytes, const char *settings, ...)
    __attribute__((format(printf, 4, 5)));

#endif
