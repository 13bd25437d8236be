#include "kernels/cuda/cuda.h"

#include "kernels/round_fp8.h"

enum { WARPS = BLOCK_THREADS / WARP_THREADS };
static_assert(FP8_BLOCK == QUAD * WARP_THREADS, "a lane has four columns of a tile");

struct round_fp8_call {
    enum fp8 format;
    enum fp8_blocks blocks;
    i64 parts, across; /* tiles of 128 columns per band */
    struct groups groups;
};

/* The column of the tile that this lane's number `k` of four has. */
template <int N> __device__ static i64 column_of(int k)
{
    return (k / N * WARP_THREADS + threadIdx.x % WARP_THREADS) * N + k % N;
}

/* Loads this lane's four columns of a row; zeros past the last column. */
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

/* Reduces the maxima over all warps of the block, column by column, or over the whole tile. All
 * threads call it. */
template <int N> __device__ static void share_most(u32 most[QUAD], enum fp8_blocks blocks)
{
    SHARED(u32, each, WARPS * FP8_BLOCK);
    if (blocks == FP8_TILES) {
        u32 all = block_combine(largest_of(most), 0u, max_operator());
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

/* Largest magnitudes for blocks of more than one row: for each of this lane's columns, that of its
 * block. All threads call it. */
template <typename T, int N>
__device__ static void most_of_tile(u32 most[QUAD], const struct matrix &x, struct fp8_band band, i64 first,
                                    enum fp8_blocks blocks)
{
    float values[QUAD];
    if (blocks == FP8_ALONG_ROWS)
        return;
    for (i64 row = band.begin + threadIdx.x / WARP_THREADS; row < band.end; row += blockDim.x / WARP_THREADS) {
        load_row<T, N>(values, row_of<T>(x, row) + first, x.columns - first);
        for (int k = 0; k < QUAD; k++) {
            u32 each = fp8_magnitude(values[k]);
            most[k] = each > most[k] ? each : most[k];
        }
    }
    share_most<N>(most, blocks);
}

/* Largest magnitude of a row that is a block. */
__device__ static void most_of_row(u32 most[QUAD], const float values[QUAD])
{
    for (int k = 0; k < QUAD; k++)
        most[k] = fp8_magnitude(values[k]);
    u32 all = warp_combine(largest_of(most), max_operator());
    for (int k = 0; k < QUAD; k++)
        most[k] = all;
}

__device__ static struct fp8_band band_of(const struct round_fp8_call &r, i64 rows)
{
    return fp8_band_of(blockIdx.x / r.across, rows, r.parts, r.groups.offsets ? &r.groups : nullptr);
}

/* One block handles a tile of at most 128 x 128, and each warp one row at a time. Blocks of more
 * than one row are read twice. */
template <typename T, int N>
static __global__ void round_tiles(struct matrix out, struct matrix x, struct round_fp8_call r)
{
    grid_wait();
    struct fp8_band band = band_of(r, x.rows);
    i64 first = blockIdx.x % r.across * FP8_BLOCK, columns = x.columns - first;
    u32 most[QUAD] = {};
    float values[QUAD];
    most_of_tile<T, N>(most, x, band, first, r.blocks);
    for (i64 row = band.begin + threadIdx.x / WARP_THREADS; row < band.end; row += blockDim.x / WARP_THREADS) {
        load_row<T, N>(values, row_of<T>(x, row) + first, columns);
        if (r.blocks == FP8_ALONG_ROWS)
            most_of_row(most, values);
        round_row(values, most, r.format);
        store_row<T, N>(row_of<T>(out, row) + first, values, columns);
    }
}

extern "C" void cuda_round_fp8(struct device *device, struct matrix out, struct matrix x, enum fp8 format,
                               enum fp8_blocks blocks, i64 parts, const struct groups *groups)
{
    struct round_fp8_call r = {format, blocks, parts, ceil_div(x.columns, FP8_BLOCK), {}};
    if (groups)
        r.groups = *groups;
    bool quads = in_quads(out, x);
    i64 tiles = fp8_bands(x.rows, parts, groups) * r.across;
    require(tiles < (i64)1 << 31, "round_fp8: %lld tiles", (long long)tiles);
    i64 warps = min_i64(WARPS, x.rows);
    LAUNCH_ROWS_OF_RUNS(device, quads, x.dtype, round_tiles, tiles, warps * WARP_THREADS * (quads ? QUAD : 1), out, x,
                        r);
}

/* ---- pack_fp8 ---- */
enum { CODES_STRIDE = FP8_BLOCK + 4 /* bytes; padding separates the banks of neighbouring outer rows */ };

/* Address of the code of element [row, column] of a tile; neighbours along depth are adjacent. */
__device__ static u8 *code_at(u8 *codes, int row, int column, bool transposed)
{
    return codes + (transposed ? column * CODES_STRIDE + row : row * CODES_STRIDE + column);
}

__device__ static void store_scale(const struct fp8_matrix &out, const struct fp8_place &place, i64 outer, u32 most)
{
    out.scales[place.depth / FP8_BLOCK * out.outer + place.outer + outer] = fp8_power(fp8_exponent(most, out.format));
}

/* Writes the codes of a tile to shared memory, zeros past the matrix, and the scales of blocks that
 * are rows. */
template <typename T, int N>
__device__ static void pack_rows(u8 *codes, const struct fp8_matrix &out, const struct matrix &x,
                                 const struct fp8_place &place, struct fp8_band band, u32 most[QUAD], bool transposed)
{
    for (int row = threadIdx.x / WARP_THREADS; row < FP8_BLOCK; row += blockDim.x / WARP_THREADS) {
        float values[QUAD] = {};
        bool there = band.begin + row < band.end;
        if (there)
            load_row<T, N>(values, row_of<T>(x, band.begin + row) + place.column, x.columns - place.column);
        if (out.blocks == FP8_ALONG_ROWS)
            most_of_row(most, values);
        for (int k = 0; k < QUAD; k++) {
            float number = fp8_round(values[k], fp8_power(-fp8_exponent(most[k], out.format)), 1, out.format);
            *code_at(codes, row, (int)column_of<N>(k), transposed) = fp8_code(number, out.format);
        }
        if (there && !transposed && threadIdx.x % WARP_THREADS == 0)
            store_scale(out, place, row, most[0]);
    }
}

template <typename T, int N>
static __global__ void pack_tiles(struct fp8_matrix out, struct matrix x, struct round_fp8_call r, bool transposed)
{
    grid_wait();
    SHARED(u32, codes, FP8_BLOCK * CODES_STRIDE / 4);
    struct fp8_band band = band_of(r, x.rows);
    i64 first = blockIdx.x % r.across * FP8_BLOCK;
    struct fp8_place place = fp8_place_of(&out, x.columns, blockIdx.x / r.across, band.begin, first, transposed);
    i64 outers = transposed ? x.columns - first : band.end - band.begin;
    u32 most[QUAD] = {};
    if (band.begin == band.end)
        return;
    most_of_tile<T, N>(most, x, band, first, out.blocks);
    pack_rows<T, N>((u8 *)codes, out, x, place, band, most, transposed);
    __syncthreads();
    for (int i = threadIdx.x; i < FP8_BLOCK * FP8_BLOCK / 4; i += blockDim.x) {
        int outer = i / (FP8_BLOCK / 4), quad = i % (FP8_BLOCK / 4);
        if (outer < outers)
            ((u32 *)(out.codes + (place.outer + outer) * out.depth + place.depth))[quad] =
                codes[outer * (CODES_STRIDE / 4) + quad];
    }
    for (int k = 0; transposed && threadIdx.x < WARP_THREADS && k < QUAD; k++)
        if (column_of<N>(k) < outers)
            store_scale(out, place, column_of<N>(k), most[k]);
}

extern "C" void cuda_pack_fp8(struct device *device, const struct fp8_matrix *out, struct matrix x, bool transposed,
                              i64 parts, const struct groups *groups)
{
    struct round_fp8_call r = {out->format, out->blocks, parts, ceil_div(x.columns, FP8_BLOCK), {}};
    if (groups)
        r.groups = *groups;
    bool quads = in_quads(x);
    i64 tiles = fp8_bands(x.rows, parts, groups) * r.across;
    require(tiles < (i64)1 << 31, "pack_fp8: %lld tiles", (long long)tiles);
    LAUNCH_ROWS_OF_RUNS(device, quads, x.dtype, pack_tiles, tiles, BLOCK_THREADS * (quads ? QUAD : 1), *out, x, r,
                        transposed);
}
