/* Shared by all forms of attention: a plan of which tiles of queries read which runs of keys. With
 * many queries, rows of a tile are lanes of vectors (strips.h); with few, they are rows of gemms
 * (attention_decode.c). AMX has its own layout (amx_attention.h).
 *
 * Rows of a tile. The `group` = H/G query heads of one kv head read the same keys: row i * group +
 * h is head h of the tile's query i.
 *
 * Keys. Every block of KEY_BLOCK keys stores the extremes of its columns begin, end, hole_begin,
 * hole_end; every span of KEY_SPAN keys stores those of its blocks. These bounds decide whether any
 * query of an index range may see a key of a block, and whether all of them see the whole block. A
 * run is a stretch of blocks that may be seen, without the unseen keys at its ends.
 *
 * Queries. A tile starts as neighboring queries up to a sample boundary. It is cut in two, at a
 * boundary or in the middle, while reading the keys of both parts costs less than reading those of
 * the whole and both parts have enough rows. Neighbors of one sample stay together; requests of a
 * shared cache are separated. The plan depends on shapes and intervals, never on threads or values.
 *
 * Keys and values must be finite, even masked ones: a masked probability is exactly zero, but it is
 * multiplied.
 *
 * In: q, k, v and the intervals of keys (struct intervals of kernels.h). Out: `out` and lse, or
 * dq, dk, dv. Plans and packed keys are scratch of the workers; nothing outlives a call.
 *
 * Where is what: which keys a query sees is decided in attention_plan.c; training's forward is
 * attention.c, its backward attention_backward.c with the order of sums in attention_turns.c;
 * decoding over a cache is attention_decode.c; AMX: amx_attention.c, amx_attention_backward.c. */
#ifndef WEFT_CPU_ATTENTION_H
#define WEFT_CPU_ATTENTION_H
#include "kernels/cpu/cpu.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define LOG2_E 1.44269504088896341f
#define LN_2 0.693147180559945309f

/* Bounds over the keys that some query can see. Empty holes are ignored. */
struct key_bounds {
    i32 begin_min, begin_max, end_min, end_max;
    i32 hole_begin_min, hole_end_max; /* over holes alone: outside, no hole hides a key */
    i32 hole_begin_max, hole_end_min; /* over all keys: inside, every key is hidden */
};
struct query_tile {
    i32 first, count, keys; /* keys: number of keys it multiplies with */
};
struct key_run {
    i64 first, count; /* keys; with whole_blocks they may extend past the last key */
    /* The part of the run's keys that some query of the tile may not see. */
    i64 mask_from, mask_to;
    i64 next; /* the block after the run */
};
/* Limits of a tiling. A tile of scores should stay in L2. */
struct attention_tiling {
    /* Limits of a tile, and of each part of a cut tile. A single query may exceed either. */
    i64 rows_most, rows_least;
    i64 keys_most; /* keys per run at most */
    bool aligned;  /* runs do not cross multiples of keys_most */
    /* Runs begin and end with a block, and queries are cut evenly. */
    bool whole_blocks;
};
struct attention_plan {
    const struct intervals *intervals;
    struct attention_tiling tiling;
    i64 group, blocks, spans, tile_count;
    struct key_bounds *block, *span;
    /* Most work first. Equal shapes are adjacent, so that their code stays in the instruction
     * cache. */
    struct query_tile *tiles;
    bool *meets; /* for each query: a sample ended just before it */
};

/* Makes the plan. Its memory is worker 0's scratch slot 7. */
void CPU(attention_plan)(struct attention_plan *plan, const struct intervals *intervals, i64 group,
                         struct attention_tiling tiling);
/* The first block from `block` on that some query with an index in [low, high] may see, or
 * plan->blocks. */
i64 CPU(attention_next)(const struct attention_plan *plan, i64 block, i32 low, i32 high);
/* Finds the run of keys that follows *run in this tile; {0} asks for the first. Returns false after
 * the last. */
bool CPU(attention_run)(struct key_run *run, const struct attention_plan *plan, const struct query_tile *tile);

/* Fails if the shapes or dtypes of an attention do not match. */

/* Attention for few queries and many keys (attention_is_decode). */
void CPU(attention_decode)(struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,
                           struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals);

/* True if a query with an index in [low, high] may see a key within these bounds. */
static inline bool attention_some_visible(const struct key_bounds *b, i32 low, i32 high)
{
    return b->begin_min <= high && b->end_max > low && !(b->hole_begin_max <= low && b->hole_end_min > high);
}

static inline bool attention_all_visible(const struct key_bounds *b, i32 low, i32 high)
{
    return b->begin_max <= low && b->end_min > high && (b->hole_begin_min > high || b->hole_end_max <= low);
}

/* ---- Order of accumulation into spans of keys ----
 *
 * Tiles add to a span in the order of their numbers, so sums do not depend on threads. A tile waits
 * only for tiles that were handed out earlier, so the earliest never waits and there is no
 * deadlock. */
struct attention_turns {
    /* Keys of a span, which a run must not cross; number of spans. */
    i64 keys, spans;
    /* [tiles][spans]: 1 + number of the tile that adds just before this one; 0: none. */
    i32 *before;
    /* [G][spans]: 1 + number of the last tile that has added to the span. */
    _Atomic i32 *done;
};
/* Sets up the turns in worker 0's scratch slot 5. */
void CPU(attention_order)(struct attention_turns *turns, const struct attention_plan *plan, i64 kv_heads);
/* attention_wait returns once it is the tile's turn at a span of a kv head; attention_end passes
 * the turn on. */
void CPU(attention_wait)(const struct attention_turns *turns, i64 tile, i64 head, i64 span);
void CPU(attention_end)(const struct attention_turns *turns, i64 tile, i64 head, i64 span);

static inline i64 attention_rows_most(const struct attention_plan *plan)
{
    return max_i64(plan->tiling.rows_most, plan->group);
}

/* Columns of scores of a run, padded to whole units. */
static inline i64 attention_columns(const struct key_run *run)
{
    return round_up(run->count, KEY_UNIT);
}

static inline i64 keys_padded(i64 keys)
{
    return round_up(keys, KEY_BLOCK);
}

/* 2^x for x <= 126, exactly zero from -127 down. The integer part is added to the exponent; the
 * rest is a minimax polynomial of degree 5 on [-1/2, 1/2] with a relative error of 2e-7, rounding
 * included. */
static inline float attention_exp2(float x)
{
    /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits. */
    const float shift = 12582912.0f;
    /* -127: 1.0 with its exponent lowered by 127 has all bits zero. */
    const u32 lowest = 0xc2fe0000u;
    union {
        float value;
        u32 bits;
    } clamped = {x}, whole, power;
    /* Larger bits of a negative float mean a lower value. */
    clamped.bits = clamped.bits < lowest ? clamped.bits : lowest;
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

/* Natural logarithm of a normal x > 0: x = 2^e m with m in [1/sqrt(2), sqrt(2)], and log m = 2
 * artanh((m-1) / (m+1)) as a series. The absolute error is 1e-7. */
static inline float attention_log(float x)
{
    union {
        float value;
        u32 bits;
    } m = {x};
    i32 e = (i32)(m.bits - 0x3f3504f3u) >> 23; /* bits of sqrt(1/2) */
    m.bits -= (u32)e << 23;
    float s = (m.value - 1.0f) / (m.value + 1.0f), z = s * s;
    float series = 1.0f + z * (3.3333333e-1f + z * (2.0e-1f + z * (1.4285714e-1f + z * 1.1111111e-1f)));
    return (float)e * LN_2 + 2.0f * s * series;
}

/* Rounds a finite value to nearest, ties away from zero. It costs half of bf16_from_f32. */
static inline bf16 attention_round(float value)
{
    union {
        float value;
        u32 bits;
    } both = {value};
    return (bf16)((both.bits + 0x8000u) >> 16);
}

/* Sums and maxima over a row run in LANES chains: enough to hide latencies, and few enough to stay
 * in registers. */
enum { LANES = KEY_BLOCK };

/* Reductions written out, because compilers reduce the lanes through memory, one after the
 * other. */
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
