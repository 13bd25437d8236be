#include "kernels/cuda/gemm/matmul_grouped.h"

/* Grouped gemm on f32 units, and on tensor cores since Ampere. matmul_grouped_hopper.cu has the
 * Hopper kernel.
 *
 *                     b, K x N of a slice, from shared memory
 *                   +-------+-------+-------+-------+
 *     a, M x K      | warp 0| warp 2| warp 4| warp 6|    bf16: 8 warps, 64 x 32 outputs each, from
 *     of a group    +-------+-------+-------+-------+    STAGES 4 steps of K in shared memory
 *                   | warp 1| warp 3| warp 5| warp 7|    f32: 4 x 4 outputs a thread, one step
 *                   +-------+-------+-------+-------+
 *
 *     M  rows of a group (dw: of a slice)   Mc  engine.M 128 (f32: 64)
 *     N  columns of out                     Nc  engine.N 128 (f32: 64); gated, half gate, half up
 *     K  depth (dw: rows of the group)      Kc  engine.K 32  (f32: 16)
 *
 * A block takes tiles b, b + gridDim, .. of all groups (matmul_grouped.h), so no group waits for
 * a launch of its own. Source: mma.m16n8k16 and ldmatrix of PTX ISA 9.7.14; the multistage
 * pipeline is that of CUTLASS for Ampere. */
enum { THREADS = 256 };

/* An operand of a tile's gemm. `outer` counts rows of the product for a and columns for b. The
 * operand is stored [outer, k], or [k, outer] if transposed. Elements past the ends are
 * zero. */
struct gemm_operand {
    const void *data; /* element (outer 0, k 0) */
    i64 stride, outer, outer_end, k, k_end;
    bool vector;     /* 16-byte reads are allowed */
    const i32 *rows; /* memory row of each row, -1: zeros; NULL: identity */
    i64 width;       /* gated weights: distance in rows from a gate row to its up row */
};
struct gemm_tile {
    struct gemm_operand a, b;
    struct matrix out; /* begins at the tile's first row and column; its size is what remains */
    bool add;
    struct matrix gate, up; /* shaped like out; data NULL: not kept */
};

/* Memory row of row i of a tile, -1 if there is none. Gated weights come in units of UNIT rows,
 * half gate and half up, so that a thread gets both numbers of its outputs. */
template <int UNIT> __device__ static i64 row_at(const struct gemm_operand &s, i64 first, int i, i64 end)
{
    i64 row = first + (UNIT > 1 ? i / UNIT * (UNIT / 2) + i % (UNIT / 2) : i);
    if (row >= end)
        return -1;
    return UNIT > 1 && i % UNIT >= UNIT / 2 ? row + s.width : s.rows ? s.rows[row] : row;
}

/* Stores SwiGLU of columns `column` (even) and the next; also stores gate and up if they are kept.
 */
template <typename T>
__device__ static void store_gated(const struct gemm_tile &w, i64 row, i64 column, const float (&gate)[2],
                                   const float (&up)[2])
{
    float y[2];
    for (int i = 0; i < 2; i++)
        y[i] = swiglu_rounded<T>(gate[i], up[i]);
    if (w.gate.data) {
        store_pair(w.gate, false, row, column, gate[0], gate[1]);
        store_pair(w.up, false, row, column, up[0], up[1]);
    }
    store_pair(w.out, false, row, column, y[0], y[1]);
}

/* ---- f32: tiles on ordinary registers, 4 x 4 outputs per thread ---- */
template <typename T, bool transpose_a, bool transpose_b, bool gates> struct engine;

template <bool transpose_a, bool transpose_b, bool gates> struct engine<float, transpose_a, transpose_b, gates> {
    enum { M = 64, N = 64, K = 16, OWN = 4, ACROSS = N / OWN, UNIT = gates ? OWN : 1 };
    struct shared {
        float a[K][M + 4], b[K][N + 4];
    };

    template <bool transposed, int UNIT>
    __device__ static void load(float (*tile)[M + 4], const struct gemm_operand &s, i64 k)
    {
        for (int i = threadIdx.x; i < M * K; i += THREADS) {
            int outer = transposed ? i % M : i / K, depth = transposed ? i / M : i % K;
            i64 row = transposed ? row_at<1>(s, s.k + k, depth, s.k_end) : row_at<UNIT>(s, s.outer, outer, s.outer_end);
            i64 column = transposed ? s.outer + outer : s.k + k + depth, end = transposed ? s.outer_end : s.k_end;
            tile[depth][outer] = row >= 0 && column < end ? ((const float *)s.data)[row * s.stride + column] : 0;
        }
    }

    __device__ static void multiply(struct shared *tiles, const struct gemm_tile &w)
    {
        float d[OWN][OWN] = {};
        int row = threadIdx.x / ACROSS * OWN, column = threadIdx.x % ACROSS * OWN;
        for (i64 k = 0; k < w.a.k_end - w.a.k; k += K) {
            __syncthreads();
            load<transpose_a, 1>(tiles->a, w.a, k);
            load<transpose_b, UNIT>(tiles->b, w.b, k);
            __syncthreads();
#pragma unroll
            for (int l = 0; l < K; l++)
#pragma unroll
                for (int i = 0; i < OWN; i++)
#pragma unroll
                    for (int j = 0; j < OWN; j++)
                        d[i][j] += tiles->a[l][row + i] * tiles->b[l][column + j];
        }
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            if constexpr (gates)
                store_gated<float>(w, row + i, column / 2, {d[i][0], d[i][1]}, {d[i][2], d[i][3]});
#pragma unroll
            for (int j = 0; !gates && j < OWN; j++)
                store(w.out, w.add, row + i, column + j, d[i][j]);
        }
    }
};

/* ---- bf16 on tensor cores (mma.sync) ----
 * STAGES - 1 steps of k are in flight. A warp computes 64 x 32 outputs. */
template <bool transpose_a, bool transpose_b, bool gates> struct engine<bf16, transpose_a, transpose_b, gates> {
    enum { M = 128, N = 128, K = 32, STAGES = 4, WARP_M = 64, WARP_N = 32, DOWN = WARP_M / 16, ACROSS = WARP_N / 8 };
    enum { UNIT = gates ? WARP_N : 1 };

    /* Row padding makes the 8 rows of an ldmatrix hit each bank once. */
    template <bool transposed> struct tile {
        enum { ROWS = transposed ? K : M, COLUMNS_ = transposed ? M : K };
        bf16 at[ROWS][COLUMNS_ + 8];
    };
    struct stage {
        tile<transpose_a> a;
        tile<transpose_b> b;
    };
    struct shared {
        stage at[STAGES];
    };

    template <bool transposed, int UNIT>
    __device__ static void load(tile<transposed> *to, const struct gemm_operand &s, i64 k)
    {
        enum { CHUNKS = tile<transposed>::COLUMNS_ / 8 };
        i64 row = transposed ? s.k + k : s.outer, row_end = transposed ? s.k_end : s.outer_end;
        i64 column = transposed ? s.outer : s.k + k, column_end = transposed ? s.outer_end : s.k_end;
        const bf16 *from = (const bf16 *)s.data;
        for (int i = threadIdx.x; i < tile<transposed>::ROWS * CHUNKS; i += THREADS) {
            int r = i / CHUNKS, c = i % CHUNKS * 8;
            i64 in_memory = row_at < transposed ? 1 : UNIT > (s, row, r, row_end),
                at = in_memory * s.stride + column + c;
            i64 left = in_memory >= 0 ? column_end - (column + c) : 0;
            if (s.vector) {
                copy_async(&to->at[r][c], from + (left > 0 ? at : 0), left > 0);
                continue;
            }
            for (int j = 0; j < 8; j++)
                to->at[r][c + j] = j < left ? from[at + j] : 0;
        }
    }

    __device__ static void load_stage(struct shared *tiles, const struct gemm_tile &w, i64 step)
    {
        if (step * K < w.a.k_end - w.a.k) {
            load<transpose_a, 1>(&tiles->at[step % STAGES].a, w.a, step * K);
            load<transpose_b, UNIT>(&tiles->at[step % STAGES].b, w.b, step * K);
        }
        copies_commit();
    }

    __device__ static void load_a(u32 (&out)[4], const tile<transpose_a> &a, int outer, int k, int lane)
    {
        if (transpose_a)
            load_matrices_transposed(out, &a.at[k + lane / 16 * 8 + lane % 8][outer + lane / 8 % 2 * 8]);
        else
            load_matrices(out, &a.at[outer + lane % 16][k + lane / 16 * 8]);
    }
    /* Loads 16 columns; out[0..1] hold the first eight. */
    __device__ static void load_b(u32 (&out)[4], const tile<transpose_b> &b, int outer, int k, int lane)
    {
        if (transpose_b)
            load_matrices_transposed(out, &b.at[k + lane % 16][outer + lane / 16 * 8]);
        else
            load_matrices(out, &b.at[outer + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
    }

    /* Multiplies one stage. `down`: number of the warp's 16-row strips that have rows. */
    __device__ static void multiply_stage(float (&d)[DOWN][ACROSS][4], const stage &s, int row, int column, int down)
    {
        int lane = threadIdx.x % WARP_THREADS;
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            u32 b[ACROSS / 2][4];
#pragma unroll
            for (int j = 0; j < ACROSS / 2; j++)
                load_b(b[j], s.b, column + 16 * j, k, lane);
#pragma unroll
            for (int i = 0; i < DOWN; i++) {
                u32 a[4];
                if (i >= down)
                    break;
                load_a(a, s.a, row + 16 * i, k, lane);
#pragma unroll
                for (int j = 0; j < ACROSS; j++)
                    mma(d[i][j], a, b[j / 2] + j % 2 * 2);
            }
        }
    }

    __device__ static void multiply(struct shared *tiles, const struct gemm_tile &w)
    {
        float d[DOWN][ACROSS][4] = {};
        int lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
        int row = warp % (M / WARP_M) * WARP_M, column = warp / (M / WARP_M) * WARP_N;
        int first = gates ? column / 2 : column; /* first output column */
        int down = first < w.out.columns ? (int)((w.out.rows - row + 15) / 16) : 0;
        for (int step = 0; step < STAGES - 1; step++)
            load_stage(tiles, w, step);
        for (i64 step = 0; step * K < w.a.k_end - w.a.k; step++) {
            copies_wait<STAGES - 2>();
            __syncthreads();
            load_stage(tiles, w, step + STAGES - 1);
            if (down > 0)
                multiply_stage(d, tiles->at[step % STAGES], row, column, down);
        }
        __syncthreads(); /* before the copies of the next tile */
#pragma unroll
        for (int i = 0; i < DOWN; i++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                store_row(w, row + 16 * i + lane / 4 + 8 * half, first + lane % 4 * 2, d[i], 2 * half);
    }

    /* Stores the thread's part of a row: d[.][at] and d[.][at + 1]. */
    __device__ static void store_row(const struct gemm_tile &w, i64 row, i64 column, const float (&d)[ACROSS][4],
                                     int at)
    {
#pragma unroll
        for (int j = 0; j < (gates ? ACROSS / 2 : ACROSS); j++)
            if constexpr (gates)
                store_gated<bf16>(w, row, column + 8 * j, {d[j][at], d[j][at + 1]},
                                  {d[j + ACROSS / 2][at], d[j + ACROSS / 2][at + 1]});
            else
                store_pair(w.out, w.add, row, column + 8 * j, d[j][at], d[j][at + 1]);
    }
};

/* ---- A tile of a group ---- */
template <typename E, enum gemm_kind kind>
__device__ static struct gemm_tile gemm_tile_of(const struct grouped_gemm &p, i64 group, i32 tile)
{
    i64 columns = tile_columns<kind, E::N>(), across = (p.out.columns + columns - 1) / columns;
    i64 row = tile / across * E::M, column = tile % across * columns;
    i64 begin = p.groups.offsets[group], end = p.groups.offsets[group + 1];
    i64 member = p.groups.member ? p.groups.member[group] : group, slice = member * p.slice_rows;
    struct gemm_tile w = {
        {p.a.data, p.a.stride, 0, 0, 0, 0, p.vector_a != 0, kind == GEMM_SWIGLU ? p.rows : NULL, 0},
        {p.b.data, p.b.stride, 0, 0, 0, 0, p.vector_b != 0, kind == GEMM_WEIGHTS ? p.rows : NULL, p.out.columns},
        {}};
    if (kind == GEMM_WEIGHTS) {
        w.a.k = w.b.k = begin;
        w.a.k_end = w.b.k_end = end;
        w.a.outer = row;
        w.a.outer_end = p.slice_rows;
        w.b.outer = column;
        w.b.outer_end = p.out.columns;
        w.out = part_of(p.out, slice + row, column, p.slice_rows - row);
        w.add = p.written[member];
        return w;
    }
    w.a.outer = begin + row;
    w.a.outer_end = end;
    w.a.k_end = w.b.k_end = p.a.columns;
    w.b.data = part_of(p.b, slice, 0, p.slice_rows).data;
    w.b.outer = column;
    w.b.outer_end = p.out.columns;
    w.out = part_of(p.out, begin + row, column, end - begin - row);
    if (kind == GEMM_SWIGLU && p.gate_up.data) {
        w.gate = part_of(p.gate_up, begin + row, column, end - begin - row);
        w.up = part_of(p.gate_up, begin + row, p.out.columns + column, end - begin - row);
        w.gate.columns = w.up.columns;
    }
    return w;
}

template <typename T, enum gemm_kind kind>
static __global__ void __launch_bounds__(THREADS, 2) multiply(struct grouped_gemm p)
{
    grid_wait();
    typedef engine<T, kind == GEMM_WEIGHTS, kind == GEMM_PLAIN || kind == GEMM_WEIGHTS, kind == GEMM_SWIGLU> E;
    DYNAMIC_SHARED(char, memory);
    typename E::shared *tiles = (typename E::shared *)memory;
    i32 *starts = (i32 *)(memory + sizeof *tiles);
    count_tiles<E::M, E::N, kind>(starts, p);
    for (i32 tile = (i32)blockIdx.x; tile < starts[p.groups.count]; tile += (i32)gridDim.x) {
        i64 group = route_run_of(starts, p.groups.count, tile);
        E::multiply(tiles, gemm_tile_of<E, kind>(p, group, tile - starts[group]));
    }
}

template <typename T, enum gemm_kind kind> static void launch(struct device *device, struct grouped_gemm p)
{
    typedef engine<T, kind == GEMM_WEIGHTS, kind == GEMM_PLAIN || kind == GEMM_WEIGHTS, kind == GEMM_SWIGLU> E;
    i64 rows = kind == GEMM_WEIGHTS ? p.slice_rows : p.out.rows, bytes = sizeof(typename E::shared);
    i64 down = kind == GEMM_WEIGHTS ? p.groups.count * ceil_div(rows, E::M) : ceil_div(rows, E::M) + p.groups.count;
    i64 tiles = down * ceil_div(p.out.columns, tile_columns<kind, E::N>());
    if (tiles == 0)
        return;
    CUDA_CHECK(cudaFuncSetAttribute((multiply<T, kind>), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)(bytes + (GROUPS_MOST + 1) * 4)));
    LAUNCH(device, (multiply<T, kind>), (unsigned)min_i64(tiles, 2 * cuda_handles_of(device)->multiprocessors), THREADS,
           bytes + (p.groups.count + 1) * 4, p);
}

/* True if a bf16 matrix may be read 16 bytes at a time. */
static bool reads_vectors(struct matrix m)
{
    return (uintptr_t)m.data % 16 == 0 && m.stride % 8 == 0 && m.columns % 8 == 0;
}

extern "C" void cuda_matmul_grouped(struct device *device, struct matrix out, struct matrix a, struct matrix w,
                                    i64 experts, bool transpose, const struct groups *groups)
{
    i64 slice_rows = w.rows / experts;
    require(groups->count <= GROUPS_MOST, "matmul_grouped: %lld groups", (long long)groups->count);
    struct grouped_gemm p = {out, a, w, NULL, slice_rows, *groups, reads_vectors(a), reads_vectors(w), NULL, {}};
    if (grouped_hopper(device, p, transpose ? GEMM_TRANSPOSED : GEMM_PLAIN))
        return;
    if (a.dtype == DTYPE_BF16 && transpose)
        launch<bf16, GEMM_TRANSPOSED>(device, p);
    else if (a.dtype == DTYPE_BF16)
        launch<bf16, GEMM_PLAIN>(device, p);
    else if (transpose)
        launch<float, GEMM_TRANSPOSED>(device, p);
    else
        launch<float, GEMM_PLAIN>(device, p);
}

extern "C" void cuda_matmul_grouped_swiglu(struct device *device, struct matrix y, struct matrix gate_up,
                                           struct matrix x, const i32 *rows, struct matrix w, i64 experts,
                                           const struct groups *groups)
{
    require(groups->count <= GROUPS_MOST, "matmul_grouped_swiglu: %lld groups", (long long)groups->count);
    struct grouped_gemm p = {y, x, w, NULL, 2 * y.columns, *groups, reads_vectors(x), reads_vectors(w), rows, gate_up};
    if (grouped_hopper(device, p, GEMM_SWIGLU))
        return;
    if (x.dtype == DTYPE_BF16)
        launch<bf16, GEMM_SWIGLU>(device, p);
    else
        launch<float, GEMM_SWIGLU>(device, p);
}

static __global__ void mark_slices(u8 *written, struct groups groups)
{
    grid_wait();
    GRID_STRIDE(g, groups.count)
    if (groups.offsets[g + 1] > groups.offsets[g])
        written[groups.member ? groups.member[g] : g] = 1;
}

void mark_written(struct device *device, u8 *written, const struct groups &groups)
{
    if (groups.count > 0)
        LAUNCH(device, mark_slices, blocks_for(groups.count), BLOCK_THREADS, 0, written, groups);
}

extern "C" void cuda_matmul_grouped_weights(struct device *device, struct matrix dw, u8 *written, i64 experts,
                                            struct matrix dy, struct matrix x, const i32 *rows,
                                            const struct groups *groups)
{
    i64 slice_rows = dw.rows / experts;
    require(groups->count <= GROUPS_MOST, "matmul_grouped_weights: %lld groups", (long long)groups->count);
    struct grouped_gemm p = {dw, dy, x, written, slice_rows, *groups, reads_vectors(dy), reads_vectors(x), rows, {}};
    if (!grouped_hopper(device, p, GEMM_WEIGHTS)) {
        if (dy.dtype == DTYPE_BF16)
            launch<bf16, GEMM_WEIGHTS>(device, p);
        else
            launch<float, GEMM_WEIGHTS>(device, p);
    }
    mark_written(device, written, *groups);
}
