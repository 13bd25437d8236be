#include "kernels/cuda/routing/route_sort.h"

/* Counting sort of assignments in runs, one warp per run. Each run counts its experts, the counts
 * are summed per expert, and each run places its assignments after those of earlier runs. A single
 * block sorts a single run. No step waits for the host. */
enum { RUNS_MOST = 1024, EXPERTS_MOST = 24 << 10 /* 96 KB of shared memory for a run's counters */ };
enum { SCAN_THREADS = 1024 };

struct route_sort_runs {
    struct route_sort_call of;
    i32 *counts, *totals; /* [E, runs] counts, later the counts of all earlier runs; [E] */
    i64 run, runs;        /* assignments per run; number of runs */
};

static __global__ void count_runs(struct route_sort_runs s)
{
    grid_wait();
    DYNAMIC_SHARED(i32, counts);
    clear_source(s.of);
    COLUMNS(e, s.of.experts_count)
    counts[e] = 0;
    __syncwarp();
    count_run(s.of, blockIdx.x * s.run, s.run, counts);
    COLUMNS(e, s.of.experts_count)
    s.counts[e * s.runs + blockIdx.x] = counts[e];
}

/* One block handles one expert. */
static __global__ void sum_runs(struct route_sort_runs s)
{
    grid_wait();
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

static __global__ void sum_experts(struct route_sort_runs s)
{
    grid_wait();
    fill_offsets(s.of.to.offsets, s.totals, s.of.experts_count, s.of.to.group_rows);
}

static __global__ void place_runs(struct route_sort_runs s)
{
    grid_wait();
    DYNAMIC_SHARED(i32, next);
    COLUMNS(e, s.of.experts_count)
    next[e] = s.of.to.offsets[e] + s.counts[e * s.runs + blockIdx.x];
    __syncwarp();
    place_run(s.of, blockIdx.x * s.run, s.run, next);
}

/* Runs as a single block. */
static __global__ void sort_run(struct route_sort_call s)
{
    grid_wait();
    DYNAMIC_SHARED(i32, next);
    clear_source(s);
    sort_alone(s, next);
}

static void sort_in_runs(struct device *device, const struct route_sort_call &of)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    i64 bytes = of.experts_count * 4, runs_most = min_i64(RUNS_MOST, handles->workspace_bytes / max_i64(bytes, 1) - 1);
    require(runs_most > 0, "route_sort: %lld experts", (long long)of.experts_count);
    i64 run = max_i64(SORT_RUN, round_up(ceil_div(of.assignments, runs_most), WARP_THREADS));
    i64 runs = ceil_div(of.assignments, run);
    i32 *counts = (i32 *)handles->workspace;
    struct route_sort_runs s = {of, counts, counts + of.experts_count * runs, run, runs};
    CUDA_CHECK(cudaFuncSetAttribute(count_runs, cudaFuncAttributeMaxDynamicSharedMemorySize, EXPERTS_MOST * 4));
    CUDA_CHECK(cudaFuncSetAttribute(place_runs, cudaFuncAttributeMaxDynamicSharedMemorySize, EXPERTS_MOST * 4));
    LAUNCH(device, count_runs, (unsigned)runs, WARP_THREADS, bytes, s);
    if (of.experts_count > 0)
        LAUNCH(device, sum_runs, (unsigned)of.experts_count, threads_for(runs), 0, s);
    LAUNCH(device, sum_experts, 1, threads_for(of.experts_count), 0, s);
    LAUNCH(device, place_runs, (unsigned)runs, WARP_THREADS, bytes, s);
}

extern "C" void cuda_route_sort(struct device *device, const struct sorted_order *sorted, const i32 *experts,
                                const i32 *group, i64 n, i64 k_max, i64 experts_count)
{
    struct route_sort_call s = sorting_of(sorted, experts, group, n, k_max, experts_count);
    require(experts_count <= EXPERTS_MOST, "route_sort: %lld experts", (long long)experts_count);
    if (s.assignments > SORT_RUN) {
        sort_in_runs(device, s);
        return;
    }
    CUDA_CHECK(cudaFuncSetAttribute(sort_run, cudaFuncAttributeMaxDynamicSharedMemorySize, EXPERTS_MOST * 4));
    LAUNCH(device, sort_run, 1, BLOCK_THREADS, experts_count * 4, s);
}

struct route_regroup_call {
    i32 *offsets, *regroup, *arrived;
    i32 *first_arrived, *first_row, *totals; /* [R, E] for each (rank, expert) run of rows; [E] */
    const i32 *from;
    i64 ranks, experts, capacity;
};

/* Computes the first arrived row of each run. All threads of a block call it. */
__device__ static void find_arrived(const struct route_regroup_call &g)
{
    i32 before = 0;
    if (g.capacity) {
        COLUMNS(r, g.ranks)
        {
            i32 row = (i32)(r * g.capacity);
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

/* Computes where each run begins, in arrival order and in expert order. Runs as a single block. */
static __global__ void plan_regroup(struct route_regroup_call g)
{
    grid_wait();
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

/* One block handles one run. */
static __global__ void move_runs(struct route_regroup_call g)
{
    grid_wait();
    i64 i = blockIdx.x;
    i32 arrived = g.first_arrived[i], row = g.offsets[i % g.experts] + g.first_row[i];
    COLUMNS(j, g.from[i])
    {
        g.regroup[row + j] = arrived + (i32)j;
        g.arrived[arrived + j] = row + (i32)j;
    }
}

extern "C" void cuda_route_regroup(struct device *device, i32 *offsets, i32 *regroup, i32 *arrived, i64 rows_bound,
                                   const i32 *from, i64 ranks, i64 experts, i64 capacity)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    i64 runs = ranks * experts;
    i32 *scratch = (i32 *)handles->workspace;
    struct route_regroup_call g = {offsets, regroup, arrived, scratch, scratch + runs, scratch + 2 * runs,
                                   from,    ranks,   experts, capacity};
    require((2 * runs + experts) * 4 <= handles->workspace_bytes, "route_regroup: %lld experts from %lld ranks",
            (long long)experts, (long long)ranks);
    CUDA_CHECK(cudaMemsetAsync(regroup, 0xff, (size_t)rows_bound * 4, cuda_queue_of(device)));
    if (capacity)
        CUDA_CHECK(cudaMemsetAsync(arrived, 0xff, (size_t)(ranks * capacity) * 4, cuda_queue_of(device)));
    LAUNCH(device, plan_regroup, 1, (unsigned)min_i64(round_up(max_i64(runs, 1), WARP_THREADS), SCAN_THREADS), 0, g);
    if (runs > 0)
        LAUNCH(device, move_runs, (unsigned)runs, 128, 0, g);
}

static __global__ void count_kept(i32 *counts, const i32 *offsets, const i32 *member, i64 kept)
{
    grid_wait();
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
