/* Checks of a convolution's operands, shared by all backends. */
#ifndef WEFT_KERNELS_CONV_H
#define WEFT_KERNELS_CONV_H
#include "kernels/kernels.h"

static inline i64 product3(const i64 v[3])
{
    return v[0] * v[1] * v[2];
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

static inline void conv_check(const struct conv *c, struct matrix x, struct matrix y, struct matrix w)
{
    i64 in = product3(c->size), out = conv_out_size(c, 0) * conv_out_size(c, 1) * conv_out_size(c, 2);
    require(
        x.rows == c->batch * in && x.rows && y.rows && x.columns == c->in && y.rows == c->batch * out &&
            y.columns == c->out && w.rows == c->out && w.columns == product3(c->kernel) * c->in,
        "conv: x [%lld,%lld], y [%lld,%lld], w [%lld,%lld] do not fit %lld x [%lld -> %lld] of %lld -> %lld positions",
        (long long)x.rows, (long long)x.columns, (long long)y.rows, (long long)y.columns, (long long)w.rows,
        (long long)w.columns, (long long)c->batch, (long long)c->in, (long long)c->out, (long long)in, (long long)out);
}

#endif
