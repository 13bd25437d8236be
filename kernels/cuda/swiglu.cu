#include "kernels/cuda/cuda.h"

__device__ static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

template <typename T> __global__ void forward(struct matrix y, struct matrix gate_up)
{
    GRID_STRIDE(i, y.rows * y.columns)
    {
        i64 row = i / y.columns, column = i % y.columns;
        const T *from = row_of<T>(gate_up, row) + column;
        float g = to_f32(from[0]);
        row_of<T>(y, row)[column] = from_f32<T>(g * sigmoid(g) * to_f32(from[y.columns]));
    }
}

extern "C" void cuda_swiglu(struct device *device, struct matrix y, struct matrix gate_up)
{
    require(y.rows == gate_up.rows && gate_up.columns == 2 * y.columns && y.dtype == gate_up.dtype,
            "swiglu: [%lld,%lld] from [%lld,%lld]", (long long)y.rows, (long long)y.columns, (long long)gate_up.rows,
            (long long)gate_up.columns);
    LAUNCH(device, y.dtype, forward, blocks_for(y.rows * y.columns), y, gate_up);
}

/* d silu(g) / dg = s (1 + g (1 - s)), s = sigmoid(g). */
template <typename T> __global__ void backward(struct matrix dgate_up, struct matrix dy, struct matrix gate_up)
{
    GRID_STRIDE(i, dy.rows * dy.columns)
    {
        i64 row = i / dy.columns, column = i % dy.columns;
        const T *from = row_of<T>(gate_up, row) + column;
        T *to = row_of<T>(dgate_up, row) + column;
        float g = to_f32(from[0]), u = to_f32(from[dy.columns]), d = to_f32(row_of<T>(dy, row)[column]);
        float s = sigmoid(g), silu = g * s;
        to[0] = from_f32<T>(d * u * (s + silu * (1 - s)));
        to[dy.columns] = from_f32<T>(d * silu);
    }
}

extern "C" void cuda_swiglu_backward(struct device *device, struct matrix dgate_up, struct matrix dy,
                                     struct matrix gate_up)
{
    require(dgate_up.rows == gate_up.rows && dgate_up.columns == gate_up.columns && dy.rows == gate_up.rows &&
                gate_up.columns == 2 * dy.columns && dy.dtype == gate_up.dtype && dgate_up.dtype == gate_up.dtype,
            "swiglu_backward: [%lld,%lld] from [%lld,%lld] and [%lld,%lld]", (long long)dgate_up.rows,
            (long long)dgate_up.columns, (long long)dy.rows, (long long)dy.columns, (long long)gate_up.rows,
            (long long)gate_up.columns);
    LAUNCH(device, dy.dtype, backward, blocks_for(dy.rows * dy.columns), dgate_up, dy, gate_up);
}
