/* Packs operands of FMA gemms as f32, padded with zeros. */
#include "kernels/cpu/gemm/fma.h"
#include "kernels/cpu/transpose.h"

static const void *element_at(const struct fma_operand *m, i64 row, i64 column)
{
    return (const char *)m->data + (row * m->stride + column) * element_bytes(m->dtype);
}

INLINED void widen(float *restrict out, const void *row, i64 n, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        out[i] = element_load(row, i, dtype);
}

/* ---- a ---- */

/* Writes one row's part of a panel. */
INLINED void put_part(float *out, const void *from, i64 rows, enum dtype dtype)
{
#if defined __AVX512F__
    __mmask16 mask = (__mmask16)((1 << rows) - 1);
    if (dtype == DTYPE_F32)
        _mm512_storeu_ps(out, _mm512_maskz_loadu_ps(mask, from));
    else
        _mm512_storeu_si512(out, _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from)), 16));
#else
    memset(out, 0, FMA_TRANSPOSED * 4);
    if (rows == FMA_ROWS)
        widen(out, from, FMA_ROWS, dtype);
    else
        widen(out, from, rows, dtype);
#endif
}

/* Packs row by row of the depth, whole cache lines at a time. Each row contributes to all panels;
 * there are few panels, so few pages are written at a time. */
INLINED void pack_transposed(float *out, const struct fma_operand *a, i64 row, const i64 *rows, i64 depth, i64 count,
                             enum dtype dtype)
{
    enum { AHEAD = 16 };
    i64 row_bytes = a->stride * element_bytes(dtype), bytes = fma_rows_of(rows) * element_bytes(dtype);
    for (i64 k = 0; k < count; k++) {
        const char *from = element_at(a, depth + k, row);
        fma_fetch(from + AHEAD * row_bytes, bytes);
        for (i64 panel = 0; rows[panel] > 0; from += rows[panel++] * element_bytes(dtype))
            put_part(out + panel * FMA_A_FLOATS + k * FMA_TRANSPOSED, from, rows[panel], dtype);
    }
}

static void put_row(float *out, const void *from, i64 count, enum dtype dtype)
{
    if (from)
        BY_DTYPE(dtype, widen, out, from, count);
    else
        memset(out, 0, (size_t)count * 4);
}

void CPU(fma_pack_a)(float *out, const struct fma_operand *a, i64 row, const i64 *rows, i64 depth, i64 count)
{
    if (a->transposed) {
        BY_DTYPE(a->dtype, pack_transposed, out, a, row, rows, depth, count);
        return;
    }
    for (; *rows > 0; row += *rows++, out += FMA_A_FLOATS) {
        for (i64 i = 0; i < *rows; i++)
            put_row(out + i * FMA_A_STRIDE, fma_row(a, row + i, depth), count, a->dtype);
        if (*rows % 2 != 0 && *rows > 1)
            memset(out + *rows * FMA_A_STRIDE, 0, (size_t)count * 4);
    }
}

/* ---- b ---- */

INLINED const void *column_at(const struct fma_operand *b, i64 column, i64 depth)
{
    return b->rows ? fma_row(b, column, depth) : element_at(b, column, depth);
}

#if defined __AVX512F__
/* Transposes 16 columns of 16 terms, or of 32 terms for bf16, which are loaded as pairs. */
INLINED void transpose_square(float *out, const struct fma_operand *b, i64 column, i64 columns, i64 depth, i64 count)
{
    __m512i words[16];
    if (b->dtype == DTYPE_F32) {
        __mmask16 mask = (__mmask16)(count >= 16 ? 0xffff : (1 << count) - 1);
        for (int i = 0; i < 16; i++)
            words[i] =
                i < columns ? _mm512_maskz_loadu_epi32(mask, column_at(b, column + i, depth)) : _mm512_setzero_si512();
        transpose_words(words);
        for (int k = 0; k < 16; k++)
            if (k < count)
                _mm512_storeu_si512(out + k * FMA_COLUMNS, words[k]);
        return;
    }
    __mmask32 mask = count >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << count) - 1;
    for (int i = 0; i < 16; i++)
        words[i] =
            i < columns ? _mm512_maskz_loadu_epi16(mask, column_at(b, column + i, depth)) : _mm512_setzero_si512();
    transpose_words(words);
    for (int k = 0; k < 16; k++) {
        if (2 * k < count)
            _mm512_storeu_si512(out + 2 * k * FMA_COLUMNS, _mm512_slli_epi32(words[k], 16));
        if (2 * k + 1 < count)
            _mm512_storeu_si512(out + (2 * k + 1) * FMA_COLUMNS,
                                _mm512_and_si512(words[k], _mm512_set1_epi32((int)0xffff0000)));
    }
}
#else
/* Loads 8 values; missing ones are zeros. */
INLINED __m256 load_lanes(const struct fma_operand *b, i64 column, i64 depth, i64 count)
{
    float some[8] __attribute__((aligned(32))) = {0};
    const void *from = column_at(b, column, depth);
    if (count >= 8 && b->dtype == DTYPE_F32)
        return _mm256_loadu_ps(from);
    if (count >= 8)
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(from)), 16));
    BY_DTYPE(b->dtype, widen, some, from, count);
    return _mm256_load_ps(some);
}

/* Transposes 8 columns of 8 terms. */
INLINED void transpose_square(float *out, const struct fma_operand *b, i64 column, i64 columns, i64 depth, i64 count)
{
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++)
        r[i] = i < columns ? load_lanes(b, column + i, depth, count) : _mm256_setzero_ps();
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int k = 0; k < 8; k++)
        if (k < count)
            _mm256_storeu_ps(out + k * FMA_COLUMNS, t[k]);
}
#endif

INLINED void transpose_panel(float *out, const struct fma_operand *b, i64 column, i64 columns, i64 depth, i64 count,
                             bool listed, enum dtype dtype)
{
    struct fma_operand typed = *b;
    typed.dtype = dtype;
    typed.rows = listed ? b->rows : NULL;
    i64 side = FMA_LANES == 16 && dtype == DTYPE_BF16 ? 32 : FMA_LANES;
    i64 ahead = columns > FMA_COLUMNS && !listed ? FMA_COLUMNS * b->stride * element_bytes(dtype) : 0;
    for (int half = 0; half < FMA_COLUMNS; half += FMA_LANES) {
        i64 at = column + half, there = min_i64(FMA_LANES, columns - half), k = 0;
        for (; there == FMA_LANES && k + side <= count; k += side) {
            for (int i = 0; i < FMA_LANES && ahead > 0; i++)
                __builtin_prefetch((const char *)element_at(b, at + i, depth + k) + ahead);
            transpose_square(out + k * FMA_COLUMNS + half, &typed, at, FMA_LANES, depth + k, side);
        }
        for (; k < count; k += side)
            transpose_square(out + k * FMA_COLUMNS + half, &typed, at, max_i64(there, 0), depth + k,
                             min_i64(side, count - k));
    }
}

/* Copies rows of the depth without a transposition. */
INLINED void copy_panel(float *out, const struct fma_operand *b, i64 column, i64 columns, i64 depth, i64 count,
                        enum dtype dtype)
{
    enum { AHEAD = 16 };
    for (i64 k = 0; k < count; k++, out += FMA_COLUMNS) {
        const char *from = fma_row(b, depth + k, column);
        if (!b->rows)
            __builtin_prefetch(from + AHEAD * b->stride * element_bytes(dtype));
        else if (k + AHEAD < count)
            __builtin_prefetch(fma_row(b, depth + k + AHEAD, column));
        if (!from) {
            memset(out, 0, FMA_COLUMNS * 4);
        } else if (columns >= FMA_COLUMNS) {
            widen(out, from, FMA_COLUMNS, dtype);
        } else {
            memset(out, 0, FMA_COLUMNS * 4);
            widen(out, from, columns, dtype);
        }
    }
}

void CPU(fma_pack_b)(float *out, const struct fma_operand *b, i64 column, i64 columns, i64 depth, i64 count)
{
    if (b->transposed)
        BY_DTYPE(b->dtype, copy_panel, out, b, column, columns, depth, count);
    else
        BY_FLAG_DTYPE(b->rows != NULL, b->dtype, transpose_panel, out, b, column, columns, depth, count);
}

/* ---- few rows ---- */

INLINED __m128 load_four(const void *row, i64 i, enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        return _mm_loadu_ps((const float *)row + i);
    return _mm_castsi128_ps(
        _mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64((const void *)((const bf16 *)row + i))), 16));
}

/* Interleaves four rows to [depth][all]. */
INLINED void put_four(float *out, const void *const row[4], i64 depth, i64 all, enum dtype dtype)
{
    i64 k = 0;
    for (; k + 4 <= depth; k += 4) {
        __m128 r[4];
        for (int i = 0; i < 4; i++)
            r[i] = load_four(row[i], k, dtype);
        _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
        for (int i = 0; i < 4; i++)
            _mm_storeu_ps(out + (k + i) * all, r[i]);
    }
    for (; k < depth; k++)
        for (int i = 0; i < 4; i++)
            out[k * all + i] = element_load(row[i], k, dtype);
}

INLINED void put_one(float *restrict out, const void *row, i64 depth, i64 all, enum dtype dtype)
{
    for (i64 k = 0; k < depth; k++)
        out[k * all] = element_load(row, k, dtype);
}

void CPU(fma_pack_skinny)(float *out, const struct fma_operand *a, i64 rows)
{
    const void *row[FMA_SKINNY_ROWS];
    i64 all = fma_skinny_rows(rows), depth = a->terms;
    for (i64 i = 0; i < all; i++)
        row[i] = fma_row(a, i < rows ? i : 0, 0);
    if (all == 1)
        BY_DTYPE(a->dtype, widen, out, row[0], depth);
    else if (all == 2)
        for (i64 i = 0; i < all; i++)
            BY_DTYPE(a->dtype, put_one, out + i, row[i], depth, all);
    else
        for (i64 i = 0; i < all; i += 4)
            BY_DTYPE(a->dtype, put_four, out + i, row + i, depth, all);
}
