#include "kernels/cuda/ptx.h"
#include "kernels/swiglu.h"

template <typename T, int N> static __global__ void forward(struct matrix y, struct matrix gate_up)
{
    grid_wait();
    RUNS(N, at, column, y.rows, y.columns)
    {
        const T *from = row_of<T>(gate_up, at.row) + column;
        elements<T, N> gates = load<N>(from), ups = load<N>(from + y.columns);
        for (int k = 0; k < N; k++) {
            float g = to_f32(gates.at[k]);
            gates.at[k] = from_f32<T>(swiglu_of(g, to_f32(ups.at[k]), sigmoid_for<T>(g)));
        }
        store(row_of<T>(y, at.row) + column, gates);
    }
}

extern "C" void cuda_swiglu(struct device *device, struct matrix y, struct matrix gate_up)
{
    require(y.rows == gate_up.rows && gate_up.columns == 2 * y.columns && y.dtype == gate_up.dtype,
            "swiglu: [%lld,%lld] from [%lld,%lld]", (long long)y.rows, (long long)y.columns, (long long)gate_up.rows,
            (long long)gate_up.columns);
    LAUNCH_RUNS(device, in_quads(y, gate_up), y.dtype, forward, y.rows * y.columns, y, gate_up);
}

template <typename T, int N>
static __global__ void backward(struct matrix dgate_up, struct matrix dy, struct matrix gate_up)
{
    grid_wait();
    RUNS(N, at, column, dy.rows, dy.columns)
    {
        const T *from = row_of<T>(gate_up, at.row) + column;
        T *to = row_of<T>(dgate_up, at.row) + column;
        elements<T, N> gates = load<N>(from), ups = load<N>(from + dy.columns);
        elements<T, N> arrived = load<N>(row_of<T>(dy, at.row) + column);
        for (int k = 0; k < N; k++) {
            float g = to_f32(gates.at[k]), d = to_f32(arrived.at[k]), s = sigmoid_for<T>(g);
            gates.at[k] = from_f32<T>(swiglu_dgate(d, g, to_f32(ups.at[k]), s));
            ups.at[k] = from_f32<T>(swiglu_dup(d, g, s));
        }
        store(to, gates);
        store(to + dy.columns, ups);
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
    LAUNCH_RUNS(device, in_quads(dgate_up, dy, gate_up), dy.dtype, backward, dy.rows * dy.columns, dgate_up, dy,
                gate_up);
}
