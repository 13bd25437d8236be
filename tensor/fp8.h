/* Products of operands of 8 bits (round_fp8): y = x w^T of a weight that is so (weights_fp8), and its two gradients, as
 * Micikevicius et al. 2022 choose formats and DeepSeek-V3 (arXiv 2412.19437, 3.3) blocks: along what a product sums
 * over, each from the values themselves.
 *
 *     y  = x  w^T     x  e4m3, 1 x 128 along its columns      w  e4m3, 128 x 128, once a step
 *     dx = dy w       dy e5m2, 1 x 128 along its columns      w  the same
 *     dw = dy^T x     dy e5m2, x e4m3, 128 x 1 along rows, which begin anew at each expert's
 *
 * The derivative of rounding is taken to be 1. Where nothing is differentiated (losses that are measured, generation)
 * operands are what they are without: what a checkpoint is elsewhere. Attention's scores, norms, embeddings, heads,
 * routers, sums and the optimizer know nothing of 8 bits. */
#ifndef WEFT_TENSOR_FP8_H
#define WEFT_TENSOR_FP8_H
#include "tensor/tensor.h"

struct operands { /* of products by one weight; rounded ones lie on the tape, from `mark` on, until operands_end */
    struct tape *tape;
    const struct tensor *w;
    const struct groups *groups; /* of rows; NULL: none */
    i64 mark;
};
static inline bool operands_are_rounded(const struct operands *by)
{
    return by->w->fp8 && (by->tape->recording || by->tape->keeping);
}

/* x itself, or rounded. */
static inline struct matrix operand(const struct operands *by, struct matrix x, enum fp8 format, enum fp8_blocks blocks)
{
    if (!operands_are_rounded(by))
        return x;
    struct device *device = by->tape->device;
    void *data = tape_alloc(by->tape, x.rows * x.columns * dtype_bytes(x.dtype));
    struct matrix out = matrix_of(data, x.dtype, x.rows, x.columns);
    device->ops->round_fp8(device, out, x, format, blocks, 1, by->groups);
    return out;
}

static inline struct matrix operand_weight(const struct operands *by)
{
    struct matrix w = tensor_matrix(by->w);
    if (!operands_are_rounded(by))
        return w;
    require(by->w->rounded, "a weight in 8 bits without weights_begin_step");
    w.data = (void *)(uintptr_t)by->w->rounded;
    w.packed = by->w->rounded_packed;
    return w;
}

static inline void operands_end(const struct operands *by)
{
    arena_reset(&by->tape->arena, by->mark);
}

#endif
