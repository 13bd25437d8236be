#include "kernels/polar.h"

#include "kernels/cpu/rows.h"

#include <math.h>

struct polar_job {
    struct matrix spectrum, x, dspectrum, dx;
    bool add;
};

static void run_polar(void *context, i64 tile, int worker)
{
    const struct polar_job *job = context;
    i64 bins = job->x.columns / 2, rows = tile_rows(2 * bins), end = min_i64((tile + 1) * rows, job->x.rows);
    (void)worker;
    for (i64 i = tile * rows; i < end; i++) {
        const float *x = matrix_at(job->x, i, 0);
        float *re = matrix_at(job->spectrum, i, 0), *im = re + bins;
        for (i64 k = 0; k < bins; k++) {
            float magnitude = expf(fminf(x[k], POLAR_MOST)), cosine = cosf(x[bins + k]), sine = sinf(x[bins + k]);
            re[k] = polar_re(magnitude, cosine, sine, i * k);
            im[k] = polar_im(magnitude, cosine, sine, i * k);
        }
    }
}

void CPU(polar)(struct device *device, struct matrix spectrum, struct matrix x)
{
    struct polar_job job = {.spectrum = spectrum, .x = x};
    (void)device;
    workers_run(ceil_div(x.rows, tile_rows(x.columns)), run_polar, &job);
}

static void run_backward(void *context, i64 tile, int worker)
{
    const struct polar_job *job = context;
    i64 bins = job->x.columns / 2, rows = tile_rows(2 * bins), end = min_i64((tile + 1) * rows, job->x.rows);
    (void)worker;
    for (i64 i = tile * rows; i < end; i++) {
        const float *x = matrix_at(job->x, i, 0), *re = matrix_at(job->spectrum, i, 0), *im = re + bins;
        const float *dre = matrix_at(job->dspectrum, i, 0), *dim = dre + bins;
        float *dlog = matrix_at(job->dx, i, 0), *dphase = dlog + bins;
        for (i64 k = 0; k < bins; k++) {
            dlog[k] = (job->add ? dlog[k] : 0) + polar_dlog(x[k], re[k], im[k], dre[k], dim[k]);
            dphase[k] = (job->add ? dphase[k] : 0) + polar_dphase(re[k], im[k], dre[k], dim[k]);
        }
    }
}

void CPU(polar_backward)(struct device *device, struct matrix dx, struct matrix dspectrum, struct matrix spectrum,
                         struct matrix x, bool add)
{
    struct polar_job job = {spectrum, x, dspectrum, dx, add};
    (void)device;
    workers_run(ceil_div(x.rows, tile_rows(x.columns)), run_backward, &job);
}
