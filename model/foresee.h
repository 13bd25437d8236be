/* What work with a model will take of a GPU, said before the model is loaded. */
#ifndef WEFT_MODEL_FORESEE_H
#define WEFT_MODEL_FORESEE_H
#include "model/model.h"

struct model_work {
    const char *directory;
    enum dtype dtype; /* as model_load has it */
    int bits;         /* narrow weights are made of the loaded ones; 0: they stay as they are */
    /* With the model on the meta backend: what will be done. NULL: what follows is foreseen where it is done. */
    int (*run)(struct model *meta, void *context);
    /* Halves the work and names what is left of it, "a length of 256"; false: there is no less. NULL: neither. */
    bool (*halve)(struct text *name, void *context);
    void *context; /* the caller's copy: it is halved */
};
/* -1 and a message where the GPU has less memory left than it will take, with the most that would fit. */
int model_check_memory(const struct model_work *work, const struct device *device);

#endif
