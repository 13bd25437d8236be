#include "kernels/cuda/cuda.h"
#include "kernels/route.h"

struct capacity_plan {
    i32 *source, *slot, *counts;
    double *over;
    i32 *first; /* [R + 1] first sorted row of each rank */
    const i32 *sorted;
    i64 assignments, capacity, ranks, experts;
};

/* Runs as a single block. */
static __global__ void plan_capacity(struct capacity_plan p)
{
    grid_wait();
    i64 own = p.experts / p.ranks;
    i32 before = 0;
    for (i64 begin = 0; begin < p.ranks; begin += blockDim.x) {
        i64 r = begin + threadIdx.x;
        i32 rows = r < p.ranks ? route_fit(p.counts + r * own, own, p.capacity) : 0, total;
        i32 earlier = block_scan(rows, &total);
        if (r < p.ranks)
            p.first[r] = before + earlier;
        before += total;
    }
    if (threadIdx.x == 0)
        p.first[p.ranks] = before;
    __syncthreads();
    if (threadIdx.x == 0)
        for (i64 r = 0; r < p.ranks; r++)
            route_note_overflow(p.over, p.first[r + 1] - p.first[r], p.capacity);
}

static __global__ void place_rows(struct capacity_plan p)
{
    grid_wait();
    GRID_STRIDE(row, p.ranks * p.capacity)
    {
        i32 begin = p.first[row / p.capacity], end = p.first[row / p.capacity + 1];
        i64 at = begin + row % p.capacity;
        p.source[row] = at < end ? p.sorted[at] : -1;
    }
    GRID_STRIDE(a, p.assignments)
    {
        i64 rank = p.slot[a] < 0 ? 0 : route_run_of(p.first, p.ranks, p.slot[a]), at = p.slot[a] - p.first[rank];
        p.slot[a] = at < 0 || at >= p.capacity ? -1 : (i32)(rank * p.capacity + at);
    }
}

extern "C" void cuda_route_capacity(struct device *device, i32 *source, i32 *slot, i32 *counts, double *over,
                                    const i32 *sorted, i64 assignments, i64 capacity, i64 ranks, i64 experts)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    struct capacity_plan p = {source, slot,        counts,   over,  (i32 *)handles->workspace,
                              sorted, assignments, capacity, ranks, experts};
    i64 most = max_i64(ranks * capacity, assignments);
    require((ranks + 1) * 4 <= handles->workspace_bytes, "route_capacity: %lld ranks", (long long)ranks);
    LAUNCH(device, plan_capacity, 1, (unsigned)min_i64(round_up(ranks, WARP_THREADS), BLOCK_THREADS), 0, p);
    if (most > 0)
        LAUNCH(device, place_rows, blocks_for(most), BLOCK_THREADS, 0, p);
}
