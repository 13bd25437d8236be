#include "kernels/cuda/cuda.h"

#include "kernels/phases.h"

__device__ static float magnitude_at(struct matrix magnitude, i64 row, i64 bin)
{
    return row_of<float>(magnitude, row < magnitude.rows ? row : magnitude.rows - 1)[bin];
}

static __global__ void draw_phases(struct matrix spectrum, struct matrix magnitude, struct rng_key key)
{
    grid_wait();
    i64 bins = magnitude.columns;
    ELEMENTS(at, spectrum.rows, bins)
    {
        float sine, cosine, size = magnitude_at(magnitude, at.row, at.column);
        double draw = rng_uniform_on_device(key, (u32)at.row, (u32)at.column, 0, 0);
        sincosf(phase_drawn(draw), &sine, &cosine);
        float *re = row_of<float>(spectrum, at.row) + at.column;
        re[0] = size * cosine;
        re[bins] = size * sine;
    }
}

static __global__ void push_phases(struct matrix spectrum, struct matrix now, struct matrix last,
                                   struct matrix magnitude, float momentum)
{
    grid_wait();
    i64 bins = magnitude.columns;
    ELEMENTS(at, spectrum.rows, bins)
    {
        const float *n = row_of<float>(now, at.row) + at.column, *l = row_of<float>(last, at.row) + at.column;
        float a = phase_pushed(n[0], l[0], momentum), b = phase_pushed(n[bins], l[bins], momentum);
        float scale = phase_scale(a, b, magnitude_at(magnitude, at.row, at.column));
        float *re = row_of<float>(spectrum, at.row) + at.column;
        re[0] = a * scale;
        re[bins] = b * scale;
    }
}

extern "C" void cuda_phases_draw(struct device *device, struct matrix spectrum, struct matrix magnitude,
                                 struct rng_key key)
{
    i64 elements = spectrum.rows * magnitude.columns;
    if (elements > 0)
        LAUNCH(device, draw_phases, blocks_for(elements), BLOCK_THREADS, 0, spectrum, magnitude, key);
}

extern "C" void cuda_phases_push(struct device *device, struct matrix spectrum, struct matrix now, struct matrix last,
                                 struct matrix magnitude, float momentum)
{
    i64 elements = spectrum.rows * magnitude.columns;
    if (elements > 0)
        LAUNCH(device, push_phases, blocks_for(elements), BLOCK_THREADS, 0, spectrum, now, last, magnitude, momentum);
}
