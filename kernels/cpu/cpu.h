/* The CPU backend's own header. Its files are compiled twice, for x86-64-v3 and v4; CPU(name) is this level's name.
 *
 * A loop is cut into tiles of rows whose size depends on the shape alone and run on core's workers. Rows are read and
 * written as f32 through row_load and row_store, so one text serves both dtypes. Memory a tile needs comes from
 * cpu_scratch: it belongs to the worker, grows on first use and stays. */
#ifndef WEFT_CPU_H
#define WEFT_CPU_H
#include "kernels/cpu/tiles.h"
#include "kernels/kernels.h"
#include "kernels/levels.h"

#include <math.h>
#include <string.h>

#define CPU_JOIN2(level, name) cpu_##level##_##name
#define CPU_JOIN(level, name) CPU_JOIN2(level, name)
#define CPU(name) CPU_JOIN(CPU_LEVEL, name)

#define OP(name, arguments, names) void CPU(name) arguments;
WEFT_OPS(OP)
#undef OP

/* One product on the calling thread: c[m,n] (+)= op(a) op(b). */
struct gemm {
    i64 m, n, k;
    i64 lda, ldb, ldc;
    bool transpose_a, transpose_b, add;
    bool streams;                /* c, of whole lines in F32 that are not added to, goes by the caches */
    enum dtype dtype, out_dtype; /* of a and b; of c */
    const i32 *a_rows, *b_rows;  /* which rows of memory those of a, or of b, are (-1: zeros), where it is not
                                    transposed;  NULL: as they lie */
    struct gemm_panels *panels; /* of a b that many products share, in which this one's begins at panels_column; NULL */
    i64 panels_column;
};
void CPU(gemm)(void *c, const void *a, const void *b, const struct gemm *gemm, int worker);

/* A b that is packed once for all products of a job: its first `count` tiles do so by gemm_pack, and products wait
 * until they have. Memory is worker 0's slot GEMM_SHARED. */
enum { GEMM_SHARED = 7 };
struct gemm_panels {
    struct matrix b;
    bool transpose_b;
    float *data;
    i64 count;
    _Atomic i64 packed;
};
void CPU(gemm_share)(struct gemm_panels *panels, struct matrix b, bool transpose_b);
void CPU(gemm_pack)(struct gemm_panels *panels, i64 tile);

/* y = swiglu of rows whose halves stand at gate and up. */
void CPU(swiglu_rows)(struct matrix y, struct matrix gate, struct matrix up);

/* Rows [first, first + rows) of columns [column, column + width), densely; rows past the last are zero. */
void CPU(pack)(void *out, struct matrix m, i64 first, i64 rows, i64 column, i64 width);

/* out (+)= sums [out.rows, out.columns], dense. */
void CPU(store_sums)(struct matrix out, const float *sums, bool add);

/* The first of p [n] at which the running sum passes u of the total. */
i32 CPU(draw)(const float *p, i64 n, double u);

extern _Atomic i64 cpu_scratch_bytes; /* of all workers */

/* Memory of one worker; slots 0..7 may be in use at once, and in gemm 8 and 9. Contents do not survive another call
 * with the same slot. */
void *CPU(scratch)(int worker, int slot, i64 bytes);

static inline i64 element_bytes(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? 2 : 4;
}

static inline void *matrix_at(struct matrix m, i64 row, i64 column)
{
    return (char *)m.data + (row * m.stride + column) * element_bytes(m.dtype);
}

static inline void bf16_row_to_f32(float *restrict out, const bf16 *restrict in, i64 n)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        out[i] = bf16_to_f32(in[i]);
}

static inline void bf16_row_from_f32(bf16 *restrict out, const float *restrict in, i64 n)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        out[i] = bf16_from_f32(in[i]);
}

/* A row as f32: the row itself, or converted into `buffer` [columns]. */
static inline const float *row_load(float *buffer, struct matrix m, i64 row)
{
    if (m.dtype == DTYPE_F32)
        return (const float *)m.data + row * m.stride;
    bf16_row_to_f32(buffer, (const bf16 *)m.data + row * m.stride, m.columns);
    return buffer;
}

static inline void row_store(struct matrix m, i64 row, const float *values)
{
    if (m.dtype == DTYPE_F32)
        memcpy((float *)m.data + row * m.stride, values, (size_t)m.columns * 4);
    else
        bf16_row_from_f32((bf16 *)m.data + row * m.stride, values, m.columns);
}

static inline void row_store_add(struct matrix m, i64 row, const float *restrict values)
{
    if (m.dtype == DTYPE_F32) {
        float *restrict out = (float *)m.data + row * m.stride;
#pragma omp simd
        for (i64 i = 0; i < m.columns; i++)
            out[i] += values[i];
    } else {
        bf16 *restrict out = (bf16 *)m.data + row * m.stride;
#pragma omp simd
        for (i64 i = 0; i < m.columns; i++)
            out[i] = bf16_from_f32(bf16_to_f32(out[i]) + values[i]);
    }
}

/* exp without a branch, so that loops vectorise: 2^n times a polynomial on [-ln2/2, ln2/2] (Cephes expf), relative
 * error below 1e-7; 0 below -87.7, a NaN stays one; x must not pass 88. Adding 1.5 * 2^23 + 127 rounds to n and leaves
 * its biased exponent in the lowest bits. There is no upper bound because gcc would fold what follows it for all lanes,
 * and a folded 1 / (1 + e^88) is a denormal number, which costs more than the rest. */
static inline float vector_exp(float x)
{
    float clamped = x < -88.02f ? -88.02f : x;
    union {
        float value;
        u32 bits;
    } rounded = {clamped * 1.44269504088896341f + 12583039.0f};
    float n = rounded.value - 12583039.0f;
    float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    union {
        u32 bits;
        float value;
    } scale = {rounded.bits << 23};
    return p * scale.value;
}

static inline float vector_sigmoid(float x)
{
    float e = vector_exp(-__builtin_fabsf(x)), larger = 1.0f / (1.0f + e);
    return x < 0 ? e * larger : larger;
}

#endif
