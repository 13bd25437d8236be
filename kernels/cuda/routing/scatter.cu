/* Scatter of rows by index. Sums in the order of i need no atomics: rows of x are sorted by
 * destination, and one block adds all rows of one destination. The sort is stable and ranks each
 * row by counting the rows before it. Counting is quadratic, so rows are processed in pieces of
 * PIECE, which costs PIECE comparisons per row. */
#include "kernels/cuda/cuda.h"

enum { PIECE = 4096, TILE = 1024, WARPS = BLOCK_THREADS / WARP_THREADS, ADD_THREADS = 128 };

/* Ranks 32 rows per block, one per lane; the block's warps split the ids that these rows are
 * compared with. sorted[s] and order[s] are the id at rank s and its i. */
static __global__ void sort_ids(i32 *sorted, i32 *order, const i32 *index, int count)
{
    grid_wait();
    SHARED(int4, tile, TILE / 4);
    SHARED(int, counted, BLOCK_THREADS);
    int lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS, i = blockIdx.x * WARP_THREADS + lane;
    int id = i < count ? index[i] : 0, before = 0;
    for (int first = 0; first < count; first += TILE) {
        for (int j = threadIdx.x; j < TILE; j += BLOCK_THREADS)
            ((int *)tile)[j] = first + j < count ? index[first + j] : INT32_MAX;
        __syncthreads();
        for (int k = warp * (TILE / 4 / WARPS); k < (warp + 1) * (TILE / 4 / WARPS); k++) {
            int4 ids = tile[k];
            int j = first + 4 * k;
            before += ids.x < id + (j < i);
            before += ids.y < id + (j + 1 < i);
            before += ids.z < id + (j + 2 < i);
            before += ids.w < id + (j + 3 < i);
        }
        __syncthreads();
    }
    counted[threadIdx.x] = before;
    __syncthreads();
    if (warp > 0 || i >= count)
        return;
    for (int w = 1; w < WARPS; w++)
        before += counted[w * WARP_THREADS + lane];
    sorted[before] = id;
    order[before] = i;
}

/* The first place after `begin` with a different id. */
__device__ static int end_of(const i32 *sorted, int begin, int count)
{
    int low = begin, high = count; /* sorted[low] is this id, sorted[high] is not */
    if (begin + 1 < count && sorted[begin + 1] != sorted[begin])
        return begin + 1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (sorted[middle] == sorted[begin])
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* Adds rows in order; every partial sum is rounded to out's dtype. */
template <typename Out, typename In, int N>
static __global__ void add_rows(struct matrix out, struct matrix x, const i32 *sorted, const i32 *order, int count)
{
    grid_wait();
    int begin = blockIdx.x;
    i64 row = sorted[begin], column = ((i64)blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (row < 0 || (begin > 0 && sorted[begin - 1] == row))
        return;
    int end = end_of(sorted, begin, count);
    for (; column < x.columns; column += (i64)gridDim.y * blockDim.x * N) {
        Out *to = row_of<Out>(out, row) + column;
        elements<Out, N> sum = load<N>(to);
#pragma unroll 4
        for (int s = begin; s < end; s++) {
            elements<In, N> from = load<N>(row_of<In>(x, order[s]) + column);
            for (int k = 0; k < N; k++)
                sum.at[k] = from_f32<Out>(to_f32(sum.at[k]) + to_f32(from.at[k]));
        }
        store(to, sum);
    }
}

static void add_piece(struct device *device, struct matrix out, struct matrix x, const i32 *index)
{
    bool quads = in_quads(out, x);
    int count = (int)x.rows;
    i64 runs = x.columns / (quads ? QUAD : 1);
    i32 *sorted = (i32 *)cuda_handles_of(device)->workspace, *order = sorted + PIECE;
    unsigned threads = (unsigned)min_i64(ADD_THREADS, round_up(runs, WARP_THREADS));
    dim3 grid((unsigned)count, (unsigned)min_i64(ceil_div(runs, threads), 1 << 15));
    LAUNCH(device, sort_ids, (unsigned)ceil_div(count, WARP_THREADS), BLOCK_THREADS, 0, sorted, order, index, count);
    LAUNCH_RUNS_BY_DTYPES(device, quads, out.dtype, x.dtype, add_rows, grid, threads, out, x, sorted, order, count);
}

extern "C" void cuda_scatter_add(struct device *device, struct matrix out, struct matrix x, const i32 *index)
{
    for (i64 first = 0; first < x.rows && x.columns > 0; first += PIECE)
        add_piece(device, out, matrix_rows(x, first, min_i64(PIECE, x.rows - first)), index + first);
}

template <typename T, int N> static __global__ void move_rows(struct matrix out, struct matrix x, const i32 *index)
{
    grid_wait();
    RUNS(N, at, column, x.rows, x.columns)
    {
        i64 row = index[at.row];
        if (row >= 0)
            store(row_of<T>(out, row) + column, load<N>(row_of<T>(x, at.row) + column));
    }
}

extern "C" void cuda_scatter(struct device *device, struct matrix out, struct matrix x, const i32 *index)
{
    LAUNCH_RUNS(device, in_quads(out, x), x.dtype, move_rows, x.rows * x.columns, out, x, index);
}
