/* Reads token ids from an untrusted safetensors file. */
#include "cli/cli.h"
#include "core/safetensors.h"

#include <string.h>

static i64 id_at(const struct tensor_view *view, i64 i)
{
    i64 wide = 0;
    i32 narrow = 0;
    if (view->dtype == DTYPE_I64)
        memcpy(&wide, (const char *)view->data + 8 * i, 8);
    else
        memcpy(&narrow, (const char *)view->data + 4 * i, 4);
    return view->dtype == DTYPE_I64 ? wide : narrow;
}

i32 *read_ids(i64 shape[2], const struct safetensors *set, const char *name, i64 vocabulary, const char *path)
{
    const struct tensor_view *view = safetensors_find(set, name);
    if (!view || view->rank != 2 || (view->dtype != DTYPE_I32 && view->dtype != DTYPE_I64) ||
        tensor_view_elements(view) == 0) {
        error_set("%s: expected a tensor %s, I32 or I64, of shape [B,T], with at least one id", path, name);
        return NULL;
    }
    i64 n = tensor_view_elements(view);
    i32 *ids = memory_alloc(n * 4);
    for (i64 i = 0; i < n; i++) {
        i64 id = id_at(view, i);
        if (id < 0 || id >= vocabulary) {
            error_set("%s: %s[%lld] is %lld, the vocabulary has %lld", path, name, (long long)i, (long long)id,
                      (long long)vocabulary);
            memory_free(ids);
            return NULL;
        }
        ids[i] = (i32)id;
    }
    memcpy(shape, view->shape, 2 * sizeof *shape);
    return ids;
}
