#include "kernels/cuda/cuda.h"

/* A counting sort that keeps the order: assignments are cut into runs, a warp each; runs count, the counts are summed
 * up by expert, and each run places its assignments behind those of the runs before it. A single run, as in decoding,
 * is one block's from beginning to end. No step waits for the host. */
enum { RUN = 1024, RUNS_MOST = 1024, EXPERTS_MOST = 24 << 10 /* counters of a run are in shared memory: 96 KB */ };
enum { SCAN_THREADS = 1024 };

struct sorting {
    i32 *offsets, *slot, *source;
    i32 *counts, *totals; /* [E, runs], then of each run how many came before it; [E] */
    const i32 *experts;
    i64 rows_bound, n, k_max, experts_count, group_rows, run, runs;
};

/* Hands visit(assignment, expert, place) each assignment of this warp's run, `place` counted up in next[expert] in
 * order of assignments; next is shared memory [E]. */
template <typename Visit> __device__ static void walk_run(const struct sorting &s, i32 *next, Visit visit)
{
    i64 first = (i64)blockIdx.x * s.run, end = first + s.run < s.n * s.k_max ? first + s.run : s.n * s.k_max;
    unsigned lane = threadIdx.x, below = (1u << lane) - 1;
    for (i64 at = first; at < end; at += WARP_THREADS) {
        i64 a = at + lane;
        i32 expert = a < end ? s.experts[a] : -1;
        unsigned alike = __ballot_sync(0xffffffffu, expert >= 0);
        for (i32 bit = 1; bit < s.experts_count; bit *= 2) {
            unsigned has = __ballot_sync(0xffffffffu, expert >= 0 && expert & bit);
            alike &= expert & bit ? has : ~has;
        }
        i32 place = expert >= 0 ? next[expert] + __popc(alike & below) : -1;
        __syncwarp();
        if (expert >= 0 && !(alike & below))
            next[expert] += __popc(alike);
        __syncwarp();
        if (a < end)
            visit(a, expert, place);
    }
}

static __global__ void count_runs(struct sorting s)
{
    DYNAMIC_SHARED(i32, counts);
    for (i64 r = (i64)blockIdx.x * WARP_THREADS + threadIdx.x; r < s.rows_bound; r += (i64)gridDim.x * WARP_THREADS)
        s.source[r] = -1;
    COLUMNS(e, s.experts_count)
    counts[e] = 0;
    __syncwarp();
    walk_run(s, counts, [](i64, i32, i32) {});
    COLUMNS(e, s.experts_count)
    s.counts[e * s.runs + blockIdx.x] = counts[e];
}

__device__ static void place(const struct sorting &s, i64 a, i32 expert, i32 row)
{
    s.slot[a] = row;
    if (expert >= 0)
        s.source[row] = (i32)(a / s.k_max);
}

/* One block an expert. */
static __global__ void sum_runs(struct sorting s)
{
    i32 *counts = s.counts + blockIdx.x * s.runs, before = 0;
    for (i64 first = 0; first < s.runs; first += blockDim.x) {
        i64 r = first + threadIdx.x;
        i32 count = r < s.runs ? counts[r] : 0, total, earlier = block_scan(count, &total);
        if (r < s.runs)
            counts[r] = before + earlier;
        before += total;
    }
    if (threadIdx.x == 0)
        s.totals[blockIdx.x] = before;
}

__device__ static i32 rounded_up(i32 rows, i64 to)
{
    return (i32)((rows + to - 1) / to * to);
}

/* offsets [E + 1] of groups of so many rows; one block. */
__device__ static void fill_offsets(i32 *offsets, const i32 *totals, i64 experts, i64 group_rows)
{
    i32 before = 0;
    for (i64 first = 0; first < experts; first += blockDim.x) {
        i64 e = first + threadIdx.x;
        i32 rows = e < experts ? rounded_up(totals[e], group_rows) : 0, total, earlier = block_scan(rows, &total);
        if (e < experts)
            offsets[e] = before + earlier;
        before += total;
    }
    if (threadIdx.x == 0)
        offsets[experts] = before;
}

static __global__ void sum_experts(struct sorting s)
{
    fill_offsets(s.offsets, s.totals, s.experts_count, s.group_rows);
}

static __global__ void place_runs(struct sorting s)
{
    DYNAMIC_SHARED(i32, next);
    COLUMNS(e, s.experts_count)
    next[e] = s.offsets[e] + s.counts[e * s.runs + blockIdx.x];
    __syncwarp();
    walk_run(s, next, [&s](i64 a, i32 expert, i32 row) { place(s, a, expert, row); });
}

/* Of a single run; one block, whose first warp walks it. */
static __global__ void sort_run(struct sorting s)
{
    DYNAMIC_SHARED(i32, next);
    bool walks = threadIdx.x < WARP_THREADS;
    for (i64 r = threadIdx.x; r < s.rows_bound; r += blockDim.x)
        s.source[r] = -1;
    COLUMNS(e, s.experts_count)
    next[e] = 0;
    __syncthreads();
    if (walks)
        walk_run(s, next, [](i64, i32, i32) {});
    __syncthreads();
    fill_offsets(s.offsets, next, s.experts_count, s.group_rows);
    __syncthreads();
    COLUMNS(e, s.experts_count)
    next[e] = s.offsets[e];
    __syncthreads();
    if (walks)
        walk_run(s, next, [&s](i64 a, i32 expert, i32 row) { place(s, a, expert, row); });
}

extern "C" void cuda_route_sort(struct device *device, i32 *offsets, i32 *slot, i32 *source, i64 rows_bound,
                                const i32 *experts, i64 n, i64 k_max, i64 experts_count, i64 group_rows)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    i64 assignments = n * k_max, bytes = experts_count * 4;
    i64 runs_most = min_i64(RUNS_MOST, handles->workspace_bytes / max_i64(bytes, 1) - 1);
    require(rows_bound >= assignments + min_i64(experts_count, assignments) * (group_rows - 1),
            "route_sort: %lld assignments to %lld experts, room for %lld", (long long)assignments,
            (long long)experts_count, (long long)rows_bound);
    require(experts_count <= EXPERTS_MOST && runs_most > 0, "route_sort: %lld experts", (long long)experts_count);
    i64 run = max_i64(RUN, round_up(ceil_div(assignments, runs_most), WARP_THREADS));
    i64 runs = max_i64(ceil_div(assignments, run), 1);
    i32 *counts = (i32 *)handles->workspace, *totals = counts + experts_count * runs;
    struct sorting s = {offsets, slot,  source,        counts,     totals, experts, rows_bound,
                        n,       k_max, experts_count, group_rows, run,    runs};
    if (runs == 1) {
        CUDA_CHECK(cudaFuncSetAttribute(sort_run, cudaFuncAttributeMaxDynamicSharedMemorySize, EXPERTS_MOST * 4));
        LAUNCH(device, sort_run, 1, BLOCK_THREADS, bytes, s);
        return;
    }
    CUDA_CHECK(cudaFuncSetAttribute(count_runs, cudaFuncAttributeMaxDynamicSharedMemorySize, EXPERTS_MOST * 4));
    CUDA_CHECK(cudaFuncSetAttribute(place_runs, cudaFuncAttributeMaxDynamicSharedMemorySize, EXPERTS_MOST * 4));
    LAUNCH(device, count_runs, (unsigned)runs, WARP_THREADS, bytes, s);
    if (experts_count > 0)
        LAUNCH(device, sum_runs, (unsigned)experts_count, threads_for(runs), 0, s);
    LAUNCH(device, sum_experts, 1, threads_for(experts_count), 0, s);
    LAUNCH(device, place_runs, (unsigned)runs, WARP_THREADS, bytes, s);
}

struct regrouping {
    i32 *offsets, *regroup, *arrived;
    i32 *first_arrived, *first_row, *totals; /* [R, E] of each run of rows; [E] */
    const i32 *from;
    i64 ranks, experts, part;
};

/* Where each run of rows begins as they arrive; by all threads of a block. */
__device__ static void find_arrived(const struct regrouping &g)
{
    i32 before = 0;
    if (g.part) {
        COLUMNS(r, g.ranks)
        {
            i32 row = (i32)(r * g.part);
            for (i64 i = r * g.experts; i < (r + 1) * g.experts; row += g.from[i++])
                g.first_arrived[i] = row;
        }
        return;
    }
    for (i64 first = 0; first < g.ranks * g.experts; first += blockDim.x) {
        i64 i = first + threadIdx.x;
        i32 rows = i < g.ranks * g.experts ? g.from[i] : 0, total, earlier = block_scan(rows, &total);
        if (i < g.ranks * g.experts)
            g.first_arrived[i] = before + earlier;
        before += total;
    }
}

/* One block: where each run of rows begins, as they arrive and by expert. */
static __global__ void plan_regroup(struct regrouping g)
{
    find_arrived(g);
    COLUMNS(e, g.experts)
    {
        i32 rows = 0;
        for (i64 r = 0; r < g.ranks; r++) {
            g.first_row[r * g.experts + e] = rows;
            rows += g.from[r * g.experts + e];
        }
        g.totals[e] = rows;
    }
    __syncthreads();
    fill_offsets(g.offsets, g.totals, g.experts, GROUP_ROWS);
}

/* One block a run. */
static __global__ void move_runs(struct regrouping g)
{
    i64 i = blockIdx.x;
    i32 arrived = g.first_arrived[i], row = g.offsets[i % g.experts] + g.first_row[i];
    COLUMNS(j, g.from[i])
    {
        g.regroup[row + j] = arrived + (i32)j;
        g.arrived[arrived + j] = row + (i32)j;
    }
}

extern "C" void cuda_route_regroup(struct device *device, i32 *offsets, i32 *regroup, i32 *arrived, i64 rows_bound,
                                   const i32 *from, i64 ranks, i64 experts, i64 part)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    i64 runs = ranks * experts;
    i32 *scratch = (i32 *)handles->workspace;
    struct regrouping g = {offsets, regroup, arrived, scratch, scratch + runs, scratch + 2 * runs,
                           from,    ranks,   experts, part};
    require((2 * runs + experts) * 4 <= handles->workspace_bytes, "route_regroup: %lld experts from %lld ranks",
            (long long)experts, (long long)ranks);
    CUDA_CHECK(cudaMemsetAsync(regroup, 0xff, (size_t)rows_bound * 4, cuda_queue_of(device)));
    if (part)
        CUDA_CHECK(cudaMemsetAsync(arrived, 0xff, (size_t)(ranks * part) * 4, cuda_queue_of(device)));
    LAUNCH(device, plan_regroup, 1, (unsigned)min_i64(round_up(max_i64(runs, 1), WARP_THREADS), SCAN_THREADS), 0, g);
    if (runs > 0)
        LAUNCH(device, move_runs, (unsigned)runs, 128, 0, g);
}

static __global__ void count_kept(i32 *counts, const i32 *offsets, const i32 *member, i64 kept)
{
    GRID_STRIDE(e, kept)
    counts[member ? member[e] : e] = offsets[e + 1] - offsets[e];
}

extern "C" void cuda_route_count(struct device *device, i32 *counts, const i32 *offsets, const i32 *member, i64 kept,
                                 i64 experts)
{
    CUDA_CHECK(cudaMemsetAsync(counts, 0, (size_t)experts * 4, cuda_queue_of(device)));
    if (kept > 0)
        LAUNCH(device, count_kept, blocks_for(kept), BLOCK_THREADS, 0, counts, offsets, member, kept);
}
