#include "kernels/cuda/cuda.h"

#include "kernels/adamw.h"

/* One launch processes a whole list of updates. Each call copies the list to a table in the
 * workspace, because the set of updated weights may change from step to step (elastic training).
 * Each block processes one tile of TILE elements of the update that `owner` names. A model whose
 * expert slices are separate updates has some thousands of updates and a table of about 1 MB.
 *
 *     updates    | update 0: p m v g copy      | update 1 | update 2 | ..
 *     tiles      | t0 | t1 | t2 | t3 (shorter) | t4       | t5 | t6  | ..   TILE, 2^14 elements
 *     owner      | 0    0    0    0            | 1        | 2    2   | ..   one block a tile
 *
 * An element is read and written once, four at a time where the addresses allow. The paper's
 * theta, m, v, g are p, m, v, g of struct update; alpha, beta1, beta2, lambda, epsilon are lr,
 * beta1, beta2, decay, eps of struct adamw. The norm for clipping is summed before
 * (sum_squares): a block sums a tile, then one block adds the tiles, in an order fixed by their
 * number. Source: Loshchilov and Hutter 2019 (kernels/adamw.h). */
enum { TILE = 1 << 14, ALIGNMENT = 256 };
struct adamw_update {
    struct update update;
    i64 first; /* its tiles are first, first + 1, ... */
};
struct adamw_tiles { /* device memory */
    const struct adamw_update *entries;
    const i32 *owner; /* [tiles] index of the tile's update */
    i64 tiles;
    double *partials; /* [tiles] */
};

static void fill_table(struct adamw_update *entries, i32 *owner, const struct updates *updates)
{
    i64 tile = 0;
    for (i64 i = 0; i < updates->count; i++) {
        entries[i].update = updates->list[i];
        entries[i].first = tile;
        for (i64 end = tile + ceil_div(updates->list[i].count, TILE); tile < end; tile++)
            owner[tile] = (i32)i;
    }
}

static struct adamw_tiles put_table(struct device *device, const char *op, const struct updates *updates)
{
    i64 tiles = 0, entry_bytes = round_up(updates->count * (i64)sizeof(struct adamw_update), ALIGNMENT);
    for (i64 i = 0; i < updates->count; i++)
        tiles += ceil_div(updates->list[i].count, TILE);
    i64 bytes = entry_bytes + round_up(tiles * 4, ALIGNMENT);
    require(updates->count <= INT32_MAX, "%s: %lld updates", op, (long long)updates->count);
    char *there = (char *)cuda_workspace_of(device, op, bytes + tiles * 8), *host = (char *)memory_alloc(bytes + 1);
    fill_table((struct adamw_update *)host, (i32 *)(host + entry_bytes), updates);
    cuda_put(device, there, host, bytes);
    memory_free(host);
    return {(const struct adamw_update *)there, (const i32 *)(there + entry_bytes), tiles, (double *)(there + bytes)};
}

struct adamw_tile { /* elements begin .. end - 1; g NULL: zero gradient */
    const struct update *update;
    const float *g;
    i64 begin, end;
};
__device__ static struct adamw_tile tile_of(struct adamw_tiles table, i64 index)
{
    const struct adamw_update *entry = &table.entries[table.owner[index]];
    const struct update *u = &entry->update;
    i64 begin = (index - entry->first) * TILE, end = begin + TILE < u->count ? begin + TILE : u->count;
    return {u, u->g && (!u->written || *u->written) ? u->g : NULL, begin, end};
}

template <int N>
__device__ static void update_elements(const struct adamw_tile *tile, i64 begin, i64 end, struct adamw_factors f)
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

__device__ static bool begins_in_quads(const struct adamw_tile *tile)
{
    const struct update *u = tile->update;
    uintptr_t bits = (uintptr_t)u->p | (uintptr_t)u->m | (uintptr_t)u->v | (uintptr_t)tile->g | (uintptr_t)u->copy;
    return bits % (QUAD * sizeof(float)) == 0;
}

static __global__ void update_tiles(struct adamw_tiles table, const double *sum, double clip, struct adamw adamw,
                                    struct adamw_corrections corrections)
{
    grid_wait();
    SHARED(struct adamw_factors, factors, 1);
    double norm = sqrt(sum[0]);
    if (!isfinite(norm))
        return;
    struct adamw_tile tile = tile_of(table, blockIdx.x);
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
    struct adamw_tiles table = put_table(device, "adamw", updates);
    if (table.tiles > 0)
        LAUNCH(device, update_tiles, (unsigned)table.tiles, BLOCK_THREADS, 0, table, sum, clip, *adamw,
               adamw_corrections_of(adamw));
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

static __global__ void square_tiles(struct adamw_tiles table)
{
    grid_wait();
    struct adamw_tile tile = tile_of(table, blockIdx.x);
    double sum = 0;
    if (tile.g) {
        bool quads = (uintptr_t)tile.g % (QUAD * sizeof(float)) == 0;
        i64 whole = quads ? tile.begin + (tile.end - tile.begin) / QUAD * QUAD : tile.begin;
        sum = (double)squares_of<QUAD>(tile.g, tile.begin, whole) + (double)squares_of<1>(tile.g, whole, tile.end);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        table.partials[blockIdx.x] = sum;
}

static __global__ void add_tiles(double *sum, const double *partials, i64 count)
{
    grid_wait();
    double total = block_sum(sum_of<double>(threadIdx.x, count, blockDim.x, [=](i64 i) { return partials[i]; }));
    if (threadIdx.x == 0)
        sum[0] += total;
}

extern "C" void cuda_sum_squares(struct device *device, double *sum, const struct updates *updates)
{
    struct adamw_tiles table = put_table(device, "sum_squares", updates);
    if (table.tiles == 0)
        return;
    LAUNCH(device, square_tiles, (unsigned)table.tiles, BLOCK_THREADS, 0, table);
    LAUNCH(device, add_tiles, 1, table.tiles > BLOCK_THREADS ? 4 * BLOCK_THREADS : BLOCK_THREADS, 0, sum,
           table.partials, table.tiles);
}

static __global__ void zero_parts(float *dw, const u8 *written, i64 slice)
{
    grid_wait();
    if (written[blockIdx.y])
        return;
    GRID_STRIDE(i, slice)
    dw[blockIdx.y * slice + i] = 0;
}

static __global__ void mark_written(u8 *written, i64 parts)
{
    grid_wait();
    GRID_STRIDE(part, parts)
    written[part] = written[part] ? written[part] : 1;
}

extern "C" void cuda_zero_unwritten(struct device *device, struct matrix dw, u8 *written, i64 parts)
{
    i64 slice = dw.rows / parts * dw.columns;
    require(parts < 1 << 16, "zero_unwritten: %lld parts", (long long)parts);
    dim3 grid((unsigned)min_i64(blocks_for(slice), 1 << 10), (unsigned)parts);
    if (slice > 0)
        LAUNCH(device, zero_parts, grid, BLOCK_THREADS, 0, (float *)dw.data, written, slice);
    LAUNCH(device, mark_written, blocks_for(parts), BLOCK_THREADS, 0, written, parts);
}
