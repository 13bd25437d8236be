#include "kernels/cuda/hopper.h"
#include "kernels/cuda/gemm/matmul_fp8.h"

/* fp8 gemm on Hopper's tensor cores (wgmma). A producer thread issues TMA copies STAGES blocks of
 * 128 along K ahead, across tiles (persistent blocks). Two consumer warpgroups multiply 64 rows of
 * a tile each. Tensor cores keep only about 14 bits of a sum, so the sum of each K block is scaled
 * and added to f32 registers before the next block (DeepSeek-V3, arXiv 2412.19437, 3.3.2). One
 * warpgroup does this while the other one's wgmma runs.
 *
 *     shared:  | stage 0: a [128][128], b [128][128] codes | .. | stage 4 |   mbarriers full, empty
 *
 *     warpgroup 0, rows 0 - 63:    | wgmma, block k | sum += d . scales | wgmma, block k + 1 |
 *     warpgroup 1, rows 64 - 127:            | wgmma, block k | sum += d . scales | ..
 *
 *     M  rows of a         Mc  TILE_M 128, 64 per warpgroup       d    sums of one block (f32)
 *     N  rows of b         Nc  TILE_N 128                         sum  sums of all blocks (f32)
 *     K  depth             Kc  FP8_BLOCK 128: stage, block of scales; four wgmma of 32 */
enum { CONSUMERS = 2, ROWS = 64 /* per warpgroup */, TILE_M = CONSUMERS * ROWS, TILE_N = 128, STAGES = 5 };
enum { CONSUMER_THREADS = CONSUMERS * WARPGROUP_THREADS, THREADS = CONSUMER_THREADS + WARPGROUP_THREADS };
enum { CONSUMER_REGISTERS = 232, PRODUCER_REGISTERS = 40, WARPS = CONSUMER_THREADS / WARP_THREADS };
enum { OWN = TILE_N / 2 /* accumulators per thread */ };
static_assert((int)TILE_ROW_BYTES == (int)FP8_BLOCK && (int)TILE_N == (int)FP8_BLOCK,
              "a box's row is a block, as a tile's columns are");

struct fp8_stage {
    u8 a[TILE_M][TILE_ROW_BYTES], b[TILE_N][TILE_ROW_BYTES];
};
struct fp8_shared {
    struct fp8_stage at[STAGES];
    bf16 out[WARPS][TILE_N / TILE_COLUMNS][WARP_ROWS * TILE_COLUMNS]; /* output boxes of each warp */
    u64 full[STAGES], empty[STAGES];
    /* [groups + 1] first tile of each group; for the weight gradient followed by [groups], the
     * number of blocks before each group. */
    i32 starts[1];
};
struct fp8_maps {
    tile_map a, b, out;
};

__device__ static i64 rows_of(const struct fp8_gemm &p, i64 group)
{
    if (!p.groups.offsets)
        return p.out.rows;
    return p.written && fp8_rows_of(p, group) > 0 ? p.slice_rows : fp8_rows_of(p, group);
}

/* Fills starts. All threads of the block call it. */
[[maybe_unused]] __device__ static void count(i32 *starts, const struct fp8_gemm &p)
{
    i32 tiles_before = 0, blocks_before = 0, total;
    i64 groups = fp8_groups(p);
    for (i64 first = 0; first < groups; first += blockDim.x) {
        i64 g = first + threadIdx.x;
        i32 tiles = g < groups ? tiles_of<TILE_M, TILE_N>(rows_of(p, g), p.out.columns) : 0;
        i32 earlier = block_scan(tiles, &total);
        if (g < groups)
            starts[g] = tiles_before + earlier;
        tiles_before += total;
        if (!p.written)
            continue;
        earlier = block_scan(g < groups ? fp8_blocks_of(p, g) : 0, &total);
        if (g < groups)
            starts[groups + 1 + g] = blocks_before + earlier;
        blocks_before += total;
    }
    if (threadIdx.x == 0)
        starts[groups] = tiles_before;
    __syncthreads();
}

/* A tile: its group's gemm, and its first row and column in that gemm. */
struct fp8_tile_place {
    i32 tile, group; /* group == number of groups: no more tiles */
    struct fp8_gemm_slice part;
    i32 row, column;
};
__device__ static struct fp8_tile_place place_of(const struct fp8_gemm &p, const i32 *starts, i32 tile, i64 from)
{
    i64 groups = fp8_groups(p), group = group_of_tile(starts, groups, from, tile);
    if (group == groups)
        return {tile, (i32)group, {}, 0, 0};
    i32 across = (i32)((p.out.columns + TILE_N - 1) / TILE_N), own = tile - starts[group];
    return {tile, (i32)group, fp8_gemm_slice_of(p, group, p.written ? starts[groups + 1 + group] : 0),
            own / across * TILE_M, own % across * TILE_N};
}
[[maybe_unused]] __device__ static struct fp8_tile_place first_place(const struct fp8_gemm &p, const i32 *starts)
{
    i32 tile = (i32)blockIdx.x;
    return place_of(p, starts, tile, route_run_of(starts, fp8_groups(p), tile));
}
[[maybe_unused]] __device__ static struct fp8_tile_place next_place(const struct fp8_gemm &p, const i32 *starts,
                                                                    const struct fp8_tile_place &at)
{
    return place_of(p, starts, at.tile + (i32)gridDim.x, at.group);
}

/* ---- The producer: one thread ---- */
[[maybe_unused]] __device__ static void produce(struct fp8_shared *s, const struct fp8_gemm &p,
                                                const struct fp8_maps &maps)
{
    struct copy_ring r = {0, 1}; /* all stages start empty */
    for (struct fp8_tile_place at = first_place(p, s->starts); at.group < fp8_groups(p);
         at = next_place(p, s->starts, at)) {
        i32 slice = p.written ? 0 : (i32)(at.part.column / p.out.columns);
        for (i64 d = at.part.begin; d < at.part.end; d += FP8_BLOCK) {
            mbarrier_wait(&s->empty[r.at], r.phase);
            mbarrier_arrive_expecting(&s->full[r.at], sizeof(struct fp8_stage));
            tile_load(s->at[r.at].a, &maps.a, &s->full[r.at], (i32)d, (i32)at.part.outer + at.row, 0);
            tile_load(s->at[r.at].b, &maps.b, &s->full[r.at], (i32)d, at.column, slice);
            advance<STAGES>(&r);
        }
    }
}

/* ---- Consumers: one warpgroup each ---- */
/* A thread's scales of a K block: its two rows, and its columns (or one for the whole tile). */
template <bool tiles> struct scales {
    float a[2], b[tiles ? 1 : OWN / 2];
};

/* The scale of row or column `i` of a block; 1 past the end. */
[[maybe_unused]] __device__ static float scale_at(const struct fp8_matrix &m, i64 block, i64 first, i64 i, i64 count)
{
    return i < count ? m.scales[block * m.outer + first + i] : 1;
}

template <bool tiles>
__device__ static void load_scales(struct scales<tiles> *out, const struct fp8_gemm &p, const struct fp8_tile_place &at,
                                   i64 block, int row)
{
    int lane = threadIdx.x % WARP_THREADS;
    for (int half = 0; half < 2; half++)
        out->a[half] = scale_at(p.a, block, at.part.outer, at.row + row + lane / 4 + half * 8, at.part.rows);
#pragma unroll
    for (int i = 0; i < (tiles ? 1 : OWN / 2); i++)
        out->b[i] = scale_at(p.b, block, at.part.column, at.column + (tiles ? 0 : i / 2 * 8 + lane % 4 * 2 + i % 2),
                             p.out.columns);
}

template <enum fp8 format>
__device__ static void multiply_block(float (&d)[OWN], const struct fp8_stage *s, int warpgroup)
{
    u64 a = tile_descriptor(s->a[warpgroup * ROWS]), b = tile_descriptor(s->b);
    keep_in_place(d);
    warpgroup_fence();
    warpgroup_mma_fp8<format, true>(d, a, b);
#pragma unroll
    for (int k = 32; k < FP8_BLOCK; k += 32)
        warpgroup_mma_fp8<format, false>(d, fp8_further(a, k), fp8_further(b, k));
    warpgroup_commit();
    warpgroup_wait<0>();
    keep_in_place(d);
}

template <bool tiles>
__device__ static void add_block(float (&sum)[OWN], const float (&d)[OWN], const struct scales<tiles> &by)
{
#pragma unroll
    for (int i = 0; i < OWN; i++)
        sum[i] += d[i] * (by.a[i / 2 % 2] * by.b[tiles ? 0 : i / 4 * 2 + i % 2]);
}

/* Multiplies a tile. The scales of a block are loaded while its codes are awaited. */
template <enum fp8 format, bool tiles>
__device__ static void multiply_tile(float (&sum)[OWN], struct fp8_shared *s, struct copy_ring *r,
                                     const struct fp8_gemm &p, const struct fp8_tile_place &at, int warp)
{
    for (int i = 0; i < OWN; i++)
        sum[i] = 0;
    for (i64 d = at.part.begin; d < at.part.end; d += FP8_BLOCK) {
        float block[OWN];
        struct scales<tiles> by;
        load_scales<tiles>(&by, p, at, d / FP8_BLOCK, warp * WARP_ROWS);
        mbarrier_wait(&s->full[r->at], r->phase);
        multiply_block<format>(block, &s->at[r->at], warp / 4);
        mbarrier_release(&s->empty[r->at]);
        add_block<tiles>(sum, block, by);
        advance<STAGES>(r);
    }
}

/* Releases the stages of a tile in which this warpgroup has no rows. */
[[maybe_unused]] __device__ static void release_stages(struct fp8_shared *s, struct copy_ring *r,
                                                       const struct fp8_tile_place &at)
{
    for (i64 d = at.part.begin; d < at.part.end; d += FP8_BLOCK) {
        mbarrier_wait(&s->full[r->at], r->phase);
        mbarrier_release(&s->empty[r->at]);
        advance<STAGES>(r);
    }
}

/* The output from the tile's corner to the right and down. */
[[maybe_unused]] __device__ static struct matrix tile_at(const struct fp8_gemm &p, const struct fp8_tile_place &at)
{
    return part_of(p.out, at.part.row + at.row, at.column, at.part.rows - at.row);
}

template <enum fp8 format, bool tiles>
__device__ static void consume(struct fp8_shared *s, const struct fp8_gemm &p, const struct fp8_maps &maps, bool boxes,
                               int warp)
{
    struct copy_ring r = {0, 0};
    for (struct fp8_tile_place at = first_place(p, s->starts); at.group < fp8_groups(p);
         at = next_place(p, s->starts, at)) {
        i32 row = warp * WARP_ROWS;
        float sum[OWN];
        if (at.row + warp / 4 * ROWS >= at.part.rows) {
            release_stages(s, &r, at);
            continue;
        }
        if (at.part.add)
            prefetch_rows_of_warp<TILE_N>(tile_at(p, at), row);
        multiply_tile<format, tiles>(sum, s, &r, p, at, warp);
        if (!boxes)
            store_rows_of_warp<TILE_N>(tile_at(p, at), at.part.add, row, sum);
        else if (at.row + row < at.part.rows)
            store_boxes_of_warp<TILE_N>(s->out[warp], sum, &maps.out, (i32)at.part.row + at.row + row, at.column,
                                        (i32)p.out.columns);
    }
    if (boxes && threadIdx.x % WARP_THREADS == 0)
        tile_stores_wait_read<0>();
}

template <enum fp8 format, bool tiles>
static __global__ void __launch_bounds__(THREADS, 1)
    multiply(struct fp8_gemm p, const __grid_constant__ struct fp8_maps maps, bool boxes)
{
    grid_wait();
#ifdef WEFT_HOPPER
    DYNAMIC_SHARED(struct fp8_shared, s);
    if (threadIdx.x == 0) {
        ring_init(s->full, s->empty, WARPS);
        fence_proxy_async();
    }
    count(s->starts, p);
    int warp = warp_of_block();
    if (warp >= WARPS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMER_THREADS)
            produce(s, p, maps);
    } else {
        registers_take<CONSUMER_REGISTERS>();
        consume<format, tiles>(s, p, maps, boxes, warp);
    }
#endif
}

/* ---- Host side ---- */
template <enum fp8 format, bool tiles> static void launch(struct device *device, const struct fp8_gemm &p)
{
    i64 groups = p.groups.offsets ? p.groups.count : 1, parts = p.written ? 1 : p.b.outer / p.out.columns;
    i64 down = p.written ? groups * ceil_div(p.slice_rows, TILE_M) : ceil_div(p.out.rows, TILE_M) + groups - 1;
    i64 most = down * ceil_div(p.out.columns, TILE_N);
    i64 bytes = round_up((i64)sizeof(struct fp8_shared) + 2 * groups * 4, TILE_ALIGNMENT);
    bool boxes = has_tile_map(p.out) && !p.add;
    struct fp8_maps maps = {tile_map_of(p.a, 1, TILE_M), tile_map_of(p.b, parts, TILE_N), {}};
    maps.out = boxes ? tile_map_of(p.out, 1, WARP_ROWS) : maps.a;
    CUDA_CHECK(
        cudaFuncSetAttribute((multiply<format, tiles>), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    LAUNCH(device, (multiply<format, tiles>), (unsigned)min_i64(most, cuda_handles_of(device)->multiprocessors),
           THREADS, bytes, p, maps, boxes);
}

bool fp8_hopper(struct device *device, const struct fp8_gemm &p)
{
    bool tiles = p.b.blocks == FP8_TILES;
    if (!cuda_handles_of(device)->hopper || p.a.outer == 0 || p.a.depth == 0 || p.a.outer >= INT32_MAX ||
        p.b.outer >= INT32_MAX || p.a.depth >= INT32_MAX)
        return false;
    if (p.a.format == FP8_E4M3 && tiles)
        launch<FP8_E4M3, true>(device, p);
    else if (p.a.format == FP8_E4M3)
        launch<FP8_E4M3, false>(device, p);
    else if (tiles)
        launch<FP8_E5M2, true>(device, p);
    else
        launch<FP8_E5M2, false>(device, p);
    return true;
}
