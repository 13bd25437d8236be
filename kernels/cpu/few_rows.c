/* Products of rows with a strip of widened weights, as matmul_narrow has them: every weight is read once. */
#include "kernels/cpu/rows.h"
#include "kernels/cpu/tiles.h"

enum { AT_ONCE = 4, AHEAD = 8 };

INLINED void dot_products(float *out, const float *x, const char *w, i64 stride_bytes, i64 k, enum dtype dtype)
{
    const char *w0 = w, *w1 = w + stride_bytes, *w2 = w + 2 * stride_bytes, *w3 = w + 3 * stride_bytes;
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (i64 i = 0; i < k; i++) {
        s0 += x[i] * element_load(w0, i, dtype);
        s1 += x[i] * element_load(w1, i, dtype);
        s2 += x[i] * element_load(w2, i, dtype);
        s3 += x[i] * element_load(w3, i, dtype);
    }
    out[0] = s0;
    out[1] = s1;
    out[2] = s2;
    out[3] = s3;
}

INLINED float dot_product(const float *x, const void *w, i64 k, enum dtype dtype)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < k; i++)
        sum += x[i] * element_load(w, i, dtype);
    return sum;
}

INLINED void load_row(float *out, const void *row, i64 n, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        out[i] = element_load(row, i, dtype);
}

void CPU(few_rows)(struct matrix out, struct matrix a, struct matrix w, bool add, int worker)
{
    float *x = CPU(scratch)(worker, 0, a.rows * a.columns * 4), *sums = CPU(scratch)(worker, 1, a.rows * w.rows * 4);
    for (i64 i = 0; i < a.rows; i++)
        BY_DTYPE(a.dtype, load_row, x + i * a.columns, matrix_at(a, i, 0), a.columns);
    i64 j = 0, stride_bytes = w.stride * element_bytes(w.dtype), row_bytes = w.columns * element_bytes(w.dtype);
    for (; j + AT_ONCE <= w.rows; j += AT_ONCE) {
        for (i64 r = j + AHEAD; r < min_i64(j + AHEAD + AT_ONCE, w.rows); r++)
            for (i64 at = 0; at < row_bytes; at += 64)
                __builtin_prefetch((const char *)matrix_at(w, r, 0) + at);
        for (i64 i = 0; i < a.rows; i++)
            BY_DTYPE(w.dtype, dot_products, sums + i * w.rows + j, x + i * a.columns, matrix_at(w, j, 0), stride_bytes,
                     a.columns);
    }
    for (; j < w.rows; j++)
        for (i64 i = 0; i < a.rows; i++)
            sums[i * w.rows + j] = BY_DTYPE(w.dtype, dot_product, x + i * a.columns, matrix_at(w, j, 0), a.columns);
    CPU(store_sums)(out, sums, add);
}
