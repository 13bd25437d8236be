#include "kernels/cuda/cuda.h"

__device__ static float weight_of(struct matrix w, i64 column)
{
    return w.data ? element_of(w, 0, column) : 1.0f;
}

/* One block a row. With b, x + b is written to sum and read from there. */
template <typename T>
static __global__ void normalize(struct matrix y, float *rstd, struct matrix sum, struct matrix x, struct matrix b,
                                 struct matrix w, float eps)
{
    grid_wait();
    i64 row = blockIdx.x;
    const T *from = b.data ? row_of<T>(sum, row) : row_of<T>(x, row);
    float squares = 0;
    COLUMNS(i, x.columns)
    {
        if (b.data)
            row_of<T>(sum, row)[i] = from_f32<T>(to_f32(row_of<T>(x, row)[i]) + to_f32(row_of<T>(b, row)[i]));
        squares += to_f32(from[i]) * to_f32(from[i]);
    }
    float r = 1.0f / sqrtf(block_sum(squares) / (float)x.columns + eps);
    if (threadIdx.x == 0)
        rstd[row] = r;
    COLUMNS(i, x.columns)
    row_of<T>(y, row)[i] = from_f32<T>(weight_of(w, i) * to_f32(from_f32<T>(to_f32(from[i]) * r)));
}

static void run(struct device *device, struct matrix y, float *rstd, struct matrix sum, struct matrix x,
                struct matrix b, struct matrix w, float eps)
{
    require(y.rows == x.rows && y.columns == x.columns && y.dtype == x.dtype && (!w.data || w.columns == x.columns),
            "rmsnorm: [%lld,%lld] from [%lld,%lld]", (long long)y.rows, (long long)y.columns, (long long)x.rows,
            (long long)x.columns);
    LAUNCH_ROWS(device, x.dtype, normalize, x.rows, x.columns, y, rstd, sum, x, b, w, eps);
}

extern "C" void cuda_rmsnorm(struct device *device, struct matrix y, float *rstd, struct matrix x, struct matrix w,
                             float eps)
{
    struct matrix none = {};
    run(device, y, rstd, none, x, none, w, eps);
}

extern "C" void cuda_add_rmsnorm(struct device *device, struct matrix sum, struct matrix y, float *rstd,
                                 struct matrix a, struct matrix b, struct matrix w, float eps)
{
    require(b.rows == a.rows && b.columns == a.columns && sum.rows == a.rows && sum.columns == a.columns &&
                b.dtype == a.dtype && sum.dtype == a.dtype,
            "add_rmsnorm: [%lld,%lld] and [%lld,%lld]", (long long)a.rows, (long long)a.columns, (long long)b.rows,
            (long long)b.columns);
    run(device, y, rstd, sum, a, b, w, eps);
}

/* With g = w . dy and n = x . r: dx = r (g - n mean(g n)). One block a row. */
template <typename T>
static __global__ void backward_rows(struct matrix dx, struct matrix dy, struct matrix x, struct matrix w,
                                     const float *rstd, bool add)
{
    grid_wait();
    i64 row = blockIdx.x;
    const T *d = row_of<T>(dy, row), *from = row_of<T>(x, row);
    T *to = row_of<T>(dx, row);
    float r = rstd[row], sum = 0;
    COLUMNS(i, x.columns)
    sum += to_f32(d[i]) * weight_of(w, i) * to_f32(from[i]);
    float mean = r * block_sum(sum) / (float)x.columns;
    COLUMNS(i, x.columns)
    {
        float g = r * (to_f32(d[i]) * weight_of(w, i) - to_f32(from[i]) * r * mean);
        to[i] = from_f32<T>(add ? to_f32(to[i]) + g : g);
    }
}

/* dw = sum over rows of dy . n: a block takes BLOCK_THREADS columns of one run of rows. */
template <typename T>
static __global__ void weight_partials(float *partials, struct matrix dy, struct matrix x, const float *rstd, i64 rows)
{
    grid_wait();
    i64 column = (i64)blockIdx.x * BLOCK_THREADS + threadIdx.x, begin = blockIdx.y * rows;
    i64 end = begin + rows < x.rows ? begin + rows : x.rows;
    float sum = 0;
    if (column >= x.columns)
        return;
    for (i64 row = begin; row < end; row++)
        sum += to_f32(row_of<T>(dy, row)[column]) * (to_f32(row_of<T>(x, row)[column]) * rstd[row]);
    partials[blockIdx.y * x.columns + column] = sum;
}

static void backward_weights(struct device *device, struct matrix dw, struct matrix dy, struct matrix x,
                             const float *rstd, bool add)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    float *partials = (float *)handles->workspace;
    i64 rows = max_i64(32, ceil_div(x.rows, 64)), count = ceil_div(x.rows, rows);
    require(count * x.columns * 4 <= handles->workspace_bytes, "rmsnorm_backward: %lld columns", (long long)x.columns);
    dim3 grid((unsigned)ceil_div(x.columns, BLOCK_THREADS), (unsigned)count);
    if (count > 0)
        LAUNCH_BY_DTYPE(device, x.dtype, weight_partials, grid, BLOCK_THREADS, 0, partials, dy, x, rstd, rows);
    cuda_add_partials(device, (float *)dw.data, partials, count, x.columns, add);
}

extern "C" void cuda_rmsnorm_backward(struct device *device, struct matrix dx, struct matrix dw, struct matrix dy,
                                      struct matrix x, struct matrix w, const float *rstd, bool add_dx, bool add_dw)
{
    require(dx.rows == x.rows && dx.columns == x.columns && dy.rows == x.rows && dy.columns == x.columns &&
                dx.dtype == x.dtype && dy.dtype == x.dtype &&
                (!dw.data || (dw.columns == x.columns && dw.dtype == DTYPE_F32)),
            "rmsnorm_backward: dx [%lld,%lld], dy [%lld,%lld], x [%lld,%lld]", (long long)dx.rows,
            (long long)dx.columns, (long long)dy.rows, (long long)dy.columns, (long long)x.rows, (long long)x.columns);
    LAUNCH_ROWS(device, x.dtype, backward_rows, x.rows, x.columns, dx, dy, x, w, rstd, add_dx);
    if (dw.data)
        backward_weights(device, dw, dy, x, rstd, add_dw);
}
