/* Sizes of a convolution, shared by all backends. */
#ifndef WEFT_KERNELS_CONV_H
#define WEFT_KERNELS_CONV_H
#include "kernels/kernels.h"

static inline i64 product3(const i64 v[3])
{
    return v[0] * v[1] * v[2];
}

static inline i64 conv_out_positions(const struct conv *c) /* of one output */
{
    return conv_out_size(c, 0) * conv_out_size(c, 1) * conv_out_size(c, 2);
}

/* true if the convolution is a gemm: each output position reads only itself */
static inline bool conv_is_gemm(const struct conv *c)
{
    bool is = true;
    for (int axis = 0; axis < 3; axis++)
        is &= c->kernel[axis] == 1 && c->stride[axis] == 1 && !c->pad_front[axis] &&
              conv_out_size(c, axis) == c->size[axis];
    return is;
}

#endif
