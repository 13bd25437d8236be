/* Learning from graded rollout groups: rollouts become samples, samples become
 * micro-batches of train/step.c, and the policy loss gives each sampled id its coefficient. A
 * step's rollout groups are used once, split into a few minibatches with one update each. The `old`
 * log-probabilities of all minibatches but the first are measured before the first update by a
 * forward without a backward.
 *
 * A prompt is laid once for all its answers, as in the KV cache. Its last id is repeated before
 * each answer and predicts the answer's first id:
 *
 *     | prompt without its last id | last id, answer 0 | last id, answer 1 | ...
 *
 * An answer attends to the prompt and to itself. That holds for positions of media too. An answer that
 * is a picture or clip is one drawn token for each position with bits, a sound one for each code, in
 * the order in which they were drawn (model/decode.h); the policy loss sees no difference. */
#ifndef WEFT_RL_LEARN_H
#define WEFT_RL_LEARN_H
#include "rl/objective.h"
#include "rl/rollout.h"
#include "train/step.h"

struct learn_sample {
    const struct rollout_group *rollout_group;
    const struct answer *answer;
    struct response y;
    i64 positions;      /* that it takes, from the prompt's repeated last one on */
    float *old, *start; /* memory for y.old and y.start once measured */
};
struct learner {
    struct trainer trainer;
    const struct policy_loss_settings *s;
    const struct vocabulary *vocabulary;
    struct policy policy;          /* the sampler's; zeros: the model's own distribution */
    const struct generator *media; /* tokenizers of prompts with media; NULL: text alone */
    /* Weigh the tokens of a scale by 1 / side in all means of a response; false: alike. */
    bool weigh_scales;
    struct model *start;        /* reference model of the KL term; NULL without */
    i64 max_tokens;             /* longest text, or frames of a sound, for the soft limit of length */
    i64 minibatches, positions; /* positions: limit per micro-batch; one longer sample may exceed it */
    struct tape tape;           /* forward-only measurements */
    struct arena arena, host;   /* arena: samples of a step; host: one measured micro-batch */
    struct learn_sample *samples;
    float *logprobs;       /* [3, drawn_most] log-probabilities of all sampled ids: rollout, old, start */
    i64 drawn, drawn_most; /* ids added so far, and capacity */
    double overlong;       /* mean penalty of the loaded answers */
    i64 well_learned;      /* loaded answers that are weighed less for it */
    i64 count;
    i64 route_width;                 /* L * K of the routes to replay; 0: the router chooses */
    const i32 *routes;               /* [L, n, K] routes of the batch filled last */
    struct drawn_order *drawn_order; /* of the batch filled last; NULL: its targets are in order */
    float input_scale[SHAPES_MOST];  /* of vision-out; 0: not known yet */
    struct arena sums_memory;        /* device memory for the sums of one answer's scales */
    i64 *micro;                      /* [micros + 1] first sample of each micro-batch of the planned update */
    i64 micros;
    double *sums; /* device memory: struct policy_loss_sums */
};
struct learn_result {
    struct policy_loss_sums sums;
    double overlong;                     /* mean of what answers lost for their length */
    double well_learned;                 /* share of the answers trained on that are weighed less for it */
    i64 rollout_groups, spread, updates; /* updates of this step; a minibatch without samples makes none */
    struct optimizer_result optimizer;   /* mean norm of the updates, last learning rate, number skipped */
    double flops, seconds;
    i64 positions;
};
/* Borrows model, vocabulary and settings. The caller then sets the policy, media, max_tokens and the trainer's
 * sub-model, optimizer, lr, bias_speed, seed and recompute. */
void learner_open(struct learner *learner, struct model *model, const struct vocabulary *vocabulary,
                  const struct policy_loss_settings *settings, i64 minibatches, i64 positions);
void learner_close(struct learner *learner);
/* Runs one step: load, measure, one update per minibatch. success
 * [prompts]: running success rate of each prompt, for WPSM. update: number
 * of updates in the run before this step. 0, or -1 and a message. */
int learner_step(struct learn_result *result, struct learner *learner, struct rollout_group *const *rollout_groups,
                 i64 count, const double *success, i64 update);
/* For tests and benchmarks: loads the samples of the rollout groups, which can then be planned and
 * measured and passed to the trainer's calls. */
void learner_load(struct learner *learner, struct rollout_group *const *rollout_groups, i64 count,
                  const double *success);
void learner_sums(struct policy_loss_sums *out, struct learner *learner); /* since the last call; resets them */
/* Plans micro-batches of samples [first, end) and returns their number. */
i64 learner_plan(struct learner *learner, i64 first, i64 end);
/* Measures log-probabilities of the planned samples. model NULL: the trained model, into `old`;
 * otherwise into `start`. */
int learner_measure(struct learner *learner, struct model *model);

#endif
