/* The policy loss of reinforcement learning: gradient coefficients per id and sums for logs. Its
 * equations are in the inlined functions surrogate_*, which all backends share. */
#include "kernels/cpu/rows.h"
#include "kernels/surrogate.h"

struct surrogate_row_sums {
    double responses, ids;
    struct surrogate_sums_of_ids of_ids;
};

static void score_response(float *coefficient, struct surrogate_row_sums *sums, const struct surrogate_options *s,
                           const struct surrogate_response *y)
{
    struct surrogate_means mean = {0, 0};
    for (i64 j = 0; j < y->n; j++) {
        mean.ratio += surrogate_log_ratio(y, j) / (double)y->n;
        mean.mismatch += surrogate_log_mismatch(y, j) / (double)y->n;
    }
    for (i64 j = 0; j < y->n; j++)
        coefficient[j] = surrogate_score(&sums->of_ids, s, y, j, mean);
    sums->responses++;
    sums->ids += (double)y->n;
}

void CPU(surrogate)(struct device *device, float *coefficient, double *sums, const float *loss, const float *old,
                    const float *rollout, const float *start, const i32 *segment, const double *advantage,
                    const double *weight, i64 responses, const struct surrogate_options *options)
{
    (void)device;
    for (i64 i = 0; i < responses; i++) {
        struct surrogate_response y =
            surrogate_response_of(loss, old, rollout, start, segment[i], segment[i + 1], advantage[i], weight[i]);
        score_response(coefficient + segment[i], (struct surrogate_row_sums *)sums, options, &y);
    }
}
