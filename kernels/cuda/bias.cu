#include "kernels/cuda/cuda.h"

template <typename T, int N>
static __global__ void bias_elements(struct matrix out, struct matrix x, struct matrix bias)
{
    grid_wait();
    RUNS(N, at, column, x.rows, x.columns)
    {
        elements<T, N> values = load<N>(row_of<T>(x, at.row) + column);
        for (int k = 0; k < N; k++)
            values.at[k] = from_f32<T>(to_f32(values.at[k]) + element_of(bias, 0, column + k));
        store(row_of<T>(out, at.row) + column, values);
    }
}

extern "C" void cuda_bias_add(struct device *device, struct matrix out, struct matrix x, struct matrix bias)
{
    LAUNCH_RUNS(device, in_quads(out, x), x.dtype, bias_elements, x.rows * x.columns, out, x, bias);
}

/* Column sums by runs of rows. A block handles 32 columns (one per lane) of one run; its warps take
 * the rows in turn. */
enum { ALL_THREADS = 1024, RUNS_MOST = 64, RUN_LEAST = BLOCK_THREADS / 8 };

template <typename T> static __global__ void sum_runs(float *out, struct matrix x, i64 rows, bool add)
{
    grid_wait();
    SHARED(float, sums, ALL_THREADS);
    int lines = blockDim.x / WARP_THREADS;
    i64 column = (i64)blockIdx.x * WARP_THREADS + threadIdx.x % WARP_THREADS, begin = blockIdx.y * rows;
    i64 end = begin + rows < x.rows ? begin + rows : x.rows;
    float sum = sum_of<float>(begin + threadIdx.x / WARP_THREADS, column < x.columns ? end : begin, lines,
                              [=](i64 row) { return to_f32(row_of<T>(x, row)[column]); });
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= WARP_THREADS || column >= x.columns)
        return;
    for (int line = 1; line < lines; line++)
        sum += sums[line * WARP_THREADS + threadIdx.x];
    float *to = out + blockIdx.y * x.columns + column;
    *to = add ? *to + sum : sum;
}

extern "C" void cuda_add_partials(struct device *device, float *out, const float *partials, i64 count, i64 columns,
                                  bool add)
{
    struct matrix x = matrix_of((void *)partials, DTYPE_F32, count, columns);
    if (columns > 0)
        LAUNCH(device, sum_runs<float>, (unsigned)ceil_div(columns, WARP_THREADS), ALL_THREADS, 0, out, x, count, add);
}

extern "C" void cuda_column_sums(struct device *device, struct matrix out, struct matrix x, bool add)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    float *partials = (float *)handles->workspace;
    i64 rows = max_i64(RUN_LEAST, ceil_div(x.rows, RUNS_MOST)), count = ceil_div(x.rows, rows);
    require(count * x.columns * 4 <= handles->workspace_bytes, "column_sums: %lld columns", (long long)x.columns);
    dim3 grid((unsigned)ceil_div(x.columns, WARP_THREADS), (unsigned)count);
    if (count > 0 && x.columns > 0)
        LAUNCH_BY_DTYPE(device, x.dtype, sum_runs, grid, BLOCK_THREADS, 0, partials, x, rows, false);
    cuda_add_partials(device, (float *)out.data, partials, count, x.columns, add);
}
