/* Memory estimate of a dry run: the scratch that the CPU backend would request for each op, at the
 * device's ISA level. The sizes come from kernels/cpu/tiles.h, which the CPU backend uses, too.
 * Slots and their uses are those of the files in kernels/cpu; the largest request per slot
 * counts. */
#include "kernels/cpu/tiles.h"
#include "kernels/levels.h"
#include "kernels/meta/meta.h"

static void see_scratch(struct device *device, int slot, i64 bytes)
{
    struct meta_scratch *seen = device->handles;
    seen->slot_bytes[slot] = max_i64(seen->slot_bytes[slot], bytes);
}

/* One FMA gemm on a worker. */
static void see_gemm(struct device *device, i64 m, i64 k, enum dtype dtype)
{
    see_scratch(device, 8, fma_operand_bytes(device->level, m));
    see_scratch(device, 9, fma_run_bytes(device->level, m, fma_words(device->level, k, dtype)));
}

/* Panels of b [k, n], or of its transpose, shared by all tiles. */
static void see_panels(struct device *device, i64 k, i64 n, enum dtype dtype)
{
    see_scratch(device, 7, fma_panels_bytes(fma_words(device->level, k, dtype), n));
}

/* An FMA gemm of a [m, k] with weights in place. Pieces of a with few rows take the skinny gemm. */
static void see_rows(struct device *device, i64 m, i64 k, enum dtype dtype)
{
    see_gemm(device, m, k, dtype);
    see_scratch(device, 8, fma_few_bytes(m, fma_words(device->level, k, dtype)));
}

/* ---- AMX gemms ---- */

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

/* Follows the choices of the CPU backend's matmul. */
void meta_see_matmul(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                     bool transpose_b, bool add)
{
    i64 k = transpose_a ? a.rows : a.columns;
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
    if (out.rows == 0 || out.columns == 0)
        return;
    bool sums_data = sums_of_data(out, transpose_a, transpose_b);
    struct tiling t = tiling_of(out.rows, out.columns, k, sums_data);
    if (transpose_a)
        see_gemm(device, min_i64(t.rows, out.rows), t.depth, a.dtype);
    else
        see_rows(device, min_i64(t.rows, out.rows), t.depth, a.dtype);
    if (t.segments > 1)
        see_scratch(device, 7, t.segments * out.rows * out.columns * 4);
    if (tiles_share(out.rows, out.columns, k, sums_data))
        see_panels(device, k, out.columns, b.dtype);
}

void meta_see_few(struct device *device, struct matrix out, struct matrix x, struct matrix w)
{
    struct few_room room = few_room_of(x.rows, x.columns);
    see_scratch(device, 0, x.columns * 4); /* the norm's weight as f32 */
    see_scratch(device, 5, room.rstd + room.normed + room.wide);
    see_scratch(device, 6, x.rows * w.rows * 4);
    meta_see_matmul(device, matrix_of(NULL, out.dtype, x.rows, w.rows), matrix_of(NULL, w.dtype, x.rows, x.columns),
                    false, w, true, false);
}

void meta_see_grouped(struct device *device, struct matrix out, struct matrix a, struct matrix w, bool transpose,
                      const struct groups *groups)
{
    i64 slice = out.columns; /* rows of a slice if transposed */
    if (device->level == CPU_LEVEL_AMX && amx_has_few_groups(out, a, w, slice, transpose, groups)) {
        see_scratch(device, 0, amx_few_bytes(min_i64(AMX_FEW_GROUP_ROWS, a.rows), a.columns));
        return;
    }
    if (device->level == CPU_LEVEL_AMX && amx_has_groups(out, a, w)) {
        struct amx_tiling tiling = amx_groups_tiling(a.rows, out.columns, a.columns, groups->count);
        see_tile(device, amx_groups_scratch(a, w, &tiling));
        return;
    }
    see_rows(device, min_i64(ROWS_MOST, a.rows), a.columns, a.dtype);
}

static void see_gathered(struct device *device, i64 bound, struct matrix x, const i32 *rows)
{
    see_scratch(device, 6, rows ? amx_gathered_bytes(bound, x) : 0);
}

void meta_see_grouped_swiglu(struct device *device, struct matrix y, struct matrix gate_up, struct matrix x,
                             const i32 *rows, struct matrix w, const struct groups *groups)
{
    i64 kept = gate_up.data ? 0 : dtype_bytes(y.dtype) * 2;
    if (device->level == CPU_LEVEL_AMX && amx_has_groups(y, x, w)) {
        see_gathered(device, y.rows, x, rows);
        see_scratch(device, 5, kept * y.rows * y.columns);
        meta_see_grouped(device, matrix_of(NULL, y.dtype, y.rows, 2 * y.columns),
                         matrix_of(x.data, x.dtype, y.rows, x.columns), w, true, groups);
        return;
    }
    see_scratch(device, 0, kept * min_i64(ROWS_MOST, y.rows) * min_i64(even_columns(y.columns), y.columns));
    see_rows(device, min_i64(ROWS_MOST, y.rows), x.columns, x.dtype);
}

void meta_see_experts_few_in(struct device *device, struct matrix inside, struct matrix x, const struct few_experts *e)
{
    see_scratch(device, 0, x.columns * 4); /* the norm's weight as f32 */
    see_scratch(device, 10, few_experts_in_bytes(x));
    meta_see_grouped_swiglu(device, inside, (struct matrix){0}, x, e->source, e->gate_up, &e->groups);
    if (e->shared_gate_up.data)
        meta_see_few(device, x, x, e->shared_gate_up);
}

void meta_see_experts_few_out(struct device *device, struct matrix x, struct matrix inside, const struct few_experts *e)
{
    struct matrix routed = matrix_of(NULL, x.dtype, e->rows_bound, x.columns), shared = e->shared_down;
    see_scratch(device, 0, x.columns * 4); /* one row of sums */
    see_scratch(device, 10, few_experts_out_bytes(x, e));
    meta_see_grouped(device, routed, inside, e->down, true, &e->groups);
    if (shared.data)
        meta_see_matmul(device, x, matrix_of(NULL, x.dtype, x.rows, shared.columns), false, shared, true, false);
}

void meta_see_grouped_weights(struct device *device, struct matrix dw, i64 experts, struct matrix dy, struct matrix x,
                              const i32 *rows, const struct groups *groups)
{
    i64 slice = dw.rows / experts;
    if (device->level == CPU_LEVEL_AMX && amx_has_gradient(dw, dy, x)) {
        i64 tile_rows, columns;
        amx_slice_tiling(&tile_rows, &columns, slice, dw.columns, groups->count);
        see_gathered(device, dy.rows, x, rows);
        see_tile(device, amx_gradient_scratch(min_i64(tile_rows, slice), min_i64(columns, dw.columns), dy.rows));
        return;
    }
    see_gemm(device, min_i64(even_rows(slice), slice), dy.rows, x.dtype);
}

void meta_see_narrow(struct device *device, struct matrix a, const struct narrow *w)
{
    i64 steps = narrow_steps(w->columns), strip = w->bits == 4 ? narrow_strip_bytes(steps) : 0;
    if (device->level == CPU_LEVEL_AMX && cpu_has_tiles_of_bytes() && a.dtype == DTYPE_BF16) {
        see_scratch(device, 1, strip);
        see_scratch(device, 7, ceil_div(a.rows, AMX_NARROW_PANEL) * amx_narrow_panel_bytes(steps));
        return;
    }
    see_scratch(device, 2, strip);
    see_scratch(device, 6, a.rows * narrow_row_bytes(steps));
}

/* ---- Convolutions ---- */

static bool on_tiles(const struct device *device, struct matrix a, struct matrix b)
{
    return device->level == CPU_LEVEL_AMX && a.dtype == DTYPE_BF16 && b.dtype == DTYPE_BF16;
}

/* im2col patches of x times w, or times the flipped w. */
static void see_patches(struct device *device, struct matrix out, struct matrix x, struct matrix w,
                        const struct conv *conv)
{
    i64 depth = product3(conv->kernel) * x.columns, patch_bytes = depth * dtype_bytes(x.dtype);
    if (on_tiles(device, x, w)) {
        struct amx_tiling tiling = amx_conv_tiling(out.rows, out.columns, depth);
        struct amx_scratch scratch = amx_conv_scratch(&tiling, out.columns, depth);
        see_scratch(device, 4, scratch.a);
        scratch.a = 0;
        scratch.shared = w.packed ? 0 : scratch.shared;
        see_tile(device, scratch);
        return;
    }
    i64 positions = conv_positions(out.rows, patch_bytes, CONV_TILES_WANTED);
    see_scratch(device, 0, positions * patch_bytes);
    if (out.rows > positions)
        see_panels(device, depth, out.columns, w.dtype);
    see_rows(device, min_i64(positions, out.rows), depth, x.dtype);
}

void meta_see_conv(struct device *device, struct matrix y, struct matrix x, struct matrix w, const struct conv *conv)
{
    see_scratch(device, 5, conv_tables_bytes(conv, false));
    if (conv_is_product(conv))
        meta_see_matmul(device, y, x, false, w, true, false);
    else
        see_patches(device, y, x, w, conv);
}

void meta_see_conv_data(struct device *device, struct matrix dx, struct matrix dy, struct matrix w,
                        const struct conv *conv, bool add)
{
    see_scratch(device, 5, conv_tables_bytes(conv, true));
    if (conv_is_product(conv)) {
        meta_see_matmul(device, dx, dy, false, w, false, add);
        return;
    }
    see_scratch(device, 6, w.rows * w.columns * dtype_bytes(w.dtype));
    w.packed = NULL;
    see_patches(device, dx, dy, w, conv);
}

/* A part of dw with `columns` columns, summed over `positions` positions. */
static void see_conv_part(struct device *device, struct matrix dw, i64 columns, struct matrix x, i64 positions)
{
    i64 patch_bytes = columns * dtype_bytes(x.dtype);
    if (on_tiles(device, x, x)) {
        see_scratch(device, 4, min_i64(DEPTH_RUN, positions) * patch_bytes);
        see_tile(device, amx_gradient_scratch(dw.rows, columns, positions));
        return;
    }
    i64 at_once = conv_positions(positions, patch_bytes, 1);
    see_scratch(device, 0, at_once * patch_bytes);
    see_gemm(device, dw.rows, min_i64(at_once, positions), x.dtype);
}

void meta_see_conv_weights(struct device *device, struct matrix dw, struct matrix dy, struct matrix x,
                           const struct conv *conv)
{
    i64 lines = conv->kernel[0] * conv->kernel[1], line_columns = conv->kernel[2] * x.columns;
    struct conv_parts parts = conv_parts_of(dy.rows, lines, line_columns);
    i64 left = lines - (parts.line_parts - 1) * parts.lines, positions = min_i64(parts.chunk_rows, dy.rows);
    see_scratch(device, 5, conv_tables_bytes(conv, false));
    if (conv_is_product(conv) && on_tiles(device, dy, x)) {
        see_gradient_on_tiles(device, dw, x.rows);
        return;
    }
    see_scratch(device, 6, parts.chunks > 1 ? parts.chunks * dw.rows * dw.columns * 4 : 0);
    see_conv_part(device, dw, parts.lines * line_columns, x, positions);
    see_conv_part(device, dw, left * line_columns, x, positions);
}

/* ---- Attention ---- */

/* Packed keys and values: one form each in the forward; three forms in all and the f32 sums of
 * their gradients in the backward. */
static void see_attention_on_tiles(struct device *device, struct matrix k, i64 width, bool backward)
{
    i64 packed = round_up(k.rows, KEY_BLOCK) * k.columns;
    see_scratch(device, 0, backward ? amx_attention_backward_bytes(width) : amx_attention_bytes(width));
    see_scratch(device, 6, backward ? packed * (3 * 2 + 2 * 4) : packed * 2 * 2);
}

static void see_attention_of_few(struct device *device, i64 width, enum dtype dtype)
{
    i64 bytes = dtype_bytes(dtype), area = FEW_ROWS_MOST * FEW_KEYS_MOST;
    see_gemm(device, FEW_ROWS_MOST, FEW_KEYS_MOST, dtype);
    see_scratch(device, 0, area * 4);
    see_scratch(device, 1, bytes == 4 ? 0 : area * bytes);
    see_scratch(device, 2, FEW_ROWS_MOST * width * bytes);
    see_scratch(device, 3, (FEW_ROWS_MOST * (width + 4) + FEW_KEYS_MOST) * 4);
    see_scratch(device, 4, FEW_KEYS_MOST * width * bytes);
}

static void see_attention_in_strips(struct device *device, const struct strip_room *room)
{
    see_scratch(device, 0, (STRIP_KEYS + 1) * room->strip * 4);
    see_scratch(device, 1, room->strips * room->state);
    see_scratch(device, 3, room->strips * (room->queries + room->sums) * 4);
    see_scratch(device, 4, (room->rows + room->turned) * 4);
}

/* A tile ends where the next sample begins, so there are at most twice as many tiles as full
 * ones. */
static void see_turns(struct device *device, i64 queries, i64 keys, i64 group, i64 kv_heads)
{
    i64 tiles = min_i64(queries, 2 * ceil_div(queries, max_i64(1, STRIP_ROWS_MOST / group)));
    see_scratch(device, 5, (tiles + kv_heads + 1) * ceil_div(keys, STRIP_KEYS_BACKWARD) * 4);
}

static void see_attention_backward_in_strips(struct device *device, const struct strip_room *room, i64 key_rows,
                                             i64 width)
{
    see_scratch(device, 0, 2 * (STRIP_KEYS + 1) * room->strip * 4);
    see_scratch(device, 1, 2 * (STRIP_KEYS_BACKWARD + 1) * (FMA_RUN + 16) * 4);
    see_scratch(device, 2, room->strips * room->state_backward);
    see_scratch(device, 3, (room->strips * (2 * room->queries + room->sums) + 2 * room->depth) * 4);
    see_scratch(device, 4, (2 * room->rows + room->turned) * 4);
    see_scratch(device, 6, 2 * key_rows * round_up(width, room->strip) * 4);
}

static void see_attention(struct device *device, struct matrix q, struct matrix k, i64 heads, i64 kv_heads,
                          bool backward)
{
    i64 width = q.columns / heads;
    struct strip_room room = strip_room_of(device->level, width, heads / kv_heads, q.dtype);
    if (backward) {
        see_turns(device, q.rows, k.rows, heads / kv_heads, kv_heads);
        see_attention_backward_in_strips(device, &room, kv_heads * round_up(k.rows, KEY_BLOCK), width);
    } else if (attention_is_few(q, k)) {
        see_attention_of_few(device, width, q.dtype);
    } else {
        see_attention_in_strips(device, &room);
    }
}

void meta_see_attention(struct device *device, struct matrix q, struct matrix k, i64 heads, i64 kv_heads,
                        const struct intervals *intervals, bool backward)
{
    if (device->level == CPU_LEVEL_AMX && amx_has_attention(q, k, heads, kv_heads))
        see_attention_on_tiles(device, k, q.columns / heads, backward);
    else
        see_attention(device, q, k, heads, kv_heads, backward);
    see_scratch(device, 7, intervals->queries * 13 + k.rows);
}

/* ---- Others ---- */

void meta_see_fp8(struct device *device, i64 depth)
{
    see_scratch(device, 0, (GROUP_ROWS + 1) * depth * 4);
}

void meta_see_stft(struct device *device, struct matrix spectrum, struct matrix x, i64 n_fft, bool to_time)
{
    i64 bins = n_fft / 2 + 1, length = x.columns + n_fft;
    for (int slot = 0; slot < 2; slot++)
        see_scratch(device, slot, STFT_ROWS * bins * 8);
    if (!to_time)
        return;
    see_scratch(device, 5, x.rows * length * 4);
    see_scratch(device, 6, length * 4);
    see_scratch(device, 7, spectrum.rows * n_fft * 4);
}

void meta_see_nearest(struct device *device, struct matrix x, i64 levels, i64 codes_count)
{
    see_scratch(device, 0, NEAREST_ROWS * x.columns * 4);
    see_scratch(device, 1, NEAREST_ROWS * max_i64(codes_count, x.columns) * 4);
    see_scratch(device, 2, levels * codes_count * 4);
    see_rows(device, NEAREST_ROWS, x.columns, DTYPE_F32);
}

void meta_see_codebook(struct device *device, const struct codebooks *books)
{
    see_scratch(device, 0, books->codes * 8);
    see_scratch(device, 1, books->codes * books->width * 8);
}

void meta_see_scales(struct device *device, i64 elements)
{
    see_scratch(device, 0, elements * 4);
    see_scratch(device, 1, elements * 4);
}

void meta_see_losses_of_bits(struct device *device, struct matrix logits)
{
    see_scratch(device, 0, min_i64(tile_rows(logits.columns), logits.rows) * logits.columns * 4);
}

i64 meta_scratch_bytes(const struct device *device)
{
    const struct meta_scratch *seen = device->handles;
    i64 bytes = 0;
    for (int slot = 0; slot < META_SLOTS; slot++)
        bytes += seen->slot_bytes[slot] * ((slot >= 5 && slot <= 7) || slot == 10 ? 1 : workers_count());
    return bytes;
}
