/* AdamW (Loshchilov & Hutter 2019): the update of one element, and the factors that all elements of
 * one update share. */
#ifndef WEFT_ADAMW_H
#define WEFT_ADAMW_H
#include "kernels/formula.h"
#include "kernels/kernels.h"

#include <math.h>

/* p = keep p - rate m / (root sqrt(v) + eps). The gradient is first multiplied by scale. `against`
 * multiplies the second term where m and the gradient differ in sign; keep_away replaces keep where
 * m and p differ in sign. */
struct adamw_factors {
    float keep, keep_away, beta1, beta2, rate, root, eps, scale, against;
};
struct adamw_corrections { /* bias corrections 1 - beta^step of the two moments */
    double first, second;
};

static inline struct adamw_corrections adamw_corrections_of(const struct adamw *adamw)
{
    struct adamw_corrections c = {1 - pow(adamw->beta1, (double)adamw->step),
                                  1 - pow(adamw->beta2, (double)adamw->step)};
    return c;
}

FORMULA float adamw_scale(double norm, double clip)
{
    return clip > 0 && norm > clip ? (float)(clip / (norm + 1e-6)) : 1;
}

FORMULA struct adamw_factors adamw_factors_of(const struct adamw *a, struct adamw_corrections c, float lr_factor,
                                              float decay_factor, float scale)
{
    float lr = a->lr * lr_factor, keep = 1 - lr * (a->decay * decay_factor);
    struct adamw_factors f = {keep,
                              a->cautious_decay ? 1 : keep,
                              a->beta1,
                              a->beta2,
                              (float)(lr / c.first),
                              (float)(1 / sqrt(c.second)),
                              a->eps,
                              scale,
                              a->cautious ? 0.0f : 1.0f};
    return f;
}

FORMULA void adamw_element(float *p, float *m, float *v, float gradient, struct adamw_factors f)
{
    *m = f.beta1 * *m + (1 - f.beta1) * gradient;
    *v = f.beta2 * *v + (1 - f.beta2) * gradient * gradient;
    float rate = f.rate * (*m * gradient < 0 ? f.against : 1);
    float keep = *m * *p > 0 ? f.keep : f.keep_away;
    *p = keep * *p - rate * *m / (f.root * sqrtf(*v) + f.eps);
}

#endif
