/* Attention by multiply-adds in strips: rows of a tile (attention.h) are lanes of vectors, STRIP of them, and scores
 * lie [keys][STRIP]. What belongs to a row - its maximum, its sum, whether it sees a key - is a lane, so nothing is
 * ever summed across a vector, and a strip multiplies with no keys but those between the first and the last that its
 * rows see: of a causal sample of 40 little more than what is unmasked.
 *
 * A tile packs what it reads, in words of fma.h:
 *
 *     rows of keys      [runs of the width][STRIP_KEYS + 1][FMA_A_STRIDE]    scores^T = keys queries^T
 *     turned values     [panels of the width][keys][FMA_TURNED]              sums^T = values^T probabilities^T
 *     turned queries    [strips][width][STRIP]
 *
 * What is summed over keys lies [width][STRIP], too, and is turned back when it is stored. */
#ifndef WEFT_CPU_STRIPS_H
#define WEFT_CPU_STRIPS_H
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/gemm/fma.h"

enum { STRIP = FMA_COLUMNS };

struct strip {
    i32 query[STRIP]; /* index of each lane's; behind the tile's rows the last one's again */
    i32 low, high;
    i64 lanes; /* that are rows of the tile */
};
struct strip_keys { /* of a run, from a whole word on; count 0: none */
    i64 first, count;
};

static inline i64 strip_words(i64 terms)
{
    return ceil_div(terms, FMA_TERMS);
}
/* Columns of the `group` heads that read key-value head `head`. */
static inline struct matrix strip_heads(struct matrix m, i64 head, i64 group, i64 width)
{
    return matrix_columns(m, head * group * width, group * width);
}

/* By which strip_room_of counts. */
#if defined __AVX512BF16__
#define STRIP_LEVEL CPU_LEVEL_PAIRS
#elif defined __AVX512F__
#define STRIP_LEVEL CPU_LEVEL_V4
#else
#define STRIP_LEVEL CPU_LEVEL_V3
#endif

/* The lanes of rows [row, row + STRIP) of a tile. */
void CPU(strip_open)(struct strip *strip, const struct attention_plan *plan, const struct query_tile *tile, i64 row);
struct strip_keys CPU(strip_find)(const struct strip *strip, const struct intervals *v, const struct key_run *run);

/* Keys or values of a run, as rows and turned. */
void CPU(strip_pack_rows)(float *out, struct matrix m, const struct key_run *run);
void CPU(strip_pack_turned)(float *out, struct matrix m, const struct key_run *run);
/* Rows of a tile, turned, or as a b whose depth they are: [panels of the width][words of all strips][FMA_COLUMNS].
 * `heads`: strip_heads of q, `width` each. Behind the last row there are zeros. */
void CPU(strip_pack_queries)(float *out, struct matrix heads, const struct query_tile *tile, i64 width);
void CPU(strip_pack_depth)(float *out, struct matrix heads, const struct query_tile *tile, i64 width);

/* scores [keys.count][STRIP]; one row more is written over. */
void CPU(strip_scores)(float *scores, const float *key_rows, const float *queries, struct strip_keys keys, i64 width);
/* sums [width][STRIP] (+)= over words [keys.count / FMA_TERMS][STRIP] of scores. */
void CPU(strip_add)(float *sums, const float *turned, const float *scores, struct strip_keys keys, i64 width, bool add);
/* -INFINITY where a lane does not see a key, or where the last word ends behind the last key. */
void CPU(strip_hide)(float *scores, const struct strip *strip, const struct intervals *v, i64 key, i64 count);
/* Sums [width][STRIP] times a factor of each lane to rows [row, row + lanes) of a tile. */
void CPU(strip_store)(struct matrix heads, const struct query_tile *tile, i64 row, i64 lanes, const float *sums,
                      const float *factor, i64 width);

#endif
