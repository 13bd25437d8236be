/* Memory estimate of a dry run: the scratch that the CPU backend would request for each op, at the
 * device's ISA level. The sizes come from kernels/cpu/tiles.h, which the CPU backend uses, too.
 * Slots and their uses are those of the files in kernels/cpu; the largest request per slot
 * counts. */
#include "kernels/cpu/tiles.h"
#include "kernels/isa.h"
#include "kernels/meta/meta.h"

static void note_scratch(struct device *device, int slot, i64 bytes)
{
    struct meta_scratch *seen = device->handles;
    seen->slot_bytes[slot] = max_i64(seen->slot_bytes[slot], bytes);
}

/* One FMA gemm on a worker. */
static void scratch_gemm(struct device *device, i64 m, i64 k, enum dtype dtype)
{
    note_scratch(device, 8, fma_operand_bytes(device->isa, m));
    note_scratch(device, 9, fma_run_bytes(device->isa, m, fma_words(device->isa, k, dtype)));
}

/* Panels of b [k, n], or of its transpose, shared by all tiles. */
static void scratch_panels(struct device *device, i64 k, i64 n, enum dtype dtype)
{
    note_scratch(device, 7, fma_panels_bytes(fma_words(device->isa, k, dtype), n));
}

/* An FMA gemm of a [m, k] with weights in place. Pieces of a with few rows take the skinny gemm. */
static void scratch_rows(struct device *device, i64 m, i64 k, enum dtype dtype)
{
    scratch_gemm(device, m, k, dtype);
    note_scratch(device, 8, fma_skinny_bytes(m, fma_words(device->isa, k, dtype)));
}

/* ---- AMX gemms ---- */

static void scratch_tile(struct device *device, struct amx_scratch scratch)
{
    note_scratch(device, 0, scratch.a);
    note_scratch(device, 1, scratch.b);
    note_scratch(device, 2, scratch.sums);
    note_scratch(device, 7, scratch.shared);
}

static void scratch_rows_on_tiles(struct device *device, struct matrix out, struct matrix a, struct matrix b)
{
    struct amx_tiling tiling = amx_tiling_of(out.rows, out.columns, a.columns);
    scratch_tile(device, amx_rows_scratch(out, a, b, &tiling));
}

static void scratch_gradient_on_tiles(struct device *device, struct matrix dw, i64 depth)
{
    struct amx_gradient_tiling t = amx_gradient_tiling_of(dw.rows, dw.columns, depth);
    struct amx_scratch scratch =
        amx_gradient_scratch(min_i64(t.rows, dw.rows), min_i64(t.columns, dw.columns), min_i64(t.depth, depth));
    scratch.sums = t.segments > 1 ? 0 : scratch.sums;
    scratch.shared = amx_segments_bytes(&t, dw.rows, dw.columns);
    scratch_tile(device, scratch);
}

/* Follows the choices of the CPU backend's matmul. */
void meta_scratch_matmul(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                         bool transpose_b, bool add)
{
    i64 k = transpose_a ? a.rows : a.columns;
    if (device->isa == CPU_ISA_AMX && amx_has_skinny(out, a, transpose_a, b, transpose_b, add)) {
        note_scratch(device, 7, amx_skinny_bytes(a.rows, a.columns));
        return;
    }
    if (device->isa == CPU_ISA_AMX && amx_has(out, a, transpose_a, b, transpose_b)) {
        if (transpose_a)
            scratch_gradient_on_tiles(device, out, k);
        else
            scratch_rows_on_tiles(device, out, a, b);
        return;
    }
    if (out.rows == 0 || out.columns == 0)
        return;
    bool sums_data = sums_of_data(out, transpose_a, transpose_b);
    struct tiling t = tiling_of(out.rows, out.columns, k, sums_data);
    if (transpose_a)
        scratch_gemm(device, min_i64(t.rows, out.rows), t.depth, a.dtype);
    else
        scratch_rows(device, min_i64(t.rows, out.rows), t.depth, a.dtype);
    if (t.segments > 1)
        note_scratch(device, 7, t.segments * out.rows * out.columns * 4);
    if (tiles_share(out.rows, out.columns, k, sums_data))
        scratch_panels(device, k, out.columns, b.dtype);
}

void meta_scratch_skinny(struct device *device, struct matrix out, struct matrix x, struct matrix w)
{
    struct skinny_scratch room = skinny_scratch_of(x.rows, x.columns);
    note_scratch(device, 0, x.columns * 4); /* the norm's weight as f32 */
    note_scratch(device, 5, room.rstd + room.normed + room.wide);
    note_scratch(device, 6, x.rows * w.rows * 4);
    meta_scratch_matmul(device, matrix_of(NULL, out.dtype, x.rows, w.rows), matrix_of(NULL, w.dtype, x.rows, x.columns),
                        false, w, true, false);
}

void meta_scratch_grouped(struct device *device, struct matrix out, struct matrix a, struct matrix w, bool transpose,
                          const struct groups *groups)
{
    i64 slice = out.columns; /* rows of a slice if transposed */
    if (device->isa == CPU_ISA_AMX && amx_has_skinny_groups(out, a, w, slice, transpose, groups)) {
        note_scratch(device, 0, amx_skinny_bytes(min_i64(AMX_SKINNY_GROUP_ROWS, a.rows), a.columns));
        return;
    }
    if (device->isa == CPU_ISA_AMX && amx_has_groups(out, a, w)) {
        struct amx_tiling tiling = amx_groups_tiling(a.rows, out.columns, a.columns, groups->count);
        scratch_tile(device, amx_groups_scratch(a, w, &tiling));
        return;
    }
    scratch_rows(device, min_i64(ROWS_MOST, a.rows), a.columns, a.dtype);
}

static void scratch_gathered(struct device *device, i64 bound, struct matrix x, const i32 *rows)
{
    note_scratch(device, 6, rows ? amx_gathered_bytes(bound, x) : 0);
}

void meta_scratch_grouped_swiglu(struct device *device, struct matrix y, struct matrix gate_up, struct matrix x,
                                 const i32 *rows, struct matrix w, const struct groups *groups)
{
    i64 kept = gate_up.data ? 0 : dtype_bytes(y.dtype) * 2;
    if (device->isa == CPU_ISA_AMX && amx_has_groups(y, x, w)) {
        scratch_gathered(device, y.rows, x, rows);
        note_scratch(device, 5, kept * y.rows * y.columns);
        meta_scratch_grouped(device, matrix_of(NULL, y.dtype, y.rows, 2 * y.columns),
                             matrix_of(x.data, x.dtype, y.rows, x.columns), w, true, groups);
        return;
    }
    note_scratch(device, 0, kept * min_i64(ROWS_MOST, y.rows) * min_i64(even_columns(y.columns), y.columns));
    scratch_rows(device, min_i64(ROWS_MOST, y.rows), x.columns, x.dtype);
}

void meta_scratch_experts_skinny_in(struct device *device, struct matrix inside, struct matrix x,
                                    const struct skinny_experts *e)
{
    note_scratch(device, 0, x.columns * 4); /* the norm's weight as f32 */
    note_scratch(device, 10, skinny_experts_in_bytes(x));
    meta_scratch_grouped_swiglu(device, inside, (struct matrix){0}, x, e->source, e->gate_up, &e->groups);
    if (e->shared_gate_up.data)
        meta_scratch_skinny(device, x, x, e->shared_gate_up);
}

void meta_scratch_experts_skinny_out(struct device *device, struct matrix x, struct matrix inside,
                                     const struct skinny_experts *e)
{
    struct matrix routed = matrix_of(NULL, x.dtype, e->rows_bound, x.columns), shared = e->shared_down;
    note_scratch(device, 0, x.columns * 4); /* one row of sums */
    note_scratch(device, 10, skinny_experts_out_bytes(x, e));
    meta_scratch_grouped(device, routed, inside, e->down, true, &e->groups);
    if (shared.data)
        meta_scratch_matmul(device, x, matrix_of(NULL, x.dtype, x.rows, shared.columns), false, shared, true, false);
}

void meta_scratch_grouped_weights(struct device *device, struct matrix dw, i64 experts, struct matrix dy,
                                  struct matrix x, const i32 *rows, const struct groups *groups)
{
    i64 slice = dw.rows / experts;
    if (device->isa == CPU_ISA_AMX && amx_has_gradient(dw, dy, x)) {
        i64 tile_rows, columns;
        amx_slice_tiling(&tile_rows, &columns, slice, dw.columns, groups->count);
        scratch_gathered(device, dy.rows, x, rows);
        scratch_tile(device, amx_gradient_scratch(min_i64(tile_rows, slice), min_i64(columns, dw.columns), dy.rows));
        return;
    }
    scratch_gemm(device, min_i64(even_rows(slice), slice), dy.rows, x.dtype);
}

void meta_scratch_quantized(struct device *device, struct matrix a, const struct quantized_weight *w)
{
    i64 steps = quantized_steps(w->columns), strip = w->bits == 4 ? quantized_strip_bytes(steps) : 0;
    if (device->isa == CPU_ISA_AMX && cpu_has_tiles_of_bytes() && a.dtype == DTYPE_BF16) {
        note_scratch(device, 1, strip);
        note_scratch(device, 7, ceil_div(a.rows, AMX_QUANTIZED_PANEL) * amx_quantized_panel_bytes(steps));
        return;
    }
    note_scratch(device, 2, strip);
    note_scratch(device, 6, a.rows * quantized_row_bytes(steps));
}

/* ---- Convolutions ---- */

static bool on_tiles(const struct device *device, struct matrix a, struct matrix b)
{
    return device->isa == CPU_ISA_AMX && a.dtype == DTYPE_BF16 && b.dtype == DTYPE_BF16;
}

/* im2col patches of x times w, or times the flipped w. */
static void scratch_patches(struct device *device, struct matrix out, struct matrix x, struct matrix w,
                            const struct conv *conv)
{
    i64 depth = product3(conv->kernel) * x.columns, patch_bytes = depth * dtype_bytes(x.dtype);
    if (on_tiles(device, x, w)) {
        struct amx_tiling tiling = amx_conv_tiling(out.rows, out.columns, depth);
        struct amx_scratch scratch = amx_conv_scratch(&tiling, out.columns, depth);
        note_scratch(device, 4, scratch.a);
        scratch.a = 0;
        scratch.shared = w.packed ? 0 : scratch.shared;
        scratch_tile(device, scratch);
        return;
    }
    i64 positions = conv_positions(out.rows, patch_bytes, CONV_TILES_WANTED);
    note_scratch(device, 0, positions * patch_bytes);
    if (out.rows > positions)
        scratch_panels(device, depth, out.columns, w.dtype);
    scratch_rows(device, min_i64(positions, out.rows), depth, x.dtype);
}

void meta_scratch_conv(struct device *device, struct matrix y, struct matrix x, struct matrix w,
                       const struct conv *conv)
{
    note_scratch(device, 5, conv_tables_bytes(conv, false));
    if (conv_is_gemm(conv))
        meta_scratch_matmul(device, y, x, false, w, true, false);
    else
        scratch_patches(device, y, x, w, conv);
}

void meta_scratch_conv_data(struct device *device, struct matrix dx, struct matrix dy, struct matrix w,
                            const struct conv *conv, bool add)
{
    note_scratch(device, 5, conv_tables_bytes(conv, true));
    if (conv_is_gemm(conv)) {
        meta_scratch_matmul(device, dx, dy, false, w, false, add);
        return;
    }
    note_scratch(device, 6, w.rows * w.columns * dtype_bytes(w.dtype));
    w.packed = NULL;
    scratch_patches(device, dx, dy, w, conv);
}

/* A part of dw with `columns` columns, summed over `positions` positions. */
static void scratch_conv_part(struct device *device, struct matrix dw, i64 columns, struct matrix x, i64 positions)
{
    i64 patch_bytes = columns * dtype_bytes(x.dtype);
    if (on_tiles(device, x, x)) {
        note_scratch(device, 4, min_i64(DEPTH_RUN, positions) * patch_bytes);
        scratch_tile(device, amx_gradient_scratch(dw.rows, columns, positions));
        return;
    }
    i64 at_once = conv_positions(positions, patch_bytes, 1);
    note_scratch(device, 0, at_once * patch_bytes);
    scratch_gemm(device, dw.rows, min_i64(at_once, positions), x.dtype);
}

void meta_scratch_conv_weights(struct device *device, struct matrix dw, struct matrix dy, struct matrix x,
                               const struct conv *conv)
{
    i64 lines = conv->kernel[0] * conv->kernel[1], line_columns = conv->kernel[2] * x.columns;
    struct conv_parts parts = conv_parts_of(dy.rows, lines, line_columns);
    i64 left = lines - (parts.line_parts - 1) * parts.lines, positions = min_i64(parts.chunk_rows, dy.rows);
    note_scratch(device, 5, conv_tables_bytes(conv, false));
    if (conv_is_gemm(conv) && on_tiles(device, dy, x)) {
        scratch_gradient_on_tiles(device, dw, x.rows);
        return;
    }
    note_scratch(device, 6, parts.chunks > 1 ? parts.chunks * dw.rows * dw.columns * 4 : 0);
    scratch_conv_part(device, dw, parts.lines * line_columns, x, positions);
    scratch_conv_part(device, dw, left * line_columns, x, positions);
}

/* ---- Attention ---- */

/* Packed keys and values: one form each in the forward; three forms in all and the f32 sums of
 * their gradients in the backward. */
static void scratch_attention_on_tiles(struct device *device, struct matrix k, i64 width, bool backward)
{
    i64 packed = round_up(k.rows, KEY_BLOCK) * k.columns;
    note_scratch(device, 0, backward ? amx_attention_backward_bytes(width) : amx_attention_bytes(width));
    note_scratch(device, 6, backward ? packed * (3 * 2 + 2 * 4) : packed * 2 * 2);
}

static void scratch_attention_decode(struct device *device, i64 width, enum dtype dtype)
{
    i64 bytes = dtype_bytes(dtype), area = DECODE_ROWS_MOST * DECODE_KEYS_MOST;
    scratch_gemm(device, DECODE_ROWS_MOST, DECODE_KEYS_MOST, dtype);
    note_scratch(device, 0, area * 4);
    note_scratch(device, 1, bytes == 4 ? 0 : area * bytes);
    note_scratch(device, 2, DECODE_ROWS_MOST * width * bytes);
    note_scratch(device, 3, (DECODE_ROWS_MOST * (width + 4) + DECODE_KEYS_MOST) * 4);
    note_scratch(device, 4, DECODE_KEYS_MOST * width * bytes);
}

static void scratch_attention_in_strips(struct device *device, const struct strip_scratch *room)
{
    note_scratch(device, 0, (STRIP_KEYS + 1) * room->strip * 4);
    note_scratch(device, 1, room->strips * room->state);
    note_scratch(device, 3, room->strips * (room->queries + room->sums) * 4);
    note_scratch(device, 4, (room->rows + room->transposed) * 4);
}

/* A tile ends where the next sample begins, so there are at most twice as many tiles as full
 * ones. */
static void scratch_turns(struct device *device, i64 queries, i64 keys, i64 group, i64 kv_heads)
{
    i64 tiles = min_i64(queries, 2 * ceil_div(queries, max_i64(1, STRIP_ROWS_MOST / group)));
    note_scratch(device, 5, (tiles + kv_heads + 1) * ceil_div(keys, STRIP_KEYS_BACKWARD) * 4);
}

static void scratch_attention_backward_in_strips(struct device *device, const struct strip_scratch *room, i64 key_rows,
                                                 i64 width)
{
    note_scratch(device, 0, 2 * (STRIP_KEYS + 1) * room->strip * 4);
    note_scratch(device, 1, 2 * (STRIP_KEYS_BACKWARD + 1) * (FMA_RUN + 16) * 4);
    note_scratch(device, 2, room->strips * room->state_backward);
    note_scratch(device, 3, (room->strips * (2 * room->queries + room->sums) + 2 * room->depth) * 4);
    note_scratch(device, 4, (2 * room->rows + room->transposed) * 4);
    note_scratch(device, 6, 2 * key_rows * round_up(width, room->strip) * 4);
}

static void scratch_attention(struct device *device, struct matrix q, struct matrix k, i64 heads, i64 kv_heads,
                              bool backward)
{
    i64 width = q.columns / heads;
    struct strip_scratch room = strip_scratch_of(device->isa, width, heads / kv_heads, q.dtype);
    if (backward) {
        scratch_turns(device, q.rows, k.rows, heads / kv_heads, kv_heads);
        scratch_attention_backward_in_strips(device, &room, kv_heads * round_up(k.rows, KEY_BLOCK), width);
    } else if (attention_is_decode(q, k)) {
        scratch_attention_decode(device, width, q.dtype);
    } else {
        scratch_attention_in_strips(device, &room);
    }
}

void meta_scratch_attention(struct device *device, struct matrix q, struct matrix k, i64 heads, i64 kv_heads,
                            const struct intervals *intervals, bool backward)
{
    if (device->isa == CPU_ISA_AMX && amx_has_attention(q, k, heads, kv_heads))
        scratch_attention_on_tiles(device, k, q.columns / heads, backward);
    else
        scratch_attention(device, q, k, heads, kv_heads, backward);
    note_scratch(device, 7, intervals->queries * 13 + k.rows);
}

/* ---- Others ---- */

void meta_scratch_fp8(struct device *device, i64 depth)
{
    note_scratch(device, 0, (GROUP_ROWS + 1) * depth * 4);
}

void meta_scratch_stft(struct device *device, struct matrix spectrum, struct matrix x, i64 n_fft, bool to_time)
{
    i64 bins = n_fft / 2 + 1, length = x.columns + n_fft;
    for (int slot = 0; slot < 2; slot++)
        note_scratch(device, slot, STFT_ROWS * bins * 8);
    if (!to_time)
        return;
    note_scratch(device, 5, x.rows * length * 4);
    note_scratch(device, 6, length * 4);
    note_scratch(device, 7, spectrum.rows * n_fft * 4);
}

void meta_scratch_nearest(struct device *device, struct matrix x, i64 levels, i64 codes_count)
{
    note_scratch(device, 0, NEAREST_ROWS * x.columns * 4);
    note_scratch(device, 1, NEAREST_ROWS * max_i64(codes_count, x.columns) * 4);
    note_scratch(device, 2, levels * codes_count * 4);
    scratch_rows(device, NEAREST_ROWS, x.columns, DTYPE_F32);
}

void meta_scratch_codebook(struct device *device, const struct codebooks *books)
{
    note_scratch(device, 0, books->codes * 8);
    note_scratch(device, 1, books->codes * books->width * 8);
}

void meta_scratch_scales(struct device *device, i64 elements)
{
    note_scratch(device, 0, elements * 4);
    note_scratch(device, 1, elements * 4);
}

void meta_scratch_losses_of_bits(struct device *device, struct matrix logits)
{
    note_scratch(device, 0, min_i64(tile_rows(logits.columns), logits.rows) * logits.columns * 4);
}

i64 meta_scratch_bytes(const struct device *device)
{
    const struct meta_scratch *seen = device->handles;
    i64 bytes = 0;
    for (int slot = 0; slot < META_SLOTS; slot++)
        bytes += seen->slot_bytes[slot] * ((slot >= 5 && slot <= 7) || slot == 10 ? 1 : workers_count());
    return bytes;
}
