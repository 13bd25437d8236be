/* Small elementwise ops: constants, ids, bytes to floats and back, running means. */
#include "kernels/cuda/cuda.h"

template <typename T> static __global__ void fill_elements(T *out, i64 count, T value)
{
    grid_wait();
    GRID_STRIDE(i, count)
    out[i] = value;
}

extern "C" void cuda_fill(struct device *device, float *out, i64 count, float value)
{
    if (count > 0)
        LAUNCH(device, fill_elements<float>, blocks_for(count), BLOCK_THREADS, 0, out, count, value);
}

extern "C" void cuda_fill_ids(struct device *device, i32 *out, i64 count, i32 value)
{
    if (count > 0)
        LAUNCH(device, fill_elements<i32>, blocks_for(count), BLOCK_THREADS, 0, out, count, value);
}

extern "C" void cuda_copy_ids(struct device *device, i32 *out, const i32 *ids, i64 count)
{
    CUDA_CHECK(cudaMemcpyAsync(out, ids, (size_t)count * 4, cudaMemcpyDeviceToDevice, cuda_queue_of(device)));
}

/* View of a dense matrix as one row of all its elements. */
static struct matrix flat(struct matrix m)
{
    return matrix_of(m.data, m.dtype, 1, m.rows * m.columns);
}

template <typename T, int N> static __global__ void widen(struct matrix out, const u8 *bytes, float scale, float shift)
{
    grid_wait();
    RUNS(N, at, column, out.rows, out.columns)
    {
        elements<u8, N> from = load<N>(bytes + column);
        elements<T, N> to;
        for (int k = 0; k < N; k++)
            to.at[k] = from_f32<T>((float)from.at[k] * scale + shift);
        store((T *)out.data + column, to);
    }
}

extern "C" void cuda_widen_bytes(struct device *device, struct matrix out, const u8 *bytes, float scale, float shift)
{
    out = flat(out);
    LAUNCH_RUNS(device, in_quads(out) && array_in_quads(bytes, 1, out.columns), out.dtype, widen, out.columns, out,
                bytes, scale, shift);
}

template <typename T, int N> static __global__ void narrow(u8 *bytes, struct matrix x, float shift, float scale)
{
    grid_wait();
    RUNS(N, at, column, x.rows, x.columns)
    {
        elements<T, N> from = load<N>((const T *)x.data + column);
        elements<u8, N> to;
        for (int k = 0; k < N; k++) {
            float value = (to_f32(from.at[k]) + shift) * scale + 0.5f;
            to.at[k] = !(value > 0) ? 0 : value >= 255 ? 255 : (u8)value;
        }
        store(bytes + column, to);
    }
}

extern "C" void cuda_narrow_bytes(struct device *device, u8 *bytes, struct matrix x, float shift, float scale)
{
    x = flat(x);
    LAUNCH_RUNS(device, in_quads(x) && array_in_quads(bytes, 1, x.columns), x.dtype, narrow, x.columns, bytes, x, shift,
                scale);
}

static __global__ void shift_divide_elements(struct matrix out, struct matrix x, float shift, float divisor)
{
    grid_wait();
    ELEMENTS(at, x.rows, x.columns)
    row_of<float>(out, at.row)[at.column] = (row_of<float>(x, at.row)[at.column] + shift) / divisor;
}

extern "C" void cuda_shift_divide(struct device *device, struct matrix out, struct matrix x, float shift, float divisor)
{
    if (x.rows * x.columns > 0)
        LAUNCH(device, shift_divide_elements, blocks_for(x.rows * x.columns), BLOCK_THREADS, 0, out, x, shift, divisor);
}

static __global__ void move_means(float *mean, const float *x, i64 count, double keep)
{
    grid_wait();
    GRID_STRIDE(i, count)
    mean[i] = (float)(keep * (double)mean[i] + (1 - keep) * (double)x[i]);
}

extern "C" void cuda_running_mean(struct device *device, float *mean, const float *x, i64 count, double keep)
{
    if (count > 0)
        LAUNCH(device, move_means, blocks_for(count), BLOCK_THREADS, 0, mean, x, count, keep);
}
