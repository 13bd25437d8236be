/* Fuzz target: any bytes as a safetensors file are read or refused; tensors that were read can
 * be converted. */
#include "core/safetensors.h"

#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void convert_all(const struct safetensors *set)
{
    for (i64 i = 0; i < set->count; i++) {
        const struct tensor_view *view = &set->tensors[i];
        float *out = memory_alloc(tensor_view_elements(view) * (i64)sizeof *out);
        require(safetensors_find(set, view->name) == view, "tensor %s is not found by its name", view->name);
        tensor_view_to_f32(out, view);
        memory_free(out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors set;
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/fuzz-%ld.safetensors", (long)getpid());
    FILE *file = fopen(path, "wb");
    require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "%s cannot be written", path);
    if (safetensors_open(&set, path) == 0) {
        convert_all(&set);
        safetensors_close(&set);
    }
    unlink(path);
    return 0;
}
