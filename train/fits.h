/* Checks a memory estimate against the free GPU memory before a stage opens anything. A message
 * states the required memory, the free memory and settings that would fit. */
#ifndef WEFT_TRAIN_FITS_H
#define WEFT_TRAIN_FITS_H
#include "train/plan.h"

struct memory_wanted {
    const char *what; /* subject of the message, e.g. "a step" */
    struct step_memory memory;
    i64 certain_bytes; /* the part that does not depend on the data */
    /* Appends settings that would fit (with memory_offer), or that none would. */
    void (*say_what_fits)(struct text *out, const void *context, i64 left_bytes);
    const void *context;
};
/* Returns -1 and a message if the certain part does not fit. Logs a warning if only
 * the rest may not fit. */
int memory_check(const struct memory_wanted *wanted, const struct device *device);
/* If the memory fits into left_bytes, appends "SETTINGS would take N MB" and returns true. */
bool memory_offer(struct text *out, const struct step_memory *memory, i64 left_bytes, const char *settings, ...)
    __attribute__((format(printf, 4, 5)));

#endif
