#include "kernels/cuda/attention/attention.h"

/* Forward of flash attention (Dao et al. 2022). A block keeps a tile of queries and iterates over
 * tiles of keys with an online softmax: when a query's running maximum grows, its sum and output
 * are rescaled. Tiles that no query of the block sees are skipped.
 *
 *              keys ->
 *     rows  |  seen  | part | none |      seen: no mask; part: masked; none: skipped
 *      |    |  seen  | seen | part |      a block owns one row of tiles, or with splits
 *      v    |  seen  | seen | seen |      a range of that row
 *
 *     with splits (few rows, as in decoding) a row of tiles is shared by blocks along z:
 *
 *               keys ->  | split 0 | split 1 | split 2 |    each leaves its m, l and O in the
 *                        | m, l, O | m, l, O | m, l, O |    workspace; the block that ends last
 *                                                           joins them in the order of the keys
 *
 *     Br     ROWS 64, 16 a warp (f32: QUERIES 32)
 *     Bc     key_tile<D>::COUNT, 64, or 32 for D > 128 (f32: KEYS 32); two tiles in shared memory
 *     m, l   most, sum; for bf16 scores and m are times log2 e      exp(m_old - m_new)  rescale
 *     O      row_state.out (f32: running.own), divided by l in store_rows      L  lse
 *
 * Source of the splits: Flash-Decoding (Dao et al. 2023). Which tiles a block sees is found from
 * summaries of the keys (key_span) by attention.h. */

/* ---- f32 on ordinary registers: a block handles QUERIES queries of one head ---- */
enum { QUERIES = 32, KEYS = 32, LANES = BLOCK_THREADS / QUERIES, WIDTH_MOST = 256 };

struct attention_plain_call {
    struct matrix out, q, k, v;
    float *lse;
    i64 heads, kv_heads, width;
    struct intervals intervals;
};

/* Loads rows of `from` as f32 [rows, width] with one float of padding per row. Rows past the end
 * are zero. */
template <typename T>
__device__ static void load_plain(float *tile, struct matrix from, i64 first, int rows, i64 column, i64 width)
{
    for (i64 i = threadIdx.x; i < rows * width; i += BLOCK_THREADS) {
        i64 row = first + i / width;
        tile[i / width * (width + 1) + i % width] =
            row < from.rows ? to_f32(row_of<T>(from, row)[column + i % width]) : 0.0f;
    }
}

/* True if a query in [first, last] may see a key of the tile. The test is exact except for holes
 * narrower than the block. */
__device__ static bool tile_is_visible(const struct intervals &of, i32 first, i32 last, i64 key)
{
    int seen = 0;
    for (i64 j = key + threadIdx.x; j < of.keys && j < key + KEYS; j += BLOCK_THREADS)
        seen |= of.begin[j] <= last && first < of.end[j] && !(of.hole_begin[j] <= first && last < of.hole_end[j]);
    return __syncthreads_or(seen);
}

/* Scores of one query against the KEYS of a tile, with LANES threads per query. -inf where a key is
 * not seen. */
__device__ static void fill_scores(float *scores, const float *q, const float *k, const struct attention_plain_call &p,
                                   i32 query, bool live, i64 key, int lane)
{
    float scale = rsqrtf((float)p.width);
    for (int j = lane; j < KEYS; j += LANES) {
        float sum = 0;
        for (i64 c = 0; c < p.width; c++)
            sum += q[c] * k[j * (p.width + 1) + c];
        bool seen = live && sees(query, bounds_of(p.intervals, key + j));
        scores[j] = seen ? sum * scale : -INFINITY;
    }
}

struct online_softmax {
    float most, sum, own[WIDTH_MOST / LANES]; /* output columns lane, lane + LANES, ... */
};

__device__ static void take_tile(struct online_softmax *r, const float *scores, const float *v, i64 width, int lane)
{
    float most = r->most;
    for (int j = 0; j < KEYS; j++)
        most = fmaxf(most, scores[j]);
    if (most == -INFINITY)
        return;
    float rescale = expf(r->most - most);
    r->sum *= rescale;
#pragma unroll
    for (int i = 0; i < WIDTH_MOST / LANES; i++)
        r->own[i] *= rescale;
    for (int j = 0; j < KEYS; j++) {
        float p = expf(scores[j] - most);
        r->sum += p;
#pragma unroll
        for (int i = 0; i < WIDTH_MOST / LANES; i++)
            if (lane + i * LANES < width)
                r->own[i] += p * v[j * (width + 1) + lane + i * LANES];
    }
    r->most = most;
}

template <typename T>
__device__ static void store(const struct attention_plain_call &p, i64 row, i64 head, int lane,
                             struct online_softmax *r)
{
    T *out = row_of<T>(p.out, row) + head * p.width;
#pragma unroll
    for (int i = 0; i < WIDTH_MOST / LANES; i++)
        if (lane + i * LANES < p.width)
            out[lane + i * LANES] = from_f32<T>(r->sum > 0 ? r->own[i] / r->sum : 0.0f);
    if (lane == 0)
        p.lse[row * p.heads + head] = r->sum > 0 ? r->most + logf(r->sum) : -INFINITY;
}

template <typename T> static __global__ void attend(struct attention_plain_call p)
{
    grid_wait();
    DYNAMIC_SHARED(float, shared);
    i64 padded = p.width + 1, head = blockIdx.y, first = (i64)blockIdx.x * QUERIES;
    float *q = shared, *k = q + QUERIES * padded, *v = k + KEYS * padded, *scores = v + KEYS * padded;
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    i64 end = first + QUERIES, last = (end < p.intervals.queries ? end : p.intervals.queries) - 1,
        column = head / (p.heads / p.kv_heads) * p.width;
    bool live = first + row <= last;
    i32 query = p.intervals.query[live ? first + row : last];
    struct online_softmax r = {-INFINITY, 0, {}};
    load_plain<T>(q, p.q, first, QUERIES, head * p.width, p.width);
    for (i64 key = 0; key < p.intervals.keys; key += KEYS) {
        if (!tile_is_visible(p.intervals, p.intervals.query[first], p.intervals.query[last], key))
            continue;
        load_plain<T>(k, p.k, key, KEYS, column, p.width);
        load_plain<T>(v, p.v, key, KEYS, column, p.width);
        __syncthreads();
        fill_scores(scores + row * KEYS, q + row * padded, k, p, query, live, key, lane);
        __syncthreads();
        take_tile(&r, scores + row * KEYS, v, p.width, lane);
    }
    if (live)
        store<T>(p, first + row, head, lane, &r);
}

static void launch_plain(struct device *device, const struct attention_plain_call &p)
{
    dim3 grid((unsigned)ceil_div(p.intervals.queries, QUERIES), (unsigned)p.heads);
    i64 bytes = ((QUERIES + 2 * KEYS) * (p.width + 1) + QUERIES * KEYS) * 4;
    CUDA_CHECK(cudaFuncSetAttribute(attend<float>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    LAUNCH(device, attend<float>, grid, BLOCK_THREADS, bytes, p);
}

/* ---- bf16 on tensor cores (mma.sync) ----
 * A warp keeps 16 rows of a key-value head; a block has WARPS warps. The next tile of keys is
 * copied while the current one is used. With few rows, several blocks share the keys of each row
 * tile (splits). The block that finishes last combines the splits, in the order of the keys. */
enum { WARPS = 4, ROWS = 16 * WARPS, THREADS = WARPS * WARP_THREADS, BLOCKS_ENOUGH = 128, TILES_ENOUGH = 4 };
enum { TILES_FEW = 16 /* up to this many tiles a block reads bounds itself */, JOINED = 8 };

template <int D> struct key_tile {
    enum { COUNT = D > 128 ? 32 : 64 };
};
template <int D> struct attention_tiles {
    struct padded_row<D> q[ROWS], k[2][key_tile<D>::COUNT], v[2][key_tile<D>::COUNT];
    struct cuda_key_bounds bounds[2][key_tile<D>::COUNT];
    struct tile_list list;
};
/* A warp's 16 rows; each lane has two of them. */
template <int D> struct row_state {
    float out[D / 8][4], most[2], sum[2];
    i32 query[2];
};

template <int D>
__device__ static void load_keys(struct attention_tiles<D> *s, const struct attention_call &p, int to, i64 tile,
                                 bool whole)
{
    enum { COUNT = key_tile<D>::COUNT };
    i64 first = tile * COUNT, column = blockIdx.y * p.heads.width;
    load_tile<D>(s->k[to], COUNT, first, p.of.keys, p.heads.width, p.vector,
                 [&](i64 key) { return row_of<bf16>(p.k, key) + column; });
    load_tile<D>(s->v[to], COUNT, first, p.of.keys, p.heads.width, p.vector,
                 [&](i64 key) { return row_of<bf16>(p.v, key) + column; });
    if (!whole && threadIdx.x < COUNT)
        s->bounds[to][threadIdx.x] = bounds_of(p.of, first + threadIdx.x);
}

template <int D, int N>
__device__ static void mask(float (&x)[N / 8][4], const struct cuda_key_bounds *bounds, const i32 (&query)[2])
{
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            struct cuda_key_bounds key = bounds[j * 8 + threadIdx.x % 4 * 2 + c];
            x[j][c] = sees(query[0], key) ? x[j][c] : -INFINITY;
            x[j][2 + c] = sees(query[1], key) ? x[j][2 + c] : -INFINITY;
        }
}

/* Online softmax of one of the lane's rows (`half`): each score becomes 2^(scale score - running
 * maximum). The sum and the output are rescaled to the new maximum. */
template <int D, int N>
__device__ static void softmax_row(struct row_state<D> *r, float (&x)[N / 8][4], int half, float scale)
{
    float most = r->most[half];
#pragma unroll
    for (int j = 0; j < N / 8; j++)
        most = fmaxf(most, fmaxf(x[j][2 * half], x[j][2 * half + 1]) * scale);
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    float base = most == -INFINITY ? 0 : most, rescale = exp2_approximate(r->most[half] - base);
    r->sum[half] *= rescale;
    r->most[half] = most;
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        r->out[j][2 * half] *= rescale;
        r->out[j][2 * half + 1] *= rescale;
    }
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int c = 2 * half; c < 2 * half + 2; c++) {
            x[j][c] = exp2_approximate(x[j][c] * scale - base);
            r->sum[half] += x[j][c];
        }
}

template <int D>
__device__ static void take_keys(struct row_state<D> *r, struct attention_tiles<D> *s, int at, bool whole, float scale)
{
    enum { N = key_tile<D>::COUNT };
    float x[N / 8][4] = {};
    add_scores<D, N>(x, s->q, threadIdx.x / WARP_THREADS * 16, s->k[at]);
    if (!whole)
        mask<D, N>(x, s->bounds[at], r->query);
    softmax_row<D, N>(r, x, 0, scale);
    softmax_row<D, N>(r, x, 1, scale);
    add_weighted<D, N>(r->out, x, s->v[at]);
}

/* Writes to the list which of tiles first .. end - 1 the queries see. One warp handles one tile. */
template <int D>
__device__ static void find_visible(struct tile_list *list, struct intervals of, i64 first, i64 end, i32 first_query,
                                    i32 last_query)
{
    enum { COUNT = key_tile<D>::COUNT };
    for (i64 tile = first + threadIdx.x / WARP_THREADS; tile < end; tile += WARPS) {
        enum visibility seen = visibility_of(span_of(of, tile * COUNT, COUNT), first_query, last_query);
        if (threadIdx.x % WARP_THREADS == 0)
            list->at[tile - first] = seen;
    }
}

/* Processes key tiles first .. end - 1. */
template <int D>
__device__ static void walk_keys(struct row_state<D> *r, struct attention_tiles<D> *s, const struct attention_call &p,
                                 i64 first, i64 end)
{
    i64 row = (i64)blockIdx.x * ROWS, last = row + ROWS < p.rows ? row + ROWS - 1 : p.rows - 1;
    i32 first_query = p.of.query[row / p.heads.group], last_query = p.of.query[last / p.heads.group];
    float scale = rsqrtf((float)p.heads.width) * LOG2_E;
    bool live = row + threadIdx.x / WARP_THREADS * 16 < p.rows;
    for (i64 section = first; section < end; section += LISTED_MOST) {
        i64 after = section + LISTED_MOST < end ? section + LISTED_MOST : end;
        if (!p.spans)
            find_visible<D>(&s->list, p.of, section, after, first_query, last_query);
        i32 count = list_tiles(&s->list, section, after, [&](i64 tile) {
            return p.spans ? visibility_of(p.spans[tile], first_query, last_query)
                           : (enum visibility)s->list.at[tile - section];
        });
        walk_list(
            &s->list, count, [&](int to, i64 tile, bool whole) { load_keys(s, p, to, tile, whole); },
            [&](int at, bool whole) {
                if (live)
                    take_keys<D>(r, s, at, whole, scale);
            });
    }
}

template <int D>
__device__ static void store_split(const struct attention_call &p, const struct row_state<D> &r, int half, i64 row)
{
    i64 at = (blockIdx.z * p.heads.kv_count + blockIdx.y) * p.rows + row;
    float *to = p.split.out + at * p.split.stride + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < D / 8; j++)
        if (r.most[half] > -INFINITY && j * 8 + threadIdx.x % 4 * 2 < p.heads.width)
            *(float2 *)(to + j * 8) = make_float2(r.out[j][2 * half], r.out[j][2 * half + 1]);
    if (threadIdx.x % 4 == 0)
        p.split.sums[at] = make_float2(r.most[half], r.sum[half]);
}

template <int D> __device__ static void store_rows(const struct attention_call &p, struct row_state<D> *r, i64 first)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        i64 row = first + threadIdx.x % WARP_THREADS / 4 + 8 * half;
        float sum = r->sum[half] + __shfl_xor_sync(0xffffffffu, r->sum[half], 1);
        r->sum[half] = sum = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
        if (row >= p.rows)
            continue;
        if (p.split.count > 1) {
            store_split<D>(p, *r, half, row);
            continue;
        }
        store_row<D>(head_row<bf16>(p.out, p.heads, blockIdx.y, row), r->out, half, p.heads.width,
                     sum > 0 ? 1 / sum : 0);
        if (threadIdx.x % 4 == 0)
            store_lse(p, blockIdx.y, row, r->most[half], sum);
    }
}

/* Combines the splits of four columns of a row in order, JOINED splits loaded at once. `at` is the
 * row in the first split. */
__device__ static void join_quad(bf16 *to, const struct attention_call &p, i64 at, i64 column, float base, float sum)
{
    float value[QUAD] = {};
    for (i64 first = 0; first < p.split.count; first += JOINED) {
        float factor[JOINED];
        elements<float, QUAD> part[JOINED];
#pragma unroll
        for (int i = 0; i < JOINED; i++) {
            i64 from = at + (first + i) * p.heads.kv_count * p.rows;
            factor[i] = first + i < p.split.count ? exp2f(p.split.sums[from].x - base) : 0;
            part[i] = {};
            if (factor[i] != 0)
                part[i] = load<QUAD>(p.split.out + from * p.split.stride + column);
        }
#pragma unroll
        for (int i = 0; i < JOINED; i++)
#pragma unroll
            for (int c = 0; c < QUAD; c++)
                value[c] += part[i].at[c] * factor[i];
    }
    for (int c = 0; c < QUAD && column + c < p.heads.width; c++)
        to[column + c] = from_f32<bf16>(sum > 0 ? value[c] / sum : 0);
}

/* Combines the splits of the block's rows. */
__device__ static void join_splits(const struct attention_call &p)
{
    SHARED(float2, totals, ROWS); /* maximum and sum over all splits */
    i64 first = (i64)blockIdx.x * ROWS, rows = p.rows - first < ROWS ? p.rows - first : (i64)ROWS;
    i64 at = blockIdx.y * p.rows + first, quads = p.split.stride / QUAD;
    if (threadIdx.x < rows) {
        const float2 *sums = p.split.sums + at + threadIdx.x;
        float most = -INFINITY, sum = 0;
#pragma unroll JOINED
        for (i64 i = 0; i < p.split.count; i++)
            most = fmaxf(most, sums[i * p.heads.kv_count * p.rows].x);
        float base = most == -INFINITY ? 0 : most;
#pragma unroll JOINED
        for (i64 i = 0; i < p.split.count; i++) {
            float2 split = sums[i * p.heads.kv_count * p.rows];
            sum += split.y * exp2f(split.x - base);
        }
        totals[threadIdx.x] = make_float2(base, sum);
        store_lse(p, blockIdx.y, first + threadIdx.x, most, sum);
    }
    __syncthreads();
    for (i64 i = threadIdx.x; i < rows * quads; i += THREADS) {
        i64 row = i / quads;
        join_quad(head_row<bf16>(p.out, p.heads, blockIdx.y, first + row), p, at + row, i % quads * QUAD, totals[row].x,
                  totals[row].y);
    }
}

/* Grid: x = tiles of ROWS rows, y = key-value heads, z = splits of the keys. */
template <int D> static __global__ void __launch_bounds__(THREADS) attend_mma(struct attention_call p)
{
    grid_wait();
    DYNAMIC_SHARED(char, memory);
    struct attention_tiles<D> *s = (struct attention_tiles<D> *)memory;
    i64 first = (i64)blockIdx.x * ROWS, own = first + threadIdx.x / WARP_THREADS * 16;
    i64 tiles = (p.of.keys + key_tile<D>::COUNT - 1) / key_tile<D>::COUNT, begin = blockIdx.z * p.split.tiles;
    struct row_state<D> r = {
        {}, {-INFINITY, -INFINITY}, {}, {}
    };
#pragma unroll
    for (int half = 0; half < 2; half++) {
        i64 row = own + threadIdx.x % WARP_THREADS / 4 + 8 * half;
        r.query[half] = p.of.query[(row < p.rows ? row : p.rows - 1) / p.heads.group];
    }
    load_tile<D>(s->q, ROWS, first, p.rows, p.heads.width, p.vector,
                 [&](i64 row) { return head_row<bf16>(p.q, p.heads, blockIdx.y, row); });
    walk_keys<D>(&r, s, p, begin, begin + p.split.tiles < tiles ? begin + p.split.tiles : tiles);
    copies_wait<0>();
    store_rows<D>(p, &r, own);
    u32 *arrived = &p.split.arrived[blockIdx.y * gridDim.x + blockIdx.x];
    if (p.split.count > 1 && block_is_last(arrived, (u32)p.split.count))
        join_splits(p);
}

/* Chooses the number of splits from shapes alone. */
static struct attention_split split_of(struct device *device, const struct attention_call &p, i64 tiles)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    i64 blocks = ceil_div(p.rows, ROWS) * p.heads.kv_count, rows = p.heads.kv_count * p.rows;
    i64 wanted = max_i64(1, min_i64(BLOCKS_ENOUGH / blocks, tiles / TILES_ENOUGH));
    struct attention_split split = {};
    split.tiles = max_i64(ceil_div(tiles, wanted), 1);
    split.count = max_i64(ceil_div(tiles, split.tiles), 1);
    split.stride = round_up(p.heads.width, QUAD);
    split.arrived = handles->counters;
    split.out = (float *)(p.spans + tiles);
    split.sums = (float2 *)(split.out + split.count * rows * split.stride);
    i64 bytes =
        tiles * (i64)sizeof(struct key_span) + (split.count > 1 ? split.count * rows * (split.stride + 2) * 4 : 0);
    require(bytes <= handles->workspace_bytes && (split.count == 1 || blocks <= CUDA_COUNTERS),
            "attention: %lld keys in %lld splits of %lld blocks", (long long)p.of.keys, (long long)split.count,
            (long long)blocks);
    return split;
}

template <int D> static void launch_mma(struct device *device, struct attention_call p)
{
    i64 tiles = ceil_div(p.of.keys, key_tile<D>::COUNT);
    int bytes = (int)sizeof(struct attention_tiles<D>);
    p.split = split_of(device, p, tiles);
    if (p.split.count == 1 && attention_hopper(device, p))
        return;
    dim3 grid((unsigned)ceil_div(p.rows, ROWS), (unsigned)p.heads.kv_count, (unsigned)p.split.count);
    if (p.split.tiles > TILES_FEW)
        launch_summary(device, p.spans, p.of, key_tile<D>::COUNT);
    else
        p.spans = NULL;
    CUDA_CHECK(cudaFuncSetAttribute(attend_mma<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    LAUNCH(device, attend_mma<D>, grid, THREADS, bytes, p);
}

static void launch_by_width(struct device *device, const struct attention_call &p)
{
    if (p.heads.width <= 32)
        launch_mma<32>(device, p);
    else if (p.heads.width <= 64)
        launch_mma<64>(device, p);
    else if (p.heads.width <= 128)
        launch_mma<128>(device, p);
    else
        launch_mma<256>(device, p);
}

extern "C" void cuda_attention(struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,
                               struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals)
{
    i64 width = q.columns / heads;
    require(width <= WIDTH_MOST, "attention: heads of %lld", (long long)width);
    if (intervals->queries == 0)
        return;
    if (q.dtype == DTYPE_F32) {
        launch_plain(device, {out, q, k, v, lse, heads, kv_heads, width, *intervals});
        return;
    }
    struct attention_call p = {out, q, k, v, lse, heads_of(q, heads, kv_heads), *intervals, NULL, NULL, {}, 0, 0};
    p.spans = (struct key_span *)cuda_handles_of(device)->workspace;
    p.rows = intervals->queries * p.heads.group;
    p.vector = reads_vectors(q, width) && reads_vectors(k, width) && reads_vectors(v, width);
    launch_by_width(device, p);
}
