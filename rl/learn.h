/* Learning from judged cohorts: their rollouts become samples in memory, samples become micro-batches of train/step.c,
 * and the objective gives each drawn id its coefficient. A step's cohorts are used once, in a few updates
 * (minibatches); what the model said before the first of them is measured by one forward without a backward.
 *
 * A prompt stands once for all its answers, as in the cache; its last id stands before each of them and predicts its
 * first:
 *
 *     | prompt, but its last id | last id, answer 0 | last id, answer 1 | ...     an answer sees the prompt and itself
 */
#ifndef WEFT_RL_LEARN_H
#define WEFT_RL_LEARN_H
#include "rl/objective.h"
#include "rl/rollout.h"
#include "train/step.h"

struct learn_sample {
    const struct cohort *cohort;
    const struct answer *answer;
    struct response y;
    float *old, *start; /* where y's are measured to */
};
struct learner {
    struct trainer trainer;
    const struct surrogate_settings *s;
    const struct vocabulary *vocabulary;
    struct policy policy;       /* of the sampler; zeros: the model's own distribution */
    struct model *start;        /* NULL without kl */
    i64 minibatches, positions; /* positions: of a micro-batch, a bound unless one sample alone is longer */
    struct tape tape;           /* of measurements: forward only */
    struct arena arena, host;   /* a step's samples; a measured micro-batch */
    struct learn_sample *samples;
    float *logprobs;       /* [3, drawn_most] of the drawn ids of all samples: rollout, old, start */
    i64 drawn, drawn_most; /* ids so far */
    i64 count;
    i64 route_width;   /* L . K of the routes to replay; 0: the router chooses */
    const i32 *routes; /* [L, n, K] of the batch filled last */
    i64 *micro;        /* [micros + 1] first sample of each micro-batch of the update at hand */
    i64 micros;
    double *sums; /* device memory: struct surrogate_sums */
};
struct learn_result {
    struct surrogate_sums sums;
    i64 cohorts, spread, updates;      /* updates made in this step: a minibatch without samples makes none */
    struct optimizer_result optimizer; /* the updates' mean norm, the last one's rate, how many were skipped */
    double flops, seconds;
    i64 positions;
};
/* The policy and the trainer's optimizer, lr, bias_speed, seed and recompute are the caller's to set. */
void learner_open(struct learner *learner, struct model *model, const struct vocabulary *vocabulary,
                  const struct surrogate_settings *settings, i64 minibatches, i64 positions);
void learner_close(struct learner *learner);
/* success [prompts]: running success rate of each prompt, for WPSM. `update` counts updates of the whole run. */
int learner_step(struct learn_result *result, struct learner *learner, struct cohort *const *cohorts, i64 count,
                 const double *success, i64 update);
/* For tests and measurements: samples and micro-batches of the cohorts as one update; then any of the trainer's calls.
 */
void learner_load(struct learner *learner, struct cohort *const *cohorts, i64 count, const double *success);
void learner_sums(struct surrogate_sums *out, struct learner *learner); /* since the last call */
i64 learner_plan(struct learner *learner, i64 first, i64 end); /* samples [first, end): number of micro-batches */
/* of the plan: model NULL: the trained one, to `old` */
int learner_measure(struct learner *learner, struct model *model);

#endif
