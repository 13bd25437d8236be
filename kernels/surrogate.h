/* Policy loss of the op `surrogate`, one id at a time, all in f64. kernels.h states the objective.
 */
#ifndef WEFT_SURROGATE_H
#define WEFT_SURROGATE_H
#include "kernels/formula.h"
#include "kernels/kernels.h"

#include <math.h>

struct surrogate_response { /* n ids; old and start may be NULL */
    i64 n;
    const float *loss, *old, *rollout, *start;
    double advantage, weight;
};
struct surrogate_means { /* means over a response's ids of log r and log k */
    double ratio, mismatch;
};
struct surrogate_sums_of_ids {
    double clipped, masked, mismatch, ratio, kl, value;
};

FORMULA struct surrogate_response surrogate_response_of(const float *loss, const float *old, const float *rollout,
                                                        const float *start, i64 begin, i64 end, double advantage,
                                                        double weight)
{
    struct surrogate_response y = {
        end - begin, loss + begin, old ? old + begin : 0, rollout + begin, start ? start + begin : 0,
        advantage,   weight};
    return y;
}

FORMULA double surrogate_log_ratio(const struct surrogate_response *y, i64 j)
{
    return y->old ? -(double)y->loss[j] - (double)y->old[j] : 0;
}

FORMULA double surrogate_log_mismatch(const struct surrogate_response *y, i64 j)
{
    return (y->old ? (double)y->old[j] : -(double)y->loss[j]) - (double)y->rollout[j];
}

/* Returns min(r A, clip(r) A). *cut is true if the clip removes the gradient. */
FORMULA double surrogate_clipped(bool *cut, double ratio, double advantage, double eps)
{
    double free = ratio * advantage, bound = fmin(fmax(ratio, 1 - eps), 1 + eps) * advantage;
    *cut = bound < free;
    return fmin(free, bound);
}

/* Subtracts the derivative of kl times the penalty from *slope. Returns the penalty exp(d) - d - 1
 * (Schulman's k3). */
FORMULA double surrogate_pull_back(double *slope, const struct surrogate_options *s, const struct surrogate_response *y,
                                   i64 j)
{
    if (!y->start || s->kl <= 0)
        return 0;
    double d = (double)y->start[j] + (double)y->loss[j];
    *slope += s->kl * (exp(d) - 1);
    return exp(d) - d - 1;
}

/* Returns the coefficient of id j and adds its terms to the sums. */
FORMULA float surrogate_score(struct surrogate_sums_of_ids *sums, const struct surrogate_options *s,
                              const struct surrogate_response *y, i64 j, struct surrogate_means mean)
{
    bool cut;
    double n = (double)y->n, log_k = surrogate_log_mismatch(y, j);
    double k = exp(s->algorithm == SURROGATE_GSPO ? mean.mismatch : log_k);
    double ratio = exp(s->algorithm == SURROGATE_GRPO ? surrogate_log_ratio(y, j) : mean.ratio);
    double factor = k >= s->mismatch_low && k <= s->mismatch_high ? k : 0;
    double term = surrogate_clipped(&cut, ratio, y->advantage, s->eps);
    double slope = cut ? 0 : factor * ratio * y->advantage;
    double penalty = surrogate_pull_back(&slope, s, y, j);
    sums->value += y->weight * (factor * term - s->kl * penalty) / n;
    sums->clipped += cut / n;
    sums->masked += (factor == 0) / n;
    sums->mismatch += fabs(log_k) / n;
    sums->ratio += fabs(ratio - 1) / n;
    sums->kl += penalty / n;
    return (float)(y->weight * slope / n) * s->scale;
}

#endif
