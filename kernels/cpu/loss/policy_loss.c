/* The policy loss of reinforcement learning: gradient coefficients per id and sums for logs. Its
 * equations are in the inlined functions policy_loss_*, which all backends share. */
#include "kernels/cpu/rows.h"
#include "kernels/policy_loss.h"

struct policy_loss_row_sums {
    double responses, ids;
    struct policy_loss_id_sums of_ids;
    double all_masked;
};

static void score_response(float *coefficient, struct policy_loss_row_sums *sums, const struct policy_loss_options *s,
                           const struct policy_loss_response *y)
{
    struct policy_loss_means mean = {0, 0};
    for (i64 j = 0; j < y->n; j++) {
        mean.ratio += policy_loss_log_ratio(y, j) * policy_loss_share(y, j) / y->total;
        mean.mismatch += policy_loss_log_mismatch(y, j) * policy_loss_share(y, j) / y->total;
    }
    double before = sums->of_ids.masked;
    sums->of_ids.masked = 0;
    for (i64 j = 0; j < y->n; j++)
        coefficient[j] = policy_loss_coefficient(&sums->of_ids, s, y, j, mean);
    sums->all_masked += policy_loss_all_masked(y, sums->of_ids.masked);
    sums->of_ids.masked += before;
    sums->responses++;
    sums->ids += (double)y->n;
}

void CPU(policy_loss)(struct device *device, float *coefficient, double *sums, const float *loss, const float *old,
                      const float *rollout, const float *start, const float *share, const i32 *segment,
                      const double *advantage, const double *weight, i64 responses,
                      const struct policy_loss_options *options)
{
    (void)device;
    for (i64 i = 0; i < responses; i++) {
        struct policy_loss_response y = policy_loss_response_of(loss, old, rollout, start, share, segment[i],
                                                                segment[i + 1], advantage[i], weight[i]);
        score_response(coefficient + segment[i], (struct policy_loss_row_sums *)sums, options, &y);
    }
}
