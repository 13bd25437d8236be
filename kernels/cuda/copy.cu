#include "kernels/cuda/cuda.h"

template <typename Out, typename In>
static __global__ void copy_elements(struct matrix out, struct matrix x, float scale, bool add)
{
    grid_wait();
    ELEMENTS(at, x.rows, x.columns)
    {
        Out *to = row_of<Out>(out, at.row) + at.column;
        float value = scale * to_f32(row_of<In>(x, at.row)[at.column]);
        *to = from_f32<Out>(add ? to_f32(*to) + value : value);
    }
}

extern "C" void cuda_copy(struct device *device, struct matrix out, struct matrix x, float scale, bool add)
{
    require(out.rows == x.rows && out.columns == x.columns, "copy: [%lld,%lld] from [%lld,%lld]", (long long)out.rows,
            (long long)out.columns, (long long)x.rows, (long long)x.columns);
    if (x.rows * x.columns > 0)
        LAUNCH_BY_DTYPES(device, out.dtype, x.dtype, copy_elements, blocks_for(x.rows * x.columns), BLOCK_THREADS, 0,
                         out, x, scale, add);
}

template <typename T> static __global__ void add_elements(struct matrix out, struct matrix a, struct matrix b)
{
    grid_wait();
    ELEMENTS(at, a.rows, a.columns)
    {
        float sum = to_f32(row_of<T>(a, at.row)[at.column]) + to_f32(row_of<T>(b, at.row)[at.column]);
        row_of<T>(out, at.row)[at.column] = from_f32<T>(sum);
    }
}

extern "C" void cuda_add(struct device *device, struct matrix out, struct matrix a, struct matrix b)
{
    require(out.rows == a.rows && out.columns == a.columns && b.rows == a.rows && b.columns == a.columns &&
                out.dtype == a.dtype && b.dtype == a.dtype,
            "add: [%lld,%lld] from [%lld,%lld] and [%lld,%lld]", (long long)out.rows, (long long)out.columns,
            (long long)a.rows, (long long)a.columns, (long long)b.rows, (long long)b.columns);
    LAUNCH_ELEMENTS(device, a.dtype, add_elements, a.rows * a.columns, out, a, b);
}

extern "C" void cuda_zero(struct device *device, void *data, i64 bytes)
{
    CUDA_CHECK(cudaMemsetAsync(data, 0, (size_t)bytes, cuda_queue_of(device)));
}
