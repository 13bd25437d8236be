/* Golden files: the tensors of one case share a name
 * prefix. golden_close frees all loaded memory. */
#ifndef WEFT_TESTS_GOLDEN_H
#define WEFT_TESTS_GOLDEN_H
#include "core/safetensors.h"
#include "kernels/kernels.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNUSED_OK __attribute__((unused))

struct golden {
    struct safetensors file;
    struct device device;
    const char *prefix;
    void *blocks[256];
    int count;
};

static inline UNUSED_OK void golden_open(struct golden *golden, const char *path)
{
    *golden = (struct golden){.prefix = ""};
    if (safetensors_open(&golden->file, path) != 0)
        fail_msg("%s", error_text());
    device_open_cpu(&golden->device);
}

static inline UNUSED_OK void golden_close(struct golden *golden)
{
    while (golden->count > 0)
        memory_free(golden->blocks[--golden->count]);
    safetensors_close(&golden->file);
    device_close(&golden->device);
}

static inline UNUSED_OK void *golden_alloc(struct golden *golden, i64 bytes)
{
    assert_true(golden->count < COUNT_OF(golden->blocks));
    return golden->blocks[golden->count++] = memory_alloc(bytes);
}

static inline UNUSED_OK const struct tensor_view *golden_view(const struct golden *golden, const char *name)
{
    char *full = string_format("%s%s", golden->prefix, name);
    const struct tensor_view *view = safetensors_find(&golden->file, full);
    if (!view)
        fail_msg("no tensor %s", full);
    memory_free(full);
    return view;
}

/* Loads a tensor as f32; I32 stays I32. golden_close frees it. */
static inline UNUSED_OK void *golden_load(struct golden *golden, const char *name)
{
    const struct tensor_view *view = golden_view(golden, name);
    void *out = golden_alloc(golden, tensor_view_elements(view) * 4);
    if (view->dtype == DTYPE_I32)
        memcpy(out, view->data, (size_t)view->bytes);
    else
        assert_int_equal(tensor_view_to_f32(out, view), 0);
    return out;
}

/* Loads a tensor as [product of the other axes, last axis]. */
static inline UNUSED_OK struct matrix golden_matrix(struct golden *golden, const char *name)
{
    const struct tensor_view *view = golden_view(golden, name);
    i64 columns = view->shape[view->rank - 1];
    return matrix_of(golden_load(golden, name), DTYPE_F32, tensor_view_elements(view) / columns, columns);
}

static inline UNUSED_OK struct matrix golden_bf16(struct golden *golden, struct matrix m)
{
    bf16 *out = golden_alloc(golden, m.rows * m.columns * 2);
    for (i64 i = 0; i < m.rows * m.columns; i++)
        out[i] = bf16_from_f32(((const float *)m.data)[i]);
    return matrix_of(out, DTYPE_BF16, m.rows, m.columns);
}

static inline UNUSED_OK struct matrix golden_new(struct golden *golden, enum dtype dtype, i64 rows, i64 columns)
{
    return matrix_of(golden_alloc(golden, rows * columns * dtype_bytes(dtype)), dtype, rows, columns);
}

/* Compares `got` (F32 or BF16, elements in the tensor's order) with a golden tensor. */
static inline UNUSED_OK void golden_check(struct golden *golden, const char *name, struct matrix got, double relative,
                                          double absolute)
{
    const float *want = golden_load(golden, name);
    i64 count = tensor_view_elements(golden_view(golden, name));
    assert_int_equal(count, got.rows * got.columns);
    for (i64 i = 0; i < count; i++) {
        double value =
            got.dtype == DTYPE_BF16 ? bf16_to_f32(((const bf16 *)got.data)[i]) : ((const float *)got.data)[i];
        if (!(fabs(value - want[i]) <= absolute + relative * fabs((double)want[i])))
            fail_msg("%s%s[%d] is %.9g, expected %.9g", golden->prefix, name, (int)i, value, (double)want[i]);
    }
}

#endif
