#include "kernels/cpu/tiles.h"
#include "kernels/meta/meta.h"

#include <string.h>

enum { SHARED_SLOT = 5 };

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

static i64 types_of(struct matrix out, struct matrix a)
{
    return out.dtype * 16 + a.dtype;
}

static void see_rows(struct device *device, const struct lengths *columns, struct matrix out, struct matrix a, i64 k,
                     i64 ways)
{
    struct shape s = {.k = k, .ways = ways, .types = types_of(out, a)};
    i64 tile = rows_of_tile(out.rows, columns->count > 1 ? ceil_div(out.columns, columns->of[0]) : 1);
    i64 rest = out.rows % tile, bytes = dtype_bytes(a.dtype);
    for (i64 c = 0; c < columns->count; c++) {
        s.n = columns->of[c];
        if (out.rows >= tile)
            see(device, (s.m = tile, s.place = out.stride, s));
        if (rest)
            see(device, (s.m = out.rows > ROWS_LEAST ? padded_length(rest) : rest, s.place = s.n, s));
    }
    if (rest && out.rows > ROWS_LEAST) {
        see_scratch(device, 0, padded_length(rest) * k * bytes);
        see_scratch(device, 1, padded_length(rest) * columns->of[0] * dtype_bytes(out.dtype));
    }
}

static void see_depth(struct device *device, const struct lengths *columns, struct matrix out, struct matrix a, i64 k,
                      bool add)
{
    i64 tile = rows_of_tile(out.rows, columns->count > 1 ? ceil_div(out.columns, columns->of[0]) : 1);
    i64 whole = k / DEPTH_RUN * DEPTH_RUN, rest = k - whole, bytes = dtype_bytes(a.dtype);
    struct lengths rows = {0};
    lengths_add(&rows, min_i64(tile, out.rows));
    lengths_add(&rows, out.rows > tile ? out.rows % tile : 0);
    for (i64 c = 0; c < columns->count; c++)
        for (i64 r = 0; r < rows.count; r++) {
            struct shape s = {rows.of[r], columns->of[c], whole, 4 + add, types_of(out, a), a.stride};
            if (whole)
                see(device, s);
            if (rest)
                see(device, (s.k = padded_length(rest), s.ways = 4 + (add || whole), s.place = 0, s));
        }
    if (rest) {
        see_scratch(device, 0, padded_length(rest) * rows.of[0] * bytes);
        see_scratch(device, 1, padded_length(rest) * columns->of[0] * bytes);
    }
}

void meta_see_matmul(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                     bool transpose_b, bool add)
{
    struct lengths columns = {0};
    if (out.rows == 0 || out.columns == 0)
        return;
    (void)b;
    lengths_add(&columns, min_i64(out.columns, COLUMNS_MOST));
    lengths_add(&columns, out.columns > COLUMNS_MOST ? out.columns % COLUMNS_MOST : 0);
    if (transpose_a)
        see_depth(device, &columns, out, a, a.rows, add);
    else
        see_rows(device, &columns, out, a, a.columns, transpose_b * 2 + add);
}

/* Groups end anywhere: every multiple of GROUP_ROWS comes up. */
void meta_see_grouped(struct device *device, struct matrix out, struct matrix a, struct matrix w, bool transpose)
{
    (void)w;
    for (i64 column = 0; column < out.columns; column += GROUP_COLUMNS_TILE)
        for (i64 rows = GROUP_ROWS; rows <= min_i64(GROUP_ROWS_TILE, a.rows); rows += GROUP_ROWS) {
            i64 columns = min_i64(GROUP_COLUMNS_TILE, out.columns - column);
            see(device, (struct shape){rows, columns, a.columns, 8 + transpose, types_of(out, a), out.stride});
        }
}

void meta_see_grouped_weights(struct device *device, struct matrix dw, i64 experts, struct matrix dy, struct matrix x)
{
    i64 slice = dw.rows / experts;
    for (i64 row = 0; row < slice; row += GROUP_OUT_ROWS_TILE)
        for (i64 column = 0; column < x.columns; column += GROUP_COLUMNS_TILE)
            for (i64 depth = GROUP_ROWS; depth <= min_i64(GROUP_DEPTH_TILE, x.rows); depth += GROUP_ROWS)
                for (int add = 0; add < 2; add++) {
                    i64 rows = min_i64(GROUP_OUT_ROWS_TILE, slice - row);
                    i64 columns = min_i64(GROUP_COLUMNS_TILE, x.columns - column);
                    see(device,
                        (struct shape){rows, columns, group_depth(depth), 16 + add, types_of(dw, x), dy.stride});
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

/* Tiles of queries are halved where that spares keys: the four largest sizes come up, and runs of keys of every width
 * up to the longest sample. */
void meta_see_attention(struct device *device, struct matrix q, struct matrix k, i64 heads, i64 kv_heads,
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
