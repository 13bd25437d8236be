/* Elementwise ops on spectra. */
#include "kernels/cuda/cuda.h"

static __global__ void map_elements(struct matrix out, struct matrix x, enum map kind, float least)
{
    grid_wait();
    ELEMENTS(at, x.rows, x.columns)
    {
        float value = row_of<float>(x, at.row)[at.column], above = fmaxf(value, least);
        row_of<float>(out, at.row)[at.column] = kind == MAP_LOG ? logf(above) : kind == MAP_MAX ? above : expf(value);
    }
}

extern "C" void cuda_map(struct device *device, struct matrix out, struct matrix x, enum map kind, float least)
{
    i64 elements = x.rows * x.columns;
    if (elements > 0)
        LAUNCH(device, map_elements, blocks_for(elements), BLOCK_THREADS, 0, out, x, kind, least);
}

static __global__ void multiply_by_rows(struct matrix x, const float *by, i64 repeat)
{
    grid_wait();
    ELEMENTS(at, x.rows, x.columns)
    row_of<float>(x, at.row)[at.column] *= by[at.row / repeat * x.columns + at.column];
}

extern "C" void cuda_multiply_rows(struct device *device, struct matrix x, const float *by, i64 repeat)
{
    i64 elements = x.rows * x.columns;
    if (elements > 0)
        LAUNCH(device, multiply_by_rows, blocks_for(elements), BLOCK_THREADS, 0, x, by, repeat);
}

static __global__ void multiply_by_ratio(struct matrix x, struct matrix over, struct matrix under, float eps)
{
    grid_wait();
    ELEMENTS(at, x.rows, x.columns)
    {
        float *to = row_of<float>(x, at.row) + at.column;
        *to = *to * row_of<float>(over, at.row)[at.column] / (row_of<float>(under, at.row)[at.column] + eps);
    }
}

extern "C" void cuda_multiply_ratio(struct device *device, struct matrix x, struct matrix over, struct matrix under,
                                    float eps)
{
    i64 elements = x.rows * x.columns;
    if (elements > 0)
        LAUNCH(device, multiply_by_ratio, blocks_for(elements), BLOCK_THREADS, 0, x, over, under, eps);
}
