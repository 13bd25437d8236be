/* Sums for the log: one block each, or one a stream; by a tree that the number of values fixes. */
#include "kernels/cuda/cuda.h"

enum { STREAMS_MOST = 256 }; /* as many as a byte counts */

static __global__ void sum_all(double *sum, const float *value, i64 n)
{
    grid_wait();
    double total = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x)
        total += (double)value[i];
    total = block_sum(total);
    if (threadIdx.x == 0)
        sum[0] += total;
}

extern "C" void cuda_sum_values(struct device *device, double *sum, const float *value, i64 n)
{
    if (n > 0)
        LAUNCH(device, sum_all, 1, threads_for(n), 0, sum, value, n);
}

/* Sums of a stream that has no value are not touched: they need not exist. */
static __global__ void sum_stream(double *sums, const float *value, const float *weight, const u8 *stream, i64 n,
                                  double levels)
{
    grid_wait();
    double weighted = 0, total = 0;
    int seen = 0;
    for (i64 i = threadIdx.x; i < n; i += blockDim.x)
        if (!stream || stream[i] == blockIdx.x) {
            double part = (double)weight[i] / levels;
            weighted += part * (double)value[i];
            total += part;
            seen = 1;
        }
    if (!__syncthreads_or(seen))
        return;
    weighted = block_sum(weighted);
    total = block_sum(total);
    if (threadIdx.x == 0) {
        sums[2 * blockIdx.x] += weighted;
        sums[2 * blockIdx.x + 1] += total;
    }
}

extern "C" void cuda_sum_by_stream(struct device *device, double *sums, const float *value, const float *weight,
                                   const u8 *stream, i64 n, i64 levels)
{
    if (n > 0)
        LAUNCH(device, sum_stream, stream ? STREAMS_MOST : 1, threads_for(n), 0, sums, value, weight, stream, n,
               (double)levels);
}

static __global__ void scale_weights(float *out, const float *weight, i64 n, double scale)
{
    grid_wait();
    GRID_STRIDE(i, n)
    out[i] = (float)(scale * (double)weight[i]);
}

extern "C" void cuda_coefficients(struct device *device, float *out, const float *weight, i64 n, double scale)
{
    if (n > 0)
        LAUNCH(device, scale_weights, blocks_for(n), BLOCK_THREADS, 0, out, weight, n, scale);
}
