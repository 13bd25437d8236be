#include "kernels/cuda/attention_forward.h"

/* Flash attention's forward (Dao et al. 2022): a block keeps QUERIES queries of one head and walks over tiles of KEYS
 * keys; the running maximum and sum of a query rescale what it has. Products are f32 in ordinary registers, for f32 and
 * for what attention_mma.cu does not take. Tiles no query of the block can see are skipped. */
enum { QUERIES = 32, KEYS = 32, LANES = BLOCK_THREADS / QUERIES, WIDTH_MOST = 256 };

/* [rows, width] of f32 with one float of padding a row; rows past the end are zero. */
template <typename T>
__device__ static void load_tile(float *tile, struct matrix from, i64 first, int rows, i64 column, i64 width)
{
    for (i64 i = threadIdx.x; i < rows * width; i += BLOCK_THREADS) {
        i64 row = first + i / width;
        tile[i / width * (width + 1) + i % width] =
            row < from.rows ? to_f32(row_of<T>(from, row)[column + i % width]) : 0.0f;
    }
}

__device__ static bool tile_is_seen(const struct intervals &of, i32 first, i32 last, i64 key)
{
    int seen = 0;
    for (i64 j = key + threadIdx.x; j < of.keys && j < key + KEYS; j += BLOCK_THREADS)
        seen |= any_sees(of, first, last, j);
    return __syncthreads_or(seen);
}

/* Scores of one query and the KEYS of a tile, LANES threads a query; -inf where a key is not seen. */
__device__ static void fill_scores(float *scores, const float *q, const float *k, const struct attention_problem &p,
                                   i32 query, bool live, i64 key, int lane)
{
    float scale = rsqrtf((float)p.width);
    for (int j = lane; j < KEYS; j += LANES) {
        float sum = 0;
        for (i64 c = 0; c < p.width; c++)
            sum += q[c] * k[j * (p.width + 1) + c];
        bool seen = live && key + j < p.intervals.keys && sees(p.intervals, query, key + j);
        scores[j] = seen ? sum * scale : -INFINITY;
    }
}

struct running {
    float most, sum, own[WIDTH_MOST / LANES]; /* columns lane, lane + LANES, ... of the output */
};

__device__ static void take_tile(struct running *r, const float *scores, const float *v, i64 width, int lane)
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
__device__ static void store(const struct attention_problem &p, i64 row, i64 head, int lane, struct running *r)
{
    T *out = row_of<T>(p.out, row) + head * p.width;
#pragma unroll
    for (int i = 0; i < WIDTH_MOST / LANES; i++)
        if (lane + i * LANES < p.width)
            out[lane + i * LANES] = from_f32<T>(r->sum > 0 ? r->own[i] / r->sum : 0.0f);
    if (lane == 0)
        p.lse[row * p.heads + head] = r->sum > 0 ? r->most + logf(r->sum) : -INFINITY;
}

template <typename T> __global__ void attend(struct attention_problem p)
{
    DYNAMIC_SHARED(float, shared);
    i64 padded = p.width + 1, head = blockIdx.y, first = (i64)blockIdx.x * QUERIES;
    float *q = shared, *k = q + QUERIES * padded, *v = k + KEYS * padded, *scores = v + KEYS * padded;
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    i64 end = first + QUERIES, last = (end < p.intervals.queries ? end : p.intervals.queries) - 1,
        column = head / (p.heads / p.kv_heads) * p.width;
    bool live = first + row <= last;
    i32 query = p.intervals.query[live ? first + row : last];
    struct running r = {-INFINITY, 0, {}};
    load_tile<T>(q, p.q, first, QUERIES, head * p.width, p.width);
    for (i64 key = 0; key < p.intervals.keys; key += KEYS) {
        if (!tile_is_seen(p.intervals, p.intervals.query[first], p.intervals.query[last], key))
            continue;
        load_tile<T>(k, p.k, key, KEYS, column, p.width);
        load_tile<T>(v, p.v, key, KEYS, column, p.width);
        __syncthreads();
        fill_scores(scores + row * KEYS, q + row * padded, k, p, query, live, key, lane);
        __syncthreads();
        take_tile(&r, scores + row * KEYS, v, p.width, lane);
    }
    if (live)
        store<T>(p, first + row, head, lane, &r);
}

template <typename T> static void launch(struct device *device, const struct attention_problem &p)
{
    dim3 grid((unsigned)ceil_div(p.intervals.queries, QUERIES), (unsigned)p.heads);
    i64 bytes = ((QUERIES + 2 * KEYS) * (p.width + 1) + QUERIES * KEYS) * 4;
    CUDA_CHECK(cudaFuncSetAttribute(attend<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    LAUNCH(device, attend<T>, grid, BLOCK_THREADS, bytes, p);
}

extern "C" void cuda_attention(struct device *device, struct matrix out, float *lse, struct matrix q, struct matrix k,
                               struct matrix v, i64 heads, i64 kv_heads, const struct intervals *intervals)
{
    i64 width = q.columns / heads;
    require(q.columns % heads == 0 && heads % kv_heads == 0 && k.columns == kv_heads * width &&
                v.columns == k.columns && out.columns == q.columns && q.rows == intervals->queries &&
                out.rows == q.rows && k.rows == intervals->keys && v.rows == k.rows && width <= WIDTH_MOST,
            "attention: q [%lld,%lld], k [%lld,%lld], %lld heads, %lld key-value heads (of width %d at most)",
            (long long)q.rows, (long long)q.columns, (long long)k.rows, (long long)k.columns, (long long)heads,
            (long long)kv_heads, (int)WIDTH_MOST);
    struct attention_problem p = {out, q, k, v, lse, heads, kv_heads, width, *intervals};
    if (intervals->queries == 0)
        return;
    if (attention_on_tensor_cores(device, p))
        return;
    if (q.dtype == DTYPE_BF16)
        launch<bf16>(device, p);
    else
        launch<float>(device, p);
}
