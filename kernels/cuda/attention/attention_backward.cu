#include "kernels/cuda/attention/attention.h"

/* Backward of flash attention (Dao et al. 2022, algorithm 4) in two passes, so that every sum has
 * one owner and needs no atomics. In the first pass a block keeps the gradients of a tile of keys
 * and iterates over the rows that see it. In the second, a block keeps the gradients of a tile of
 * rows and iterates over its keys. Both passes recompute p from lse. With ds = p (dp - delta),
 * delta = dout . out (eq. 4 of the paper's appendix B): dv = p^T dout, dk = ds^T q D^-1/2, dq = ds
 * k D^-1/2.
 *
 *     pass 1: block = column of tiles          pass 2: block = row of tiles
 *        keys ->                                  keys ->
 *     rows | * |   |   |  dk, dv              rows | * | * | * |  dq
 *      v   | * |   |   |                       v   |   |   |   |
 *
 *     pass 1     kept: KEPT 64 keys, 16 a warp     Br  64 rows a step (32 for D > 64)
 *     pass 2     kept: KEPT 64 rows, 16 a warp     Bc  64 keys a step
 *     f32        TILE 32 of both, as do heads wider than TENSOR_WIDTH_MOST (128)
 *     L, D_i     statistics.lse (times log2 e), statistics.delta
 *
 * attention_backward_hopper.cu has both passes for wgmma. */
enum { TILE = 32, LANES = BLOCK_THREADS / TILE, WIDTH_MOST = 256 };

/* One warp handles one query and head. */
template <typename T> static __global__ void fill_statistics(struct attention_backward_call b)
{
    grid_wait();
    i64 at = (i64)blockIdx.x * (BLOCK_THREADS / WARP_THREADS) + threadIdx.x / WARP_THREADS;
    if (at >= b.of.queries * b.heads.count)
        return;
    i64 query = at / b.heads.count, column = at % b.heads.count * b.heads.width;
    const T *dout = row_of<T>(b.dout, query) + column, *out = row_of<T>(b.out, query) + column;
    float sum = 0;
    for (i64 c = threadIdx.x % WARP_THREADS; c < b.heads.width; c += WARP_THREADS)
        sum += to_f32(dout[c]) * to_f32(out[c]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP_THREADS == 0)
        b.statistics[at] = {b.lse[at] == -INFINITY ? (float)UNSEEN_LSE : b.lse[at] * LOG2_E, sum};
}

/* Lists the tiles of `tile_rows` rows that see the keys of a span. */
__device__ static i32 list_rows(struct tile_list *list, const struct attention_backward_call &b, struct key_span span,
                                i64 section, i64 tile_rows)
{
    i64 tiles = (b.rows + tile_rows - 1) / tile_rows, end = section + LISTED_MOST;
    return list_tiles(list, section, end < tiles ? end : tiles, [&](i64 tile) {
        return visibility_of(span, query_of(b, tile * tile_rows), query_of(b, tile * tile_rows + tile_rows - 1));
    });
}
/* Lists the tiles of `tile_keys` keys that rows first .. last see. */
__device__ static i32 list_keys(struct tile_list *list, const struct attention_backward_call &b, i64 first, i64 last,
                                i64 section, i64 tile_keys)
{
    i64 tiles = (b.of.keys + tile_keys - 1) / tile_keys, end = section + LISTED_MOST;
    i32 first_query = query_of(b, first), last_query = query_of(b, last);
    return list_tiles(list, section, end < tiles ? end : tiles,
                      [&](i64 tile) { return visibility_of(b.spans[tile], first_query, last_query); });
}

/* ---- f32 on ordinary registers, LANES threads for each row or key of a tile ---- */
struct plain_tiles {
    float *q, *dout, *k, *v;                     /* [TILE][width + 1] */
    float p[TILE][TILE + 1], ds[TILE][TILE + 1]; /* [row][key] */
    struct tile_list list;
};

template <typename T>
__device__ static void load_rows(float *tile, struct matrix from, const struct attention_backward_call &b, i64 kv_head,
                                 i64 first)
{
    i64 width = b.heads.width;
    for (i64 i = threadIdx.x; i < TILE * width; i += BLOCK_THREADS) {
        i64 row = first + i / width;
        tile[i / width * (width + 1) + i % width] =
            row < b.rows ? to_f32(head_row<T>(from, b.heads, kv_head, row)[i % width]) : 0.0f;
    }
}
template <typename T>
__device__ static void load_keys(float *tile, struct matrix from, const struct attention_backward_call &b, i64 kv_head,
                                 i64 first)
{
    i64 width = b.heads.width;
    for (i64 i = threadIdx.x; i < TILE * width; i += BLOCK_THREADS) {
        i64 row = first + i / width;
        tile[i / width * (width + 1) + i % width] =
            row < from.rows ? to_f32(row_of<T>(from, row)[kv_head * width + i % width]) : 0.0f;
    }
}

/* Computes p and ds of a tile of rows and a tile of keys. */
__device__ static void fill_scores(struct plain_tiles *s, const struct attention_backward_call &b, i64 kv_head, i64 row,
                                   i64 key)
{
    i64 width = b.heads.width, i = threadIdx.x / LANES;
    struct row_statistics of_row = statistics_of(b, kv_head, row + i);
    i32 query = query_of(b, row + i);
    float scale = rsqrtf((float)width) * LOG2_E;
    for (i64 j = threadIdx.x % LANES; j < TILE; j += LANES) {
        float score = 0, dp = 0;
        for (i64 c = 0; c < width; c++) {
            score += s->q[i * (width + 1) + c] * s->k[j * (width + 1) + c];
            dp += s->dout[i * (width + 1) + c] * s->v[j * (width + 1) + c];
        }
        bool seen = row + i < b.rows && sees(query, bounds_of(b.of, key + j));
        s->p[i][j] = seen ? exp2f(score * scale - of_row.lse) : 0.0f;
        s->ds[i][j] = s->p[i][j] * (dp - of_row.delta);
    }
}

__device__ static struct plain_tiles *plain_tiles_of(char *memory, i64 width)
{
    struct plain_tiles *s = (struct plain_tiles *)memory;
    float *tiles = (float *)(s + 1);
    i64 floats = TILE * (width + 1);
    if (threadIdx.x == 0) {
        s->q = tiles;
        s->dout = tiles + floats;
        s->k = tiles + 2 * floats;
        s->v = tiles + 3 * floats;
    }
    __syncthreads();
    return s;
}
static i64 plain_bytes(i64 width)
{
    return (i64)sizeof(struct plain_tiles) + 4 * TILE * (width + 1) * 4;
}

/* Pass 1. A block handles TILE keys of a key-value head. */
template <typename T>
static __global__ void __launch_bounds__(BLOCK_THREADS) plain_keys(struct attention_backward_call b)
{
    grid_wait();
    DYNAMIC_SHARED(char, memory);
    i64 width = b.heads.width, kv_head = blockIdx.y, key = (i64)blockIdx.x * TILE, j = threadIdx.x / LANES;
    i64 lane = threadIdx.x % LANES, tiles = (b.rows + TILE - 1) / TILE;
    struct plain_tiles *s = plain_tiles_of(memory, width);
    float dk[WIDTH_MOST / LANES] = {}, dv[WIDTH_MOST / LANES] = {}, scale = rsqrtf((float)width);
    load_keys<T>(s->k, b.k, b, kv_head, key);
    load_keys<T>(s->v, b.v, b, kv_head, key);
    for (i64 section = 0; section < tiles; section += LISTED_MOST) {
        i32 count = list_rows(&s->list, b, b.spans[blockIdx.x], section, TILE);
        for (i32 n = 0; n < count; n++) {
            i64 row = listed_tile(&s->list, n) * TILE;
            load_rows<T>(s->q, b.q, b, kv_head, row);
            load_rows<T>(s->dout, b.dout, b, kv_head, row);
            __syncthreads();
            fill_scores(s, b, kv_head, row, key);
            __syncthreads();
            for (int i = 0; i < TILE; i++)
#pragma unroll
                for (int c = 0; c < WIDTH_MOST / LANES; c++)
                    if (lane + c * LANES < width) {
                        dk[c] += s->ds[i][j] * s->q[i * (width + 1) + lane + c * LANES];
                        dv[c] += s->p[i][j] * s->dout[i * (width + 1) + lane + c * LANES];
                    }
            __syncthreads();
        }
    }
#pragma unroll
    for (int c = 0; c < WIDTH_MOST / LANES; c++)
        if (key + j < b.of.keys && lane + c * LANES < width) {
            i64 column = kv_head * width + lane + c * LANES;
            row_of<T>(b.dk, key + j)[column] = from_f32<T>(dk[c] * scale);
            row_of<T>(b.dv, key + j)[column] = from_f32<T>(dv[c]);
        }
}

/* Pass 2. A block handles TILE rows of a key-value head. */
template <typename T>
static __global__ void __launch_bounds__(BLOCK_THREADS) plain_rows(struct attention_backward_call b)
{
    grid_wait();
    DYNAMIC_SHARED(char, memory);
    i64 width = b.heads.width, kv_head = blockIdx.y, row = (i64)blockIdx.x * TILE, i = threadIdx.x / LANES;
    i64 lane = threadIdx.x % LANES, tiles = (b.of.keys + TILE - 1) / TILE;
    struct plain_tiles *s = plain_tiles_of(memory, width);
    float dq[WIDTH_MOST / LANES] = {}, scale = rsqrtf((float)width);
    load_rows<T>(s->q, b.q, b, kv_head, row);
    load_rows<T>(s->dout, b.dout, b, kv_head, row);
    for (i64 section = 0; section < tiles; section += LISTED_MOST) {
        i32 count = list_keys(&s->list, b, row, row + TILE - 1, section, TILE);
        for (i32 n = 0; n < count; n++) {
            i64 key = listed_tile(&s->list, n) * TILE;
            load_keys<T>(s->k, b.k, b, kv_head, key);
            load_keys<T>(s->v, b.v, b, kv_head, key);
            __syncthreads();
            fill_scores(s, b, kv_head, row, key);
            __syncthreads();
            for (int j = 0; j < TILE; j++)
#pragma unroll
                for (int c = 0; c < WIDTH_MOST / LANES; c++)
                    if (lane + c * LANES < width)
                        dq[c] += s->ds[i][j] * s->k[j * (width + 1) + lane + c * LANES];
            __syncthreads();
        }
    }
#pragma unroll
    for (int c = 0; c < WIDTH_MOST / LANES; c++)
        if (row + i < b.rows && lane + c * LANES < width)
            head_row<T>(b.dq, b.heads, kv_head, row + i)[lane + c * LANES] = from_f32<T>(dq[c] * scale);
}

template <typename T> static void launch_plain(struct device *device, const struct attention_backward_call &b)
{
    i64 bytes = plain_bytes(b.heads.width);
    dim3 keys((unsigned)ceil_div(b.of.keys, TILE), (unsigned)b.heads.kv_count);
    dim3 rows((unsigned)ceil_div(b.rows, TILE), (unsigned)b.heads.kv_count);
    CUDA_CHECK(cudaFuncSetAttribute(plain_keys<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    CUDA_CHECK(cudaFuncSetAttribute(plain_rows<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    launch_summary(device, b.spans, b.of, TILE);
    if (b.of.keys > 0)
        LAUNCH(device, plain_keys<T>, keys, BLOCK_THREADS, bytes, b);
    if (b.rows > 0)
        LAUNCH(device, plain_rows<T>, rows, BLOCK_THREADS, bytes, b);
}

/* ---- bf16 on tensor cores (mma.sync) ----
 * The same two passes. A warp keeps 16 keys or rows; a block has WARPS warps. */
enum { WARPS = 4, KEPT = 16 * WARPS, THREADS = WARPS * WARP_THREADS, TENSOR_WIDTH_MOST = 128 };

template <int D> struct keys_tiles {
    enum { ROWS = D > 64 ? 32 : 64 }; /* rows per step; dk, dv and two products must fit in registers */
    struct padded_row<D> k[KEPT], v[KEPT], q[2][ROWS], dout[2][ROWS];
    struct row_statistics statistics[2][ROWS];
    i32 query[2][ROWS];
    struct tile_list list;
};
template <int D> struct rows_tiles {
    struct padded_row<D> q[KEPT], dout[KEPT], k[2][KEPT], v[2][KEPT];
    struct cuda_key_bounds bounds[2][KEPT];
    struct tile_list list;
};

template <int D>
__device__ static void load_rows_of(struct padded_row<D> *to, struct matrix from,
                                    const struct attention_backward_call &b, int count, i64 first)
{
    load_tile<D>(to, count, first, b.rows, b.heads.width, b.vector,
                 [&](i64 row) { return head_row<bf16>(from, b.heads, blockIdx.y, row); });
}
template <int D>
__device__ static void load_keys_of(struct padded_row<D> *to, struct matrix from,
                                    const struct attention_backward_call &b, i64 first)
{
    load_tile<D>(to, KEPT, first, b.of.keys, b.heads.width, b.vector,
                 [&](i64 key) { return row_of<bf16>(from, key) + blockIdx.y * b.heads.width; });
}

template <int D>
__device__ static void load_step(struct keys_tiles<D> *s, const struct attention_backward_call &b, int to, i64 first)
{
    load_rows_of<D>(s->q[to], b.q, b, keys_tiles<D>::ROWS, first);
    load_rows_of<D>(s->dout[to], b.dout, b, keys_tiles<D>::ROWS, first);
    if (threadIdx.x < keys_tiles<D>::ROWS) {
        s->statistics[to][threadIdx.x] = statistics_of(b, blockIdx.y, first + threadIdx.x);
        s->query[to][threadIdx.x] = query_of(b, first + threadIdx.x);
    }
}

/* Adds one step; products are [key, row]: dv += p^T dout, dk += ds^T q. */
template <int D>
__device__ static void take_rows(float (&dk)[D / 8][4], float (&dv)[D / 8][4], const struct keys_tiles<D> *s, int at,
                                 bool whole, const struct cuda_key_bounds (&bounds)[2], float scale)
{
    enum { N = keys_tiles<D>::ROWS };
    float p[N / 8][4] = {}, ds[N / 8][4] = {};
    int own = threadIdx.x / WARP_THREADS * 16;
    add_scores<D, N>(p, s->k, own, s->q[at]);
    add_scores<D, N>(ds, s->v, own, s->dout[at]);
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int row = j * 8 + threadIdx.x % 4 * 2 + c % 2;
            struct row_statistics of_row = s->statistics[at][row];
            p[j][c] =
                whole || sees(s->query[at][row], bounds[c / 2]) ? exp2_approximate(p[j][c] * scale - of_row.lse) : 0.0f;
            ds[j][c] = p[j][c] * (ds[j][c] - of_row.delta);
        }
    add_weighted<D, N>(dv, p, s->dout[at]);
    add_weighted<D, N>(dk, ds, s->q[at]);
}

template <int D>
__device__ static void walk_rows(float (&dk)[D / 8][4], float (&dv)[D / 8][4], struct keys_tiles<D> *s,
                                 const struct attention_backward_call &b, const struct cuda_key_bounds (&bounds)[2])
{
    enum { N = keys_tiles<D>::ROWS };
    float scale = rsqrtf((float)b.heads.width) * LOG2_E;
    struct key_span span = b.spans[blockIdx.x];
    for (i64 section = 0; section < (b.rows + N - 1) / N; section += LISTED_MOST) {
        i32 count = list_rows(&s->list, b, span, section, N);
        walk_list(
            &s->list, count, [&](int to, i64 tile, bool) { load_step<D>(s, b, to, tile * N); },
            [&](int at, bool whole) { take_rows<D>(dk, dv, s, at, whole, bounds, scale); });
    }
}

/* Pass 1. A block handles KEPT keys of a key-value head. */
template <int D> static __global__ void __launch_bounds__(THREADS) tensor_keys(struct attention_backward_call b)
{
    grid_wait();
    DYNAMIC_SHARED(char, memory);
    struct keys_tiles<D> *s = (struct keys_tiles<D> *)memory;
    i64 first = (i64)blockIdx.x * KEPT;
    i64 own = first + threadIdx.x / WARP_THREADS * 16 + threadIdx.x % WARP_THREADS / 4;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {}, scale = rsqrtf((float)b.heads.width);
    struct cuda_key_bounds bounds[2] = {bounds_of(b.of, own), bounds_of(b.of, own + 8)};
    load_keys_of<D>(s->k, b.k, b, first);
    load_keys_of<D>(s->v, b.v, b, first);
    walk_rows<D>(dk, dv, s, b, bounds);
    copies_wait<0>();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        i64 key = own + 8 * half;
        if (key >= b.of.keys)
            continue;
        store_row<D>(row_of<bf16>(b.dk, key) + blockIdx.y * b.heads.width, dk, half, b.heads.width, scale);
        store_row<D>(row_of<bf16>(b.dv, key) + blockIdx.y * b.heads.width, dv, half, b.heads.width, 1);
    }
}

template <int D>
__device__ static void load_step(struct rows_tiles<D> *s, const struct attention_backward_call &b, int to, i64 first,
                                 bool whole)
{
    load_keys_of<D>(s->k[to], b.k, b, first);
    load_keys_of<D>(s->v[to], b.v, b, first);
    if (!whole && threadIdx.x < KEPT)
        s->bounds[to][threadIdx.x] = bounds_of(b.of, first + threadIdx.x);
}

/* Statistics and query indices of a lane's two rows. */
struct two_rows {
    struct row_statistics statistics[2];
    i32 query[2];
};

/* Adds one step; products are [row, key]: dq += ds k. */
template <int D>
__device__ static void take_keys(float (&dq)[D / 8][4], const struct rows_tiles<D> *s, int at, bool whole,
                                 const struct two_rows &rows, float scale)
{
    float p[KEPT / 8][4] = {}, ds[KEPT / 8][4] = {};
    int own = threadIdx.x / WARP_THREADS * 16;
    add_scores<D, KEPT>(p, s->q, own, s->k[at]);
    add_scores<D, KEPT>(ds, s->dout, own, s->v[at]);
#pragma unroll
    for (int j = 0; j < KEPT / 8; j++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            struct row_statistics of_row = rows.statistics[c / 2];
            bool seen = whole || sees(rows.query[c / 2], s->bounds[at][j * 8 + threadIdx.x % 4 * 2 + c % 2]);
            float probability = seen ? exp2_approximate(p[j][c] * scale - of_row.lse) : 0.0f;
            ds[j][c] = probability * (ds[j][c] - of_row.delta);
        }
    add_weighted<D, KEPT>(dq, ds, s->k[at]);
}

template <int D>
__device__ static void walk_keys(float (&dq)[D / 8][4], struct rows_tiles<D> *s,
                                 const struct attention_backward_call &b, const struct two_rows &rows)
{
    float scale = rsqrtf((float)b.heads.width) * LOG2_E;
    i64 first = (i64)blockIdx.x * KEPT;
    for (i64 section = 0; section < (b.of.keys + KEPT - 1) / KEPT; section += LISTED_MOST) {
        i32 count = list_keys(&s->list, b, first, first + KEPT - 1, section, KEPT);
        walk_list(
            &s->list, count, [&](int to, i64 tile, bool whole) { load_step<D>(s, b, to, tile * KEPT, whole); },
            [&](int at, bool whole) { take_keys<D>(dq, s, at, whole, rows, scale); });
    }
}

/* Pass 2. A block handles KEPT rows of a key-value head. */
template <int D> static __global__ void __launch_bounds__(THREADS) tensor_rows(struct attention_backward_call b)
{
    grid_wait();
    DYNAMIC_SHARED(char, memory);
    struct rows_tiles<D> *s = (struct rows_tiles<D> *)memory;
    i64 first = (i64)blockIdx.x * KEPT;
    i64 own = first + threadIdx.x / WARP_THREADS * 16 + threadIdx.x % WARP_THREADS / 4;
    float dq[D / 8][4] = {}, scale = rsqrtf((float)b.heads.width);
    struct two_rows rows = {{statistics_of(b, blockIdx.y, own), statistics_of(b, blockIdx.y, own + 8)},
                            {query_of(b, own), query_of(b, own + 8)}};
    load_rows_of<D>(s->q, b.q, b, KEPT, first);
    load_rows_of<D>(s->dout, b.dout, b, KEPT, first);
    walk_keys<D>(dq, s, b, rows);
    copies_wait<0>();
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (own + 8 * half < b.rows)
            store_row<D>(head_row<bf16>(b.dq, b.heads, blockIdx.y, own + 8 * half), dq, half, b.heads.width, scale);
}

template <int D> static void launch_tensor(struct device *device, const struct attention_backward_call &b)
{
    int keys_bytes = (int)sizeof(struct keys_tiles<D>), rows_bytes = (int)sizeof(struct rows_tiles<D>);
    dim3 keys((unsigned)ceil_div(b.of.keys, KEPT), (unsigned)b.heads.kv_count);
    dim3 rows((unsigned)ceil_div(b.rows, KEPT), (unsigned)b.heads.kv_count);
    CUDA_CHECK(cudaFuncSetAttribute(tensor_keys<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, keys_bytes));
    CUDA_CHECK(cudaFuncSetAttribute(tensor_rows<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, rows_bytes));
    launch_summary(device, b.spans, b.of, KEPT);
    if (b.of.keys > 0)
        LAUNCH(device, tensor_keys<D>, keys, THREADS, keys_bytes, b);
    if (b.rows > 0)
        LAUNCH(device, tensor_rows<D>, rows, THREADS, rows_bytes, b);
}

static void launch_by_width(struct device *device, const struct attention_backward_call &b)
{
    if (b.q.dtype == DTYPE_F32)
        launch_plain<float>(device, b);
    else if (attention_backward_hopper(device, b))
        return;
    else if (b.heads.width <= 32)
        launch_tensor<32>(device, b);
    else if (b.heads.width <= 64)
        launch_tensor<64>(device, b);
    else if (b.heads.width <= TENSOR_WIDTH_MOST)
        launch_tensor<128>(device, b);
    else
        launch_plain<bf16>(device, b);
}

extern "C" void cuda_attention_backward(struct device *device, struct matrix dq, struct matrix dk, struct matrix dv,
                                        struct matrix dout, struct matrix out, const float *lse, struct matrix q,
                                        struct matrix k, struct matrix v, i64 heads, i64 kv_heads,
                                        const struct intervals *intervals)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    struct attention_heads sizes = heads_of(q, heads, kv_heads);
    i64 statistics = intervals->queries * heads, key_tiles = ceil_div(intervals->keys, TILE);
    require(sizes.width <= WIDTH_MOST, "attention_backward: heads of %lld", (long long)sizes.width);
    require(statistics * (i64)sizeof(struct row_statistics) + key_tiles * (i64)sizeof(struct key_span) <=
                handles->workspace_bytes,
            "attention_backward: %lld queries of %lld heads", (long long)q.rows, (long long)heads);
    struct attention_backward_call b = {dq, dk, dv, dout, out, q, k, v, lse};
    b.spans = (struct key_span *)handles->workspace;
    b.statistics = (struct row_statistics *)(b.spans + key_tiles);
    b.heads = sizes;
    b.of = *intervals;
    b.rows = intervals->queries * sizes.group;
    if (statistics > 0)
        LAUNCH_BY_DTYPE(device, q.dtype, fill_statistics, (unsigned)ceil_div(statistics, BLOCK_THREADS / WARP_THREADS),
                        BLOCK_THREADS, 0, b);
    b.vector = reads_vectors(q, sizes.width) && reads_vectors(dout, sizes.width) && reads_vectors(k, sizes.width) &&
               reads_vectors(v, sizes.width);
    launch_by_width(device, b);
}
