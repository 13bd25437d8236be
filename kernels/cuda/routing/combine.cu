#include "kernels/cuda/cuda.h"

enum { WARPS = 8 };

struct combine_call {
    struct matrix out, y, others[2]; /* the backward has dy in out and dout in y */
    const i32 *slot, *source, *rows;
    const float *weights;
    i64 k_max;
};

template <typename T, int N>
__device__ static void add_columns(float *sum, struct matrix from, i64 row, i64 column, float weight)
{
    elements<T, N> x = load<N>(row_of<T>(from, row) + column);
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] += weight * to_f32(x.at[i]);
}

template <typename Out, typename T, int N> __device__ static void combine_row(const struct combine_call &c, i64 row)
{
    for (i64 column = (i64)threadIdx.x * N; column < c.out.columns; column += (i64)blockDim.x * N) {
        float sum[N] = {};
        elements<Out, N> out;
        for (const struct matrix &other : c.others)
            if (other.data)
                add_columns<Out, N>(sum, other, row, column, 1);
        for (i64 a = row * c.k_max; a < (row + 1) * c.k_max; a++)
            if (c.slot[a] >= 0)
                add_columns<T, N>(sum, c.y, c.slot[a], column, c.weights ? c.weights[a] : 1);
#pragma unroll
        for (int i = 0; i < N; i++)
            out.at[i] = from_f32<Out>(sum[i]);
        store(row_of<Out>(c.out, row) + column, out);
    }
}

/* One block handles one position. */
template <typename Out, typename T> static __global__ void combine_rows(struct combine_call c)
{
    grid_wait();
    if (is_vector<T>(c.y) && is_vector<Out>(c.out) && is_vector<Out>(c.others[0]) && is_vector<Out>(c.others[1]))
        combine_row<Out, T, 16 / sizeof(T)>(c, blockIdx.x);
    else
        combine_row<Out, T, 1>(c, blockIdx.x);
}

extern "C" void cuda_combine(struct device *device, struct matrix out, struct matrix a, struct matrix b,
                             struct matrix y, const i32 *slot, const float *weights, i64 k_max)
{
    struct combine_call c = {out, y, {a, b}, slot, NULL, NULL, weights, k_max};
    if (out.rows > 0)
        LAUNCH_BY_DTYPES(device, out.dtype, y.dtype, combine_rows, (unsigned)out.rows,
                         threads_for(out.columns * dtype_bytes(y.dtype) / 16), 0, c);
}

/* Writes row `to` with one warp: row `from` of x times weight, or zeros if from is -1. */
template <typename T, int N>
__device__ static void move_runs(struct matrix out, struct matrix x, i64 to, i64 from, float weight)
{
    enum { STEP = WARP_THREADS * N, AT_ONCE = 4 };
    for (i64 first = threadIdx.x % WARP_THREADS * N; first < out.columns; first += AT_ONCE * STEP) {
        elements<T, N> runs[AT_ONCE] = {};
        for (int i = 0; i < AT_ONCE; i++)
            if (from >= 0 && first + i * STEP < out.columns)
                runs[i] = load<N>(row_of<T>(x, from) + first + i * STEP);
        for (int i = 0; i < AT_ONCE; i++) {
#pragma unroll
            for (int k = 0; k < N; k++)
                runs[i].at[k] = from_f32<T>(weight * to_f32(runs[i].at[k]));
            if (first + i * STEP < out.columns)
                store(row_of<T>(out, to) + first + i * STEP, runs[i]);
        }
    }
}
template <typename T>
__device__ static void move_row(struct matrix out, struct matrix x, i64 to, i64 from, float weight)
{
    if (is_vector<T>(out) && is_vector<T>(x))
        move_runs<T, 16 / sizeof(T)>(out, x, to, from, weight);
    else
        move_runs<T, 1>(out, x, to, from, weight);
}

/* One warp handles one assignment. Further warps zero the rows that belong to no assignment. */
template <typename T> static __global__ void backward_rows(struct combine_call c)
{
    grid_wait();
    i64 at = (i64)blockIdx.x * WARPS + threadIdx.x / WARP_THREADS, assignments = c.y.rows * c.k_max;
    if (at < assignments) {
        if (c.slot[at] >= 0)
            move_row<T>(c.out, c.y, c.slot[at], at / c.k_max, c.weights ? c.weights[at] : 1);
        return;
    }
    i64 row = at - assignments;
    if (row < *c.rows && c.source[row] < 0)
        move_row<T>(c.out, c.out, row, -1, 1);
}

extern "C" void cuda_combine_backward(struct device *device, struct matrix dy, struct matrix dout, const i32 *slot,
                                      const i32 *source, const i32 *rows, const float *weights, i64 k_max)
{
    struct combine_call c = {dy, dout, {}, slot, source, rows, weights, k_max};
    i64 warps = dout.rows * k_max + dy.rows;
    if (warps > 0)
        LAUNCH_BY_DTYPE(device, dy.dtype, backward_rows, (unsigned)ceil_div(warps, WARPS), WARPS * WARP_THREADS, 0, c);
}

/* One warp handles one row of the bound. */
template <typename T>
static __global__ void dispatch_rows(struct matrix out, struct matrix x, const i32 *source, const i32 *rows)
{
    grid_wait();
    i64 row = (i64)blockIdx.x * WARPS + threadIdx.x / WARP_THREADS;
    if (row < *rows)
        move_row<T>(out, x, row, source[row], 1);
}

extern "C" void cuda_dispatch(struct device *device, struct matrix out, struct matrix x, const i32 *source,
                              const i32 *rows)
{
    if (out.rows > 0)
        LAUNCH_BY_DTYPE(device, out.dtype, dispatch_rows, (unsigned)ceil_div(out.rows, WARPS), WARPS * WARP_THREADS, 0,
                        out, x, source, rows);
}
