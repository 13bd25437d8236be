/* The objective of reinforcement learning: each drawn id's coefficient from log-probabilities. The forward gives
 * loss_j = -log pi(y_j), the backward reads c_j, so that the gradient is that of -J: c_j = dJ / d log pi(y_j). J of the
 * algorithms is the op `surrogate` of kernels.h: misc [R eq. 3] has ratio and clip of the sequence and the mask of each
 * id, gspo [R eq. 2] both of the sequence, grpo [R eq. 1] both of each id; without mask misc's gradient is that of
 * gspo. `old` are the weights of the step's beginning, pi_rollout those that drew. What is decided beside it stands
 * here. */
#ifndef WEFT_RL_OBJECTIVE_H
#define WEFT_RL_OBJECTIVE_H
#include "kernels/kernels.h"

struct surrogate_settings {
    int algorithm;
    double eps;
    double mismatch_low, mismatch_high;
    double kl;
    bool divide_by_std;
    double advantage_eps;
    double mask_share, mask_entropy, mask_success; /* alpha, eta, tau of WPSM [R eq. 4]; share 0: off */
    double mask_solved;                            /* reward from which an answer solves its prompt */
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
struct surrogate_sums { /* of the op, for the log */
    double responses, ids, clipped, masked, mismatch, ratio, kl, value;
};
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
