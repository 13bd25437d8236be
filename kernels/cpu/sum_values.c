/* Serial sums of losses in f64, and the coefficients of their gradients. */
#include "kernels/cpu/rows.h"

void CPU(sum_values)(struct device *device, double *sum, const float *value, i64 n)
{
    double total = 0;
    (void)device;
    for (i64 i = 0; i < n; i++)
        total += (double)value[i];
    sum[0] += total;
}

void CPU(sum_by_stream)(struct device *device, double *sums, const float *value, const float *weight, const u8 *stream,
                        i64 n, i64 levels)
{
    (void)device;
    for (i64 i = 0; i < n; i++) {
        double share = (double)weight[i] / (double)levels, *at = sums + (stream ? 2 * stream[i] : 0);
        at[0] += share * (double)value[i];
        at[1] += share;
    }
}

void CPU(coefficients)(struct device *device, float *out, const float *weight, i64 n, double scale)
{
    (void)device;
    for (i64 i = 0; i < n; i++)
        out[i] = (float)(scale * (double)weight[i]);
}
