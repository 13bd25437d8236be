/* One draw of philox4x32-10: ten rounds of two 32x32 -> 64-bit products (Salmon et al. 2011,
 * section 3.1, with its constants). Host code and kernels share this header; kernels include the
 * CUDA runtime first. */
#ifndef WEFT_PHILOX_H
#define WEFT_PHILOX_H
#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX static __host__ __device__ inline
#else
#define PHILOX static inline
#endif

PHILOX void philox(uint32_t out[4], uint64_t seed, uint32_t purpose, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32) ^ (purpose * 0x85ebca6bu);
    for (int round = 0; round < 10; round++) {
        uint64_t left = (uint64_t)0xd2511f53u * a, right = (uint64_t)0xcd9e8d57u * c;
        uint32_t next_a = (uint32_t)(right >> 32) ^ b ^ k0, next_c = (uint32_t)(left >> 32) ^ d ^ k1;
        b = (uint32_t)right;
        d = (uint32_t)left;
        a = next_a;
        c = next_c;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

/* Maps a draw to [0, 1) and to 0 .. bound - 1. The latter uses 64 bits, so its bias is below
 * 2^-32. */
PHILOX double philox_uniform(const uint32_t out[4])
{
    return out[0] * 0x1p-32;
}
PHILOX int64_t philox_below(const uint32_t out[4], int64_t bound)
{
    uint64_t wide = (uint64_t)out[1] << 32 | out[0];
    return (int64_t)(((unsigned __int128)wide * (uint64_t)bound) >> 64);
}

#endif
