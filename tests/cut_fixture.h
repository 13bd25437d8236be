/* A sub-model cut out of a model in memory. */
#ifndef WEFT_TESTS_CUT_FIXTURE_H
#define WEFT_TESTS_CUT_FIXTURE_H
#include "submodels/submodels.h"

/* The sub-model as a model of its own, by way of a new folder, which is removed. */
static inline int toy_cut(struct model *out, struct model *from, const struct submodel *sub, const char *folder)
{
    int status = directory_make(folder) || submodel_save(folder, from, sub) ? -1 : 0;
    if (status == 0)
        status = model_load(out, from->device, folder, from->weights.dtype, false);
    return directory_remove(folder) ? -1 : status;
}

#endif
