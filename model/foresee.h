/* GPU memory estimate of a task with a model, made by a dry run before the model is loaded. */
#ifndef WEFT_MODEL_FORESEE_H
#define WEFT_MODEL_FORESEE_H
#include "model/model.h"

struct model_work {
    const char *directory;
    enum dtype dtype; /* same meaning as in model_load */
    int bits;         /* quantize the weights to this many bits after loading; 0: keep them */
    /* Runs the work with the model on the meta backend. NULL: only the model
     * itself is estimated. */
    int (*run)(struct model *meta, void *context);
    /* Halves the work and names the remaining size, e.g. "a length of 256". Returns false if it
     * cannot be halved further. NULL: the work cannot be halved. */
    bool (*halve)(struct text *name, void *context);
    void *context; /* the caller's copy; halve modifies it */
};
/* Returns -1 and a message if the GPU has less free memory than the work needs. The message names
 * the largest work that would fit. */
int model_check_memory(const struct model_work *work, const struct device *device);

#endif
