/* Stable counting sort of assignments by expert, for the ops route, route_given and route_sort. A
 * single block sorts few assignments; it may be the last block of the kernel that chose the
 * experts. */
#ifndef WEFT_CUDA_ROUTE_SORT_H
#define WEFT_CUDA_ROUTE_SORT_H
#include "kernels/cuda/cuda.h"

enum { SORT_RUN = 1024 /* most assignments that one block sorts alone; least per warp's run */ };

struct route_sort_call {
    struct sorted_order to;
    const i32 *experts, *group; /* group: of each expert; NULL: its number */
    i64 assignments, k_max, experts_count;
};

static inline struct route_sort_call sorting_of(const struct sorted_order *sorted, const i32 *experts, const i32 *group,
                                                i64 n, i64 k_max, i64 experts_count)
{
    i64 assignments = n * k_max;
    require(sorted->rows_bound >= assignments + min_i64(experts_count, assignments) * (sorted->group_rows - 1),
            "route_sort: %lld assignments to %lld experts, room for %lld", (long long)assignments,
            (long long)experts_count, (long long)sorted->rows_bound);
    return {*sorted, experts, group, assignments, k_max, experts_count};
}

/* Calls visit(assignment, group, place) with one warp for the assignments in first .. first +
 * count - 1. `place` is taken from next[group], which counts up in the order of assignments. next
 * is shared memory [E]. */
template <typename Visit>
__device__ inline void walk_run(const struct route_sort_call &s, i64 first, i64 count, i32 *next, Visit visit)
{
    i64 end = first + count < s.assignments ? first + count : s.assignments;
    unsigned lane = threadIdx.x % WARP_THREADS, below = (1u << lane) - 1;
    for (i64 at = first; at < end; at += WARP_THREADS) {
        i64 a = at + lane;
        i32 expert = a < end ? s.experts[a] : -1, group = s.group && expert >= 0 ? s.group[expert] : expert;
        unsigned alike = __ballot_sync(0xffffffffu, group >= 0);
        for (i32 bit = 1; bit < s.experts_count; bit *= 2) {
            unsigned has = __ballot_sync(0xffffffffu, group >= 0 && group & bit);
            alike &= group & bit ? has : ~has;
        }
        i32 place = group >= 0 ? next[group] + __popc(alike & below) : -1;
        __syncwarp();
        if (group >= 0 && !(alike & below))
            next[group] += __popc(alike);
        __syncwarp();
        if (a < end)
            visit(a, group, place);
    }
}

__device__ inline void count_run(const struct route_sort_call &s, i64 first, i64 count, i32 *next)
{
    walk_run(s, first, count, next, [](i64, i32, i32) {});
}

__device__ inline void place_run(const struct route_sort_call &s, i64 first, i64 count, i32 *next)
{
    walk_run(s, first, count, next, [&s](i64 a, i32 group, i32 row) {
        s.to.slot[a] = row;
        if (group >= 0)
            s.to.source[row] = (i32)(a / s.k_max);
    });
}

/* Sets source to -1 before rows are placed; all blocks share the work. */
__device__ inline void clear_source(const struct route_sort_call &s)
{
    GRID_STRIDE(r, s.to.rows_bound)
    s.to.source[r] = -1;
}

__device__ inline i32 rounded_up(i32 rows, i64 to)
{
    return (i32)((rows + to - 1) / to * to);
}

/* Fills offsets [E + 1] from the row counts of the groups. A single block calls it. */
__device__ inline void fill_offsets(i32 *offsets, const i32 *totals, i64 experts, i64 group_rows)
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

/* Sorts up to SORT_RUN assignments with one block, whose first warp walks them. next is shared
 * memory [E]. */
__device__ inline void sort_alone(const struct route_sort_call &s, i32 *next)
{
    bool walks = threadIdx.x < WARP_THREADS;
    COLUMNS(e, s.experts_count)
    next[e] = 0;
    __syncthreads();
    if (walks)
        count_run(s, 0, SORT_RUN, next);
    __syncthreads();
    fill_offsets(s.to.offsets, next, s.experts_count, s.to.group_rows);
    __syncthreads();
    COLUMNS(e, s.experts_count)
    next[e] = s.to.offsets[e];
    __syncthreads();
    if (walks)
        place_run(s, 0, SORT_RUN, next);
}
#endif
