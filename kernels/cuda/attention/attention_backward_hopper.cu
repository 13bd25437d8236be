#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/hopper.h"

/* The two passes of attention_backward.cu on Hopper's tensor cores (wgmma). Each warpgroup of a
 * block keeps 64 rows or keys and iterates over tiles of 64 of the others. A producer warp finds
 * these tiles and issues TMA copies STAGES ahead. Probabilities and their gradients go from
 * registers straight into the gradient products. Where registers suffice, these products still run
 * when the next tile's scores start.
 *
 *     pass OF_KEYS          kept: k, v of 128 keys       walked: q, dout of 64 rows  ->  dk, dv
 *     pass OF_ROWS          kept: q, dout of 128 rows    walked: k, v of 64 keys     ->  dq
 *
 *     producer    | walked 0 | walked 1 | walked 2 |  STAGES tiles, each a pair (side): a and b
 *     warpgroup 0   kept rows 0 - 63      S = kept a . walked a^T,  dP = kept b . walked b^T
 *     warpgroup 1   kept rows 64 - 127    P, dS in registers, then  of_b += P b,  of_a += dS a
 *
 *     Br, Bc   KEPT 64 of the one, WALKED 64 of the other         D  64 or 128
 *     L, D_i   statistics.lse (times log2 e), statistics.delta = dout . out
 *
 * Source: FlashAttention-3 (Shah et al. 2024), with a pass for dq in place of atomic sums. */
enum { CONSUMERS = 2, KEPT = 64 /* per warpgroup */, BLOCK_KEPT = CONSUMERS * KEPT, WALKED = 64, STAGES = 3 };
enum { CONSUMER_THREADS = CONSUMERS * WARPGROUP_THREADS, THREADS = CONSUMER_THREADS + WARPGROUP_THREADS };
enum { WARPS = CONSUMER_THREADS / WARP_THREADS, CONSUMER_REGISTERS = 240, PRODUCER_REGISTERS = 24 };
enum { BOX = 64 * TILE_COLUMNS, NO_MORE = -1 };
enum backward_pass { OF_KEYS /* dk, dv */, OF_ROWS /* dq */ };

/* A pair of tiles: q and dout, or k and v. Scores are kept a times walked a, and dp is kept b times
 * walked b. */
template <int D> struct side {
    bf16 a[D / TILE_COLUMNS][BOX], b[D / TILE_COLUMNS][BOX];
};
template <int D> struct attention_backward_shared {
    side<D> kept[CONSUMERS], walked[STAGES];
    struct row_statistics statistics[STAGES][WALKED]; /* rows' statistics */
    i32 query[STAGES][WALKED];
    struct cuda_key_bounds bounds[STAGES][WALKED]; /* keys' bounds */
    i32 whole[STAGES];                             /* or NO_MORE */
    u64 kept_full, full[STAGES], empty[STAGES];
};
struct attention_backward_maps {
    const tile_map *q, *dout, *k, *v;
};

/* ---- The producer: one warp ---- */
template <int D>
__device__ static void load_side(side<D> *to, const struct attention_backward_call &b, struct attention_backward_maps m,
                                 bool keys, i64 first, u64 *full)
{
    i32 head = (i32)(keys ? blockIdx.x : blockIdx.x * b.heads.group), row = (i32)(keys ? first : first / b.heads.group);
    for (int i = 0; i < D / TILE_COLUMNS; i++) {
        tile_load(to->a[i], keys ? m.k : m.q, full, i * TILE_COLUMNS, head, row);
        tile_load(to->b[i], keys ? m.v : m.dout, full, i * TILE_COLUMNS, head, row);
    }
}

template <enum backward_pass pass, int D>
__device__ static void load_walked(struct attention_backward_shared<D> *s, const struct attention_backward_call &b,
                                   struct attention_backward_maps m, struct copy_ring r, i64 first, bool whole)
{
    int lane = threadIdx.x % WARP_THREADS;
    mbarrier_wait(&s->empty[r.at], r.phase);
    for (int j = lane; j < WALKED; j += WARP_THREADS) {
        if (pass == OF_ROWS) {
            s->bounds[r.at][j] = bounds_of(b.of, first + j);
            continue;
        }
        s->statistics[r.at][j] = statistics_of(b, blockIdx.x, first + j);
        s->query[r.at][j] = query_of(b, first + j);
    }
    if (lane == 0)
        s->whole[r.at] = whole;
    __syncwarp();
    if (lane != 0)
        return;
    mbarrier_arrive_expecting(&s->full[r.at], sizeof s->walked[0]);
    load_side<D>(&s->walked[r.at], b, m, pass == OF_ROWS, first, &s->full[r.at]);
}

/* Visibility between walked tile `tile` and the rows or keys from `kept` on. */
template <enum backward_pass pass>
__device__ static enum visibility class_of(const struct attention_backward_call &b, i64 kept, i64 tile)
{
    if (pass == OF_ROWS)
        return visibility_of(b.spans[tile], query_of(b, kept), query_of(b, kept + BLOCK_KEPT - 1));
    i32 first = query_of(b, tile * WALKED), last = query_of(b, tile * WALKED + WALKED - 1);
    enum visibility one = visibility_of(b.spans[kept / KEPT], first, last);
    if (kept + KEPT >= b.of.keys)
        return one; /* the other warpgroup has no keys and stores none */
    return one == visibility_of(b.spans[kept / KEPT + 1], first, last) ? one : VISIBLE_PART;
}

/* Number of blocks of a pass. */
template <enum backward_pass pass> __host__ __device__ static i64 blocks_of(const struct attention_backward_call &b)
{
    return ((pass == OF_KEYS ? b.of.keys : b.rows) + BLOCK_KEPT - 1) / BLOCK_KEPT;
}
template <enum backward_pass pass>
__device__ static struct tile_range walked_range(const struct attention_backward_call &b, i64 block)
{
    i64 tiles = ((pass == OF_KEYS ? b.rows : b.of.keys) + WALKED - 1) / WALKED;
    return range_of(tiles, [&](i64 tile) { return class_of<pass>(b, block * BLOCK_KEPT, tile); });
}

/* One block per block of both passes, for one head; the blocks of keys come first. */
static __global__ void find_ranges(struct attention_backward_call b)
{
    grid_wait();
    i64 keys = blocks_of<OF_KEYS>(b), block = blockIdx.x;
    struct tile_range range = block < keys ? walked_range<OF_KEYS>(b, block) : walked_range<OF_ROWS>(b, block - keys);
    if (threadIdx.x == 0)
        b.ranges[block] = range;
}

template <enum backward_pass pass, int D>
__device__ static void produce(struct attention_backward_shared<D> *s, const struct attention_backward_call &b,
                               struct attention_backward_maps m, i64 kept)
{
    struct tile_range range = b.ranges[(pass == OF_KEYS ? 0 : blocks_of<OF_KEYS>(b)) + kept / BLOCK_KEPT];
    i32 lane = threadIdx.x % WARP_THREADS;
    struct copy_ring r = {0, 1}; /* all stages start empty */
    if (lane == 0) {
        mbarrier_arrive_expecting(&s->kept_full, sizeof s->kept);
        for (int group = 0; group < CONSUMERS; group++)
            load_side<D>(&s->kept[group], b, m, pass == OF_KEYS, kept + group * KEPT, &s->kept_full);
    }
    each_visible(
        range, [&](i64 tile) { return class_of<pass>(b, kept, tile); },
        [&](i64 tile, bool whole) {
            load_walked<pass, D>(s, b, m, r, tile * WALKED, whole);
            advance<STAGES>(&r);
        });
    mbarrier_wait(&s->empty[r.at], r.phase);
    if (lane == 0) {
        s->whole[r.at] = NO_MORE;
        mbarrier_arrive(&s->full[r.at]);
    }
}

/* ---- Consumers: one warpgroup each ----
 * A thread has rows lane / 4 and lane / 4 + 8 (halves) of its warp's 16 rows of a product. */
template <enum backward_pass pass, int D> struct sums {
    float of_a[D / 2], of_b[pass == OF_KEYS ? D / 2 : 1]; /* [KEPT, D]: sums of ds a and p^T b over walked tiles */
};
/* Statistics, query indices or key bounds of this thread's two rows or keys. */
struct pair_statistics {
    struct row_statistics statistics[2];
    i32 query[2];
    struct cuda_key_bounds bounds[2];
};

/* p = kept a (walked a)^T, ds = kept b (walked b)^T, both [KEPT, WALKED] */
template <int D>
__device__ static void start_scores(float (&p)[WALKED / 2], float (&ds)[WALKED / 2], const side<D> *kept,
                                    const side<D> *walked)
{
    warpgroup_fence();
    multiply_rows<D>(p, kept->a, walked->a);
    multiply_rows<D>(ds, kept->b, walked->b);
    warpgroup_commit();
}

/* sum [KEPT, D] += weights [KEPT, WALKED] times the rows of a tile. */
template <int D>
__device__ static void add_weighted_rows(float (&sum)[D / 2], const u32 (&weights)[WALKED / 16][4], const bf16 *rows)
{
    u64 tile = tile_descriptor(rows, BOX * 2);
#pragma unroll
    for (int j = 0; j < WALKED / 16; j++)
        warpgroup_mma<BY_COLUMNS>(sum, weights[j], further<BY_COLUMNS>(tile, 16 * j), true);
}

/* Sets unseen scores to -inf, so that their probability is 0. Masking before the exponential avoids
 * a branch per element. */
template <enum backward_pass pass, int D>
__device__ static void mask(float (&p)[WALKED / 2], const struct attention_backward_shared<D> *s, u32 at,
                            const struct pair_statistics &own)
{
#pragma unroll
    for (int i = 0; i < WALKED / 2; i++) {
        int half = i / 2 % 2, walked = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        bool seen = pass == OF_ROWS ? sees(own.query[half], s->bounds[at][walked])
                                    : sees(s->query[at][walked], own.bounds[half]);
        p[i] = seen ? p[i] : -INFINITY;
    }
}

/* Turns scores into probabilities, and dp into ds. */
template <enum backward_pass pass, int D>
__device__ static void take_scores(float (&p)[WALKED / 2], float (&ds)[WALKED / 2],
                                   const struct attention_backward_shared<D> *s, u32 at,
                                   const struct pair_statistics &own, float scale)
{
    keep_in_place(p);
    keep_in_place(ds);
    if (!s->whole[at])
        mask<pass, D>(p, s, at, own);
#pragma unroll
    for (int i = 0; i < WALKED / 2; i++) {
        int half = i / 2 % 2, walked = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        struct row_statistics of_row = pass == OF_ROWS ? own.statistics[half] : s->statistics[at][walked];
        p[i] = exp2_approximate(p[i] * scale - of_row.lse);
        ds[i] = p[i] * (ds[i] - of_row.delta);
    }
}

template <enum backward_pass pass, int D>
__device__ static void start_sums(struct sums<pass, D> *sums, const u32 (&of_p)[WALKED / 16][4],
                                  const u32 (&of_ds)[WALKED / 16][4], const side<D> *walked)
{
    keep_in_place(sums->of_a);
    keep_in_place(sums->of_b);
    warpgroup_fence();
    if constexpr (pass == OF_KEYS)
        add_weighted_rows<D>(sums->of_b, of_p, walked->b[0]);
    add_weighted_rows<D>(sums->of_a, of_ds, walked->a[0]);
    warpgroup_commit();
}

/* Pins the operands of the gradient products in registers; call it after the wait. */
template <enum backward_pass pass, int D>
__device__ static void keep_sums(struct sums<pass, D> *sums, u32 (&of_p)[WALKED / 16][4], u32 (&of_ds)[WALKED / 16][4])
{
    keep_in_place(sums->of_a);
    keep_in_place(sums->of_b);
    if (pass == OF_KEYS)
        keep_in_place(of_p);
    keep_in_place(of_ds);
}

template <enum backward_pass pass, int D>
__device__ static void consume(struct sums<pass, D> *sums, struct attention_backward_shared<D> *s,
                               const struct pair_statistics &own, int group, float scale)
{
    struct copy_ring next = {0, 0};
    float p[WALKED / 2], ds[WALKED / 2];
    u32 of_p[WALKED / 16][4], of_ds[WALKED / 16][4];
    mbarrier_wait(&s->kept_full, 0);
    mbarrier_wait(&s->full[0], 0);
    if (s->whole[0] == NO_MORE)
        return;
    start_scores<D>(p, ds, &s->kept[group], &s->walked[0]);
    warpgroup_wait<0>();
    for (;;) {
        u32 at = next.at;
        take_scores<pass, D>(p, ds, s, at, own, scale);
        if (pass == OF_KEYS)
            pack_factors(of_p, p);
        pack_factors(of_ds, ds);
        start_sums<pass, D>(sums, of_p, of_ds, &s->walked[at]);
        if (pass == OF_KEYS && D == 128) { /* registers do not suffice for both products */
            warpgroup_wait<0>();
            keep_sums(sums, of_p, of_ds);
        }
        advance<STAGES>(&next);
        mbarrier_wait(&s->full[next.at], next.phase);
        if (s->whole[next.at] == NO_MORE)
            break;
        start_scores<D>(p, ds, &s->kept[group], &s->walked[next.at]);
        warpgroup_wait<0>();
        keep_sums(sums, of_p, of_ds);
        mbarrier_release(&s->empty[at]);
    }
    warpgroup_wait<0>();
    keep_sums(sums, of_p, of_ds);
}

template <enum backward_pass pass, int D>
__device__ static void store_sums(const struct attention_backward_call &b, const struct sums<pass, D> &sums, i64 first)
{
    float scale = rsqrtf((float)b.heads.width);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        i64 at = first + 8 * half, column = blockIdx.x * b.heads.width;
        if (at >= (pass == OF_KEYS ? b.of.keys : b.rows))
            continue;
        bf16 *to = pass == OF_KEYS ? row_of<bf16>(b.dk, at) + column : head_row<bf16>(b.dq, b.heads, blockIdx.x, at);
        store_row<D>(to, (const float(&)[D / 8][4]) sums.of_a, half, b.heads.width, scale);
        if constexpr (pass == OF_KEYS)
            store_row<D>(row_of<bf16>(b.dv, at) + column, (const float(&)[D / 8][4]) sums.of_b, half, b.heads.width, 1);
    }
}

template <int D> __device__ static void init_barriers(struct attention_backward_shared<D> *s)
{
    mbarrier_init(&s->kept_full, 1);
    ring_init(s->full, s->empty, WARPS);
    fence_proxy_async();
}

/* A block handles BLOCK_KEPT keys or rows of a key-value head. Early keys and late rows usually
 * have the most tiles, so these blocks start first. */
template <enum backward_pass pass, int D>
static __global__ void __launch_bounds__(THREADS, 1)
    walk(struct attention_backward_call b, const __grid_constant__ tile_map q, const __grid_constant__ tile_map dout,
         const __grid_constant__ tile_map k, const __grid_constant__ tile_map v)
{
    grid_wait();
#ifdef WEFT_HOPPER
    DYNAMIC_SHARED(struct attention_backward_shared<D>, s);
    i64 kept = (i64)(pass == OF_KEYS ? blockIdx.y : gridDim.y - 1 - blockIdx.y) * BLOCK_KEPT;
    int warp = warp_of_block();
    if (threadIdx.x == 0)
        init_barriers<D>(s);
    __syncthreads();
    if (warp >= WARPS) {
        registers_give<PRODUCER_REGISTERS>();
        if (warp == WARPS)
            produce<pass, D>(s, b, {&q, &dout, &k, &v}, kept);
        return;
    }
    registers_take<CONSUMER_REGISTERS>();
    struct sums<pass, D> sums = {
    };
    struct pair_statistics own = {};
    i64 first = kept + warp * 16 + threadIdx.x % WARP_THREADS / 4;
    for (int half = 0; half < 2; half++) {
        if (pass == OF_KEYS) {
            own.bounds[half] = bounds_of(b.of, first + 8 * half);
            continue;
        }
        own.statistics[half] = statistics_of(b, blockIdx.x, first + 8 * half);
        own.query[half] = query_of(b, first + 8 * half);
    }
    consume<pass, D>(&sums, s, own, warp / 4, rsqrtf((float)b.heads.width) * LOG2_E);
    store_sums<pass, D>(b, sums, first);
#endif
}

/* ---- Host side ---- */
template <enum backward_pass pass, int D>
static void launch_pass(struct device *device, const struct attention_backward_call &b)
{
    i64 width = b.heads.width, bytes = round_up((i64)sizeof(struct attention_backward_shared<D>), TILE_ALIGNMENT);
    int group = (int)b.heads.group;
    i64 blocks = blocks_of<pass>(b);
    require(blocks < 1 << 16, "attention_backward: %lld rows or keys", (long long)blocks * BLOCK_KEPT);
    /* x = heads: the longest blocks of all heads start first */
    dim3 grid((unsigned)b.heads.kv_count, (unsigned)blocks);
    CUDA_CHECK(cudaFuncSetAttribute((walk<pass, D>), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    LAUNCH(device, (walk<pass, D>), grid, THREADS, bytes, b, map_of_heads(b.q, width, group, 64 / group),
           map_of_heads(b.dout, width, group, 64 / group), map_of_heads(b.k, width, 1, 64),
           map_of_heads(b.v, width, 1, 64));
}

template <int D> static void launch(struct device *device, const struct attention_backward_call &b)
{
    launch_summary(device, b.spans, b.of, KEPT);
    LAUNCH(device, find_ranges, (unsigned)(blocks_of<OF_KEYS>(b) + blocks_of<OF_ROWS>(b)), BLOCK_THREADS, 0, b);
    launch_pass<OF_KEYS, D>(device, b);
    launch_pass<OF_ROWS, D>(device, b);
}

bool attention_backward_hopper(struct device *device, struct attention_backward_call b)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    b.ranges = (struct tile_range *)(b.statistics + b.rows * b.heads.kv_count);
    i64 ranges = blocks_of<OF_KEYS>(b) + blocks_of<OF_ROWS>(b);
    if ((char *)(b.ranges + ranges) > (char *)handles->workspace + handles->workspace_bytes || !handles->hopper ||
        !b.vector || b.heads.width > 128 || 64 % b.heads.group != 0 || b.of.keys == 0 || b.of.keys >= INT32_MAX ||
        b.rows == 0 || b.rows >= INT32_MAX)
        return false;
    if (b.heads.width <= 64)
        launch<64>(device, b);
    else
        launch<128>(device, b);
    return true;
}
