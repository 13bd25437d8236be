#include "rl/policy.h"

float policy_scale(const struct policy *p)
{
    return p->temperature > 0 ? 1 / p->temperature : 1;
}

static float *row_of(struct matrix m, i64 i)
{
    return (float *)m.data + i * m.stride;
}

void policy_logits(struct matrix m, const struct policy *p)
{
    float scale = policy_scale(p);
    for (i64 i = 0; i < m.rows; i++) {
        float *z = row_of(m, i);
        for (i64 j = 0; scale != 1 && j < m.columns; j++)
            z[j] *= scale;
        for (i64 j = 0; j < p->forbidden_count; j++)
            z[p->forbidden[j]] = -1e30f;
    }
}

/* The record kept the log-sum-exp of the model's logits and takes softmax as exp(z - that): rows are moved so that it
 * is the policy's, too. */
static void move_rows(struct matrix m, const float *to, const float *from)
{
    for (i64 i = 0; i < m.rows; i++) {
        float *z = row_of(m, i), by = to[i] - from[i];
        for (i64 j = 0; j < m.columns; j++)
            z[j] += by;
    }
}

void policy_losses(float *loss, struct tape *tape, struct tensor *logits, const i32 *target, const struct policy *p)
{
    struct matrix m = tensor_matrix(logits);
    if (policy_scale(p) == 1 && p->forbidden_count == 0)
        return;
    float *kept = tape_alloc(tape, m.rows * 4), *lse = tape_alloc(tape, m.rows * 4);
    for (i64 i = 0; i < m.rows; i++)
        kept[i] = loss[i] + row_of(m, i)[target[i]];
    policy_logits(m, p);
    tape->device->ops->cross_entropy(tape->device, loss, lse, NULL, m, target);
    move_rows(m, kept, lse);
}
