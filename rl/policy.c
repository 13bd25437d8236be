/* The policy as sampling and training share it: temperature and forbidden ids. */
#include "rl/policy.h"

#include <string.h>

float policy_scale(const struct policy *p)
{
    return p->temperature > 0 ? 1 / p->temperature : 1;
}

/* The tape has saved the log-sum-exp of the model's logits, and the backward computes softmax as
 * exp(z - lse). Rows are therefore shifted so that the saved value is the policy's lse, too. */
void policy_losses(float *loss, struct tape *tape, struct tensor *logits, const i32 *target, const struct policy *p)
{
    struct device *device = tape->device;
    struct matrix m = tensor_matrix(logits);
    float scale = policy_scale(p);
    i64 bytes = ceil_div(m.columns, 32) * 4;
    void *allowed_host, *set_host;
    if (scale == 1 && p->forbidden_count == 0)
        return;
    const i32 *ids = tape_stage_copy(tape, target, m.rows * 4);
    const u32 *allowed = tape_stage(tape, &allowed_host, bytes);
    const i32 *set = tape_stage(tape, &set_host, m.rows * 4);
    memset(allowed_host, 0xff, (size_t)bytes);
    memset(set_host, 0, (size_t)m.rows * 4);
    for (i64 j = 0; j < p->forbidden_count; j++)
        ((u32 *)allowed_host)[p->forbidden[j] / 32] &= ~(1u << p->forbidden[j] % 32);
    tape_put(tape);
    float *kept = tape_alloc(tape, m.rows * 4), *lse = tape_alloc(tape, m.rows * 4);
    device->ops->log_normalizers(device, kept, loss, m, ids);
    if (scale != 1)
        device->ops->copy(device, m, m, scale, false);
    device->ops->forbid(device, m, allowed, set);
    device->ops->cross_entropy(device, loss, lse, NULL, m, ids);
    device->ops->shift_rows(device, m, kept, lse);
}
