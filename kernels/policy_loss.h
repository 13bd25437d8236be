/* Op `policy_loss`, one id at a time, all in f64. kernels.h states the objective.
 */
#ifndef WEFT_KERNELS_POLICY_LOSS_H
#define WEFT_KERNELS_POLICY_LOSS_H
#include "kernels/formula.h"
#include "kernels/kernels.h"

#include <math.h>

struct policy_loss_response { /* n ids; old, start and share may be NULL */
    i64 n;
    const float *loss, *old, *rollout, *start, *share;
    double advantage, weight;
    double total; /* sum of the shares of its ids */
};
struct policy_loss_means { /* means over a response's ids of log r and log k */
    double ratio, mismatch;
};
struct policy_loss_id_sums {
    double clipped, masked, mismatch, ratio, kl, value;
};

FORMULA double policy_loss_share(const struct policy_loss_response *y, i64 j)
{
    return y->share ? (double)y->share[j] : 1;
}

/* Adds the shares in order, so that all threads of a block get the same total. */
FORMULA struct policy_loss_response policy_loss_response_of(const float *loss, const float *old, const float *rollout,
                                                            const float *start, const float *share, i64 begin, i64 end,
                                                            double advantage, double weight)
{
    struct policy_loss_response y = {end - begin,
                                     loss + begin,
                                     old ? old + begin : 0,
                                     rollout + begin,
                                     start ? start + begin : 0,
                                     share ? share + begin : 0,
                                     advantage,
                                     weight,
                                     (double)(end - begin)};
    if (y.share) {
        y.total = 0;
        for (i64 j = 0; j < y.n; j++)
            y.total += policy_loss_share(&y, j);
    }
    return y;
}

FORMULA double policy_loss_log_ratio(const struct policy_loss_response *y, i64 j)
{
    return y->old ? -(double)y->loss[j] - (double)y->old[j] : 0;
}

FORMULA double policy_loss_log_mismatch(const struct policy_loss_response *y, i64 j)
{
    return (y->old ? (double)y->old[j] : -(double)y->loss[j]) - (double)y->rollout[j];
}

/* Returns min(r A, clip(r) A). *cut is true if the clip removes the gradient. */
FORMULA double policy_loss_clipped(bool *cut, double ratio, double advantage, const struct policy_loss_options *s)
{
    double free = ratio * advantage, bound = fmin(fmax(ratio, 1 - s->eps), 1 + s->eps_high) * advantage;
    *cut = bound < free;
    return fmin(free, bound);
}

/* Subtracts the derivative of kl times the penalty from *slope. Returns the penalty, one of Schulman's
 * estimators. */
FORMULA double policy_loss_kl_penalty(double *slope, const struct policy_loss_options *s,
                                      const struct policy_loss_response *y, i64 j)
{
    if (!y->start || s->kl <= 0)
        return 0;
    double d = (double)y->start[j] + (double)y->loss[j];
    if (s->kl_estimator != POLICY_LOSS_K3) {
        bool squared = s->kl_estimator == POLICY_LOSS_K2;
        *slope += s->kl * (squared ? d : -1);
        return squared ? d * d / 2 : -d;
    }
    *slope += s->kl * (exp(d) - 1);
    return exp(d) - d - 1;
}

/* 1 if all ids of a response are masked, whose shares add up to 1. masked: the sum over its ids. */
FORMULA double policy_loss_all_masked(const struct policy_loss_response *y, double masked)
{
    return y->n > 0 && masked > 1 - 1e-9;
}

/* Returns the coefficient of id j and adds its terms to the sums. */
FORMULA float policy_loss_coefficient(struct policy_loss_id_sums *sums, const struct policy_loss_options *s,
                                      const struct policy_loss_response *y, i64 j, struct policy_loss_means mean)
{
    bool cut;
    double part = policy_loss_share(y, j), log_k = policy_loss_log_mismatch(y, j);
    double k = exp(s->algorithm == POLICY_LOSS_GSPO ? mean.mismatch : log_k);
    double ratio = exp(s->algorithm == POLICY_LOSS_GRPO ? policy_loss_log_ratio(y, j) : mean.ratio);
    double factor = k >= s->mismatch_low && k <= s->mismatch_high ? k : 0;
    double term = policy_loss_clipped(&cut, ratio, y->advantage, s);
    double slope = cut ? 0 : factor * ratio * y->advantage;
    double penalty = policy_loss_kl_penalty(&slope, s, y, j);
    sums->value += y->weight * (factor * term - s->kl * penalty) * part / y->total;
    sums->clipped += cut * part / y->total;
    sums->masked += (factor == 0) * part / y->total;
    sums->mismatch += fabs(log_k) * part / y->total;
    sums->ratio += fabs(ratio - 1) * part / y->total;
    sums->kl += penalty * part / y->total;
    return (float)(y->weight * slope * part / y->total) * s->scale;
}

#endif
