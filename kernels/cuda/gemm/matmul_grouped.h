/* gemm: matrix products of the CUDA backend; this is the folder's main header. In: matrices, groups
 * (offsets in device memory) and weights of the caller. Out: one output matrix. Scratch is the
 * device's workspace.
 *
 * Where is what:
 *   matmul.c                    dense products by cuBLASLt; matmul_plain.cu: what that refuses
 *   matmul_grouped.cu           experts, f32 and Ampere; calls matmul_grouped_hopper.cu if it fits
 *   matmul_skinny.cu, skinny.h  few rows, with norm, SwiGLU, sum and rope in one launch
 *   experts_skinny.cu           all experts of a few positions in two launches
 *   matmul_quantized.cu         weights of 8 and 4 bits
 *   matmul_fp8.cu, _hopper.cu   fp8 operands with scales per block (matmul_fp8.h)
 *
 * Scheduling and epilogue of the grouped gemm kernels. Blocks are persistent and take one output
 * tile after another. The group of a tile follows from offsets in device memory, so the host needs
 * no counts. Each output is one sum along k in order, so its bits do not depend on the number of
 * blocks.
 *
 *     group 0   | t0 | t1 | t2 |      block b takes tiles b, b + gridDim, ...;
 *               | t3 | t4 | t5 |      starts = 0, 6, 9, ...
 *     group 1   | t6 | t7 | t8 | */
#ifndef WEFT_CUDA_MATMUL_GROUPED_H
#define WEFT_CUDA_MATMUL_GROUPED_H
#include "kernels/cuda/ptx.h"
#include "kernels/route.h"
#include "kernels/swiglu.h"

enum { GROUPS_MOST = 4096 };
enum gemm_kind {
    GEMM_TRANSPOSED /* a W^T */,
    GEMM_SWIGLU /* swiglu(a W^T) */,
    GEMM_PLAIN /* a W */,
    GEMM_WEIGHTS /* dy^T x */
};

struct grouped_gemm {
    struct matrix out, a, b;
    u8 *written; /* weight gradient only */
    i64 slice_rows;
    struct groups groups;
    i64 vector_a, vector_b; /* flags */
    const i32 *rows;        /* memory row of each row of a (of b if b is x), -1: zeros; NULL: identity */
    struct matrix gate_up;  /* GEMM_SWIGLU; data NULL: not kept */
};

/* Hopper kernel (matmul_grouped_hopper.cu). Returns false, with nothing launched, if the device or
 * the operands do not suit it. */
bool grouped_hopper(struct device *device, const struct grouped_gemm &p, enum gemm_kind kind);

/* Marks the slices of all groups that have rows (matmul_grouped.cu). */
void mark_written(struct device *device, u8 *written, const struct groups &groups);

/* Output columns of a tile of N columns. With SwiGLU, two columns of the product give one output.
 */
template <enum gemm_kind kind, int N> __host__ __device__ constexpr int tile_columns(void)
{
    return kind == GEMM_SWIGLU ? N / 2 : N;
}

/* Number of tiles of an output with this many rows and columns. */
template <int M, int N> __device__ inline i32 tiles_of(i64 rows, i64 columns)
{
    return (i32)((rows + M - 1) / M * ((columns + N - 1) / N));
}

/* Fills starts [groups + 1] with the first tile of each group. All threads of the block call it. */
template <int M, int N, enum gemm_kind kind>
__device__ inline void count_tiles(i32 *starts, const struct grouped_gemm &p)
{
    i32 before = 0;
    for (i64 first = 0; first < p.groups.count; first += blockDim.x) {
        i64 g = first + threadIdx.x;
        i64 rows = g < p.groups.count ? p.groups.offsets[g + 1] - p.groups.offsets[g] : 0;
        i64 down = kind == GEMM_WEIGHTS && rows > 0 ? p.slice_rows : rows;
        i32 total, tiles = tiles_of<M, tile_columns<kind, N>()>(down, p.out.columns),
                   earlier = block_scan(tiles, &total);
        if (g < p.groups.count)
            starts[g] = before + earlier;
        before += total;
    }
    if (threadIdx.x == 0)
        starts[p.groups.count] = before;
    __syncthreads();
}

/* Group of a block's next tile. Tiles of a block only grow, so the search starts at `group`, the
 * group of the previous tile. Returns `groups` if there are no more tiles. */
__device__ inline i64 group_of_tile(const i32 *starts, i64 groups, i64 group, i32 tile)
{
    while (group < groups && starts[group + 1] <= tile)
        group++;
    return group;
}

/* Submatrix of m from (row, column) on, with `rows` rows. */
__device__ inline struct matrix part_of(struct matrix m, i64 row, i64 column, i64 rows)
{
    m.data = (char *)m.data + (row * m.stride + column) * (m.dtype == DTYPE_BF16 ? 2 : 4);
    m.rows = rows;
    m.columns -= column;
    return m;
}

/* SwiGLU of gate and up after rounding to T. */
template <typename T> __device__ inline float swiglu_rounded(float gate, float up)
{
    u32 both = pack_bf16(gate, up); /* extracting bits by hand would hide from the compiler that these are sums */
    float g = sizeof(T) == 2 ? __uint_as_float(both << 16) : gate;
    return swiglu_of(g, sizeof(T) == 2 ? __uint_as_float(both & 0xffff0000u) : up, sigmoid_for<T>(g));
}

__device__ inline void store(const struct matrix &out, bool add, i64 row, i64 column, float value)
{
    if (row >= out.rows || column >= out.columns)
        return;
    if (out.dtype == DTYPE_BF16) {
        bf16 *to = row_of<bf16>(out, row) + column;
        *to = from_f32<bf16>(add ? to_f32(*to) + value : value);
    } else {
        float *to = row_of<float>(out, row) + column;
        *to = add ? *to + value : value;
    }
}

/* Two neighbours of a row. An epilogue that does not add adds -0 instead, which preserves the sign
 * of zeros. */
__device__ inline float2 pair_at(const float *from)
{
    return *(const float2 *)from;
}
__device__ inline float2 pair_at(const bf16 *from)
{
    u32 both = *(const u32 *)from;
    return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
}
__device__ inline bool is_pair_aligned(const struct matrix &m)
{
    i64 bytes = m.dtype == DTYPE_BF16 ? 2 : 4;
    return ((uintptr_t)m.data | (uintptr_t)(m.stride * bytes)) % (uintptr_t)(2 * bytes) == 0;
}

/* Stores columns `column` (even) and the next. */
template <typename T>
__device__ inline void store_whole_pair(const struct matrix &out, bool add, i64 row, i64 column, float first,
                                        float second)
{
    T *to = row_of<T>(out, row) + column;
    float2 old = add ? pair_at(to) : make_float2(-0.0f, -0.0f);
    put_pair(to, old.x + first, old.y + second);
}
__device__ inline void store_pair(const struct matrix &out, bool add, i64 row, i64 column, float first, float second)
{
    if (row >= out.rows || column + 1 >= out.columns || !is_pair_aligned(out)) {
        store(out, add, row, column, first);
        store(out, add, row, column + 1, second);
    } else if (out.dtype == DTYPE_BF16) {
        store_whole_pair<bf16>(out, add, row, column, first, second);
    } else {
        store_whole_pair<float>(out, add, row, column, first, second);
    }
}

/* Stores a warp's part of a wgmma accumulator (hopper.h) to the rows of `out` from `row` on. Where
 * the whole part lies inside `out`, a thread loads PAIRS_AT_ONCE old values before it uses the
 * first. */
enum { ROWS_OF_WARP = 16, PAIRS_AT_ONCE = 16 };
template <int N> __device__ inline bool holds_pairs(const struct matrix &out, i64 row)
{
    return row + ROWS_OF_WARP <= out.rows && N <= out.columns && is_pair_aligned(out);
}
template <typename T, int N>
__device__ inline void store_pairs_of_warp(const struct matrix &out, bool add, i64 row, const float (&d)[N / 2])
{
    int lane = threadIdx.x % WARP_THREADS;
    T *upper = row_of<T>(out, row + lane / 4) + lane % 4 * 2, *lower = upper + 8 * out.stride;
#pragma unroll
    for (int i = 0; i < N / 2; i += 2 * PAIRS_AT_ONCE) {
        float2 old[PAIRS_AT_ONCE];
#pragma unroll
        for (int j = 0; j < PAIRS_AT_ONCE; j++)
            old[j] = add ? pair_at((j % 2 ? lower : upper) + (i / 4 + j / 2) * 8) : make_float2(-0.0f, -0.0f);
#pragma unroll
        for (int j = 0; j < PAIRS_AT_ONCE; j++)
            put_pair((j % 2 ? lower : upper) + (i / 4 + j / 2) * 8, old[j].x + d[i + 2 * j],
                     old[j].y + d[i + 2 * j + 1]);
    }
}
template <int N>
__device__ inline void store_rows_of_warp(const struct matrix &out, bool add, i64 row, const float (&d)[N / 2])
{
    int lane = threadIdx.x % WARP_THREADS;
    if (!holds_pairs<N>(out, row)) {
#pragma unroll
        for (int i = 0; i < N / 2; i += 2)
            store_pair(out, add, row + lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2, d[i], d[i + 1]);
    } else if (out.dtype == DTYPE_BF16) {
        store_pairs_of_warp<bf16, N>(out, add, row, d);
    } else {
        store_pairs_of_warp<float, N>(out, add, row, d);
    }
}
/* Prefetches the old values to L2. */
template <typename T, int N> __device__ inline void prefetch_rows(const struct matrix &out, i64 row)
{
    enum { LINES = N * (int)sizeof(T) / CACHE_LINE, EACH = CACHE_LINE / (int)sizeof(T) };
    for (int i = threadIdx.x % WARP_THREADS; i < ROWS_OF_WARP * LINES; i += WARP_THREADS)
        prefetch(row_of<T>(out, row + i / LINES) + i % LINES * EACH);
}
template <int N> __device__ inline void prefetch_rows_of_warp(const struct matrix &out, i64 row)
{
    if (!holds_pairs<N>(out, row))
        return;
    if (out.dtype == DTYPE_BF16)
        prefetch_rows<bf16, N>(out, row);
    else
        prefetch_rows<float, N>(out, row);
}

#endif
