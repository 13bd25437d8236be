/* The policy: the distribution that ids are drawn from, and the one that learning moves. Both make it from the model's
 * logits in the same way, so that a drawn id has one log-probability: z / temperature, and no mass on what no answer
 * may have. */
#ifndef WEFT_RL_POLICY_H
#define WEFT_RL_POLICY_H
#include "tensor/ops.h"

struct policy {
    float temperature;    /* 0: greedy, with the log-probabilities of 1 */
    const i32 *forbidden; /* borrowed */
    i64 forbidden_count;
};
float policy_scale(const struct policy *policy); /* of logits: 1 / temperature */
/* The model's logits, whose loss is recorded already, become the policy's in place, and loss [n] its -log pi(target);
 * target is host memory. The backward of the record then gives temperature times the policy's gradient. */
void policy_losses(float *loss, struct tape *tape, struct tensor *logits, const i32 *target,
                   const struct policy *policy);

#endif
