#include "kernels/cuda/cuda.h"

template <typename Out, typename In>
__global__ void copy_elements(struct matrix out, struct matrix x, float scale, bool add)
{
    GRID_STRIDE(i, x.rows * x.columns)
    {
        i64 row = i / x.columns, column = i % x.columns;
        Out *to = row_of<Out>(out, row) + column;
        float value = scale * to_f32(row_of<In>(x, row)[column]);
        *to = from_f32<Out>(add ? to_f32(*to) + value : value);
    }
}

extern "C" void cuda_copy(struct device *device, struct matrix out, struct matrix x, float scale, bool add)
{
    require(out.rows == x.rows && out.columns == x.columns, "copy: [%lld,%lld] from [%lld,%lld]", (long long)out.rows,
            (long long)out.columns, (long long)x.rows, (long long)x.columns);
    unsigned grid = blocks_for(x.rows * x.columns);
    cudaStream_t queue = cuda_queue_of(device);
    bool to_bf16 = out.dtype == DTYPE_BF16, of_bf16 = x.dtype == DTYPE_BF16;
    if (to_bf16 && of_bf16)
        copy_elements<bf16, bf16><<<grid, BLOCK_THREADS, 0, queue>>>(out, x, scale, add);
    else if (to_bf16)
        copy_elements<bf16, float><<<grid, BLOCK_THREADS, 0, queue>>>(out, x, scale, add);
    else if (of_bf16)
        copy_elements<float, bf16><<<grid, BLOCK_THREADS, 0, queue>>>(out, x, scale, add);
    else
        copy_elements<float, float><<<grid, BLOCK_THREADS, 0, queue>>>(out, x, scale, add);
    CUDA_CHECK(cudaGetLastError());
}

template <typename T> __global__ void add_elements(struct matrix out, struct matrix a, struct matrix b)
{
    GRID_STRIDE(i, a.rows * a.columns)
    {
        i64 row = i / a.columns, column = i % a.columns;
        float sum = to_f32(row_of<T>(a, row)[column]) + to_f32(row_of<T>(b, row)[column]);
        row_of<T>(out, row)[column] = from_f32<T>(sum);
    }
}

extern "C" void cuda_add(struct device *device, struct matrix out, struct matrix a, struct matrix b)
{
    require(out.rows == a.rows && out.columns == a.columns && b.rows == a.rows && b.columns == a.columns &&
                out.dtype == a.dtype && b.dtype == a.dtype,
            "add: [%lld,%lld] from [%lld,%lld] and [%lld,%lld]", (long long)out.rows, (long long)out.columns,
            (long long)a.rows, (long long)a.columns, (long long)b.rows, (long long)b.columns);
    LAUNCH(device, a.dtype, add_elements, blocks_for(a.rows * a.columns), out, a, b);
}

extern "C" void cuda_zero(struct device *device, void *data, i64 bytes)
{
    CUDA_CHECK(cudaMemsetAsync(data, 0, (size_t)bytes, cuda_queue_of(device)));
}
