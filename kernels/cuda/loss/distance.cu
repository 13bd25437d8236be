#include "kernels/cuda/cuda.h"

#include "kernels/distance.h"

__device__ static float distance_of(float x, float y, enum distance kind)
{
    return kind == DISTANCE_LOG ? log_distance(x, y) : kind == DISTANCE_L1 ? fabsf(x - y) : (x - y) * (x - y);
}

__device__ static float slope_of(float x, float y, enum distance kind, float scale)
{
    if (kind == DISTANCE_LOG)
        return scale * log_distance_slope(x, y);
    return kind == DISTANCE_L2 ? 2.0f * scale * (x - y) : x > y ? scale : x < y ? -scale : 0.0f;
}

template <typename T, int N>
static __global__ void row_distances(float *loss, struct matrix x, struct matrix y, enum distance kind)
{
    grid_wait();
    i64 row = blockIdx.x;
    float sum = 0;
    COLUMNS(i, x.columns / N)
    {
        elements<T, N> a = load<N>(row_of<T>(x, row) + i * N), b = load<N>(row_of<T>(y, row) + i * N);
        for (int k = 0; k < N; k++)
            sum += distance_of(to_f32(a.at[k]), to_f32(b.at[k]), kind);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        loss[row] = sum / (float)x.columns;
}

extern "C" void cuda_distance(struct device *device, float *loss, struct matrix x, struct matrix y, enum distance kind)
{
    LAUNCH_ROWS_OF_RUNS(device, in_quads(x, y), x.dtype, row_distances, x.rows, x.columns, loss, x, y, kind);
}

template <typename D, typename T, int N>
static __global__ void derivatives(struct matrix dx, struct matrix x, struct matrix y, enum distance kind,
                                   const float *coefficient, bool add)
{
    grid_wait();
    RUNS(N, at, column, x.rows, x.columns)
    {
        D *to = row_of<D>(dx, at.row) + column;
        elements<T, N> a = load<N>(row_of<T>(x, at.row) + column), b = load<N>(row_of<T>(y, at.row) + column);
        elements<D, N> values = {};
        float scale = coefficient[at.row] / (float)x.columns;
        if (add)
            values = load<N>(to);
        for (int k = 0; k < N; k++) {
            float slope = slope_of(to_f32(a.at[k]), to_f32(b.at[k]), kind, scale);
            values.at[k] = from_f32<D>(add ? to_f32(values.at[k]) + slope : slope);
        }
        store(to, values);
    }
}

extern "C" void cuda_distance_backward(struct device *device, struct matrix dx, struct matrix x, struct matrix y,
                                       enum distance kind, const float *coefficient, bool add)
{
    bool quads = in_quads(dx, x, y);
    i64 runs = x.rows * x.columns / (quads ? QUAD : 1);
    if (runs > 0)
        LAUNCH_RUNS_BY_DTYPES(device, quads, dx.dtype, x.dtype, derivatives, blocks_for(runs), BLOCK_THREADS, dx, x, y,
                              kind, coefficient, add);
}
