#include "kernels/cuda/hopper.h"
#include "kernels/cuda/gemm/matmul_grouped.h"

/* Grouped gemm on Hopper's tensor cores (wgmma). A producer thread issues TMA copies STAGES steps
 * of k ahead, across tiles (persistent blocks). Two consumer warpgroups multiply 64 rows of a tile
 * each. bf16 outputs go back through TMA stores, which run while the next tile is multiplied.
 *
 *     shared:  | stage 0: a, b | stage 1: a, b | ... |   full / empty mbarriers per stage
 *     tile 128 x N:   warpgroup 0: rows 0 - 63
 *                     warpgroup 1: rows 64 - 127
 *
 * Gathered rows (by index) are not a TMA box. The four warps of the producer's warpgroup copy them
 * 16 bytes at a time to the place where a box would put them, next to the TMA boxes of the other
 * operand. A gated tile has as many gate columns as up columns, in two boxes of weights, so that
 * each thread holds both numbers of its outputs.
 *
 *     M  rows of a group        Mc  TILE_M 128, 64 per warpgroup
 *     N  columns (gated: both)  Nc  N 256 or 128 (launch_by_width)
 *     K  depth of a             Kc  TILE_K 64, a stage; 4 stages (3 of 256 columns, but for dw)
 *     For dw, M and N are rows and columns of a slice, and K is the rows of its group.
 *     One instruction: m64 x N x k16, sums in registers (d [N / 2] of each thread)
 *
 * Source: warp-specialized persistent kernels of CUTLASS 3; PTX ISA 9.7.15 (wgmma), 5.5 (TMA). */
enum { CONSUMERS = 2, ROWS = 64 /* per warpgroup */, TILE_M = CONSUMERS * ROWS, TILE_K = TILE_COLUMNS };
enum { CONSUMER_THREADS = CONSUMERS * WARPGROUP_THREADS, THREADS = CONSUMER_THREADS + WARPGROUP_THREADS };
enum { CONSUMER_REGISTERS = 232, PRODUCER_REGISTERS = 40, WARPS = CONSUMER_THREADS / WARP_THREADS };
enum { BOX = TILE_COLUMNS * TILE_K /* elements: 64 rows or columns x 64 of k */ };

template <enum gemm_kind kind, int N> struct grouped_layout {
    static constexpr enum tile_layout A = kind == GEMM_WEIGHTS ? BY_COLUMNS : BY_ROWS;
    static constexpr enum tile_layout B = kind == GEMM_TRANSPOSED || kind == GEMM_SWIGLU ? BY_ROWS : BY_COLUMNS;
    enum { STAGES = N == 256 && kind != GEMM_WEIGHTS ? 3 : 4, STORING = kind != GEMM_WEIGHTS ? WARPS : 1 };
    struct stage {
        bf16 a[CONSUMERS][BOX], b[N / TILE_COLUMNS][BOX];
    };
    struct shared {
        struct stage at[STAGES];
        bf16 out[STORING][N / TILE_COLUMNS][WARP_ROWS * TILE_COLUMNS]; /* output boxes of each warp */
        u64 full[STAGES], empty[STAGES];
        i32 starts[1]; /* [groups + 1] */
    };
};

/* A tile: its first row and column in its group's output, and the group's rows and slice. */
struct grouped_tile_place {
    i32 tile, group; /* groups.count: no more tiles */
    i32 row, column, begin, rows, slice;
    bool add; /* weight gradient: add to the slice */
};
template <enum gemm_kind kind, int N>
__device__ static struct grouped_tile_place place_of(const struct grouped_gemm &p, const i32 *starts, i32 tile,
                                                     i64 from)
{
    constexpr i32 columns = tile_columns<kind, N>();
    i32 group = (i32)group_of_tile(starts, p.groups.count, from, tile);
    if (group == p.groups.count)
        return {tile, group, 0, 0, 0, 0, 0, false};
    i32 across = ((i32)p.out.columns + columns - 1) / columns, own = tile - starts[group];
    i32 begin = p.groups.offsets[group], slice = p.groups.member ? p.groups.member[group] : group;
    return {tile,
            group,
            own / across * TILE_M,
            own % across * columns,
            begin,
            p.groups.offsets[group + 1] - begin,
            slice,
            kind == GEMM_WEIGHTS && p.written[slice] != 0};
}
template <enum gemm_kind kind, int N>
__device__ static struct grouped_tile_place first_place(const struct grouped_gemm &p, const i32 *starts)
{
    i32 tile = (i32)blockIdx.x;
    return place_of<kind, N>(p, starts, tile, route_run_of(starts, p.groups.count, tile));
}
template <enum gemm_kind kind, int N>
__device__ static struct grouped_tile_place next_place(const struct grouped_gemm &p, const i32 *starts,
                                                       const struct grouped_tile_place &at)
{
    return place_of<kind, N>(p, starts, at.tile + (i32)gridDim.x, at.group);
}
template <enum gemm_kind kind>
__device__ static i32 depth_of(const struct grouped_gemm &p, const struct grouped_tile_place &at)
{
    return kind == GEMM_WEIGHTS ? at.rows : (i32)p.a.columns;
}

/* ---- The producer: one thread ---- */
template <enum gemm_kind kind, int N>
__device__ static void load_a(typename grouped_layout<kind, N>::stage *to, const tile_map *a, u64 *full,
                              const struct grouped_tile_place &at, i32 k)
{
    typedef grouped_layout<kind, N> L;
    if (L::A == BY_ROWS)
        tile_load(to->a[0], a, full, k, at.begin + at.row, 0);
    for (int i = 0; L::A == BY_COLUMNS && i < CONSUMERS; i++)
        tile_load(to->a[i], a, full, at.row + i * TILE_COLUMNS, at.begin + k, 0);
}
template <enum gemm_kind kind, int N>
__device__ static void load_b(typename grouped_layout<kind, N>::stage *to, const tile_map *b, u64 *full,
                              const struct grouped_tile_place &at, i32 k)
{
    typedef grouped_layout<kind, N> L;
    if (kind == GEMM_SWIGLU) {
        tile_load(to->b[0], b, full, k, at.column, 2 * at.slice);
        tile_load(to->b[N / TILE_COLUMNS / 2], b, full, k, at.column, 2 * at.slice + 1);
    } else if (L::B == BY_ROWS) {
        tile_load(to->b[0], b, full, k, at.column, at.slice);
    }
    for (int i = 0; L::B == BY_COLUMNS && i < N / TILE_COLUMNS; i++)
        tile_load(to->b[i], b, full, at.column + i * TILE_COLUMNS, kind == GEMM_WEIGHTS ? at.begin + k : k,
                  kind == GEMM_WEIGHTS ? 0 : at.slice);
}

template <enum gemm_kind kind, int N>
__device__ static void produce(typename grouped_layout<kind, N>::shared *s, const struct grouped_gemm &p,
                               const tile_map *a, const tile_map *b)
{
    struct copy_ring r = {0, 1}; /* all stages start empty */
    for (struct grouped_tile_place at = first_place<kind, N>(p, s->starts); at.group < p.groups.count;
         at = next_place<kind, N>(p, s->starts, at)) {
        for (i32 k = 0, depth = depth_of<kind>(p, at); k < depth; k += TILE_K) {
            typename grouped_layout<kind, N>::stage *to = &s->at[r.at];
            mbarrier_wait(&s->empty[r.at], r.phase);
            mbarrier_arrive_expecting(&s->full[r.at], sizeof *to);
            load_a<kind, N>(to, a, &s->full[r.at], at, k);
            load_b<kind, N>(to, b, &s->full[r.at], at, k);
            advance<grouped_layout<kind, N>::STAGES>(&r);
        }
    }
}

/* ---- The producer of gathered rows: a warpgroup. A thread copies 8 columns of every 16th row ----
 */
enum { GATHERING_WARPS = WARPGROUP_THREADS / WARP_THREADS, APART = WARPGROUP_THREADS / 8 };

/* Memory rows of rows first, first + APART, ... of a group that ends before `end`; -1: zeros. */
template <int COUNT>
__device__ static void find_rows(i32 (&source)[COUNT], const struct grouped_gemm &p, i32 first, i32 end)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        source[i] = first + i * APART < end ? p.rows[first + i * APART] : -1;
}

/* Copies 8 columns from `column` on of these rows to rows own, own + APART, ... of a box. */
template <int COUNT>
__device__ static void copy_rows(bf16 *box, const struct matrix &from, const i32 (&source)[COUNT], int own, i32 column)
{
    bf16 *to = box + own * TILE_COLUMNS + (column / 8 % 8 ^ own % 8) * 8; /* APART is a multiple of 8 */
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        bool there = source[i] >= 0 && column < from.columns;
        copy_async(to + i * APART * TILE_COLUMNS, row_of<bf16>(from, there ? source[i] : 0) + (there ? column : 0),
                   there);
    }
}

/* Makes this thread's copies, except those of the last `left` stages, visible to the tensor cores
 * and signals their barrier. */
template <int left> __device__ static void hand_over(u64 *full)
{
    copies_wait<left>();
    fence_proxy_async();
    mbarrier_release(full);
}

/* Produces gathered stages. A stage is handed over while the next one is in flight. */
template <enum gemm_kind kind, int N>
__device__ static void produce_gathered(typename grouped_layout<kind, N>::shared *s, const struct grouped_gemm &p,
                                        const tile_map *a, const tile_map *b)
{
    typedef grouped_layout<kind, N> L;
    enum { COUNT = (kind == GEMM_WEIGHTS ? TILE_K : TILE_M) / APART };
    struct copy_ring r = {0, 1};
    int thread = (int)threadIdx.x - CONSUMER_THREADS, own = thread / 8;
    i32 column = thread % 8 * 8, before = -1, source[COUNT];
    for (struct grouped_tile_place at = first_place<kind, N>(p, s->starts); at.group < p.groups.count;
         at = next_place<kind, N>(p, s->starts, at)) {
        i32 end = at.begin + at.rows;
        if (kind != GEMM_WEIGHTS)
            find_rows(source, p, at.begin + at.row + own, end);
        for (i32 k = 0, depth = depth_of<kind>(p, at); k < depth; k += TILE_K) {
            typename L::stage *to = &s->at[r.at];
            u64 *full = &s->full[r.at];
            if (kind == GEMM_WEIGHTS)
                find_rows(source, p, at.begin + k + own, end);
            mbarrier_wait(&s->empty[r.at], r.phase);
            if (thread == 0) {
                mbarrier_arrive_expecting(full, kind == GEMM_WEIGHTS ? sizeof to->a : sizeof to->b);
                if (kind == GEMM_WEIGHTS)
                    load_a<kind, N>(to, a, full, at, k);
                else
                    load_b<kind, N>(to, b, full, at, k);
            }
            if (kind != GEMM_WEIGHTS)
                copy_rows(to->a[0], p.a, source, own, k + column);
            for (int i = 0; kind == GEMM_WEIGHTS && i < N / TILE_COLUMNS; i++)
                copy_rows(to->b[i], p.b, source, own, at.column + i * TILE_COLUMNS + column);
            copies_commit();
            if (before >= 0)
                hand_over<1>(&s->full[before]);
            before = (i32)r.at;
            advance<L::STAGES>(&r);
        }
    }
    if (before >= 0)
        hand_over<0>(&s->full[before]);
}

/* ---- Consumers: one warpgroup each ---- */
/* d (+)= a b of a stage: DEPTH columns of k from `from` on. */
template <enum gemm_kind kind, int N, int DEPTH>
__device__ static void multiply_stage(float (&d)[N / 2], const typename grouped_layout<kind, N>::stage *s,
                                      int warpgroup, i32 from, bool add)
{
    typedef grouped_layout<kind, N> L;
    u64 a = tile_descriptor(s->a[warpgroup], BOX * 2), b = tile_descriptor(s->b, BOX * 2);
    keep_in_place(d);
    warpgroup_fence();
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16)
        warpgroup_mma<L::A, L::B>(d, further<L::A>(a, from + k), further<L::B>(b, from + k), add || k > 0);
    warpgroup_commit();
}

/* Multiplies a tile and releases its stages. The next tile is found while the last wgmma runs. In a
 * forward gemm, k past the end of a stage is zero. In the weight gradient it belongs to the next
 * group, so the last steps take 16 rows each; groups are multiples of 16 rows. */
template <enum gemm_kind kind, int N>
__device__ static void multiply_tile(float (&d)[N / 2], struct grouped_tile_place *next,
                                     typename grouped_layout<kind, N>::shared *s, struct copy_ring *r,
                                     const struct grouped_gemm &p, const struct grouped_tile_place &at, int warpgroup)
{
    i32 depth = depth_of<kind>(p, at);
    i32 whole = kind == GEMM_WEIGHTS ? depth / TILE_K * TILE_K : depth;
    u32 before = 0;
    for (i32 k = 0; k < whole; k += TILE_K) {
        mbarrier_wait(&s->full[r->at], r->phase);
        multiply_stage<kind, N, TILE_K>(d, &s->at[r->at], warpgroup, 0, k > 0);
        warpgroup_wait<1>();
        if (k > 0)
            mbarrier_release(&s->empty[before]);
        before = r->at;
        advance<grouped_layout<kind, N>::STAGES>(r);
    }
    *next = next_place<kind, N>(p, s->starts, at);
    warpgroup_wait<0>();
    keep_in_place(d);
    if (whole > 0)
        mbarrier_release(&s->empty[before]);
    if (whole >= depth)
        return;
    mbarrier_wait(&s->full[r->at], r->phase);
    for (i32 k = whole; k < depth; k += 16) {
        multiply_stage<kind, N, 16>(d, &s->at[r->at], warpgroup, k - whole, k > 0);
        warpgroup_wait<0>();
        keep_in_place(d);
    }
    mbarrier_release(&s->empty[r->at]);
    advance<grouped_layout<kind, N>::STAGES>(r);
}

/* Releases the stages of a tile in which this warpgroup has no rows. */
template <enum gemm_kind kind, int N>
__device__ static void release_stages(typename grouped_layout<kind, N>::shared *s, struct copy_ring *r, i32 depth)
{
    for (i32 k = 0; k < depth; k += TILE_K) {
        mbarrier_wait(&s->full[r->at], r->phase);
        mbarrier_release(&s->empty[r->at]);
        advance<grouped_layout<kind, N>::STAGES>(r);
    }
}

/* Weight gradient: the output from the tile's corner to the right and down. */
[[maybe_unused]] __device__ static struct matrix weights_at(const struct grouped_gemm &p,
                                                            const struct grouped_tile_place &at)
{
    return part_of(p.out, at.slice * p.slice_rows + at.row, at.column, p.slice_rows - at.row);
}

/* Stores gate and up if they are kept, then SwiGLU of the rounded values, which reuses the boxes of
 * gate. */
template <int N>
__device__ static void store_gated(const struct grouped_gemm &p, const float (&d)[N / 2],
                                   bf16 (*box)[WARP_ROWS * TILE_COLUMNS], const tile_map *out, const tile_map *gate_up,
                                   i32 row, i32 column)
{
    enum { BOXES = N / 2 / TILE_COLUMNS };
    i32 columns = (i32)p.out.columns;
    if (p.gate_up.data) {
        fill_boxes_of_warp<N>(box, d);
        if (threadIdx.x % WARP_THREADS == 0) {
            send_boxes<BOXES>(box, gate_up, row, column, columns, 0);
            send_boxes<BOXES>(box + BOXES, gate_up, row, column, columns, 1);
            tile_stores_commit();
        }
    }
    float y[N / 4];
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        y[i] = swiglu_rounded<bf16>(d[i], d[i + N / 4]);
    store_boxes_of_warp<N / 2>(box, y, out, row, column, columns);
}

template <enum gemm_kind kind, int N>
__device__ static void consume(typename grouped_layout<kind, N>::shared *s, const struct grouped_gemm &p,
                               const tile_map *out, const tile_map *gate_up, int warp)
{
    struct copy_ring r = {0, 0};
    struct grouped_tile_place at = first_place<kind, N>(p, s->starts), next;
    for (; at.group < p.groups.count; at = next) {
        i32 rows = kind == GEMM_WEIGHTS ? (i32)p.slice_rows : at.rows;
        float d[N / 2] = {}; /* CUDA before 12.9 serializes wgmma into uninitialized registers */
        if (at.row + warp / 4 * ROWS >= rows) {
            release_stages<kind, N>(s, &r, depth_of<kind>(p, at));
            next = next_place<kind, N>(p, s->starts, at);
            continue;
        }
        if (at.add)
            prefetch_rows_of_warp<N>(weights_at(p, at), warp * WARP_ROWS);
        multiply_tile<kind, N>(d, &next, s, &r, p, at, warp / 4);
        i32 row = at.row + warp * WARP_ROWS;
        if constexpr (kind == GEMM_WEIGHTS)
            store_rows_of_warp<N>(weights_at(p, at), at.add, warp * WARP_ROWS, d);
        else if (row < rows && kind == GEMM_SWIGLU)
            store_gated<N>(p, d, s->out[warp], out, gate_up, at.begin + row, at.column);
        else if (row < rows)
            store_boxes_of_warp<N>(s->out[warp], d, out, at.begin + row, at.column, (i32)p.out.columns);
    }
    if (kind != GEMM_WEIGHTS && threadIdx.x % WARP_THREADS == 0)
        tile_stores_wait_read<0>();
}

template <enum gemm_kind kind, int N, bool gathers>
static __global__ void __launch_bounds__(THREADS, 1)
    multiply(struct grouped_gemm p, const __grid_constant__ tile_map a, const __grid_constant__ tile_map b,
             const __grid_constant__ tile_map out, const __grid_constant__ tile_map gate_up)
{
    grid_wait();
#ifdef WEFT_HOPPER
    typedef grouped_layout<kind, N> L;
    DYNAMIC_SHARED(typename L::shared, s);
    if (threadIdx.x == 0) {
        ring_init(s->full, s->empty, WARPS, gathers ? 1 + GATHERING_WARPS : 1);
        fence_proxy_async();
    }
    count_tiles<TILE_M, N, kind>(s->starts, p);
    int warp = warp_of_block();
    if (warp >= WARPS) {
        registers_give<PRODUCER_REGISTERS>();
        if (gathers)
            produce_gathered<kind, N>(s, p, &a, &b);
        else if (threadIdx.x == CONSUMER_THREADS)
            produce<kind, N>(s, p, &a, &b);
    } else {
        registers_take<CONSUMER_REGISTERS>();
        consume<kind, N>(s, p, &out, &gate_up, warp);
    }
#endif
}

/* ---- Host side ---- */
static i64 tiles_most(const struct grouped_gemm &p, enum gemm_kind kind, i64 columns)
{
    i64 down = kind == GEMM_WEIGHTS ? p.groups.count * ceil_div(p.slice_rows, TILE_M)
                                    : ceil_div(p.out.rows, TILE_M) + p.groups.count;
    return down * ceil_div(kind == GEMM_SWIGLU ? 2 * p.out.columns : p.out.columns, columns);
}

template <enum gemm_kind kind, int N> static tile_map map_of_b(const struct grouped_gemm &p)
{
    typedef grouped_layout<kind, N> L;
    i64 parts = kind == GEMM_WEIGHTS ? 1 : p.b.rows / p.slice_rows;
    if (kind == GEMM_SWIGLU)
        return tile_map_of(p.b, 2 * parts, N / 2);
    return tile_map_of(p.b, parts, L::B == BY_ROWS ? N : TILE_K);
}

/* Tensor map of gate_up. Coordinates: column of a half, row, half. */
static tile_map map_of_gate_up(struct matrix m)
{
    return tile_map_of({m.data, {m.columns / 2, m.rows, 2}, {m.stride, m.columns / 2}, {WARP_ROWS, 1}});
}

template <enum gemm_kind kind, int N, bool gathers>
static void launch(struct device *device, const struct grouped_gemm &p)
{
    typedef grouped_layout<kind, N> L;
    i64 bytes = round_up((i64)sizeof(typename L::shared) + p.groups.count * 4, TILE_ALIGNMENT);
    unsigned blocks = (unsigned)min_i64(tiles_most(p, kind, N), cuda_handles_of(device)->multiprocessors);
    tile_map a = tile_map_of(p.a, 1, L::A == BY_ROWS ? TILE_M : TILE_K), b = map_of_b<kind, N>(p);
    tile_map out = kind == GEMM_WEIGHTS ? a : tile_map_of(p.out, 1, WARP_ROWS);
    tile_map gate_up = kind == GEMM_SWIGLU && p.gate_up.data ? map_of_gate_up(p.gate_up) : out;
    CUDA_CHECK(
        cudaFuncSetAttribute((multiply<kind, N, gathers>), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    LAUNCH(device, (multiply<kind, N, gathers>), blocks, THREADS, bytes, p, a, b, out, gate_up);
}

/* Uses tiles of 128 columns where 256 would leave half of the last tile empty, or multiprocessors
 * idle. */
template <enum gemm_kind kind, bool gathers>
static void launch_by_width(struct device *device, const struct grouped_gemm &p)
{
    i64 last = (kind == GEMM_SWIGLU ? 2 * p.out.columns : p.out.columns) % 256;
    if ((last > 0 && last <= 128) || tiles_most(p, kind, 256) < 2 * cuda_handles_of(device)->multiprocessors)
        launch<kind, 128, gathers>(device, p);
    else
        launch<kind, 256, gathers>(device, p);
}

/* True if the operands suit TMA. Gathered rows are read 16 bytes at a time, and each half of
 * gate_up must begin at a multiple of 16 bytes. */
static bool takes(const struct grouped_gemm &p, enum gemm_kind kind)
{
    struct matrix rows = kind == GEMM_WEIGHTS ? p.b : p.a;
    bool written = kind == GEMM_WEIGHTS || has_tile_map(p.out);
    bool kept = !p.gate_up.data || (has_tile_map(p.gate_up) && p.out.columns % 8 == 0);
    return has_tile_map(p.a) && has_tile_map(p.b) && p.out.columns > 0 && written && kept &&
           (!p.rows || rows.columns % 8 == 0);
}

bool grouped_hopper(struct device *device, const struct grouped_gemm &p, enum gemm_kind kind)
{
    if (!cuda_handles_of(device)->hopper || !takes(p, kind))
        return false;
    if (tiles_most(p, kind, 128) == 0)
        return true;
    if (kind == GEMM_TRANSPOSED)
        launch_by_width<GEMM_TRANSPOSED, false>(device, p);
    else if (kind == GEMM_PLAIN)
        launch_by_width<GEMM_PLAIN, false>(device, p);
    else if (kind == GEMM_SWIGLU)
        (p.rows ? launch_by_width<GEMM_SWIGLU, true> : launch_by_width<GEMM_SWIGLU, false>)(device, p);
    else
        (p.rows ? launch_by_width<GEMM_WEIGHTS, true> : launch_by_width<GEMM_WEIGHTS, false>)(device, p);
    return true;
}
