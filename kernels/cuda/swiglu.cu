#include "kernels/cuda/ptx.h"
#include "kernels/swiglu.h"

template <typename T> static __global__ void forward(struct matrix y, struct matrix gate_up)
{
    grid_wait();
    ELEMENTS(at, y.rows, y.columns)
    {
        const T *from = row_of<T>(gate_up, at.row) + at.column;
        float g = to_f32(from[0]);
        row_of<T>(y, at.row)[at.column] = from_f32<T>(swiglu_of(g, to_f32(from[y.columns]), sigmoid_for<T>(g)));
    }
}

extern "C" void cuda_swiglu(struct device *device, struct matrix y, struct matrix gate_up)
{
    require(y.rows == gate_up.rows && gate_up.columns == 2 * y.columns && y.dtype == gate_up.dtype,
            "swiglu: [%lld,%lld] from [%lld,%lld]", (long long)y.rows, (long long)y.columns, (long long)gate_up.rows,
            (long long)gate_up.columns);
    LAUNCH_ELEMENTS(device, y.dtype, forward, y.rows * y.columns, y, gate_up);
}

template <typename T> static __global__ void backward(struct matrix dgate_up, struct matrix dy, struct matrix gate_up)
{
    grid_wait();
    ELEMENTS(at, dy.rows, dy.columns)
    {
        const T *from = row_of<T>(gate_up, at.row) + at.column;
        T *to = row_of<T>(dgate_up, at.row) + at.column;
        float g = to_f32(from[0]), u = to_f32(from[dy.columns]), d = to_f32(row_of<T>(dy, at.row)[at.column]);
        float s = sigmoid_for<T>(g);
        to[0] = from_f32<T>(swiglu_dgate(d, g, u, s));
        to[dy.columns] = from_f32<T>(swiglu_dup(d, g, s));
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
    LAUNCH_ELEMENTS(device, dy.dtype, backward, dy.rows * dy.columns, dgate_up, dy, gate_up);
}
