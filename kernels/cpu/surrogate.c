#include "kernels/cpu/rows.h"

struct response {
    i64 n;
    const float *loss, *old, *rollout, *start;
    double advantage, weight;
};
struct sums {
    double responses, ids, clipped, masked, mismatch, ratio, kl, value;
};

static double log_ratio(const struct response *y, i64 j)
{
    return y->old ? -(double)y->loss[j] - (double)y->old[j] : 0;
}

static double log_mismatch(const struct response *y, i64 j)
{
    return (y->old ? (double)y->old[j] : -(double)y->loss[j]) - (double)y->rollout[j];
}

/* min(r A, clip(r) A), and whether the clip has cut the gradient off. */
static double clipped_term(bool *cut, double ratio, double advantage, double eps)
{
    double free = ratio * advantage, bound = fmin(fmax(ratio, 1 - eps), 1 + eps) * advantage;
    *cut = bound < free;
    return fmin(free, bound);
}

/* Subtracts the penalty's derivative, and returns its value: exp(d) - d - 1 (Schulman's k3). */
static double pull_back(double *slope, const struct surrogate_options *s, const struct response *y, i64 j)
{
    if (!y->start || s->kl <= 0)
        return 0;
    double d = (double)y->start[j] + (double)y->loss[j];
    *slope += s->kl * (exp(d) - 1);
    return exp(d) - d - 1;
}

static void score_response(float *coefficient, struct sums *sums, const struct surrogate_options *s,
                           const struct response *y)
{
    double mean_ratio = 0, mean_mismatch = 0, n = (double)y->n;
    for (i64 j = 0; j < y->n; j++) {
        mean_ratio += log_ratio(y, j) / n;
        mean_mismatch += log_mismatch(y, j) / n;
    }
    for (i64 j = 0; j < y->n; j++) {
        bool cut;
        double k = exp(s->algorithm == SURROGATE_GSPO ? mean_mismatch : log_mismatch(y, j));
        double ratio = exp(s->algorithm == SURROGATE_GRPO ? log_ratio(y, j) : mean_ratio);
        double factor = k >= s->mismatch_low && k <= s->mismatch_high ? k : 0;
        double term = clipped_term(&cut, ratio, y->advantage, s->eps);
        double slope = cut ? 0 : factor * ratio * y->advantage;
        double penalty = pull_back(&slope, s, y, j);
        coefficient[j] = (float)(y->weight * slope / n) * s->scale;
        sums->value += y->weight * (factor * term - s->kl * penalty) / n;
        sums->clipped += cut / n;
        sums->masked += (factor == 0) / n;
        sums->mismatch += fabs(log_mismatch(y, j)) / n;
        sums->ratio += fabs(ratio - 1) / n;
        sums->kl += penalty / n;
    }
    sums->responses++;
    sums->ids += n;
}

void CPU(surrogate)(struct device *device, float *coefficient, double *sums, const float *loss, const float *old,
                    const float *rollout, const float *start, const i32 *segment, const double *advantage,
                    const double *weight, i64 responses, const struct surrogate_options *options)
{
    (void)device;
    for (i64 i = 0; i < responses; i++) {
        i64 at = segment[i];
        struct response y = {
            segment[i + 1] - at, loss + at, old ? old + at : NULL, rollout + at, start ? start + at : NULL,
            advantage[i],        weight[i]};
        score_response(coefficient + at, (struct sums *)sums, options, &y);
    }
}
