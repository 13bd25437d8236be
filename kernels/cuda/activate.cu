#include "kernels/cuda/cuda.h"

#include "kernels/activate.h"

__device__ static float activation(float x, enum activation kind)
{
    return kind == ACTIVATION_SILU ? silu_of(x, sigmoid(x)) : gelu_of(x, erff(x * GELU_ARGUMENT));
}

__device__ static float derivative(float x, enum activation kind)
{
    return kind == ACTIVATION_SILU ? silu_slope(x, sigmoid(x))
                                   : gelu_slope(x, erff(x * GELU_ARGUMENT), expf(-0.5f * x * x));
}

template <typename T, int N>
static __global__ void activate_elements(struct matrix y, struct matrix x, enum activation kind)
{
    grid_wait();
    RUNS(N, at, column, x.rows, x.columns)
    {
        elements<T, N> values = load<N>(row_of<T>(x, at.row) + column);
        for (int k = 0; k < N; k++)
            values.at[k] = from_f32<T>(activation(to_f32(values.at[k]), kind));
        store(row_of<T>(y, at.row) + column, values);
    }
}

extern "C" void cuda_activate(struct device *device, struct matrix y, struct matrix x, enum activation kind)
{
    LAUNCH_RUNS(device, in_quads(y, x), x.dtype, activate_elements, x.rows * x.columns, y, x, kind);
}

template <typename T, int N>
static __global__ void derive_elements(struct matrix dx, struct matrix dy, struct matrix x, enum activation kind,
                                       bool add)
{
    grid_wait();
    RUNS(N, at, column, x.rows, x.columns)
    {
        T *to = row_of<T>(dx, at.row) + column;
        elements<T, N> values = load<N>(row_of<T>(x, at.row) + column), before = {};
        elements<T, N> arrived = load<N>(row_of<T>(dy, at.row) + column);
        if (add)
            before = load<N>(to);
        for (int k = 0; k < N; k++) {
            float d = to_f32(arrived.at[k]) * derivative(to_f32(values.at[k]), kind);
            values.at[k] = from_f32<T>(add ? to_f32(before.at[k]) + d : d);
        }
        store(to, values);
    }
}

extern "C" void cuda_activate_backward(struct device *device, struct matrix dx, struct matrix dy, struct matrix x,
                                       enum activation kind, bool add)
{
    LAUNCH_RUNS(device, in_quads(dx, dy, x), x.dtype, derive_elements, x.rows * x.columns, dx, dy, x, kind, add);
}
