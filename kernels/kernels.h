/* kernels: the machine. One list of ops; each backend implements it in files of the op's name.
 *
 * Contract, once for all ops:
 * - The first argument is the device. Calls are queued in order; on the CPU they have run when they return.
 * - `struct matrix` operands are row-major; `stride` counts elements between rows. Outputs come first.
 * - An output is overwritten unless its op says it adds; `bool add` adds to what stands there instead.
 * - Outputs never overlap inputs, except where an op says it may run in place.
 * - dtypes: activations ("a" below) are F32 or BF16, all of one call alike unless stated; statistics, losses, routing
 *   weights and gradients of weights are F32; ids, counts and offsets I32. Sums are taken in f32 in an order fixed by
 *   shapes alone: bits do not depend on the number of threads.
 * - No shape depends on data. True counts (rows of each expert) are I32 in device memory, buffers have their bound.
 * - Pointers are device memory, and so is what matrices, groups and intervals point to. Host memory are i64 arrays
 *   (shapes, orders, scales) and the structs themselves that are passed by pointer. Bad shapes are panics: the caller's
 *   program is wrong.
 *
 * Letters: N positions or rows, C width, H query heads, G key-value heads, D head width, E experts, K top-k, F expert
 * width, V vocabulary or classes, d bits of a vision token. */
#ifndef WEFT_KERNELS_H
#define WEFT_KERNELS_H
#include "core/core.h"
#include "kernels/formula.h"

struct device;

struct matrix {
    void *data;
    enum dtype dtype;
    i64 rows, columns, stride;
    const void *packed; /* the backend's own image of the same numbers (op pack_weight); NULL: none */
};
static inline struct matrix matrix_of(void *data, enum dtype dtype, i64 rows, i64 columns)
{
    return (struct matrix){data, dtype, rows, columns, columns, NULL};
}
/* Columns [first, first + count) of a matrix, borrowed. */
static inline struct matrix matrix_columns(struct matrix m, i64 first, i64 count)
{
    m.data = (char *)m.data + first * (m.dtype == DTYPE_F32 ? 4 : 2);
    m.columns = count;
    m.packed = NULL;
    return m;
}
static inline struct matrix matrix_rows(struct matrix m, i64 first, i64 count)
{
    m.data = (char *)m.data + first * m.stride * (m.dtype == DTYPE_F32 ? 4 : 2);
    m.rows = count;
    m.packed = NULL;
    return m;
}

/* A weight in few bits: w[r, c] = scale[r] . v, v whole numbers from -127 to 127 (narrow.h). Each part begins a strip
 * of NARROW_ROWS rows, and rows and columns are filled up with zeros:
 *
 *     8 bits    codes [strips][steps of 64 columns][32 rows][64], v itself
 *     4 bits    codes [strips][steps][32 rows][32]: column c of a step in the low half of byte c, column 32 + c in the
 *               high one; factors [strips][steps][32 rows][2], of 32 columns each: v follows from code and factor,
 *               and is zero where the factor is NARROW_FACTOR_ZERO */
enum { NARROW_ROWS = 32, NARROW_COLUMNS = 64, NARROW_FACTOR_ZERO = 64, NARROW_FACTOR_COUNT = 129 };
struct narrow {
    const void *codes;
    const u8 *factors;        /* of 4 bits */
    const float *scale;       /* [parts . rows, each part rounded up to strips] */
    i64 parts, rows, columns; /* rows of a part */
    int bits;                 /* 8 or 4 */
};
FORMULA i64 narrow_strips(i64 rows) /* of a part */
{
    return (rows + NARROW_ROWS - 1) / NARROW_ROWS;
}
FORMULA i64 narrow_steps(i64 columns)
{
    return (columns + NARROW_COLUMNS - 1) / NARROW_COLUMNS;
}

/* A scale of a picture's code: h x w positions, row-major. */
struct scale {
    i64 h, w;
};
FORMULA i64 scale_positions(struct scale scale)
{
    return scale.h * scale.w;
}

/* Floats of 8 bits (OCP OFP8): 4 bits of exponent, 3 of mantissa, without infinities, up to 448 ("e4m3fn"); 5 and 2, up
 * to 57344. A block of a matrix has a power of two beside its numbers, as UE8M0 says it. Blocks begin anew at each
 * part, of which rows / parts rows are one, and at each group; the last ones are smaller. */
enum fp8 { FP8_E4M3, FP8_E5M2 };
enum { FP8_BLOCK = 128 };
enum fp8_blocks {
    FP8_ALONG_ROWS,    /* 1 x 128 */
    FP8_ALONG_COLUMNS, /* 128 x 1 */
    FP8_TILES,         /* 128 x 128 */
};

/* Rows sorted by group (expert). Group g owns rows offsets[g] .. offsets[g+1]-1; offsets are multiples of GROUP_ROWS,
 * rows a group was rounded up by are zero. member[g] is the slice of the stacked weights group g uses. */
enum { GROUP_ROWS = 16 };
struct groups {
    i64 count;
    const i32 *offsets; /* [count + 1] */
    const i32 *member;  /* [count]; NULL: identity */
};
static inline i64 groups_rows_bound(i64 assignments, i64 count) /* rows a sorted buffer may need */
{
    return round_up(assignments + min_i64(count, assignments) * (GROUP_ROWS - 1), GROUP_ROWS);
}

/* Assignments of N positions to K experts each as rows sorted by expert, outputs: group e is expert e's, within it rows
 * follow positions. */
struct sorted_order {
    i32 *offsets;               /* [E + 1] */
    i32 *slot;                  /* [N, K] row of each assignment or -1 */
    i32 *source;                /* [rows_bound] position of each row or -1 */
    i64 rows_bound, group_rows; /* offsets are multiples of group_rows */
};

/* A factor of products in 8 bits. They sum along `depth`, a multiple of 128, which zeros fill up; number (o, d) is what
 * codes [outer, depth] say times scales [depth / 128, outer]. */
struct fp8_matrix {
    u8 *codes;
    float *scales; /* powers of two */
    enum fp8 format;
    enum fp8_blocks blocks;
    i64 outer, depth;
};
FORMULA i64 fp8_bands(i64 rows, i64 parts, const struct groups *groups) /* of 128 rows; of groups: at most so many */
{
    return groups ? rows / FP8_BLOCK + groups->count : parts * ((rows / parts + FP8_BLOCK - 1) / FP8_BLOCK);
}
static inline i64 fp8_matrix_bytes(const struct fp8_matrix *m)
{
    return m->outer * m->depth + m->outer * m->depth / FP8_BLOCK * 4;
}
/* Of a matrix that is rounded along its columns; or `turned`, along its rows, where its columns (of each part) are
 * outer and each group begins at a multiple of 128. Without memory. */
static inline struct fp8_matrix fp8_matrix_of(enum fp8 format, enum fp8_blocks blocks, struct matrix x, bool turned,
                                              i64 parts, const struct groups *groups)
{
    i64 bands = fp8_bands(x.rows, parts, groups) / parts, across = (x.columns + FP8_BLOCK - 1) / FP8_BLOCK;
    return (struct fp8_matrix){
        NULL, NULL, format, blocks, turned ? parts * x.columns : x.rows, FP8_BLOCK * (turned ? bands : across)};
}
static inline void fp8_matrix_place(struct fp8_matrix *m, void *memory)
{
    m->codes = (u8 *)memory;
    m->scales = (float *)(m->codes + m->outer * m->depth);
}

/* Where q, k and v beside each other, [N, (H+2G) D], go: q and k turn in place as `rope` turns them, then row i of k
 * and v becomes row index[i] of theirs [*, G*D], -1: of none. Indices differ. */
struct rope_cache {
    struct matrix k, v;
    const float *positions; /* [N,3] */
    const i32 *index;       /* [N] */
    i64 heads, kv_heads;    /* H, G */
    i64 t_pairs;
    float theta;
};

/* What stands around matmul_few's product; zeros: nothing. Norms are taken by whoever multiplies: of more than
 * FEW_NORMED rows that is more than a launch. */
enum { FEW_ROWS = 64, FEW_NORMED = 16 };
struct around {
    struct matrix norm;             /* [1,C] */
    struct matrix add;              /* as out */
    const struct rope_cache *cache; /* of out */
    bool gated;
    float eps;
};

/* Experts, routed and shared, of few rows, as decoding wants them: N positions of K of them each, at most FEW_NORMED
 * and N K FEW_ASSIGNMENTS. Rows are sorted as `route` sorts them. All of one dtype. */
enum { FEW_ASSIGNMENTS = 128 };
struct few_experts {
    struct matrix gate_up, down;               /* stacked: [E 2F, C], [E C, F] */
    struct matrix shared_gate_up, shared_down; /* [2S, C], [C, S]; without data: there is none */
    i64 experts;                               /* E */
    struct groups groups;
    i64 rows_bound;       /* R */
    const i32 *source;    /* [R] position of each row, -1: of none */
    const i32 *slot;      /* [N,K] row of each assignment or -1 */
    const float *weights; /* [N,K] */
    i64 k_max;
};

/* How a router chooses and weighs. The weight of a chosen expert is p / max(sum of the chosen p, norm_min): with a
 * small norm_min weights add up to 1, and one expert alone always weighs 1, so that its router learns nothing; with 1,
 * which no sum passes, the weight is p itself (Fedus et al. 2021, eq. 2). */
struct router {
    i64 k_max; /* K */
    float norm_min;
};

/* Which keys a query sees: query i sees key j iff begin[j] <= i < end[j] and not hole_begin[j] <= i < hole_end[j]. */
struct intervals {
    i64 queries, keys;
    const i32 *query;                               /* [queries] index of each query, ascending */
    const i32 *begin, *end, *hole_begin, *hole_end; /* [keys] */
};

/* A convolution over (time, height, width); positions are rows, channels columns (N T H W C). Weights are
 * [out, kernel_t * kernel_h * kernel_w * in]. Padding is zero. Cross-correlation, as everywhere in this field. */
struct conv {
    i64 batch, in, out;
    i64 size[3]; /* time, height, width of the input */
    i64 kernel[3], stride[3], dilation[3];
    i64 pad_front[3], pad_back[3]; /* causal in time: all of it in front */
};
static inline i64 conv_out_size(const struct conv *conv, int axis)
{
    i64 reach = conv->dilation[axis] * (conv->kernel[axis] - 1) + 1;
    return (conv->size[axis] + conv->pad_front[axis] + conv->pad_back[axis] - reach) / conv->stride[axis] + 1;
}

struct adamw {
    float lr, beta1, beta2, eps, decay; /* decay: lr * decay is taken off first (decoupled) */
    i64 step;                           /* counted from 1, for the bias corrections */
    bool cautious;       /* elements whose first moment and gradient differ in sign only decay (Liang et al. 2024, arXiv
                            2411.16085; the factor that makes up for them is left to lr) */
    bool cautious_decay; /* only elements that the first moment draws to zero decay (Chen et al. 2025, arXiv 2510.12402)
                          */
};

/* Elements the optimizer moves alike: a weight, or one slice of a stacked one, as far as this rank updates it. */
struct update {
    float *p, *m, *v;      /* F32 master and moments [count] */
    void *copy;            /* image of p that products read; NULL: none */
    enum dtype copy_dtype; /* BF16 or F32 */
    const float *g;        /* gradient [count]; NULL: zero */
    const u8 *written;     /* 0 there: no gradient was written, it is zero; NULL: one was */
    i64 count;
    float lr_factor, decay_factor; /* of this weight: times lr and decay */
};
struct updates {
    i64 count;
    const struct update *list;
};

enum activation { ACTIVATION_SILU, ACTIVATION_GELU /* erf form */ };
enum resize { RESIZE_AREA, RESIZE_BILINEAR };
enum distance { DISTANCE_L1, DISTANCE_L2 /* squared */ };
enum map { MAP_LOG, MAP_MAX, MAP_EXP };

/* Codebooks of a residual vector quantiser in training: L levels of K words of `width`. Rows are drawn by (step, level,
 * code, attempt) under `key`. */
struct codebooks {
    i64 levels, codes, width;
    double decay; /* of the running counts and sums */
    i64 patience;
    struct rng_key key;
    i64 step;
};

/* How a code is drawn from logits. temperature 0: greedy, the smallest id of equals. */
struct sampling {
    float temperature;
    float top_p; /* 1: all; nucleus over the sorted probabilities otherwise */
    i64 top_k;   /* 0: all */
    struct rng_key key;
};

/* Of the op `surrogate`. */
enum { SURROGATE_MISC, SURROGATE_GSPO, SURROGATE_GRPO };
struct surrogate_options {
    int algorithm;
    double eps, mismatch_low, mismatch_high, kl;
    float scale; /* of coefficients */
};

/* clang-format off */
#define WEFT_OPS(OP)                                                                                                   \
    /* ---- products ----                                                                                              \
     * out[M,N] = op(a) op(b), op transposes where asked; zeros for a depth of 0. a, b alike F32 or BF16; out F32, or  \
     * BF16 where a is. */                                                                                             \
    OP(matmul, (struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,          \
                bool transpose_b, bool add), (device, out, a, transpose_a, b, transpose_b, add))                       \
    /* Grouped rows: out[r] = a[r] W_g^T (transpose) or a[r] W_g, W stacked [E, w.rows / E, w.columns].                \
     * Rows past offsets[count] are not written. */                                                                    \
    OP(matmul_grouped, (struct device *device, struct matrix out, struct matrix a, struct matrix w, i64 experts,       \
                        bool transpose, const struct groups *groups),                                                  \
                       (device, out, a, w, experts, transpose, groups))                                                \
    /* y[r] = swiglu(gate_up[r]), gate_up[r] = x[r] W_g^T, W stacked [E, 2F, C]; gate_up [R,2F] as it was rounded is   \
     * kept where its data is not NULL. rows [R] I32: x[r] is row rows[r] of x, zeros for -1; NULL: row r. Rows past   \
     * offsets[count] are not written. */                                                                              \
    OP(matmul_grouped_swiglu, (struct device *device, struct matrix y, struct matrix gate_up, struct matrix x,         \
                               const i32 *rows, struct matrix w, i64 experts, const struct groups *groups),            \
                              (device, y, gate_up, x, rows, w, experts, groups))                                       \
    /* Gradient of stacked weights: dw_e = dy_e^T x_e (F32). A slice without rows is left as it is; one with rows      \
     * is overwritten where written[e] is 0, then marked, and added to where it is 1. written [E] u8. rows: of x, as   \
     * matmul_grouped_swiglu has them. */                                                                              \
    OP(matmul_grouped_weights, (struct device *device, struct matrix dw, u8 *written, i64 experts, struct matrix dy,   \
                                struct matrix x, const i32 *rows, const struct groups *groups),                        \
                               (device, dw, written, experts, dy, x, rows, groups))                                    \
    /* The backend's image of a weight [parts, w.rows / parts, w.columns] for products with it or its slices, of as many  \
     * bytes as kernels_packed_bytes says. Products give the same bits with an image or without. */                    \
    OP(pack_weight, (struct device *device, void *image, struct matrix w, i64 parts), (device, image, w, parts))       \
    /* out[r] = a[r] W_g^T with weights in few bits; groups NULL: one part, all rows. Rows past offsets[count] are not    \
     * written; out F32, or as a. What a row becomes does not depend on the others; the CPU rounds it to 16 bits below \
     * its largest number. */                                                                                          \
    OP(matmul_narrow, (struct device *device, struct matrix out, struct matrix a, const struct narrow *w,              \
                       const struct groups *groups), (device, out, a, w, groups))                                      \
    /* Few rows and what stands around their product, as decoding wants it: out[r] = n(x[r]) w^T + add[r]; or swiglu of \
     * the two halves of n(x[r]) w^T where `gated`; or n(x[r]) w^T turned and cached as rope_cache does. n is RMSNorm  \
     * by `norm`. What stands between is rounded as by one op after the other: n(x) to x's dtype, products to out's. At\
     * most FEW_ROWS rows, FEW_NORMED with a norm. w as x, or F32; out F32, or BF16 where x is. */                     \
    OP(matmul_few, (struct device *device, struct matrix out, struct matrix x, struct matrix w,                        \
                    const struct around *around), (device, out, x, w, around))                                         \
    /* inside[r] = swiglu of the two halves of n(x[source[r]]) W_g^T, shared = the same of n(x) and the shared expert. \
     * n is RMSNorm by `norm` [1,C]. Rows of no position are zeros, those past offsets[count] are not written. */      \
    OP(experts_few_in, (struct device *device, struct matrix inside, struct matrix shared, struct matrix x,            \
                        struct matrix norm, float eps, const struct few_experts *experts),                             \
                       (device, inside, shared, x, norm, eps, experts))                                                \
    /* out[i] = x[i] + shared[i] D_s^T + sum_k weights[i,k] inside[slot[i,k]] D_g^T, products rounded before sums. */  \
    OP(experts_few_out, (struct device *device, struct matrix out, struct matrix x, struct matrix inside,              \
                         struct matrix shared, const struct few_experts *experts),                                     \
                        (device, out, x, inside, shared, experts))                                                     \
    /* x as numbers of a format times a power of two s for each block, to the nearest of those, ties to the even one: BF16\
     * holds all of them, so that products of them are those of 8 bits with sums in f32. s is the least with max |x| of \
     * the block <= 448 s (57344 s), but from 2^-117 to 2^119 (2^-110 to 2^112): no result is subnormal or infinite, and\
     * what is past 448 s becomes that. NaN and infinities become NaN and count for no block; a zero keeps its sign.   \
     * groups NULL: all rows; else one part, and rows past offsets[count] are not written. out as x, may be it. */     \
    OP(round_fp8, (struct device *device, struct matrix out, struct matrix x, enum fp8 format,                         \
                   enum fp8_blocks blocks, i64 parts, const struct groups *groups),                                    \
                  (device, out, x, format, blocks, parts, groups))                                                     \
    /* The numbers of round_fp8 as codes and powers of two. out is what fp8_matrix_of says of x: along its columns, by     \
     * blocks 1 x 128 or tiles; or turned, by blocks 128 x 1 or tiles. Of groups only their own rows are written. */   \
    OP(pack_fp8, (struct device *device, const struct fp8_matrix *out, struct matrix x, bool turned, i64 parts,        \
                  const struct groups *groups), (device, out, x, turned, parts, groups))                               \
    /* out[r, c] = a[r] . b[c], of groups b[member . columns + c]; a is e4m3 or e5m2, b e4m3. Products of 128 of the      \
     * depth are summed by themselves (Hopper keeps about 14 bits of such a sum), then in f32. Rows past offsets[count]\
     * are not written; out F32 or BF16. */                                                                            \
    OP(matmul_fp8, (struct device *device, struct matrix out, const struct fp8_matrix *a, const struct fp8_matrix *b,  \
                    const struct groups *groups, bool add), (device, out, a, b, groups, add))                          \
    /* As matmul_grouped_weights, of factors that were turned by these groups. */                                      \
    OP(matmul_fp8_weights, (struct device *device, struct matrix dw, u8 *written, i64 experts,                         \
                            const struct fp8_matrix *dy, const struct fp8_matrix *x, const struct groups *groups),     \
                           (device, dw, written, experts, dy, x, groups))                                              \
    /* y = conv(x, w); w BF16 or F32 as x. dx (adds if asked), dw (F32, adds if asked). */                             \
    OP(conv, (struct device *device, struct matrix y, struct matrix x, struct matrix w, const struct conv *conv),      \
             (device, y, x, w, conv))                                                                                  \
    OP(conv_backward_data, (struct device *device, struct matrix dx, struct matrix dy, struct matrix w,                \
                            const struct conv *conv, bool add), (device, dx, dy, w, conv, add))                        \
    OP(conv_backward_weights, (struct device *device, struct matrix dw, struct matrix dy, struct matrix x,             \
                               const struct conv *conv, bool add), (device, dw, dy, x, conv, add))                     \
    /* ---- rows ----                                                                                                  \
     * y = w . x . r, r = rsqrt(mean(x^2) + eps) (Zhang & Sennrich 2019); rstd [N] keeps r. x/rms is rounded to the    \
     * activation's dtype before the product with w, as HF does. w may be NULL: 1. */                                  \
    OP(rmsnorm, (struct device *device, struct matrix y, float *rstd, struct matrix x, struct matrix w, float eps),    \
                (device, y, rstd, x, w, eps))                                                                          \
    /* dx (adds if add_dx) and dw [1,C] F32 (adds if add_dw; NULL data: not wanted). */                                \
    OP(rmsnorm_backward, (struct device *device, struct matrix dx, struct matrix dw, struct matrix dy,                 \
                          struct matrix x, struct matrix w, const float *rstd, bool add_dx, bool add_dw),              \
                         (device, dx, dw, dy, x, w, rstd, add_dx, add_dw))                                             \
    /* sum = a + b, y = rmsnorm(sum): the residual stream in one pass. sum may be b. */                                \
    OP(add_rmsnorm, (struct device *device, struct matrix sum, struct matrix y, float *rstd, struct matrix a,          \
                     struct matrix b, struct matrix w, float eps), (device, sum, y, rstd, a, b, w, eps))               \
    /* In place on x [N, heads * D]: pairs (2j, 2j+1) turn by position . theta^(-2j/D) (Su et al. 2021). Of the D/2    \
     * pairs the last `t_pairs` take the axis t, the others h (even j) and w (odd j); positions [N,3] F32 (t,h,w).     \
     * inverse turns back: the backward. */                                                                            \
    OP(rope, (struct device *device, struct matrix x, const float *positions, i64 heads, float theta, i64 t_pairs,     \
              bool inverse), (device, x, positions, heads, theta, t_pairs, inverse))                                   \
    /* x [N, (H+2G) D] = q, k, v goes where the struct says. */                                                        \
    OP(rope_cache, (struct device *device, struct matrix x, const struct rope_cache *to), (device, x, to))             \
    /* y[N,F] = silu(gate) . up, gate_up [N,2F] gate first (Shazeer 2020). The backward recomputes y's factors and may \
     * run in place on gate_up; dscales [N] (NULL: not wanted) = dy[i] . y[i], the gradient by a factor 1 of row i. */ \
    OP(swiglu, (struct device *device, struct matrix y, struct matrix gate_up), (device, y, gate_up))                  \
    OP(swiglu_backward, (struct device *device, struct matrix dgate_up, float *dscales, struct matrix dy,              \
                         struct matrix gate_up), (device, dgate_up, dscales, dy, gate_up))                             \
    OP(activate, (struct device *device, struct matrix y, struct matrix x, enum activation kind),                      \
                 (device, y, x, kind))                                                                                 \
    OP(activate_backward, (struct device *device, struct matrix dx, struct matrix dy, struct matrix x,                 \
                           enum activation kind, bool add), (device, dx, dy, x, kind, add))                            \
    /* out = scale . x (+ out if add); dtypes may differ: this is also the cast. Like ones may run in place. */        \
    OP(copy, (struct device *device, struct matrix out, struct matrix x, float scale, bool add),                       \
             (device, out, x, scale, add))                                                                             \
    /* out = a + b; may run in place on a. */                                                                          \
    OP(add, (struct device *device, struct matrix out, struct matrix a, struct matrix b), (device, out, a, b))         \
    OP(zero, (struct device *device, void *data, i64 bytes), (device, data, bytes))                                    \
    OP(fill, (struct device *device, float *out, i64 count, float value), (device, out, count, value))                 \
    OP(fill_ids, (struct device *device, i32 *out, i64 count, i32 value), (device, out, count, value))                 \
    OP(copy_ids, (struct device *device, i32 *out, const i32 *ids, i64 count), (device, out, ids, count))              \
    /* out[i] = scale . bytes[i] + shift, dense. */                                                                    \
    OP(widen_bytes, (struct device *device, struct matrix out, const u8 *bytes, float scale, float shift),             \
                    (device, out, bytes, scale, shift))                                                                \
    /* bytes[i] = (x[i] + shift) . scale, the nearest of 0 to 255, dense. */                                           \
    OP(narrow_bytes, (struct device *device, u8 *bytes, struct matrix x, float shift, float scale),                    \
                     (device, bytes, x, shift, scale))                                                                 \
    /* out = ln max(x, least), max(x, least) or e^x, F32; may run in place. */                                         \
    OP(map, (struct device *device, struct matrix out, struct matrix x, enum map kind, float least),                   \
            (device, out, x, kind, least))                                                                             \
    /* x[i,c] *= by[i / repeat, c], F32. */                                                                            \
    OP(multiply_rows, (struct device *device, struct matrix x, const float *by, i64 repeat),                           \
                      (device, x, by, repeat))                                                                         \
    /* x *= over / (under + eps), F32. */                                                                              \
    OP(multiply_ratio, (struct device *device, struct matrix x, struct matrix over, struct matrix under, float eps),   \
                       (device, x, over, under, eps))                                                                  \
    /* out = (x + shift) / divisor, F32; may run in place. */                                                          \
    OP(shift_divide, (struct device *device, struct matrix out, struct matrix x, float shift, float divisor),          \
                     (device, out, x, shift, divisor))                                                                 \
    /* mean[i] = keep . mean[i] + (1 - keep) . x[i], in f64. */                                                        \
    OP(running_mean, (struct device *device, float *mean, const float *x, i64 count, double keep),                     \
                     (device, mean, x, count, keep))                                                                   \
    /* out[i,c] = x[i,c] + bias[c]; may run in place. out[c] = sum over rows of x (F32, adds if asked). */             \
    OP(bias_add, (struct device *device, struct matrix out, struct matrix x, struct matrix bias),                      \
                 (device, out, x, bias))                                                                               \
    OP(column_sums, (struct device *device, struct matrix out, struct matrix x, bool add), (device, out, x, add))      \
    /* out[i] = table[index[i]]; index -1 gives zeros. scatter: out[index[i]] += x[i] in order of i; -1 is skipped;    \
     * out F32 or as x. index has x.rows (resp. out.rows) entries; equal entries are allowed. */                       \
    OP(gather, (struct device *device, struct matrix out, struct matrix table, const i32 *index, bool add),            \
               (device, out, table, index, add))                                                                       \
    OP(scatter_add, (struct device *device, struct matrix out, struct matrix x, const i32 *index),                     \
                    (device, out, x, index))                                                                           \
    /* out[index[i]] = x[i]; indices differ, -1 is skipped. */                                                         \
    OP(scatter, (struct device *device, struct matrix out, struct matrix x, const i32 *index),                         \
                (device, out, x, index))                                                                               \
    /* ---- attention ----                                                                                             \
     * out[i, h] = sum_j softmax_j(q_i k_j D^-1/2) v_j over the keys that intervals let query i see; q, out [Nq, H*D]; \
     * k, v [Nk, G*D]; lse [Nq, H] F32 keeps log-sum-exp (-inf and a zero output where no key is seen). Tiles that     \
     * are wholly masked cost nothing (Dao et al. 2022; FlashMask, arXiv 2410.01359). */                               \
    OP(attention, (struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,             \
                   struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals),                       \
                  (device, out, lse, q, k, v, heads, kv_heads, intervals))                                             \
    OP(attention_backward, (struct device *device, struct matrix dq, struct matrix dk, struct matrix dv,               \
                            struct matrix dout, struct matrix out, const float *lse, struct matrix q,                  \
                            struct matrix k, struct matrix v, i64 heads, i64 kv_heads,                                 \
                            const struct intervals *intervals),                                                        \
                           (device, dq, dk, dv, dout, out, lse, q, k, v, heads, kv_heads, intervals))                  \
    /* ---- mixture of experts ----                                                                                    \
     * p = softmax(logits) [N,E] F32; experts [N,K] = the topk[i] largest of p + bias, falling, smaller id first among \
     * equals, -1 beyond topk[i]; weights [N,K] as struct router says, 0 beyond. usage [E] F32 += 1 per assignment of a\
     * position with counted[i]; sorted: the order of experts. (Wang et al. 2024, arXiv 2408.15664: bias chooses, never\
     * weighs.) */                                                                                                     \
    OP(route, (struct device *device, float *p, i32 *experts, float *weights, const struct sorted_order *sorted,       \
               float *usage, struct matrix logits, const float *bias, const i32 *topk, const u8 *counted,              \
               const struct router *router),                                                                           \
              (device, p, experts, weights, sorted, usage, logits, bias, topk, counted, router))                       \
    /* The same with experts given (choices made elsewhere are replayed): all else follows from them. */               \
    OP(route_given, (struct device *device, float *p, float *weights, const struct sorted_order *sorted, float *usage, \
                     const i32 *experts, struct matrix logits, const u8 *counted, const struct router *router),        \
                    (device, p, weights, sorted, usage, experts, logits, counted, router))                             \
    /* dlog_weights [N,K]: gradients by the weights' logarithms, which are the weights times those by themselves. */   \
    OP(route_backward, (struct device *device, struct matrix dlogits, const float *dlog_weights, const float *p,       \
                        const i32 *experts, const float *weights, const struct router *router),                        \
                       (device, dlogits, dlog_weights, p, experts, weights, router))                                   \
    /* The order of experts [N,K] alone. */                                                                            \
    OP(route_sort, (struct device *device, const struct sorted_order *sorted, const i32 *experts, i64 n, i64 k_max,    \
                    i64 experts_count),                                                                                \
                   (device, sorted, experts, n, k_max, experts_count))                                                 \
    /* Rows that arrive from R ranks lie by rank, then by expert: from [R, E] rows each. regroup [rows_bound]: the     \
     * arrived row of each row grouped by expert, or -1, each group beginning at a multiple of GROUP_ROWS; arrived     \
     * [sum of from] its inverse; offsets [E+1]. part > 0: those of rank r begin at row r part, and arrived [R part] is\
     * -1 behind the last of each. */                                                                                  \
    OP(route_regroup, (struct device *device, i32 *offsets, i32 *regroup, i32 *arrived, i64 rows_bound,                \
                       const i32 *from, i64 ranks, i64 experts, i64 part),                                             \
                      (device, offsets, regroup, arrived, rows_bound, from, ranks, experts, part))                     \
    /* counts [experts]: rows of each expert of a layer. offsets [kept + 1] of those that are kept, member [kept] which  \
     * they are (NULL: the first ones). */                                                                             \
    OP(route_count, (struct device *device, i32 *counts, const i32 *offsets, const i32 *member, i64 kept, i64 experts),\
                    (device, counts, offsets, member, kept, experts))                                                  \
    /* Rows sorted by expert without padding go to R ranks of E/R experts each, `part` rows to each: of rank r from row\
     * r part on. counts [E]: rows of each expert, then of those that have room. sorted [assignments]: position of each\
     * row, source [R part] of each in its part or -1; slot [assignments]: row of each, then in its part, or -1. Where a\
     * rank has no room for its rows, over [3] (F64) becomes infinite at [0], and [1], [2] the most rows one had so far\
     * and their part. */                                                                                              \
    OP(route_parts, (struct device *device, i32 *source, i32 *slot, i32 *counts, double *over, const i32 *sorted,      \
                     i64 assignments, i64 part, i64 ranks, i64 experts),                                               \
                    (device, source, slot, counts, over, sorted, assignments, part, ranks, experts))                   \
    /* out[i] = a[i] + b[i] + sum_j weights[i,j] y[slot[i,j]] (weights NULL: 1; a, b as out, either may be out or have \
     * no data: 0); dy[slot] = weight . dout. Rows of dy no assignment owns, up to offsets[E], become zero. */         \
    OP(combine, (struct device *device, struct matrix out, struct matrix a, struct matrix b, struct matrix y,          \
                 const i32 *slot, const float *weights, i64 k_max), (device, out, a, b, y, slot, weights, k_max))      \
    OP(combine_backward, (struct device *device, struct matrix dy, struct matrix dout, const i32 *slot,                \
                          const i32 *source, const i32 *rows, const float *weights, i64 k_max),                        \
                         (device, dy, dout, slot, source, rows, weights, k_max))                                       \
    /* Rows [0, *rows) of the sorted buffer: out[r] = x[source[r]], zero where source is -1. */                        \
    OP(dispatch, (struct device *device, struct matrix out, struct matrix x, const i32 *source, const i32 *rows),      \
                 (device, out, x, source, rows))                                                                       \
    /* use += usage; bias_e += speed . sign(mean(usage) - usage_e), NULL: not here, nor where sum[0] (F64) is not      \
     * finite, as in adamw; usage is cleared. use [E] F64. (aux-loss-free balancing) */                                \
    OP(route_balance, (struct device *device, float *bias, float *usage, double *use, i64 experts, const double *sum,  \
                       float speed), (device, bias, usage, use, experts, sum, speed))                                  \
    /* ---- losses: one value a target; the gradient's coefficient is read in the backward ----                        \
     * loss[i] = lse[i] - logits[i, target[i]] (target -100: 0); entropy [N] of the distribution if not NULL. */       \
    OP(cross_entropy, (struct device *device, float *loss, float *lse, float *entropy, struct matrix logits,           \
                       const i32 *target), (device, loss, lse, entropy, logits, target))                               \
    /* dlogits = coefficient[i] . (softmax - onehot); dlogits F32 or BF16. */                                          \
    OP(cross_entropy_backward, (struct device *device, struct matrix dlogits, struct matrix logits,                    \
                                const float *lse, const i32 *target, const float *coefficient),                        \
                               (device, dlogits, logits, lse, target, coefficient))                                    \
    /* loss[i] = mean over the d bits of binary cross entropy with logits; bits u8 0 or 1 [N,d]. */                    \
    OP(bit_cross_entropy, (struct device *device, float *loss, float *entropy, struct matrix logits,                   \
                           const u8 *bits), (device, loss, entropy, logits, bits))                                     \
    OP(bit_cross_entropy_backward, (struct device *device, struct matrix dlogits, struct matrix logits,                \
                                    const u8 *bits, const float *coefficient),                                         \
                                   (device, dlogits, logits, bits, coefficient))                                       \
    /* loss[i] = mean over columns of |x - y| or (x - y)^2. dx = coefficient[i] . derivative / columns. */             \
    OP(distance, (struct device *device, float *loss, struct matrix x, struct matrix y, enum distance kind),           \
                 (device, loss, x, y, kind))                                                                           \
    OP(distance_backward, (struct device *device, struct matrix dx, struct matrix x, struct matrix y,                  \
                           enum distance kind, const float *coefficient, bool add),                                    \
                          (device, dx, x, y, kind, coefficient, add))                                                  \
    /* A loss's coefficients: out[i] = scale . weight[i], the product in f64. */                                       \
    OP(coefficients, (struct device *device, float *out, const float *weight, i64 n, double scale),                    \
                     (device, out, weight, n, scale))                                                                  \
    /* ---- optimizer ----                                                                                             \
     * sum[0] (F64) += squares of all gradients, in an order that counts fix. */                                       \
    OP(sum_squares, (struct device *device, double *sum, const struct updates *updates), (device, sum, updates))       \
    /* AdamW (Loshchilov & Hutter 2019) over the list. norm = sqrt(sum[0]): where it is not finite nothing moves; where\
     * clip > 0 and norm > clip gradients are taken times clip / (norm + 1e-6). */                                     \
    OP(adamw, (struct device *device, const struct updates *updates, const double *sum, double clip,                   \
               const struct adamw *adamw), (device, updates, sum, clip, adamw))                                        \
    /* Slices of stacked gradients dw [parts, rows / parts] with written[part] 0 become zero, and are marked. */       \
    OP(zero_unwritten, (struct device *device, struct matrix dw, u8 *written, i64 parts), (device, dw, written, parts))\
    /* ---- sums for the log, F64, in an order that n fixes ----                                                       \
     * sums[2 s], sums[2 s + 1] += weight[i] / levels times value[i], and that weight alone; s = stream[i], or 0 where \
     * stream is NULL. */                                                                                              \
    OP(sum_by_stream, (struct device *device, double *sums, const float *value, const float *weight, const u8 *stream, \
                       i64 n, i64 levels), (device, sums, value, weight, stream, n, levels))                           \
    /* sum[0] += value[0] + ... + value[n-1]. */                                                                       \
    OP(sum_values, (struct device *device, double *sum, const float *value, i64 n), (device, sum, value, n))           \
    /* ---- sampling ----                                                                                              \
     * code[i] and its log-probability under the same temperature; draws keyed by (identity[i,0..3]). */               \
    OP(sample, (struct device *device, i32 *code, float *logprob, struct matrix logits, const u32 *identity,           \
                const struct sampling *sampling), (device, code, logprob, logits, identity, sampling))                 \
    OP(sample_bits, (struct device *device, u8 *bits, float *logprob, struct matrix logits, const u32 *identity,       \
                     const struct sampling *sampling), (device, bits, logprob, logits, identity, sampling))            \
    /* out[i,j] F32: the probability with which `sample` draws j from row i; top_k and top_p cut off count as 0. */      \
    OP(probabilities, (struct device *device, struct matrix out, struct matrix logits,                                 \
                       const struct sampling *sampling), (device, out, logits, sampling))                              \
    /* Speculative sampling (Leviathan et al. 2023, algorithm 1): code[i] is of p whatever drew draft[i] from q, both  \
     * [N,V] F32. Three draws u are keyed by identity[i,0..3]. draft[i] -1: by u_0 from p. Else draft[i] where u_1 q < p\
     * there, or where p exceeds q nowhere; otherwise, by u_2, from max(p - q, 0), which is never draft[i]. */           \
    OP(accept, (struct device *device, i32 *code, struct matrix p, struct matrix q, const i32 *draft,                  \
                const u32 *identity, struct rng_key key), (device, code, p, q, draft, identity, key))                  \
    /* Ids that cannot be drawn: logits[i,j] = -1e30 unless bit j % 32 of allowed[set[i]][j / 32] is 1; F32. allowed   \
     * [sets, ceil(V / 32)]; set[i] -1: all may. */                                                                    \
    OP(forbid, (struct device *device, struct matrix logits, const u32 *allowed, const i32 *set),                      \
               (device, logits, allowed, set))                                                                         \
    /* Audio codes drawn for one level: codes[i, level] (of [N, levels]) = drawn[i], or `end` where the frame's level 0\
     * is; row[i] = level . (end + 1) + that code: its row of the stacked embeddings. */                               \
    OP(settle_codes, (struct device *device, i32 *codes, i32 *row, const i32 *drawn, i64 n, i64 levels, i64 level,     \
                      i32 end), (device, codes, row, drawn, n, levels, level, end))                                    \
    /* ---- reinforcement learning ----                                                                                \
     * out[i] = loss[i] + logits[i, target[i]]: the log-sum-exp of a cross entropy from its loss. */                   \
    OP(log_normalizers, (struct device *device, float *out, const float *loss, struct matrix logits,                   \
                         const i32 *target), (device, out, loss, logits, target))                                      \
    /* In place: x[i,j] += to[i] - from[i]; F32. */                                                                    \
    OP(shift_rows, (struct device *device, struct matrix x, const float *to, const float *from), (device, x, to, from))\
    /* Responses y of drawn ids j, response i those from segment[i] to segment[i+1] - 1; loss = -log pi(y_j), the other\
     * log-probabilities as they are. coefficient[j] = scale . weight_i . dJ_i / d log pi(y_j):                        \
     *   r_j = pi(y_j) / pi_old(y_j)    s = exp(mean_j log r_j)    k_j = pi_old(y_j) / pi_rollout(y_j)                 \
     *   M(k) = k if low <= k <= high, else 0                                                                          \
     *   misc   J = 1/|y| sum_j M(k_j) min(s A, clip(s, 1 +- eps) A)                                                   \
     *   gspo   J = M(exp mean_j log k_j) min(s A, clip(s, 1 +- eps) A)                                                \
     *   grpo   J = 1/|y| sum_j M(k_j) min(r_j A, clip(r_j, 1 +- eps) A)                                               \
     * each less kl . mean_j (exp(d) - d - 1), d = log pi_start - log pi. In misc id j carries the gradient of s_j =   \
     * s . pi(y_j) / [pi(y_j)], the denominator constant. old NULL: pi itself; start NULL: no kl. All in f64.          \
     * sums [8] F64 += responses, ids, and over responses the means over ids of what was clipped, masked, of |log k|,  \
     * |r - 1|, the kl term; and weight_i . J_i. */                                                                    \
    OP(surrogate, (struct device *device, float *coefficient, double *sums, const float *loss, const float *old,       \
                   const float *rollout, const float *start, const i32 *segment, const double *advantage,              \
                   const double *weight, i64 responses, const struct surrogate_options *options),                      \
                  (device, coefficient, sums, loss, old, rollout, start, segment, advantage, weight, responses,        \
                   options))                                                                                           \
    /* ---- media ----                                                                                                 \
     * Each of n images [h_in*w_in, C] to [h_out*w_out, C]; F32 or BF16. area: mean over rows floor(i h/H) ..          \
     * ceil((i+1) h/H)-1; bilinear: source max(0, (i+0.5) h/H - 0.5), edges clamped (F.interpolate). backward adds. */ \
    OP(resize, (struct device *device, struct matrix out, struct matrix x, i64 n, i64 h_in, i64 w_in, i64 h_out,       \
                i64 w_out, enum resize kind), (device, out, x, n, h_in, w_in, h_out, w_out, kind))                     \
    OP(resize_backward, (struct device *device, struct matrix dx, struct matrix dout, i64 n, i64 h_in, i64 w_in,       \
                         i64 h_out, i64 w_out, enum resize kind),                                                      \
                        (device, dx, dout, n, h_in, w_in, h_out, w_out, kind))                                         \
    /* out[j] = x[i] with axes permuted: x has `shape` (rank <= 8), out axis a is x axis order[a]. */                  \
    OP(permute, (struct device *device, void *out, const void *x, enum dtype dtype, int rank, const i64 *shape,        \
                 const i64 *order), (device, out, x, dtype, rank, shape, order))                                       \
    /* Vision quantiser, f32, fixed order, per latent image x [h*w, d] of n: for scale k, u = area(r, h_k x w_k);      \
     * bit = u > 0; q = bilinear(a_k (2 bit - 1)); r -= q. bits u8 [n, T, d], T = sum h_k w_k; sum [n*h*w, d] = sum of \
     * q; u [n, T, d] the values before the sign (may be NULL). flip (may be NULL) [n, T, d]: 1 inverts that bit in    \
     * what is summed on, so that later scales' bits correct it (Infinity, bit-wise self-correction). */               \
    OP(quantize_bits, (struct device *device, u8 *bits, float *sum, float *u, const float *x, const u8 *flip, i64 n,   \
                       i64 h, i64 w, i64 d, const struct scale *scales, i64 scale_count, const float *amplitude),      \
                      (device, bits, sum, u, x, flip, n, h, w, d, scales, scale_count, amplitude))                     \
    /* What the backbone reads: for k >= 2 the sum of coarser scales lowered to h_k x w_k (area), and last the whole   \
     * sum lowered to 1x1; inputs [n, sum_{k>=2} h_k w_k + 1, d] F32; sum [n*h*w, d] (may be NULL) the whole. Bits as  \
     * they were summed, i.e. with flips applied. */                                                                   \
    OP(dequantize_bits, (struct device *device, float *inputs, float *sum, const u8 *bits, i64 n, i64 h, i64 w,        \
                         i64 d, const struct scale *scales, i64 scale_count, const float *amplitude),                  \
                        (device, inputs, sum, bits, n, h, w, d, scales, scale_count, amplitude))                       \
    /* How evenly a bit-wise code is used, from u [n, tokens, d] of quantize_bits: with p = sigmoid(sharpness u / a_k),\
     * entropy[0] = mean over scales of (mean over positions and bits of H(p) - mean over bits of H(mean of p over     \
     * positions)), nats; mean_p [scale_count, d]; magnitude [scale_count] = mean |u|. The backward adds to dx         \
     * [n*h*w, d]                                                                                                      \
     * coefficient[0] times the derivative through u = area mean of x alone. All F32. */                               \
    OP(bit_entropy, (struct device *device, float *entropy, float *mean_p, float *magnitude, const float *u, i64 n,    \
                     i64 d, const struct scale *scales, i64 scale_count, const float *amplitude, float sharpness),     \
                    (device, entropy, mean_p, magnitude, u, n, d, scales, scale_count, amplitude, sharpness))          \
    OP(bit_entropy_backward, (struct device *device, float *dx, const float *u, const float *mean_p, i64 n, i64 h,     \
                              i64 w, i64 d, const struct scale *scales, i64 scale_count, const float *amplitude,       \
                              float sharpness, const float *coefficient),                                              \
                             (device, dx, u, mean_p, n, h, w, d, scales, scale_count, amplitude, sharpness,            \
                              coefficient))                                                                            \
    /* Residual vector quantiser: code[i,l] = nearest of codebook l [K,d] to r (squared distance, smaller id among     \
     * equals), r -= it; sum [N,d] of the chosen; residual [N,L,d] before each level (may be NULL). codebooks          \
     * [L*K, d] F32. */                                                                                                \
    OP(quantize_vectors, (struct device *device, i32 *codes, float *sum, float *residual, struct matrix x,             \
                          const float *codebooks, i64 levels, i64 codes_count),                                        \
                         (device, codes, sum, residual, x, codebooks, levels, codes_count))                            \
    /* Code words in training, f64, rows in order: counts and sums of the residual rows [n,L,d] of each code [n,L] move\
     * use and words; words unseen for more than `patience` calls become a drawn row. revived[0] (F64) += their number.\
     * words [L*K,d], use, unseen [L*K]. */                                                                            \
    OP(codebook_move, (struct device *device, float *words, float *use, float *unseen, double *revived,                \
                       const i32 *codes, const float *residual, i64 n, const struct codebooks *books),                 \
                      (device, words, use, unseen, revived, codes, residual, n, books))                                \
    /* A round of k-means: words [K,d] of a level become the means of the rows of x [n,d] F32 that codes [n] gives     \
     * them, or a drawn row where there are none; codes NULL: all are drawn. */                                        \
    OP(codebook_mean, (struct device *device, float *words, const i32 *codes, struct matrix x, i64 level, i64 attempt, \
                       const struct codebooks *books),                                                                 \
                      (device, words, codes, x, level, attempt, books))                                                \
    /* Short-time Fourier transform of each row of x [B,n] F32, n > n_fft/2: periodic Hann windows of n_fft (even)     \
     * samples, frame f centred on sample f . hop, the signal reflected at its ends (torch.stft, center). spectrum     \
     * [B (n/hop + 1), 2 (n_fft/2 + 1)]: real parts, then imaginary ones; with `magnitude` sqrt(re^2 + im^2) alone.    \
     * backward: dx of the complex form. inverse: the signal whose windows are nearest (Griffin & Lim 1984). */        \
    OP(stft, (struct device *device, struct matrix spectrum, struct matrix x, i64 n_fft, i64 hop, bool magnitude),     \
             (device, spectrum, x, n_fft, hop, magnitude))                                                             \
    OP(stft_backward, (struct device *device, struct matrix dx, struct matrix dspectrum, i64 n_fft, i64 hop),          \
                      (device, dx, dspectrum, n_fft, hop))                                                             \
    OP(stft_inverse, (struct device *device, struct matrix x, struct matrix spectrum, i64 n_fft, i64 hop),             \
                     (device, x, spectrum, n_fft, hop))                                                                \
    /* Griffin-Lim: spectrum [N, 2 bins] of magnitude [M, bins], the last row again for rows past it: with phases drawn\
     * by (row, bin), or with those of now + momentum (now - last). */                                                 \
    OP(phases_draw, (struct device *device, struct matrix spectrum, struct matrix magnitude, struct rng_key key),      \
                    (device, spectrum, magnitude, key))                                                                \
    OP(phases_push, (struct device *device, struct matrix spectrum, struct matrix now, struct matrix last,             \
                     struct matrix magnitude, float momentum), (device, spectrum, now, last, magnitude, momentum))
/* clang-format on */

/* One table of functions per backend. `names` are those of the arguments: to hand a call on. */
struct kernels {
#define OP(name, arguments, names) void(*name) arguments;
    WEFT_OPS(OP)
#undef OP
};
extern const struct kernels cpu_v3_kernels, cpu_v4_kernels, meta_kernels;

/* What the meta backend counted. */
struct cost {
    double flops;   /* of products */
    double bytes;   /* read and written by all ops */
    double traffic; /* bytes sent by collectives */
    i64 calls;
};

/* ---- Two memories ---- */
/* Ops and collectives touch device memory alone, on the CPU too; host code crosses by device_put and device_get, queued
 * like ops. What is put has been taken when the call returns, and lies there for the ops queued after it; what is got
 * is in host memory when it returns. Device memory of the CPU and meta is address space until it is touched, and is not
 * zeroed unless by the zero op; meta keeps what is put and gives zeros where nothing was. */
struct memory {
    void *(*alloc)(struct device *device, i64 bytes); /* 64-byte aligned at least; no memory is a panic */
    void (*release)(struct device *device, void *block, i64 bytes);
    void (*put)(struct device *device, void *out, const void *host, i64 bytes);
    void (*get)(struct device *device, void *host, const void *in, i64 bytes);
    /* Address space for an arena, and memory behind its bytes [from, to), both multiples of GROW_BYTES; NULL: alloc and
     * release do, and memory appears when touched. */
    void *(*reserve)(struct device *device, i64 bytes);
    void (*grow)(struct device *device, void *base, i64 from, i64 to);
    void (*unreserve)(struct device *device, void *base, i64 bytes, i64 backed_bytes);
    /* Between these, transports of host memory may touch a CPU's device memory. May nest. */
    void (*unlock)(struct device *device);
    void (*lock)(struct device *device);
    i64 (*held)(const struct device *device); /* memory of its own; NULL: what scratch counts */
    i64 (*left)(const struct device *device); /* bytes nobody has taken; NULL: as many as the system gives */
    void (*close)(struct device *device);     /* its part of device_close; NULL: nothing to do */
};
enum { GROW_BYTES = 32 << 20 };
extern const struct memory cpu_memory;

/* ---- Ops that are launched as one ----
 * A GPU's host takes microseconds for each op. Ops that come again and again with the same arguments are recorded and
 * then launched as one:
 *
 *     for (bool done = device_replay(device, recordings, &key, sizeof key); !done;) {
 *         ops alone: no put, get or alloc, and no arena grows that did not the first time
 *         done = device_recorded(device, recordings);
 *     }
 *
 * All arguments of the ops follow from the key (its bytes; at most KEY_BYTES_MOST), what changes otherwise is read from
 * device memory. The first time a key comes its ops run as they are called, the second time they are recorded too, from
 * then on device_replay launches them and returns true. The keys that came last are kept. Where recording fails, ops
 * that were called have not run: device_recorded returns false, and from then on those of this key run as they are
 * called. Backends without recordings, and a GPU with WEFT_GRAPHS=0 in the environment, run all ops as they are called;
 * WEFT_GRAPHS=update records each time and changes the recording to what the ops are now. */
struct recordings; /* NULL where there are none */
struct recorder {
    struct recordings *(*open)(struct device *device);
    void (*close)(struct device *device, struct recordings *recordings);
    bool (*replay)(struct device *device, struct recordings *recordings, const void *key, i64 bytes);
    bool (*recorded)(struct device *device, struct recordings *recordings);
};
enum { KEY_BYTES_MOST = 256 };
struct recordings *device_recordings_open(struct device *device);
void device_recordings_close(struct device *device, struct recordings *recordings);
bool device_replay(struct device *device, struct recordings *recordings, const void *key, i64 bytes);
bool device_recorded(struct device *device, struct recordings *recordings);

enum backend { BACKEND_CPU, BACKEND_CUDA, BACKEND_META };
/* x86-64-v3 (AVX2); -v4 (AVX-512); v4 and products of whole numbers by VNNI; these and products by
 * the instruction for pairs of bf16; VNNI's and products on tiles. */
enum cpu_level { CPU_LEVEL_V3, CPU_LEVEL_V4, CPU_LEVEL_VNNI, CPU_LEVEL_PAIRS, CPU_LEVEL_AMX };
struct device {
    const struct kernels *ops;
    const struct memory *memory;
    const struct recorder *recorder; /* NULL: none */
    enum backend backend;
    enum cpu_level level;                /* of a CPU: the instructions its ops are made of */
    bool has_bf16;                       /* bf16 products are at least as fast as f32 */
    bool has_fp8;                        /* it multiplies 8 bits (matmul_fp8) faster than bf16 */
    void *queue;                         /* CUDA stream; NULL elsewhere */
    void *handles;                       /* library handles of the backend */
    void (*wait)(struct device *device); /* for the queue, with what ranks have to say meanwhile; NULL: as it is */
    void (*pace)(struct device *device); /* called every so many launches: stays until earlier ones are done; or NULL */
    struct cost cost;                    /* meta only */
    i64 backed_bytes, backed_most_bytes; /* meta as a GPU only: what stands behind its arenas, now and at most */
};
/* A GPU, or meta as one: the host goes on while its ops run. */
static inline bool device_is_gpu(const struct device *device)
{
    return device->backend == BACKEND_CUDA || (device->backend == BACKEND_META && device->recorder);
}
/* What a backend holds beside its tensors once it is warm: of this process (cpu), foreseen for a CPU by the shapes it
 * saw (meta), or the workspace of a GPU (meta as one), which itself counts pinned host memory too. */
i64 device_held_bytes(const struct device *device);
i64 device_left_bytes(const struct device *device); /* of a GPU: nobody has taken; else INT64_MAX */
void *device_alloc(struct device *device, i64 bytes);
void device_free(struct device *device, void *block, i64 bytes);
void device_put(struct device *device, void *out, const void *host, i64 bytes);
void device_get(struct device *device, void *host, const void *in, i64 bytes);
/* An arena of device memory; closed by device_arena_close, before its device is. */
void device_arena_open(struct device *device, struct arena *arena, i64 reserved_bytes);
void device_arena_close(struct device *device, struct arena *arena);

void device_open_cpu(struct device *device);
/* The CPU with a wall between the two memories, for tests: device memory can only be touched by ops, collectives, put
 * and get, and an op is refused every pointer outside of it. WEFT_GUARD=1 makes `weft` run its models on one. */
void device_open_guarded(struct device *device);
void device_open_meta(struct device *device);
/* As if it were a GPU: what lies elsewhere, or takes more, where ops are recorded and, on Hopper, bytes multiplied. Its
 * arenas grow as a GPU's do, which backed_bytes counts. Before anything is opened on it. */
void device_meta_gpu(struct device *meta, bool has_fp8);
void device_close(struct device *device);
const char *device_name(const struct device *device); /* "cpu (AVX-512, bf16)", ...: a literal */

/* Bytes of the image pack_weight makes of a BF16 weight; 0: the backend wants none. */
i64 kernels_packed_bytes(const struct device *device, i64 parts, i64 rows, i64 columns);

/* The matrix peak, GFLOP/s: what the best instruction of a CPU for products of bf16 (or f32) does on all workers when
 * its operands stay in registers. The best of slices of a few ms in about `seconds`: others slow a core down, none
 * makes it faster. */
double kernels_matrix_peak(struct device *device, enum dtype dtype, double seconds);
/* Median GFLOP/s of products of n^3 by the op, 3 to 64 of them in about `seconds`. */
double kernels_product_rate(struct device *device, i64 n, enum dtype dtype, double seconds);

#endif
