/* FMA attention in strips.
 *
 * Rows of a tile (attention.h) are lanes of vectors, STRIP of them, and scores are [keys][STRIP].
 * The maximum of a row, its sum and its mask are lanes, so nothing is ever summed across a vector.
 *
 *                    one strip: STRIP rows (queries x heads)
 *     keys       +---------------------------+
 *     first      | scores^T = K Q^T          |   softmax runs down the lanes
 *       .. last  |                           |
 *                +---------------------------+
 *     width D    | out^T = V^T probabilities^T
 *                +---------------------------+
 *
 * A strip multiplies only the keys between the first and the last that its rows see. For a causal
 * sample of 40 positions that is little more than the unmasked part.
 *
 * A tile packs its inputs in words of fma.h:
 *
 *     rows of keys     [runs of the width][STRIP_KEYS + 1][FMA_A_STRIDE]
 *     transposed values    [panels of the width][keys][FMA_TRANSPOSED]
 *     transposed queries   [strips][width][STRIP]
 *
 * Sums over keys are [width][STRIP], too, and are transposed when they are stored. */
#ifndef WEFT_CPU_STRIPS_H
#define WEFT_CPU_STRIPS_H
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/gemm/fma.h"

enum { STRIP = FMA_COLUMNS };

struct strip {
    /* Index of each lane's query. Lanes past the tile's rows repeat the last one. */
    i32 query[STRIP];
    i32 low, high;
    i64 lanes; /* lanes that are rows of the tile */
};
/* Keys of a run, starting at a whole word; count 0: none. */
struct strip_keys {
    i64 first, count;
};

static inline i64 strip_words(i64 terms)
{
    return ceil_div(terms, FMA_TERMS);
}
/* Columns of the `group` query heads that read kv head `head`. */
static inline struct matrix strip_heads(struct matrix m, i64 head, i64 group, i64 width)
{
    return matrix_columns(m, head * group * width, group * width);
}

/* ISA level to pass to strip_scratch_of. */
#if defined __AVX512BF16__
#define STRIP_ISA CPU_ISA_AVX512_BF16
#elif defined __AVX512F__
#define STRIP_ISA CPU_ISA_V4
#else
#define STRIP_ISA CPU_ISA_V3
#endif

/* strip_open sets up the lanes for rows [row, row + STRIP) of a tile. strip_find returns the keys
 * of a run that they see. */
void CPU(strip_open)(struct strip *strip, const struct attention_plan *plan, const struct query_tile *tile, i64 row);
struct strip_keys CPU(strip_find)(const struct strip *strip, const struct intervals *v, const struct key_run *run);

/* Pack keys or values of a run as rows, and transposed. */
void CPU(strip_pack_rows)(float *out, struct matrix m, const struct key_run *run);
void CPU(strip_pack_transposed)(float *out, struct matrix m, const struct key_run *run);
/* Pack rows of a tile transposed, or as a b whose depth is the rows: [panels of the width][words of
 * all strips][FMA_COLUMNS]. `heads` is strip_heads of q, `width` columns each. Missing rows are
 * zeros. */
void CPU(strip_pack_queries)(float *out, struct matrix heads, const struct query_tile *tile, i64 width);
void CPU(strip_pack_depth)(float *out, struct matrix heads, const struct query_tile *tile, i64 width);

/* scores [keys.count][STRIP]. One more row is overwritten. */
void CPU(strip_scores)(float *scores, const float *key_rows, const float *queries, struct strip_keys keys, i64 width);
/* sums [width][STRIP] (+)= transposed times scores, over words [keys.count / FMA_TERMS][STRIP] of
 * scores. */
void CPU(strip_add)(float *sums, const float *transposed, const float *scores, struct strip_keys keys, i64 width,
                    bool add);
/* Sets scores to -INFINITY where a lane does not see a key, and where the last word extends past
 * the last key. */
void CPU(strip_hide)(float *scores, const struct strip *strip, const struct intervals *v, i64 key, i64 count);
/* Stores sums [width][STRIP], times a factor per lane, to rows [row, row + lanes) of a tile. */
void CPU(strip_store)(struct matrix heads, const struct query_tile *tile, i64 row, i64 lanes, const float *sums,
                      const float *factor, i64 width);

#endif
