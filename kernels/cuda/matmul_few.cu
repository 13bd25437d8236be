/* Few rows times a weight that is read once, from memory: what counts is how much of it is on its way. A block has
 * OUTPUTS rows of w, its warps share out the depth, and what they sum is added in their order. Norm and SwiGLU are its
 * own, so that neither is a launch. */
#include "kernels/cuda/matmul_grouped.h"
#include "kernels/few.h"

enum { WARPS = 8, THREADS = WARPS * WARP_THREADS, OUTPUTS = 16, STEP = 32, AT_ONCE = 4, COLUMNS_OF_MMA = 8 };

struct few {
    struct matrix out, x, norm, w, add;
    float eps;
    bool gated, vector; /* 16 bytes at a time may be read */
};

/* Output `i` of a block's: of gated ones the first half are of gate, the others of up. -1: there is none. */
__device__ static i64 weight_row(const struct few &p, int i)
{
    i64 first = (i64)blockIdx.x * (p.gated ? OUTPUTS / 2 : OUTPUTS);
    bool up = p.gated && i >= OUTPUTS / 2;
    i64 row = first + (up ? i - OUTPUTS / 2 : i);
    return row < p.out.columns ? row + (up ? p.out.columns : 0) : -1;
}

/* The block's part of the weight, while the launch before still runs. */
__device__ static void fetch_weight(const struct few &p)
{
    int lines = (int)((p.w.columns * (i64)sizeof(bf16) + CACHE_LINE - 1) / CACHE_LINE);
    for (int i = threadIdx.x; i < OUTPUTS * lines; i += THREADS) {
        i64 row = weight_row(p, i / lines);
        if (row >= 0)
            prefetch((const char *)row_of<bf16>(p.w, row) + i % lines * CACHE_LINE);
    }
}

/* rstd [FEW_NORMED], in shared memory: a warp a row. All threads of the block call it. */
template <typename T> __device__ static void find_rstd(float *rstd, const struct few &p)
{
    for (i64 row = threadIdx.x / WARP_THREADS; p.norm.data && row < p.x.rows; row += WARPS) {
        float squares = 0;
        for (i64 k = threadIdx.x % WARP_THREADS; k < p.x.columns; k += WARP_THREADS) {
            float x = to_f32(row_of<T>(p.x, row)[k]);
            squares += x * x;
        }
        squares = warp_sum(squares);
        if (threadIdx.x % WARP_THREADS == 0)
            rstd[row] = 1.0f / sqrtf(squares / (float)p.x.columns + p.eps);
    }
    __syncthreads();
}

/* As rmsnorm.cu rounds. */
template <typename T> __device__ static T normed(const struct few &p, T x, float rstd, i64 k)
{
    return from_f32<T>(element_of(p.norm, 0, k) * to_f32(from_f32<T>(to_f32(x) * rstd)));
}

/* The product of a row, or both of a gated one, to the output. */
template <typename Out> __device__ static void put(const struct few &p, i64 row, i64 column, float sum, float up)
{
    Out y = p.gated ? from_f32<Out>(gated<Out>(sum, up)) : from_f32<Out>(sum);
    if (p.add.data)
        y = from_f32<Out>(to_f32(row_of<Out>(p.add, row)[column]) + to_f32(y));
    row_of<Out>(p.out, row)[column] = y;
}

__device__ static void put_any(const struct few &p, i64 row, i64 column, float sum, float up)
{
    if (p.out.dtype == DTYPE_BF16)
        put<bf16>(p, row, column, sum, up);
    else
        put<float>(p, row, column, sum, up);
}

/* ---- bf16: w is the first operand of mma, rows of x are its columns. In which order the depth is summed is free, so a
 * lane takes eight neighbours of it, which are two mma's. ---- */

struct alignas(16) eight {
    u32 pair[4];
};
__device__ static eight load_eight(const bf16 *row, i64 k, i64 end, bool vector)
{
    eight out = {};
    if (row && vector && k < end)
        return *(const eight *)(row + k);
    for (int i = 0; row && i < 8 && k + i < end; i++)
        out.pair[i / 2] |= (u32)row[k + i] << 16 * (i % 2);
    return out;
}

__device__ static eight load_row(const struct few &p, const float *rstd, i64 row, i64 k)
{
    eight x = load_eight(row < p.x.rows ? row_of<bf16>(p.x, row) : NULL, k, p.x.columns, p.vector);
    for (int i = 0; p.norm.data && row < p.x.rows && i < 8 && k + i < p.x.columns; i++) {
        int shift = 16 * (i % 2);
        u32 y = normed(p, (bf16)(x.pair[i / 2] >> shift), rstd[row], k + i);
        x.pair[i / 2] = (x.pair[i / 2] & ~(0xffffu << shift)) | y << shift;
    }
    return x;
}

/* A warp's steps of the depth: every WARPS-th. */
template <int TILES> __device__ static void sum_steps(float (&d)[TILES][4], const struct few &p, const float *rstd)
{
    int lane = threadIdx.x % WARP_THREADS, g = lane / 4, t = lane % 4;
    i64 low = weight_row(p, g), high = weight_row(p, g + 8), depth = p.w.columns;
    const bf16 *rows[2] = {low < 0 ? NULL : row_of<bf16>(p.w, low), high < 0 ? NULL : row_of<bf16>(p.w, high)};
    for (i64 first = threadIdx.x / WARP_THREADS * STEP; first < depth; first += WARPS * STEP * AT_ONCE) {
        eight w[AT_ONCE][2];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                w[u][h] = load_eight(rows[h], first + u * WARPS * STEP + 8 * t, depth, p.vector);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            i64 k = first + u * WARPS * STEP + 8 * t;
            if (k - 8 * t >= depth)
                break;
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                eight x = load_row(p, rstd, tile * COLUMNS_OF_MMA + g, k);
#pragma unroll
                for (int j = 0; j < 4; j += 2) {
                    u32 a[4] = {w[u][0].pair[j], w[u][1].pair[j], w[u][0].pair[j + 1], w[u][1].pair[j + 1]};
                    mma(d[tile], a, &x.pair[j]);
                }
            }
        }
    }
}

template <int TILES> static __global__ void __launch_bounds__(THREADS) multiply_mma(struct few p)
{
    fetch_weight(p);
    grid_wait();
    enum { ROWS = TILES * COLUMNS_OF_MMA };
    SHARED(float, rstd, FEW_NORMED);
    DYNAMIC_SHARED(float, sums); /* [WARPS][ROWS][OUTPUTS] */
    float d[TILES][4] = {};
    int lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
    find_rstd<bf16>(rstd, p);
    sum_steps<TILES>(d, p, rstd);
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = tile * COLUMNS_OF_MMA + lane % 4 * 2 + i % 2, output = lane / 4 + i / 2 * 8;
            sums[(warp * ROWS + row) * OUTPUTS + output] = d[tile][i];
        }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * OUTPUTS; i += THREADS) {
        float sum = 0;
        for (int from = 0; from < WARPS; from++)
            sum += sums[from * ROWS * OUTPUTS + i];
        sums[i] = sum; /* read by this thread alone so far */
    }
    __syncthreads();
    int wide = p.gated ? OUTPUTS / 2 : OUTPUTS;
    for (int i = threadIdx.x; i < (int)p.x.rows * wide; i += THREADS) {
        int row = i / wide, output = i % wide;
        const float *sum = sums + row * OUTPUTS + output;
        if (weight_row(p, output) >= 0)
            put_any(p, row, (i64)blockIdx.x * wide + output, sum[0], sum[p.gated ? wide : 0]);
    }
}

/* ---- f32 weights: a warp an output, a few rows at a time ---- */
enum { ROWS_AT_ONCE = 8 };

template <typename T>
__device__ static void sum_plain(float (&sums)[ROWS_AT_ONCE], const struct few &p, const float *rstd, const float *w,
                                 i64 first)
{
    for (int i = 0; i < ROWS_AT_ONCE; i++)
        sums[i] = 0;
    for (i64 k = threadIdx.x % WARP_THREADS; k < p.x.columns; k += WARP_THREADS)
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++)
            if (first + i < p.x.rows) {
                T x = row_of<T>(p.x, first + i)[k];
                sums[i] += to_f32(p.norm.data ? normed(p, x, rstd[first + i], k) : x) * w[k];
            }
    for (int i = 0; i < ROWS_AT_ONCE; i++)
        sums[i] = warp_sum(sums[i]);
}

template <typename T> static __global__ void __launch_bounds__(THREADS) multiply_plain(struct few p)
{
    grid_wait();
    SHARED(float, rstd, FEW_NORMED);
    i64 column = (i64)blockIdx.x * WARPS + threadIdx.x / WARP_THREADS;
    find_rstd<T>(rstd, p);
    for (i64 first = 0; first < p.x.rows && column < p.out.columns; first += ROWS_AT_ONCE) {
        float sums[ROWS_AT_ONCE], up[ROWS_AT_ONCE] = {};
        sum_plain<T>(sums, p, rstd, row_of<float>(p.w, column), first);
        if (p.gated)
            sum_plain<T>(up, p, rstd, row_of<float>(p.w, column + p.out.columns), first);
        for (int i = 0; i < ROWS_AT_ONCE; i++)
            if ((int)threadIdx.x % WARP_THREADS == i && first + i < p.x.rows)
                put_any(p, first + i, column, sums[i], up[i]);
    }
}

static bool in_eights(struct matrix m)
{
    return (uintptr_t)m.data % 16 == 0 && m.columns % 8 == 0 && m.stride % 8 == 0;
}

template <int TILES> static void launch_mma(struct device *device, const struct few &p)
{
    i64 blocks = ceil_div(p.out.columns, p.gated ? OUTPUTS / 2 : OUTPUTS);
    i64 bytes = WARPS * TILES * COLUMNS_OF_MMA * OUTPUTS * 4;
    LAUNCH(device, multiply_mma<TILES>, (unsigned)blocks, THREADS, bytes, p);
}

extern "C" void cuda_matmul_few(struct device *device, struct matrix out, struct matrix x, struct matrix norm,
                                float eps, struct matrix w, bool gated, struct matrix add)
{
    check_few(out, x, norm, w, gated, add);
    if (out.rows == 0 || out.columns == 0)
        return;
    struct few p = {out, x, norm, w, add, eps, gated, in_eights(x) && in_eights(w)};
    if (w.dtype == DTYPE_F32)
        LAUNCH_BY_DTYPE(device, x.dtype, multiply_plain, (unsigned)ceil_div(out.columns, WARPS), THREADS, 0, p);
    else if (x.rows <= COLUMNS_OF_MMA)
        launch_mma<1>(device, p);
    else if (x.rows <= 2 * COLUMNS_OF_MMA)
        launch_mma<2>(device, p);
    else if (x.rows <= 4 * COLUMNS_OF_MMA)
        launch_mma<4>(device, p);
    else
        launch_mma<8>(device, p);
}
