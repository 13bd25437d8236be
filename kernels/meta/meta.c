/* The meta backend counts the cost of every op from its shapes, without reading tensors (dry run,
 * memory estimate).
 *
 * Flops are those of products, convolutions and attention; bytes assume that every operand is read
 * and written once. The only data read are attention intervals, which live on the host; without
 * columns the causal half is counted. Groups of experts are assumed to hold as many rows as their
 * buffer has room for, less the rounding of each group. Memory is therefore an upper bound, and
 * flops are those of a batch in which no row is dropped. */
#include "kernels/meta/meta.h"
#include "kernels/shapes.h"

#include <math.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* ops have arguments that cost nothing */

static double elements(struct matrix m)
{
    return (double)m.rows * (double)m.columns;
}

static double bytes(struct matrix m)
{
    return elements(m) * (double)dtype_bytes(m.dtype);
}

/* Bytes moved for the matrix that a row-wise op writes. Accumulating reads it too. */
static double written(struct matrix m, bool add)
{
    return bytes(m) * (add ? 2 : 1);
}

/* Fraction of the stacked weights that is read. A group without rows reads none. */
static double share_read(double rows, i64 experts, const struct groups *groups)
{
    return fmin(rows, (double)groups->count) / (double)experts;
}

static double grouped_rows(i64 bound, const struct groups *groups)
{
    i64 each = ceil_div(bound, GROUP_ROWS); /* rows, provided that no group has two */
    return (double)(each <= groups->count ? each : bound - groups->count * (GROUP_ROWS - 1));
}

static double fp8_bytes(const struct fp8_matrix *m)
{
    return (double)fp8_matrix_bytes(m);
}

static double conv_flops(struct matrix y, const struct conv *c)
{
    return 2 * elements(y) * (double)(c->kernel[0] * c->kernel[1] * c->kernel[2] * c->in);
}

/* ---- attention ---- */
static double causal_pairs(const struct intervals *intervals)
{
    double queries = (double)intervals->queries, keys = (double)intervals->keys;
    return queries <= keys ? queries * (keys - (queries - 1) / 2) : keys * (keys + 1) / 2;
}

/* The number of queries whose index is below `index`. */
static i64 queries_below(const struct intervals *v, i64 index)
{
    i64 first = 0, past = v->queries;
    while (first < past) {
        i64 middle = (first + past) / 2;
        if (v->query[middle] < index)
            first = middle + 1;
        else
            past = middle;
    }
    return first;
}

static i64 queries_within(const struct intervals *v, i64 begin, i64 end)
{
    return begin < end ? queries_below(v, end) - queries_below(v, begin) : 0;
}

static double visible_pairs(const struct intervals *v)
{
    i64 pairs = 0;
    if (!v->begin)
        return causal_pairs(v);
    for (i64 j = 0; j < v->keys; j++)
        pairs += queries_within(v, v->begin[j], v->end[j]) -
                 queries_within(v, max_i64(v->begin[j], v->hole_begin[j]), min_i64(v->end[j], v->hole_end[j]));
    return (double)pairs;
}

/* ---- mixture of experts ---- */
static double sort_bytes(const struct sorted_order *sorted, i64 assignments)
{
    return 8.0 * (double)assignments + 4.0 * (double)sorted->rows_bound;
}

/* ---- optimizer ---- */
static double updated(const struct updates *updates)
{
    double elements = 0;
    for (i64 i = 0; i < updates->count; i++)
        elements += (double)updates->list[i].count;
    return elements;
}

/* p, m and v are read and written: 24 bytes an element. */
static double adamw_bytes(const struct updates *updates)
{
    double moved = 0;
    for (i64 i = 0; i < updates->count; i++) {
        const struct update *u = &updates->list[i];
        moved += (double)u->count * (double)(24 + (u->g ? 4 : 0) + (u->copy ? dtype_bytes(u->copy_dtype) : 0));
    }
    return moved;
}

/* A real FFT of length n_fft is a complex FFT of n_fft / 2 points per frame, in either
 * direction. */
static double stft_flops(struct matrix spectrum, i64 n_fft)
{
    return 2.5 * (double)(spectrum.rows * n_fft) * log2((double)n_fft);
}

/* Share of the rows of a sorted buffer that groups fill. */
static double share_filled(i64 rows, const struct groups *groups)
{
    return groups ? grouped_rows(rows, groups) / (double)max_i64(rows, 1) : 1;
}

/* ---- COST_op: the flops, bytes and scratch of an op, where `moved`, the bytes that its row of
 * WEFT_OPS states, is not all ---- */
#define COST_matmul                                                                                                    \
    , meta_scratch_matmul(device, out, a, transpose_a, b, transpose_b, add);                                           \
    flops = 2 * elements(out) * (double)(transpose_a ? a.rows : a.columns);
#define COST_matmul_skinny                                                                                             \
    , const struct rope_cache *cache = fusion->cache;                                                                  \
    meta_scratch_skinny(device, out, x, w);                                                                            \
    flops = 2 * (double)x.rows * elements(w);                                                                          \
    moved = bytes(x) + bytes(w) + bytes(out) + (fusion->norm.data ? bytes(fusion->norm) : 0) +                         \
            (fusion->add.data ? bytes(fusion->add) : 0) +                                                              \
            (cache ? 2 * (double)x.rows * (double)cache->k.columns * (double)dtype_bytes(out.dtype) : 0);
#define COST_experts_skinny_in                                                                                         \
    , double assignments = (double)(N * experts->k_max), row = (double)(F * dtype_bytes(inside.dtype));                \
    meta_scratch_experts_skinny_in(device, inside, x, experts);                                                        \
    flops = 4 * assignments * (double)C * (double)F + 4 * elements(shared) * (double)C;                                \
    moved = bytes(x) + bytes(norm) + assignments * (row + 4) + bytes(shared) +                                         \
            bytes(experts->gate_up) * share_read(assignments, experts->experts, &experts->groups) +                    \
            bytes(experts->shared_gate_up);
#define COST_experts_skinny_out                                                                                        \
    , double assignments = (double)(N * experts->k_max), row = (double)(F * dtype_bytes(inside.dtype));                \
    meta_scratch_experts_skinny_out(device, x, inside, experts);                                                       \
    flops = 2 * assignments * (double)C * (double)F + 2 * elements(shared) * (double)C;                                \
    moved = bytes(out) + bytes(x) + assignments * (row + 8) + bytes(shared) +                                          \
            bytes(experts->down) * share_read(assignments, experts->experts, &experts->groups) +                       \
            bytes(experts->shared_down);
#define COST_matmul_grouped                                                                                            \
    , double rows = grouped_rows(R, groups);                                                                           \
    meta_scratch_grouped(device, out, a, w, transpose, groups);                                                        \
    flops = 2 * rows * (double)K * (double)N;                                                                          \
    moved = (bytes(a) + bytes(out)) * share_filled(R, groups) + bytes(w) * share_read(rows, experts, groups);
#define COST_matmul_grouped_swiglu                                                                                     \
    , double real = grouped_rows(R, groups);                                                                           \
    meta_scratch_grouped_swiglu(device, y, gate_up, x, rows, w, groups);                                               \
    flops = 4 * real * (double)C * (double)F;                                                                          \
    moved = real * (double)((C + F * (gate_up.data ? 3 : 1)) * dtype_bytes(y.dtype) + (rows ? 4 : 0)) +                \
            bytes(w) * share_read(real, experts, groups);
#define COST_matmul_grouped_weights                                                                                    \
    , double real = grouped_rows(R, groups);                                                                           \
    meta_scratch_grouped_weights(device, dw, experts, dy, x, rows, groups);                                            \
    flops = 2 * real * (double)F * (double)C;                                                                          \
    moved = real * (double)((F + C) * dtype_bytes(dy.dtype) + (rows ? 4 : 0)) +                                        \
            bytes(dw) * ((double)groups->count / (double)experts);
#define COST_matmul_quantized                                                                                          \
    , double rows = groups ? grouped_rows(R, groups) : (double)R;                                                      \
    double used = groups ? share_read(rows, w->parts, groups) : 1;                                                     \
    meta_scratch_quantized(device, a, w);                                                                              \
    flops = 2 * rows * (double)C * (double)w->rows;                                                                    \
    moved = (bytes(a) + bytes(out)) * share_filled(R, groups) +                                                        \
            used * (double)w->parts * (double)w->rows *                                                                \
                ((double)C * ((double)w->bits / 8 + (w->bits == 4 ? 1.0 / 32 : 0)) + 4);
#define COST_pack_weight , moved += (double)kernels_packed_bytes(device, parts, w.rows / parts, w.columns);
#define COST_round_fp8 , moved *= share_filled(R, groups);
#define COST_pack_fp8 , moved = (fp8_bytes(out) + bytes(x)) * share_filled(R, groups);
#define COST_matmul_fp8                                                                                                \
    , double used = groups ? (double)(groups->count * N) / (double)max_i64(b->outer, 1) : 1;                           \
    meta_scratch_fp8(device, a->depth);                                                                                \
    flops = 2 * (groups ? grouped_rows(R, groups) : (double)R) * (double)N * (double)a->depth;                         \
    moved = (fp8_bytes(a) + written(out, add)) * share_filled(R, groups) + fp8_bytes(b) * used;
#define COST_matmul_fp8_weights                                                                                        \
    , double rows = (double)max_i64(dy->depth - groups->count * FP8_BLOCK, min_i64(dy->depth, FP8_BLOCK));             \
    double share = rows / (double)max_i64(dy->depth, 1), used = (double)groups->count / (double)experts;               \
    meta_scratch_fp8(device, dy->depth);                                                                               \
    flops = 2 * rows * (double)dy->outer * (double)x->outer;                                                           \
    moved = (fp8_bytes(dy) + fp8_bytes(x)) * share + bytes(dw) * used;
#define COST_conv                                                                                                      \
    , meta_scratch_conv(device, y, x, w, conv);                                                                        \
    flops = conv_flops(y, conv);
#define COST_conv_backward_data                                                                                        \
    , meta_scratch_conv_data(device, dx, dy, w, conv, add);                                                            \
    flops = conv_flops(dy, conv);                                                                                      \
    moved = written(dx, add) + bytes(dy) + bytes(w);
#define COST_conv_backward_weights                                                                                     \
    , meta_scratch_conv_weights(device, dw, dy, x, conv);                                                              \
    flops = conv_flops(dy, conv);
#define COST_rope_cache , moved = 2 * bytes(x) + 2 * (double)N * (double)to->k.columns * (double)dtype_bytes(x.dtype);
#define COST_swiglu_backward , moved += dscales ? 4.0 * (double)N : 0;
#define COST_multiply_rows , moved = 2 * bytes(x) + bytes(x) / (double)repeat;
/* Rows that are read or written by an index. */
#define COST_gather , moved = written(out, add) + elements(out) * (double)dtype_bytes(table.dtype);
#define COST_scatter_add , moved = bytes(x) + 2 * elements(x) * (double)dtype_bytes(out.dtype);
#define COST_scatter , moved = bytes(x) + elements(x) * (double)dtype_bytes(out.dtype);
/* Of the cache only what queries see is read. */
#define COST_attention                                                                                                 \
    , double pairs = visible_pairs(intervals), read = fmin(1, pairs / (double)max_i64(k.rows, 1));                     \
    meta_scratch_attention(device, q, k, heads, kv_heads, intervals, false);                                           \
    flops = 4 * pairs * (double)q.columns;                                                                             \
    moved = bytes(out) + bytes(q) + (bytes(k) + bytes(v)) * read;
/* Five products where the forward has two: scores again, dv, dp, dq, dk. */
#define COST_attention_backward                                                                                        \
    , meta_scratch_attention(device, q, k, heads, kv_heads, intervals, true);                                          \
    flops = 10 * visible_pairs(intervals) * (double)q.columns;
#define COST_route , moved = 2 * bytes(logits) + 8.0 * (double)(N * K) + sort_bytes(sorted, N * K);
#define COST_route_given COST_route
#define COST_route_backward , moved = 2 * bytes(dlogits) + 12.0 * (double)(N * K);
#define COST_route_sort , moved = sort_bytes(sorted, n * k_max);
#define COST_combine                                                                                                   \
    , moved = bytes(out) + (a.data ? bytes(a) : 0) + (b.data ? bytes(b) : 0) +                                         \
              elements(out) * (double)(k_max * dtype_bytes(y.dtype));
#define COST_combine_backward , moved = bytes(dout) + elements(dout) * (double)(k_max * dtype_bytes(dy.dtype));
#define COST_dispatch , moved = bytes(out) * 2;
#define COST_route_regroup , moved = 8.0 * (double)rows_bound;
#define COST_route_capacity , moved = 8.0 * (double)(ranks * capacity + assignments + experts);
#define COST_route_count , moved = 4.0 * (double)(experts + 2 * kept);
#define COST_bit_cross_entropy , meta_scratch_losses_of_bits(device, logits);
#define COST_sum_squares , moved = 4 * updated(updates);
#define COST_adamw , moved = adamw_bytes(updates);
#define COST_zero_unwritten , moved = (double)parts;
#define COST_sum_by_stream , moved = 9.0 * (double)n;
#define COST_settle_codes , moved = 16.0 * (double)n;
#define COST_log_normalizers , moved = 16.0 * (double)N;
/* The lengths of responses are data, so only per-response work is counted. */
#define COST_policy_loss , moved = 20.0 * (double)responses;
/* Every scale passes over the whole grid: it is downsampled, then upsampled, added to the sum and
 * subtracted from the residual. */
#define COST_quantize_bits                                                                                             \
    , meta_scratch_scales(device, h *w *d);                                                                            \
    moved = 4.0 * (double)(n * h * w * d) * (double)(5 * scale_count + 3);
#define COST_dequantize_bits                                                                                           \
    , meta_scratch_scales(device, h *w *d);                                                                            \
    moved = 4.0 * (double)(n * h * w * d) * (double)(3 * scale_count + 2);
#define COST_bit_entropy , moved = 4.0 * (double)(n * T * d);
#define COST_bit_entropy_backward , moved = 8.0 * (double)(n * h * w * d) * (double)scale_count;
#define COST_quantize_vectors                                                                                          \
    , double words = (double)(levels * codes_count);                                                                   \
    meta_scratch_nearest(device, x, levels, codes_count);                                                              \
    flops = 2 * elements(x) * words;                                                                                   \
    moved = bytes(x) + 4 * (words * (double)C + elements(x));
#define COST_codebook_move                                                                                             \
    , meta_scratch_codebook(device, books);                                                                            \
    moved = 4 * (double)(books->levels * books->width) * ((double)n + 2 * (double)books->codes);
#define COST_codebook_mean , meta_scratch_codebook(device, books);
#define COST_stft                                                                                                      \
    , meta_scratch_stft(device, spectrum, x, n_fft, false);                                                            \
    flops = stft_flops(spectrum, n_fft);
#define COST_stft_backward                                                                                             \
    , meta_scratch_stft(device, dspectrum, dx, n_fft, true);                                                           \
    flops = stft_flops(dspectrum, n_fft);
#define COST_stft_inverse                                                                                              \
    , meta_scratch_stft(device, spectrum, x, n_fft, true);                                                             \
    flops = stft_flops(spectrum, n_fft);

/* COST_op behind its comma; nothing for other ops. */
#define AFTER_COMMA(first, ...) __VA_ARGS__
#define COST_OF(...) AFTER_COMMA(__VA_ARGS__)
#define OP(name, arguments, names, ...)                                                                                \
    static void count_##name arguments                                                                                 \
    {                                                                                                                  \
        STATEMENT(name, __VA_ARGS__)                                                                                   \
        double flops = 0, moved = statement_bytes(&statement_);                                                        \
        COST_OF(COST_##name)                                                                                           \
        enum work_kind counted_ = work_kind_of(#name);                                                                 \
        device->cost.work[counted_] += counted_ < WORK_UPDATE ? flops : moved;                                         \
        device->cost.flops += flops;                                                                                   \
        device->cost.bytes += moved;                                                                                   \
        device->cost.calls++;                                                                                          \
    }
WEFT_OPS(OP)
#undef OP
#define OP(name, arguments, names, ...) .name = count_##name,
const struct kernels meta_kernels = {WEFT_OPS(OP)};
