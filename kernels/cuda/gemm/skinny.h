/* Skinny gemm (M <= 64), bandwidth-bound: every weight is read once from memory, so the kernel
 * keeps as many bytes in flight as possible. A block owns a few rows of w (outputs) for all rows of
 * x. Its warps split K, and their partial sums are added in warp order. Prologue (RMSNorm) and
 * epilogue (residual, SwiGLU, rope and cache) are fused, so they need no launches.
 *
 *     w [N, K]   | warp 0 | warp 1 | ... | warp 7 | warp 0 | ...    <- steps of 32 along K
 *     block b  { |  16 rows of w (bf16), or 4 (f32)              |
 *                +------------------------------------------------+
 *     out [M, N]: sums of the 8 warps, added in order, then the epilogue
 *
 *     M  rows of x, <= SKINNY_ROWS, in tiles of COLUMNS_OF_MMA 8 (f32: ROWS_AT_ONCE)
 *     N  rows of w             Nr  OUTPUTS 16 a block (f32: 4); gated, half are gate, half are up
 *     K  columns               a step of STEP 32 a warp, every WARPS-th step: split K in a block
 *
 * The weights of a launch are prefetched to L2 while the launch before it still runs
 * (fetch_weight). Source: mma.m16n8k16 of PTX ISA 9.7.14, with w as the first operand, so that
 * few rows of x waste little of it. */
#ifndef WEFT_KERNELS_CUDA_GEMM_SKINNY_H
#define WEFT_KERNELS_CUDA_GEMM_SKINNY_H
#include "kernels/cuda/gemm/matmul_grouped.h"
#include "kernels/cuda/rope.h"

enum { WARPS = 8, THREADS = WARPS * WARP_THREADS, STEP = 32, COLUMNS_OF_MMA = 8 };
enum { OUTPUTS = 16, OUTPUTS_PLAIN = 4 }; /* rows of w per block: bf16, f32 */

struct skinny_gemm {
    struct matrix out, x, w, norm, add;
    struct rope_cache cache; /* k.data NULL: none */
    float eps;
    bool gated, vector; /* 16-byte reads are allowed */
};

/* The part of the gemm that a block computes: its outputs and, in a grouped gemm, its rows
 * and slice of w. */
struct skinny_part {
    i64 block, rows;
    i64 out_row, w_row; /* first row of out, and of w */
    const i32 *source;  /* row r reads row source[r] of x, -1: zeros; NULL: row r */
};
__device__ inline struct skinny_part part_of_block(const struct skinny_gemm &p)
{
    return {blockIdx.x, p.out.rows, 0, 0, NULL};
}

/* The row of x that a row of the part reads; -1: none. */
__device__ inline i64 source_of(const struct skinny_part &part, i64 row)
{
    return row >= part.rows ? -1 : part.source ? part.source[row] : row;
}

/* Outputs of a block with ROWS rows of w. With SwiGLU half of its rows are gate rows and half are
 * up rows. */
template <int ROWS> __host__ __device__ inline int outputs_of_block(const struct skinny_gemm &p)
{
    return p.gated ? ROWS / 2 : ROWS;
}

/* The block's i-th row of w; up rows follow gate rows. -1: no such row. */
template <int ROWS> __device__ inline i64 weight_row(const struct skinny_gemm &p, const struct skinny_part &part, int i)
{
    int wide = outputs_of_block<ROWS>(p);
    bool is_up = i >= wide;
    i64 column = part.block * wide + i - (is_up ? wide : 0);
    return column < p.out.columns ? part.w_row + column + (is_up ? p.out.columns : 0) : -1;
}

/* Prefetches the block's weights to L2, while the previous launch still runs or the rows are being
 * found. */
template <typename T> __device__ inline void fetch_weight(const struct skinny_gemm &p, const struct skinny_part &part)
{
    enum { ROWS = sizeof(T) == sizeof(bf16) ? OUTPUTS : OUTPUTS_PLAIN };
    int lines = (int)((p.w.columns * (i64)sizeof(T) + CACHE_LINE - 1) / CACHE_LINE);
    for (int i = threadIdx.x; i < ROWS * lines; i += THREADS) {
        i64 row = weight_row<ROWS>(p, part, i / lines);
        if (row >= 0)
            prefetch((const char *)row_of<T>(p.w, row) + i % lines * CACHE_LINE);
    }
}

/* Loads a run of a row. Zeros past its end, or if there is no row. */
template <int N, typename T> __device__ inline elements<T, N> load_run(const T *row, i64 k, i64 end)
{
    elements<T, N> none = {};
    return row && k < end ? load<N>(row + k) : none;
}

template <int N> __device__ inline elements<float, N> load_norm(const struct matrix &norm, i64 k)
{
    if (norm.dtype != DTYPE_BF16)
        return load_run<N>(row_of<float>(norm, 0), k, norm.columns);
    elements<bf16, N> from = load_run<N>(row_of<bf16>(norm, 0), k, norm.columns);
    elements<float, N> run;
#pragma unroll
    for (int i = 0; i < N; i++)
        run.at[i] = to_f32(from.at[i]);
    return run;
}

/* A lane's share of the sum of x^2. */
template <typename T, int N> __device__ inline float squares_of(const T *row, i64 end)
{
    float squares = 0;
#pragma unroll 4
    for (i64 k = threadIdx.x % WARP_THREADS * N; k < end; k += WARP_THREADS * N) {
        elements<T, N> x = load_run<N>(row, k, end);
#pragma unroll
        for (int i = 0; i < N; i++)
            squares += to_f32(x.at[i]) * to_f32(x.at[i]);
    }
    return squares;
}

/* Fills rstd [SKINNY_NORMED_ROWS] in shared memory, 0 for missing rows; one warp handles one row.
 * All threads of the block call it. */
template <typename T>
__device__ inline void find_rstd(float *rstd, const struct skinny_gemm &p, const struct skinny_part &part)
{
    for (i64 row = threadIdx.x / WARP_THREADS; p.norm.data && row < part.rows && row < SKINNY_NORMED_ROWS;
         row += WARPS) {
        i64 from = source_of(part, row), end = from < 0 ? 0 : p.x.columns;
        const T *x = row_of<T>(p.x, from < 0 ? 0 : from);
        float squares = warp_sum(p.vector ? squares_of<T, 16 / sizeof(T)>(x, end) : squares_of<T, 1>(x, end));
        if (threadIdx.x % WARP_THREADS == 0)
            rstd[row] = from < 0 ? 0 : 1.0f / sqrtf(squares / (float)p.x.columns + p.eps);
    }
    __syncthreads();
}

/* The same roundings as rmsnorm.cu. */
template <typename T> __device__ inline float rounded(float x)
{
    return sizeof(T) == sizeof(bf16) ? __uint_as_float(pack_bf16(0, x)) : x;
}
template <typename T> __device__ inline float normed(float x, float rstd, float norm)
{
    return rounded<T>(norm * rounded<T>(x * rstd));
}

/* ---- Epilogues ---- */

/* Columns of q, k and v side by side. */
struct qkv_columns {
    i64 width, keys, values; /* head width; the first column of k and of v */
};
__device__ inline struct qkv_columns qkv_columns_of(const struct rope_cache &cache)
{
    i64 width = cache.k.columns / cache.kv_heads, keys = cache.heads * width;
    return {width, keys, keys + cache.k.columns};
}

/* Rope frequency of the pair that begins at `column`, and the rotation of that pair. Columns of v
 * are not rotated. */
__device__ inline double frequency_at(const struct rope_cache &cache, i64 column)
{
    struct qkv_columns t = qkv_columns_of(cache);
    return column < t.values ? rope_frequency(column % t.width / 2, t.width / 2, (double)cache.theta) : 0;
}
__device__ inline float2 rotation_at(const struct rope_cache &cache, i64 row, i64 column, double frequency)
{
    struct qkv_columns t = qkv_columns_of(cache);
    if (column >= t.values)
        return make_float2(1, 0);
    return rope_rotation_by(cache.positions + row * 3, column % t.width / 2, t.width / 2, cache.t_pairs, frequency);
}

/* Stores the pair of outputs at `column`: rotates q and k, and copies k and v to the cache. */
template <typename Out>
__device__ inline void store_rotated(const struct skinny_gemm &p, i64 row, i64 column, float first, float second,
                                     float2 rotation)
{
    struct qkv_columns t = qkv_columns_of(p.cache);
    Out pair[2] = {from_f32<Out>(first), from_f32<Out>(second)};
    if (column < t.values)
        rope_pair(pair, rotation);
    const struct matrix &kept = column < t.values ? p.cache.k : p.cache.v;
    i64 to = column < t.keys ? -1 : p.cache.index[row], from = column < t.values ? t.keys : t.values;
    for (int i = 0; i < 2; i++) {
        row_of<Out>(p.out, row)[column + i] = pair[i];
        if (to >= 0)
            row_of<Out>(kept, to)[column - from + i] = pair[i];
    }
}

/* Stores one output: SwiGLU of gate and up, or `first` alone, plus the residual. */
template <typename Out>
__device__ inline void store_as(const struct skinny_gemm &p, i64 row, i64 column, float first, float second)
{
    Out y = p.gated ? from_f32<Out>(swiglu_rounded<Out>(first, second)) : from_f32<Out>(first);
    if (p.add.data)
        y = from_f32<Out>(to_f32(row_of<Out>(p.add, row)[column]) + to_f32(y));
    row_of<Out>(p.out, row)[column] = y;
}

template <bool rotates>
__device__ inline void store_output(const struct skinny_gemm &p, i64 row, i64 column, float first, float second,
                                    float2 rotation)
{
    if (rotates && p.out.dtype == DTYPE_BF16)
        store_rotated<bf16>(p, row, column, first, second, rotation);
    else if (rotates)
        store_rotated<float>(p, row, column, first, second, rotation);
    else if (p.out.dtype == DTYPE_BF16)
        store_as<bf16>(p, row, column, first, second);
    else
        store_as<float>(p, row, column, first, second);
}

/* ---- bf16 on tensor cores ----
 * w is the first operand of mma, and rows of x are the columns of the second. The order of K inside
 * a step is free, so each lane loads 8 neighbours, which feed two mma instructions. */

struct alignas(16) eight {
    u32 pair[4];
};
template <bool VECTOR> __device__ inline eight load_eight(const bf16 *row, i64 k, i64 end)
{
    eight out = {};
    if constexpr (VECTOR) {
        if (row && k < end)
            out = *(const eight *)(row + k);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) /* constant indices keep the array in registers */
            out.pair[i / 2] |= row && k + i < end ? (u32)row[k + i] << 16 * (i % 2) : 0;
    }
    return out;
}

/* Eight norm weights from k on, of either dtype. */
struct norm_octet {
    float at[8];
};
template <bool VECTOR> __device__ inline norm_octet load_eight_of(const struct matrix &norm, i64 k)
{
    norm_octet out;
    if (VECTOR && norm.dtype != DTYPE_BF16) {
#pragma unroll
        for (int i = 0; i < 8; i += QUAD) {
            elements<float, QUAD> run = load_run<QUAD>(row_of<float>(norm, 0), k + i, norm.columns);
#pragma unroll
            for (int j = 0; j < QUAD; j++)
                out.at[i + j] = run.at[j];
        }
    } else if (VECTOR) {
        eight run = load_eight<VECTOR>(row_of<bf16>(norm, 0), k, norm.columns);
#pragma unroll
        for (int i = 0; i < 8; i++)
            out.at[i] = __uint_as_float(i % 2 ? run.pair[i / 2] & 0xffff0000u : run.pair[i / 2] << 16);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            out.at[i] = k + i < norm.columns ? element_of(norm, 0, k + i) : 0;
    }
    return out;
}

__device__ inline void norm_eight(eight &x, float rstd, const norm_octet &norm)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float low = rounded<bf16>(__uint_as_float(x.pair[i] << 16) * rstd);
        float high = rounded<bf16>(__uint_as_float(x.pair[i] & 0xffff0000u) * rstd);
        x.pair[i] = pack_bf16(norm.at[2 * i] * low, norm.at[2 * i + 1] * high);
    }
}

/* Accumulates a warp's steps of K, every WARPS-th one. All loads of AT_ONCE steps are issued before
 * the first is used; registers limit AT_ONCE for a given number of rows. */
template <int TILES, bool VECTOR>
__device__ inline void sum_steps(float (&d)[TILES][4], const struct skinny_gemm &p, const struct skinny_part &part,
                                 const float *rstd)
{
    enum {
        AT_ONCE = TILES > 4 || !VECTOR ? 1
                  : TILES > 2          ? 2
                                       : 4,
        MAY_NORM = TILES * COLUMNS_OF_MMA <= SKINNY_NORMED_ROWS
    };
    int lane = threadIdx.x % WARP_THREADS, g = lane / 4, t = lane % 4;
    i64 low = weight_row<OUTPUTS>(p, part, g), high = weight_row<OUTPUTS>(p, part, g + 8), depth = p.w.columns;
    const bf16 *rows[2] = {low < 0 ? NULL : row_of<bf16>(p.w, low), high < 0 ? NULL : row_of<bf16>(p.w, high)};
    i32 from[TILES];
    float by[TILES];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        from[tile] = (i32)source_of(part, tile * COLUMNS_OF_MMA + g);
        by[tile] = MAY_NORM && p.norm.data && from[tile] >= 0 ? rstd[tile * COLUMNS_OF_MMA + g] : 0;
    }
    for (i64 first = threadIdx.x / WARP_THREADS * STEP; first < depth; first += WARPS * STEP * AT_ONCE) {
        eight w[AT_ONCE][2], x[AT_ONCE][TILES];
        i64 k = first + 8 * t;
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
#pragma unroll
            for (int h = 0; h < 2; h++)
                w[u][h] = load_eight<VECTOR>(rows[h], k + u * WARPS * STEP, depth);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
                x[u][tile] = load_eight<VECTOR>(from[tile] < 0 ? NULL : row_of<bf16>(p.x, from[tile]),
                                                k + u * WARPS * STEP, depth);
        }
        if constexpr (MAY_NORM) {
            if (p.norm.data)
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++) {
                    norm_octet norm = load_eight_of<VECTOR>(p.norm, k + u * WARPS * STEP);
#pragma unroll
                    for (int tile = 0; tile < TILES; tile++)
                        norm_eight(x[u][tile], by[tile], norm);
                }
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int j = 0; j < 4; j += 2) {
                    u32 a[4] = {w[u][0].pair[j], w[u][1].pair[j], w[u][0].pair[j + 1], w[u][1].pair[j + 1]};
                    mma(d[tile], a, &x[u][tile].pair[j]);
                }
    }
}

/* Fills rotations [rows, OUTPUTS / 2] in shared memory. Each thread computes the rotations of the
 * pair whose frequency it knows, for its share of the rows. The frequency is an f64 power, so it is
 * computed before grid_wait. The last warps take the first rows, because the first warps compute
 * the first rows' rstd. */
__device__ inline i64 pair_of_thread(const struct skinny_part &part)
{
    return part.block * OUTPUTS + threadIdx.x % (OUTPUTS / 2) * 2;
}
__device__ inline void find_rotations(float2 *rotations, const struct skinny_gemm &p, const struct skinny_part &part,
                                      double frequency)
{
    for (i64 row = (THREADS - 1 - threadIdx.x) / (OUTPUTS / 2); row < part.rows; row += THREADS / (OUTPUTS / 2))
        rotations[row * (OUTPUTS / 2) + threadIdx.x % (OUTPUTS / 2)] =
            rotation_at(p.cache, row, pair_of_thread(part), frequency);
}

/* Computes a part with tensor cores. sums is [WARPS][8 TILES][OUTPUTS] in shared memory; frequency
 * belongs to the thread's pair if `rotates`. All threads of the block call it. */
template <int TILES, bool rotates>
__device__ inline void multiply_mma(const struct skinny_gemm &p, const struct skinny_part &part, float *sums,
                                    double frequency = 0)
{
    enum { ROWS = TILES * COLUMNS_OF_MMA, PAIRS = rotates ? ROWS * OUTPUTS / 2 : 1, EACH = rotates ? 2 : 1 };
    SHARED(float, rstd, SKINNY_NORMED_ROWS);
    SHARED(float2, by, PAIRS);
    if (rotates)
        find_rotations(by, p, part, frequency);
    find_rstd<bf16>(rstd, p, part);
    float d[TILES][4] = {};
    int lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS, wide = outputs_of_block<OUTPUTS>(p);
    if (p.vector)
        sum_steps<TILES, true>(d, p, part, rstd);
    else
        sum_steps<TILES, false>(d, p, part, rstd);
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
        sums[i] = sum; /* only this thread has read it so far */
    }
    __syncthreads();
    for (int i = threadIdx.x * EACH; i < (int)part.rows * wide; i += THREADS * EACH) {
        int row = i / wide, output = i % wide;
        const float *sum = sums + row * OUTPUTS + output;
        bool there = source_of(part, row) >= 0;
        if (weight_row<OUTPUTS>(p, part, output) >= 0)
            store_output<rotates>(p, part.out_row + row, part.block * wide + output, there ? sum[0] : 0,
                                  there ? sum[p.gated ? wide : 1] : 0, by[rotates ? i / 2 : 0]);
    }
}

/* ---- f32 weights: all threads split K, and each lane reduces one of the block's outputs ---- */
enum { ROWS_AT_ONCE = WARP_THREADS / OUTPUTS_PLAIN };

/* Accumulates a thread's share of sums [ROWS_AT_ONCE][OUTPUTS_PLAIN]: every THREADS-th run of K.
 * All loads of a run are issued before the first is used; the norm comes last because its dtype is
 * tested. */
template <typename T, int N>
__device__ inline void sum_runs(float (&sums)[WARP_THREADS], const struct skinny_gemm &p,
                                const struct skinny_part &part, const float *rstd, i64 first)
{
    i64 depth = p.w.columns;
    const float *w[OUTPUTS_PLAIN];
    const T *x[ROWS_AT_ONCE];
#pragma unroll
    for (int o = 0; o < OUTPUTS_PLAIN; o++) {
        i64 row = weight_row<OUTPUTS_PLAIN>(p, part, o);
        w[o] = row < 0 ? NULL : row_of<float>(p.w, row);
    }
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; i++) {
        i64 from = source_of(part, first + i);
        x[i] = from < 0 ? NULL : row_of<T>(p.x, from);
    }
    for (i64 k = (i64)threadIdx.x * N; k < depth; k += THREADS * N) {
        elements<float, N> of_w[OUTPUTS_PLAIN], norm = {};
        elements<T, N> of_x[ROWS_AT_ONCE];
#pragma unroll
        for (int o = 0; o < OUTPUTS_PLAIN; o++)
            of_w[o] = load_run<N>(w[o], k, depth);
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++)
            of_x[i] = load_run<N>(x[i], k, depth);
        if (p.norm.data)
            norm = load_norm<N>(p.norm, k);
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            if (first + i >= part.rows)
                break;
            float y[N];
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] = to_f32(of_x[i].at[j]);
            if (p.norm.data)
#pragma unroll
                for (int j = 0; j < N; j++)
                    y[j] = normed<T>(y[j], rstd[first + i], norm.at[j]);
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int o = 0; o < OUTPUTS_PLAIN; o++)
                    sums[i * OUTPUTS_PLAIN + o] += y[j] * of_w[o].at[j];
        }
    }
}

/* Transposed warp reduction: lane l returns the sum of values[l] over all lanes. Each step
 * exchanges half of a lane's values. */
__device__ inline float warp_sums(float (&values)[WARP_THREADS])
{
#pragma unroll
    for (int half = WARP_THREADS / 2; half; half /= 2) {
        bool upper = threadIdx.x & half;
#pragma unroll
        for (int i = 0; i < WARP_THREADS / 2; i++) {
            if (i >= half)
                break;
            float kept = upper ? values[i + half] : values[i], given = upper ? values[i] : values[i + half];
            values[i] = kept + __shfl_xor_sync(0xffffffffu, given, half);
        }
    }
    return values[0];
}

/* Computes a part with f32 weights. The gridDim.y blocks with the same outputs split the rows. */
template <typename T, bool rotates>
__device__ inline void multiply_plain(const struct skinny_gemm &p, const struct skinny_part &part)
{
    SHARED(float, rstd, SKINNY_NORMED_ROWS);
    SHARED(float, sums, THREADS);
    int lane = threadIdx.x % WARP_THREADS, output = lane % OUTPUTS_PLAIN, wide = outputs_of_block<OUTPUTS_PLAIN>(p);
    i64 column = part.block * wide + output;
    bool is_first = output < wide && column < p.out.columns && !(rotates && output % 2);
    find_rstd<T>(rstd, p, part);
    for (i64 first = blockIdx.y * ROWS_AT_ONCE; first < part.rows; first += gridDim.y * ROWS_AT_ONCE) {
        float values[WARP_THREADS] = {}, sum = 0;
        i64 row = first + lane / OUTPUTS_PLAIN;
        if (p.vector)
            sum_runs<T, QUAD>(values, p, part, rstd, first);
        else
            sum_runs<T, 1>(values, p, part, rstd, first);
        sums[threadIdx.x] = warp_sums(values);
        __syncthreads();
        for (int warp = 0; warp < WARPS; warp++)
            sum += sums[warp * WARP_THREADS + lane];
        float second = __shfl_down_sync(0xffffffffu, sum, p.gated ? wide : 1);
        if (threadIdx.x < WARP_THREADS && is_first && row < part.rows)
            store_output<rotates>(p, part.out_row + row, column, sum, second,
                                  rotates ? rotation_at(p.cache, row, column, frequency_at(p.cache, column))
                                          : make_float2(1, 0));
        __syncthreads();
    }
}

/* ---- Host side ---- */
static inline bool in_eights(struct matrix m)
{
    return (uintptr_t)m.data % 16 == 0 && m.columns % 8 == 0 && m.stride % 8 == 0;
}

static inline struct skinny_gemm skinny_gemm(struct matrix out, struct matrix x, struct matrix w,
                                             const struct gemm_fusion *fusion)
{
    const struct matrix &norm = fusion->norm;
    bool vector = in_eights(x) && in_eights(w) && (!norm.data || in_eights(norm));
    return {
        out,           x,     w, norm, fusion->add, fusion->cache ? *fusion->cache : (struct rope_cache){}, fusion->eps,
        fusion->gated, vector};
}

static inline i64 blocks_of_skinny(const struct skinny_gemm &p)
{
    return ceil_div(p.out.columns,
                    p.w.dtype == DTYPE_F32 ? outputs_of_block<OUTPUTS_PLAIN>(p) : outputs_of_block<OUTPUTS>(p));
}

#endif
