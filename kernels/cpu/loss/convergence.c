/* Spectral convergence: the distance of two groups of spectra, as a share of the second. */
#include "kernels/cpu/cpu.h"

#include <math.h>

struct convergence_job {
    struct matrix x, y;
    float *value, *coefficient, scale;
    i64 rows;
};

static void run_group(void *context, i64 group, int worker)
{
    const struct convergence_job *job = context;
    double apart = 0, power = 0;
    i64 n = job->x.columns;
    (void)worker;
    for (i64 i = group * job->rows; i < (group + 1) * job->rows; i++) {
        const float *restrict x = matrix_at(job->x, i, 0), *restrict y = matrix_at(job->y, i, 0);
        float squares = 0, own = 0;
#pragma omp simd reduction(+ : squares, own)
        for (i64 k = 0; k < n; k++) {
            squares += (x[k] - y[k]) * (x[k] - y[k]);
            own += y[k] * y[k];
        }
        apart += (double)squares;
        power += (double)own;
    }
    bool counts = apart > 0 && power > 0;
    job->value[group] = counts ? (float)sqrt(apart / power) : 0;
    float each = counts ? (float)((double)job->scale * (double)n / (2 * sqrt(apart) * sqrt(power))) : 0;
    for (i64 i = group * job->rows; i < (group + 1) * job->rows; i++)
        job->coefficient[i] = each;
}

void CPU(convergence)(struct device *device, float *value, float *coefficient, struct matrix x, struct matrix y,
                      i64 rows, float scale)
{
    struct convergence_job job = {x, y, value, coefficient, scale, rows};
    (void)device;
    workers_run(x.rows / rows, run_group, &job);
}
