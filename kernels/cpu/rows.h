/* Shared by the row-wise ops: access to one element as f32 for any dtype, cuts of a matrix into
 * tiles, column sums through partial sums, and branch-free functions for inner loops.
 *
 * An INLINED function takes the dtype as its last argument. BY_DTYPE calls it with a constant, so
 * the compiler generates one vectorized loop per dtype from one source. `omp simd` allows a sum to
 * be reordered into lanes; the order then depends on the length alone. */
#ifndef WEFT_CPU_ROWS_H
#define WEFT_CPU_ROWS_H
#include "kernels/cpu/cpu.h"

#define INLINED static inline __attribute__((always_inline))
#define BY_DTYPE(dtype, f, ...) ((dtype) == DTYPE_BF16 ? f(__VA_ARGS__, DTYPE_BF16) : f(__VA_ARGS__, DTYPE_F32))
#define BY_DTYPES(first, second, f, ...)                                                                               \
    ((first) == DTYPE_BF16 ? BY_DTYPE(second, f, __VA_ARGS__, DTYPE_BF16) : BY_DTYPE(second, f, __VA_ARGS__, DTYPE_F32))
#define BY_FLAG_DTYPE(flag, dtype, f, ...)                                                                             \
    ((flag) ? BY_DTYPE(dtype, f, __VA_ARGS__, true) : BY_DTYPE(dtype, f, __VA_ARGS__, false))
#define BY_FLAG_DTYPES(flag, first, second, f, ...)                                                                    \
    ((flag) ? BY_DTYPES(first, second, f, __VA_ARGS__, true) : BY_DTYPES(first, second, f, __VA_ARGS__, false))

INLINED float element_load(const void *row, i64 i, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? bf16_to_f32(((const bf16 *)row)[i]) : ((const float *)row)[i];
}

INLINED void element_store(void *row, i64 i, float value, enum dtype dtype)
{
    if (dtype == DTYPE_BF16)
        ((bf16 *)row)[i] = bf16_from_f32(value);
    else
        ((float *)row)[i] = value;
}

INLINED float element_round(float value, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(value)) : value;
}

/* The maximum of a row, taken over integers that sort like the floats (NaNs outermost). Compilers
 * vectorize such a maximum without assuming that there are no NaNs, and bf16 gets twice the
 * lanes. */
static inline float row_max_f32(const float *row, i64 n)
{
    union {
        float value;
        i32 bits;
    } both = {-INFINITY};
    i32 most = INT32_MIN;
#pragma omp simd reduction(max : most)
    for (i64 i = 0; i < n; i++) {
        union {
            float value;
            i32 bits;
        } each = {row[i]};
        i32 ordered = each.bits ^ (each.bits >> 31 & 0x7fffffff);
        most = ordered > most ? ordered : most;
    }
    if (n > 0)
        both.bits = most ^ (most >> 31 & 0x7fffffff);
    return both.value;
}

static inline float row_max_bf16(const bf16 *row, i64 n)
{
    int16_t most = INT16_MIN;
#pragma omp simd reduction(max : most)
    for (i64 i = 0; i < n; i++) {
        int16_t bits = (int16_t)row[i], ordered = (int16_t)(bits ^ (bits >> 15 & 0x7fff));
        most = ordered > most ? ordered : most;
    }
    return n > 0 ? bf16_to_f32((bf16)(most ^ (most >> 15 & 0x7fff))) : -INFINITY;
}

static inline float row_max(const void *row, i64 n, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? row_max_bf16(row, n) : row_max_f32(row, n);
}

static inline float row_sum(const float *row, i64 n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++)
        sum += row[i];
    return sum;
}

/* Cuts [rows, columns] into tiles of about 16k elements: whole rows, or parts of a row if rows are
 * longer. */
struct matrix_cut {
    i64 rows, columns, tile_rows, tile_columns, across;
};
struct matrix_tile {
    i64 row, end, column, columns; /* rows row .. end - 1 */
};
static inline struct matrix_cut cut_of(i64 rows, i64 columns)
{
    i64 tile_columns = min_i64(max_i64(columns, 1), 16384);
    return (struct matrix_cut){rows, columns, tile_rows(columns), tile_columns, ceil_div(columns, tile_columns)};
}
static inline i64 cut_tiles(const struct matrix_cut *cut)
{
    return ceil_div(cut->rows, cut->tile_rows) * cut->across;
}
static inline struct matrix_tile cut_tile(const struct matrix_cut *cut, i64 tile)
{
    i64 row = tile / cut->across * cut->tile_rows, column = tile % cut->across * cut->tile_columns;
    return (struct matrix_tile){row, min_i64(row + cut->tile_rows, cut->rows), column,
                                min_i64(cut->tile_columns, cut->columns - column)};
}

static inline bool matrix_is_dense(struct matrix m)
{
    return m.stride == m.columns || m.rows <= 1;
}
static inline struct matrix matrix_flat(struct matrix m) /* a dense matrix as one row */
{
    return matrix_of(m.data, m.dtype, 1, m.rows * m.columns);
}

/* Column sums in two passes. The rows are split into at most 64 runs; one tile sums each run into
 * its own row of partials. partials_sum then adds these in order: out[c] (+)= sum. Partials are one
 * block for all tiles with `partials_stride` floats a row, valid until the next op. */
static inline i64 partials_rows(i64 rows, i64 columns)
{
    return max_i64(tile_rows(columns), ceil_div(rows, 64));
}
static inline i64 partials_stride(i64 columns)
{
    return round_up(columns, 16);
}
/* partials returns the block for `count` rows of partials; partials_sum adds them up. */
float *CPU(partials)(i64 count, i64 columns);
void CPU(partials_sum)(float *out, const float *partials, i64 count, i64 columns, bool add);

/* log(1 + t) for t in [0, 1], by the series of 2 atanh(t / (2 + t)), whose argument is at most
 * 1/3. */
static inline float vector_log1p(float t)
{
    float z = t / (2.0f + t), s = z * z, p = 1.0f / 15;
    p = p * s + 1.0f / 13;
    p = p * s + 1.0f / 11;
    p = p * s + 1.0f / 9;
    p = p * s + 1.0f / 7;
    p = p * s + 1.0f / 5;
    p = p * s + 1.0f / 3;
    return 2 * z * (p * s + 1.0f);
}

/* log(1 + exp(x)) */
static inline float vector_softplus(float x)
{
    return (x > 0 ? x : 0.0f) + vector_log1p(vector_exp(-__builtin_fabsf(x)));
}

#endif
