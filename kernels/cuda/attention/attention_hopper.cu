#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/hopper.h"

/* Forward of flash attention on Hopper (Dao et al. 2022; Shah et al. 2024, FlashAttention-3). A
 * producer warp issues TMA copies of the seen key tiles, STAGES ahead, within the range that the
 * kernel find_ranges found for all heads. Two consumer warpgroups handle 64 rows each. A warpgroup
 * overlaps the scores of tile i + 1 with the values product of tile i, and computes the softmax of
 * tile i + 1 meanwhile. The two warpgroups alternate (ping-pong): one multiplies while the other
 * computes its softmax.
 *
 *     warpgroup 0:  | q k_1, p_0 v_0 | softmax 1      | q k_2, p_1 v_1 | softmax 2
 *     warpgroup 1:  | softmax 0      | q k_1, p_0 v_0 | softmax 1      | q k_2, p_1 v_1
 *
 *     shared:  | q: 2 x 64 rows | stage 0: k, v of 128 keys | stage 1: k, v of 128 keys |
 *              with mbarriers for q, and for k and v of each stage (full, empty)
 *
 *     Br     ROWS 64 per warpgroup, BLOCK_ROWS 128 per block      Bc  KEYS 128
 *     m, l   state.most (times log2 e), state.sum                 exp(m_old - m_new)  factor
 *     S, P   x, then packed to bf16 as weights (registers)        O   state.out;  L  lse
 *     D      64 or 128: narrower heads are padded with zeros by the copy engine */
enum { CONSUMERS = 2, ROWS = 64 /* per warpgroup */, BLOCK_ROWS = CONSUMERS * ROWS, KEYS = 128, STAGES = 2 };
enum { CONSUMER_THREADS = CONSUMERS * WARPGROUP_THREADS, THREADS = CONSUMER_THREADS + WARPGROUP_THREADS };
enum { WARPS = CONSUMER_THREADS / WARP_THREADS, CONSUMER_REGISTERS = 232, PRODUCER_REGISTERS = 40 };
enum { NO_MORE = -1 };

template <int D> struct attention_shared {
    enum { BOXES = D / TILE_COLUMNS, KEY_BOX = KEYS * TILE_COLUMNS };
    bf16 q[CONSUMERS][BOXES][ROWS * TILE_COLUMNS], k[STAGES][BOXES][KEY_BOX], v[STAGES][BOXES][KEY_BOX];
    struct cuda_key_bounds bounds[STAGES][KEYS]; /* for tiles that are partly seen */
    i32 whole[STAGES];                           /* or NO_MORE */
    u64 q_full, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
};

/* ---- The producer: one warp ---- */
template <int D>
__device__ static void load_queries(struct attention_shared<D> *s, const struct attention_call &p, const tile_map *q,
                                    i64 row)
{
    mbarrier_arrive_expecting(&s->q_full, sizeof s->q);
    for (int group = 0; group < CONSUMERS; group++)
        for (int i = 0; i < attention_shared<D>::BOXES; i++)
            tile_load(s->q[group][i], q, &s->q_full, i * TILE_COLUMNS, (i32)(blockIdx.y * p.heads.group),
                      (i32)((row + group * ROWS) / p.heads.group));
}

template <int D>
__device__ static void load_keys(struct attention_shared<D> *s, const struct attention_call &p, const tile_map *k,
                                 const tile_map *v, struct copy_ring r, i64 tile, bool whole)
{
    int lane = threadIdx.x % WARP_THREADS;
    mbarrier_wait(&s->k_empty[r.at], r.phase);
    for (int j = lane; !whole && j < KEYS; j += WARP_THREADS)
        s->bounds[r.at][j] = bounds_of(p.of, tile * KEYS + j);
    if (lane == 0)
        s->whole[r.at] = whole;
    __syncwarp();
    if (lane != 0)
        return;
    mbarrier_arrive_expecting(&s->k_full[r.at], sizeof s->k[0]);
    for (int i = 0; i < attention_shared<D>::BOXES; i++)
        tile_load(s->k[r.at][i], k, &s->k_full[r.at], i * TILE_COLUMNS, (i32)blockIdx.y, (i32)(tile * KEYS));
    mbarrier_wait(&s->v_empty[r.at], r.phase);
    mbarrier_arrive_expecting(&s->v_full[r.at], sizeof s->v[0]);
    for (int i = 0; i < attention_shared<D>::BOXES; i++)
        tile_load(s->v[r.at][i], v, &s->v_full[r.at], i * TILE_COLUMNS, (i32)blockIdx.y, (i32)(tile * KEYS));
}

/* First and last query index of a block's rows. */
struct query_range {
    i32 first, last;
};
__device__ static struct query_range queries_of(const struct attention_call &p, i64 block)
{
    i64 first = block * BLOCK_ROWS, last = first + BLOCK_ROWS < p.rows ? first + BLOCK_ROWS - 1 : p.rows - 1;
    return {p.of.query[first / p.heads.group], p.of.query[last / p.heads.group]};
}

/* One block per row block of `attend`, for one head. */
static __global__ void find_ranges(struct attention_call p)
{
    grid_wait();
    struct query_range queries = queries_of(p, blockIdx.x);
    struct tile_range range = range_of((p.of.keys + KEYS - 1) / KEYS, [&](i64 tile) {
        return visibility_of(p.spans[tile], queries.first, queries.last);
    });
    if (threadIdx.x == 0)
        p.ranges[blockIdx.x] = range;
}

/* Loads the key tiles that the rows of `block` see. */
template <int D>
__device__ static void produce(struct attention_shared<D> *s, const struct attention_call &p, const tile_map *k,
                               const tile_map *v, i64 block)
{
    struct query_range queries = queries_of(p, block);
    struct copy_ring r = {0, 1}; /* all stages start empty */
    each_visible(
        p.ranges[block], [&](i64 tile) { return visibility_of(p.spans[tile], queries.first, queries.last); },
        [&](i64 tile, bool whole) {
            load_keys<D>(s, p, k, v, r, tile, whole);
            advance<STAGES>(&r);
        });
    mbarrier_wait(&s->k_empty[r.at], r.phase);
    if (threadIdx.x % WARP_THREADS == 0) {
        s->whole[r.at] = NO_MORE;
        mbarrier_arrive(&s->k_full[r.at]);
    }
}

/* ---- Consumers: one warpgroup each ----
 * A thread has rows lane / 4 and lane / 4 + 8 (halves) of its warp's 16 rows of a product. */
template <int D> struct state {
    float out[D / 2], most[2], sum[2];
    i32 query[2];
};

/* x [64, KEYS] = q k^T */
template <int D>
__device__ static void start_scores(float (&x)[KEYS / 2], struct attention_shared<D> *s, int group, u32 at)
{
    warpgroup_fence();
    multiply_rows<D>(x, s->q[group], s->k[at]);
    warpgroup_commit();
}
/* out [64, D] += weights v */
template <int D>
__device__ static void start_values(float (&out)[D / 2], const u32 (&weights)[KEYS / 16][4],
                                    struct attention_shared<D> *s, u32 at)
{
    u64 v = tile_descriptor(s->v[at], attention_shared<D>::KEY_BOX * 2);
    keep_in_place(out);
    warpgroup_fence();
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++)
        warpgroup_mma<BY_COLUMNS>(out, weights[j], further<BY_COLUMNS>(v, 16 * j), true);
    warpgroup_commit();
}

[[maybe_unused]] __device__ static void mask(float (&x)[KEYS / 2], const struct cuda_key_bounds *bounds,
                                             const i32 (&query)[2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i += 4)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            struct cuda_key_bounds key = bounds[i * 2 + threadIdx.x % 4 * 2 + c];
            x[i + c] = sees(query[0], key) ? x[i + c] : -INFINITY;
            x[i + 2 + c] = sees(query[1], key) ? x[i + 2 + c] : -INFINITY;
        }
}

/* Online softmax: each score becomes 2^(scale score - running maximum). Returns the factor that
 * rescales the earlier sums. */
template <int D> __device__ static float softmax_row(struct state<D> *r, float (&x)[KEYS / 2], int half, float scale)
{
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 2 * half; i < KEYS / 2; i += 4)
        most = fmaxf(most, fmaxf(x[i], x[i + 1]));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    most = fmaxf(r->most[half], most * scale);
    float base = most == -INFINITY ? 0 : most, rescale = exp2_approximate(r->most[half] - base);
#pragma unroll
    for (int i = 2 * half; i < KEYS / 2; i += 4)
#pragma unroll
        for (int c = i; c < i + 2; c++) {
            x[c] = exp2_approximate(x[c] * scale - base);
            sum += x[c];
        }
    r->most[half] = most;
    r->sum[half] = r->sum[half] * rescale + sum;
    return rescale;
}

/* Turns the scores of the tile at `at` into weights. factor rescales what was summed before. */
template <int D>
__device__ static void take_scores(struct state<D> *r, float (&x)[KEYS / 2], float (&factor)[2],
                                   struct attention_shared<D> *s, u32 at, float scale)
{
    keep_in_place(x);
    if (!s->whole[at])
        mask(x, s->bounds[at], r->query);
    mbarrier_release(&s->k_empty[at]);
    factor[0] = softmax_row<D>(r, x, 0, scale);
    factor[1] = softmax_row<D>(r, x, 1, scale);
}

/* The named barrier that signals this warpgroup's turn. */
[[maybe_unused]] __device__ static int turn_barrier(int group)
{
    return 1 + group;
}

template <int D>
__device__ static void consume(struct state<D> *r, struct attention_shared<D> *s, int group, float scale)
{
    struct copy_ring next = {0, 0}, before;
    float x[KEYS / 2], factor[2];
    u32 weights[KEYS / 16][4];
    if (group == 1)
        barrier_arrive_only(turn_barrier(0), CONSUMER_THREADS);
    mbarrier_wait(&s->q_full, 0);
    mbarrier_wait(&s->k_full[0], 0);
    if (s->whole[0] == NO_MORE)
        return;
    start_scores<D>(x, s, group, 0);
    warpgroup_wait<0>();
    take_scores<D>(r, x, factor, s, 0, scale);
    pack_factors(weights, x);
    before = next;
    advance<STAGES>(&next);
    mbarrier_wait(&s->k_full[next.at], next.phase);
    while (s->whole[next.at] != NO_MORE) {
        struct copy_ring after = next;
        advance<STAGES>(&after);
        barrier_sync(turn_barrier(group), CONSUMER_THREADS);
        start_scores<D>(x, s, group, next.at);
        mbarrier_wait(&s->v_full[before.at], before.phase);
        start_values<D>(r->out, weights, s, before.at);
        barrier_arrive_only(turn_barrier(1 - group), CONSUMER_THREADS);
        warpgroup_wait<1>();
        take_scores<D>(r, x, factor, s, next.at, scale);
        mbarrier_wait(&s->k_full[after.at],
                      /* placed here because code does not move past this wait's loop, but would
                       * past the next wait */
                      after.phase);
        warpgroup_wait<0>();
        keep_in_place(r->out);
        keep_in_place(weights);
        mbarrier_release(&s->v_empty[before.at]);
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            r->out[i] *= factor[i / 2 % 2];
        pack_factors(weights, x);
        before = next;
        next = after;
    }
    mbarrier_wait(&s->v_full[before.at], before.phase);
    start_values<D>(r->out, weights, s, before.at);
    warpgroup_wait<0>();
    keep_in_place(r->out);
    keep_in_place(weights);
}

template <int D> __device__ static void store_rows(const struct attention_call &p, const struct state<D> &r, i64 first)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        i64 row = first + threadIdx.x % WARP_THREADS / 4 + 8 * half;
        float sum = r.sum[half] + __shfl_xor_sync(0xffffffffu, r.sum[half], 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (row >= p.rows)
            continue;
        store_row<D>(head_row<bf16>(p.out, p.heads, blockIdx.y, row), (const float(&)[D / 8][4]) r.out, half,
                     p.heads.width, sum > 0 ? 1 / sum : 0);
        if (threadIdx.x % 4 == 0)
            store_lse(p, blockIdx.y, row, r.most[half], sum);
    }
}

template <int D> __device__ static void init_barriers(struct attention_shared<D> *s)
{
    mbarrier_init(&s->q_full, 1);
    ring_init(s->k_full, s->k_empty, WARPS);
    ring_init(s->v_full, s->v_empty, WARPS);
    fence_proxy_async();
}

/* A block handles BLOCK_ROWS rows of a key-value head. Under a causal mask late rows see the most
 * keys, so they start first. */
template <int D>
static __global__ void __launch_bounds__(THREADS, 1)
    attend(struct attention_call p, const __grid_constant__ tile_map q, const __grid_constant__ tile_map k,
           const __grid_constant__ tile_map v)
{
    grid_wait();
#ifdef WEFT_HOPPER
    DYNAMIC_SHARED(struct attention_shared<D>, s);
    i64 block = gridDim.x - 1 - blockIdx.x, first = block * BLOCK_ROWS;
    int warp = warp_of_block();
    if (threadIdx.x == 0)
        init_barriers<D>(s);
    __syncthreads();
    if (warp >= WARPS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMER_THREADS)
            load_queries<D>(s, p, &q, first);
        if (warp == WARPS)
            produce<D>(s, p, &k, &v, block);
        return;
    }
    registers_take<CONSUMER_REGISTERS>();
    struct state<D> r = {
        {}, {-INFINITY, -INFINITY}, {}, {}
    };
    i64 own = first + warp * 16;
    for (int half = 0; half < 2; half++) {
        i64 row = own + threadIdx.x % WARP_THREADS / 4 + 8 * half;
        r.query[half] = p.of.query[(row < p.rows ? row : p.rows - 1) / p.heads.group];
    }
    consume<D>(&r, s, warp / 4, rsqrtf((float)p.heads.width) * LOG2_E);
    store_rows<D>(p, r, own);
#endif
}

/* ---- Host side ---- */
template <int D> static void launch(struct device *device, const struct attention_call &p)
{
    i64 width = p.heads.width, group = p.heads.group,
        bytes = round_up((i64)sizeof(struct attention_shared<D>), TILE_ALIGNMENT);
    dim3 grid((unsigned)ceil_div(p.rows, BLOCK_ROWS), (unsigned)p.heads.kv_count);
    launch_summary(device, p.spans, p.of, KEYS);
    LAUNCH(device, find_ranges, grid.x, BLOCK_THREADS, 0, p);
    CUDA_CHECK(cudaFuncSetAttribute(attend<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    LAUNCH(device, attend<D>, grid, THREADS, bytes, p, map_of_heads(p.q, width, (int)group, (int)(ROWS / group)),
           map_of_heads(p.k, width, 1, KEYS), map_of_heads(p.v, width, 1, KEYS));
}

bool attention_hopper(struct device *device, struct attention_call p)
{
    i64 spans = ceil_div(p.of.keys, KEYS), blocks = ceil_div(p.rows, BLOCK_ROWS),
        bytes = spans * (i64)sizeof *p.spans + blocks * (i64)sizeof *p.ranges;
    p.ranges = (struct tile_range *)(p.spans + spans);
    if (bytes > cuda_handles_of(device)->workspace_bytes || !cuda_handles_of(device)->hopper || !p.vector ||
        p.heads.width > 128 || ROWS % p.heads.group != 0 || p.of.keys == 0 || p.of.keys >= INT32_MAX ||
        p.rows >= INT32_MAX)
        return false;
    if (p.heads.width <= 64)
        launch<64>(device, p);
    else
        launch<128>(device, p);
    return true;
}
