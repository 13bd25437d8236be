/* Peak flops of the arithmetic units: multiply-adds that never leave the registers. amx_peak.c does
 * the same on tiles. */
#include "kernels/cpu/cpu.h"

enum { SUMS = 12, REPEATS = 20000 };
#if defined __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
typedef float lanes __attribute__((vector_size(LANES * 4)));

#define HOLD(sums)                                                                                                     \
    for (int i = 0; i < SUMS; i++)                                                                                     \
    __asm__ volatile("" : "+x"((sums)[i]))

static double multiply_add(void)
{
    lanes sums[SUMS] = {{0}}, half = (lanes){0} + 0.5f;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (int i = 0; i < SUMS; i++)
            sums[i] = sums[i] * half + half;
        HOLD(sums);
    }
    return 2.0 * SUMS * LANES * REPEATS;
}

#if defined __AVX512F__
#include <immintrin.h>

/* Some CPUs run vdpbf16ps at twice the rate of f32, some at half of it. */
__attribute__((target("avx512bf16"))) static double multiply_pairs(void)
{
    __m512 sums[SUMS] = {{0}};
    __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        for (int i = 0; i < SUMS; i++)
            sums[i] = _mm512_dpbf16_ps(sums[i], ones, ones);
        HOLD(sums);
    }
    return 4.0 * SUMS * LANES * REPEATS;
}
#endif

double CPU(peak_run)(bool bf16_dot)
{
#if defined __AVX512F__
    if (bf16_dot)
        return multiply_pairs();
#endif
    (void)bf16_dot;
    return multiply_add();
}
