#include "kernels/cuda/cuda.h"

template <typename Out, typename In, int N>
static __global__ void copy_elements(struct matrix out, struct matrix x, float scale, bool add)
{
    grid_wait();
    RUNS(N, at, column, x.rows, x.columns)
    {
        Out *to = row_of<Out>(out, at.row) + column;
        elements<In, N> from = load<N>(row_of<In>(x, at.row) + column);
        elements<Out, N> values = {};
        if (add)
            values = load<N>(to);
        for (int k = 0; k < N; k++) {
            float value = scale * to_f32(from.at[k]);
            values.at[k] = from_f32<Out>(add ? to_f32(values.at[k]) + value : value);
        }
        store(to, values);
    }
}

extern "C" void cuda_copy(struct device *device, struct matrix out, struct matrix x, float scale, bool add)
{
    bool quads = in_quads(out, x);
    if (x.rows * x.columns > 0)
        LAUNCH_RUNS_BY_DTYPES(device, quads, out.dtype, x.dtype, copy_elements,
                              blocks_for(x.rows * x.columns / (quads ? QUAD : 1)), BLOCK_THREADS, out, x, scale, add);
}

template <typename T, int N> static __global__ void add_elements(struct matrix out, struct matrix a, struct matrix b)
{
    grid_wait();
    RUNS(N, at, column, a.rows, a.columns)
    {
        elements<T, N> sum = load<N>(row_of<T>(a, at.row) + column), other = load<N>(row_of<T>(b, at.row) + column);
        for (int k = 0; k < N; k++)
            sum.at[k] = from_f32<T>(to_f32(sum.at[k]) + to_f32(other.at[k]));
        store(row_of<T>(out, at.row) + column, sum);
    }
}

extern "C" void cuda_add(struct device *device, struct matrix out, struct matrix a, struct matrix b)
{
    LAUNCH_RUNS(device, in_quads(out, a, b), a.dtype, add_elements, a.rows * a.columns, out, a, b);
}

extern "C" void cuda_zero(struct device *device, void *data, i64 bytes)
{
    CUDA_CHECK(cudaMemsetAsync(data, 0, (size_t)bytes, cuda_queue_of(device)));
}
