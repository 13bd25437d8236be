/* Products with a weight: y = x w^T and its two gradients, optionally in fp8 (weights_fp8).
 *
 * Formats follow Micikevicius et al. 2022, block scales follow DeepSeek-V3 (arXiv 2412.19437, 3.3).
 * Blocks run along the reduction dimension, and each is scaled by its own values.
 *
 *     y  = x  w^T     x  e4m3, 1 x 128 along its columns      w  e4m3, 128 x 128, once a step
 *     dx = dy w       dy e5m2, 1 x 128 along its columns      w  the same
 *     dw = dy^T x     dy e5m2, x e4m3, 128 x 1 along rows, restarting at each expert
 *
 * A device with fp8 gemm (has_fp8) multiplies fp8 codes. For dx it reads the transposed w, which is
 * stored beside w; for dw it transposes both operands while it quantizes them. Other devices
 * multiply operands rounded to fp8 values with their usual gemms, which gives the same terms.
 *
 * Rounding is differentiated as the identity. Passes without a backward (validation losses,
 * generation) use unrounded operands, as other software does with the checkpoint. A tape with
 * `as_trained` set uses the rounded operands of training: rollouts and the reference
 * log-probabilities of an update then agree with the update itself. Attention scores, norms,
 * embeddings, heads, routers, reductions and the optimizer never use fp8. */
#ifndef WEFT_TENSOR_LINEAR_H
#define WEFT_TENSOR_LINEAR_H
#include "tensor/tensor.h"

/* A weight and how to multiply with it. groups: rows grouped by expert; NULL: none. source: row r
 * of x is row source[r] (-1: zeros); NULL: row r. Rounded operands and gathered rows occupy the
 * tape's arena until the product is done. */
struct linear_weight {
    struct tape *tape;
    struct tensor *w;
    const struct groups *groups;
    const i32 *source;
};
bool linear_is_plain(const struct linear_weight *by); /* unrounded x and unquantized w */
void linear_forward(const struct linear_weight *by, struct matrix y, struct matrix x);
/* y = swiglu(x w^T), grouped. Stores x w^T in gate_up unless its data is NULL. */
void linear_swiglu_forward(const struct linear_weight *by, struct matrix y, struct matrix gate_up, struct matrix x);
void linear_input_gradient(const struct linear_weight *by, struct gradient dx, struct matrix dy);
/* dw of a grouped product is the weight's own gradient; the parts it writes are marked. */
void linear_weight_gradient(const struct linear_weight *by, struct gradient dw, struct matrix dy, struct matrix x);

#endif
