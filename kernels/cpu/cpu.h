/* Private header of the CPU backend. Its files are compiled once for each ISA level (x86-64-v3, v4,
 * ...); CPU(name) is the name at the level being compiled.
 *
 * An op is cut into tiles of rows that run on the workers of core. Tile sizes depend on the shape
 * alone. Rows are read and written as f32 through row_load and row_store, so one source serves both
 * dtypes. Tiles take scratch from CPU(scratch): it belongs to the worker, grows on first use and is
 * kept.
 *
 * In: matrices and arrays of kernels.h, which the caller owns. Out: the op's outputs. An op has
 * run when its call returns.
 *
 * Where is what, also of the subfolders, of which routing, loss, draw and media have no main header:
 *   here        rows.h (loops over rows for any dtype), tiles.h (every tile and scratch size),
 *               transpose.h, scratch.c (memory of workers), adamw.c, rmsnorm.c, rope.c, swiglu.c,
 *               permute.c, round_fp8.c, copy.c, bias.c
 *   gemm/       dense, skinny, grouped, quantized and fp8 products: start at gemm.h
 *   attention/  training, backward, decoding: start at attention.h; strips.c: keys in strips
 *   routing/    route.c (softmax and top-k of a position, bias), route_sort.c (rows by expert),
 *               combine.c (rows to experts and back), route_capacity.c (rows for other ranks)
 *   loss/       cross_entropy.c, bit_cross_entropy.c, distance.c; soft_*.c: distillation;
 *               policy_loss.c is RL's loss
 *   draw/       sample.c draws ids from logits by temperature, top_k and top_p; forbid.c: which may be
 *   media/      conv.c and amx_conv.c (patches.h, patches.c), stft.c, spectra.c (mel bands), resize.c,
 *               quantize_bits.c (vision code), quantize_vectors.c and codebook.c (audio code)
 * The level for this machine is chosen in kernels/device/isa.c. */
#ifndef WEFT_CPU_H
#define WEFT_CPU_H
#include "kernels/cpu/tiles.h"
#include "kernels/kernels.h"
#include "kernels/isa.h"

#include <math.h>
#include <string.h>

#define CPU_JOIN2(isa, name) cpu_##isa##_##name
#define CPU_JOIN(isa, name) CPU_JOIN2(isa, name)
#define CPU(name) CPU_JOIN(CPU_ISA, name)

#define OP(name, arguments, names, ...) void CPU(name) arguments;
WEFT_OPS(OP)
#undef OP

/* One gemm on the calling thread: c[m,n] (+)= op(a) op(b). */
struct gemm {
    i64 m, n, k;
    i64 lda, ldb, ldc;
    bool transpose_a, transpose_b, add;
    /* Non-temporal stores to c. c must be F32, made of whole cache lines, and not accumulated
     * into. */
    bool streams;
    enum dtype dtype, out_dtype; /* dtype of a and b; of c */
    /* Row gather for an operand that is not transposed: row r of a (or b) is row a_rows[r]
     * (b_rows[r]) of memory; -1 means a row of zeros. NULL: row r. */
    const i32 *a_rows, *b_rows;
    /* Panels of a b that many gemms share, or NULL. This gemm's b begins at panels_column. */
    struct gemm_panels *panels;
    i64 panels_column;
};
void CPU(gemm)(void *c, const void *a, const void *b, const struct gemm *gemm, int worker);

/* A b that is packed once and shared by all gemms of a job. The job's first `count` tiles pack it
 * with gemm_pack; gemms wait until it is packed. The memory is worker 0's slot GEMM_SHARED. */
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

/* y = swiglu(gate, up), the halves given as separate matrices. */
void CPU(swiglu_rows)(struct matrix y, struct matrix gate, struct matrix up);

/* Copies rows [first, first + rows) of columns [column, column + width) into dense `out`. Rows past
 * the last are zero. */
void CPU(pack)(void *out, struct matrix m, i64 first, i64 rows, i64 column, i64 width);

/* out (+)= sums, dense [out.rows, out.columns]. */
void CPU(store_sums)(struct matrix out, const float *sums, bool add);

extern _Atomic i64 cpu_scratch_bytes; /* total of all workers */

/* Scratch of one worker. Slots 0..7 may be in use at once; gemm uses 8 and 9. The contents are lost
 * on the next call with the same slot. */
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

/* A row as f32: a pointer to the row itself, or its conversion in `buffer` [columns]. */
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

/* Branch-free exp for vectorized loops: 2^n times a polynomial on [-ln2/2, ln2/2] (Cephes expf).
 * The relative error is below 1e-7; the result is 0 below -87.7; NaN stays NaN; x must not exceed
 * 88. Adding 1.5 * 2^23 + 127 rounds to n and leaves its biased exponent in the lowest bits. There
 * is no upper clamp: gcc would fold the code after it for all lanes, and a folded 1 / (1 + e^88) is
 * a denormal, which costs more than everything else. */
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
