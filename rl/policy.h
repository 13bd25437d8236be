/* The policy: the distribution that ids, bits and codes are sampled from and that learning optimizes.
 * Sampler and learner derive it from the model's logits in the same way, so a sampled id has one
 * log-probability: softmax of z / temperature, over the ids that may be drawn there. Those are all but
 * the forbidden ones; at the end of a clip's frame NEXT and EOV, where a medium begins its shapes. Bits
 * and codes are drawn from all, at the same temperature. */
#ifndef WEFT_RL_POLICY_H
#define WEFT_RL_POLICY_H
#include "sequence/grammar.h"
#include "tensor/ops.h"

struct policy {
    float temperature;    /* 0: greedy, log-probabilities as at temperature 1 */
    const i32 *forbidden; /* borrowed */
    i64 forbidden_count;
    const struct vocabulary *media; /* borrowed; NULL: nothing but text is drawn */
};
float policy_scale(const struct policy *policy); /* factor of the logits: 1 / temperature */
/* Turns the model's logits, whose loss is already recorded on the tape, into the policy's in place,
 * and loss [n] into -log pi(target). target [n] is host memory. The recorded backward then gives
 * temperature times the policy's gradient. */
void policy_losses(float *loss, struct tape *tape, struct tensor *logits, const i32 *target,
                   const struct policy *policy);
/* The same for bits [n, d], in host memory, and loss = mean over the bits; for codes [n], of a stride. */
void policy_bit_losses(float *loss, struct tape *tape, struct tensor *logits, const u8 *bits,
                       const struct policy *policy);
void policy_code_losses(float *loss, struct tape *tape, struct tensor *logits, const i32 *codes, i64 stride,
                        const struct policy *policy);

#endif
