/* kernels: the ops, the devices that run them, and device memory. WEFT_OPS below is the one list of
 * ops. Each backend (CPU, CUDA, meta) implements an op in files named after it. An op reads and
 * writes device memory that the caller owns; it returns nothing and allocates nothing that the
 * caller must free. Memory of a device comes from device_alloc or device_arena_open and is returned
 * to device_free or device_arena_close.
 *
 * Contract of all ops:
 * - The first argument is the device. Calls are queued in order. On the CPU an op has run when its
 *   call returns.
 * - `struct matrix` operands are row-major; `stride` counts elements between rows. Outputs come
 *   before inputs.
 * - An op overwrites its outputs unless its comment says that it adds. With `bool add` it adds to
 *   the old content instead.
 * - Outputs never overlap inputs unless the comment of the op allows it to run in place.
 * - dtypes: activations are F32 or BF16 (one dtype per call unless stated). Statistics, losses,
 *   routing weights and weight gradients are F32. Ids, counts and offsets are I32. Sums are
 *   accumulated in f32 in an order that depends only on shapes, so the bits do not depend on the
 *   number of threads.
 * - No shape depends on data. True counts (rows of each expert) are I32 in device memory, and
 *   buffers have the size of their upper bound.
 * - Pointers refer to device memory, and so do the pointers inside matrices, groups and intervals.
 *   The exceptions are i64 arrays (shapes, orders, scales) and the structs passed by pointer, which
 *   are host memory.
 * - device->ops panics on operands that are not as the op's row states, a bug of the caller.
 *
 * Letters: N positions or rows, C width, H query heads, G key-value heads, D head width, E experts,
 * K top-k, F expert width, V vocabulary or classes, d bits of a vision token.
 *
 * Where is what: WEFT_OPS lists each op with its formula, arguments and shapes. An op is in
 * kernels/cpu/FOLDER and kernels/cuda/FOLDER, in a file named after it or its family (cpu.h and
 * cuda.h list them). shapes.h checks operands by the rows; kernels/meta/meta.c has the costs that
 * rows do not tell. The other headers beside this one hold formulas that all backends share:
 * route.h (top-k), adamw.h (update, clipping), round_fp8.h, quantize_bits.h, resample.h,
 * policy_loss.h (policy loss) and conv.h (sizes). The last part of this header declares struct
 * device, recordings and device memory; kernels/device implements them. */
#ifndef WEFT_KERNELS_H
#define WEFT_KERNELS_H
#include "core/core.h"
#include "kernels/formula.h"

struct device;

/* ---- Structs that recorded calls copy and compare byte by byte: they have no gaps ---- */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
struct matrix {
    void *data;
    enum dtype dtype;
    u32 gap; /* 0 */
    i64 rows, columns, stride;
    const void *packed; /* backend's own copy of the weight (op pack_weight), or NULL */
};
static inline struct matrix matrix_of(void *data, enum dtype dtype, i64 rows, i64 columns)
{
    return (struct matrix){data, dtype, 0, rows, columns, columns, NULL};
}
/* Columns [first, first + count) of m. The result borrows the memory of m. */
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

/* One scale of an image's multi-scale code: h x w positions, row-major. */
struct scale {
    i64 h, w;
};
FORMULA i64 scale_positions(struct scale scale)
{
    return scale.h * scale.w;
}

/* 8-bit floats (OCP OFP8). E4M3 has 4 exponent and 3 mantissa bits, no infinities, and a maximum of
 * 448 ("e4m3fn"). E5M2 has 5 and 2, and a maximum of 57344. Each block of a matrix has its own
 * scale, a power of two (UE8M0). Blocks start anew at each part (rows / parts rows) and at each
 * group, so the last block of one may be smaller. */
enum fp8 { FP8_E4M3, FP8_E5M2 };
enum { FP8_BLOCK = 128 };
enum fp8_blocks {
    FP8_ALONG_ROWS,    /* 1 x 128 */
    FP8_ALONG_COLUMNS, /* 128 x 1 */
    FP8_TILES,         /* 128 x 128 */
};

/* Rows sorted by group (expert). Group g owns rows offsets[g] .. offsets[g+1]-1. Offsets are
 * multiples of GROUP_ROWS; the padding rows at the end of a group are zero. member[g] is the slice
 * of the stacked weights that group g uses. */
enum { GROUP_ROWS = 16 };
struct groups {
    i64 count;
    const i32 *offsets; /* [count + 1] */
    const i32 *member;  /* [count]; NULL: identity */
};
static inline i64 groups_rows_bound(i64 assignments, i64 count) /* upper bound of the rows of a sorted buffer */
{
    return round_up(assignments + min_i64(count, assignments) * (GROUP_ROWS - 1), GROUP_ROWS);
}

/* Outputs of a sort of N x K assignments (position, expert) by expert. Group e holds the rows of
 * expert e, in the order of their positions. */
struct sorted_order {
    i32 *offsets;               /* [E + 1] */
    i32 *slot;                  /* [N, K] row of each assignment, or -1 */
    i32 *source;                /* [rows_bound] position of each row, or -1 */
    i64 rows_bound, group_rows; /* offsets are multiples of group_rows */
};

/* An operand of an fp8 gemm. Products sum along `depth`, which is padded with zeros to a multiple
 * of 128. Element (o, d) is codes[o, d], decoded, times scales[d / 128, o]; codes are [outer,
 * depth] and scales [depth / 128, outer]. */
struct fp8_matrix {
    u8 *codes;
    float *scales; /* powers of two */
    enum fp8 format;
    enum fp8_blocks blocks;
    i64 outer, depth;
};
/* Number of bands of 128 rows. With groups it is an upper bound. */
FORMULA i64 fp8_bands(i64 rows, i64 parts, const struct groups *groups)
{
    return groups ? rows / FP8_BLOCK + groups->count : parts * ((rows / parts + FP8_BLOCK - 1) / FP8_BLOCK);
}
static inline i64 fp8_matrix_bytes(const struct fp8_matrix *m)
{
    return m->outer * m->depth + m->outer * m->depth / FP8_BLOCK * 4;
}
/* The fp8_matrix that pack_fp8 makes of x, without memory (fp8_matrix_place adds it). By default x
 * is packed along its columns. With `transposed` it is packed transposed, along its rows: the
 * columns (of each part) become outer, and each group begins at a multiple of 128 along depth. */
static inline struct fp8_matrix fp8_matrix_of(enum fp8 format, enum fp8_blocks blocks, struct matrix x, bool transposed,
                                              i64 parts, const struct groups *groups)
{
    i64 bands = fp8_bands(x.rows, parts, groups) / parts, across = (x.columns + FP8_BLOCK - 1) / FP8_BLOCK;
    return (struct fp8_matrix){
        NULL, NULL, format, blocks, transposed ? parts * x.columns : x.rows, FP8_BLOCK * (transposed ? bands : across)};
}
static inline void fp8_matrix_place(struct fp8_matrix *m, void *memory)
{
    m->codes = (u8 *)memory;
    m->scales = (float *)(m->codes + m->outer * m->depth);
}

/* Options of a router. A chosen expert weighs p / max(sum of the chosen p, norm_min). With a small
 * norm_min the weights add up to 1; a single chosen expert then always weighs 1 and its router
 * learns nothing. With norm_min = 1, which no sum exceeds, the weight is p itself (Fedus et al.
 * 2021, eq. 2). */
struct router {
    i64 k_max; /* K */
    float norm_min;
    u32 gap; /* 0; a float may take its place */
};

/* Attention mask: query i sees key j iff begin[j] <= i < end[j] and not hole_begin[j] <= i <
 * hole_end[j]. */
struct intervals {
    i64 queries, keys;
    const i32 *query;                               /* [queries] index of each query, ascending */
    const i32 *begin, *end, *hole_begin, *hole_end; /* [keys] */
};

/* A convolution over (time, height, width). Positions are rows and channels are columns (N T H W
 * C). Weights are [out, kernel_t * kernel_h * kernel_w * in]. Padding is zero. It is a
 * cross-correlation, as in other deep learning libraries. */
struct conv {
    i64 batch, in, out;
    i64 size[3]; /* time, height, width of the input */
    i64 kernel[3], stride[3], dilation[3];
    i64 pad_front[3], pad_back[3]; /* causal in time: all padding in front */
};
static inline i64 conv_out_size(const struct conv *conv, int axis)
{
    i64 reach = conv->dilation[axis] * (conv->kernel[axis] - 1) + 1;
    return (conv->size[axis] + conv->pad_front[axis] + conv->pad_back[axis] - reach) / conv->stride[axis] + 1;
}

#pragma GCC diagnostic pop

/* A quantized weight of 8 or 4 bits: w[r, c] = scale[r] v with whole numbers v from -127 to 127
 * (quantized.h). Rows are stored in strips of QUANTIZED_ROWS and columns in steps of
 * QUANTIZED_COLUMNS; zeros pad both. Each part begins a new strip.
 *
 *     8 bits    codes [strips][steps of 64 columns][32 rows][64]: v itself
 *     4 bits    codes [strips][steps][32 rows][32]: column c of a step in the low half of byte c,
 *               column 32 + c in the high half; factors [strips][steps][32 rows][2], one for
 *               each 32 columns. v follows from code and factor (quantized_value) and is zero where
 *               the factor is QUANTIZED_FACTOR_ZERO. */
enum { QUANTIZED_ROWS = 32, QUANTIZED_COLUMNS = 64, QUANTIZED_FACTOR_ZERO = 64, QUANTIZED_FACTOR_COUNT = 129 };
struct quantized_weight {
    const void *codes;
    const u8 *factors;        /* 4 bits only */
    const float *scale;       /* [parts . rows, each part rounded up to strips] */
    i64 parts, rows, columns; /* rows of one part */
    int bits;                 /* 8 or 4 */
};
FORMULA i64 quantized_strips(i64 rows) /* strips of one part */
{
    return (rows + QUANTIZED_ROWS - 1) / QUANTIZED_ROWS;
}
FORMULA i64 quantized_steps(i64 columns)
{
    return (columns + QUANTIZED_COLUMNS - 1) / QUANTIZED_COLUMNS;
}

/* Destination of the op rope_cache, whose input rows are q, k and v side by side, [N, (H+2G) D].
 * The op rotates q and k in place as `rope` does, then copies row i of k and v to cache slot
 * index[i] of k and v here, [*, G*D]. -1 copies nothing. The indices differ. */
struct rope_cache {
    struct matrix k, v;
    const float *positions; /* [N,3] */
    const i32 *index;       /* [N] */
    i64 heads, kv_heads;    /* H, G */
    i64 t_pairs;
    float theta;
};

/* Fused prologue and epilogue of the skinny gemm matmul_skinny; zeros mean none. SKINNY_ROWS bounds
 * the rows; SKINNY_NORMED_ROWS bounds them with a norm, because every block recomputes the norm and
 * for more rows that costs more than a launch of its own. */
enum { SKINNY_ROWS = 64, SKINNY_NORMED_ROWS = 16 };
struct gemm_fusion {
    struct matrix norm;             /* [1,C] RMSNorm weight of the prologue */
    struct matrix add;              /* residual, shaped as out */
    const struct rope_cache *cache; /* destination of q, k, v */
    bool gated;
    float eps;
};

/* Experts, routed and shared, for few rows (decoding): N positions with K experts each, N <=
 * SKINNY_NORMED_ROWS and N K <= SKINNY_ASSIGNMENTS. Rows are sorted as `route` sorts them. All
 * matrices have one dtype. */
enum { SKINNY_ASSIGNMENTS = 128 };
struct skinny_experts {
    struct matrix gate_up, down;               /* stacked: [E 2F, C], [E C, F] */
    struct matrix shared_gate_up, shared_down; /* [2S, C], [C, S]; data NULL: no shared expert */
    i64 experts;                               /* E */
    struct groups groups;
    i64 rows_bound;       /* R */
    const i32 *source;    /* [R] position of each row, or -1 */
    const i32 *slot;      /* [N,K] row of each assignment, or -1 */
    const float *weights; /* [N,K] */
    i64 k_max;
};

struct adamw {
    float lr, beta1, beta2, eps, decay; /* decoupled decay: p shrinks by lr * decay first */
    i64 step;                           /* counted from 1; used by the bias corrections */
    /* Elements whose first moment and gradient differ in sign only decay (Liang et al. 2024, arXiv
     * 2411.16085). The paper's compensating factor is left to lr. */
    bool cautious;
    /* Only elements that the first moment pulls towards zero decay (Chen et al. 2025, arXiv
     * 2510.12402). */
    bool cautious_decay;
};

/* Elements that share optimizer settings: a weight, or one slice of a stacked weight, restricted to
 * the part that this rank updates. */
struct update {
    float *p, *m, *v;      /* F32 master and moments [count] */
    void *copy;            /* copy of p for gemms; NULL: none */
    enum dtype copy_dtype; /* BF16 or F32 */
    const float *g;        /* gradient [count]; NULL: zero */
    const u8 *written;     /* flag; 0: no gradient was written, take zero; NULL: take g */
    i64 count;
    float lr_factor, decay_factor; /* multiply lr and decay for this weight */
};
struct updates {
    i64 count;
    const struct update *list;
};

enum activation { ACTIVATION_SILU, ACTIVATION_GELU /* erf form */ };
enum resize { RESIZE_AREA, RESIZE_BILINEAR };
enum distance { DISTANCE_L1, DISTANCE_L2 /* squared */, DISTANCE_LOG /* of logarithms: kernels/distance.h */ };
enum map { MAP_LOG, MAP_MAX, MAP_EXP };

/* Codebooks of a residual vector quantizer during training: L levels of K words of `width`. Random
 * rows are drawn by (step, level, code, attempt) under `key`. */
struct codebooks {
    i64 levels, codes, width;
    double decay; /* decay of the running counts and sums */
    double least; /* share of an even use below which a word is replaced; 0: only unseen ones are */
    i64 patience;
    struct rng_key key;
    i64 step;
};

/* Options for drawing a code from logits. temperature 0 is greedy; the smallest id wins ties. */
struct sampling {
    float temperature;
    float top_p; /* 1: all; otherwise nucleus (top-p) sampling */
    i64 top_k;   /* 0: all */
    struct rng_key key;
};

/* Options of the op `policy_loss`. */
enum { POLICY_LOSS_MISC, POLICY_LOSS_GSPO, POLICY_LOSS_GRPO };
enum { POLICY_LOSS_K3, POLICY_LOSS_K2, POLICY_LOSS_K1 };
struct policy_loss_options {
    int algorithm, kl_estimator;
    double eps, eps_high, mismatch_low, mismatch_high, kl; /* the ratio is clipped to 1 - eps, 1 + eps_high */
    float scale;                                           /* multiplies the coefficients */
};

/* A row has the name of an op, its parameters, their names, and its shapes: C with the macros of
 * shapes.h, which says of each matrix and array how many rows and columns it has. From that follow
 * the checks of operands, the bytes of the meta backend, the memory that the guarded device opens,
 * and the lengths of lists that deferred calls copy.
 *
 *     SIZES(x, N, C)               x is a matrix; its rows are called N and its columns C
 *     IS(y, N, C)                  y is a matrix [N,C], or an array of N C elements
 *     IS(w, 1, C, OR_NULL | ANY)   the same with properties (enum stated_property)
 *     WHERE(C % heads == 0)        any other relation
 *
 * Matrices have one dtype, but for those with FLOATS, WIDER or ANY. */
/* clang-format off */
#define WEFT_OPS(OP)                                                                                                   \
    /* ---- products ----                                                                                              \
     * out[M,N] = op(a) op(b), where op transposes if asked. A depth of 0 gives zeros. a and b have                    \
     * one dtype, F32 or BF16; out is F32, or BF16 where a is. */                                                      \
    OP(matmul, (struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,          \
                bool transpose_b, bool add), (device, out, a, transpose_a, b, transpose_b, add),                       \
        SIZES(out, M, N, WIDER | add * TWICE) i64 K = transpose_a ? a.rows : a.columns;                                \
        IS(a, transpose_a ? K : M, transpose_a ? M : K) IS(b, transpose_b ? N : K, transpose_b ? K : N))               \
    /* Grouped gemm: out[r] = a[r] W_g^T (transpose) or a[r] W_g. W is stacked, [E, w.rows / E,                        \
     * w.columns]. Rows past offsets[count] are not written. */                                                        \
    OP(matmul_grouped, (struct device *device, struct matrix out, struct matrix a, struct matrix w, i64 experts,       \
                        bool transpose, const struct groups *groups),                                                  \
                       (device, out, a, w, experts, transpose, groups),                                                \
        SIZES(a, R, K) i64 N = out.columns; IS(out, R, N, WIDER)                                                       \
        IS(w, experts * (transpose ? N : K), transpose ? K : N))                                                       \
    /* Grouped gemm with a fused SwiGLU: y[r] = swiglu(gate_up[r]), gate_up[r] = x[r] W_g^T, W                         \
     * stacked [E, 2F, C]. gate_up [R,2F] receives the rounded product where its data is not NULL.                     \
     * rows [R] I32: x[r] is row rows[r] of x, zeros for -1; rows NULL: row r. Rows past                               \
     * offsets[count] are not written. */                                                                              \
    OP(matmul_grouped_swiglu, (struct device *device, struct matrix y, struct matrix gate_up, struct matrix x,         \
                               const i32 *rows, struct matrix w, i64 experts, const struct groups *groups),            \
                              (device, y, gate_up, x, rows, w, experts, groups),                                       \
        SIZES(y, R, F) i64 C = x.columns; IS(gate_up, R, 2 * F, OR_NULL) IS(x, rows ? x.rows : R, C)                   \
        IS(rows, R, 1, OR_NULL) IS(w, experts * 2 * F, C))                                                             \
    /* Gradient of stacked weights: dw_e = dy_e^T x_e (F32). A slice without rows is left as it is.                    \
     * A slice with rows is overwritten and marked where written[e] is 0, and added to where it is                     \
     * 1. written is [E] u8. rows indexes x as in matmul_grouped_swiglu. */                                            \
    OP(matmul_grouped_weights, (struct device *device, struct matrix dw, u8 *written, i64 experts, struct matrix dy,   \
                                struct matrix x, const i32 *rows, const struct groups *groups),                        \
                               (device, dw, written, experts, dy, x, rows, groups),                                    \
        SIZES(dy, R, F) i64 C = x.columns; IS(x, rows ? x.rows : R, C) IS(rows, R, 1, OR_NULL)                         \
        IS(dw, experts * F, C, FLOATS) IS(written, experts, 1))                                                        \
    /* Packs a weight [parts, w.rows / parts, w.columns] for gemms with it or its slices. image has                    \
     * kernels_packed_bytes bytes. Products have the same bits with and without the packed image. */                   \
    OP(pack_weight, (struct device *device, void *image, struct matrix w, i64 parts), (device, image, w, parts),       \
        IS(w, w.rows / parts * parts, w.columns)                                                                       \
        IS(image, kernels_packed_bytes(device, parts, w.rows / parts, w.columns), 1))                                  \
    /* Gemm with quantized weights: out[r] = a[r] W_g^T. groups NULL: one part, all rows. Rows past                    \
     * offsets[count] are not written. out is F32, or has a's dtype. The result of a row does not                      \
     * depend on the other rows. The CPU quantizes each row of a to 16 bits relative to its largest                    \
     * magnitude. */                                                                                                   \
    OP(matmul_quantized, (struct device *device, struct matrix out, struct matrix a, const struct quantized_weight *w, \
                          const struct groups *groups), (device, out, a, w, groups),                                   \
        SIZES(a, R, C) WHERE(C == w->columns && (groups || w->parts == 1)) IS(out, R, w->rows, WIDER))                 \
    /* Skinny gemm with fused prologue and epilogue, for decoding: out[r] = n(x[r]) w^T + add[r];                      \
     * or, where `gated`, swiglu of the two halves of n(x[r]) w^T; or n(x[r]) w^T rotated and cached                   \
     * as rope_cache does. n is RMSNorm by `norm`. Intermediates are rounded as by separate ops:                       \
     * n(x) to x's dtype, products to out's. At most SKINNY_ROWS rows, or SKINNY_NORMED_ROWS with a norm. w has        \
     * x's dtype or is F32; out is F32, or BF16 where x is. */                                                         \
    OP(matmul_skinny, (struct device *device, struct matrix out, struct matrix x, struct matrix w,                     \
                       const struct gemm_fusion *fusion), (device, out, x, w, fusion),                                 \
        SIZES(x, N, C) i64 F = out.columns; IS(out, N, F, WIDER) IS(w, F * (fusion->gated ? 2 : 1), C, WIDER)          \
        IS(fusion->norm, 1, C, OR_NULL | ANY) IS(fusion->add, N, F, OR_NULL | ANY)                                     \
        WHERE(N <= (fusion->norm.data ? SKINNY_NORMED_ROWS : SKINNY_ROWS))                                             \
        WHERE(!fusion->add.data || fusion->add.dtype == out.dtype)                                                     \
        WHERE(fusion->gated + (fusion->add.data != NULL) + (fusion->cache != NULL) <= 1)                               \
        if (fusion->cache) { ROPE_CACHE(out, fusion->cache) })                                                         \
    /* inside[r] = swiglu of the two halves of n(x[source[r]]) W_g^T; shared = the same of n(x) and                    \
     * the shared expert. n is RMSNorm by `norm` [1,C]. Rows without a position become zeros. Rows                     \
     * past offsets[count] are not written. */                                                                         \
    OP(experts_skinny_in, (struct device *device, struct matrix inside, struct matrix shared, struct matrix x,         \
                           struct matrix norm, float eps, const struct skinny_experts *experts),                       \
                          (device, inside, shared, x, norm, eps, experts),                                             \
        SIZES(x, N, C) i64 F = inside.columns, S = shared.columns; SKINNY_EXPERTS IS(norm, 1, C, ANY)                  \
        IS(experts->gate_up, experts->experts * 2 * F, C) IS(experts->shared_gate_up, 2 * S, C, OR_NULL))              \
    /* out[i] = x[i] + shared[i] D_s^T + sum_k weights[i,k] inside[slot[i,k]] D_g^T. Products are                      \
     * rounded before they are summed. */                                                                              \
    OP(experts_skinny_out, (struct device *device, struct matrix out, struct matrix x, struct matrix inside,           \
                            struct matrix shared, const struct skinny_experts *experts),                               \
                           (device, out, x, inside, shared, experts),                                                  \
        SIZES(x, N, C) i64 F = inside.columns, S = shared.columns; SKINNY_EXPERTS IS(out, N, C)                        \
        IS(experts->down, experts->experts * C, F) IS(experts->shared_down, C, S, OR_NULL))                            \
    /* Rounds each element of x to the nearest fp8 number times its block's scale s, ties to even.                     \
     * BF16 holds every result exactly, so a BF16 gemm of them equals an fp8 gemm with f32 sums. s                     \
     * is the least power of two with max |x| of the block <= 448 s (57344 s for E5M2), clamped to                     \
     * 2^-117 .. 2^119 (2^-110 .. 2^112), so that no result is subnormal or infinite. Magnitudes                       \
     * above 448 s saturate to 448 s. NaN and infinities become NaN and do not affect s; a zero                        \
     * keeps its sign. groups NULL: all rows; otherwise there is one part, and rows past                               \
     * offsets[count] are not written. out has the shape and dtype of x and may be x. */                               \
    OP(round_fp8, (struct device *device, struct matrix out, struct matrix x, enum fp8 format,                         \
                   enum fp8_blocks blocks, i64 parts, const struct groups *groups),                                    \
                  (device, out, x, format, blocks, parts, groups),                                                     \
        SIZES(x, R, C) IS(out, R, C) WHERE(R % parts == 0 && (!groups || parts == 1)))                                 \
    /* Stores the numbers of round_fp8 as codes and scales. out is shaped by fp8_matrix_of: packed                     \
     * along the columns of x, with blocks 1 x 128 or tiles; or `transposed`, with blocks                              \
     * 128 x 1 or tiles. With groups, only the rows of groups are written. */                                          \
    OP(pack_fp8, (struct device *device, const struct fp8_matrix *out, struct matrix x, bool transposed, i64 parts,    \
                  const struct groups *groups), (device, out, x, transposed, parts, groups),                           \
        SIZES(x, R, C)                                                                                                 \
        struct fp8_matrix packed = fp8_matrix_of(out->format, out->blocks, x, transposed, parts, groups);              \
        WHERE(out->outer == packed.outer && out->depth == packed.depth && R % parts == 0 && (!groups || parts == 1))   \
        WHERE(out->blocks != (transposed ? FP8_ALONG_ROWS : FP8_ALONG_COLUMNS)))                                       \
    /* fp8 gemm: out[r, c] = a[r] . b[c], with groups b[member . columns + c]. a is e4m3 or e5m2, b                    \
     * is e4m3. Each 128 of the depth are summed separately (Hopper keeps about 14 bits of such a                      \
     * sum), then added in f32. Rows past offsets[count] are not written. out is F32 or BF16. */                       \
    OP(matmul_fp8, (struct device *device, struct matrix out, const struct fp8_matrix *a, const struct fp8_matrix *b,  \
                    const struct groups *groups, bool add), (device, out, a, b, groups, add),                          \
        SIZES(out, R, N, add * TWICE) WHERE(R == a->outer && a->depth == b->depth && b->format == FP8_E4M3)            \
        WHERE(groups ? N > 0 && b->outer % N == 0 : b->outer == N))                                                    \
    /* fp8 version of matmul_grouped_weights. dy and x were packed transposed with the same groups.                    \
     */                                                                                                                \
    OP(matmul_fp8_weights, (struct device *device, struct matrix dw, u8 *written, i64 experts,                         \
                            const struct fp8_matrix *dy, const struct fp8_matrix *x, const struct groups *groups),     \
                           (device, dw, written, experts, dy, x, groups),                                              \
        IS(dw, experts * dy->outer, x->outer, FLOATS) IS(written, experts, 1)                                          \
        WHERE(dy->depth == x->depth && x->format == FP8_E4M3))                                                         \
    /* y = conv(x, w); w is BF16, or F32 as x. The backward ops compute dx and dw (F32); both add if                   \
     * asked. */                                                                                                       \
    OP(conv, (struct device *device, struct matrix y, struct matrix x, struct matrix w, const struct conv *conv),      \
             (device, y, x, w, conv),                                                                                  \
        CONV(x, y) IS(w, conv->out, product3(conv->kernel) * conv->in))                                                \
    OP(conv_backward_data, (struct device *device, struct matrix dx, struct matrix dy, struct matrix w,                \
                            const struct conv *conv, bool add), (device, dx, dy, w, conv, add),                        \
        CONV(dx, dy) IS(w, conv->out, product3(conv->kernel) * conv->in))                                              \
    OP(conv_backward_weights, (struct device *device, struct matrix dw, struct matrix dy, struct matrix x,             \
                               const struct conv *conv, bool add), (device, dw, dy, x, conv, add),                     \
        CONV(x, dy) IS(dw, conv->out, product3(conv->kernel) * conv->in, FLOATS | add * TWICE))                        \
    /* ---- rows ----                                                                                                  \
     * y = w . x . r, r = rsqrt(mean(x^2) + eps) (Zhang & Sennrich 2019). rstd [N] receives r. x r                     \
     * is rounded to the activation's dtype before the product with w, as in Hugging Face. w NULL:                     \
     * 1. */                                                                                                           \
    OP(rmsnorm, (struct device *device, struct matrix y, float *rstd, struct matrix x, struct matrix w, float eps),    \
                (device, y, rstd, x, w, eps),                                                                          \
        SIZES(x, N, C) IS(y, N, C) IS(rstd, N, 1) IS(w, 1, C, OR_NULL | ANY))                                          \
    /* Computes dx (adds if add_dx) and dw [1,C] F32 (adds if add_dw; data NULL: not computed). */                     \
    OP(rmsnorm_backward, (struct device *device, struct matrix dx, struct matrix dw, struct matrix dy,                 \
                          struct matrix x, struct matrix w, const float *rstd, bool add_dx, bool add_dw),              \
                         (device, dx, dw, dy, x, w, rstd, add_dx, add_dw),                                             \
        SIZES(x, N, C) IS(dx, N, C, add_dx * TWICE) IS(dw, 1, C, OR_NULL | FLOATS | add_dw * TWICE) IS(dy, N, C)       \
        IS(w, 1, C, OR_NULL | ANY) IS(rstd, N, 1))                                                                     \
    /* sum = a + b and y = rmsnorm(sum) in one pass, for the residual stream. sum may be b. */                         \
    OP(add_rmsnorm, (struct device *device, struct matrix sum, struct matrix y, float *rstd, struct matrix a,          \
                     struct matrix b, struct matrix w, float eps), (device, sum, y, rstd, a, b, w, eps),               \
        SIZES(a, N, C) IS(b, N, C) IS(sum, N, C) IS(y, N, C) IS(rstd, N, 1) IS(w, 1, C, OR_NULL | ANY))                \
    /* Rotates pairs (2j, 2j+1) of x [N, heads * D] in place by position . theta^(-2j/D) (Su et al.                    \
     * 2021). The last `t_pairs` of the D/2 pairs use axis t, the others h (even j) and w (odd j).                     \
     * positions are [N,3] F32 (t,h,w). inverse rotates back, which is the backward. */                                \
    OP(rope, (struct device *device, struct matrix x, const float *positions, i64 heads, float theta, i64 t_pairs,     \
              bool inverse), (device, x, positions, heads, theta, t_pairs, inverse),                                   \
        SIZES(x, N, C, TWICE) IS(positions, 3 * N, 1)                                                                  \
        WHERE(C % (2 * heads) == 0 && t_pairs >= 0 && t_pairs <= C / (2 * heads)))                                     \
    /* Rotates x [N, (H+2G) D] = q, k, v and copies k and v to the cache as struct rope_cache says.                    \
     */                                                                                                                \
    OP(rope_cache, (struct device *device, struct matrix x, const struct rope_cache *to), (device, x, to),             \
        SIZES(x, N, C, TWICE) ROPE_CACHE(x, to))                                                                       \
    /* y[N,F] = silu(gate) . up, gate_up [N,2F], gate first (Shazeer 2020). The backward recomputes                    \
     * the factors of y and may run in place on gate_up. dscales [N] = dy[i] . y[i], the gradient of                   \
     * a factor 1 on row i (NULL: not computed). */                                                                    \
    OP(swiglu, (struct device *device, struct matrix y, struct matrix gate_up), (device, y, gate_up),                  \
        SIZES(y, N, F) IS(gate_up, N, 2 * F))                                                                          \
    OP(swiglu_backward, (struct device *device, struct matrix dgate_up, float *dscales, struct matrix dy,              \
                         struct matrix gate_up), (device, dgate_up, dscales, dy, gate_up),                             \
        SIZES(dy, N, F) IS(dgate_up, N, 2 * F) IS(gate_up, N, 2 * F) IS(dscales, N, 1, OR_NULL))                       \
    OP(activate, (struct device *device, struct matrix y, struct matrix x, enum activation kind),                      \
                 (device, y, x, kind),                                                                                 \
        SIZES(x, N, C) IS(y, N, C))                                                                                    \
    OP(activate_backward, (struct device *device, struct matrix dx, struct matrix dy, struct matrix x,                 \
                           enum activation kind, bool add), (device, dx, dy, x, kind, add),                            \
        SIZES(x, N, C) IS(dx, N, C, add * TWICE) IS(dy, N, C))                                                         \
    /* out = scale . x (+ out if add). dtypes may differ, so this is also the cast. It may run in                      \
     * place if the dtypes are equal. */                                                                               \
    OP(copy, (struct device *device, struct matrix out, struct matrix x, float scale, bool add),                       \
             (device, out, x, scale, add),                                                                             \
        SIZES(x, N, C, ANY) IS(out, N, C, ANY | add * TWICE))                                                          \
    /* out = a + b. It may run in place on a. */                                                                       \
    OP(add, (struct device *device, struct matrix out, struct matrix a, struct matrix b), (device, out, a, b),         \
        SIZES(a, N, C) IS(b, N, C) IS(out, N, C))                                                                      \
    OP(zero, (struct device *device, void *data, i64 bytes), (device, data, bytes),                                    \
        IS(data, bytes, 1))                                                                                            \
    OP(fill, (struct device *device, float *out, i64 count, float value), (device, out, count, value),                 \
        IS(out, count, 1))                                                                                             \
    OP(fill_ids, (struct device *device, i32 *out, i64 count, i32 value), (device, out, count, value),                 \
        IS(out, count, 1))                                                                                             \
    OP(copy_ids, (struct device *device, i32 *out, const i32 *ids, i64 count), (device, out, ids, count),              \
        IS(out, count, 1) IS(ids, count, 1))                                                                           \
    /* out[i] = scale . bytes[i] + shift; all arrays dense. */                                                         \
    OP(widen_bytes, (struct device *device, struct matrix out, const u8 *bytes, float scale, float shift),             \
                    (device, out, bytes, scale, shift),                                                                \
        SIZES(out, N, C) IS(bytes, N, C) WHERE(out.stride == out.columns || N <= 1))                                                  \
    /* bytes[i] = (x[i] + shift) . scale, rounded to the nearest of 0 to 255; all arrays dense. */                     \
    OP(narrow_bytes, (struct device *device, u8 *bytes, struct matrix x, float shift, float scale),                    \
                     (device, bytes, x, shift, scale),                                                                 \
        SIZES(x, N, C) IS(bytes, N, C) WHERE(x.stride == x.columns || N <= 1))                                                      \
    /* out = ln max(x, least), max(x, least) or e^x; F32. It may run in place. */                                      \
    OP(map, (struct device *device, struct matrix out, struct matrix x, enum map kind, float least),                   \
            (device, out, x, kind, least),                                                                             \
        SIZES(x, N, C, FLOATS) IS(out, N, C, FLOATS))                                                                  \
    /* x[i,c] *= by[i / repeat, c], F32. */                                                                            \
    OP(multiply_rows, (struct device *device, struct matrix x, const float *by, i64 repeat),                           \
                      (device, x, by, repeat),                                                                         \
        SIZES(x, N, C, FLOATS | TWICE) WHERE(repeat > 0) IS(by, (N + repeat - 1) / repeat, C))                         \
    /* x *= over / (under + eps), F32. */                                                                              \
    OP(multiply_ratio, (struct device *device, struct matrix x, struct matrix over, struct matrix under, float eps),   \
                       (device, x, over, under, eps),                                                                  \
        SIZES(x, N, C, FLOATS | TWICE) IS(over, N, C, FLOATS) IS(under, N, C, FLOATS))                                 \
    /* out = (x + shift) / divisor; F32. It may run in place. */                                                       \
    OP(shift_divide, (struct device *device, struct matrix out, struct matrix x, float shift, float divisor),          \
                     (device, out, x, shift, divisor),                                                                 \
        SIZES(x, N, C, FLOATS) IS(out, N, C, FLOATS))                                                                  \
    /* mean[i] = keep . mean[i] + (1 - keep) . x[i], in f64. */                                                        \
    OP(running_mean, (struct device *device, float *mean, const float *x, i64 count, double keep),                     \
                     (device, mean, x, count, keep),                                                                   \
        IS(mean, count, 1, TWICE) IS(x, count, 1))                                                                     \
    /* bias_add: out[i,c] = x[i,c] + bias[c]; it may run in place. column_sums: out[c] = sum over                      \
     * rows of x (F32, adds if asked). */                                                                              \
    OP(bias_add, (struct device *device, struct matrix out, struct matrix x, struct matrix bias),                      \
                 (device, out, x, bias),                                                                               \
        SIZES(x, N, C) IS(out, N, C) IS(bias, 1, C, ANY))                                                              \
    OP(column_sums, (struct device *device, struct matrix out, struct matrix x, bool add), (device, out, x, add),      \
        SIZES(x, N, C) IS(out, 1, C, FLOATS | add * TWICE))                                                            \
    /* gather: out[i] = table[index[i]], zeros for index -1. scatter_add: out[index[i]] += x[i] in                     \
     * order of i, -1 is skipped; out is F32 or has x's dtype. index has out.rows (gather) or x.rows                   \
     * (scatter_add) entries; equal entries are allowed. */                                                            \
    OP(gather, (struct device *device, struct matrix out, struct matrix table, const i32 *index, bool add),            \
               (device, out, table, index, add),                                                                       \
        SIZES(out, N, C, ANY | add * TWICE) IS(table, table.rows, C, ANY) IS(index, N, 1))                             \
    OP(scatter_add, (struct device *device, struct matrix out, struct matrix x, const i32 *index),                     \
                    (device, out, x, index),                                                                           \
        SIZES(x, N, C) IS(out, out.rows, C, WIDER | TWICE) IS(index, N, 1))                                            \
    /* out[index[i]] = x[i]. Indices differ; -1 is skipped. */                                                         \
    OP(scatter, (struct device *device, struct matrix out, struct matrix x, const i32 *index),                         \
                (device, out, x, index),                                                                               \
        SIZES(x, N, C) IS(out, out.rows, C) IS(index, N, 1))                                                           \
    /* ---- attention ----                                                                                             \
     * out[i, h] = sum_j softmax_j(q_i k_j D^-1/2) v_j over the keys that intervals let query i see.                   \
     * q and out are [Nq, H*D], k and v [Nk, G*D]. lse [Nq, H] F32 receives the log-sum-exp; a query                   \
     * that sees no key has lse -inf and a zero output. Fully masked tiles are skipped (Dao et al.                     \
     * 2022; FlashMask, arXiv 2410.01359). */                                                                          \
    OP(attention, (struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,             \
                   struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals),                       \
                  (device, out, lse, q, k, v, heads, kv_heads, intervals),                                             \
        ATTENTION(q, k) IS(v, k.rows, k.columns) IS(out, q.rows, q.columns) IS(lse, q.rows * heads, 1, OR_NULL))           \
    OP(attention_backward, (struct device *device, struct matrix dq, struct matrix dk, struct matrix dv,               \
                            struct matrix dout, struct matrix out, const float *lse, struct matrix q,                  \
                            struct matrix k, struct matrix v, i64 heads, i64 kv_heads,                                 \
                            const struct intervals *intervals),                                                        \
                           (device, dq, dk, dv, dout, out, lse, q, k, v, heads, kv_heads, intervals),                  \
        ATTENTION(q, k) IS(v, k.rows, k.columns) IS(out, q.rows, q.columns) IS(dq, q.rows, q.columns)                  \
        IS(dk, k.rows, k.columns) IS(dv, k.rows, k.columns) IS(dout, q.rows, q.columns) IS(lse, q.rows * heads, 1))        \
    /* ---- mixture of experts ----                                                                                    \
     * p = softmax(logits) [N,E] F32. experts [N,K] = the topk[i] largest of p + bias in descending                    \
     * order, the smaller id first on ties, -1 beyond topk[i]. weights [N,K] follow struct router, times               \
     * scale[i] (NULL: 1), 0 beyond topk[i]. usage [E] F32 += 1 for each assignment of a position with counted[i]. sorted                    \
     * receives the order of experts. The bias affects the choice, never the weight (Wang et al.                       \
     * 2024, arXiv 2408.15664). */                                                                                     \
    OP(route, (struct device *device, float *p, i32 *experts, float *weights, const struct sorted_order *sorted,       \
               float *usage, struct matrix logits, const float *bias, const i32 *topk, const u8 *counted,              \
               const float *scale, const struct router *router),                                                       \
              (device, p, experts, weights, sorted, usage, logits, bias, topk, counted, scale, router),                \
        SIZES(logits, N, E) i64 K = router->k_max; SORTED(E, N, K) IS(p, N, E) IS(experts, N, K) IS(weights, N, K)     \
        IS(usage, E, 1, OR_NULL | TWICE) IS(bias, E, 1) IS(topk, N, 1) IS(counted, N, 1, OR_NULL)                      \
        IS(scale, N, 1, OR_NULL) WHERE(K <= E))                                                                        \
    /* route with given experts, to replay earlier choices; the other outputs follow from them. */                     \
    OP(route_given, (struct device *device, float *p, float *weights, const struct sorted_order *sorted, float *usage, \
                     const i32 *experts, struct matrix logits, const u8 *counted, const float *scale,                  \
                     const struct router *router),                                                                     \
                    (device, p, weights, sorted, usage, experts, logits, counted, scale, router),                      \
        SIZES(logits, N, E, FLOATS) i64 K = router->k_max; SORTED(E, N, K) IS(p, N, E) IS(weights, N, K)               \
        IS(usage, E, 1, OR_NULL | TWICE) IS(experts, N, K) IS(counted, N, 1, OR_NULL) IS(scale, N, 1, OR_NULL))        \
    /* Gradient of the logits. dlog_weights [N,K] is the gradient with respect to log(weight), i.e.                    \
     * weight times the gradient of the weight, which no scale changes. */                                             \
    OP(route_backward, (struct device *device, struct matrix dlogits, const float *dlog_weights, const float *p,       \
                        const i32 *experts, const struct router *router),                                              \
                       (device, dlogits, dlog_weights, p, experts, router),                                            \
        SIZES(dlogits, N, E) i64 K = router->k_max; IS(dlog_weights, N, K) IS(p, N, E) IS(experts, N, K))              \
    /* Sorts experts [N,K]; the sort of route alone. group [E]: where the rows of each expert go, all numbers          \
     * below E in any order; NULL: those of expert e are group e. */                                                   \
    OP(route_sort, (struct device *device, const struct sorted_order *sorted, const i32 *experts, const i32 *group,    \
                    i64 n, i64 k_max, i64 experts_count),                                                              \
                   (device, sorted, experts, group, n, k_max, experts_count),                                          \
        SORTED(experts_count, n, k_max) IS(experts, n, k_max) IS(group, experts_count, 1, OR_NULL))                    \
    /* Groups rows received from R ranks by expert. They arrive sorted by rank, then by expert,                        \
     * from[r, e] rows each (from [R, E]). regroup [rows_bound]: the arrived row of each grouped                       \
     * row, or -1; each group begins at a multiple of GROUP_ROWS. arrived [sum of from]: its                           \
     * inverse. offsets [E+1]. capacity > 0: the rows of rank r begin at row r capacity, and arrived [R                \
     * capacity] is -1 behind the last row of each rank. */                                                            \
    OP(route_regroup, (struct device *device, i32 *offsets, i32 *regroup, i32 *arrived, i64 rows_bound,                \
                       const i32 *from, i64 ranks, i64 experts, i64 capacity),                                         \
                      (device, offsets, regroup, arrived, rows_bound, from, ranks, experts, capacity),                 \
        IS(offsets, experts + 1, 1) IS(regroup, rows_bound, 1)                                                         \
        IS(arrived, capacity > 0 ? ranks * capacity : UNSTATED, 1) IS(from, ranks, experts))                           \
    /* counts [experts]: rows of each expert of a layer. offsets [kept + 1] belong to the `kept`                       \
     * experts that member [kept] names (NULL: the first ones). */                                                     \
    OP(route_count, (struct device *device, i32 *counts, const i32 *offsets, const i32 *member, i64 kept, i64 experts),\
                    (device, counts, offsets, member, kept, experts),                                                  \
        IS(counts, experts, 1) IS(offsets, kept + 1, 1) IS(member, kept, 1, OR_NULL))                                  \
    /* Splits rows sorted by expert, without padding, into parts for R ranks of E/R experts each:                      \
     * `capacity` rows for each rank, those of rank r from row r capacity on. counts [E]: rows of each                 \
     * expert on input, rows that fit on output. sorted [assignments]: position of each row. source                    \
     * [R capacity]: position of each row of the parts, or -1. slot [assignments]: row of each                         \
     * assignment in the sorted order on input, in the parts on output, or -1. If a rank's rows do                     \
     * not fit, over [3] (F64) gets infinity at [0], the largest row count so far at [1] and the                       \
     * capacity at [2]. */                                                                                             \
    OP(route_capacity, (struct device *device, i32 *source, i32 *slot, i32 *counts, double *over, const i32 *sorted,   \
                        i64 assignments, i64 capacity, i64 ranks, i64 experts),                                        \
                       (device, source, slot, counts, over, sorted, assignments, capacity, ranks, experts),            \
        IS(source, ranks * capacity, 1) IS(slot, assignments, 1, TWICE) IS(counts, experts, 1, TWICE)                  \
        IS(over, 3, 1, TWICE) IS(sorted, assignments, 1))                                                              \
    /* combine: out[i] = a[i] + b[i] + sum_j weights[i,j] y[slot[i,j]]. weights NULL: 1. a and b are                   \
     * shaped as out; either may be out, or have data NULL for 0. combine_backward: dy[slot] =                         \
     * weight . dout; rows of dy up to offsets[E] that belong to no assignment become zero. */                         \
    OP(combine, (struct device *device, struct matrix out, struct matrix a, struct matrix b, struct matrix y,          \
                 const i32 *slot, const float *weights, i64 k_max), (device, out, a, b, y, slot, weights, k_max),      \
        SIZES(out, N, C) IS(a, N, C, OR_NULL) IS(b, N, C, OR_NULL) IS(y, y.rows, C, ANY) IS(slot, N, k_max)            \
        IS(weights, N, k_max, OR_NULL))                                                                                \
    OP(combine_backward, (struct device *device, struct matrix dy, struct matrix dout, const i32 *slot,                \
                          const i32 *source, const i32 *rows, const float *weights, i64 k_max),                        \
                         (device, dy, dout, slot, source, rows, weights, k_max),                                       \
        SIZES(dout, N, C) IS(dy, dy.rows, C) IS(slot, N, k_max) IS(source, dy.rows, 1) IS(rows, 1, 1)                  \
        IS(weights, N, k_max, OR_NULL))                                                                                \
    /* Fills rows [0, *rows) of the sorted buffer: out[r] = x[source[r]], zero where source is -1.                     \
     */                                                                                                                \
    OP(dispatch, (struct device *device, struct matrix out, struct matrix x, const i32 *source, const i32 *rows),      \
                 (device, out, x, source, rows),                                                                       \
        SIZES(out, R, C) IS(x, x.rows, C) IS(source, R, 1) IS(rows, 1, 1))                                             \
    /* Balances experts without an auxiliary loss: use [E] F64 += usage; bias_e += speed .                             \
     * sign(expected_e - usage_e), where expected [E] F64 is mean(usage) if NULL; then usage is                        \
     * cleared. The bias is skipped if NULL, or where sum[0] (F64) is not finite, as in adamw. */                      \
    OP(route_balance, (struct device *device, float *bias, float *usage, double *use, i64 experts,                     \
                       const double *expected, const double *sum, float speed),                                        \
                      (device, bias, usage, use, experts, expected, sum, speed),                                       \
        IS(bias, experts, 1, OR_NULL | TWICE) IS(usage, experts, 1, TWICE) IS(use, experts, 1, TWICE)                  \
        IS(expected, experts, 1, OR_NULL) IS(sum, 1, 1, OR_NULL))                                                      \
    /* ---- losses: one value per target; the backward reads the gradient's coefficient ----                           \
     * loss[i] = lse[i] - logits[i, target[i]], 0 for target -100. entropy [N] receives the entropy                    \
     * of the distribution unless NULL. */                                                                             \
    OP(cross_entropy, (struct device *device, float *loss, float *lse, float *entropy, struct matrix logits,           \
                       const i32 *target), (device, loss, lse, entropy, logits, target),                               \
        SIZES(logits, N, V) IS(loss, N, 1) IS(lse, N, 1) IS(entropy, N, 1, OR_NULL) IS(target, N, 1))                  \
    /* dlogits = coefficient[i] . (softmax - onehot); F32 or BF16. */                                                  \
    OP(cross_entropy_backward, (struct device *device, struct matrix dlogits, struct matrix logits,                    \
                                const float *lse, const i32 *target, const float *coefficient),                        \
                               (device, dlogits, logits, lse, target, coefficient),                                    \
        SIZES(logits, N, V) IS(dlogits, N, V, ANY) IS(lse, N, 1) IS(target, N, 1) IS(coefficient, N, 1))               \
    /* loss[i] = mean over the d bits of the binary cross entropy with logits. bits [N,d] are u8, 0                    \
     * or 1. */                                                                                                        \
    OP(bit_cross_entropy, (struct device *device, float *loss, float *entropy, struct matrix logits,                   \
                           const u8 *bits), (device, loss, entropy, logits, bits),                                     \
        SIZES(logits, N, D) IS(loss, N, 1) IS(entropy, N, 1, OR_NULL) IS(bits, N, D))                                  \
    OP(bit_cross_entropy_backward, (struct device *device, struct matrix dlogits, struct matrix logits,                \
                                    const u8 *bits, const float *coefficient),                                         \
                                   (device, dlogits, logits, bits, coefficient),                                       \
        SIZES(logits, N, D) IS(dlogits, N, D, ANY) IS(bits, N, D) IS(coefficient, N, 1))                               \
    /* dlogits += coefficient[i] . dH/dlogits, where H is the entropy of row i (Williams and Peng 1991). H of           \
     * classes: dH/dx = -p (log p + H), p = exp(x - lse). lse NULL: each column is a bit of its own, H is the sum      \
     * over the row's bits, dH/dx = -x p (1 - p), p = sigmoid(x). F32 or BF16. */                                      \
    OP(entropy_backward, (struct device *device, struct matrix dlogits, struct matrix logits, const float *lse,        \
                          const float *coefficient), (device, dlogits, logits, lse, coefficient),                      \
        SIZES(logits, N, V) IS(dlogits, N, V, ANY | TWICE) IS(lse, N, 1, OR_NULL) IS(coefficient, N, 1))               \
    /* Distillation. divergence[i] = sum over the classes of q (log q - log p): the soft cross entropy                 \
     * of row i against the teacher's distribution q less the entropy of q. p and q are the softmax of                 \
     * logits and teacher, with their lse; all logits are finite. */                                                   \
    OP(soft_cross_entropy, (struct device *device, float *divergence, struct matrix logits, const float *lse,          \
                            struct matrix teacher, const float *teacher_lse),                                          \
                           (device, divergence, logits, lse, teacher, teacher_lse),                                    \
        SIZES(logits, N, V) IS(teacher, N, V) IS(divergence, N, 1) IS(lse, N, 1) IS(teacher_lse, N, 1))                \
    /* dlogits = coefficient[i] . (p - (1 - w) . onehot - w . q) with w = weight[i]: (1 - w) times the cross           \
     * entropy plus w times the soft one; 0 for target -100. F32 or BF16. */                                           \
    OP(soft_cross_entropy_backward, (struct device *device, struct matrix dlogits, struct matrix logits,               \
                                     const float *lse, struct matrix teacher, const float *teacher_lse,                \
                                     const i32 *target, const float *coefficient, const float *weight),                \
                                    (device, dlogits, logits, lse, teacher, teacher_lse, target, coefficient, weight), \
        SIZES(logits, N, V) IS(teacher, N, V) IS(dlogits, N, V, ANY) IS(lse, N, 1) IS(teacher_lse, N, 1)               \
        IS(target, N, 1) IS(coefficient, N, 1) IS(weight, N, 1))                                                       \
    /* The same for the d bits of a row: means over the bits. */                                                       \
    OP(soft_bit_cross_entropy, (struct device *device, float *divergence, struct matrix logits,                        \
                                struct matrix teacher), (device, divergence, logits, teacher),                         \
        SIZES(logits, N, D) IS(teacher, N, D) IS(divergence, N, 1))                                                    \
    OP(soft_bit_cross_entropy_backward, (struct device *device, struct matrix dlogits, struct matrix logits,           \
                                         struct matrix teacher, const u8 *bits, const float *coefficient,              \
                                         const float *weight),                                                         \
                                        (device, dlogits, logits, teacher, bits, coefficient, weight),                 \
        SIZES(logits, N, D) IS(teacher, N, D) IS(dlogits, N, D, ANY) IS(bits, N, D) IS(coefficient, N, 1)              \
        IS(weight, N, 1))                                                                                              \
    /* loss[i] = mean over columns of |x - y|, (x - y)^2 or |ln x - ln y|. dx = coefficient[i] .                       \
     * derivative / columns. */                                                                                        \
    OP(distance, (struct device *device, float *loss, struct matrix x, struct matrix y, enum distance kind),           \
                 (device, loss, x, y, kind),                                                                           \
        SIZES(x, N, C) IS(y, N, C) IS(loss, N, 1))                                                                     \
    OP(distance_backward, (struct device *device, struct matrix dx, struct matrix x, struct matrix y,                  \
                           enum distance kind, const float *coefficient, bool add),                                    \
                          (device, dx, x, y, kind, coefficient, add),                                                  \
        SIZES(x, N, C) IS(y, N, C) IS(dx, N, C, ANY | add * TWICE) IS(coefficient, N, 1))                              \
    /* Spectral convergence of magnitudes (Arik et al. 2019, arXiv 1808.06719): value[g] = |x - y| / |y|, norms over the \
     * `rows` rows of group g, 0 if y is. coefficient[i] of its rows is scale times what distance_backward             \
     * needs (DISTANCE_L2) to write the gradient of value[g]. */                                                       \
    OP(convergence, (struct device *device, float *value, float *coefficient, struct matrix x, struct matrix y,        \
                     i64 rows, float scale), (device, value, coefficient, x, y, rows, scale),                          \
        SIZES(x, N, C, FLOATS) IS(y, N, C, FLOATS) WHERE(rows > 0 && N % rows == 0)                                    \
        IS(value, N / rows, 1) IS(coefficient, N, 1))                                                                  \
    /* Coefficients of a loss: out[i] = scale . weight[i], the product in f64. */                                      \
    OP(coefficients, (struct device *device, float *out, const float *weight, i64 n, double scale),                    \
                     (device, out, weight, n, scale),                                                                  \
        IS(out, n, 1) IS(weight, n, 1))                                                                                \
    /* ---- optimizer ----                                                                                             \
     * sum[0] (F64) += squares of all gradients, in an order that depends only on counts. */                           \
    OP(sum_squares, (struct device *device, double *sum, const struct updates *updates), (device, sum, updates),       \
        IS(sum, 1, 1, TWICE))                                                                                          \
    /* AdamW (Loshchilov & Hutter 2019) over the list. norm = sqrt(sum[0]). If it is not finite,                       \
     * nothing is updated. If clip > 0 and norm > clip, gradients are multiplied by clip / (norm +                     \
     * 1e-6). */                                                                                                       \
    OP(adamw, (struct device *device, const struct updates *updates, const double *sum, double clip,                   \
               const struct adamw *adamw), (device, updates, sum, clip, adamw),                                        \
        IS(sum, 1, 1))                                                                                                 \
    /* Zeroes and marks the slices of stacked gradients dw [parts, rows / parts] whose written[part]                   \
     * is 0. */                                                                                                        \
    OP(zero_unwritten, (struct device *device, struct matrix dw, u8 *written, i64 parts), (device, dw, written, parts),\
        IS(dw, dw.rows / parts * parts, dw.columns, FLOATS) IS(written, parts, 1, TWICE)                               \
        WHERE(dw.stride == dw.columns))                                                                                \
    /* ---- sums for the log, F64, in an order that depends only on n ----                                             \
     * sums[2 s] += weight[i] / levels times value[i], and sums[2 s + 1] += weight[i] / levels. s =                    \
     * stream[i], or 0 where stream is NULL. */                                                                        \
    OP(sum_by_stream, (struct device *device, double *sums, const float *value, const float *weight, const u8 *stream, \
                       i64 n, i64 levels), (device, sums, value, weight, stream, n, levels),                           \
        IS(sums, UNSTATED, 1) IS(value, n, 1) IS(weight, n, 1) IS(stream, n, 1, OR_NULL))                              \
    /* sum[0] += value[0] + ... + value[n-1]. */                                                                       \
    OP(sum_values, (struct device *device, double *sum, const float *value, i64 n), (device, sum, value, n),           \
        IS(sum, 1, 1, TWICE) IS(value, n, 1))                                                                          \
    /* ---- sampling ----                                                                                              \
     * Draws code[i] and returns its log-probability under the same temperature. Draws are keyed by                    \
     * identity[i,0..3]. */                                                                                            \
    OP(sample, (struct device *device, i32 *code, float *logprob, struct matrix logits, const u32 *identity,           \
                const struct sampling *sampling), (device, code, logprob, logits, identity, sampling),                 \
        SIZES(logits, N, V) IS(code, N, 1) IS(logprob, N, 1) IS(identity, 4 * N, 1))                                   \
    OP(sample_bits, (struct device *device, u8 *bits, float *logprob, struct matrix logits, const u32 *identity,       \
                     const struct sampling *sampling), (device, bits, logprob, logits, identity, sampling),            \
        SIZES(logits, N, D) IS(bits, N, D) IS(logprob, N, 1) IS(identity, 4 * N, 1))                                   \
    /* Masks ids that must not be drawn: logits[i,j] = -1e30 (F32) unless bit j % 32 of                                \
     * allowed[set[i]][j / 32] is 1. allowed is [sets, ceil(V / 32)]; set[i] -1 allows all. */                         \
    OP(forbid, (struct device *device, struct matrix logits, const u32 *allowed, const i32 *set),                      \
               (device, logits, allowed, set),                                                                         \
        SIZES(logits, N, V, FLOATS | TWICE) IS(allowed, UNSTATED, 1) IS(set, N, 1))                                    \
    /* Stores the audio codes drawn for one level: codes[i, level] (of [N, levels]) = drawn[i], or                     \
     * `end` if the frame's code at level 0 is `end`. row[i] = level . (end + 1) + that code, its                      \
     * row of the stacked embeddings. */                                                                               \
    OP(settle_codes, (struct device *device, i32 *codes, i32 *row, const i32 *drawn, i64 n, i64 levels, i64 level,     \
                      i32 end), (device, codes, row, drawn, n, levels, level, end),                                    \
        IS(codes, n, levels) IS(row, n, 1) IS(drawn, n, 1))                                                            \
    /* ---- reinforcement learning ----                                                                                \
     * out[i] = loss[i] + logits[i, target[i]]: the log-sum-exp of a cross entropy loss. */                            \
    OP(log_normalizers, (struct device *device, float *out, const float *loss, struct matrix logits,                   \
                         const i32 *target), (device, out, loss, logits, target),                                      \
        SIZES(logits, N, V, FLOATS) IS(out, N, 1) IS(loss, N, 1) IS(target, N, 1))                                     \
    /* x[i,j] += to[i] - from[i], in place; F32. */                                                                    \
    OP(shift_rows, (struct device *device, struct matrix x, const float *to, const float *from), (device, x, to, from),\
        SIZES(x, N, C, FLOATS | TWICE) IS(to, N, 1) IS(from, N, 1))                                                    \
    /* Policy loss of sampled responses. Response i (y) owns ids segment[i] .. segment[i+1] - 1.                       \
     * loss is -log pi(y_j); old, rollout and start are log-probabilities. coefficient[j] = scale .                    \
     * weight_i . dJ_i / d log pi(y_j):                                                                                \
     *     r_j = pi(y_j) / pi_old(y_j)   s = exp(mean_j log r_j)   k_j = pi_old(y_j) / pi_rollout(y_j)                 \
     *     M(k) = k if low <= k <= high, else 0                                                                        \
     *     misc   J = 1/|y| sum_j M(k_j) min(s A, clip(s) A)                                                           \
     *     gspo   J = M(exp mean_j log k_j) min(s A, clip(s) A)                                                        \
     *     grpo   J = 1/|y| sum_j M(k_j) min(r_j A, clip(r_j) A)                                                       \
     * where clip(r) is r in [1 - eps, 1 + eps_high] (DAPO, arXiv 2503.14476, eq. 10), each minus                      \
     * kl . mean_j K_j, an estimate of the KL divergence (Schulman 2020, joschu.net/blog/kl-approx.html) with          \
     * d = log pi_start - log pi: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1. share weighs the ids of a response       \
     * in all means: 1/|y| sum_j x_j becomes sum_j share_j x_j / sum_j share_j; NULL: 1. For misc, id j carries        \
     * the gradient of s_j = s . pi(y_j) / [pi(y_j)], whose denominator is constant. old NULL: pi                      \
     * itself. start NULL: no kl term. All in f64. sums [9] F64 += number of responses; number of                      \
     * ids; sums over responses of the mean over ids of: clipped, masked, |log k|, |r - 1|, the kl                     \
     * term; and weight_i . J_i; number of responses with all ids masked. */                                           \
    OP(policy_loss, (struct device *device, float *coefficient, double *sums, const float *loss, const float *old,     \
                     const float *rollout, const float *start, const float *share, const i32 *segment,                 \
                     const double *advantage, const double *weight, i64 responses,                                     \
                     const struct policy_loss_options *options),                                                       \
                    (device, coefficient, sums, loss, old, rollout, start, share, segment, advantage, weight,          \
                     responses, options),                                                                              \
        IS(coefficient, UNSTATED, 1) IS(sums, 9, 1, TWICE) IS(loss, UNSTATED, 1) IS(old, UNSTATED, 1)                  \
        IS(rollout, UNSTATED, 1) IS(start, UNSTATED, 1) IS(share, UNSTATED, 1) IS(segment, responses + 1, 1)           \
        IS(advantage, responses, 1) IS(weight, responses, 1))                                                                                      \
    /* ---- media ----                                                                                                 \
     * Resizes each of n images [h_in*w_in, C] to [h_out*w_out, C], F32 or BF16. area: mean over                       \
     * rows floor(i h/H) .. ceil((i+1) h/H)-1. bilinear: source max(0, (i+0.5) h/H - 0.5), edges                       \
     * clamped (F.interpolate). The backward adds. */                                                                  \
    OP(resize, (struct device *device, struct matrix out, struct matrix x, i64 n, i64 h_in, i64 w_in, i64 h_out,       \
                i64 w_out, enum resize kind), (device, out, x, n, h_in, w_in, h_out, w_out, kind),                     \
        IS(x, n * h_in * w_in, x.columns) IS(out, n * h_out * w_out, x.columns))                                       \
    OP(resize_backward, (struct device *device, struct matrix dx, struct matrix dout, i64 n, i64 h_in, i64 w_in,       \
                         i64 h_out, i64 w_out, enum resize kind),                                                      \
                        (device, dx, dout, n, h_in, w_in, h_out, w_out, kind),                                         \
        IS(dx, n * h_in * w_in, dx.columns, TWICE) IS(dout, n * h_out * w_out, dx.columns))                            \
    /* Permutes axes: x has `shape` (rank <= 8), and axis a of out is axis order[a] of x. */                           \
    OP(permute, (struct device *device, void *out, const void *x, enum dtype dtype, int rank, const i64 *shape,        \
                 const i64 *order), (device, out, x, dtype, rank, shape, order),                                       \
        IS(shape, rank, 1) IS(order, rank, 1) i64 elements = product_of(shape, rank);                                  \
        IS(out, elements, dtype_bytes(dtype)) IS(x, elements, dtype_bytes(dtype)))                                     \
    /* Multi-scale vision quantizer, f32, fixed order, for each of n latent images x [h*w, d]. For                     \
     * scale k: u = area(r, h_k x w_k); bit = u > 0; q = bilinear(a_k (2 bit - 1)); r -= q. bits are                   \
     * u8 [n, T, d], T = sum h_k w_k. sum [n*h*w, d] is the sum of q. u [n, T, d] holds the values                     \
     * before the sign (may be NULL). flip [n, T, d] (may be NULL): 1 inverts that bit in the                          \
     * running sum, so that the bits of later scales correct it (Infinity, bit-wise                                    \
     * self-correction). */                                                                                            \
    OP(quantize_bits, (struct device *device, u8 *bits, float *sum, float *u, const float *x, const u8 *flip, i64 n,   \
                       i64 h, i64 w, i64 d, const struct scale *scales, i64 scale_count, const float *amplitude),      \
                      (device, bits, sum, u, x, flip, n, h, w, d, scales, scale_count, amplitude),                     \
        i64 T = positions_of(scales, scale_count); IS(scales, scale_count, 1) IS(amplitude, scale_count, 1)            \
        IS(bits, n * T, d) IS(sum, n * h * w, d) IS(u, n * T, d, OR_NULL) IS(x, n * h * w, d)                          \
        IS(flip, n * T, d, OR_NULL))                                                                                   \
    /* Inputs of the backbone from bits: for k >= 2 the sum of the coarser scales resized to h_k x                     \
     * w_k (area), and last the whole sum resized to 1x1. inputs are [n, sum_{k>=2} h_k w_k + 1, d]                    \
     * F32. sum [n*h*w, d] receives the whole sum (may be NULL). bits have flips applied, as they                      \
     * were summed. */                                                                                                 \
    OP(dequantize_bits, (struct device *device, float *inputs, float *sum, const u8 *bits, i64 n, i64 h, i64 w,        \
                         i64 d, const struct scale *scales, i64 scale_count, const float *amplitude),                  \
                        (device, inputs, sum, bits, n, h, w, d, scales, scale_count, amplitude),                       \
        i64 T = positions_of(scales, scale_count); IS(scales, scale_count, 1) IS(amplitude, scale_count, 1)            \
        IS(bits, n * T, d) IS(sum, n * h * w, d, OR_NULL) IS(inputs, n * (T - scale_positions(scales[0]) + 1), d))     \
    /* Usage entropy of a bit-wise code, from u [n, tokens, d] of quantize_bits. With p =                              \
     * sigmoid(sharpness u / a_k), entropy[0] = mean over scales of (mean over positions and bits of                   \
     * H(p) - mean over bits of H(mean of p over positions)), in nats. Also mean_p [scale_count, d]                    \
     * and magnitude [scale_count] = mean |u|. The backward adds to dx [n*h*w, d] coefficient[0]                       \
     * times the derivative through u = area mean of x alone. All F32. */                                              \
    OP(bit_entropy, (struct device *device, float *entropy, float *mean_p, float *magnitude, const float *u, i64 n,    \
                     i64 d, const struct scale *scales, i64 scale_count, const float *amplitude, float sharpness),     \
                    (device, entropy, mean_p, magnitude, u, n, d, scales, scale_count, amplitude, sharpness),          \
        i64 T = positions_of(scales, scale_count); IS(scales, scale_count, 1) IS(amplitude, scale_count, 1)            \
        IS(u, n * T, d) IS(entropy, 1, 1) IS(mean_p, scale_count, d) IS(magnitude, scale_count, 1)                     \
        WHERE(scale_count >= 1 && n >= 1))                                                                             \
    OP(bit_entropy_backward, (struct device *device, float *dx, const float *u, const float *mean_p, i64 n, i64 h,     \
                              i64 w, i64 d, const struct scale *scales, i64 scale_count, const float *amplitude,       \
                              float sharpness, const float *coefficient),                                              \
                             (device, dx, u, mean_p, n, h, w, d, scales, scale_count, amplitude, sharpness,            \
                              coefficient),                                                                            \
        i64 T = positions_of(scales, scale_count); IS(scales, scale_count, 1) IS(amplitude, scale_count, 1)            \
        IS(u, n * T, d) IS(dx, n * h * w, d, TWICE) IS(mean_p, scale_count, d) IS(coefficient, 1, 1)                   \
        WHERE(scale_count >= 1 && n >= 1))                                                                             \
    /* Residual vector quantizer: code[i,l] = the word of codebook l [K,d] nearest to r (squared                       \
     * distance, the smaller id on ties); then r -= that word. sum [N,d] adds up the chosen words.                     \
     * residual [N,L,d] holds r before each level (may be NULL). codebooks are [L*K, d] F32. */                        \
    OP(quantize_vectors, (struct device *device, i32 *codes, float *sum, float *residual, struct matrix x,             \
                          const float *codebooks, i64 levels, i64 codes_count),                                        \
                         (device, codes, sum, residual, x, codebooks, levels, codes_count),                            \
        SIZES(x, N, C) IS(codes, N, levels) IS(sum, N, C) IS(residual, N * levels, C, OR_NULL)                         \
        IS(codebooks, levels * codes_count, C))                                                                        \
    /* Updates code words during training, in f64, rows in order: counts and sums of the residual                      \
     * rows [n,L,d] assigned to each code [n,L] update use and words. A word unseen for more than                      \
     * `patience` calls, or used less than the share `least` of n / K rows a call, is replaced by                       \
     * a random row, which counts as used evenly. revived[0] (F64) += the number of replaced                           \
     * words. words [L*K,d], use and unseen [L*K]. */                                                                  \
    OP(codebook_move, (struct device *device, float *words, float *use, float *unseen, double *revived,                \
                       const i32 *codes, const float *residual, i64 n, const struct codebooks *books),                 \
                      (device, words, use, unseen, revived, codes, residual, n, books),                                \
        i64 words_count = books->levels * books->codes; IS(words, words_count, books->width, TWICE)                    \
        IS(use, words_count, 1, TWICE) IS(unseen, words_count, 1, TWICE) IS(revived, 1, 1, TWICE)                      \
        IS(codes, n, books->levels) IS(residual, n * books->levels, books->width))                                     \
    /* One round of k-means: each word [K,d] of a level becomes the mean of the rows of x [n,d] F32                    \
     * that codes [n] assign to it, or a random row if there are none. codes NULL: all words are                       \
     * random rows. */                                                                                                 \
    OP(codebook_mean, (struct device *device, float *words, const i32 *codes, struct matrix x, i64 level, i64 attempt, \
                       const struct codebooks *books),                                                                 \
                      (device, words, codes, x, level, attempt, books),                                                \
        IS(words, books->codes, books->width) IS(codes, x.rows, 1, OR_NULL) IS(x, x.rows, books->width, FLOATS))       \
    /* Short-time Fourier transform of each row of x [B,n] F32, n > n_fft/2: periodic Hann windows                     \
     * of n_fft (even) samples, frame f centred on sample f . hop, the signal reflected at its ends                    \
     * (torch.stft, center). spectrum is [B (n/hop + 1), 2 (n_fft/2 + 1)]: real parts, then                            \
     * imaginary parts; with `magnitude`, only sqrt(re^2 + im^2). stft_backward: dx of the complex                     \
     * form. stft_inverse: the signal whose windows are nearest in least squares (Griffin & Lim                        \
     * 1984). */                                                                                                       \
    OP(stft, (struct device *device, struct matrix spectrum, struct matrix x, i64 n_fft, i64 hop, bool magnitude),     \
             (device, spectrum, x, n_fft, hop, magnitude),                                                             \
        STFT(x, spectrum, magnitude ? 1 : 2))                                                                          \
    OP(stft_backward, (struct device *device, struct matrix dx, struct matrix dspectrum, i64 n_fft, i64 hop),          \
                      (device, dx, dspectrum, n_fft, hop),                                                             \
        STFT(dx, dspectrum, 2))                                                                                        \
    OP(stft_inverse, (struct device *device, struct matrix x, struct matrix spectrum, i64 n_fft, i64 hop),             \
                     (device, x, spectrum, n_fft, hop),                                                                \
        STFT(x, spectrum, 2))                                                                                          \
    /* Griffin-Lim: spectrum [N, 2 bins] with magnitude [M, bins]; rows past the last magnitude                        \
     * repeat it. phases_draw takes random phases keyed by (row, bin), phases_push the phases of now                   \
     * + momentum (now - last). */                                                                                     \
    OP(phases_draw, (struct device *device, struct matrix spectrum, struct matrix magnitude, struct rng_key key),      \
                    (device, spectrum, magnitude, key),                                                                \
        SIZES(magnitude, M, B, FLOATS) IS(spectrum, spectrum.rows, 2 * B, FLOATS) WHERE(M > 0 || spectrum.rows == 0))  \
    OP(phases_push, (struct device *device, struct matrix spectrum, struct matrix now, struct matrix last,             \
                     struct matrix magnitude, float momentum), (device, spectrum, now, last, magnitude, momentum),     \
        SIZES(spectrum, N, C, FLOATS) IS(now, N, C, FLOATS) IS(last, N, C, FLOATS)                                     \
        IS(magnitude, magnitude.rows, C / 2, FLOATS) WHERE(C % 2 == 0 && (magnitude.rows > 0 || N == 0)))              \
    /* Spectra of logarithms of magnitudes a and phases p (Siuzdak 2023, arXiv 2306.00814, 3.2): x [N,2B]              \
     * is a, then p; spectrum [N,2B] is re = e^min(a, POLAR_MOST) cos(p + q), then im. q = pi/2 . row .                \
     * bin is what a steady wave of the bin turns by from row to row, when windows are four hops                       \
     * long. */                                                                                                        \
    OP(polar, (struct device *device, struct matrix spectrum, struct matrix x), (device, spectrum, x),                 \
        SIZES(x, N, C, FLOATS) IS(spectrum, N, C, FLOATS) WHERE(C % 2 == 0))                                           \
    OP(polar_backward, (struct device *device, struct matrix dx, struct matrix dspectrum, struct matrix spectrum,      \
                        struct matrix x, bool add), (device, dx, dspectrum, spectrum, x, add),                         \
        SIZES(x, N, C, FLOATS) IS(spectrum, N, C, FLOATS) IS(dspectrum, N, C, FLOATS)                                  \
        IS(dx, N, C, FLOATS | add * TWICE) WHERE(C % 2 == 0))
/* clang-format on */

/* One table of function pointers per backend. `names` lists the argument names, to forward a call.
 */
struct kernels {
#define OP(name, arguments, names, ...) void(*name) arguments;
    WEFT_OPS(OP)
#undef OP
};
extern const struct kernels cpu_v3_kernels, cpu_v4_kernels, meta_kernels;
/* Makes `kernels` the ops of a device. Its ops check their operands before they call them. */
void device_use(struct device *device, const struct kernels *kernels);

/* Kinds of ops whose speeds differ. The work of the first three is flops, that of the others bytes read and written. */
enum work_kind { WORK_PRODUCTS, WORK_EXPERTS, WORK_ATTENTION, WORK_UPDATE, WORK_OTHER, WORK_KINDS };
enum work_kind work_kind_of(const char *op); /* its name in WEFT_OPS (kernels/device/timed.c) */
/* Costs counted by the meta backend. */
struct cost {
    double flops;   /* flops of gemms */
    double bytes;   /* bytes read and written by all ops */
    double traffic; /* bytes sent by collectives */
    i64 calls;
    double work[WORK_KINDS];
};
/* Seconds of ops, with the work that the meta backend counts for the same calls. They are shares of the seconds that
 * pass, by the processor time of the calling thread, so other programs that run meanwhile slow all kinds alike. */
struct op_times {
    const struct kernels *kernels; /* of the device */
    struct device *meta;
    double begin_s, begin_cpu_s;
    double seconds[WORK_KINDS];
    double counting_s; /* for the meta backend */
    double between_s;  /* the rest */
    struct cost cost;
};
/* Times every op that the calling thread runs on a CPU from here to device_time_end; one device at a time. */
void device_time_begin(struct device *device, struct op_times *times);
void device_time_end(struct device *device, struct op_times *times);

/* ---- Device memory and host memory ---- */
/* Ops and collectives access only device memory, on the CPU too. Host code crosses with device_put
 * and device_get, which are queued like ops. device_put has copied its source when it returns; ops
 * queued later see the data. device_get has filled host memory when it returns. Device memory of
 * the CPU and meta backends is address space until touched, and only the zero op zeroes it. The
 * meta backend keeps what was put and returns zeros for everything else. */
struct memory {
    void *(*alloc)(struct device *device, i64 bytes); /* aligned to at least 64 bytes; panics if out of memory */
    void (*release)(struct device *device, void *block, i64 bytes);
    void (*put)(struct device *device, void *out, const void *host, i64 bytes);
    void (*get)(struct device *device, void *host, const void *in, i64 bytes);
    /* reserve: address space for an arena. grow: memory behind its bytes [from, to), multiples of
     * GROW_BYTES. NULL: arenas use alloc and release, and memory appears when touched. */
    void *(*reserve)(struct device *device, i64 bytes);
    void (*grow)(struct device *device, void *base, i64 from, i64 to);
    void (*unreserve)(struct device *device, void *base, i64 bytes, i64 backed_bytes);
    /* Between unlock and lock, host transports may touch a CPU's device memory. Pairs may nest. */
    void (*unlock)(struct device *device);
    void (*lock)(struct device *device);
    i64 (*held)(const struct device *device); /* own memory, bytes; NULL: the scratch counters */
    i64 (*left)(const struct device *device); /* free bytes; NULL: no limit but the system's */
    void (*close)(struct device *device);     /* backend part of device_close; NULL: nothing */
};
/* Memory appears in whole blocks of GROW_BYTES on a GPU, in huge pages on a CPU. */
enum { GROW_BYTES = 32 << 20, HUGE_BYTES = 1 << 21 };
extern const struct memory cpu_memory;

/* ---- Recordings: sequences of ops launched at once (CUDA graphs) ----
 * The host of a GPU spends microseconds on each op. A sequence of ops that repeats with the same
 * arguments is recorded and then launched as one:
 *
 *     for (bool done = device_replay(device, recordings, &key, sizeof key); !done;) {
 *         ops only: no put, get or alloc, and no arena may grow that did not grow the first time
 *         done = device_recorded(device, recordings);
 *     }
 *
 * The key's bytes (at most KEY_BYTES_MOST) must determine all arguments of the ops; anything else
 * that changes is read from device memory. The first time a key occurs, its ops run directly. The
 * second time they are also recorded. From then on device_replay launches the recording and returns
 * true. The most recent keys are kept. If recording fails, the called ops have not run:
 * device_recorded returns false, and the ops of this key run directly from then on. Backends
 * without recordings, and a GPU with WEFT_GRAPHS=0 in the environment, run all ops directly.
 * WEFT_GRAPHS=update records each time and updates the existing recording. */
struct recordings; /* NULL on backends without recordings */
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
/* ISA levels of the CPU backend: x86-64-v3 (AVX2); x86-64-v4 (AVX-512); v4 plus VNNI integer gemms;
 * VNNI plus AVX512-BF16 dot products; VNNI plus AMX tiles. */
enum cpu_isa { CPU_ISA_V3, CPU_ISA_V4, CPU_ISA_VNNI, CPU_ISA_AVX512_BF16, CPU_ISA_AMX };
struct device {
    const struct kernels *ops;     /* check their operands, then call those of `kernels` */
    const struct kernels *kernels; /* of the backend */
    const struct memory *memory;
    const struct recorder *recorder; /* NULL: no recordings */
    enum backend backend;
    enum cpu_isa isa;                    /* CPU only: instruction set of its ops */
    bool has_bf16;                       /* bf16 gemms are at least as fast as f32 */
    bool has_fp8;                        /* fp8 gemms (matmul_fp8) are faster than bf16 */
    void *queue;                         /* CUDA stream; NULL elsewhere */
    void *handles;                       /* library handles of the backend */
    void (*wait)(struct device *device); /* waits for the queue while serving ranks' messages; NULL: a plain wait */
    void (*pace)(struct device *device); /* called every so many launches; waits for earlier ones; or NULL */
    struct cost cost;                    /* meta backend only */
    i64 backed_bytes, backed_most_bytes; /* meta only: memory that would stand behind arenas, now and peak */
};
/* True for a GPU, or meta acting as one: the host continues while ops run. */
static inline bool device_is_gpu(const struct device *device)
{
    return device->backend == BACKEND_CUDA || (device->backend == BACKEND_META && device->recorder);
}
/* Bytes that a warm backend holds besides its tensors. CPU: measured in this process. Meta: a
 * memory estimate for a CPU from the shapes it saw. GPU, and meta as one: the workspace; a real GPU
 * also counts pinned host memory. */
i64 device_held_bytes(const struct device *device);
/* Free bytes of a GPU; of a CPU what the tightest limit leaves (memory_room). INT64_MAX: no limit. */
i64 device_left_bytes(const struct device *device);
void *device_alloc(struct device *device, i64 bytes);
void device_free(struct device *device, void *block, i64 bytes);
void device_put(struct device *device, void *out, const void *host, i64 bytes);
void device_get(struct device *device, void *host, const void *in, i64 bytes);
/* Opens an arena of device memory. device_arena_close must run before the device is closed. */
void device_arena_open(struct device *device, struct arena *arena, i64 reserved_bytes);
/* True if a new arena holds zeros, and takes pages only when they are touched. */
bool device_arenas_are_zero(const struct device *device);
void device_arena_close(struct device *device, struct arena *arena);

void device_open_cpu(struct device *device);
/* Opens a CPU device with protected device memory, for tests: only ops, collectives, put and get
 * may touch device memory, and an op panics on a pointer outside it. WEFT_GUARD=1 makes `weft` run
 * its models on one. */
void device_open_guarded(struct device *device);
void device_open_host(struct device *device); /* guarded with WEFT_GUARD=1, else the CPU */
bool device_is_guarded(void);                 /* WEFT_GUARD is 1 */
void device_open_meta(struct device *device);
/* Makes meta act as a GPU: it follows a GPU's placement and sizes of buffers, recordings and, on
 * Hopper, fp8 gemms. Its arenas grow as a GPU's do, counted in backed_bytes. Call it before
 * anything is opened on the device. */
void device_meta_gpu(struct device *meta, bool has_fp8);
void device_close(struct device *device);
const char *device_name(const struct device *device); /* static string, e.g. "cpu (AVX-512, bf16)" */

/* Bytes of the image that pack_weight makes of a BF16 weight. 0 if the backend uses none. */
i64 kernels_packed_bytes(const struct device *device, i64 parts, i64 rows, i64 columns);

/* Peak matrix throughput in GFLOP/s: the CPU's best bf16 (or f32) instruction on all workers, with
 * operands in registers. It is the maximum over slices of a few ms within about `seconds`, because
 * other load can only slow a core down. */
double kernels_matrix_peak(struct device *device, enum dtype dtype, double seconds);
/* GFLOP/s of gemms [m, k] x [k, n] by the op, over at least 3 runs in about `seconds`: the rate that
 * a tenth of them exceeds. Other load slows most runs down, and a few are faster than the clock of
 * longer work allows. */
double kernels_gemm_rate(struct device *device, i64 m, i64 n, i64 k, enum dtype dtype, double seconds);

#endif
