#include "kernels/cuda/routing/route_sort.h"
#include "kernels/route.h"

/* One warp handles one position. Blocks iterate over rows, so that each adds its counts to memory
 * once. With few assignments, the block that finishes last also sorts them.
 *
 *     logits [N, E] -> softmax -> p [N, E] -> score p + bias -> the k best -> weights p / sum of p
 *                                                 |
 *       counts of counted positions -> usage      +-> stable counting sort by expert:
 *          (route_sort.h)                             offsets [E + 1], slot [N, K], source [rows]
 *
 *     N  positions, one warp each      E  experts, spread over lanes
 *     K  k_max; a position's own k is topk[row], the rest of its row is -1
 *
 * Each of the k best is the best after the one before it in the order (score, smaller id), so a
 * warp reads p k times and marks nothing. The bias only chooses. Sources: Shazeer et al. 2017
 * (arXiv 1701.06538), and for the bias Wang et al. 2024 (arXiv 2408.15664). */
enum {
    WARPS = 8,
    WARPS_SORTING = 4, /* if it also sorts: smaller blocks use more multiprocessors */
    BLOCKS_MOST = 1024,
    COUNTED_BY_BLOCK = 8192 /* most experts whose counts fit in shared memory */
};

struct route_call {
    float *p, *weights;
    i32 *experts;
    const i32 *given; /* experts chosen earlier; NULL: bias and topk choose */
    const float *bias;
    const i32 *topk;
    const u8 *counted;
    const float *scale;
    i32 *counts; /* [E] assignments of counted positions; NULL: not needed */
    struct matrix logits;
    struct router router;
    struct route_sort_call sorting;
    u32 *arrived; /* counter of finished blocks with few rows; NULL: separate launches sort */
};

template <typename T> __device__ static void softmax(float *p, const T *logits, i64 n, int lane)
{
    float most = -INFINITY, sum = 0;
    for (i64 e = lane; e < n; e += WARP_THREADS)
        most = fmaxf(most, to_f32(logits[e]));
    most = warp_max(most);
    for (i64 e = lane; e < n; e += WARP_THREADS) {
        p[e] = expf(to_f32(logits[e]) - most);
        sum += p[e];
    }
    float scale = 1 / warp_sum(sum);
    for (i64 e = lane; e < n; e += WARP_THREADS)
        p[e] *= scale;
    __syncwarp();
}

struct expert_score {
    float score;
    i32 expert;
};
__device__ static bool is_before(struct expert_score a, struct expert_score b)
{
    return a.score > b.score || (a.score == b.score && a.expert < b.expert);
}

/* The best expert after `last` in the ranking, so that chosen experts need no marks. */
__device__ static struct expert_score next_best(const float *p, const float *bias, i64 n, struct expert_score last,
                                                int lane)
{
    struct expert_score best = {-INFINITY, INT32_MAX};
    for (i64 e = lane; e < n; e += WARP_THREADS) {
        struct expert_score one = {route_score(p[e], bias[e]), (i32)e};
        if (is_before(last, one) && is_before(one, best))
            best = one;
    }
    for (int step = WARP_THREADS / 2; step; step /= 2) {
        struct expert_score other = {__shfl_xor_sync(0xffffffffu, best.score, step),
                                     __shfl_xor_sync(0xffffffffu, best.expert, step)};
        if (is_before(other, best))
            best = other;
    }
    return best;
}

__device__ static void choose(const struct route_call &r, const float *p, i32 *experts, i64 row, int lane)
{
    i64 k = r.topk[row];
    struct expert_score last = {INFINITY, -1};
    for (i64 j = 0; j < r.router.k_max; j++) {
        if (j < k)
            last = next_best(p, r.bias, r.logits.columns, last, lane);
        if (lane == 0)
            experts[j] = j < k ? last.expert : -1;
    }
    __syncwarp();
}

__device__ static void weigh(const struct route_call &r, const float *p, const i32 *experts, i32 *counts, i64 row,
                             int lane)
{
    float sum = 0, scale = r.scale ? r.scale[row] : 1;
    for (i64 j = 0; j < r.router.k_max; j++)
        sum += experts[j] >= 0 ? p[experts[j]] : 0;
    for (i64 j = lane; j < r.router.k_max; j += WARP_THREADS) {
        i32 e = experts[j];
        r.weights[row * r.router.k_max + j] = e >= 0 ? scale * route_weight(p[e], sum, r.router) : 0;
        if (r.counts && e >= 0 && r.counted[row])
            atomicAdd(&counts[e], 1);
    }
}

template <typename T, int COUNT> __device__ static void route_own_rows(const struct route_call &r, i32 *block_counts)
{
    i64 n = r.logits.columns;
    int lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
    bool by_block = r.counts && n <= COUNTED_BY_BLOCK;
    for (i64 e = threadIdx.x; by_block && e < n; e += blockDim.x)
        block_counts[e] = 0;
    __syncthreads();
    for (i64 row = (i64)blockIdx.x * COUNT + warp; row < r.logits.rows; row += (i64)gridDim.x * COUNT) {
        float *p = r.p + row * n;
        softmax(p, row_of<T>(r.logits, row), n, lane);
        if (!r.given)
            choose(r, p, r.experts + row * r.router.k_max, row, lane);
        weigh(r, p, (r.given ? r.given : r.experts) + row * r.router.k_max, by_block ? block_counts : r.counts, row,
              lane);
    }
    __syncthreads();
    for (i64 e = threadIdx.x; by_block && e < n; e += blockDim.x)
        if (block_counts[e])
            atomicAdd(&r.counts[e], block_counts[e]);
}

template <typename T> static __global__ void __launch_bounds__(WARPS *WARP_THREADS, 3) route_rows(struct route_call r)
{
    grid_wait();
    DYNAMIC_SHARED(i32, counts);
    route_own_rows<T, WARPS>(r, counts);
}

template <typename T>
static __global__ void __launch_bounds__(WARPS_SORTING *WARP_THREADS) route_and_sort(struct route_call r)
{
    grid_wait();
    DYNAMIC_SHARED(i32, counts);
    clear_source(r.sorting);
    route_own_rows<T, WARPS_SORTING>(r, counts);
    if (block_is_last(r.arrived, gridDim.x))
        sort_alone(r.sorting, counts);
}

/* Adds integer counts, whose order of addition does not affect the result. */
static __global__ void add_counts(float *usage, const i32 *counts, i64 n)
{
    grid_wait();
    GRID_STRIDE(e, n)
    usage[e] += (float)counts[e];
}

static void launch_rows(struct device *device, struct route_call r, float *usage)
{
    i64 n = r.logits.columns, warps = r.arrived ? WARPS_SORTING : WARPS;
    if (usage) {
        r.counts = (i32 *)cuda_workspace_of(device, "route", n * 4);
        CUDA_CHECK(cudaMemsetAsync(r.counts, 0, (size_t)n * 4, cuda_queue_of(device)));
    }
    i64 blocks = min_i64(ceil_div(r.logits.rows, warps), BLOCKS_MOST);
    i64 bytes = (usage || r.arrived) && n <= COUNTED_BY_BLOCK ? n * 4 : 0;
    unsigned threads = (unsigned)warps * WARP_THREADS;
    if (r.arrived)
        LAUNCH_BY_DTYPE(device, r.logits.dtype, route_and_sort, (unsigned)blocks, threads, bytes, r);
    else
        LAUNCH_BY_DTYPE(device, r.logits.dtype, route_rows, (unsigned)blocks, threads, bytes, r);
    if (usage)
        LAUNCH(device, add_counts, blocks_for(n), BLOCK_THREADS, 0, usage, r.counts, n);
}

static void run(struct device *device, struct route_call r, const struct sorted_order *sorted, float *usage)
{
    i64 n = r.logits.rows, k = r.router.k_max, experts_count = r.logits.columns;
    r.sorting = sorting_of(sorted, r.given ? r.given : r.experts, NULL, n, k, experts_count);
    if (n > 0 && n * k <= SORT_RUN && experts_count <= COUNTED_BY_BLOCK)
        r.arrived = cuda_handles_of(device)->counters;
    if (n > 0)
        launch_rows(device, r, usage);
    if (!r.arrived)
        cuda_route_sort(device, sorted, r.sorting.experts, NULL, n, k, experts_count);
}

extern "C" void cuda_route(struct device *device, float *p, i32 *experts, float *weights,
                           const struct sorted_order *sorted, float *usage, struct matrix logits, const float *bias,
                           const i32 *topk, const u8 *counted, const float *scale, const struct router *router)
{
    struct route_call r = {p, weights, experts, NULL, bias, topk, counted, scale, NULL, logits, *router, {}, NULL};
    run(device, r, sorted, usage);
}

extern "C" void cuda_route_given(struct device *device, float *p, float *weights, const struct sorted_order *sorted,
                                 float *usage, const i32 *experts, struct matrix logits, const u8 *counted,
                                 const float *scale, const struct router *router)
{
    struct route_call r = {p, weights, NULL, experts, NULL, NULL, counted, scale, NULL, logits, *router, {}, NULL};
    run(device, r, sorted, usage);
}

template <typename T>
static __global__ void backward_rows(struct matrix dlogits, const float *dlog_weights, const float *p,
                                     const i32 *experts, struct router router)
{
    grid_wait();
    i64 row = (i64)blockIdx.x * WARPS + threadIdx.x / WARP_THREADS, n = dlogits.columns;
    if (row >= dlogits.rows)
        return;
    p += row * n;
    experts += row * router.k_max;
    dlog_weights += row * router.k_max;
    struct route_slope slope = route_slope_of(p, experts, dlog_weights, router);
    for (i64 e = threadIdx.x % WARP_THREADS; e < n; e += WARP_THREADS) {
        float d = -p[e] * slope.mean;
        for (i64 j = 0; j < slope.k; j++)
            d += experts[j] == e ? route_dlog_p(&slope, p, experts[j], dlog_weights[j], router) : 0;
        row_of<T>(dlogits, row)[e] = from_f32<T>(d);
    }
}

extern "C" void cuda_route_backward(struct device *device, struct matrix dlogits, const float *dlog_weights,
                                    const float *p, const i32 *experts, const struct router *router)
{
    if (dlogits.rows > 0)
        LAUNCH_BY_DTYPE(device, dlogits.dtype, backward_rows, (unsigned)ceil_div(dlogits.rows, WARPS),
                        WARPS * WARP_THREADS, 0, dlogits, dlog_weights, p, experts, *router);
}

/* Runs as a single block. */
static __global__ void balance(float *bias, float *usage, double *use, i64 experts, const double *expected,
                               const double *sum, float speed)
{
    grid_wait();
    bool moves = bias && isfinite(sum[0]);
    double total = 0;
    COLUMNS(e, experts)
    total += (double)usage[e];
    float mean = (float)(block_sum(total) / (double)experts);
    COLUMNS(e, experts)
    {
        use[e] += (double)usage[e];
        if (moves)
            bias[e] +=
                expected ? route_bias_step_to(expected[e], usage[e], speed) : route_bias_step(mean, usage[e], speed);
        usage[e] = 0;
    }
}

extern "C" void cuda_route_balance(struct device *device, float *bias, float *usage, double *use, i64 experts,
                                   const double *expected, const double *sum, float speed)
{
    if (experts > 0)
        LAUNCH(device, balance, 1, threads_for(experts), 0, bias, usage, use, experts, expected, sum, speed);
}
