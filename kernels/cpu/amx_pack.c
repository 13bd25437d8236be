/* Operands of products on tiles: pairs of the depth side by side, blocks of 2 kB, zeros where there is nothing. */
#include "kernels/cpu/amx.h"

/* Rows and columns of a matrix of 16 x 16 words of 32 bits. */
INLINED void transpose(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}

INLINED void pack_columns(char *out, struct matrix m, i64 depth, i64 column)
{
    __mmask32 mask = amx_mask(m.columns - depth);
    for (int half = 0; half < 2; half++) {
        __m512i rows[16];
        for (int i = 0; i < 16; i++)
            rows[i] = amx_load_row(m, column + 16 * half + i, depth, mask);
        transpose(rows);
        for (int i = 0; i < 16; i++)
            _mm512_store_si512(out + 1024 * half + 64 * i, rows[i]);
    }
}

/* Pairs of two rows: the words of each, in turn. */
INLINED void pack_pairs(char *out, struct matrix m, i64 depth, i64 column)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    __mmask32 mask = amx_mask(m.columns - column);
    for (int i = 0; i < 16; i++) {
        __m512i even = amx_load_row(m, depth + 2 * i, column, mask),
                odd = amx_load_row(m, depth + 2 * i + 1, column, mask);
        _mm512_store_si512(out + 64 * i, _mm512_permutex2var_epi16(even, low, odd));
        _mm512_store_si512(out + 1024 + 64 * i, _mm512_permutex2var_epi16(even, high, odd));
    }
}

void amx_pack_b(char *out, struct matrix m, bool transposed, i64 depth, i64 column)
{
    if (transposed)
        pack_columns(out, m, depth, column);
    else
        pack_pairs(out, m, depth, column);
}

void amx_pack_panel(char *out, struct matrix m, bool transposed, i64 depth, i64 steps, i64 column)
{
    for (i64 step = 0; step < steps; step++)
        amx_pack_b(out + step * AMX_STEP_BYTES, m, transposed, depth + step * AMX_BLOCK, column);
}

INLINED __m512i load_words(struct matrix m, i64 row, i64 column, __mmask16 mask)
{
    return row < m.rows ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, matrix_at(m, row, column)))
                        : _mm512_setzero_si512();
}

void amx_pack_a_transposed(char *out, struct matrix m, i64 depth, i64 row)
{
    for (int half = 0; half < 2; half++) {
        i64 column = row + 16 * half;
        __mmask16 mask = (__mmask16)amx_mask(max_i64(m.columns - column, 0));
        __m512i pairs[16];
        for (int i = 0; i < 16; i++) {
            __m512i even = load_words(m, depth + 2 * i, column, mask);
            __m512i odd = load_words(m, depth + 2 * i + 1, column, mask);
            pairs[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
        }
        transpose(pairs);
        for (int i = 0; i < 16; i++)
            _mm512_store_si512(out + 1024 * half + 64 * i, pairs[i]);
    }
}
