#include "kernels/cuda/cuda.h"

/* One block a group. */
static __global__ void converge(float *value, float *coefficient, struct matrix x, struct matrix y, i64 rows,
                                float scale)
{
    grid_wait();
    i64 first = (i64)blockIdx.x * rows, n = x.columns;
    double apart = 0, power = 0;
    for (i64 i = first; i < first + rows; i++) {
        const float *a = row_of<float>(x, i), *b = row_of<float>(y, i);
        COLUMNS(k, n)
        {
            float d = a[k] - b[k];
            apart += (double)(d * d);
            power += (double)(b[k] * b[k]);
        }
    }
    apart = block_sum(apart);
    power = block_sum(power);
    bool counts = apart > 0 && power > 0;
    if (threadIdx.x == 0)
        value[blockIdx.x] = counts ? (float)sqrt(apart / power) : 0;
    float each = counts ? (float)((double)scale * (double)n / (2 * sqrt(apart) * sqrt(power))) : 0;
    COLUMNS(i, rows) coefficient[first + i] = each;
}

extern "C" void cuda_convergence(struct device *device, float *value, float *coefficient, struct matrix x,
                                 struct matrix y, i64 rows, float scale)
{
    if (x.rows > 0)
        LAUNCH(device, converge, (unsigned)(x.rows / rows), BLOCK_THREADS, 0, value, coefficient, x, y, rows, scale);
}
