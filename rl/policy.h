/* The policy: the distribution that ids are sampled from and that learning optimizes. Sampler and
 * learner derive it from the model's logits in the same way, so a sampled id has one
 * log-probability: softmax of z / temperature, without the forbidden ids. */
#ifndef WEFT_RL_POLICY_H
#define WEFT_RL_POLICY_H
#include "tensor/ops.h"

struct policy {
    float temperature;    /* 0: greedy, log-probabilities as at temperature 1 */
    const i32 *forbidden; /* borrowed */
    i64 forbidden_count;
};
float policy_scale(const struct policy *policy); /* factor of the logits: 1 / temperature */
/* Turns the model's logits, whose loss is already recorded on the tape, into the policy's in place,
 * and loss [n] into -log pi(target). target [n] is host memory. The recorded backward then gives
 * temperature times the policy's gradient. */
void policy_losses(float *loss, struct tape *tape, struct tensor *logits, const i32 *target,
                   const struct policy *policy);

#endif
