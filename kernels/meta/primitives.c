#include "kernels/cpu/tiles.h"
#include "kernels/meta/meta.h"

#include <string.h>

enum { SHARED_SLOT = 5 }; /* from it on slots are one worker's */

struct lengths { /* what one side of a product is cut to */
    i64 of[64], count;
};

static void lengths_add(struct lengths *l, i64 length)
{
    if (length > 0 && l->count < COUNT_OF(l->of))
        l->of[l->count++] = length;
}

struct shape { /* of one product: what a primitive is kept by */
    i64 m, n, k, ways, types, place;
};

static void see(struct device *device, struct shape shape)
{
    struct meta_shapes *seen = device->handles;
    u64 hash = hash_bytes(&shape, sizeof shape, 0) | 1;
    u64 at = hash % META_SHAPES_MOST;
    while (seen->shape[at] && seen->shape[at] != hash)
        at = (at + 1) % META_SHAPES_MOST;
    if (seen->shape[at] || seen->count == META_SHAPES_MOST / 2)
        return;
    seen->shape[at] = hash;
    seen->count++;
}

static void see_scratch(struct device *device, int slot, i64 bytes)
{
    struct meta_shapes *seen = device->handles;
    seen->slot_bytes[slot] = max_i64(seen->slot_bytes[slot], bytes);
}

static i64 types_of(enum dtype out, struct matrix a)
{
    return out * 16 + a.dtype;
}

struct seen_product {
    struct matrix out, a;
    bool transpose_a, transpose_b, add, sums_data;
    struct tiling tiling;
};

/* The runs over one segment's depth of a tile. */
static void see_runs(struct device *device, const struct seen_product *p, i64 rows, i64 columns, i64 left)
{
    bool whole = p->transpose_a || rows == p->tiling.rows || p->out.rows <= ROWS_LEAST;
    bool one_run = depth_of_run(left, p->sums_data) == left, segments = p->tiling.segments > 1;
    bool scratch = segments || !whole || sums_in_scratch(p->a.dtype, p->out.dtype, one_run), add = p->add && !scratch;
    i64 bytes = dtype_bytes(p->a.dtype), m = whole ? rows : padded_length(rows);
    if (scratch && !segments)
        see_scratch(device, 2, m * columns * 4);
    for (i64 depth; left > 0; left -= depth, add = true) {
        depth = depth_of_run(left, p->sums_data);
        i64 padded = p->sums_data && depth != DEPTH_RUN ? padded_length(depth) : depth;
        bool packed = padded != depth || !whole;
        i64 ways = p->transpose_a * 4 + p->transpose_b * 2 + add;
        i64 place = (packed ? 0 : p->a.stride) * 65536 + (scratch ? 0 : p->out.stride);
        see(device,
            (struct shape){m, columns, padded, ways, types_of(scratch ? DTYPE_F32 : p->out.dtype, p->a), place});
        if (packed)
            see_scratch(device, 0, padded * m * bytes);
        if (padded != depth)
            see_scratch(device, 1, padded * columns * bytes);
    }
}

/* ---- Products on tiles: scratch alone ---- */

static void see_tile(struct device *device, struct amx_scratch scratch)
{
    see_scratch(device, 0, scratch.a);
    see_scratch(device, 1, scratch.b);
    see_scratch(device, 2, scratch.sums);
    see_scratch(device, 7, scratch.shared);
}

static void see_rows_on_tiles(struct device *device, struct matrix out, struct matrix a, struct matrix b)
{
    struct amx_tiling tiling = amx_tiling_of(out.rows, out.columns, a.columns);
    see_tile(device, amx_rows_scratch(out, a, b, &tiling));
}

static void see_gradient_on_tiles(struct device *device, struct matrix dw, i64 depth)
{
    struct amx_gradient_tiling t = amx_gradient_tiling_of(dw.rows, dw.columns, depth);
    struct amx_scratch scratch =
        amx_gradient_scratch(min_i64(t.rows, dw.rows), min_i64(t.columns, dw.columns), min_i64(t.depth, depth));
    scratch.sums = t.segments > 1 ? 0 : scratch.sums;
    scratch.shared = amx_segments_bytes(&t, dw.rows, dw.columns);
    see_tile(device, scratch);
}

/* As the CPU backend cuts it. */
void meta_see_matmul(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                     bool transpose_b, bool add)
{
    struct seen_product p = {out, a, transpose_a, transpose_b, add, sums_of_data(out, transpose_a, transpose_b)};
    i64 k = transpose_a ? a.rows : a.columns;
    struct lengths rows = {0}, columns = {0}, segments = {0};
    if (device->level == CPU_LEVEL_AMX && amx_has_few(out, a, transpose_a, b, transpose_b, add)) {
        see_scratch(device, 7, amx_few_bytes(a.rows, a.columns));
        return;
    }
    if (device->level == CPU_LEVEL_AMX && amx_has(out, a, transpose_a, b, transpose_b)) {
        if (transpose_a)
            see_gradient_on_tiles(device, out, k);
        else
            see_rows_on_tiles(device, out, a, b);
        return;
    }
    if (out.rows == 0 || out.columns == 0 || has_few_rows(out.rows, transpose_a, transpose_b))
        return;
    p.tiling = tiling_of(out.rows, out.columns, k, p.sums_data);
    lengths_add(&rows, min_i64(p.tiling.rows, out.rows));
    lengths_add(&rows, out.rows > p.tiling.rows ? out.rows % p.tiling.rows : 0);
    lengths_add(&columns, p.tiling.columns);
    lengths_add(&columns, out.columns % p.tiling.columns);
    lengths_add(&segments, k >= p.tiling.depth ? p.tiling.depth : 0);
    lengths_add(&segments, k % p.tiling.depth);
    if (p.tiling.segments > 1)
        see_scratch(device, 7, p.tiling.segments * out.rows * out.columns * 4);
    for (i64 r = 0; r < rows.count; r++)
        for (i64 c = 0; c < columns.count; c++)
            for (i64 s = 0; s < segments.count; s++)
                see_runs(device, &p, rows.of[r], columns.of[c], segments.of[s]);
}

/* Groups end anywhere: every multiple of GROUP_ROWS comes up. */
void meta_see_grouped(struct device *device, struct matrix out, struct matrix a, struct matrix w, bool transpose,
                      const struct groups *groups)
{
    i64 slice = out.columns; /* rows of it, where it is transposed */
    if (device->level == CPU_LEVEL_AMX && amx_has_few_groups(out, a, w, slice, transpose, groups)) {
        see_scratch(device, 0, amx_few_bytes(min_i64(AMX_FEW_GROUP_ROWS, a.rows), a.columns));
        return;
    }
    if (device->level == CPU_LEVEL_AMX && amx_has_groups(out, a, w, groups)) {
        struct amx_tiling tiling = amx_groups_tiling(out.columns, a.columns);
        see_tile(device, amx_groups_scratch(a, w, &tiling));
        return;
    }
    for (i64 column = 0; column < out.columns; column += GROUP_COLUMNS_TILE)
        for (i64 rows = GROUP_ROWS; rows <= min_i64(GROUP_ROWS_TILE, a.rows); rows += GROUP_ROWS) {
            i64 columns = min_i64(GROUP_COLUMNS_TILE, out.columns - column);
            see(device, (struct shape){rows, columns, a.columns, 8 + transpose, types_of(out.dtype, a), out.stride});
        }
}

void meta_see_grouped_weights(struct device *device, struct matrix dw, i64 experts, struct matrix dy, struct matrix x)
{
    i64 slice = dw.rows / experts;
    if (device->level == CPU_LEVEL_AMX && amx_has_gradient(dw, dy, x)) {
        i64 rows = min_i64(amx_even(slice, AMX_SLICE_ROWS_MOST), slice);
        see_tile(device,
                 amx_gradient_scratch(rows, min_i64(amx_even(dw.columns, AMX_COLUMNS_MOST), dw.columns), x.rows));
        return;
    }
    for (i64 row = 0; row < slice; row += GROUP_OUT_ROWS_TILE)
        for (i64 column = 0; column < x.columns; column += GROUP_COLUMNS_TILE)
            for (i64 depth = GROUP_ROWS; depth <= min_i64(DEPTH_RUN, x.rows); depth += GROUP_ROWS)
                for (int add = 0; add < 2; add++) {
                    i64 rows = min_i64(GROUP_OUT_ROWS_TILE, slice - row);
                    i64 columns = min_i64(GROUP_COLUMNS_TILE, x.columns - column);
                    if (sums_in_scratch(x.dtype, DTYPE_F32, false))
                        see_scratch(device, 2, rows * columns * 4);
                    see(device,
                        (struct shape){rows, columns, group_depth(depth), 16 + add, types_of(DTYPE_F32, x), dy.stride});
                }
}

/* The longest stretch of queries that sees a key: a sample, a picture. */
static i64 longest_stretch(const struct intervals *v)
{
    i64 longest = 0;
    for (i64 j = 0; v->begin && j < v->keys; j++)
        longest = max_i64(longest, v->end[j] - v->begin[j]);
    return v->begin ? longest : v->keys;
}

/* Keys and values once or twice as operands, and the sums of their gradients. */
static void see_attention_on_tiles(struct device *device, struct matrix k, i64 width, bool backward)
{
    i64 packed = round_up(k.rows, KEY_BLOCK) * k.columns;
    see_scratch(device, 0, backward ? amx_attention_backward_bytes(width) : amx_attention_bytes(width));
    see_scratch(device, 6, backward ? packed * (3 * 2 + 2 * 4) : packed * 2 * 2);
}

/* Tiles of queries are halved where that spares keys: the four largest sizes come up, and runs of keys of every width
 * up to the longest sample. */
static void see_attention(struct device *device, struct matrix q, struct matrix k, i64 heads, i64 kv_heads,
                          const struct intervals *intervals, bool backward)
{
    enum { SIZES = 4 };
    i64 group = heads / kv_heads, width = q.columns / heads, bytes = dtype_bytes(q.dtype);
    i64 rows_most = backward ? BACKWARD_ROWS_MOST : FORWARD_ROWS_MOST;
    i64 keys_most = backward ? BACKWARD_KEYS_MOST : FORWARD_KEYS_MOST;
    i64 longest = round_up(longest_stretch(intervals), KEY_BLOCK), products = backward ? 3 : 2;
    i64 rows = group, packed = kv_heads * round_up(k.rows, KEY_BLOCK) * width;
    while (rows * 2 <= rows_most && rows < longest * group)
        rows *= 2;
    for (int size = 0; size < SIZES && rows % group == 0 && rows > 0; size++, rows /= 2)
        for (i64 keys = KEY_BLOCK; keys <= min_i64(keys_most, longest); keys += KEY_BLOCK)
            for (i64 p = 0; p < products; p++)
                see(device, (struct shape){rows, keys, width, 32 + p + 4 * backward, q.dtype, 0});
    see_scratch(device, 0, (1 + backward) * rows_most * keys_most * 4);
    see_scratch(device, 1, bytes == 4 ? 0 : (backward ? 3 : 1) * rows_most * keys_most * bytes);
    see_scratch(device, 2, (1 + backward) * rows_most * width * bytes);
    see_scratch(device, 3, (rows_most * (width + 2) + FORWARD_KEYS_MOST) * 4);
    see_scratch(device, 6, 2 * packed * (bytes + (backward ? 4 : 0)));
}

void meta_see_attention(struct device *device, struct matrix q, struct matrix k, i64 heads, i64 kv_heads,
                        const struct intervals *intervals, bool backward)
{
    if (device->level == CPU_LEVEL_AMX && amx_has_attention(q, k, heads, kv_heads))
        see_attention_on_tiles(device, k, q.columns / heads, backward);
    else
        see_attention(device, q, k, heads, kv_heads, intervals, backward);
    see_scratch(device, 7, intervals->queries * 12 + k.rows);
}

struct held meta_held(const struct device *device)
{
    const struct meta_shapes *seen = device->handles;
    struct held held = {.primitives = seen->count * workers_count()};
    for (int slot = 0; slot < META_SLOTS; slot++)
        held.scratch_bytes += seen->slot_bytes[slot] * (slot < SHARED_SLOT ? workers_count() : 1);
    return held;
}
