/* Iterates over a row with one block, several loads per thread in flight, and draws from it by
 * weight. A warp takes CHUNK neighbouring elements at a time, and each lane takes its elements in
 * ascending order, so that sums depend only on the row's length. */
#ifndef WEFT_CUDA_DRAW_H
#define WEFT_CUDA_DRAW_H
#include "kernels/cuda/cuda.h"

enum { WIDE = 1 << 12, WIDE_THREADS = 1024, AT_ONCE = 8, CHUNK = AT_ONCE * WARP_THREADS, SEGMENTS = 256 };

static inline unsigned threads_of_row(i64 columns)
{
    return columns > WIDE ? (unsigned)WIDE_THREADS : threads_for(columns);
}

/* load(i) of this lane's elements of the chunk at `begin`; 0 past the end. */
template <typename Load> __device__ inline elements<float, AT_ONCE> load_chunk(i64 begin, i64 end, const Load &load)
{
    elements<float, AT_ONCE> out;
    i64 i = begin + threadIdx.x % WARP_THREADS;
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
        out.at[k] = i + k * WARP_THREADS < end ? load(i + k * WARP_THREADS) : 0;
    return out;
}

/* Calls visit(i, load(i)) on this warp's chunks: every count-th chunk from the first on. */
template <typename Load, typename Visit>
__device__ inline void visit_chunks(i64 begin, i64 end, i64 first, i64 count, const Load &load, const Visit &visit)
{
    for (begin += first * CHUNK; begin < end; begin += count * CHUNK) {
        elements<float, AT_ONCE> x = load_chunk(begin, end, load);
        i64 i = begin + threadIdx.x % WARP_THREADS;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (i + k * WARP_THREADS < end)
                visit(i + k * WARP_THREADS, x.at[k]);
    }
}
template <typename Load, typename Visit> __device__ inline void visit_row(i64 n, const Load &load, const Visit &visit)
{
    visit_chunks(0, n, threadIdx.x / WARP_THREADS, blockDim.x / WARP_THREADS, load, visit);
}

/* Calls visit(rank, i, load(i)) for the elements with is(load(i)), where rank 1 is the first of the
 * row. Stops once at least `most` were visited. Returns the number visited. */
template <typename Load, typename Is, typename Visit>
__device__ inline i64 visit_ranked(i64 n, i64 most, const Load &load, const Is &is, const Visit &visit)
{
    unsigned lane = threadIdx.x % WARP_THREADS, below = (1u << lane) - 1;
    i64 seen = 0, warp = threadIdx.x / WARP_THREADS;
    for (i64 first = 0; first < n && seen < most; first += (i64)blockDim.x * AT_ONCE) {
        i64 begin = first + warp * CHUNK, rank;
        elements<float, AT_ONCE> x = load_chunk(begin, n, load);
        unsigned mine = 0;
        i32 count, all;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            mine |= begin + k * WARP_THREADS + lane < n && is(x.at[k]) ? 1u << k : 0;
        count = warp_combine((i32)__popc(mine), sum_operator());
        rank = seen + __shfl_sync(0xffffffffu, block_scan(lane == 0 ? count : 0, &all), 0);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            unsigned those = __ballot_sync(0xffffffffu, mine >> k & 1);
            if (mine >> k & 1)
                visit(rank + __popc(those & below) + 1, begin + k * WARP_THREADS + lane, x.at[k]);
            rank += __popc(those);
        }
        seen += all;
    }
    return seen;
}

struct weight_position {
    i64 at;        /* -1: all weights are zero */
    double before; /* weight of the elements before it */
};

/* The first element of [begin, end) at which the running sum of weights exceeds the target. If none
 * does, because sums taken in another order differ in the last bit, the last element with a
 * positive weight. */
template <typename Weight>
__device__ inline struct weight_position find_weight(i64 begin, i64 end, double target, const Weight &weight)
{
    SHARED(struct weight_position, found, 1);
    i32 me = (i32)threadIdx.x, threads = (i32)blockDim.x, best = 0;
    double sum = 0, all;
    __syncthreads(); /* for the previous call */
    if (me == 0)
        found[0] = {-1, 0};
    for (i64 first = begin; first < end && best <= threads; first += threads) {
        double w = first + me < end ? (double)weight(first + me) : 0, before = sum + block_scan(w, &all);
        i32 key = w > 0 && before + w > target ? 2 * threads - me : w > 0 ? me + 1 : 0;
        best = block_combine(key, 0, max_operator());
        if (best > 0 && key == best)
            found[0] = {first + me, before};
        sum += all;
    }
    __syncthreads();
    return found[0];
}

/* The first id at which the running sum of the nonnegative weights weigh(load(i)) exceeds u times
 * the total; -1 if all weights are zero. Warps sum segments; then the segment that contains the
 * target is scanned. */
template <typename Load, typename Weigh>
__device__ inline i64 draw_by_weight(double *total, i64 n, double u, const Load &load, const Weigh &weigh)
{
    SHARED(double, masses, SEGMENTS);
    i64 length = (n + SEGMENTS * CHUNK - 1) / (SEGMENTS * CHUNK) * CHUNK, count = (n + length - 1) / length;
    double sum = 0;
    for (i64 s = threadIdx.x / WARP_THREADS; s < count; s += blockDim.x / WARP_THREADS) {
        double mass = 0;
        i64 end = (s + 1) * length < n ? (s + 1) * length : n;
        visit_chunks(s * length, end, 0, 1, load, [&](i64, float x) { mass += (double)weigh(x); });
        mass = warp_combine(mass, sum_operator());
        if (threadIdx.x % WARP_THREADS == 0)
            masses[s] = mass;
    }
    __syncthreads();
    COLUMNS(s, count)
    {
        sum += masses[s];
    }
    *total = block_sum(sum);
    struct weight_position segment = find_weight(0, count, u * *total, [&](i64 s) { return masses[s]; });
    i64 begin = segment.at * length, end = begin + length < n ? begin + length : n;
    if (segment.at < 0)
        return -1;
    return find_weight(begin, end, u * *total - segment.before, [&](i64 i) { return weigh(load(i)); }).at;
}
#endif
