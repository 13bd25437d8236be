/* Skinny gemm with weights in place: out [M, N] = x [M, K] w [N, K]^T for at most FMA_SKINNY_ROWS
 * rows of x.
 *
 *     w in memory, a part of 16 bytes of each row      in registers (transpose_parts), a lane per n
 *     n = 0   | w00 w01 w02 w03 | next part             word 0   w00 w10 w20 w30 ..
 *     n = 1   | w10 w11 w12 w13 |             ->        word 1   w01 w11 w21 w31 ..
 *     n = 2   | w20 w21 w22 w23 |                       word 2   w02 ..
 *      ..                                               word 3   w03 ..
 *
 *     sums [M][lanes] += x[m][k], broadcast, times the word of k
 *
 * The product is bound by memory, and packing w would read it once more than needed. So parts of
 * FMA_LANES rows are transposed in registers and multiplied there; every weight is read once,
 * and only sums are written. The x of a tile is small and stays in L1, interleaved as
 * [words][M].
 *
 *     Mr  struct fma_skinny.rows  1, 2, 4 or 8        Nr  FMA_SKINNY_COLUMNS 16: 1 vector (AVX2: 2)
 *     a step of K: one part, 4 f32 or 8 bf16         Kc  all of K
 *
 * The transposition is the 4 x 4 swizzle of Intel's Optimization Reference Manual (AoS to SoA). */
#include "kernels/cpu/gemm/fma.h"

enum { WORDS = 4, PART_BYTES = 4 * WORDS };
typedef u32 word_lanes __attribute__((vector_size(FMA_LANES * 4), may_alias));

/* Loads the 16-byte parts of every fourth weight. */
INLINED fma_lanes load_parts(const char *w, i64 stride_bytes)
{
    __m128 first = _mm_loadu_ps((const float *)w), second = _mm_loadu_ps((const float *)(w + 4 * stride_bytes));
#if defined __AVX512F__
    __m512 parts = _mm512_insertf32x4(_mm512_castps128_ps512(first), second, 1);
    parts = _mm512_insertf32x4(parts, _mm_loadu_ps((const float *)(w + 8 * stride_bytes)), 2);
    return _mm512_insertf32x4(parts, _mm_loadu_ps((const float *)(w + 12 * stride_bytes)), 3);
#else
    return _mm256_insertf128_ps(_mm256_castps128_ps256(first), second, 1);
#endif
}

/* Transposes parts: words[i] holds word i of every weight's part. */
INLINED void transpose_parts(fma_lanes words[WORDS], const char *w, i64 stride_bytes)
{
    fma_lanes r[WORDS], t[WORDS];
    for (int i = 0; i < WORDS; i++)
        r[i] = load_parts(w + i * stride_bytes, stride_bytes);
    for (int i = 0; i < WORDS; i += 2) {
        t[i] = LANES_OP(unpacklo_ps)(r[i], r[i + 1]);
        t[i + 1] = LANES_OP(unpackhi_ps)(r[i], r[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        words[2 * i] = LANES_OP(shuffle_ps)(t[i], t[i + 2], 0x44);
        words[2 * i + 1] = LANES_OP(shuffle_ps)(t[i], t[i + 2], 0xee);
    }
}

INLINED void add_word(fma_lanes *sums, const float *x, fma_lanes w, int rows)
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        fma_add(&sums[i], LANES_OP(set1_ps)(x[i]), w);
}

/* Adds the first `bytes` of a part. widen: w is bf16, and x has one word for each of its terms. */
INLINED void add_part(fma_lanes *sums, const float *x, const char *w, i64 stride_bytes, i64 bytes, int rows, bool widen)
{
    fma_lanes words[WORDS];
    transpose_parts(words, w, stride_bytes);
#pragma GCC unroll 4
    for (int i = 0; i < WORDS; i++) {
        word_lanes pair = (word_lanes)words[i];
        if (!widen && 4 * i < bytes)
            add_word(sums, x + i * rows, words[i], rows);
        if (widen && 4 * i < bytes)
            add_word(sums, x + 2 * i * rows, (fma_lanes)(pair << 16), rows);
        if (widen && 4 * i + 2 < bytes)
            add_word(sums, x + (2 * i + 1) * rows, (fma_lanes)(pair & 0xffff0000u), rows);
    }
}

/* Adds the rest of the depth that is not a whole part. */
INLINED void add_rest(fma_lanes *sums, const float *x, const char *w, i64 stride_bytes, i64 bytes, int rows, bool widen)
{
    char parts[FMA_LANES * PART_BYTES] = {0};
    for (i64 i = 0; i < FMA_LANES; i++)
        memcpy(parts + i * PART_BYTES, w + i * stride_bytes, (size_t)bytes);
    add_part(sums, x, parts, PART_BYTES, bytes, rows, widen);
}

INLINED void multiply(const struct fma_skinny *gemm, int rows, int vectors, enum dtype dtype)
{
    const bool widen = dtype == DTYPE_BF16 && FMA_TERMS == 1;
    const int whole = widen ? 2 * WORDS : WORDS, lines = vectors * FMA_LANES * PART_BYTES / 64;
    const char *w = gemm->w, *next = gemm->next;
    const float *x = gemm->x;
    i64 stride_bytes = gemm->stride_bytes, second = gemm->second * stride_bytes, bytes = gemm->bytes;
    fma_lanes sums[2][FMA_SKINNY_ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        sums[0][i] = sums[1][i] = (fma_lanes){0};
    for (; bytes >= PART_BYTES; bytes -= PART_BYTES, x += whole * rows, w += PART_BYTES, next += lines * 64) {
#pragma GCC unroll 8
        for (int i = 0; i < lines; i++)
            __builtin_prefetch(next + i * 64);
        add_part(sums[0], x, w, stride_bytes, PART_BYTES, rows, widen);
        if (vectors > 1)
            add_part(sums[1], x, w + second, stride_bytes, PART_BYTES, rows, widen);
    }
    if (bytes > 0) {
        add_rest(sums[0], x, w, stride_bytes, bytes, rows, widen);
        if (vectors > 1)
            add_rest(sums[1], x, w + second, stride_bytes, bytes, rows, widen);
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        *(fma_lanes *)(gemm->sums + i * FMA_SKINNY_COLUMNS) = sums[0][i];
        if (vectors > 1)
            *(fma_lanes *)(gemm->sums + i * FMA_SKINNY_COLUMNS + gemm->second) = sums[1][i];
    }
}

INLINED void multiply_rows(const struct fma_skinny *gemm, int rows, enum dtype dtype)
{
    if (FMA_LANES < 16 && gemm->second > 0)
        multiply(gemm, rows, 2, dtype);
    else
        multiply(gemm, rows, 1, dtype);
}

void CPU(fma_skinny)(const struct fma_skinny *gemm)
{
    switch (gemm->rows) {
    case 1:
        BY_DTYPE(gemm->dtype, multiply_rows, gemm, 1);
        break;
    case 2:
        BY_DTYPE(gemm->dtype, multiply_rows, gemm, 2);
        break;
    case 4:
        BY_DTYPE(gemm->dtype, multiply_rows, gemm, 4);
        break;
    default:
        BY_DTYPE(gemm->dtype, multiply_rows, gemm, FMA_SKINNY_ROWS);
    }
}
