/* The meta backend counts the cost of every op from its shapes, without reading tensors (dry run,
 * memory estimate).
 *
 * Flops are those of products, convolutions and attention; bytes assume that every operand is read
 * and written once. The only data read are attention intervals, which live on the host; without
 * columns the causal half is counted. Groups of experts are assumed to hold as many rows as their
 * buffer has room for, less the rounding of each group. Memory is therefore an upper bound, and
 * flops are those of a batch in which no row is dropped. */
#include "kernels/meta/meta.h"

#include <math.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* ops have arguments that cost nothing */

#define OP(name, arguments, names) static void name arguments;
WEFT_OPS(OP)
#undef OP

static void count(struct device *device, double flops, double bytes)
{
    device->cost.flops += flops;
    device->cost.bytes += bytes;
    device->cost.calls++;
}

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

/* ---- products ---- */
static void matmul(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                   bool transpose_b, bool add)
{
    double k = (double)(transpose_a ? a.rows : a.columns);
    meta_scratch_matmul(device, out, a, transpose_a, b, transpose_b, add);
    count(device, 2 * elements(out) * k, bytes(a) + bytes(b) + written(out, add));
}

static void matmul_skinny(struct device *device, struct matrix out, struct matrix x, struct matrix w,
                          const struct gemm_fusion *fusion)
{
    const struct rope_cache *cache = fusion->cache;
    double kept = cache ? 2 * (double)x.rows * (double)cache->k.columns * (double)dtype_bytes(out.dtype) : 0;
    meta_scratch_skinny(device, out, x, w);
    count(device, 2 * (double)x.rows * elements(w),
          bytes(x) + bytes(w) + bytes(out) + (fusion->norm.data ? bytes(fusion->norm) : 0) +
              (fusion->add.data ? bytes(fusion->add) : 0) + kept);
}

/* Fraction of the stacked weights that is read. A group without rows reads none. */
static double share_read(double rows, i64 experts, const struct groups *groups)
{
    return fmin(rows, (double)groups->count) / (double)experts;
}

static void experts_skinny_in(struct device *device, struct matrix inside, struct matrix shared, struct matrix x,
                              struct matrix norm, float eps, const struct skinny_experts *e)
{
    double assignments = (double)(x.rows * e->k_max), row = (double)(inside.columns * dtype_bytes(inside.dtype));
    meta_scratch_experts_skinny_in(device, inside, x, e);
    count(device,
          4 * assignments * (double)x.columns * (double)inside.columns + 4 * elements(shared) * (double)x.columns,
          bytes(x) + bytes(norm) + assignments * (row + 4) + bytes(shared) +
              bytes(e->gate_up) * share_read(assignments, e->experts, &e->groups) + bytes(e->shared_gate_up));
}

static void experts_skinny_out(struct device *device, struct matrix out, struct matrix x, struct matrix inside,
                               struct matrix shared, const struct skinny_experts *e)
{
    double assignments = (double)(x.rows * e->k_max), row = (double)(inside.columns * dtype_bytes(inside.dtype));
    meta_scratch_experts_skinny_out(device, x, inside, e);
    count(device,
          2 * assignments * (double)x.columns * (double)inside.columns + 2 * elements(shared) * (double)x.columns,
          bytes(out) + bytes(x) + assignments * (row + 8) + bytes(shared) +
              bytes(e->down) * share_read(assignments, e->experts, &e->groups) + bytes(e->shared_down));
}

static double grouped_rows(i64 bound, const struct groups *groups)
{
    i64 each = ceil_div(bound, GROUP_ROWS); /* rows, provided that no group has two */
    return (double)(each <= groups->count ? each : bound - groups->count * (GROUP_ROWS - 1));
}

static void matmul_grouped(struct device *device, struct matrix out, struct matrix a, struct matrix w, i64 experts,
                           bool transpose, const struct groups *groups)
{
    meta_scratch_grouped(device, out, a, w, transpose, groups);
    double rows = grouped_rows(a.rows, groups), share = rows / (double)max_i64(a.rows, 1);
    count(device, 2 * rows * (double)a.columns * (double)out.columns,
          (bytes(a) + bytes(out)) * share + bytes(w) * share_read(rows, experts, groups));
}

static void matmul_grouped_swiglu(struct device *device, struct matrix y, struct matrix gate_up, struct matrix x,
                                  const i32 *rows, struct matrix w, i64 experts, const struct groups *groups)
{
    meta_scratch_grouped_swiglu(device, y, gate_up, x, rows, w, groups);
    double real = grouped_rows(y.rows, groups);
    double of_row = (double)((x.columns + y.columns * (gate_up.data ? 3 : 1)) * dtype_bytes(y.dtype) + (rows ? 4 : 0));
    count(device, 4 * real * (double)x.columns * (double)y.columns,
          real * of_row + bytes(w) * share_read(real, experts, groups));
}

static void matmul_grouped_weights(struct device *device, struct matrix dw, u8 *written_slices, i64 experts,
                                   struct matrix dy, struct matrix x, const i32 *rows, const struct groups *groups)
{
    meta_scratch_grouped_weights(device, dw, experts, dy, x, rows, groups);
    double real = grouped_rows(dy.rows, groups), used = (double)groups->count / (double)experts;
    double of_row = (double)((dy.columns + x.columns) * dtype_bytes(dy.dtype) + (rows ? 4 : 0));
    count(device, 2 * real * (double)dy.columns * (double)x.columns, real * of_row + bytes(dw) * used);
}

static void matmul_quantized(struct device *device, struct matrix out, struct matrix a,
                             const struct quantized_weight *w, const struct groups *groups)
{
    double rows = groups ? grouped_rows(a.rows, groups) : (double)a.rows;
    double used = groups ? share_read(rows, w->parts, groups) : 1, share = rows / (double)max_i64(a.rows, 1);
    meta_scratch_quantized(device, a, w);
    double each = (double)w->bits / 8 + (w->bits == 4 ? 1.0 / 32 : 0);
    count(device, 2 * rows * (double)a.columns * (double)out.columns,
          (bytes(a) + bytes(out)) * share +
              used * (double)w->parts * (double)w->rows * ((double)w->columns * each + 4));
}

static void pack_weight(struct device *device, void *image, struct matrix w, i64 parts)
{
    (void)image;
    count(device, 0, bytes(w) + (double)kernels_packed_bytes(device, parts, w.rows / parts, w.columns));
}

static void round_fp8(struct device *device, struct matrix out, struct matrix x, enum fp8 format,
                      enum fp8_blocks blocks, i64 parts, const struct groups *groups)
{
    double share = groups ? grouped_rows(x.rows, groups) / (double)max_i64(x.rows, 1) : 1;
    count(device, 0, (bytes(out) + bytes(x)) * share);
}

static double fp8_bytes(const struct fp8_matrix *m)
{
    return (double)fp8_matrix_bytes(m);
}

static void pack_fp8(struct device *device, const struct fp8_matrix *out, struct matrix x, bool transposed, i64 parts,
                     const struct groups *groups)
{
    double share = groups ? grouped_rows(x.rows, groups) / (double)max_i64(x.rows, 1) : 1;
    count(device, 0, (fp8_bytes(out) + bytes(x)) * share);
}

static void matmul_fp8(struct device *device, struct matrix out, const struct fp8_matrix *a, const struct fp8_matrix *b,
                       const struct groups *groups, bool add)
{
    double rows = groups ? grouped_rows(out.rows, groups) : (double)out.rows;
    double share = rows / (double)max_i64(out.rows, 1);
    double used = groups ? (double)(groups->count * out.columns) / (double)max_i64(b->outer, 1) : 1;
    meta_scratch_fp8(device, a->depth);
    count(device, 2 * rows * (double)out.columns * (double)a->depth,
          (fp8_bytes(a) + written(out, add)) * share + fp8_bytes(b) * used);
}

static void matmul_fp8_weights(struct device *device, struct matrix dw, u8 *written_slices, i64 experts,
                               const struct fp8_matrix *dy, const struct fp8_matrix *x, const struct groups *groups)
{
    double rows = (double)max_i64(dy->depth - groups->count * FP8_BLOCK, min_i64(dy->depth, FP8_BLOCK));
    double share = rows / (double)max_i64(dy->depth, 1), used = (double)groups->count / (double)experts;
    meta_scratch_fp8(device, dy->depth);
    count(device, 2 * rows * (double)dy->outer * (double)x->outer,
          (fp8_bytes(dy) + fp8_bytes(x)) * share + bytes(dw) * used);
}

static double conv_flops(struct matrix y, const struct conv *c)
{
    return 2 * elements(y) * (double)(c->kernel[0] * c->kernel[1] * c->kernel[2] * c->in);
}

static void conv(struct device *device, struct matrix y, struct matrix x, struct matrix w, const struct conv *c)
{
    meta_scratch_conv(device, y, x, w, c);
    count(device, conv_flops(y, c), bytes(y) + bytes(x) + bytes(w));
}

static void conv_backward_data(struct device *device, struct matrix dx, struct matrix dy, struct matrix w,
                               const struct conv *c, bool add)
{
    meta_scratch_conv_data(device, dx, dy, w, c, add);
    count(device, conv_flops(dy, c), written(dx, add) + bytes(dy) + bytes(w));
}

static void conv_backward_weights(struct device *device, struct matrix dw, struct matrix dy, struct matrix x,
                                  const struct conv *c, bool add)
{
    meta_scratch_conv_weights(device, dw, dy, x, c);
    count(device, conv_flops(dy, c), written(dw, add) + bytes(dy) + bytes(x));
}

/* ---- rows ---- */
static void rmsnorm(struct device *device, struct matrix y, float *rstd, struct matrix x, struct matrix w, float eps)
{
    count(device, 0, bytes(y) + bytes(x));
}

static void rmsnorm_backward(struct device *device, struct matrix dx, struct matrix dw, struct matrix dy,
                             struct matrix x, struct matrix w, const float *rstd, bool add_dx, bool add_dw)
{
    count(device, 0, written(dx, add_dx) + bytes(dy) + bytes(x));
}

static void add_rmsnorm(struct device *device, struct matrix sum, struct matrix y, float *rstd, struct matrix a,
                        struct matrix b, struct matrix w, float eps)
{
    count(device, 0, bytes(sum) + bytes(y) + bytes(a) + bytes(b));
}

static void rope(struct device *device, struct matrix x, const float *positions, i64 heads, float theta, i64 t_pairs,
                 bool inverse)
{
    count(device, 0, 2 * bytes(x));
}

static void rope_cache(struct device *device, struct matrix x, const struct rope_cache *to)
{
    double kept = 2 * (double)x.rows * (double)to->k.columns;
    count(device, 0, 2 * bytes(x) + kept * (double)dtype_bytes(x.dtype));
}

static void swiglu(struct device *device, struct matrix y, struct matrix gate_up)
{
    count(device, 0, bytes(y) + bytes(gate_up));
}

static void swiglu_backward(struct device *device, struct matrix dgate_up, float *dscales, struct matrix dy,
                            struct matrix gate_up)
{
    count(device, 0, bytes(dgate_up) + bytes(dy) + bytes(gate_up) + (dscales ? 4.0 * (double)dy.rows : 0));
}

static void activate(struct device *device, struct matrix y, struct matrix x, enum activation kind)
{
    count(device, 0, bytes(y) + bytes(x));
}

static void activate_backward(struct device *device, struct matrix dx, struct matrix dy, struct matrix x,
                              enum activation kind, bool add_dx)
{
    count(device, 0, written(dx, add_dx) + bytes(dy) + bytes(x));
}

static void copy(struct device *device, struct matrix out, struct matrix x, float scale, bool add_out)
{
    count(device, 0, written(out, add_out) + bytes(x));
}

static void add(struct device *device, struct matrix out, struct matrix a, struct matrix b)
{
    count(device, 0, bytes(out) + bytes(a) + bytes(b));
}

static void zero(struct device *device, void *data, i64 size_bytes)
{
    count(device, 0, (double)size_bytes);
}

static void fill(struct device *device, float *out, i64 values, float value)
{
    count(device, 0, 4.0 * (double)values);
}

static void fill_ids(struct device *device, i32 *out, i64 ids, i32 value)
{
    count(device, 0, 4.0 * (double)ids);
}

static void copy_ids(struct device *device, i32 *out, const i32 *ids, i64 n)
{
    count(device, 0, 8.0 * (double)n);
}

static void widen_bytes(struct device *device, struct matrix out, const u8 *narrow, float scale, float shift)
{
    count(device, 0, bytes(out) + elements(out));
}

static void narrow_bytes(struct device *device, u8 *narrow, struct matrix x, float shift, float scale)
{
    count(device, 0, bytes(x) + elements(x));
}

static void map(struct device *device, struct matrix out, struct matrix x, enum map kind, float least)
{
    count(device, 0, bytes(out) + bytes(x));
}

static void multiply_rows(struct device *device, struct matrix x, const float *by, i64 repeat)
{
    count(device, 0, 2 * bytes(x) + bytes(x) / (double)repeat);
}

static void multiply_ratio(struct device *device, struct matrix x, struct matrix over, struct matrix under, float eps)
{
    count(device, 0, 2 * bytes(x) + bytes(over) + bytes(under));
}

static void shift_divide(struct device *device, struct matrix out, struct matrix x, float shift, float divisor)
{
    count(device, 0, bytes(out) + bytes(x));
}

static void running_mean(struct device *device, float *mean, const float *x, i64 values, double keep)
{
    count(device, 0, 12.0 * (double)values);
}

static void bias_add(struct device *device, struct matrix out, struct matrix x, struct matrix bias)
{
    count(device, 0, bytes(out) + bytes(x));
}

static void column_sums(struct device *device, struct matrix out, struct matrix x, bool add_out)
{
    count(device, 0, bytes(x));
}

static void gather(struct device *device, struct matrix out, struct matrix table, const i32 *index, bool add_out)
{
    count(device, 0, written(out, add_out) + elements(out) * (double)dtype_bytes(table.dtype));
}

static void scatter_add(struct device *device, struct matrix out, struct matrix x, const i32 *index)
{
    count(device, 0, bytes(x) + 2 * elements(x) * (double)dtype_bytes(out.dtype));
}

static void scatter(struct device *device, struct matrix out, struct matrix x, const i32 *index)
{
    count(device, 0, bytes(x) + elements(x) * (double)dtype_bytes(out.dtype));
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

static void attention(struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,
                      struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals)
{
    meta_scratch_attention(device, q, k, heads, kv_heads, intervals, false);
    /* `read`: fraction of the cache that is read. */
    double pairs = visible_pairs(intervals), read = fmin(1, pairs / (double)max_i64(k.rows, 1));
    count(device, 4 * pairs * (double)q.columns, bytes(out) + bytes(q) + (bytes(k) + bytes(v)) * read);
}

/* The backward has five products where the forward has two: scores again, dv, dp, dq, dk. */
static void attention_backward(struct device *device, struct matrix dq, struct matrix dk, struct matrix dv,
                               struct matrix dout, struct matrix out, const float *lse, struct matrix q,
                               struct matrix k, struct matrix v, i64 heads, i64 kv_heads,
                               const struct intervals *intervals)
{
    meta_scratch_attention(device, q, k, heads, kv_heads, intervals, true);
    count(device, 10 * visible_pairs(intervals) * (double)q.columns,
          bytes(dq) + bytes(dk) + bytes(dv) + bytes(dout) + bytes(out) + bytes(q) + bytes(k) + bytes(v));
}

/* ---- mixture of experts ---- */
static double sort_bytes(const struct sorted_order *sorted, i64 assignments)
{
    return 8.0 * (double)assignments + 4.0 * (double)sorted->rows_bound;
}

static void count_routing(struct device *device, const struct sorted_order *sorted, struct matrix logits, i64 k_max)
{
    i64 assignments = logits.rows * k_max;
    count(device, 0, 2 * bytes(logits) + 8.0 * (double)assignments + sort_bytes(sorted, assignments));
}

static void route(struct device *device, float *p, i32 *experts, float *weights, const struct sorted_order *sorted,
                  float *usage, struct matrix logits, const float *bias, const i32 *topk, const u8 *counted,
                  const struct router *router)
{
    count_routing(device, sorted, logits, router->k_max);
}

static void route_given(struct device *device, float *p, float *weights, const struct sorted_order *sorted,
                        float *usage, const i32 *experts, struct matrix logits, const u8 *counted,
                        const struct router *router)
{
    count_routing(device, sorted, logits, router->k_max);
}

static void route_backward(struct device *device, struct matrix dlogits, const float *dlog_weights, const float *p,
                           const i32 *experts, const float *weights, const struct router *router)
{
    count(device, 0, 2 * bytes(dlogits) + 12.0 * (double)(dlogits.rows * router->k_max));
}

static void route_sort(struct device *device, const struct sorted_order *sorted, const i32 *experts, i64 n, i64 k_max,
                       i64 experts_count)
{
    count(device, 0, sort_bytes(sorted, n * k_max));
}

static void combine(struct device *device, struct matrix out, struct matrix a, struct matrix b, struct matrix y,
                    const i32 *slot, const float *weights, i64 k_max)
{
    double others = (a.data ? bytes(a) : 0) + (b.data ? bytes(b) : 0);
    count(device, 0, bytes(out) + others + elements(out) * (double)(k_max * dtype_bytes(y.dtype)));
}

static void combine_backward(struct device *device, struct matrix dy, struct matrix dout, const i32 *slot,
                             const i32 *source, const i32 *rows, const float *weights, i64 k_max)
{
    count(device, 0, bytes(dout) + elements(dout) * (double)(k_max * dtype_bytes(dy.dtype)));
}

static void dispatch(struct device *device, struct matrix out, struct matrix x, const i32 *source, const i32 *rows)
{
    count(device, 0, bytes(out) * 2);
}

static void route_regroup(struct device *device, i32 *offsets, i32 *regroup, i32 *arrived, i64 rows_bound,
                          const i32 *from, i64 ranks, i64 experts, i64 capacity)
{
    count(device, 0, 8.0 * (double)rows_bound);
}

static void route_capacity(struct device *device, i32 *source, i32 *slot, i32 *counts, double *over, const i32 *sorted,
                           i64 assignments, i64 capacity, i64 ranks, i64 experts)
{
    count(device, 0, 8.0 * (double)(ranks * capacity + assignments + experts));
}

static void route_count(struct device *device, i32 *counts, const i32 *offsets, const i32 *member, i64 kept,
                        i64 experts)
{
    count(device, 0, 4.0 * (double)(experts + 2 * kept));
}

static void route_balance(struct device *device, float *bias, float *usage, double *use, i64 experts,
                          const double *expected, const double *sum, float speed)
{
    count(device, 0, (expected ? 40.0 : 32.0) * (double)experts);
}

/* ---- losses ---- */
static void cross_entropy(struct device *device, float *loss, float *lse, float *entropy, struct matrix logits,
                          const i32 *target)
{
    count(device, 0, bytes(logits));
}

static void cross_entropy_backward(struct device *device, struct matrix dlogits, struct matrix logits, const float *lse,
                                   const i32 *target, const float *coefficient)
{
    count(device, 0, bytes(dlogits) + bytes(logits));
}

static void bit_cross_entropy(struct device *device, float *loss, float *entropy, struct matrix logits, const u8 *bits)
{
    meta_scratch_losses_of_bits(device, logits);
    count(device, 0, bytes(logits) + elements(logits));
}

static void bit_cross_entropy_backward(struct device *device, struct matrix dlogits, struct matrix logits,
                                       const u8 *bits, const float *coefficient)
{
    count(device, 0, bytes(dlogits) + bytes(logits) + elements(logits));
}

static void soft_cross_entropy(struct device *device, float *divergence, struct matrix logits, const float *lse,
                               struct matrix teacher, const float *teacher_lse)
{
    count(device, 0, bytes(logits) + bytes(teacher));
}

static void soft_cross_entropy_backward(struct device *device, struct matrix dlogits, struct matrix logits,
                                        const float *lse, struct matrix teacher, const float *teacher_lse,
                                        const i32 *target, const float *coefficient, const float *weight)
{
    count(device, 0, bytes(dlogits) + bytes(logits) + bytes(teacher));
}

static void soft_bit_cross_entropy(struct device *device, float *divergence, struct matrix logits,
                                   struct matrix teacher)
{
    count(device, 0, bytes(logits) + bytes(teacher));
}

static void soft_bit_cross_entropy_backward(struct device *device, struct matrix dlogits, struct matrix logits,
                                            struct matrix teacher, const u8 *bits, const float *coefficient,
                                            const float *weight)
{
    count(device, 0, bytes(dlogits) + bytes(logits) + bytes(teacher) + elements(logits));
}

static void distance(struct device *device, float *loss, struct matrix x, struct matrix y, enum distance kind)
{
    count(device, 0, bytes(x) + bytes(y));
}

static void distance_backward(struct device *device, struct matrix dx, struct matrix x, struct matrix y,
                              enum distance kind, const float *coefficient, bool add_dx)
{
    count(device, 0, written(dx, add_dx) + bytes(x) + bytes(y));
}

static void coefficients(struct device *device, float *out, const float *weight, i64 n, double scale)
{
    count(device, 0, 8.0 * (double)n);
}

/* ---- optimizer ---- */
static double updated(const struct updates *updates)
{
    double elements = 0;
    for (i64 i = 0; i < updates->count; i++)
        elements += (double)updates->list[i].count;
    return elements;
}

static void sum_squares(struct device *device, double *sum, const struct updates *updates)
{
    count(device, 0, 4 * updated(updates));
}

/* p, m and v are read and written: 24 bytes an element. */
static void adamw(struct device *device, const struct updates *updates, const double *sum, double clip,
                  const struct adamw *settings)
{
    double moved = 0;
    for (i64 i = 0; i < updates->count; i++) {
        const struct update *u = &updates->list[i];
        moved += (double)u->count * (double)(24 + (u->g ? 4 : 0) + (u->copy ? dtype_bytes(u->copy_dtype) : 0));
    }
    count(device, 0, moved);
}

static void zero_unwritten(struct device *device, struct matrix dw, u8 *written_slices, i64 parts)
{
    count(device, 0, (double)parts);
}

static void sum_by_stream(struct device *device, double *sums, const float *value, const float *weight,
                          const u8 *stream, i64 n, i64 levels)
{
    count(device, 0, 9.0 * (double)n);
}

static void sum_values(struct device *device, double *sum, const float *value, i64 n)
{
    count(device, 0, 4.0 * (double)n);
}

/* ---- sampling ---- */
static void sample(struct device *device, i32 *code, float *logprob, struct matrix logits, const u32 *identity,
                   const struct sampling *sampling)
{
    count(device, 0, bytes(logits));
}

static void sample_bits(struct device *device, u8 *bits, float *logprob, struct matrix logits, const u32 *identity,
                        const struct sampling *sampling)
{
    count(device, 0, bytes(logits) + elements(logits));
}

static void forbid(struct device *device, struct matrix logits, const u32 *allowed, const i32 *set)
{
    count(device, 0, 2 * bytes(logits));
}

static void settle_codes(struct device *device, i32 *codes, i32 *row, const i32 *drawn, i64 n, i64 levels, i64 level,
                         i32 end)
{
    count(device, 0, 16.0 * (double)n);
}

/* ---- reinforcement learning ---- */
static void log_normalizers(struct device *device, float *out, const float *loss, struct matrix logits,
                            const i32 *target)
{
    count(device, 0, 16.0 * (double)logits.rows);
}

static void shift_rows(struct device *device, struct matrix x, const float *to, const float *from)
{
    count(device, 0, 2 * bytes(x));
}

/* The lengths of responses are data, so only per-response work is counted. */
static void policy_loss(struct device *device, float *coefficient, double *sums, const float *loss, const float *old,
                        const float *rollout, const float *start, const i32 *segment, const double *advantage,
                        const double *weight, i64 responses, const struct policy_loss_options *options)
{
    count(device, 0, 20.0 * (double)responses);
}

/* ---- media ---- */
static void resize(struct device *device, struct matrix out, struct matrix x, i64 n, i64 h_in, i64 w_in, i64 h_out,
                   i64 w_out, enum resize kind)
{
    count(device, 0, bytes(out) + bytes(x));
}

static void resize_backward(struct device *device, struct matrix dx, struct matrix dout, i64 n, i64 h_in, i64 w_in,
                            i64 h_out, i64 w_out, enum resize kind)
{
    count(device, 0, 2 * bytes(dx) + bytes(dout));
}

static void permute(struct device *device, void *out, const void *x, enum dtype dtype, int rank, const i64 *shape,
                    const i64 *order)
{
    double moved = 2.0 * (double)dtype_bytes(dtype);
    for (int a = 0; a < rank; a++)
        moved *= (double)shape[a];
    count(device, 0, moved);
}

/* Every scale passes over the whole grid: it is downsampled, then upsampled, added to the sum and
 * subtracted from the residual. */
static void quantize_bits(struct device *device, u8 *bits, float *sum, float *u, const float *x, const u8 *flip, i64 n,
                          i64 h, i64 w, i64 d, const struct scale *scales, i64 scale_count, const float *amplitude)
{
    meta_scratch_scales(device, h * w * d);
    count(device, 0, 4.0 * (double)(n * h * w * d) * (double)(5 * scale_count + 3));
}

static void dequantize_bits(struct device *device, float *inputs, float *sum, const u8 *bits, i64 n, i64 h, i64 w,
                            i64 d, const struct scale *scales, i64 scale_count, const float *amplitude)
{
    meta_scratch_scales(device, h * w * d);
    count(device, 0, 4.0 * (double)(n * h * w * d) * (double)(3 * scale_count + 2));
}

static void bit_entropy(struct device *device, float *entropy, float *mean_p, float *magnitude, const float *u, i64 n,
                        i64 d, const struct scale *scales, i64 scale_count, const float *amplitude, float sharpness)
{
    double tokens = 0;
    for (i64 k = 0; k < scale_count; k++)
        tokens += (double)scale_positions(scales[k]);
    count(device, 0, 4.0 * tokens * (double)(n * d));
}

static void bit_entropy_backward(struct device *device, float *dx, const float *u, const float *mean_p, i64 n, i64 h,
                                 i64 w, i64 d, const struct scale *scales, i64 scale_count, const float *amplitude,
                                 float sharpness, const float *coefficient)
{
    count(device, 0, 8.0 * (double)(n * h * w * d) * (double)scale_count);
}

static void quantize_vectors(struct device *device, i32 *codes, float *sum, float *residual, struct matrix x,
                             const float *codebooks, i64 levels, i64 codes_count)
{
    double words = (double)(levels * codes_count);
    meta_scratch_nearest(device, x, levels, codes_count);
    count(device, 2 * elements(x) * words, bytes(x) + 4 * (words * (double)x.columns + elements(x)));
}

static void codebook_move(struct device *device, float *words, float *use, float *unseen, double *revived,
                          const i32 *codes, const float *residual, i64 n, const struct codebooks *books)
{
    double each = (double)(books->levels * books->width);
    meta_scratch_codebook(device, books);
    count(device, 0, 4 * each * ((double)n + 2 * (double)books->codes));
}

static void codebook_mean(struct device *device, float *words, const i32 *codes, struct matrix x, i64 level,
                          i64 attempt, const struct codebooks *books)
{
    meta_scratch_codebook(device, books);
    count(device, 0, bytes(x) + 4 * (double)(books->codes * books->width));
}

/* A real FFT of length n_fft is a complex FFT of n_fft / 2 points per frame, in either
 * direction. */
static void count_stft(struct device *device, struct matrix spectrum, struct matrix x, i64 n_fft)
{
    count(device, 2.5 * (double)(spectrum.rows * n_fft) * log2((double)n_fft), bytes(spectrum) + bytes(x));
}

static void stft(struct device *device, struct matrix spectrum, struct matrix x, i64 n_fft, i64 hop, bool magnitude)
{
    meta_scratch_stft(device, spectrum, x, n_fft, false);
    count_stft(device, spectrum, x, n_fft);
}

static void stft_backward(struct device *device, struct matrix dx, struct matrix dspectrum, i64 n_fft, i64 hop)
{
    meta_scratch_stft(device, dspectrum, dx, n_fft, true);
    count_stft(device, dspectrum, dx, n_fft);
}

static void stft_inverse(struct device *device, struct matrix x, struct matrix spectrum, i64 n_fft, i64 hop)
{
    meta_scratch_stft(device, spectrum, x, n_fft, true);
    count_stft(device, spectrum, x, n_fft);
}

static void phases_draw(struct device *device, struct matrix spectrum, struct matrix magnitude, struct rng_key key)
{
    count(device, 0, bytes(spectrum) + bytes(magnitude));
}

static void phases_push(struct device *device, struct matrix spectrum, struct matrix now, struct matrix last,
                        struct matrix magnitude, float momentum)
{
    count(device, 0, 3 * bytes(spectrum) + bytes(magnitude));
}

#define OP(name, arguments, names) .name = name,
const struct kernels meta_kernels = {WEFT_OPS(OP)};
