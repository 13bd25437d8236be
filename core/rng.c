#include "core/core.h"
#include "core/philox.h"

#include <math.h>

void rng_draw(u32 out[4], struct rng_key key, u32 a, u32 b, u32 c, u32 d)
{
    philox(out, key.seed, (u32)key.purpose, a, b, c, d);
}

u32 rng_u32(struct rng_key key, u32 a, u32 b, u32 c, u32 d)
{
    u32 out[4];
    rng_draw(out, key, a, b, c, d);
    return out[0];
}

double rng_uniform(struct rng_key key, u32 a, u32 b, u32 c, u32 d)
{
    u32 out[4];
    rng_draw(out, key, a, b, c, d);
    return philox_uniform(out);
}

i64 rng_below(struct rng_key key, i64 bound, u32 a, u32 b, u32 c, u32 d)
{
    u32 out[4];
    require(bound > 0 && bound <= ((i64)1 << 32), "rng_below: bound %lld", (long long)bound);
    rng_draw(out, key, a, b, c, d);
    return philox_below(out, bound);
}

/* Box-Muller; the radius uses 53 bits, the angle 32. */
double rng_normal(struct rng_key key, u32 a, u32 b, u32 c, u32 d)
{
    u32 out[4];
    rng_draw(out, key, a, b, c, d);
    double radius = (((u64)out[0] << 21 ^ out[1]) + 1) * 0x1p-53;
    return sqrt(-2 * log(radius)) * cos(2 * 3.14159265358979323846 * (out[2] * 0x1p-32));
}

void rng_permutation(i32 *out, i64 n, struct rng_key key, u32 a, u32 b)
{
    for (i64 i = 0; i < n; i++)
        out[i] = (i32)i;
    for (i64 i = n - 1; i > 0; i--) {
        i64 j = rng_below(key, i + 1, a, b, (u32)i, 0);
        i32 kept = out[i];
        out[i] = out[j];
        out[j] = kept;
    }
}

/* Finalizer of MurmurHash3. */
static u32 mix(u32 x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* A Feistel network over the smallest even number of bits that covers n, with cycle walking:
 * repeats until the result is below n. */
i64 rng_permuted(i64 index, i64 n, struct rng_key key, u32 a, u32 b, u32 c)
{
    enum { ROUNDS = 6 };
    u32 keys[4], half = 1;
    require(0 <= index && index < n, "rng_permuted: %lld of %lld", (long long)index, (long long)n);
    while ((i64)1 << 2 * half < n)
        half++;
    u64 at = (u64)index;
    u32 mask = (u32)(((u64)1 << half) - 1);
    rng_draw(keys, key, a, b, c, 0);
    do {
        u32 left = (u32)(at >> half), right = (u32)at & mask;
        for (u32 round = 0; round < ROUNDS; round++) {
            u32 next = left ^ (mix((right + round * 0x9e3779b9u) ^ keys[round % 4]) & mask);
            left = right;
            right = next;
        }
        at = (u64)left << half | right;
    } while (at >= (u64)n);
    return (i64)at;
}
