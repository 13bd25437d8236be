/* What all forms of attention share: which tiles of queries read which runs of keys. Of many queries a tile's rows are
 * lanes of vectors (strips.h), of few they are rows of products (attention_few.c); tiles of AMX have their own layout
 * (amx_attention.h).
 *
 * Rows of a tile. The `group` = H/G query heads of one key-value head meet the same keys: row i * group + h is head h
 * of the tile's query i.
 *
 * Keys. Blocks of KEY_BLOCK keys keep the extremes of their columns begin, end, hole_begin, hole_end; spans of
 * KEY_SPAN keys keep those of their blocks. From them alone follows whether some query between two indices may see
 * some key of a block, and whether all see all of it. A run is a stretch of blocks that may be seen, without the keys
 * at its ends that are not.
 *
 * Queries. A tile begins with neighbouring queries up to where samples meet, and is cut in two, there or in the middle,
 * while reading the keys of both parts costs less than reading those of the whole and both have rows enough: neighbours
 * of one sample stay together, requests of a shared cache come apart. All of this follows from shapes and intervals,
 * never from threads or values.
 *
 * Keys and values must be finite, masked ones too: a masked probability is an exact zero, but is multiplied. */
#ifndef WEFT_CPU_ATTENTION_H
#define WEFT_CPU_ATTENTION_H
#include "kernels/cpu/cpu.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define LOG2_E 1.44269504088896341f
#define LN_2 0.693147180559945309f

struct key_bounds { /* of the keys any query can see; holes that are empty are no holes */
    i32 begin_min, begin_max, end_min, end_max;
    i32 hole_begin_min, hole_end_max; /* over holes alone: outside of it no key is hidden by one */
    i32 hole_begin_max, hole_end_min; /* over all keys: inside of it every key is hidden */
};
struct query_tile {
    i32 first, count, keys; /* that it multiplies with */
};
struct key_run {
    i64 first, count;       /* keys; of whole blocks they may pass the last key of all */
    i64 mask_from, mask_to; /* of the run's keys, those that some query of the tile may not see */
    i64 next;               /* block behind it */
};
/* A tile of scores should stay in the second-level cache. */
struct attention_tiling {
    i64 rows_most, rows_least; /* of a tile of queries, of each part of a cut one; a single query may pass either */
    i64 keys_most;             /* of a run */
    bool aligned;              /* runs do not cross multiples of keys_most */
    bool whole_blocks;         /* runs begin and end with a block, queries are cut evenly */
};
struct attention_plan {
    const struct intervals *intervals;
    struct attention_tiling tiling;
    i64 group, blocks, spans, tile_count;
    struct key_bounds *block, *span;
    struct query_tile *tiles; /* most work first; equal shapes follow each other, whose code then is in the cache */
    bool *meets;              /* of each query: a sample ended just before it */
};

/* The plan lives in worker 0's scratch slot 7. */
void CPU(attention_plan)(struct attention_plan *plan, const struct intervals *intervals, i64 group,
                         struct attention_tiling tiling);
/* The first block from `block` on that some query with an index in [low, high] may see, or plan->blocks. */
i64 CPU(attention_next)(const struct attention_plan *plan, i64 block, i32 low, i32 high);
/* The run of keys that follows *run in this tile; {0} asks for the first. */
bool CPU(attention_run)(struct key_run *run, const struct attention_plan *plan, const struct query_tile *tile);

void CPU(attention_check)(struct matrix q, struct matrix k, struct matrix v, i64 heads, i64 kv_heads,
                          const struct intervals *intervals);

void CPU(attention_few)(struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,
                        struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals);

/* May a query whose index lies in [low, high] see a key within these bounds? */
static inline bool attention_some_seen(const struct key_bounds *b, i32 low, i32 high)
{
    return b->begin_min <= high && b->end_max > low && !(b->hole_begin_max <= low && b->hole_end_min > high);
}

static inline bool attention_all_seen(const struct key_bounds *b, i32 low, i32 high)
{
    return b->begin_max <= low && b->end_min > high && (b->hole_begin_min > high || b->hole_end_max <= low);
}

/* ---- Whose turn it is to add to a span of keys: tiles do so in the order of their numbers, so sums do not depend on
 * threads. A tile waits only for tiles that were handed out earlier: the earliest never waits. ---- */
struct attention_turns {
    i64 keys, spans;   /* of a span, which a run must not cross; spans there are */
    i32 *before;       /* [tiles][spans]: 1 + number of the tile whose turn precedes this one's; 0: none */
    _Atomic i32 *done; /* [G][spans]: 1 + number of the last tile that added to the span */
};
/* In worker 0's scratch slot 5. */
void CPU(attention_order)(struct attention_turns *turns, const struct attention_plan *plan, i64 kv_heads);
void CPU(attention_wait)(const struct attention_turns *turns, i64 tile, i64 head, i64 span);
void CPU(attention_end)(const struct attention_turns *turns, i64 tile, i64 head, i64 span);

static inline i64 attention_rows_most(const struct attention_plan *plan)
{
    return max_i64(plan->tiling.rows_most, plan->group);
}

/* Of scores: keys that are not there fill up the last unit. */
static inline i64 attention_columns(const struct key_run *run)
{
    return round_up(run->count, KEY_UNIT);
}

static inline i64 keys_padded(i64 keys)
{
    return round_up(keys, KEY_BLOCK);
}

/* 2^x for x <= 126, exactly zero from -127 down: the integer part is added to the exponent, the rest is a polynomial of
 * degree 5 on [-1/2, 1/2] (least maximal relative error, 2e-7 with its roundings). */
static inline float attention_exp2(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    const u32 lowest = 0xc2fe0000u;  /* -127: 1.0 with an exponent lowered by 127 has all bits zero */
    union {
        float value;
        u32 bits;
    } clamped = {x}, whole, power;
    clamped.bits = clamped.bits < lowest ? clamped.bits : lowest; /* of negative floats, the larger bits are lower */
    whole.value = clamped.value + shift;
    float f = clamped.value - (whole.value - shift);
    float p = 1.32764720e-3f;
    p = p * f + 9.67554134e-3f;
    p = p * f + 5.55071327e-2f;
    p = p * f + 2.40221197e-1f;
    p = p * f + 6.93146967e-1f;
    power.value = p * f + 1.0f;
    power.bits += whole.bits << 23;
    return power.value;
}

/* Natural logarithm of a normal x > 0: 2^e m with m in [1/sqrt(2), sqrt(2)], log m = 2 artanh((m-1) / (m+1)) as a
 * series, 1e-7 absolute. */
static inline float attention_log(float x)
{
    union {
        float value;
        u32 bits;
    } m = {x};
    i32 e = (i32)(m.bits - 0x3f3504f3u) >> 23; /* sqrt(1/2) */
    m.bits -= (u32)e << 23;
    float s = (m.value - 1.0f) / (m.value + 1.0f), z = s * s;
    float series = 1.0f + z * (3.3333333e-1f + z * (2.0e-1f + z * (1.4285714e-1f + z * 1.1111111e-1f)));
    return (float)e * LN_2 + 2.0f * s * series;
}

/* For finite values: to nearest, ties away from zero, which costs half of bf16_from_f32. */
static inline bf16 attention_round(float value)
{
    union {
        float value;
        u32 bits;
    } both = {value};
    return (bf16)((both.bits + 0x8000u) >> 16);
}

/* Sums and maxima over a row run in LANES chains: enough to hide latencies, and compilers keep them in registers. */
enum { LANES = KEY_BLOCK };

/* Left alone, compilers reduce the lanes through memory, one after another. */
#ifdef __AVX512F__
static inline float max_of_lanes(const float *most)
{
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_loadu_ps(most), _mm512_loadu_ps(most + 16)));
}
static inline float sum_of_lanes(const float *total)
{
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_loadu_ps(total), _mm512_loadu_ps(total + 16)));
}
#else
static inline float max_of_lanes(const float *most)
{
    float max = most[0];
    for (int u = 1; u < LANES; u++)
        max = most[u] > max ? most[u] : max;
    return max;
}
static inline float sum_of_lanes(const float *total)
{
    float sum = 0;
    for (int u = 0; u < LANES; u++)
        sum += total[u];
    return sum;
}
#endif

#endif
