/* The sampling error of held-out losses: how far they would move with other samples. The targets of one
 * sample are not independent, so a sample counts as one draw. A loss is a ratio, of the sum of the
 * samples' losses to that of their weights; its variance is that of a ratio estimator (Cochran 1977,
 * section 2.11). */
#include "train/heldout_inside.h"

#include <math.h>
#include <string.h>

enum { SQUARES, PRODUCTS, WEIGHTS, SAMPLES }; /* sums over samples: loss^2, loss * weight, weight^2, 1 */

static void add_sample(double sums[HELDOUT_MOMENTS], double loss, double weight)
{
    if (!(weight > 0))
        return;
    sums[SQUARES] += loss * loss;
    sums[PRODUCTS] += loss * weight;
    sums[WEIGHTS] += weight * weight;
    sums[SAMPLES]++;
}

/* Adds the losses of a list's targets, which stand sample by sample. loss: [n], summed over `levels`. */
static void add_list(struct heldout_spread *s, int kind, const struct target_list *list, const struct batch *b,
                     const double *loss, i64 levels)
{
    double sums[LOSS_STREAMS][2] = {{0}};
    for (i64 i = 0; i < list->n; i++) {
        u8 stream = list->stream[i];
        sums[stream][0] += list->weight[i] * loss[i] / (double)levels;
        sums[stream][1] += list->weight[i];
        if (i + 1 < list->n && b->sample[list->position[i + 1]] == b->sample[list->position[i]])
            continue;
        for (int k = 0; k < LOSS_STREAMS; k++)
            add_sample(s->sums[k][kind], sums[k][0], sums[k][1]);
        memset(sums, 0, sizeof sums);
    }
}

void heldout_spread_add(struct heldout_spread *s, struct device *device, const struct batch *b,
                        const struct forward *forward, const struct model_config *config)
{
    for (int kind = 0; kind < TARGETS; kind++) {
        const struct target_list *list = &b->targets[kind];
        i64 levels = target_levels((enum target_kind)kind, &config->sizes);
        float *values = memory_alloc(max_i64(list->n, 1) * 4);
        double *sum = memory_alloc(max_i64(list->n, 1) * 8);
        bool there = false;
        for (i64 level = 0; level < levels; level++) {
            const struct loss *loss = &forward->loss[kind][level];
            if (!loss->value || loss->n != list->n || list->n == 0)
                continue;
            device_get(device, values, loss->value, list->n * 4);
            for (i64 i = 0; i < list->n; i++)
                sum[i] += values[i];
            there = true;
        }
        if (there)
            add_list(s, kind, list, b, sum, levels);
        memory_free(values);
        memory_free(sum);
    }
}

static double error_of(const double sums[HELDOUT_MOMENTS], double loss, double weight)
{
    double n = sums[SAMPLES], mean = loss / weight;
    double squares = sums[SQUARES] - 2 * mean * sums[PRODUCTS] + mean * mean * sums[WEIGHTS];
    return n > 1 && weight > 0 ? sqrt(fmax(squares, 0) * n / (n - 1)) / weight : NAN;
}

void heldout_spread_errors(double error[LOSS_STREAMS][TARGETS], struct heldout_spread *s, struct model *model,
                           const struct step_result *of)
{
    struct device *device = model->device;
    void *there = device_alloc(device, sizeof s->sums);
    const struct comm_sum sum = {there, (i64)(sizeof s->sums / sizeof(double)), DTYPE_F64};
    device_put(device, there, s->sums, sizeof s->sums);
    comm_all_reduce_list(model->parallel->pipeline, &sum, 1);
    device_get(device, s->sums, there, sizeof s->sums);
    device_free(device, there, sizeof s->sums);
    for (int stream = 0; stream < LOSS_STREAMS; stream++)
        for (int kind = 0; kind < TARGETS; kind++)
            error[stream][kind] = error_of(s->sums[stream][kind], of->loss[stream][kind], of->weight[stream][kind]);
}
