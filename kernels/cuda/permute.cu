#include "kernels/cuda/cuda.h"

#include "kernels/permute.h"

enum { SIDE = 32, LINES = BLOCK_THREADS / SIDE, BLOCKS_MOST = 1 << 16 };

struct permute_offsets {
    i64 from, to;
};
/* Offsets of place `index` over all axes except the last and `skip`. */
__device__ static struct permute_offsets place(const struct permute_axes *axes, i64 index, int skip)
{
    struct permute_offsets at = {0, 0};
    for (int a = axes->rank - 2; a >= 0; a--) {
        if (a == skip)
            continue;
        i64 size = axes->size[a];
        i64 rest = index >> 31 || size >> 31 ? index / size : (u32)index / (u32)size;
        at.from += (index - rest * size) * axes->from[a];
        at.to += (index - rest * size) * axes->to[a];
        index = rest;
    }
    return at;
}

/* Copies when the innermost axis stays: runs of it, in units of T. */
template <typename T>
static __global__ void copy_runs(T *out, const T *x, const __grid_constant__ struct permute_axes axes, i64 places)
{
    grid_wait();
    ELEMENTS(at, places, axes.size[axes.rank - 1])
    {
        struct permute_offsets offsets = place(&axes, at.row, -1);
        out[offsets.to + at.column] = x[offsets.from + at.column];
    }
}

/* Rewrites the plan in the widest unit, up to 16 bytes, that divides all sizes, strides and
 * addresses. Returns the unit's bytes. */
static i64 widen_elements(struct permute_axes *axes, const void *out, const void *x, i64 element)
{
    int last = axes->rank - 1;
    u64 bits = (uintptr_t)out | (uintptr_t)x | (u64)(axes->size[last] * element) | 16;
    for (int a = 0; a < last; a++)
        bits |= (u64)(axes->from[a] * element);
    i64 unit = (i64)(bits & -bits);
    axes->size[last] = axes->size[last] * element / unit;
    for (int a = 0; a < last; a++) {
        axes->from[a] = axes->from[a] * element / unit;
        axes->to[a] = axes->to[a] * element / unit;
    }
    return unit;
}

/* Transposes, through shared memory, squares of the plane spanned by x's innermost axis (`axis`)
 * and out's innermost axis. */
template <typename T>
static __global__ void transpose_squares(T *out, const T *x, const __grid_constant__ struct permute_axes axes, int axis,
                                         i64 squares)
{
    grid_wait();
    SHARED(T, square, SIDE * (SIDE + 1));
    int last = axes.rank - 1, lane = threadIdx.x % SIDE, line = threadIdx.x / SIDE;
    i64 across = (axes.size[last] + SIDE - 1) / SIDE, down = (axes.size[axis] + SIDE - 1) / SIDE;
    for (i64 index = blockIdx.x; index < squares; index += gridDim.x) {
        struct permute_offsets at = place(&axes, index / (across * down), axis);
        i64 column = index % across * SIDE, row = index / across % down * SIDE;
        __syncthreads(); /* for the previous square */
        for (int i = line; i < SIDE; i += LINES)
            if (row + lane < axes.size[axis] && column + i < axes.size[last])
                square[i * (SIDE + 1) + lane] = x[at.from + row + lane + (column + i) * axes.from[last]];
        __syncthreads();
        for (int i = line; i < SIDE; i += LINES)
            if (row + i < axes.size[axis] && column + lane < axes.size[last])
                out[at.to + (row + i) * axes.to[axis] + column + lane] = square[lane * (SIDE + 1) + i];
    }
}

template <typename T>
static void run_copies(struct device *device, void *out, const void *x, const struct permute_axes *axes)
{
    i64 places = permute_places(axes, -1);
    LAUNCH(device, copy_runs<T>, blocks_for(places * axes->size[axes->rank - 1]), BLOCK_THREADS, 0, (T *)out,
           (const T *)x, *axes, places);
}

template <typename T>
static void run_squares(struct device *device, void *out, const void *x, const struct permute_axes *axes)
{
    int axis = permute_unit_axis(axes);
    i64 squares =
        permute_places(axes, axis) * ceil_div(axes->size[axis], SIDE) * ceil_div(axes->size[axes->rank - 1], SIDE);
    LAUNCH(device, transpose_squares<T>, (unsigned)min_i64(squares, BLOCKS_MOST), BLOCK_THREADS, 0, (T *)out,
           (const T *)x, *axes, axis, squares);
}

typedef void run_elements(struct device *device, void *out, const void *x, const struct permute_axes *axes);

extern "C" void cuda_permute(struct device *device, void *out, const void *x, enum dtype dtype, int rank,
                             const i64 *shape, const i64 *order)
{
    struct permute_axes axes = {};
    i64 element = dtype_bytes(dtype);
    if (!permute_axes_of(&axes, rank, shape, order))
        return;
    if (axes.from[axes.rank - 1] == 1) {
        element = widen_elements(&axes, out, x, element);
        run_elements *copies = element == 1   ? run_copies<u8>
                               : element == 2 ? run_copies<u16>
                               : element == 4 ? run_copies<u32>
                               : element == 8 ? run_copies<u64>
                                              : run_copies<uint4>;
        copies(device, out, x, &axes);
    } else {
        run_elements *squares = element == 1   ? run_squares<u8>
                                : element == 2 ? run_squares<u16>
                                : element == 4 ? run_squares<u32>
                                               : run_squares<u64>;
        squares(device, out, x, &axes);
    }
}
