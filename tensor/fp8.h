/* The products by a weight, y = x w^T and its two gradients. Of one in 8 bits (weights_fp8) their operands are, as
 * Micikevicius et al. 2022 choose formats and DeepSeek-V3 (arXiv 2412.19437, 3.3) blocks: along what a product sums
 * over, each from the values themselves.
 *
 *     y  = x  w^T     x  e4m3, 1 x 128 along its columns      w  e4m3, 128 x 128, once a step
 *     dx = dy w       dy e5m2, 1 x 128 along its columns      w  the same
 *     dw = dy^T x     dy e5m2, x e4m3, 128 x 1 along rows, which begin anew at each expert's
 *
 * A device that multiplies 8 bits (has_fp8) does so with codes; dx reads w turned, which is there beside w, and dw both
 * operands, which are turned as they are rounded. Others multiply rounded operands as ever: the same terms.
 *
 * The derivative of rounding is taken to be 1. Where nothing is differentiated (losses that are measured, generation)
 * operands are what they are without: what a checkpoint is elsewhere. But a tape that is `as_trained` has those of
 * training: rollouts and what an update is compared with, so that an id has one log-probability. Attention's scores,
 * norms, embeddings, heads, routers, sums and the optimizer know nothing of 8 bits. */
#ifndef WEFT_TENSOR_FP8_H
#define WEFT_TENSOR_FP8_H
#include "tensor/tensor.h"

/* Rows by group where there are groups; NULL: none. source: row r of x is row source[r] of it (-1: zeros), NULL: row r.
 * Rounded operands, and rows that had to be copied for them, lie on the tape until a product is done. */
struct by_weight {
    struct tape *tape;
    struct tensor *w;
    const struct groups *groups;
    const i32 *source;
};
bool product_is_plain(const struct by_weight *by); /* of x and w's own numbers: not rounded, nor in few bits */
void product_forward(const struct by_weight *by, struct matrix y, struct matrix x);
/* y = swiglu(x w^T) of groups; gate_up: x w^T, kept where its data is not NULL. */
void product_gated(const struct by_weight *by, struct matrix y, struct matrix gate_up, struct matrix x);
void product_of_inputs(const struct by_weight *by, struct gradient dx, struct matrix dy);
/* dw is w's own of a grouped product, which marks the parts it writes. */
void product_of_weights(const struct by_weight *by, struct gradient dw, struct matrix dy, struct matrix x);

#endif
