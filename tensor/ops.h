/* Ops on tensors: each runs its kernel and records its backward. Weights are [out, in], as on disk. Shapes in brackets;
 * letters as in kernels.h. What a kernel computes is documented there; here is what is differentiable and what is kept.
 */
#ifndef WEFT_TENSOR_OPS_H
#define WEFT_TENSOR_OPS_H
#include "tensor/tensor.h"

/* Makes a tensor of memory that already holds data (a batch's columns, a cache); borrowed until tape_clear. */
struct tensor *op_borrow(struct tape *tape, void *data, enum dtype dtype, i64 rows, i64 columns);

/* y [N,out] = x [N,in] w^T. dtype of y; its gradient travels in the activations' dtype. */
struct tensor *op_linear(struct tape *tape, struct tensor *x, struct tensor *w, enum dtype dtype);
/* The same with what stands before or behind it, which nobody else reads: in decoding on a GPU one launch, of FEW_ROWS
 * at most, with its norm of FEW_NORMED (kernels.h); else one op after the other. */
struct tensor *op_norm_linear(struct tape *tape, struct tensor *x, struct tensor *norm, float eps, struct tensor *w,
                              enum dtype dtype); /* rmsnorm(x) w^T */
struct tensor *op_linear_swiglu(struct tape *tape, struct tensor *x, struct tensor *w /* [2*out, in] */);
struct tensor *op_add_linear(struct tape *tape, struct tensor *a, struct tensor *x, struct tensor *w); /* a + x w^T */
/* *sum = a + x w^T; returns rmsnorm(*sum), which may be left to those that read it: op_linear and its kin here,
 * op_sorted, op_dispatch, op_few_experts, and no others. */
struct tensor *op_add_linear_norm(struct tape *tape, struct tensor **sum, struct tensor *a, struct tensor *x,
                                  struct tensor *w, struct tensor *norm, float eps);
struct tensor *op_linear_exact(struct tape *tape, struct tensor *x, struct tensor *w /* F32 */); /* F32, of exact x */
/* Sorted rows x [R,in] times the slice of stacked w [E*out, in] that owns them. groups: valid until tape_clear. */
struct tensor *op_linear_grouped(struct tape *tape, struct tensor *x, struct tensor *w, const struct groups *groups);
/* swiglu of that, w [E*2*out, in]: what is between is kept where the tape records. The backward gives rows.weights its
 * gradient. */
struct expert_rows;
struct tensor *op_linear_grouped_swiglu(struct tape *tape, const struct expert_rows *rows, struct tensor *w);
struct tensor *op_bias(struct tape *tape, struct tensor *x, struct tensor *bias /* [1,C] */);
struct tensor *op_conv(struct tape *tape, struct tensor *x, struct tensor *w, const struct conv *conv);

struct tensor *op_rmsnorm(struct tape *tape, struct tensor *x, struct tensor *w /* may be NULL */, float eps);
struct tensor *op_add(struct tape *tape, struct tensor *a, struct tensor *b);
/* a + b in the memory of b, which nothing reads after it, the backward of what made b neither: a product, a sum over
 * ranks. */
struct tensor *op_add_onto(struct tape *tape, struct tensor *b, struct tensor *a);
/* *sum = a + b in the memory of b, as op_add_onto; returns rmsnorm(*sum). */
struct tensor *op_add_rmsnorm(struct tape *tape, struct tensor **sum, struct tensor *a, struct tensor *b,
                              struct tensor *w, float eps);
struct tensor *op_scale(struct tape *tape, struct tensor *x, float scale, enum dtype dtype); /* also the cast */
struct tensor *op_swiglu(struct tape *tape, struct tensor *gate_up);
struct tensor *op_activate(struct tape *tape, struct tensor *x, enum activation kind);
struct tensor *op_permute(struct tape *tape, struct tensor *x, int rank, const i64 *shape, const i64 *order,
                          i64 columns);
/* The same block seen with another number of columns. */
struct tensor *op_view(struct tape *tape, struct tensor *x, i64 columns);
/* [N, sum of widths]: columns of several tensors side by side. */
struct tensor *op_concat(struct tape *tape, struct tensor *const *parts, int count);

/* Rows [first, first + count) of the same block. */
struct tensor *op_rows(struct tape *tape, struct tensor *x, i64 first, i64 count);

/* out[i] = table[index[i]], zeros for -1. */
struct tensor *op_gather(struct tape *tape, struct tensor *table, const i32 *index, i64 n);
/* The same of an activation, no row twice. */
struct tensor *op_select(struct tape *tape, struct tensor *x, const i32 *index, i64 n);
/* out [rows, C]: out[index[k][i]] = parts[k][i], zero elsewhere; indices differ, -1: nowhere. */
struct place {
    struct tensor *part;
    const i32 *index;
};
struct tensor *op_place(struct tape *tape, i64 rows, i64 columns, enum dtype dtype, const struct place *places,
                        int count);

/* Rotates q and k of qkv [N, (H+2G) D] in place, then attends. With a cache, the keys and values of these positions are
 * first written to its rows, and attention reads the first columns of the cache, as many as intervals have keys. */
struct attention_cache {
    struct matrix k, v; /* [columns, G*D] */
};
struct attention {
    i64 heads, kv_heads, width; /* H, G, D */
    float theta;
    i64 t_pairs;
    const float *positions; /* [N,3] */
    struct intervals intervals;
    const struct attention_cache *cache; /* NULL in training */
    const i32 *cache_row;                /* [N] where each position's key goes; -1: nowhere */
};
struct tensor *op_attention(struct tape *tape, struct tensor *qkv, const struct attention *attention);
/* The same of qkv = rmsnorm(x) w^T. */
struct tensor *op_norm_attention(struct tape *tape, struct tensor *x, struct tensor *norm, float eps, struct tensor *w,
                                 const struct attention *attention);

/* Routing of one layer. experts/weights/order are kept across recomputation. */
struct routing {
    i64 n, k_max, experts;
    struct tensor *weights; /* [N,K] F32; its gradient is the one by their logarithms, as route_backward reads it */
    float *p;               /* [N,E] */
    i32 *chosen, *slot;     /* [N,K] */
    i32 *offsets;           /* [E+1] */
    i32 *source;            /* [rows_bound] */
    i64 rows_bound;
    struct groups groups;
};
struct routing_inputs {
    const float *bias; /* [E] */
    const i32 *topk;   /* [N]; 0: not routed */
    const u8 *counted; /* [N] */
    float *usage;      /* [E]; NULL: not counted */
    const i32 *member; /* [E] slices of the stacked weights; NULL: identity */
    const i32 *replay; /* [N,K] choices made elsewhere (at rollout); NULL: choose */
    struct router router;
};
struct routing *op_route(struct tape *tape, struct tensor *logits /* [N,E] F32 */, const struct routing_inputs *inputs);
/* Rows sorted by expert. The gradient by the logarithm of a row's weight is what comes back to swiglu's output times
 * that output, so that the outputs of experts, which the weight multiplies, need not be kept:
 *
 *     out = sum w y, y = h D^T:  w dL/dw = w dL/dout . y = (w dL/dout D) . h = dL/dh . h */
struct expert_rows {
    struct tensor *x;       /* [R, C] */
    struct tensor *weights; /* [R, 1] F32, without data: what carries their gradients back */
    const struct groups *groups;
};
struct expert_rows op_dispatch(struct tape *tape, struct tensor *x, const struct routing *routing); /* R: rows_bound */
/* The same rows, read where they lie: for op_linear_grouped_swiglu alone. */
struct expert_rows op_sorted(struct tape *tape, struct tensor *x, const struct routing *routing);
/* out [N, C], made by the caller, = a + b + experts' outputs y by their weights; a and b [N, C] may be NULL, out lie
 * where one of them does. Of y, a and b the backward reads nothing. */
void op_combine(struct tape *tape, struct tensor *out, struct tensor *y, const struct routing *routing,
                struct tensor *a, struct tensor *b);

/* x + the shared expert of n + those that n is routed to, in decoding on a GPU two launches; of few positions, of k_max
 * experts each, with a norm that was left to them, and of weights that are not in few bits. Otherwise there are the ops
 * above. */
struct experts {
    struct tensor *gate_up, *down;               /* [E*2F, C], [E*C, F] */
    struct tensor *shared_gate_up, *shared_down; /* [2S, C], [C, S]; NULL: none */
};
bool op_takes_few_experts(struct tape *tape, const struct tensor *n, i64 k_max, const struct experts *experts);
struct tensor *op_few_experts(struct tape *tape, struct tensor *x, struct tensor *n, const struct routing *routing,
                              const struct experts *experts);

/* Losses return device arrays of one value a target. The backward reads coefficient [N] (device memory) which the
 * caller fills between forward and tape_backward; coefficient NULL: forward only. want_entropy adds `entropy`. */
struct loss {
    float *value, *entropy;
    i64 n;
};
struct loss op_cross_entropy(struct tape *tape, struct tensor *logits, const i32 *target, const float *coefficient,
                             bool want_entropy);
/* The cross entropy of logits h w^T, which exist a chunk of rows at a time. coefficient [N] must stand there already:
 * gradients are made in the same pass. NULL: forward only. */
struct loss op_linear_cross_entropy(struct tape *tape, struct tensor *h, struct tensor *w, const i32 *target,
                                    const float *coefficient, bool want_entropy);
struct loss op_bit_cross_entropy(struct tape *tape, struct tensor *logits, const u8 *bits, const float *coefficient,
                                 bool want_entropy);
/* Mean over columns of |x-y| or (x-y)^2 for each row; y is not differentiated. */
struct loss op_distance(struct tape *tape, struct tensor *x, struct tensor *y, enum distance kind,
                        const float *coefficient);
/* Entropy of a bit-wise code (kernels.h, bit_entropy): value [1], magnitude [scale_count]. x [n*h*w, d] is what was
 * quantised to u; gradients reach it through u's area means alone, not through the bits of coarser scales. */
struct bit_use {
    float *value, *magnitude;
};
struct bit_grid {
    i64 n, h, w;
    const struct scale *scales;
    i64 scale_count;
    const float *amplitude;
    float sharpness;
};
struct bit_use op_bit_entropy(struct tape *tape, struct tensor *x, const float *u, const struct bit_grid *grid,
                              const float *coefficient);
/* Straight-through: a tensor with y's values whose gradient goes to x unchanged. */
struct tensor *op_straight_through(struct tape *tape, struct tensor *x, struct tensor *y);

#endif
