/* The objective of reinforcement learning: each drawn id's coefficient from log-probabilities. The forward gives
 * loss_j = -log pi(y_j), the backward reads c_j, so that the gradient is that of -J: c_j = dJ / d log pi(y_j).
 *
 *   r_j = pi(y_j; now) / pi(y_j; old)       s = exp(mean_j log r_j)        (sequence level, as in GSPO)
 *   k_j = pi(y_j; old) / pi_rollout(y_j)    M(k) = k if low <= k <= high, else 0
 *
 *   misc   J = mean_i 1/|y| sum_j M(k_j) min(s A, clip(s, 1 +- eps) A)          [R eq. 3]
 *          ratio and clip of the sequence, mask of each id
 *   gspo   J = mean_i M(exp mean_j log k_j) min(s A, clip(s, 1 +- eps) A)       [R eq. 2]
 *   grpo   J = mean_i 1/|y| sum_j M(k_j) min(r_j A, clip(r_j, 1 +- eps) A)      [R eq. 1]
 *
 * In misc the term of id j carries the gradient of id j alone, s_j = s . pi(y_j) / [pi(y_j)] with the denominator
 * constant (GSPO-token): without mask the sum is GSPO's gradient. `old` are the weights of the step's beginning,
 * pi_rollout those that drew. kl takes away kl . mean_j (exp(d) - d - 1), d = log pi_start - log pi. */
#ifndef WEFT_RL_OBJECTIVE_H
#define WEFT_RL_OBJECTIVE_H
#include "core/core.h"

enum { SURROGATE_MISC, SURROGATE_GSPO, SURROGATE_GRPO };
struct surrogate_settings {
    int algorithm;
    double eps;
    double mismatch_low, mismatch_high;
    double kl;
    bool divide_by_std;
    double advantage_eps;
    double mask_share, mask_entropy, mask_success; /* alpha, eta, tau of WPSM [R eq. 4]; share 0: off */
    double hint_share, hint_decay;                 /* p_initial, gamma of AHRL [R eq. 5]; share 0: off */
    i64 hint_attempts;                             /* k of pass@k */
};
struct response { /* a rollout, its drawn ids alone */
    i64 n;
    const float *rollout; /* [n] log-probabilities when drawn */
    const float *old;     /* [n]; NULL: the present ones, before the first update of a step */
    const float *start;   /* [n] of the model that RL began with; NULL without kl */
    double advantage;
    double weight; /* 1 / responses of the update, times what WPSM leaves of it */
};
struct surrogate_sums { /* over responses, for the log */
    double responses, ids, clipped, masked, mismatch, ratio, kl, value;
};
/* coefficient [n] and the sums from loss [n]. */
void surrogate_coefficients(float *coefficient, struct surrogate_sums *sums, const struct surrogate_settings *settings,
                            const struct response *response, const float *loss);

/* (r - mean) / (std + eps), or without the division; false: all alike, nothing to learn from. The standard deviation is
 * that of the cohort itself, over G. */
bool advantages(double *advantage, const double *reward, i64 count, const struct surrogate_settings *settings);

/* How much of a response stays: 1 - alpha for a positive one that the model is sure of (mean entropy below eta) to a
 * prompt it mostly solves (success above tau), else 1. The report's formula has no sign of the advantage, its name has.
 */
double well_learned_weight(const struct surrogate_settings *settings, double advantage, double entropy, double success);

/* Share of the reference's thoughts told at iteration t: p_initial exp(-gamma t pass). Prompts that were never solved
 * keep their hints. */
double hint_share(const struct surrogate_settings *settings, i64 step, double pass);

#endif
