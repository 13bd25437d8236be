/* Ops on tensors. Each op runs its kernel and records its backward.
 *
 * Weights are [out, in], as on disk. Brackets give shapes, with the letters of kernels.h. kernels.h
 * documents what the kernels compute; this header documents what is differentiable and what is
 * saved. Returned tensors belong to the tape and live until tape_clear. */
#ifndef WEFT_TENSOR_OPS_H
#define WEFT_TENSOR_OPS_H
#include "tensor/tensor.h"

/* Wraps existing memory (a batch column, a cache) as a tensor. The memory is borrowed until
 * tape_clear. */
struct tensor *op_borrow(struct tape *tape, void *data, enum dtype dtype, i64 rows, i64 columns);

/* y [N,out] = x [N,in] w^T, stored as `dtype`. Its gradient has the dtype of x. */
struct tensor *op_linear(struct tape *tape, struct tensor *x, struct tensor *w, enum dtype dtype);
/* Linear layers with a fused prologue or epilogue. Their intermediate results must have no other
 * reader. When decoding on a GPU they are one launch, for at most SKINNY_ROWS rows, or
 * SKINNY_NORMED_ROWS with a norm (kernels.h). Otherwise they run as separate ops. */
struct tensor *op_norm_linear(struct tape *tape, struct tensor *x, struct tensor *norm, float eps, struct tensor *w,
                              enum dtype dtype); /* rmsnorm(x) w^T */
struct tensor *op_linear_swiglu(struct tape *tape, struct tensor *x, struct tensor *w /* [2*out, in] */);
struct tensor *op_add_linear(struct tape *tape, struct tensor *a, struct tensor *x, struct tensor *w); /* a + x w^T */
/* *sum = a + x w^T. Returns rmsnorm(*sum). The norm may be deferred to its readers, which must be
 * linear ops of this header, op_sorted, op_dispatch or op_skinny_experts. */
struct tensor *op_add_linear_norm(struct tape *tape, struct tensor **sum, struct tensor *a, struct tensor *x,
                                  struct tensor *w, struct tensor *norm, float eps);
/* Linear layer in F32: casts x to F32 and returns F32. */
struct tensor *op_linear_exact(struct tape *tape, struct tensor *x, struct tensor *w /* F32 */);
/* Grouped gemm: rows x [R,in], sorted by expert, times their expert's slice of the stacked w
 * [E*out, in]. `groups` must stay valid until tape_clear. */
struct tensor *op_linear_grouped(struct tape *tape, struct tensor *x, struct tensor *w, const struct groups *groups);
/* swiglu(rows.x w^T) per expert, w [E*2*out, in]. A recording tape saves the pre-activation. The
 * backward also produces the gradient of rows.weights. */
struct expert_rows;
struct tensor *op_linear_grouped_swiglu(struct tape *tape, const struct expert_rows *rows, struct tensor *w);
struct tensor *op_bias(struct tape *tape, struct tensor *x, struct tensor *bias /* [1,C] */);
struct tensor *op_conv(struct tape *tape, struct tensor *x, struct tensor *w, const struct conv *conv);

struct tensor *op_rmsnorm(struct tape *tape, struct tensor *x, struct tensor *w /* may be NULL */, float eps);
struct tensor *op_add(struct tape *tape, struct tensor *a, struct tensor *b);
/* In-place b += a; returns the sum. b must not be read afterwards, nor saved by the op that
 * produced it: b is the output of a gemm or of an all-reduce. */
struct tensor *op_add_onto(struct tape *tape, struct tensor *b, struct tensor *a);
/* *sum = a + b, in-place in b as for op_add_onto. Returns rmsnorm(*sum). */
struct tensor *op_add_rmsnorm(struct tape *tape, struct tensor **sum, struct tensor *a, struct tensor *b,
                              struct tensor *w, float eps);
struct tensor *op_scale(struct tape *tape, struct tensor *x, float scale, enum dtype dtype); /* and casts to dtype */
struct tensor *op_swiglu(struct tape *tape, struct tensor *gate_up);
struct tensor *op_activate(struct tape *tape, struct tensor *x, enum activation kind);
struct tensor *op_permute(struct tape *tape, struct tensor *x, int rank, const i64 *shape, const i64 *order,
                          i64 columns);
/* The same memory with another number of columns. */
struct tensor *op_view(struct tape *tape, struct tensor *x, i64 columns);
/* Concatenates along columns: [N, sum of widths]. */
struct tensor *op_concat(struct tape *tape, struct tensor *const *parts, int count);

/* Rows [first, first + count) of x, without a copy. */
struct tensor *op_rows(struct tape *tape, struct tensor *x, i64 first, i64 count);

/* out[i] = table[index[i]], zeros for -1. */
struct tensor *op_gather(struct tape *tape, struct tensor *table, const i32 *index, i64 n);
/* The same for an activation; entries of `index` must be distinct. */
struct tensor *op_select(struct tape *tape, struct tensor *x, const i32 *index, i64 n);
/* Scatters parts into out [rows, C]: out[index[k][i]] = parts[k][i], zero elsewhere. Indices must
 * be distinct; -1 drops the row. */
struct placement {
    struct tensor *part;
    const i32 *index;
};
struct tensor *op_place(struct tape *tape, i64 rows, i64 columns, enum dtype dtype, const struct placement *places,
                        int count);

/* Rotary embedding and attention. Rotates q and k of qkv [N, (H+2G) D] in place, then attends. With
 * a cache, first writes keys and values to their cache rows, then attends to the first
 * `intervals.keys` rows of the cache. */
struct attention_cache {
    struct matrix k, v; /* [columns, G*D] */
};
struct attention {
    i64 heads, kv_heads, width; /* H, G, D */
    float theta;
    i64 t_pairs;
    const float *positions; /* [N,3] */
    struct intervals intervals;
    const struct attention_cache *cache; /* KV cache; NULL in training */
    const i32 *cache_row;                /* [N] cache row of each position's key; -1: none */
};
struct tensor *op_attention(struct tape *tape, struct tensor *qkv, const struct attention *attention);
/* The same with qkv = rmsnorm(x) w^T. */
struct tensor *op_norm_attention(struct tape *tape, struct tensor *x, struct tensor *norm, float eps, struct tensor *w,
                                 const struct attention *attention);

/* Routing of one layer. Recomputation reuses all of its arrays. */
struct routing {
    i64 n, k_max, experts;
    struct tensor *weights; /* [N,K] F32; its gradient is with respect to the logarithm, as route_backward expects */
    float *p;               /* [N,E] router probabilities */
    i32 *chosen, *slot;     /* [N,K] expert, and sorted row, of each choice */
    i32 *offsets;           /* [E+1] first sorted row of each expert */
    i32 *source;            /* [rows_bound] position of each sorted row; -1: padding */
    i64 rows_bound;
    struct groups groups;
};
struct routing_inputs {
    const float *bias;  /* [E] load-balancing bias, used only to choose */
    const i32 *topk;    /* [N] experts per position; 0: not routed */
    const u8 *counted;  /* [N] positions counted in `usage` */
    const float *scale; /* [N] factor of the weights of a position; NULL: 1 */
    float *usage;       /* [E] assignments per expert, accumulated; NULL: not counted */
    const i32 *member;  /* [E] slices of the stacked weights; NULL: identity */
    const i32 *replay;  /* [N,K] recorded choices (router replay of a rollout); NULL: choose */
    struct router router;
};
struct routing *op_route(struct tape *tape, struct tensor *logits /* [N,E] F32 */, const struct routing_inputs *inputs);
/* Rows sorted by expert.
 *
 * The gradient with respect to the log of a row's weight is the dot product of swiglu's output and
 * its gradient. The expert outputs, which the weight multiplies, therefore need not be saved:
 *
 *     out = sum w y, y = h D^T:  w dL/dw = w dL/dout . y = (w dL/dout D) . h = dL/dh . h
 */
struct expert_rows {
    struct tensor *x;       /* [R, C] */
    struct tensor *weights; /* [R, 1] F32, no data; carries the gradients back */
    const struct groups *groups;
};
struct expert_rows op_dispatch(struct tape *tape, struct tensor *x, const struct routing *routing); /* R: rows_bound */
/* The same rows without a copy: readable only by op_linear_grouped_swiglu. */
struct expert_rows op_sorted(struct tape *tape, struct tensor *x, const struct routing *routing);
/* out [N, C] = a + b + weighted sum of expert outputs y. The caller allocates `out`. a and b are
 * [N, C] or NULL; out may alias either. The backward reads none of y, a and b. */
void op_combine(struct tape *tape, struct tensor *out, struct tensor *y, const struct routing *routing,
                struct tensor *a, struct tensor *b);

/* x + shared expert(n) + routed experts(n), in two launches. Available only when decoding on a GPU,
 * for few positions (N k_max <= SKINNY_ASSIGNMENTS), with n a deferred norm and with unquantized
 * weights; see op_takes_skinny_experts. Otherwise use the ops above. */
struct experts {
    struct tensor *gate_up, *down;               /* [E*2F, C], [E*C, F] */
    struct tensor *shared_gate_up, *shared_down; /* [2S, C], [C, S]; NULL: none */
};
bool op_takes_skinny_experts(struct tape *tape, const struct tensor *n, i64 k_max, const struct experts *experts);
struct tensor *op_skinny_experts(struct tape *tape, struct tensor *x, struct tensor *n, const struct routing *routing,
                                 const struct experts *experts);

/* Losses return device arrays with one value per target. The backward reads coefficient [N] (device
 * memory), which the caller fills between the forward and tape_backward. coefficient NULL: forward
 * only. want_entropy also fills `entropy`. */
struct loss {
    float *value, *entropy;
    i64 n;
    float *divergence;          /* from the teacher's distribution; NULL without a teacher */
    struct loss_record *record; /* its backward, for loss_seed_entropy; NULL: none, or gradients are computed already */
};
/* Adds coefficient[i] times the gradient of row i's entropy to that of a loss whose logits are kept. Of bits
 * it is the entropy of all of them, not their mean. Between the forward and tape_backward. */
void loss_seed_entropy(struct loss *loss, const float *coefficient);
/* Distillation: a teacher's rows at the targets. They turn the gradient of a target into that of (1 - w)
 * times the loss plus w times the soft cross entropy against the teacher's distribution. `value` stays
 * the loss. The teacher gets no gradient. */
struct soft_targets {
    const struct tensor *teacher; /* its logits, as the student's; for op_linear_cross_entropy its h */
    const float *weight;          /* [N] w of each target, device memory */
};
/* soft NULL: no teacher, here and below. */
struct loss op_cross_entropy(struct tape *tape, struct tensor *logits, const i32 *target, const float *coefficient,
                             bool want_entropy, const struct soft_targets *soft);
/* Cross entropy of the logits h w^T, computed one chunk of rows at a time to bound memory.
 * coefficient [N] must be filled before the call, because gradients are computed in the same pass.
 * NULL: forward only. */
struct loss op_linear_cross_entropy(struct tape *tape, struct tensor *h, struct tensor *w, const i32 *target,
                                    const float *coefficient, bool want_entropy, const struct soft_targets *soft);
/* End of the piece of rows of n, from `first` on, whose logits over the head w are in memory at a time. */
i64 logits_end(const struct tape *tape, const struct tensor *w, i64 first, i64 n);
struct loss op_bit_cross_entropy(struct tape *tape, struct tensor *logits, const u8 *bits, const float *coefficient,
                                 bool want_entropy, const struct soft_targets *soft);
/* Mean over the columns of the distance, per row. y is not differentiated. */
struct loss op_distance(struct tape *tape, struct tensor *x, struct tensor *y, enum distance kind,
                        const float *coefficient);
/* Spectral convergence |x - y| / |y| of groups of `rows` rows, F32, norms over a group: one value a group,
 * whose gradient to x is times `scale`. y is not differentiated. */
struct loss op_convergence(struct tape *tape, struct tensor *x, struct tensor *y, i64 rows, float scale);
/* A loss whose gradient is computed elsewhere: the backward adds `gradient`, shaped as x, to that of x.
 * It is device memory, read when the backward reaches it. */
void op_add_gradient(struct tape *tape, struct tensor *x, struct matrix gradient);
/* Entropy of a bitwise code (kernels.h, bit_entropy): value [1], magnitude [scale_count]. x [n*h*w,
 * d] was quantized to u. Gradients reach x only through the area means of u, not through the bits
 * of coarser scales. */
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
/* Sounds (ops_sound.c), all F32. Spectra [N, 2 bins] of logarithms of magnitudes and phases x (kernels.h). */
struct tensor *op_polar(struct tape *tape, struct tensor *x);
/* Magnitudes [B (n / hop + 1), n_fft / 2 + 1] of the signals x [B, n], as op stft. */
struct tensor *op_stft_magnitude(struct tape *tape, struct tensor *x, i64 n_fft, i64 hop);
/* ln(1 + x / unit) of magnitudes x. */
struct tensor *op_log1p(struct tape *tape, struct tensor *x, float unit);
/* Signals [B, T hop] of T spectra each, [B T, n_fft + 2]: the window of spectrum t begins at sample t hop and adds
 * to those before it, so samples before (t + 1) hop depend on no later spectrum. n_fft is R hop, R at least 3; the
 * first (R - 1) hop samples, under fewer windows, fade in. */
struct tensor *op_stft_inverse(struct tape *tape, struct tensor *spectrum, i64 signals, i64 n_fft, i64 hop);
/* Straight-through estimator: has the values of y; its gradient goes to x unchanged. */
struct tensor *op_straight_through(struct tape *tape, struct tensor *x, struct tensor *y);

#endif
