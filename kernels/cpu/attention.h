/* What attention's forward and backward share: which tiles of queries read which runs of keys, and the layout of a tile.
 *
 * Rows of a tile. The `group` = H/G query heads of one key-value head are rows of one product: row i * group + h is head
 * h of the tile's query i, which is how q lies in memory, so packing a tile is one copy a query.
 *
 * Keys. Blocks of KEY_BLOCK keys keep the extremes of their columns begin, end, hole_begin, hole_end; spans of
 * KEY_SPAN keys keep those of their blocks. From them alone follows whether some query between two indices may see
 * some key of a block, and whether all see all of it. A run is a stretch of blocks that may be seen.
 *
 * Queries. A tile begins with a power of two of neighbouring queries and is halved while reading the keys of both halves
 * costs less than reading those of the whole: neighbours of one sample stay together, requests of a shared cache, or
 * many short samples, come apart. All of this follows from shapes and intervals, never from threads or values.
 *
 * Keys and values must be finite, masked ones too: a masked probability is an exact zero, but is multiplied. */
#ifndef WEFT_CPU_ATTENTION_H
#define WEFT_CPU_ATTENTION_H
#include "kernels/cpu/cpu.h"

/* Widths of runs are multiples of KEY_BLOCK and at most KEYS_MOST, so few shapes of products arise, all of which
 * oneDNN's AMX kernels like; a tile of scores, 128 rows x 512 keys, stays in the second-level cache. */
enum { KEY_BLOCK = 32, KEY_SPAN = 512, KEYS_MOST = 512, ROWS_MOST = 128 };

#define LOG2_E 1.44269504088896341f
#define LN_2 0.693147180559945309f

struct key_bounds { /* of the keys any query can see; holes that are empty are no holes */
    i32 begin_min, begin_max, end_min, end_max;
    i32 hole_begin_min, hole_end_max; /* over holes alone: outside of it no key is hidden by one */
    i32 hole_begin_max, hole_end_min; /* over all keys: inside of it every key is hidden */
};
struct query_tile {
    i32 first, count;
};
struct key_run {
    i64 first, count;       /* keys; `count` may pass the last key of all by less than KEY_BLOCK */
    i64 mask_from, mask_to; /* of the run's keys, those that some query of the tile may not see */
};
struct attention_plan {
    const struct intervals *intervals;
    i64 group, blocks, spans, tile_count;
    struct key_bounds *block, *span;
    struct query_tile *tiles;
};

/* The plan lives in worker 0's scratch slot 7. Tiles are not halved below `rows_least` rows. */
void CPU(attention_plan)(struct attention_plan *plan, const struct intervals *intervals, i64 group, i64 rows_least);
/* The run of keys that follows *run in this tile; {0} asks for the first. A run never crosses a multiple of `grid`. */
bool CPU(attention_run)(struct key_run *run, const struct attention_plan *plan, const struct query_tile *tile,
                        i64 grid);
/* Rows [first, first + rows) of columns [column, column + width), densely; rows past the last are zero. */
void CPU(attention_pack)(void *out, struct matrix m, i64 first, i64 rows, i64 column, i64 width);

void CPU(attention_check)(struct matrix q, struct matrix k, struct matrix v, i64 heads, i64 kv_heads,
                          const struct intervals *intervals);

static inline i64 keys_padded(i64 keys)
{
    return round_up(keys, KEY_BLOCK);
}

/* 2^x for x <= 126, zero below -126: the integer part is added to the exponent, the rest is a polynomial of degree 5 on
 * [-1/2, 1/2] (least maximal relative error, 2e-7 with its roundings). */
static inline float attention_exp2(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    union { float value; u32 bits; } whole, power;
    float clamped = x < -126.0f ? -126.0f : x;
    whole.value = clamped + shift;
    float f = clamped - (whole.value - shift);
    float p = 1.32764720e-3f;
    p = p * f + 9.67554134e-3f;
    p = p * f + 5.55071327e-2f;
    p = p * f + 2.40221197e-1f;
    p = p * f + 6.93146967e-1f;
    power.value = p * f + 1.0f;
    power.bits += whole.bits << 23;
    return x < -126.0f ? 0.0f : power.value;
}

/* For finite values: to nearest, ties away from zero, which costs half of bf16_from_f32. */
static inline bf16 attention_round(float value)
{
    union { float value; u32 bits; } both = {value};
    return (bf16)((both.bits + 0x8000u) >> 16);
}

#endif
