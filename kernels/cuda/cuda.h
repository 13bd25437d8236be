/* The CUDA backend's own header, for C and CUDA. Ops are queued on device->queue; a sum of floats is always taken in an
 * order that shapes fix, never by atomics, so that bits are the same from run to run. */
#ifndef WEFT_CUDA_H
#define WEFT_CUDA_H
#include <cuda_runtime.h>
#include <math.h>

#ifdef __cplusplus
#define _Noreturn [[noreturn]]
extern "C" {
#include "kernels/cuda/device.h"
}
#undef _Noreturn
#else
#include "kernels/cuda/device.h"
#endif

#define CUDA_CHECK(call)                                                                                               \
    do {                                                                                                               \
        cudaError_t status_ = (call);                                                                                  \
        require(status_ == cudaSuccess, "CUDA: %s: %s", #call, cudaGetErrorString(status_));                           \
    } while (0)

/* What device->handles points to. The workspace is shared by all ops: the queue runs one at a time. */
struct cuda_handles {
    struct cuda_products *products; /* of matmul.c */
    void *workspace;
    i64 workspace_bytes;
};
static inline struct cuda_handles *cuda_handles_of(struct device *device)
{
    return (struct cuda_handles *)device->handles;
}
static inline cudaStream_t cuda_queue_of(struct device *device)
{
    return (cudaStream_t)device->queue;
}

/* Each op of the list under the type the contract gives it: a file that defines another does not compile. */
#ifdef __cplusplus
extern "C" {
#endif
#define DECLARE(name) __typeof__(*((struct kernels *)0)->name) cuda_##name;
WEFT_CUDA_OPS(DECLARE)
#undef DECLARE
struct cuda_products *cuda_products_open(void);
void cuda_products_close(struct cuda_products *products);
#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
/* ---- Kernels' side ---- */
enum { BLOCK_THREADS = 256 };

__device__ inline float to_f32(float value)
{
    return value;
}
__device__ inline float to_f32(bf16 value)
{
    return __uint_as_float((u32)value << 16);
}

/* Round to nearest, ties to even; a NaN stays one (core.h). */
template <typename T> __device__ inline T from_f32(float value);
template <> __device__ inline float from_f32<float>(float value)
{
    return value;
}
template <> __device__ inline bf16 from_f32<bf16>(float value)
{
    u32 bits = __float_as_uint(value), rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    return (bf16)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40 : rounded);
}

template <typename T> __device__ inline T *row_of(struct matrix m, i64 row)
{
    return (T *)m.data + row * m.stride;
}

/* One element of a matrix that may be of either dtype. */
__device__ inline float element_of(struct matrix m, i64 row, i64 column)
{
    return m.dtype == DTYPE_BF16 ? to_f32(row_of<bf16>(m, row)[column]) : row_of<float>(m, row)[column];
}

/* The sum over a block of BLOCK_THREADS, in every thread, by a fixed tree. */
__device__ inline float block_sum(float value)
{
    __shared__ float warps[BLOCK_THREADS / 32];
    for (int step = 16; step; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < BLOCK_THREADS / 32; i++)
        sum += warps[i];
    return sum;
}

/* Elements this thread handles in a loop over `count` of them. */
#define GRID_STRIDE(i, count)                                                                                          \
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += (i64)gridDim.x * blockDim.x)

static inline unsigned blocks_for(i64 elements)
{
    return (unsigned)min_i64(max_i64(ceil_div(elements, BLOCK_THREADS), 1), 1 << 16);
}

/* Runs kernel<bf16> or kernel<float>. */
#define LAUNCH(device, dtype, kernel, grid, ...)                                                                       \
    do {                                                                                                               \
        if ((dtype) == DTYPE_BF16)                                                                                     \
            kernel<bf16><<<(grid), BLOCK_THREADS, 0, cuda_queue_of(device)>>>(__VA_ARGS__);                            \
        else                                                                                                           \
            kernel<float><<<(grid), BLOCK_THREADS, 0, cuda_queue_of(device)>>>(__VA_ARGS__);                           \
        CUDA_CHECK(cudaGetLastError());                                                                                \
    } while (0)
#endif

#endif
