/* Activations and their derivatives: silu(x) = x s with s = sigmoid(x), and gelu(x) = x (1 + erf(x
 * / sqrt(2))) / 2. The backend computes the sigmoid, the erf and the exponential and passes them
 * in. */
#ifndef WEFT_ACTIVATE_H
#define WEFT_ACTIVATE_H
#include "kernels/formula.h"

#define GELU_ARGUMENT 0.70710678f /* 1 / sqrt(2): gelu takes the erf of GELU_ARGUMENT x */

FORMULA float silu_of(float x, float sigmoid)
{
    return x * sigmoid;
}

FORMULA float silu_slope(float x, float sigmoid)
{
    return sigmoid * (1 + x * (1 - sigmoid));
}

FORMULA float gelu_of(float x, float erf)
{
    return 0.5f * x * (1 + erf);
}

FORMULA float gelu_slope(float x, float erf, float bell) /* bell: exp(-x^2 / 2) */
{
    return 0.5f * (1 + erf) + x * 0.39894228f * bell;
}

#endif
