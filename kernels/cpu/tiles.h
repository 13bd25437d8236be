/* How products are cut: what the CPU backend runs, and what the meta backend counts primitives by. Sizes follow from
 * shapes alone. Lengths that data decides differ in every step, and each new shape of a product costs a primitive: time
 * to make it and some 100 kB that stay. So what is left behind whole tiles is padded, or cut, to one of few lengths. */
#ifndef WEFT_CPU_TILES_H
#define WEFT_CPU_TILES_H
#include "kernels/kernels.h"

/* ---- products: a tile of the output is as large as a core likes (rows amortise oneDNN's packing of b, columns that of
 * a) and small enough that there are a few. It is summed over runs of the depth, whose rows share few sets of a cache;
 * a depth that is a length of data is padded to few lengths, one that is a width of the model need not be. ---- */
enum { ROWS_MOST = 256, ROWS_LEAST = 32, COLUMNS_MOST = 512, COLUMNS_AT_ONCE = 768 };
enum { DEPTH_RUN = 512, DEPTH_AT_ONCE = 768, TILES_WANTED = 8, SUMS_WANTED = 4 };

struct tiling {
    i64 rows, columns;   /* of a tile */
    i64 segments, depth; /* parts of the depth that are summed apart, and how deep one is */
};

/* Gradients of weights: the depth is the rows of data. */
static inline bool sums_of_data(struct matrix out, bool transpose_a, bool transpose_b)
{
    return transpose_a && !transpose_b && out.dtype == DTYPE_F32;
}

static inline struct tiling tiling_of(i64 rows, i64 columns, i64 depth, bool sums_data)
{
    struct tiling t = {ROWS_MOST, columns <= COLUMNS_AT_ONCE ? columns : COLUMNS_MOST, 1, 0};
    i64 row_tiles = ceil_div(rows, t.rows), column_tiles = ceil_div(columns, t.columns);
    while (sums_data && row_tiles * column_tiles * t.segments < SUMS_WANTED && depth / (2 * t.segments) >= DEPTH_RUN)
        t.segments *= 2;
    while (!sums_data && t.rows > ROWS_LEAST && ceil_div(rows, t.rows) * column_tiles < TILES_WANTED)
        t.rows /= 2;
    t.depth = round_up(max_i64(ceil_div(depth, t.segments), 1), DEPTH_RUN);
    t.segments = max_i64(ceil_div(depth, t.depth), 1);
    return t;
}

/* So few rows are multiplied with weights as they lie, FEW_COLUMNS of them in a tile. */
enum { FEW_ROWS = 4, FEW_COLUMNS = 128 };
static inline bool has_few_rows(i64 rows, bool transpose_a, bool transpose_b)
{
    return rows <= FEW_ROWS && !transpose_a && transpose_b;
}

static inline i64 padded_length(i64 length)
{
    i64 power = ROWS_LEAST;
    while (power < length)
        power *= 2;
    return power;
}

static inline i64 depth_of_run(i64 left, bool sums_data)
{
    return left <= (sums_data ? DEPTH_RUN : DEPTH_AT_ONCE) ? left : DEPTH_RUN;
}

/* oneDNN writes a tile of f32 that is in no cache line by line, and waits for each; and bf16 cannot hold a sum. */
static inline bool sums_in_scratch(enum dtype in, enum dtype out, bool one_run)
{
    return in == DTYPE_BF16 && (out == DTYPE_F32 || !one_run);
}

/* ---- experts: a tile is a run of at most GROUP_ROWS_TILE rows of one group ---- */
enum { GROUP_ROWS_TILE = 256, GROUP_COLUMNS_TILE = 512, GROUP_OUT_ROWS_TILE = 256, GROUP_DEPTH_UNIT = 64 };

/* Rows of a group summed in one product. */
static inline i64 group_depth(i64 left)
{
    i64 whole = min_i64(left, DEPTH_RUN) / GROUP_DEPTH_UNIT * GROUP_DEPTH_UNIT;
    return whole ? whole : left;
}

/* ---- attention: queries times heads of a group, and keys, of a tile; keys come in blocks ---- */
enum { KEY_BLOCK = 32 };
enum { FORWARD_ROWS_MOST = 128, FORWARD_KEYS_MOST = 512, BACKWARD_ROWS_MOST = 256, BACKWARD_KEYS_MOST = 128 };

#endif
