/* The policy loss. The forward gives loss_j = -log pi(y_j) of each sampled id; the backward reads a
 * coefficient c_j, so that the gradient is that of -J: c_j = dJ / d log pi(y_j). J is computed by
 * the op `policy_loss` of kernels.h:
 *
 *   misc [R eq. 3]  importance ratio and clip per sequence, mask per id; without the mask its
 *   gradient is gspo's
 *   gspo [R eq. 2]  both per sequence
 *   grpo [R eq. 1]  both per id
 *
 * With `entropy` above 0, J has entropy . mean_j H_j besides, the entropy of the distribution that y_j is
 * drawn from; of a position of bits that of all of them. Its gradient is the op `entropy_backward`.
 *
 * `old` are the weights at the beginning of the step, pi_rollout those that sampled. This header
 * adds advantages, sample weights and hints. */
#ifndef WEFT_RL_OBJECTIVE_H
#define WEFT_RL_OBJECTIVE_H
#include "kernels/kernels.h"

struct policy_loss_settings {
    int algorithm;
    double eps, clip_high; /* the ratio is clipped to 1 - eps, 1 + clip_high; clip_high 0: that of eps */
    double mismatch_low, mismatch_high;
    double kl;
    int kl_estimator;
    double entropy;      /* weight of the mean entropy of the drawn tokens' distributions; 0: off */
    i64 overlong_buffer; /* last tokens of the longest answer, where a penalty grows to overlong_penalty; 0: off */
    double overlong_penalty;
    bool divide_by_std, divide_by_set; /* by the group's standard deviation; by that of the step's set instead */
    double advantage_eps;
    double mask_share, mask_entropy, mask_success; /* alpha, eta, tau of WPSM [R eq. 4]; share 0: off */
    double mask_solved;                            /* minimum reward of an answer that solves its prompt */
    double hint_share, hint_decay;                 /* p_initial, gamma of AHRL [R eq. 5]; share 0: off */
    i64 hint_attempts;                             /* k of pass@k */
    /* Every so many times that a prompt comes its pass@k is measured anew, without its hint; 0: never */
    i64 hint_recheck;
};
struct response { /* the sampled ids of a rollout */
    i64 n;
    const float *rollout; /* [n] log-probabilities at sampling time */
    const float *old;     /* [n] at the start of the step; NULL: the present ones (first update) */
    const float *start;   /* [n] under the reference model; NULL without the KL term */
    double advantage;
    double weight; /* 1 / responses of the update, times well_learned_weight */
};
struct policy_loss_sums { /* sums of the op `policy_loss`, for the log */
    double responses, ids, clipped, masked, mismatch, ratio, kl, value, all_masked;
};
/* Group-relative advantages: (r - mean) / (std + eps), or r - mean without divide_by_std. std is
 * the sample standard deviation of the group (the squares divided by G - 1), as in TRL and verl.
 * Returns false, with advantages of 0, if all rewards are equal, so that there is nothing to learn.
 * This is always so in a group of one. */
bool advantages(double *advantage, const double *reward, i64 count, const struct policy_loss_settings *settings);

/* What the reward of an answer of `length` tokens loses, of at most `most`: nothing before the last
 * overlong_buffer of them, then evenly more, up to overlong_penalty at `most` (DAPO, arXiv 2503.14476,
 * eq. 13: there the penalty is 1). */
double overlong_penalty(const struct policy_loss_settings *settings, i64 length, i64 most);

/* Weight of a response under WPSM [R eq. 4]: 1 - alpha for a positive response with mean entropy
 * below eta to a prompt with success rate above tau, else 1. The report's formula omits the sign of
 * the advantage, but the method's name requires it. */
double well_learned_weight(const struct policy_loss_settings *settings, double advantage, double entropy,
                           double success);

/* AHRL [R eq. 5]: share of the reference reasoning given as a hint at step t: p_initial exp(-gamma
 * t pass). Prompts with pass 0 keep their hints. */
double hint_share(const struct policy_loss_settings *settings, i64 step, double pass);

#endif
