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
    LAUNCH_RUNS(device, in_quads(y, gate_up), y.dtype, forward, y.rows * y.columns, y, gate_up);
}

/* Replaces `ups` by dup and `gates` by dgate. Returns dy . y of the run. */
template <typename T, int N>
__device__ static float backward_run(elements<T, N> &gates, elements<T, N> &ups, const elements<T, N> &dy)
{
    float sum = 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        float g = to_f32(gates.at[k]), u = to_f32(ups.at[k]), d = to_f32(dy.at[k]), s = sigmoid_for<T>(g);
        float dup = swiglu_dup(d, g, s);
        gates.at[k] = from_f32<T>(swiglu_dgate(d, g, u, s));
        ups.at[k] = from_f32<T>(dup);
        sum += dup * u;
    }
    return sum;
}

/* Backward of a row by one warp; a lane issues the loads of AT_ONCE runs before it uses the first.
 * Returns the lane's share of dy . y. */
template <typename T, int N> __device__ static float backward_row(T *to, const T *from, const T *dy, i64 columns)
{
    enum { STEP = WARP_THREADS * N, AT_ONCE = N > 1 ? 2 : 1 };
    float sum = 0;
    for (i64 first = threadIdx.x % WARP_THREADS * N; first < columns; first += AT_ONCE * STEP) {
        elements<T, N> gates[AT_ONCE] = {}, ups[AT_ONCE] = {}, arrived[AT_ONCE] = {};
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            i64 column = first + i * STEP;
            if (column >= columns)
                continue;
            gates[i] = load<N>(from + column);
            ups[i] = load<N>(from + columns + column);
            arrived[i] = load<N>(dy + column);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            i64 column = first + i * STEP;
            if (column >= columns)
                continue;
            sum += backward_run(gates[i], ups[i], arrived[i]);
            store(to + column, gates[i]);
            store(to + columns + column, ups[i]);
        }
    }
    return sum;
}

enum { WARPS = 8 };
template <typename T>
static __global__ void backward(struct matrix dgate_up, float *dscales, struct matrix dy, struct matrix gate_up)
{
    grid_wait();
    i64 row = (i64)blockIdx.x * WARPS + threadIdx.x / WARP_THREADS;
    if (row >= dy.rows)
        return;
    T *to = row_of<T>(dgate_up, row);
    const T *from = row_of<T>(gate_up, row), *arrived = row_of<T>(dy, row);
    bool vector = is_vector<T>(dgate_up) && is_vector<T>(gate_up) && is_vector<T>(dy);
    float sum = vector ? backward_row<T, 16 / sizeof(T)>(to, from, arrived, dy.columns)
                       : backward_row<T, 1>(to, from, arrived, dy.columns);
    sum = warp_sum(sum);
    if (dscales && threadIdx.x % WARP_THREADS == 0)
        dscales[row] = sum;
}

extern "C" void cuda_swiglu_backward(struct device *device, struct matrix dgate_up, float *dscales, struct matrix dy,
                                     struct matrix gate_up)
{
    if (dy.rows > 0)
        LAUNCH_BY_DTYPE(device, dy.dtype, backward, (unsigned)ceil_div(dy.rows, WARPS), WARPS * WARP_THREADS, 0,
                        dgate_up, dscales, dy, gate_up);
}
