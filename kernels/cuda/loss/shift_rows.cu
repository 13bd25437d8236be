#include "kernels/cuda/cuda.h"

static __global__ void normalizers(float *out, const float *loss, struct matrix logits, const i32 *target)
{
    grid_wait();
    GRID_STRIDE(i, logits.rows)
    out[i] = loss[i] + row_of<float>(logits, i)[target[i]];
}

extern "C" void cuda_log_normalizers(struct device *device, float *out, const float *loss, struct matrix logits,
                                     const i32 *target)
{
    if (logits.rows > 0)
        LAUNCH(device, normalizers, blocks_for(logits.rows), BLOCK_THREADS, 0, out, loss, logits, target);
}

static __global__ void shift(struct matrix x, const float *to, const float *from)
{
    grid_wait();
    ELEMENTS(at, x.rows, x.columns)
    row_of<float>(x, at.row)[at.column] += to[at.row] - from[at.row];
}

extern "C" void cuda_shift_rows(struct device *device, struct matrix x, const float *to, const float *from)
{
    if (x.rows * x.columns > 0)
        LAUNCH(device, shift, blocks_for(x.rows * x.columns), BLOCK_THREADS, 0, x, to, from);
}
