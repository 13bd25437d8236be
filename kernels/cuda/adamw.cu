#include "kernels/cuda/cuda.h"

#include "kernels/adamw.h"

/* A list of updates is launched in tables that kernels take by value, of what they may take (CUDA 12.1): a model whose
 * experts' slices are updates of their own, some thousands, is a dozen of launches. A block has a tile: TILE elements
 * of an update. */
enum { TILE = 1 << 14, TABLE = 400, ARGUMENT_BYTES_MOST = 32764, OTHER_ARGUMENT_BYTES = 256 };
struct table {
    i64 count, first[TABLE + 1]; /* tiles of update i: first[i] .. first[i + 1] - 1 */
    struct update list[TABLE];
};
static_assert(sizeof(struct table) + OTHER_ARGUMENT_BYTES <= ARGUMENT_BYTES_MOST, "a kernel's arguments");

static struct table table_of(const struct updates *updates, i64 begin)
{
    struct table table = {};
    table.count = min_i64(TABLE, updates->count - begin);
    for (i64 i = 0; i < table.count; i++) {
        table.list[i] = updates->list[begin + i];
        table.first[i + 1] = table.first[i] + ceil_div(table.list[i].count, TILE);
    }
    return table;
}

struct tile { /* elements begin .. end - 1; g NULL: a gradient of zero */
    const struct update *update;
    const float *g;
    i64 begin, end;
};
__device__ static struct tile tile_of(const struct table *table, i64 index)
{
    i64 low = 0, high = table->count; /* first[low] <= index < first[high] */
    while (high - low > 1) {
        i64 middle = (low + high) / 2;
        if (table->first[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    const struct update *u = &table->list[low];
    i64 begin = (index - table->first[low]) * TILE, end = begin + TILE < u->count ? begin + TILE : u->count;
    return {u, u->g && (!u->written || *u->written) ? u->g : NULL, begin, end};
}

template <int N>
__device__ static void update_elements(const struct tile *tile, i64 begin, i64 end, struct adamw_factors f)
{
    struct update u = *tile->update;
    for (i64 i = begin + threadIdx.x * N; i < end; i += blockDim.x * N) {
        elements<float, N> p = load<N>(u.p + i), m = load<N>(u.m + i), v = load<N>(u.v + i), g = {};
        elements<bf16, N> image;
        if (tile->g)
            g = load<N>(tile->g + i);
        for (int k = 0; k < N; k++) {
            adamw_element(&p.at[k], &m.at[k], &v.at[k], g.at[k] * f.scale, f);
            image.at[k] = from_f32<bf16>(p.at[k]);
        }
        store(u.p + i, p);
        store(u.m + i, m);
        store(u.v + i, v);
        if (u.copy && u.copy_dtype == DTYPE_BF16)
            store((bf16 *)u.copy + i, image);
        else if (u.copy)
            store((float *)u.copy + i, p);
    }
}

__device__ static bool begins_in_quads(const struct tile *tile)
{
    const struct update *u = tile->update;
    uintptr_t bits = (uintptr_t)u->p | (uintptr_t)u->m | (uintptr_t)u->v | (uintptr_t)tile->g | (uintptr_t)u->copy;
    return bits % (QUAD * sizeof(float)) == 0;
}

static __global__ void update_tiles(const __grid_constant__ struct table table, const double *sum, double clip,
                                    struct adamw adamw, struct adamw_corrections corrections)
{
    SHARED(struct adamw_factors, factors, 1);
    double norm = sqrt(sum[0]);
    if (!isfinite(norm))
        return;
    struct tile tile = tile_of(&table, blockIdx.x);
    if (threadIdx.x == 0)
        factors[0] = adamw_factors_of(&adamw, corrections, tile.update->lr_factor, tile.update->decay_factor,
                                      adamw_scale(norm, clip));
    __syncthreads();
    i64 whole = begins_in_quads(&tile) ? tile.begin + (tile.end - tile.begin) / QUAD * QUAD : tile.begin;
    update_elements<QUAD>(&tile, tile.begin, whole, factors[0]);
    update_elements<1>(&tile, whole, tile.end, factors[0]);
}

extern "C" void cuda_adamw(struct device *device, const struct updates *updates, const double *sum, double clip,
                           const struct adamw *adamw)
{
    for (i64 begin = 0; begin < updates->count; begin += TABLE) {
        struct table table = table_of(updates, begin);
        i64 tiles = table.first[table.count];
        if (tiles > 0)
            LAUNCH(device, update_tiles, (unsigned)tiles, BLOCK_THREADS, 0, table, sum, clip, *adamw,
                   adamw_corrections_of(adamw));
    }
}

template <int N> __device__ static float squares_of(const float *g, i64 begin, i64 end)
{
    float sum = 0;
    for (i64 i = begin + threadIdx.x * N; i < end; i += blockDim.x * N) {
        elements<float, N> values = load<N>(g + i);
        for (int k = 0; k < N; k++)
            sum += values.at[k] * values.at[k];
    }
    return sum;
}

static __global__ void square_tiles(double *partials, const __grid_constant__ struct table table)
{
    struct tile tile = tile_of(&table, blockIdx.x);
    double sum = 0;
    if (tile.g) {
        bool quads = (uintptr_t)tile.g % (QUAD * sizeof(float)) == 0;
        i64 whole = quads ? tile.begin + (tile.end - tile.begin) / QUAD * QUAD : tile.begin;
        sum = (double)squares_of<QUAD>(tile.g, tile.begin, whole) + (double)squares_of<1>(tile.g, whole, tile.end);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = sum;
}

static __global__ void add_tiles(double *sum, const double *partials, i64 count)
{
    double total = 0;
    for (i64 i = threadIdx.x; i < count; i += blockDim.x)
        total += partials[i];
    total = block_sum(total);
    if (threadIdx.x == 0)
        sum[0] += total;
}

extern "C" void cuda_sum_squares(struct device *device, double *sum, const struct updates *updates)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    double *partials = (double *)handles->workspace;
    i64 count = 0;
    for (i64 begin = 0; begin < updates->count; begin += TABLE) {
        struct table table = table_of(updates, begin);
        i64 tiles = table.first[table.count];
        require((count + tiles) * 8 <= handles->workspace_bytes, "sum_squares: more than %lld tiles", (long long)count);
        if (tiles > 0)
            LAUNCH(device, square_tiles, (unsigned)tiles, BLOCK_THREADS, 0, partials + count, table);
        count += tiles;
    }
    if (count > 0)
        LAUNCH(device, add_tiles, 1, threads_for(count), 0, sum, partials, count);
}

static __global__ void zero_parts(float *dw, const u8 *written, i64 slice)
{
    if (written[blockIdx.y])
        return;
    GRID_STRIDE(i, slice)
    dw[blockIdx.y * slice + i] = 0;
}

static __global__ void mark_written(u8 *written, i64 parts)
{
    GRID_STRIDE(part, parts)
    written[part] = written[part] ? written[part] : 1;
}

extern "C" void cuda_zero_unwritten(struct device *device, struct matrix dw, u8 *written, i64 parts)
{
    i64 slice = dw.rows / parts * dw.columns;
    require(dw.stride == dw.columns, "zero_unwritten of rows %lld apart", (long long)dw.stride);
    require(parts < 1 << 16, "zero_unwritten: %lld parts", (long long)parts);
    dim3 grid((unsigned)min_i64(blocks_for(slice), 1 << 10), (unsigned)parts);
    if (slice > 0)
        LAUNCH(device, zero_parts, grid, BLOCK_THREADS, 0, (float *)dw.data, written, slice);
    LAUNCH(device, mark_written, blocks_for(parts), BLOCK_THREADS, 0, written, parts);
}
