/* Widens steps of quantized weights to integers in bytes. */
#ifndef WEFT_KERNELS_CPU_GEMM_QUANTIZED_STEPS_H
#define WEFT_KERNELS_CPU_GEMM_QUANTIZED_STEPS_H
#include "kernels/cpu/cpu.h"
#include "kernels/quantized.h"

#include <immintrin.h>

/* The values of the 16 codes for each block factor. */
struct quantized_tables {
    signed char of[QUANTIZED_FACTOR_COUNT][16] __attribute__((aligned(16)));
};

static inline void quantized_tables_fill(struct quantized_tables *t)
{
    const signed char book[16] = QUANTIZED_CODEBOOK;
    for (int factor = 0; factor < QUANTIZED_FACTOR_COUNT; factor++)
        for (int code = 0; code < 16; code++)
            t->of[factor][code] = (signed char)quantized_value(book[code], factor);
}

static inline i64 quantized_step_bytes(const struct quantized_weight *w)
{
    return QUANTIZED_ROWS * QUANTIZED_COLUMNS * w->bits / 8;
}

/* Widens one row of a step: the low nibbles, then the high nibbles, each with the table of its
 * block's factor. */
static inline void quantized_widen_row(signed char *out, const char *codes, const signed char *first,
                                       const signed char *second)
{
    __m128i low = _mm_load_si128((const void *)first), high = _mm_load_si128((const void *)second);
    __m256i both = _mm256_loadu_si256((const void *)codes);
#ifdef __AVX512BW__
    const __m512i halves = _mm512_set_epi64(4, 4, 4, 4, 0, 0, 0, 0);
    __m512i index = _mm512_srlv_epi64(_mm512_broadcast_i64x4(both), halves);
    __m512i table = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_broadcastsi128_si256(low)),
                                       _mm256_broadcastsi128_si256(high), 1);
    _mm512_storeu_si512(out, _mm512_shuffle_epi8(table, _mm512_and_si512(index, _mm512_set1_epi8(15))));
#else
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i above = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
    _mm256_storeu_si256((void *)out,
                        _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(low), _mm256_and_si256(both, mask)));
    _mm256_storeu_si256((void *)(out + 32), _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(high), above));
#endif
}

/* Widens a step of 32 rows of 64 bytes. Codes are stored in order, so later ones are prefetched
 * even across page ends. */
static inline void quantized_widen(signed char *out, const struct quantized_weight *w, const struct quantized_tables *t,
                                   i64 step)
{
    enum { AHEAD_BYTES = 3072 };
    const char *codes = (const char *)w->codes + step * quantized_step_bytes(w);
    const u8 *factors = w->factors + step * QUANTIZED_ROWS * 2;
    _mm_prefetch((const char *)factors + AHEAD_BYTES / 16, _MM_HINT_T0);
    for (int row = 0; row < QUANTIZED_ROWS; row += 2) {
        _mm_prefetch(codes + 32 * row + AHEAD_BYTES, _MM_HINT_T0);
        quantized_widen_row(out + 64 * row, codes + 32 * row, t->of[factors[2 * row]], t->of[factors[2 * row + 1]]);
        quantized_widen_row(out + 64 * row + 64, codes + 32 * row + 32, t->of[factors[2 * row + 2]],
                            t->of[factors[2 * row + 3]]);
    }
}

#endif
