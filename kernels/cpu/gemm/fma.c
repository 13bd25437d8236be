/* The micro-kernel of FMA gemms (fma.h): FMA_ROWS x FMA_COLUMNS sums in registers.
 *
 *                    b: 2 vectors of FMA_LANES columns
 *                  +-----------+-----------+
 *     a: broadcast | sums[0][0]| sums[0][1]|
 *        one word  | sums[1][0]| sums[1][1]|   repeated for each word of the depth
 *        per row   | ...       | ...       |
 *                  +-----------+-----------+
 *
 * A copy is compiled for each number of rows, for one or two vectors, and for transposed a. */
#include "kernels/cpu/gemm/fma.h"

enum { AT_ONCE = 4 };

/* Adds one word to the sums of a row. */
INLINED void add_row(fma_lanes sums[2], const float *x, fma_lanes first, fma_lanes second, int vectors)
{
    fma_lanes spread = LANES_OP(set1_ps)(*x);
    fma_add(&sums[0], spread, first);
    if (vectors > 1)
        fma_add(&sums[1], spread, second);
}

#if defined __AVX512F__
/* Same as add_row, but each instruction broadcasts x from memory: one instruction fewer, one load
 * more. */
INLINED void add_row_from_memory(fma_lanes sums[2], const float *x, fma_lanes first, fma_lanes second, int vectors)
{
    __asm__(FMA_INSTRUCTION " %1%{1to16%}, %2, %0" : "+v"(sums[0]) : "m"(*x), "v"(first));
    if (vectors > 1)
        __asm__(FMA_INSTRUCTION " %1%{1to16%}, %2, %0" : "+v"(sums[1]) : "m"(*x), "v"(second));
}
#else
#define add_row_from_memory add_row
#endif

/* Adds one word to every sum. Even and odd rows use different forms, because neither the
 * instruction rate nor the load rate of a core suffices for all rows. */
INLINED void multiply_once(fma_lanes sums[FMA_ROWS][2], const float *a, const float *b, int rows, int vectors,
                           bool transposed)
{
    fma_lanes first = *(const fma_lanes *)b, second = *(const fma_lanes *)(b + FMA_LANES);
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        const float *x = a + (transposed ? i : i * FMA_A_STRIDE);
        if (i % 2 == 0)
            add_row_from_memory(sums[i], x, first, second, vectors);
        else
            add_row(sums[i], x, first, second, vectors);
    }
}

/* ---- Writing sums to the output ---- */

/* Rounds each lane as bf16_from_f32 does. At the ISA level avx512_bf16 no sum is denormal, so it
 * does not matter that the instruction flushes denormals to zero. */
#if defined __AVX512BF16__
INLINED void round_lanes(bf16 *out, fma_lanes sum)
{
    _mm256_storeu_si256((__m256i *)out, (__m256i)_mm512_cvtneps_pbh(sum));
}
#elif defined __AVX512F__
INLINED void round_lanes(bf16 *out, fma_lanes sum)
{
    __m512i bits = _mm512_castps_si512(sum), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 is_nan = _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q);
    __m512i rounded = _mm512_mask_mov_epi32(_mm512_srli_epi32(up, 16), is_nan, _mm512_set1_epi32(0x7fc0));
    _mm256_storeu_si256((__m256i *)out, _mm512_cvtepi32_epi16(rounded));
}
#else
INLINED void round_lanes(bf16 *out, fma_lanes sum)
{
    __m256i bits = _mm256_castps_si256(sum), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
    __m256i rounded = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), _mm256_set1_epi32(0x7fc0), is_nan);
    _mm_storeu_si128((__m128i *)out,
                     _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)));
}
#endif

INLINED void finish_lanes(void *out, i64 at, fma_lanes sum, bool add, enum dtype dtype)
{
    if (dtype == DTYPE_BF16)
        round_lanes((bf16 *)out + at, sum);
    else if (add)
        *(fma_lanes *)((float *)out + at) += sum;
    else
        *(fma_lanes *)((float *)out + at) = sum;
}

INLINED void stream_sums(const struct fma_block *block, fma_lanes sums[FMA_ROWS][2], int rows, int vectors)
{
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            LANES_OP(stream_ps)((float *)block->out + i * block->out_stride + v * FMA_LANES, sums[i][v]);
}

INLINED void finish(const struct fma_block *block, fma_lanes sums[FMA_ROWS][2], int rows, int vectors, bool add,
                    enum dtype dtype)
{
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            finish_lanes(block->out, i * block->out_stride + v * FMA_LANES, sums[i][v], add, dtype);
}

INLINED void put_sums(const struct fma_block *block, fma_lanes sums[FMA_ROWS][2], int rows, int vectors)
{
    if (!block->out) {
        struct fma_block plain = *block;
        plain.out = block->sums;
        plain.out_stride = block->stride;
        finish(&plain, sums, rows, vectors, false, DTYPE_F32);
    } else if (block->out_dtype == DTYPE_BF16) {
        finish(block, sums, rows, vectors, false, DTYPE_BF16);
    } else if (block->streams) {
        stream_sums(block, sums, rows, vectors);
    } else if (block->add) {
        finish(block, sums, rows, vectors, true, DTYPE_F32);
    } else {
        finish(block, sums, rows, vectors, false, DTYPE_F32);
    }
}

/* The inner loop of every FMA gemm. */
INLINED void multiply(const struct fma_block *block, int rows, int vectors, bool transposed)
{
    const float *a = block->a, *b = block->b, *next = block->next;
    i64 depth = block->depth, step = transposed ? FMA_TRANSPOSED : 1;
    fma_lanes sums[FMA_ROWS][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sums[i][v] =
                block->resume ? *(const fma_lanes *)(block->sums + i * block->stride + v * FMA_LANES) : (fma_lanes){0};
    for (; depth >= AT_ONCE; depth -= AT_ONCE, a += AT_ONCE * step, b += AT_ONCE * FMA_COLUMNS) {
#pragma GCC unroll 4
        for (int u = 0; u < AT_ONCE; u++) {
            __builtin_prefetch(next + u * FMA_LANES);
            multiply_once(sums, a + u * step, b + u * FMA_COLUMNS, rows, vectors, transposed);
        }
        next += AT_ONCE * FMA_LANES;
    }
    for (; depth > 0; depth--, a += step, b += FMA_COLUMNS)
        multiply_once(sums, a, b, rows, vectors, transposed);
    put_sums(block, sums, rows, vectors);
}

INLINED void multiply_rows(const struct fma_block *block, int rows)
{
    if (block->columns <= FMA_LANES && block->transposed)
        multiply(block, rows, 1, true);
    else if (block->columns <= FMA_LANES)
        multiply(block, rows, 1, false);
    else if (block->transposed)
        multiply(block, rows, 2, true);
    else
        multiply(block, rows, 2, false);
}

void CPU(fma_multiply)(const struct fma_block *block)
{
    switch (block->rows) {
    case 1:
        multiply_rows(block, 1);
        break;
    case 2:
        multiply_rows(block, 2);
        break;
    case 3:
    case 4:
        multiply_rows(block, 4);
        break;
#if defined __AVX512F__
    case 5:
    case 6:
        multiply_rows(block, 6);
        break;
    case 7:
    case 8:
        multiply_rows(block, 8);
        break;
    case 9:
    case 10:
        multiply_rows(block, 10);
        break;
    case 11:
    case 12:
        multiply_rows(block, 12);
        break;
#endif
    default:
        multiply_rows(block, FMA_ROWS);
    }
}
