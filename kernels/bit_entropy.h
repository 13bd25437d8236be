/* How evenly bits are used (bit_entropy in kernels.h): entropies of p = sigmoid(z) and their derivative. */
#ifndef WEFT_BIT_ENTROPY_H
#define WEFT_BIT_ENTROPY_H
#include "kernels/formula.h"

#include <math.h>

/* H(p) from a = |z|, e = exp(-a): log(1 + e) + a e / (1 + e). */
FORMULA float logit_entropy_of(float a, float e, float log1p_e)
{
    return log1p_e + a * e / (1.0f + e);
}

/* A bit that says the same everywhere has p = 0 or 1, and an infinite logit. In the backward it meets p (1 - p) = 0 at
 * every position; it is that of the nearest p in f32. */
FORMULA float mean_logit_of(float p)
{
    return p <= 0.0f ? -103.0f : p >= 1.0f ? 17.0f : logf(p / (1.0f - p));
}

/* H'(p) p (1 - p) factor, H'(p) = -logit(p) = -z; the mean's part has H'(mean p) instead. */
FORMULA float bit_entropy_derivative(float z, float p, float mean_logit, float factor)
{
    return factor * (mean_logit - z) * p * (1.0f - p);
}

#endif
