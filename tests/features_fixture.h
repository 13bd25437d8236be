/* Feature files as another network would leave them for `semantic: FOLDER`. */
#ifndef WEFT_TESTS_FEATURES_FIXTURE_H
#define WEFT_TESTS_FEATURES_FIXTURE_H
#include "core/safetensors.h"
#include "tests/scratch.h"

/* Writes FOLDER/NAME.safetensors with one tensor. */
static inline void put_features(const char *folder, const char *name, const char *tensor, int rank, const i64 *shape,
                                const float *values)
{
    char *file = string_format("%s.safetensors", name), *path = path_join(folder, file);
    struct tensor_source source = {.name = tensor, .dtype = DTYPE_F32, .rank = rank, .data = values};
    for (int i = 0; i < rank; i++)
        source.shape[i] = shape[i];
    succeed(safetensors_save(path, &source, 1, NULL));
    memory_free(file);
    memory_free(path);
}

#endif
