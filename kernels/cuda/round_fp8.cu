#include "kernels/cuda/cuda.h"

#include "kernels/round_fp8.h"

enum { WARPS = BLOCK_THREADS / WARP_THREADS };
static_assert(FP8_BLOCK == QUAD * WARP_THREADS, "a lane has four columns of a tile");

struct rounding {
    enum fp8 format;
    enum fp8_blocks blocks;
    i64 parts, across; /* bands are cut into so many tiles of 128 columns */
    struct groups groups;
};

/* Which column of the tile is number `k` of this lane's four. */
template <int N> __device__ static i64 column_of(int k)
{
    return (k / N * WARP_THREADS + threadIdx.x % WARP_THREADS) * N + k % N;
}

/* Zeros behind the last column. */
template <typename T, int N> __device__ static void load_row(float values[QUAD], const T *row, i64 columns)
{
    for (int k = 0; k < QUAD; k += N) {
        elements<T, N> run = {};
        if (column_of<N>(k) < columns)
            run = load<N>(row + column_of<N>(k));
        for (int i = 0; i < N; i++)
            values[k + i] = to_f32(run.at[i]);
    }
}

template <typename T, int N> __device__ static void store_row(T *row, const float values[QUAD], i64 columns)
{
    for (int k = 0; k < QUAD; k += N) {
        elements<T, N> run;
        for (int i = 0; i < N; i++)
            run.at[i] = from_f32<T>(values[k + i]);
        if (column_of<N>(k) < columns)
            store(row + column_of<N>(k), run);
    }
}

__device__ static void round_row(float values[QUAD], const u32 most[QUAD], enum fp8 format)
{
    for (int k = 0; k < QUAD; k++) {
        int exponent = fp8_exponent(most[k], format);
        values[k] = fp8_round(values[k], fp8_power(-exponent), fp8_power(exponent), format);
    }
}

__device__ static u32 largest_of(const u32 values[QUAD])
{
    u32 most = 0;
    for (int k = 0; k < QUAD; k++)
        most = values[k] > most ? values[k] : most;
    return most;
}

/* Of all warps of the block, column by column, or the tile's in each. All threads call it. */
template <int N> __device__ static void share_most(u32 most[QUAD], enum fp8_blocks blocks)
{
    SHARED(u32, each, WARPS * FP8_BLOCK);
    if (blocks == FP8_TILES) {
        u32 all = block_combine(largest_of(most), 0u, larger());
        for (int k = 0; k < QUAD; k++)
            most[k] = all;
        return;
    }
    for (int k = 0; k < QUAD; k++)
        each[threadIdx.x / WARP_THREADS * FP8_BLOCK + column_of<N>(k)] = most[k];
    __syncthreads();
    for (unsigned warp = 0; warp < blockDim.x / WARP_THREADS; warp++)
        for (int k = 0; k < QUAD; k++) {
            u32 other = each[warp * FP8_BLOCK + column_of<N>(k)];
            most[k] = other > most[k] ? other : most[k];
        }
}

/* A block a tile of at most 128 x 128, a warp a row of it. Blocks of more than a row are read twice. */
template <typename T, int N> static __global__ void round_tiles(struct matrix out, struct matrix x, struct rounding r)
{
    struct fp8_band band = fp8_band_of(blockIdx.x / r.across, x.rows, r.parts, r.groups.offsets ? &r.groups : nullptr);
    i64 first = blockIdx.x % r.across * FP8_BLOCK, columns = x.columns - first;
    i64 begin = band.begin + threadIdx.x / WARP_THREADS, warps = blockDim.x / WARP_THREADS;
    u32 most[QUAD] = {};
    float values[QUAD];
    for (i64 row = begin; r.blocks != FP8_ALONG_ROWS && row < band.end; row += warps) {
        load_row<T, N>(values, row_of<T>(x, row) + first, columns);
        for (int k = 0; k < QUAD; k++) {
            u32 each = fp8_magnitude(values[k]);
            most[k] = each > most[k] ? each : most[k];
        }
    }
    if (r.blocks != FP8_ALONG_ROWS)
        share_most<N>(most, r.blocks);
    for (i64 row = begin; row < band.end; row += warps) {
        load_row<T, N>(values, row_of<T>(x, row) + first, columns);
        if (r.blocks == FP8_ALONG_ROWS) {
            for (int k = 0; k < QUAD; k++)
                most[k] = fp8_magnitude(values[k]);
            u32 all = warp_combine(largest_of(most), larger());
            for (int k = 0; k < QUAD; k++)
                most[k] = all;
        }
        round_row(values, most, r.format);
        store_row<T, N>(row_of<T>(out, row) + first, values, columns);
    }
}

extern "C" void cuda_round_fp8(struct device *device, struct matrix out, struct matrix x, enum fp8 format,
                               enum fp8_blocks blocks, i64 parts, const struct groups *groups)
{
    require(out.rows == x.rows && out.columns == x.columns && out.dtype == x.dtype && x.rows % parts == 0 &&
                (!groups || parts == 1),
            "round_fp8: [%lld,%lld] from %lld parts of [%lld,%lld]", (long long)out.rows, (long long)out.columns,
            (long long)parts, (long long)x.rows, (long long)x.columns);
    struct rounding r = {format, blocks, parts, ceil_div(x.columns, FP8_BLOCK), {}};
    if (groups)
        r.groups = *groups;
    bool quads = in_quads(out, x);
    i64 tiles = fp8_bands(x.rows, parts, groups) * r.across;
    require(tiles < (i64)1 << 31, "round_fp8: %lld tiles", (long long)tiles);
    i64 warps = min_i64(WARPS, x.rows);
    LAUNCH_ROWS_OF_RUNS(device, quads, x.dtype, round_tiles, tiles, warps * WARP_THREADS * (quads ? QUAD : 1), out, x,
                        r);
}
