/* Fused ops for decoding on a GPU: skinny gemms with a fused prologue and epilogue, which save
 * launches. Elsewhere the unfused ops run one after the other. */
#include "tensor/linear.h"
#include "tensor/inside.h"
#include "tensor/ops.h"

static bool is_decoding(const struct tape *tape)
{
    return device_is_gpu(tape->device) && !tape->recording && !tape->keeping;
}

bool takes_skinny(struct tape *tape, const struct tensor *x, struct tensor *w)
{
    return is_decoding(tape) && x->rows <= SKINNY_ROWS && w->matrices <= 1 &&
           linear_is_plain(&(struct linear_weight){tape, w, NULL, NULL});
}

/* rmsnorm(x), or a deferred norm if the readers are skinny gemms that can fuse it. */
static struct tensor *norm_deferred(struct tape *tape, struct tensor *x, struct tensor *norm, float eps)
{
    if (!is_decoding(tape) || x->rows > SKINNY_NORMED_ROWS)
        return op_rmsnorm(tape, x, norm, eps);
    struct tensor *n = op_borrow(tape, NULL, x->dtype, x->rows, x->columns);
    struct deferred_rows *rows = arena_alloc(&tape->host, sizeof *rows);
    *rows = (struct deferred_rows){.table = x, .norm = norm, .eps = eps};
    n->rows_of = rows;
    return n;
}

struct tensor *normed(struct tape *tape, struct tensor *x)
{
    const struct deferred_rows *of = x->rows_of;
    if (of && of->norm)
        *x = *op_rmsnorm(tape, (struct tensor *)of->table, (struct tensor *)of->norm, of->eps);
    return x;
}

struct tensor *skinny_gemm(struct tape *tape, struct tensor *x, struct tensor *w, enum dtype dtype,
                           struct gemm_fusion fusion)
{
    struct tensor *y = tape_tensor(tape, dtype, x->rows, w->rows / (fusion.gated ? 2 : 1));
    const struct deferred_rows *of = x->rows_of;
    if (of) {
        fusion.norm = tensor_matrix(of->norm);
        fusion.eps = of->eps;
    }
    tape->device->ops->matmul_skinny(tape->device, tensor_matrix(y), tensor_matrix(of ? of->table : x),
                                     tensor_matrix(w), &fusion);
    return y;
}

struct tensor *op_norm_linear(struct tape *tape, struct tensor *x, struct tensor *norm, float eps, struct tensor *w,
                              enum dtype dtype)
{
    return op_linear(tape, norm_deferred(tape, x, norm, eps), w, dtype);
}

struct tensor *op_linear_swiglu(struct tape *tape, struct tensor *x, struct tensor *w)
{
    if (takes_skinny(tape, x, w))
        return skinny_gemm(tape, x, w, tape->activations, (struct gemm_fusion){.gated = true});
    return op_swiglu(tape, op_linear(tape, x, w, tape->activations));
}

struct tensor *op_add_linear(struct tape *tape, struct tensor *a, struct tensor *x, struct tensor *w)
{
    if (takes_skinny(tape, x, w))
        return skinny_gemm(tape, x, w, a->dtype, (struct gemm_fusion){.add = tensor_matrix(a)});
    return op_add_onto(tape, op_linear(tape, x, w, a->dtype), a);
}

struct tensor *op_add_linear_norm(struct tape *tape, struct tensor **sum, struct tensor *a, struct tensor *x,
                                  struct tensor *w, struct tensor *norm, float eps)
{
    if (x->rows > SKINNY_NORMED_ROWS || !takes_skinny(tape, x, w))
        return op_add_rmsnorm(tape, sum, a, op_linear(tape, x, w, tape->activations), norm, eps);
    *sum = op_add_linear(tape, a, x, w);
    return norm_deferred(tape, *sum, norm, eps);
}

struct tensor *op_linear_exact(struct tape *tape, struct tensor *x, struct tensor *w)
{
    if (takes_skinny(tape, x, w))
        return skinny_gemm(tape, x, w, DTYPE_F32, (struct gemm_fusion){0});
    x = normed(tape, x);
    return op_linear(tape, x->dtype == DTYPE_F32 ? x : op_scale(tape, x, 1, DTYPE_F32), w, DTYPE_F32);
}

struct tensor *op_norm_attention(struct tape *tape, struct tensor *x, struct tensor *norm, float eps, struct tensor *w,
                                 const struct attention *a)
{
    if (!a->cache || !takes_skinny(tape, x, w))
        return op_attention(tape, op_norm_linear(tape, x, norm, eps, w, tape->activations), a);
    struct rope_cache cache = rope_cache_of(a);
    return attend_cached(tape,
                         skinny_gemm(tape, norm_deferred(tape, x, norm, eps), w, tape->activations,
                                     (struct gemm_fusion){.cache = &cache}),
                         a);
}

/* ---- Experts ---- */

static bool is_plain(struct tape *tape, struct tensor *w, const struct groups *groups, enum dtype dtype)
{
    return !w || (w->dtype == dtype && linear_is_plain(&(struct linear_weight){tape, w, groups, NULL}));
}

bool op_takes_skinny_experts(struct tape *tape, const struct tensor *n, i64 k_max, const struct experts *e)
{
    struct groups some = {0};
    return is_decoding(tape) && n->rows_of && n->rows * k_max <= SKINNY_ASSIGNMENTS &&
           is_plain(tape, e->gate_up, &some, n->dtype) && is_plain(tape, e->down, &some, n->dtype) &&
           is_plain(tape, e->shared_gate_up, NULL, n->dtype) && is_plain(tape, e->shared_down, NULL, n->dtype);
}

static struct matrix weight_or_none(const struct tensor *w)
{
    return w ? tensor_matrix(w) : (struct matrix){0};
}

struct tensor *op_skinny_experts(struct tape *tape, struct tensor *x, struct tensor *n, const struct routing *routing,
                                 const struct experts *e)
{
    const struct skinny_experts skinny = {.gate_up = tensor_matrix(e->gate_up),
                                          .down = tensor_matrix(e->down),
                                          .shared_gate_up = weight_or_none(e->shared_gate_up),
                                          .shared_down = weight_or_none(e->shared_down),
                                          .experts = e->gate_up->matrices,
                                          .groups = routing->groups,
                                          .rows_bound = routing->rows_bound,
                                          .source = routing->source,
                                          .slot = routing->slot,
                                          .weights = routing->weights->data,
                                          .k_max = routing->k_max};
    const struct kernels *ops = tape->device->ops;
    struct tensor *inside = tape_tensor(tape, n->dtype, routing->rows_bound, e->down->columns), *shared = NULL;
    struct tensor *out = tape_tensor(tape, n->dtype, n->rows, n->columns);
    if (e->shared_down)
        shared = tape_tensor(tape, n->dtype, n->rows, e->shared_down->columns);
    ops->experts_skinny_in(tape->device, tensor_matrix(inside), weight_or_none(shared),
                           tensor_matrix(n->rows_of->table), tensor_matrix(n->rows_of->norm), n->rows_of->eps, &skinny);
    ops->experts_skinny_out(tape->device, tensor_matrix(out), tensor_matrix(x), tensor_matrix(inside),
                            weight_or_none(shared), &skinny);
    return out;
}
