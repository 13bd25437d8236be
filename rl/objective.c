#include "rl/objective.h"

#include <math.h>

static double clipped(double ratio, double eps)
{
    return fmin(fmax(ratio, 1 - eps), 1 + eps);
}

/* min(r A, clip(r) A), and whether the clip has cut the gradient off. */
static double clipped_term(bool *cut, double ratio, double advantage, double eps)
{
    double free = ratio * advantage, bound = clipped(ratio, eps) * advantage;
    *cut = bound < free;
    return fmin(free, bound);
}

static double log_ratio(const struct response *y, const float *loss, i64 j)
{
    return y->old ? -(double)loss[j] - y->old[j] : 0;
}

static double log_mismatch(const struct response *y, const float *loss, i64 j)
{
    return (y->old ? y->old[j] : -(double)loss[j]) - y->rollout[j];
}

static double mismatch_factor(const struct surrogate_settings *s, double k)
{
    return k >= s->mismatch_low && k <= s->mismatch_high ? k : 0;
}

/* Subtracts the penalty's derivative, and returns its value: exp(d) - d - 1 (Schulman's k3). */
static double pull_back(double *slope, const struct surrogate_settings *s, const struct response *y, double logprob,
                        i64 j)
{
    if (!y->start || s->kl <= 0)
        return 0;
    double d = y->start[j] - logprob;
    *slope += s->kl * (exp(d) - 1);
    return exp(d) - d - 1;
}

void surrogate_coefficients(float *coefficient, struct surrogate_sums *sums, const struct surrogate_settings *s,
                            const struct response *y, const float *loss)
{
    double mean_ratio = 0, mean_mismatch = 0, n = (double)y->n;
    for (i64 j = 0; j < y->n; j++) {
        mean_ratio += log_ratio(y, loss, j) / n;
        mean_mismatch += log_mismatch(y, loss, j) / n;
    }
    for (i64 j = 0; j < y->n; j++) {
        bool cut;
        double k = exp(s->algorithm == SURROGATE_GSPO ? mean_mismatch : log_mismatch(y, loss, j));
        double ratio = exp(s->algorithm == SURROGATE_GRPO ? log_ratio(y, loss, j) : mean_ratio);
        double factor = mismatch_factor(s, k), term = clipped_term(&cut, ratio, y->advantage, s->eps);
        double slope = cut ? 0 : factor * ratio * y->advantage;
        double penalty = pull_back(&slope, s, y, -(double)loss[j], j);
        coefficient[j] = (float)(y->weight * slope / n);
        sums->value += y->weight * (factor * term - s->kl * penalty) / n;
        sums->clipped += cut / n;
        sums->masked += (factor == 0) / n;
        sums->mismatch += fabs(log_mismatch(y, loss, j)) / n;
        sums->ratio += fabs(ratio - 1) / n;
        sums->kl += penalty / n;
    }
    sums->responses++;
    sums->ids += n;
}

bool advantages(double *advantage, const double *reward, i64 count, const struct surrogate_settings *s)
{
    double mean = 0, square = 0;
    bool spread = false;
    for (i64 i = 0; i < count; i++) {
        mean += reward[i] / (double)count;
        spread |= reward[i] != reward[0];
    }
    for (i64 i = 0; i < count; i++)
        square += (reward[i] - mean) * (reward[i] - mean) / (double)count;
    double scale = s->divide_by_std ? 1 / (sqrt(square) + s->advantage_eps) : 1;
    for (i64 i = 0; i < count; i++)
        advantage[i] = spread ? (reward[i] - mean) * scale : 0;
    return spread;
}

double well_learned_weight(const struct surrogate_settings *s, double advantage, double entropy, double success)
{
    return advantage > 0 && entropy < s->mask_entropy && success > s->mask_success ? 1 - s->mask_share : 1;
}

double hint_share(const struct surrogate_settings *s, i64 step, double pass)
{
    return s->hint_share * exp(-s->hint_decay * (double)step * pass);
}
