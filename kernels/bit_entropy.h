/* Entropies of p = sigmoid(z) and their derivative, for the op bit_entropy (kernels.h). */
#ifndef WEFT_BIT_ENTROPY_H
#define WEFT_BIT_ENTROPY_H
#include "kernels/formula.h"

#include <math.h>

/* H(p) from a = |z|, e = exp(-a): log(1 + e) + a e / (1 + e). */
FORMULA float logit_entropy_of(float a, float e, float log1p_e)
{
    return log1p_e + a * e / (1.0f + e);
}

/* The logit of a mean p. A bit that is the same at every position has p = 0 or 1 and an infinite
 * logit; the logit of the nearest f32 inside (0, 1) replaces it. The backward multiplies it by p (1
 * - p), which is 0 at every position of such a bit. */
FORMULA float mean_logit_of(float p)
{
    return p <= 0.0f ? -103.0f : p >= 1.0f ? 17.0f : logf(p / (1.0f - p));
}

/* (H'(p) - H'(mean p)) p (1 - p) factor, where H'(p) = -logit(p) = -z and mean_logit is the logit
 * of the mean p. */
FORMULA float bit_entropy_derivative(float z, float p, float mean_logit, float factor)
{
    return factor * (mean_logit - z) * p * (1.0f - p);
}

#endif
