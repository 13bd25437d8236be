/* Packs operands of FMA gemms at the ISA level avx512_bf16 (fma.h): words of two bf16 terms, the
 * second zero past the end of the depth. Terms along the depth are words already; terms across it
 * are combined from two rows. */
#include "kernels/cpu/gemm/fma.h"
#include "kernels/cpu/transpose.h"

static const bf16 *element_at(const struct fma_operand *m, i64 row, i64 column)
{
    return (const bf16 *)m->data + row * m->stride + column;
}

/* Bytes that exist of the `words` words from word `depth` on. */
static i64 bytes_there(const struct fma_operand *m, i64 depth, i64 words)
{
    return 2 * min_i64(2 * words, m->terms - 2 * depth);
}

/* Copies words with vectors, because rows are short and calls of memcpy would be many. */
static void copy_words(float *out, const struct fma_operand *m, i64 row, i64 depth, i64 words)
{
    i64 bytes = bytes_there(m, depth, words), i = 0;
    const char *from = fma_row(m, row, 2 * depth);
    if (!from) {
        memset(out, 0, (size_t)(4 * words));
        return;
    }
    for (; i + 64 <= bytes; i += 64)
        _mm512_storeu_si512((char *)out + i, _mm512_loadu_si512(from + i));
    if (i < 4 * words) {
        __mmask64 to = ~(__mmask64)0 >> (64 - (4 * words - i)), in = to >> (4 * words - bytes);
        _mm512_mask_storeu_epi8((char *)out + i, to, _mm512_maskz_loadu_epi8(in, from + i));
    }
}

/* ---- a ---- */

/* Pairs the terms of two rows; the second row may be missing. */
INLINED __m512i pair_rows(const bf16 *first, const bf16 *second, __mmask16 mask, bool has_second)
{
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, first));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(has_second ? mask : 0, second));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* True if word `depth` has a second term in the next row. If not, callers pass the same row
 * again. */
static bool has_second_row(const struct fma_operand *m, i64 depth)
{
    return 2 * depth + 1 < m->terms;
}

/* Packs row by row of the depth, whole cache lines at a time. Each row contributes to all panels;
 * there are few panels, so few pages are written at a time. */
static void pack_transposed(float *out, const struct fma_operand *a, i64 row, const i64 *rows, i64 depth, i64 count)
{
    enum { AHEAD = 16 };
    i64 bytes = fma_rows_of(rows) * 2;
    for (i64 k = 0; k < count; k++) {
        bool has_second = has_second_row(a, depth + k);
        const bf16 *first = element_at(a, 2 * (depth + k), row), *second = first + (has_second ? a->stride : 0);
        fma_fetch(first + AHEAD * a->stride, bytes);
        fma_fetch(second + AHEAD * a->stride, bytes);
        for (i64 panel = 0; rows[panel] > 0; first += rows[panel], second += rows[panel], panel++)
            _mm512_storeu_si512(out + panel * FMA_A_FLOATS + k * FMA_TRANSPOSED,
                                pair_rows(first, second, (__mmask16)((1 << rows[panel]) - 1), has_second));
    }
}

void CPU(fma_pack_a)(float *out, const struct fma_operand *a, i64 row, const i64 *rows, i64 depth, i64 count)
{
    if (a->transposed) {
        pack_transposed(out, a, row, rows, depth, count);
        return;
    }
    for (; *rows > 0; row += *rows++, out += FMA_A_FLOATS) {
        for (i64 i = 0; i < *rows; i++)
            copy_words(out + i * FMA_A_STRIDE, a, row + i, depth, count);
        if (*rows % 2 != 0 && *rows > 1)
            memset(out + *rows * FMA_A_STRIDE, 0, (size_t)count * 4);
    }
}

/* ---- b ---- */

enum { SIDE = 16 };

INLINED const void *column_at(const struct fma_operand *b, i64 column, i64 depth)
{
    return b->rows ? fma_row(b, column, depth) : element_at(b, column, depth);
}

/* Transposes 16 columns of `words` words. */
INLINED void transpose_square(float *out, const struct fma_operand *b, i64 column, i64 columns, i64 depth, i64 words)
{
    __m512i square[SIDE];
    i64 terms = bytes_there(b, depth, words) / 2;
    __mmask32 mask = terms >= 2 * SIDE ? ~(__mmask32)0 : ((__mmask32)1 << terms) - 1;
    for (int i = 0; i < SIDE; i++)
        square[i] =
            i < columns ? _mm512_maskz_loadu_epi16(mask, column_at(b, column + i, 2 * depth)) : _mm512_setzero_si512();
    transpose_words(square);
    for (int k = 0; k < SIDE; k++)
        if (k < words)
            _mm512_storeu_si512(out + k * FMA_COLUMNS, square[k]);
}

static void transpose_panel(float *out, const struct fma_operand *b, i64 column, i64 columns, i64 depth, i64 count)
{
    i64 ahead = columns > FMA_COLUMNS && !b->rows ? FMA_COLUMNS * b->stride : 0;
    for (int half = 0; half < FMA_COLUMNS; half += SIDE) {
        i64 at = column + half, there = max_i64(min_i64(SIDE, columns - half), 0), k = 0;
        for (; there == SIDE && k + SIDE <= count && 2 * (depth + k + SIDE) <= b->terms; k += SIDE) {
            for (int i = 0; i < SIDE && ahead > 0; i++)
                __builtin_prefetch(element_at(b, at + i, 2 * (depth + k)) + ahead);
            transpose_square(out + k * FMA_COLUMNS + half, b, at, SIDE, depth + k, SIDE);
        }
        for (; k < count; k += SIDE)
            transpose_square(out + k * FMA_COLUMNS + half, b, at, there, depth + k, min_i64(SIDE, count - k));
    }
}

INLINED __m512i row_or_zeros(const bf16 *row, __mmask32 mask)
{
    return row ? _mm512_maskz_loadu_epi16(mask, row) : _mm512_setzero_si512();
}

INLINED void fetch_pair(const struct fma_operand *b, i64 depth, i64 column)
{
    __builtin_prefetch(fma_row(b, 2 * depth, column));
    if (has_second_row(b, depth) || !b->rows)
        __builtin_prefetch(fma_row(b, 2 * depth + 1, column));
}

/* Combines two rows of the depth into one of words. */
static void join_panel(float *out, const struct fma_operand *b, i64 column, i64 columns, i64 depth, i64 count)
{
    enum { AHEAD = 8 };
    __mmask32 mask = columns >= FMA_COLUMNS ? ~(__mmask32)0 : ((__mmask32)1 << columns) - 1;
    __m512i left = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5,
                                    36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    __m512i right = _mm512_add_epi16(left, _mm512_set1_epi16(16));
    for (i64 k = 0; k < count; k++, out += FMA_COLUMNS) {
        const bf16 *row = fma_row(b, 2 * (depth + k), column);
        const bf16 *next = has_second_row(b, depth + k) ? fma_row(b, 2 * (depth + k) + 1, column) : NULL;
        __m512i first = row_or_zeros(row, mask), second = row_or_zeros(next, mask);
        if (k + AHEAD < count || !b->rows)
            fetch_pair(b, depth + k + AHEAD, column);
        _mm512_storeu_si512(out, _mm512_permutex2var_epi16(first, left, second));
        _mm512_storeu_si512(out + SIDE, _mm512_permutex2var_epi16(first, right, second));
    }
}

void CPU(fma_pack_b)(float *out, const struct fma_operand *b, i64 column, i64 columns, i64 depth, i64 count)
{
    if (b->transposed)
        join_panel(out, b, column, columns, depth, count);
    else
        transpose_panel(out, b, column, columns, depth, count);
}

/* ---- few rows ---- */

INLINED float word_of(const void *row, i64 k)
{
    float word;
    memcpy(&word, (const char *)row + k * (i64)sizeof word, sizeof word);
    return word;
}

/* Interleaves four rows of whole words to [words][all]. */
static void put_four(float *out, const void *const row[4], i64 words, i64 all)
{
    i64 k = 0;
    for (; k + 4 <= words; k += 4) {
        __m128 r[4];
        for (int i = 0; i < 4; i++)
            r[i] = _mm_loadu_ps((const float *)row[i] + k);
        _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
        for (int i = 0; i < 4; i++)
            _mm_storeu_ps(out + (k + i) * all, r[i]);
    }
    for (; k < words; k++)
        for (int i = 0; i < 4; i++)
            out[k * all + i] = word_of(row[i], k);
}

static void put_two(float *out, const void *const row[2], i64 words)
{
    for (i64 k = 0; k < words; k++) {
        out[2 * k] = word_of(row[0], k);
        out[2 * k + 1] = word_of(row[1], k);
    }
}

void CPU(fma_pack_skinny)(float *out, const struct fma_operand *a, i64 rows)
{
    const void *row[FMA_SKINNY_ROWS];
    i64 all = fma_skinny_rows(rows), words = a->terms / FMA_TERMS;
    for (i64 i = 0; i < all; i++)
        row[i] = fma_row(a, i < rows ? i : 0, 0);
    if (all == 1)
        memcpy(out, row[0], (size_t)words * sizeof *out);
    else if (all == 2)
        put_two(out, row, words);
    else
        for (i64 i = 0; i < all; i += 4)
            put_four(out + i, row + i, words, all);
    /* The last word of an odd depth has one term. */
    for (i64 i = 0; a->terms % FMA_TERMS && i < all; i++)
        copy_words(out + words * all + i, a, i < rows ? i : 0, words, 1);
}
