/* Sums for the log, with one block per sum or one per stream, in a tree order fixed by the number
 * of values. */
#include "kernels/cuda/cuda.h"

enum { STREAMS_MOST = 256 }; /* range of a u8 stream id */

static __global__ void sum_all(double *sum, const float *value, i64 n)
{
    grid_wait();
    double total = sum_of<double>(threadIdx.x, n, blockDim.x, [=](i64 i) { return (double)value[i]; });
    total = block_sum(total);
    if (threadIdx.x == 0)
        sum[0] += total;
}

extern "C" void cuda_sum_values(struct device *device, double *sum, const float *value, i64 n)
{
    if (n > 0)
        LAUNCH(device, sum_all, 1, threads_for(n), 0, sum, value, n);
}

/* One block sums one stream. It does not touch the sums of a stream without values, which need not
 * exist. */
static __global__ void sum_stream(double *sums, const float *value, const float *weight, const u8 *stream, i64 n,
                                  double levels)
{
    grid_wait();
    auto is_own = [=](i64 i) { return !stream || stream[i] == blockIdx.x; };
    auto part = [=](i64 i) { return is_own(i) ? (double)weight[i] / levels : 0.0; };
    if (!__syncthreads_or(sum_of<int>(threadIdx.x, n, blockDim.x, is_own)))
        return;
    double total = sum_of<double>(threadIdx.x, n, blockDim.x, part);
    double weighted =
        sum_of<double>(threadIdx.x, n, blockDim.x, [=](i64 i) { return is_own(i) ? part(i) * (double)value[i] : 0.0; });
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
