/* Skinny gemms of experts, in two launches. The first (In) multiplies each group by its expert's
 * gate and up weights with skinny.h; a block handles one group and some of its expert's outputs.
 * The second (Out) multiplies by the down weights and sums over experts: a block handles
 * OUTPUTS_OF_SUM columns of all positions, and each of its warps one group after another. The
 * shared expert is split into parts as deep as one expert's width, which count as more groups.
 *
 *     In:   block (group, 16 rows of w: 8 gate, 8 up) -> inside [sorted rows, F]
 *     Out:  block (8 columns of out)
 *               warp 0: group 0    warp 1: group 1   ..   then parts of the shared expert
 *               products [unit][position][8 columns] in shared memory, then for each position
 *               out = x + shared parts + sum over its experts of weight . product, in that order
 *
 *     M  rows of a group (at most SKINNY_ASSIGNMENTS assignments in all)     N  outputs of a block
 *     K  C for In, the expert width F for Out; a warp of Out takes all of K */
#include "kernels/cuda/gemm/skinny.h"

/* Fills list [SKINNY_ASSIGNMENTS], in shared memory, with the groups that have rows, in order.
 * Returns their number. All threads of the block call it. */
__device__ static i32 find_groups(i32 *list, const struct groups &groups)
{
    i32 count = 0;
    for (i64 first = 0; first < groups.count; first += blockDim.x) {
        i64 g = first + threadIdx.x;
        bool has_rows = g < groups.count && groups.offsets[g + 1] > groups.offsets[g];
        i32 total, earlier = block_scan((i32)has_rows, &total);
        if (has_rows)
            list[count + earlier] = (i32)g;
        count += total;
    }
    __syncthreads();
    return count;
}

__device__ static i64 member_of(const struct groups &groups, i64 group)
{
    return groups.member ? groups.member[group] : group;
}

static i64 groups_most(const struct skinny_experts &e, i64 positions)
{
    return min_i64(e.groups.count, positions * e.k_max);
}

/* ---- Gate and up ---- */
struct experts_in_call {
    struct skinny_gemm shared, routed;
    i64 shared_blocks, blocks; /* blocks of the shared expert, and of each group */
    const i32 *source;
    struct groups groups;
};

/* Finds the part of this block, whose index follows those of the shared expert. Returns false if
 * there is no such group. All threads of the block call it. */
__device__ static bool find_part(struct skinny_part *part, const struct experts_in_call &e)
{
    SHARED(i32, list, SKINNY_ASSIGNMENTS);
    i64 at = blockIdx.x - e.shared_blocks, ordinal = at / e.blocks;
    if (ordinal >= find_groups(list, e.groups))
        return false;
    i64 group = list[ordinal], begin = e.groups.offsets[group], end = e.groups.offsets[group + 1];
    i64 slice = member_of(e.groups, group) * 2 * e.routed.out.columns;
    *part = {at % e.blocks, end - begin, begin, slice, e.source + begin};
    return true;
}

template <int TILES> static __global__ void __launch_bounds__(THREADS, 2) experts_in_mma(struct experts_in_call e)
{
    struct skinny_part part = part_of_block(e.shared);
    bool is_shared = blockIdx.x < e.shared_blocks;
    if (is_shared)
        fetch_weight<bf16>(e.shared, part);
    grid_wait();
    DYNAMIC_SHARED(float, sums);
    if (is_shared) {
        multiply_mma<TILES, false>(e.shared, part, sums);
    } else if (find_part(&part, e)) {
        fetch_weight<bf16>(e.routed, part);
        multiply_mma<TILES, false>(e.routed, part, sums);
    }
}

static __global__ void __launch_bounds__(THREADS, 2) experts_in_plain(struct experts_in_call e)
{
    grid_wait();
    struct skinny_part part = part_of_block(e.shared);
    if (blockIdx.x < e.shared_blocks)
        multiply_plain<float, false>(e.shared, part);
    else if (find_part(&part, e))
        multiply_plain<float, false>(e.routed, part);
}

extern "C" void cuda_experts_skinny_in(struct device *device, struct matrix inside, struct matrix shared,
                                       struct matrix x, struct matrix norm, float eps,
                                       const struct skinny_experts *experts)
{
    struct gemm_fusion fusion = {norm, {}, NULL, true, eps};
    struct experts_in_call e = {skinny_gemm(shared, x, experts->shared_gate_up, &fusion),
                                skinny_gemm(inside, x, experts->gate_up, &fusion),
                                0,
                                0,
                                experts->source,
                                experts->groups};
    e.shared_blocks = shared.data ? blocks_of_skinny(e.shared) : 0;
    e.blocks = blocks_of_skinny(e.routed);
    i64 blocks = e.shared_blocks + groups_most(*experts, x.rows) * e.blocks;
    i64 bytes = WARPS * COLUMNS_OF_MMA * OUTPUTS * 4;
    if (x.rows == 0 || blocks == 0)
        return;
    if (x.dtype == DTYPE_F32)
        LAUNCH(device, experts_in_plain, (unsigned)blocks, THREADS, 0, e);
    else if (x.rows <= COLUMNS_OF_MMA)
        LAUNCH(device, experts_in_mma<1>, (unsigned)blocks, THREADS, bytes, e);
    else
        LAUNCH(device, experts_in_mma<2>, (unsigned)blocks, THREADS, 2 * bytes, e);
}

/* ---- Down and sum ---- */
enum { WARPS_MOST = 16, OUTPUTS_OF_SUM = 8 };
/* Minimum of the shared memory limit set for a kernel, so that no call lowers the limit of a
 * recorded one: enough for a shared expert of 64 parts. */
enum { BYTES_USUAL = (SKINNY_ASSIGNMENTS + 64) * SKINNY_NORMED_ROWS * OUTPUTS_OF_SUM * 4 };

struct experts_out_call {
    struct matrix out, x, inside, shared;
    struct skinny_experts experts;
    i64 parts; /* parts of the shared expert's width, each at most one expert wide */
    bool vector;
};

/* One gemm of a warp: rows times the block's columns. */
struct down_gemm {
    struct matrix rows, w; /* row 0 of w is the block's first output */
    const i32 *source;     /* -1: not a position's row; NULL: all rows are */
};

__device__ static struct down_gemm down_gemm_of(const struct experts_out_call &l, const i32 *list, i64 groups, i64 at)
{
    i64 width = l.inside.columns, first = (i64)blockIdx.x * OUTPUTS_OF_SUM, outputs = l.out.columns, n = l.out.rows;
    if (at >= groups) {
        i64 from = (at - groups) * width;
        struct down_gemm u = {part_of(l.shared, 0, from, n),
                              part_of(l.experts.shared_down, first, from, outputs - first), NULL};
        u.rows.columns = u.w.columns = u.w.columns < width ? u.w.columns : width;
        return u;
    }
    i64 begin = l.experts.groups.offsets[list[at]], slice = member_of(l.experts.groups, list[at]) * outputs;
    return {part_of(l.inside, begin, 0, n), part_of(l.experts.down, slice + first, 0, outputs - first),
            l.experts.source + begin};
}

template <typename T> __device__ static const T *row_of_down(const struct down_gemm &u, i64 row)
{
    return row < u.rows.rows && (!u.source || u.source[row] >= 0) ? row_of<T>(u.rows, row) : NULL;
}

/* Computes products [positions, OUTPUTS_OF_SUM]. Lanes read the depth as in skinny.h. w has 8 rows,
 * so half of the 16 rows of each mma are unused. */
template <int TILES, bool VECTOR> __device__ static void multiply_down(float *products, const struct down_gemm &u)
{
    enum { STEPS_AT_ONCE = VECTOR ? 8 : 1 };
    int lane = threadIdx.x % WARP_THREADS, g = lane / 4, t = lane % 4;
    i64 depth = u.w.columns;
    const bf16 *w = g < u.w.rows ? row_of<bf16>(u.w, g) : NULL, *x[TILES];
    float d[TILES][4] = {};
    for (int tile = 0; tile < TILES; tile++)
        x[tile] = row_of_down<bf16>(u, tile * COLUMNS_OF_MMA + g);
    for (i64 first = 0; first < depth; first += STEP * STEPS_AT_ONCE) {
        eight a[STEPS_AT_ONCE], b[STEPS_AT_ONCE][TILES];
#pragma unroll
        for (int s = 0; s < STEPS_AT_ONCE; s++) {
            a[s] = load_eight<VECTOR>(w, first + s * STEP + 8 * t, depth);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
                b[s][tile] = load_eight<VECTOR>(x[tile], first + s * STEP + 8 * t, depth);
        }
#pragma unroll
        for (int s = 0; s < STEPS_AT_ONCE; s++)
#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
#pragma unroll
                for (int j = 0; j < 4; j += 2) {
                    u32 pairs[4] = {a[s].pair[j], 0, a[s].pair[j + 1], 0};
                    mma(d[tile], pairs, &b[s][tile].pair[j]);
                }
    }
    for (int tile = 0; tile < TILES; tile++)
        for (int i = 0; i < 2; i++) {
            int row = tile * COLUMNS_OF_MMA + t * 2 + i;
            if (row < u.rows.rows)
                products[row * OUTPUTS_OF_SUM + g] = d[tile][i];
        }
}

__device__ static void multiply_down_plain(float *products, const struct down_gemm &u)
{
    for (i64 i = 0; i < u.rows.rows * OUTPUTS_OF_SUM; i++) {
        i64 output = i % OUTPUTS_OF_SUM;
        const float *x = row_of_down<float>(u, i / OUTPUTS_OF_SUM),
                    *w = output < u.w.rows ? row_of<float>(u.w, output) : NULL;
        float sum = 0;
        if (!x || !w)
            continue;
        for (i64 k = threadIdx.x % WARP_THREADS; k < u.w.columns; k += WARP_THREADS)
            sum += x[k] * w[k];
        sum = warp_sum(sum);
        if (threadIdx.x % WARP_THREADS == 0)
            products[i] = sum;
    }
}

/* Adds all terms of one position and column. products are [units, positions, OUTPUTS_OF_SUM]. */
template <typename T>
__device__ static void sum_position(const struct experts_out_call &l, const float *products, const i32 *begins,
                                    i64 groups, i64 row, int output)
{
    i64 column = (i64)blockIdx.x * OUTPUTS_OF_SUM + output, n = l.out.rows, k_max = l.experts.k_max;
    float sum = to_f32(row_of<T>(l.x, row)[column]), y = 0;
    for (i64 part = 0; part < l.parts; part++)
        y += products[((groups + part) * n + row) * OUTPUTS_OF_SUM + output];
    sum += to_f32(from_f32<T>(y));
    for (i64 a = row * k_max; a < (row + 1) * k_max; a++) {
        i32 slot = l.experts.slot[a];
        if (slot < 0)
            continue;
        i64 unit = route_run_of(begins, groups, slot);
        y = products[(unit * n + slot - begins[unit]) * OUTPUTS_OF_SUM + output];
        sum += l.experts.weights[a] * to_f32(from_f32<T>(y));
    }
    row_of<T>(l.out, row)[column] = from_f32<T>(sum);
}

template <typename T, int TILES>
static __global__ void __launch_bounds__(WARPS_MOST *WARP_THREADS, 1) experts_out_kernel(struct experts_out_call l)
{
    grid_wait();
    SHARED(i32, list, SKINNY_ASSIGNMENTS);
    SHARED(i32, begins, SKINNY_ASSIGNMENTS);
    DYNAMIC_SHARED(float, products);
    i64 groups = find_groups(list, l.experts.groups), size = l.out.rows * OUTPUTS_OF_SUM;
    for (i64 at = threadIdx.x / WARP_THREADS; at < groups + l.parts; at += blockDim.x / WARP_THREADS) {
        struct down_gemm u = down_gemm_of(l, list, groups, at);
        if constexpr (sizeof(T) != sizeof(bf16))
            multiply_down_plain(products + at * size, u);
        else if (l.vector)
            multiply_down<TILES, true>(products + at * size, u);
        else
            multiply_down<TILES, false>(products + at * size, u);
    }
    for (i64 at = threadIdx.x; at < groups; at += blockDim.x)
        begins[at] = l.experts.groups.offsets[list[at]];
    __syncthreads();
    for (i64 i = threadIdx.x; i < size; i += blockDim.x)
        if ((i64)blockIdx.x * OUTPUTS_OF_SUM + i % OUTPUTS_OF_SUM < l.out.columns)
            sum_position<T>(l, products, begins, groups, i / OUTPUTS_OF_SUM, (int)(i % OUTPUTS_OF_SUM));
}

template <typename T, int TILES> static void launch_experts_out(struct device *device, const struct experts_out_call &l)
{
    i64 units = groups_most(l.experts, l.out.rows) + l.parts, warps = min_i64(max_i64(units, 1), WARPS_MOST);
    i64 bytes = units * l.out.rows * OUTPUTS_OF_SUM * 4;
    CUDA_CHECK(cudaFuncSetAttribute((experts_out_kernel<T, TILES>), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)max_i64(bytes, BYTES_USUAL)));
    LAUNCH(device, (experts_out_kernel<T, TILES>), (unsigned)ceil_div(l.out.columns, OUTPUTS_OF_SUM),
           (unsigned)(warps * WARP_THREADS), bytes, l);
}

extern "C" void cuda_experts_skinny_out(struct device *device, struct matrix out, struct matrix x, struct matrix inside,
                                        struct matrix shared, const struct skinny_experts *experts)
{
    struct experts_out_call l = {out, x, inside, shared, *experts, 0, false};
    l.parts = shared.data ? ceil_div(shared.columns, inside.columns) : 0;
    l.vector = in_eights(inside) && in_eights(experts->down) &&
               (!shared.data || (in_eights(shared) && in_eights(experts->shared_down)));
    if (out.rows == 0 || out.columns == 0)
        return;
    if (x.dtype == DTYPE_F32)
        launch_experts_out<float, 1>(device, l);
    else if (x.rows <= COLUMNS_OF_MMA)
        launch_experts_out<bf16, 1>(device, l);
    else
        launch_experts_out<bf16, 2>(device, l);
}
