/* The three products of a convolution, and cuDNN as another way to compute them (conv_cudnn.c). */
#ifndef WEFT_CUDA_CONV_H
#define WEFT_CUDA_CONV_H
#include "kernels/cuda/cuda.h"

enum conv_pass { FORWARD, DATA, WEIGHTS }; /* y from x and w; dx from dy and w; dw from dy and x */

#ifdef __cplusplus
extern "C" {
#endif
/* Computes y, x (as dx) or w (as dw) from the other two, and adds to it if asked. Returns false and
 * computes nothing if cuDNN is not asked for, or does not compute this convolution. */
bool cuda_conv_by_cudnn(struct device *device, enum conv_pass pass, struct matrix x, struct matrix w, struct matrix y,
                        const struct conv *conv, bool add);
#ifdef __cplusplus
}
#endif

#endif
