/* How products are cut: what the CPU backend runs, and what the meta backend counts primitives by. Sizes follow from
 * shapes alone. Lengths that data decides differ in every step, and each new shape of a product costs a primitive: time
 * to make it and some 100 kB that stay. So what is left behind whole tiles is padded, or cut, to one of few lengths. */
#ifndef WEFT_CPU_TILES_H
#define WEFT_CPU_TILES_H
#include "kernels/kernels.h"

/* ---- matmul: a tile of the output is as large as a core likes (rows amortise oneDNN's packing of b) and small enough
 * that there are at least TILES_WANTED; sums over rows of data go over whole runs of DEPTH_RUN, then over the rest ----
 */
enum { ROWS_MOST = 256, ROWS_LEAST = 32, COLUMNS_MOST = 512, TILES_WANTED = 8, DEPTH_RUN = 512 };

static inline i64 rows_of_tile(i64 rows, i64 column_tiles)
{
    i64 tile = ROWS_MOST;
    while (tile > ROWS_LEAST && ceil_div(rows, tile) * column_tiles < TILES_WANTED)
        tile /= 2;
    return tile;
}

static inline i64 padded_length(i64 length)
{
    i64 power = ROWS_LEAST;
    while (power < length)
        power *= 2;
    return power;
}

/* ---- experts: a tile is a run of at most GROUP_ROWS_TILE rows of one group ---- */
enum { GROUP_ROWS_TILE = 256, GROUP_COLUMNS_TILE = 512, GROUP_OUT_ROWS_TILE = 256 };
enum { GROUP_DEPTH_TILE = 512, GROUP_DEPTH_UNIT = 64 };

/* Rows of a group summed in one product. */
static inline i64 group_depth(i64 left)
{
    i64 whole = min_i64(left, GROUP_DEPTH_TILE) / GROUP_DEPTH_UNIT * GROUP_DEPTH_UNIT;
    return whole ? whole : left;
}

/* ---- attention: queries times heads of a group, and keys, of a tile; keys come in blocks ---- */
enum { KEY_BLOCK = 32 };
enum { FORWARD_ROWS_MOST = 128, FORWARD_KEYS_MOST = 512, BACKWARD_ROWS_MOST = 256, BACKWARD_KEYS_MOST = 128 };

#endif
