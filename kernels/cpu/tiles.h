/* Tile sizes and scratch sizes of the CPU backend. The CPU backend cuts its work with them; the
 * meta backend computes the scratch estimate from them.
 *
 * Sizes that change the order of a sum depend on shapes alone, so results do not depend on the
 * number of workers. AMX tiles change no order, so they are cut finer for many workers,
 * AMX_TILES_EACH per worker. */
#ifndef WEFT_CPU_TILES_H
#define WEFT_CPU_TILES_H
#include "kernels/conv.h"

/* Rows per tile of about 16k elements. All row-wise ops use this rule. */
static inline i64 tile_rows(i64 columns)
{
    return max_i64(1, 16384 / max_i64(columns, 1));
}

/* ---- FMA gemm ----
 *
 * A tile has enough rows to pay for packing its columns of b. The cut changes sums only in weight
 * gradients: these have few tiles, so segments of the depth (K) are summed separately to get more.
 * If the depth is too short for that, the tiles are made smaller, which changes no sum. */
enum { ROWS_UNIT = 42, ROWS_MOST = 12 * ROWS_UNIT, COLUMNS_UNIT = 32, COLUMNS_MOST = 256, COLUMNS_LEAST = 64 };
enum { DEPTH_RUN = 512, TILES_WANTED = 16, SUMS_WANTED = 4, SUMS_ROWS_UNIT = 14 };
/* Processed at once: STFT frames, one per lane; rows compared with a codebook. */
enum { STFT_ROWS = 16, NEAREST_ROWS = 64 };

/* Weight gradients of this many elements have left the caches by the time the optimizer reads them,
 * so they are written with non-temporal stores. */
enum { STREAMED_LEAST = 16 << 20 };

struct tiling {
    i64 rows, columns; /* rows and columns of a tile */
    /* Segments of the depth that are summed separately, and the depth of one. */
    i64 segments, depth;
};

/* A weight gradient: the depth is the rows of data. */
static inline bool sums_of_data(struct matrix out, bool transpose_a, bool transpose_b)
{
    return transpose_a && !transpose_b && out.dtype == DTYPE_F32;
}

/* The length of the longest of equal parts, in whole units. */
static inline i64 even_parts(i64 length, i64 most, i64 unit)
{
    return round_up(ceil_div(length, max_i64(ceil_div(length, most), 1)), unit);
}
static inline i64 even_rows(i64 rows)
{
    return even_parts(rows, ROWS_MOST, ROWS_UNIT);
}
static inline i64 even_columns(i64 columns)
{
    return even_parts(columns, COLUMNS_MOST, COLUMNS_UNIT);
}

/* A b that is short enough to stay in cache is packed once for all tiles. Tiles may then have few
 * rows and all columns. */
enum { SHARED_MOST = 4 << 20, SHARED_ROWS = 2 * ROWS_UNIT };
static inline bool tiles_share(i64 rows, i64 columns, i64 depth, bool sums_data)
{
    return !sums_data && rows > SHARED_ROWS && columns * depth <= SHARED_MOST;
}

/* Halves the longer side, because both operands are packed for each tile. */
static inline void cut_sums(struct tiling *t, i64 rows, i64 columns)
{
    while (t->rows + t->columns > 2 * COLUMNS_LEAST &&
           ceil_div(rows, t->rows) * ceil_div(columns, t->columns) * t->segments < SUMS_WANTED)
        if (t->rows > t->columns)
            t->rows = even_parts(min_i64(rows, t->rows), t->rows / 2, SUMS_ROWS_UNIT);
        else
            t->columns = even_parts(min_i64(columns, t->columns), t->columns / 2, COLUMNS_UNIT);
}

static inline struct tiling tiling_of(i64 rows, i64 columns, i64 depth, bool sums_data)
{
    struct tiling t = {even_rows(rows), even_columns(columns), 1, 0};
    if (tiles_share(rows, columns, depth, sums_data)) {
        t.rows = even_parts(rows, SHARED_ROWS, ROWS_UNIT);
        t.columns = round_up(columns, COLUMNS_UNIT);
    }
    i64 row_tiles = ceil_div(rows, t.rows), column_tiles = ceil_div(columns, t.columns);
    while (sums_data && row_tiles * column_tiles * t.segments < SUMS_WANTED && depth / (2 * t.segments) >= DEPTH_RUN)
        t.segments *= 2;
    if (sums_data)
        cut_sums(&t, rows, columns);
    while (!sums_data && t.rows > 2 * ROWS_UNIT && ceil_div(rows, t.rows) * column_tiles * t.segments < TILES_WANTED)
        t.rows = round_up(t.rows / 2, ROWS_UNIT);
    while (!sums_data && t.columns > COLUMNS_LEAST &&
           ceil_div(rows, t.rows) * ceil_div(columns, t.columns) < TILES_WANTED)
        t.columns = round_up(t.columns / 2, COLUMNS_UNIT);
    t.depth = max_i64(ceil_div(depth, t.segments), 1);
    t.segments = max_i64(ceil_div(depth, t.depth), 1);
    return t;
}

/* One worker's panels of both operands for a run of the depth, and the sums carried to the next
 * run. */
enum { FMA_RUN = 256, FMA_PANELS_NEAR = 6 };
static inline i64 fma_operand_bytes(enum cpu_isa isa, i64 m)
{
    i64 lanes = isa == CPU_ISA_V3 ? 8 : 16, rows = isa == CPU_ISA_V3 ? 6 : 14;
    return (min_i64(FMA_PANELS_NEAR, ceil_div(m, rows)) * lanes * (FMA_RUN + 16) + FMA_RUN * COLUMNS_MOST) * 4;
}
static inline i64 fma_words(enum cpu_isa isa, i64 depth, enum dtype dtype)
{
    return isa == CPU_ISA_AVX512_BF16 && dtype == DTYPE_BF16 ? ceil_div(depth, 2) : depth;
}
static inline i64 fma_run_bytes(enum cpu_isa isa, i64 m, i64 words)
{
    i64 rows = isa == CPU_ISA_V3 ? 6 : 14, panels = min_i64(isa == CPU_ISA_V3 ? 42 : 36, ceil_div(m, rows));
    return words > FMA_RUN ? panels * rows * COLUMNS_MOST * 4 : 0;
}

static inline i64 fma_panels_bytes(i64 words, i64 columns)
{
    return words * round_up(columns, COLUMNS_UNIT) * 4;
}

/* Skinny gemm: few rows times weights in place. The rows are interleaved. */
enum { FMA_SKINNY_ROWS = 8 };
static inline i64 fma_skinny_rows(i64 rows) /* row counts with a kernel */
{
    return rows > 4 ? FMA_SKINNY_ROWS : rows > 2 ? 4 : rows;
}
static inline i64 fma_skinny_bytes(i64 rows, i64 words)
{
    return fma_skinny_rows(rows) * words * 4;
}

/* Scratch of matmul_skinny for its rows: rstd, normalized rows, and their conversion to f32. Bytes;
 * all but the last are multiples of 64. */
struct skinny_scratch {
    i64 rstd, normed, wide;
};
static inline struct skinny_scratch skinny_scratch_of(i64 rows, i64 columns)
{
    return (struct skinny_scratch){round_up(rows * 4, 64), round_up(rows * columns * 4, 64), rows * columns * 4};
}
/* Scratch of experts_skinny_in: rstd and normalized rows. Scratch of experts_skinny_out: outputs of
 * the routed and of the shared expert. */
static inline i64 skinny_rstd_bytes(struct matrix x)
{
    return round_up(x.rows * 4, 64);
}
static inline i64 skinny_experts_in_bytes(struct matrix x)
{
    return skinny_rstd_bytes(x) + x.rows * x.columns * dtype_bytes(x.dtype);
}
static inline i64 skinny_experts_out_bytes(struct matrix x, const struct skinny_experts *e)
{
    i64 row = x.columns * dtype_bytes(x.dtype);
    return round_up(e->rows_bound * row, 64) + x.rows * row;
}

/* ---- AMX gemm (gemm.h): blocks of 32 x 32 sums over steps of 32 ----
 *
 * The part of b that a tile of the output reads (or of a, if b is small) stays in L2, and so do the
 * tile's sums. */
enum { AMX_BLOCK = 32, AMX_STEP_BYTES = 2048, AMX_SUMS = AMX_BLOCK * AMX_BLOCK, AMX_RUN_STEPS = DEPTH_RUN / AMX_BLOCK };
enum { AMX_NEAR_BYTES = 512 << 10, AMX_STREAM_BYTES = 1 << 20 };
enum {
    AMX_ROWS_MOST = 256,
    AMX_SLICE_ROWS_MOST = 512,
    AMX_COLUMNS_MOST = 512,
    AMX_TILES_WANTED = 16,
    AMX_TILES_EACH = 2,
    AMX_PACKED_LEAST = 64
};

static inline i64 amx_steps(i64 depth)
{
    return ceil_div(depth, AMX_BLOCK);
}

static inline i64 amx_even(i64 length, i64 most) /* length of the longest of equal parts, in whole blocks */
{
    return round_up(ceil_div(length, ceil_div(length, most)), AMX_BLOCK);
}

static inline i64 amx_tiles_wanted(void)
{
    return AMX_TILES_EACH * (i64)workers_cut();
}

struct amx_tiling {
    i64 rows, columns; /* rows and columns of a tile */
    i64 run_steps;     /* steps per run of the depth */
    /* All of b fits in L2, so blocks of a stay in L1. */
    bool a_stays;
};

static inline struct amx_tiling amx_tiling_of(i64 rows, i64 columns, i64 depth)
{
    i64 steps = amx_steps(depth), panels = ceil_div(columns, AMX_BLOCK);
    struct amx_tiling t = {.run_steps = ceil_div(steps, ceil_div(steps, AMX_RUN_STEPS))};
    t.a_stays = steps <= AMX_RUN_STEPS && panels * steps * AMX_STEP_BYTES <= AMX_NEAR_BYTES;
    t.columns = t.a_stays ? columns : amx_even(columns, AMX_COLUMNS_MOST);
    t.rows = t.a_stays ? AMX_ROWS_MOST / 2 : AMX_ROWS_MOST;
    i64 wanted = max_i64(AMX_TILES_WANTED, amx_tiles_wanted());
    while (t.rows > AMX_BLOCK && ceil_div(rows, t.rows) * ceil_div(columns, t.columns) < wanted)
        t.rows /= 2;
    return t;
}

/* Both operands are packed for every tile. Halving the longer side packs the least data twice. */
static inline void amx_cut_gradient(i64 *tile_rows, i64 *tile_columns, i64 rows, i64 columns, i64 times)
{
    while (*tile_rows + *tile_columns > 2 * AMX_PACKED_LEAST &&
           ceil_div(rows, *tile_rows) * ceil_div(columns, *tile_columns) * times < amx_tiles_wanted())
        if (*tile_rows > *tile_columns)
            *tile_rows = amx_even(rows, *tile_rows / 2);
        else
            *tile_columns = amx_even(columns, *tile_columns / 2);
}

/* Weight gradients. Segments of the depth are summed separately if there are few tiles. */
struct amx_gradient_tiling {
    /* Rows and columns of a tile; depth of one segment. */
    i64 rows, columns, segments, depth;
};

static inline struct amx_gradient_tiling amx_gradient_tiling_of(i64 rows, i64 columns, i64 depth)
{
    struct amx_gradient_tiling t = {amx_even(rows, AMX_ROWS_MOST), amx_even(columns, AMX_COLUMNS_MOST), 1, 0};
    i64 tiles = ceil_div(rows, t.rows) * ceil_div(columns, t.columns);
    while (tiles * t.segments < SUMS_WANTED && depth / (2 * t.segments) >= DEPTH_RUN)
        t.segments *= 2;
    t.depth = round_up(ceil_div(depth, t.segments), DEPTH_RUN);
    t.segments = ceil_div(depth, t.depth);
    amx_cut_gradient(&t.rows, &t.columns, rows, columns, t.segments);
    return t;
}

/* Fewer rows take the skinny gemm with weights in place, if the weights fill whole tiles. */
enum { AMX_ROWS_LEAST = 128 };
static inline bool amx_has(struct matrix out, struct matrix a, bool transpose_a, struct matrix b, bool transpose_b)
{
    i64 depth = transpose_a ? a.rows : a.columns;
    return a.dtype == DTYPE_BF16 && b.dtype == DTYPE_BF16 && out.rows > 0 && out.columns > 0 && depth > 0 &&
           (!transpose_a || sums_of_data(out, transpose_a, transpose_b));
}

/* Conditions of the skinny gemm: whole steps of the depth, and at least one strip of 32 weights. */
static inline bool amx_takes_skinny(struct matrix out, struct matrix a, struct matrix w, i64 columns)
{
    return a.dtype == DTYPE_BF16 && w.dtype == DTYPE_BF16 && out.rows > 0 && a.columns > 0 &&
           a.columns % AMX_BLOCK == 0 && columns >= AMX_BLOCK;
}
static inline i64 amx_skinny_bytes(i64 rows, i64 columns) /* scratch for panels of 32 rows */
{
    return rows == 1 ? 0 : ceil_div(rows, AMX_BLOCK) * amx_steps(columns) * AMX_STEP_BYTES;
}
static inline bool amx_has_skinny(struct matrix out, struct matrix a, bool transpose_a, struct matrix w,
                                  bool transpose_w, bool add)
{
    return !transpose_a && transpose_w && out.rows < AMX_ROWS_LEAST && amx_takes_skinny(out, a, w, out.columns) &&
           (!add || out.columns % AMX_BLOCK == 0);
}

static inline bool amx_has_gradient(struct matrix dw, struct matrix dy, struct matrix x)
{
    return dy.dtype == DTYPE_BF16 && x.dtype == DTYPE_BF16 && dw.dtype == DTYPE_F32 && dw.rows > 0 && dw.columns > 0;
}

/* True if rows of a must be copied into scratch: the depth is not whole steps or is longer than a
 * run, or the stride would place the rows in few sets of L1. */
static inline bool amx_copies(struct matrix a, const struct amx_tiling *tiling)
{
    return a.columns % AMX_BLOCK != 0 || a.columns > tiling->run_steps * AMX_BLOCK ||
           (tiling->a_stays && a.stride % 1024 == 0);
}

/* Bytes per worker for rows of a, panels of b and sums of a tile; `shared` bytes in all. */
struct amx_scratch {
    i64 a, b, sums, shared;
};

static inline struct amx_scratch amx_scratch_of(i64 rows, i64 columns, i64 steps, bool all_sums)
{
    i64 row_blocks = ceil_div(rows, AMX_BLOCK), panels = ceil_div(columns, AMX_BLOCK);
    return (struct amx_scratch){row_blocks * steps * AMX_STEP_BYTES, panels * steps * AMX_STEP_BYTES,
                                (all_sums ? row_blocks * panels : 2) * AMX_SUMS * 4, 0};
}

static inline struct amx_scratch amx_rows_scratch(struct matrix out, struct matrix a, struct matrix b,
                                                  const struct amx_tiling *t)
{
    i64 steps = amx_steps(a.columns), rows = min_i64(t->rows, out.rows), columns = min_i64(t->columns, out.columns);
    struct amx_scratch s = amx_scratch_of(rows, columns, t->run_steps, steps > t->run_steps);
    s.a = amx_copies(a, t) || a.rows % AMX_BLOCK != 0 ? s.a : 0;
    s.b = 0;
    s.shared = b.packed ? 0 : ceil_div(out.columns, AMX_BLOCK) * steps * AMX_STEP_BYTES;
    return s;
}

/* Tiling of the gradient of one slice, for `groups` slices. */
static inline void amx_slice_tiling(i64 *tile_rows, i64 *tile_columns, i64 rows, i64 columns, i64 groups)
{
    *tile_rows = amx_even(rows, AMX_SLICE_ROWS_MOST);
    *tile_columns = amx_even(columns, AMX_COLUMNS_MOST);
    amx_cut_gradient(tile_rows, tile_columns, rows, columns, groups);
}

/* Grouped gemm: every group has its own rows, so the panels of its slice stay in cache and the rows
 * stream. */
enum { AMX_GROUP_ROWS_MOST = 512, AMX_GROUP_ROWS_LEAST = 32 };
static inline bool amx_has_groups(struct matrix out, struct matrix a, struct matrix w)
{
    return a.dtype == DTYPE_BF16 && w.dtype == DTYPE_BF16 && a.columns > 0 && out.columns > 0;
}

static inline i64 amx_gathered_bytes(i64 rows, struct matrix x) /* bytes of scratch shared by all workers */
{
    return rows * x.columns * dtype_bytes(x.dtype);
}

enum { AMX_SKINNY_GROUP_ROWS = 64 }; /* rows at once */
static inline bool amx_has_skinny_groups(struct matrix out, struct matrix a, struct matrix w, i64 slice, bool transpose,
                                         const struct groups *groups)
{
    return transpose && a.rows < AMX_GROUP_ROWS_LEAST * groups->count && amx_takes_skinny(out, a, w, slice);
}

static inline struct amx_tiling amx_groups_tiling(i64 rows, i64 columns, i64 depth, i64 groups)
{
    struct amx_tiling t = amx_tiling_of(AMX_GROUP_ROWS_MOST, columns, depth);
    t.rows = AMX_GROUP_ROWS_MOST;
    t.columns = amx_even(columns, AMX_COLUMNS_MOST);
    t.a_stays = false;
    while (t.rows > AMX_GROUP_ROWS_LEAST &&
           (groups + rows / t.rows) * ceil_div(columns, t.columns) < amx_tiles_wanted())
        t.rows /= 2;
    return t;
}

static inline struct amx_scratch amx_groups_scratch(struct matrix a, struct matrix w, const struct amx_tiling *t)
{
    i64 rows = min_i64(t->rows, a.rows);
    struct amx_scratch s = amx_scratch_of(rows, t->columns, t->run_steps, amx_steps(a.columns) > t->run_steps);
    s.b = w.packed ? 0 : s.b;
    return s; /* a: copy of the last block of the last group, which may reach past the end */
}

/* Packed image of a weight slice: panels of its rows, for gemms with W^T, followed by panels of its
 * columns. */
static inline i64 amx_half_image_bytes(i64 rows, i64 columns)
{
    return amx_steps(rows) * amx_steps(columns) * AMX_STEP_BYTES;
}
static inline i64 amx_image_bytes(i64 rows, i64 columns)
{
    return 2 * amx_half_image_bytes(rows, columns);
}
static inline const char *amx_image_of(struct matrix w, i64 parts, i64 part, bool transposed)
{
    i64 half = amx_half_image_bytes(w.rows / parts, w.columns);
    return (const char *)w.packed + (2 * part + !transposed) * half;
}

/* Panels of gradients are one step longer than their contents: whole runs would share few cache
 * sets. */
enum { AMX_PANEL_STEPS = AMX_RUN_STEPS + 1 };

/* Scratch of one tile whose sums run over `depth` rows of data, and bytes of the segments' sums. */
static inline struct amx_scratch amx_gradient_scratch(i64 rows, i64 columns, i64 depth)
{
    struct amx_scratch s = amx_scratch_of(rows, columns, AMX_PANEL_STEPS, depth > DEPTH_RUN);
    s.a = amx_scratch_of(min_i64(rows, AMX_ROWS_MOST), columns, AMX_PANEL_STEPS, false).a;
    return s;
}
static inline i64 amx_segments_bytes(const struct amx_gradient_tiling *t, i64 rows, i64 columns)
{
    i64 tiles = ceil_div(rows, t->rows) * ceil_div(columns, t->columns);
    return t->segments > 1 ? t->segments * tiles * t->rows * t->columns * 4 : 0;
}

/* ---- convolutions ----
 *
 * im2col patches (patches.h) of a tile's positions are gathered in the worker's scratch and stay in
 * L2. */
enum { PATCHES_BYTES_MOST = 768 << 10, POSITIONS_MOST = 512, POSITIONS_LEAST = 64, CONV_TILES_WANTED = 8 };
enum { CONV_COLUMNS_LEAST = 256, AMX_CONV_POSITIONS_MOST = 128, AMX_CONV_RUN_STEPS = 20 };

/* Table entries of an axis: the taps of every position. */
static inline i64 conv_table_entries(const struct conv *c, int axis, bool backward)
{
    return (backward ? c->size[axis] : conv_out_size(c, axis)) * c->kernel[axis];
}
/* Bytes of the source tables of the 3 axes, and of the runs of the last axis. */
static inline i64 conv_tables_bytes(const struct conv *c, bool backward)
{
    i64 runs = conv_table_entries(c, 2, backward);
    return (conv_table_entries(c, 0, backward) + conv_table_entries(c, 1, backward) + 2 * runs) * 4;
}

static inline i64 conv_positions(i64 positions, i64 patch_bytes, i64 tiles_wanted) /* positions per tile */
{
    i64 tile = POSITIONS_MOST;
    while (tile > POSITIONS_LEAST && ceil_div(positions, tile) < tiles_wanted)
        tile /= 2;
    while (tile > 16 && tile * patch_bytes > PATCHES_BYTES_MOST)
        tile /= 2;
    return tile;
}

/* Parts of a conv's weight gradient. Lines of the kernel are split first, which costs nothing.
 * Positions are split only if more parts are still wanted. */
struct conv_parts {
    i64 lines, line_parts; /* lines per part; number of parts */
    i64 chunk_rows, chunks;
};
static inline struct conv_parts conv_parts_of(i64 positions, i64 lines, i64 line_columns)
{
    struct conv_parts p = {.lines = min_i64(lines, ceil_div(CONV_COLUMNS_LEAST, line_columns))};
    p.line_parts = ceil_div(lines, p.lines);
    i64 wanted = ceil_div(CONV_TILES_WANTED / 2, p.line_parts);
    i64 possible = ceil_div(positions, 2 * POSITIONS_LEAST);
    p.chunk_rows = round_up(ceil_div(positions, min_i64(wanted, possible)), 16);
    p.chunks = ceil_div(positions, p.chunk_rows);
    return p;
}

/* Stride in bytes between patches of a tile: an odd number of whole steps, so that patches spread
 * over all sets of L1. */
static inline i64 amx_patch_bytes(i64 steps)
{
    return (steps % 2 ? steps : steps + 1) * AMX_BLOCK * 2;
}
static inline struct amx_tiling amx_conv_tiling(i64 positions, i64 columns, i64 depth)
{
    struct amx_tiling t = amx_tiling_of(positions, min_i64(columns, AMX_COLUMNS_MOST), depth);
    i64 steps = amx_steps(depth);
    t.run_steps = ceil_div(steps, ceil_div(steps, AMX_CONV_RUN_STEPS));
    t.rows = min_i64(t.rows, AMX_CONV_POSITIONS_MOST);
    return t;
}
static inline struct amx_scratch amx_conv_scratch(const struct amx_tiling *t, i64 columns, i64 depth)
{
    i64 steps = amx_steps(depth);
    struct amx_scratch s = amx_scratch_of(t->rows, columns, steps, steps > t->run_steps);
    return (struct amx_scratch){round_up(t->rows, AMX_BLOCK) * amx_patch_bytes(steps), 0, s.sums, s.b};
}

/* ---- quantized weights: rows of a become integers, on AMX panels of two byte planes ---- */
enum { AMX_QUANTIZED_PANEL = 16 };
static inline i64 quantized_row_bytes(i64 steps) /* bytes of a row and its scale */
{
    return steps * QUANTIZED_COLUMNS * 2 + 4;
}
static inline i64 quantized_strip_bytes(i64 steps) /* a strip of 4-bit weights widened to bytes */
{
    return steps * QUANTIZED_ROWS * QUANTIZED_COLUMNS;
}
static inline i64 amx_quantized_panel_bytes(i64 steps)
{
    return AMX_QUANTIZED_PANEL * quantized_row_bytes(steps);
}

/* ---- attention: a tile is (queries times heads of a kv group) x keys; keys come in blocks ---- */
/* attention_decode: the scores of a row are a multiple of KEY_UNIT. */
enum { KEY_BLOCK = 32, KEY_SPAN = 512, KEY_UNIT = 16 };
/* ROWS of a tile; CHUNK and SPAN are blocks of keys. */
enum { AMX_ATTENTION_ROWS = 256, AMX_ATTENTION_CHUNK = 8, AMX_ATTENTION_SPAN = 4 };
enum { DECODE_ROWS_MOST = 128, DECODE_KEYS_MOST = 512 };
/* Rows of a tile; keys of a run. */
enum { STRIP_ROWS_MOST = 256, STRIP_KEYS = 256, STRIP_KEYS_BACKWARD = 128 };
/* Side of a block transposed at once. */
enum { STRIP_SIDE = 16 };

/* Decoding: few queries and many keys, of which each query sees a small part. */
static inline bool attention_is_decode(struct matrix q, struct matrix k)
{
    return q.rows * 4 < k.rows;
}

/* Scratch of attention in strips (strips.h): floats that a worker packs and sums, and bytes of
 * state per strip. */
struct strip_scratch {
    i64 strip, strips; /* lanes; strips per tile */
    /* Keys as rows and as columns; queries and sums of one strip. */
    i64 rows, transposed, queries, sums;
    i64 depth;                 /* floats of operands whose depth is the rows of all strips */
    i64 state, state_backward; /* bytes */
};
static inline struct strip_scratch strip_scratch_of(enum cpu_isa isa, i64 width, i64 group, enum dtype dtype)
{
    i64 lanes = isa == CPU_ISA_V3 ? 8 : 16, rows = isa == CPU_ISA_V3 ? 6 : 14, strip = 2 * lanes;
    i64 words = fma_words(isa, width, dtype), stride = FMA_RUN + 16;
    i64 strips = ceil_div(max_i64(STRIP_ROWS_MOST, group), strip);
    return (struct strip_scratch){.strip = strip,
                                  .strips = strips,
                                  .rows = ceil_div(words, FMA_RUN) * (STRIP_KEYS + 1) * stride,
                                  .transposed = ceil_div(width, rows) * lanes * stride,
                                  .queries = words * strip,
                                  .sums = round_up(width, STRIP_SIDE) * strip,
                                  .depth = ceil_div(width, strip) * fma_words(isa, strips * strip, dtype) * strip,
                                  .state = 5 * strip * 4 + 24,
                                  .state_backward = 3 * strip * 4 + 40};
}

/* AMX attention (amx_attention.h) needs a head width of whole blocks, and enough queries to pay for
 * packing the keys once for all. */
static inline bool amx_has_attention(struct matrix q, struct matrix k, i64 heads, i64 kv_heads)
{
    return q.dtype == DTYPE_BF16 && q.columns / heads % AMX_BLOCK == 0 && heads / kv_heads <= AMX_ATTENTION_ROWS &&
           !attention_is_decode(q, k);
}

/* Bytes per worker: scores and probabilities of AMX_ATTENTION_CHUNK blocks of keys, packed queries
 * of a block and its sums. */
static inline i64 amx_attention_bytes(i64 width)
{
    return AMX_ATTENTION_CHUNK * (2 * AMX_SUMS * 4 + AMX_STEP_BYTES) +
           width / AMX_BLOCK * (AMX_STEP_BYTES + AMX_SUMS * 4);
}
/* Bytes per worker: scores of two blocks; probabilities and their gradients, the latter in two
 * forms, for all rows of a tile; queries and output gradients in two forms each; sums; two numbers
 * a row. */
static inline i64 amx_attention_backward_bytes(i64 width)
{
    i64 blocks = AMX_ATTENTION_ROWS / AMX_BLOCK, steps = width / AMX_BLOCK;
    return 4 * AMX_SUMS * 4 + blocks * ((2 + AMX_ATTENTION_SPAN) * AMX_STEP_BYTES +
                                        steps * (4 * AMX_STEP_BYTES + AMX_SUMS * 4) + 2 * AMX_BLOCK * 4);
}

#endif
