#include "kernels/cuda/cuda.h"

#include "kernels/polar.h"

static __global__ void to_polar(struct matrix spectrum, struct matrix x)
{
    grid_wait();
    i64 bins = x.columns / 2;
    ELEMENTS(at, x.rows, bins)
    {
        const float *from = row_of<float>(x, at.row) + at.column;
        float sine, cosine, magnitude = expf(fminf(from[0], POLAR_MOST));
        sincosf(from[bins], &sine, &cosine);
        float *re = row_of<float>(spectrum, at.row) + at.column;
        re[0] = polar_re(magnitude, cosine, sine, at.row * at.column);
        re[bins] = polar_im(magnitude, cosine, sine, at.row * at.column);
    }
}

static __global__ void polar_gradients(struct matrix dx, struct matrix dspectrum, struct matrix spectrum,
                                       struct matrix x, bool add)
{
    grid_wait();
    i64 bins = x.columns / 2;
    ELEMENTS(at, x.rows, bins)
    {
        const float *s = row_of<float>(spectrum, at.row) + at.column, *d = row_of<float>(dspectrum, at.row) + at.column;
        float *to = row_of<float>(dx, at.row) + at.column, a = row_of<float>(x, at.row)[at.column];
        to[0] = (add ? to[0] : 0) + polar_dlog(a, s[0], s[bins], d[0], d[bins]);
        to[bins] = (add ? to[bins] : 0) + polar_dphase(s[0], s[bins], d[0], d[bins]);
    }
}

extern "C" void cuda_polar(struct device *device, struct matrix spectrum, struct matrix x)
{
    i64 elements = x.rows * (x.columns / 2);
    if (elements > 0)
        LAUNCH(device, to_polar, blocks_for(elements), BLOCK_THREADS, 0, spectrum, x);
}

extern "C" void cuda_polar_backward(struct device *device, struct matrix dx, struct matrix dspectrum,
                                    struct matrix spectrum, struct matrix x, bool add)
{
    i64 elements = x.rows * (x.columns / 2);
    if (elements > 0)
        LAUNCH(device, polar_gradients, blocks_for(elements), BLOCK_THREADS, 0, dx, dspectrum, spectrum, x, add);
}
