/* Flash attention's forward (Dao et al. 2023) over intervals on tensor cores, bf16: a warp keeps 16 queries, a block
 * four warps; keys and values come in tiles of 64, the next one while this one is used, tiles no query of the block
 * sees are skipped. In the layout of mma a lane, 4 g + t, has rows g and g + 8 of its warp, columns 2 t and 2 t + 1 of
 * each eight. */
#include "kernels/cuda/attention_forward.h"
#include "kernels/cuda/ptx.h"

enum { WARPS = 4, QUERY_TILE = 16 * WARPS, KEY_TILE = 64, THREADS = WARP_THREADS * WARPS, ROW_PAD = 8, STAGES = 2 };

template <int D> struct tile { /* padded so that ldmatrix meets each bank once */
    bf16 at[KEY_TILE][D + ROW_PAD];
};
template <int D> struct stage {
    tile<D> k, v;
    struct bounds {
        i32 begin[KEY_TILE], end[KEY_TILE], hole_begin[KEY_TILE], hole_end[KEY_TILE];
    } bounds;
};
template <int D> struct tiles {
    tile<D> q;
    stage<D> at[STAGES];
};
template <int D> struct running { /* a lane's part of its warp's 16 queries */
    u32 q[D / 16][4];
    float out[D / 8][4], most[2], sum[2];
    i32 query[2];
};
struct lane_place {
    int g, pair;
};

__device__ static struct lane_place place_of_lane()
{
    int lane = threadIdx.x % WARP_THREADS;
    return {lane / 4, lane % 4 * 2};
}

template <int D> __device__ static void load_tile(tile<D> *to, const struct matrix &from, i64 first, i64 column)
{
    for (int i = threadIdx.x; i < KEY_TILE * D / 8; i += THREADS) {
        int row = i / (D / 8), at = i % (D / 8) * 8;
        bool there = first + row < from.rows;
        copy_async(&to->at[row][at], row_of<bf16>(from, there ? first + row : 0) + column + at, there);
    }
}

/* Keys past the last are seen by no query: they begin and end at 0. */
template <int D>
__device__ static void load_stage(stage<D> *to, const struct attention_problem &p, i64 first, i64 column)
{
    load_tile<D>(&to->k, p.k, first, column);
    load_tile<D>(&to->v, p.v, first, column);
    for (int i = threadIdx.x; i < KEY_TILE; i += THREADS) {
        bool there = first + i < p.intervals.keys;
        to->bounds.begin[i] = there ? p.intervals.begin[first + i] : 0;
        to->bounds.end[i] = there ? p.intervals.end[first + i] : 0;
        to->bounds.hole_begin[i] = there ? p.intervals.hole_begin[first + i] : 0;
        to->bounds.hole_end[i] = there ? p.intervals.hole_end[first + i] : 0;
    }
}

/* The next tile that some query of first .. last sees, from `key` on; past the keys: none. */
__device__ static i64 next_tile(const struct intervals &of, i32 first, i32 last, i64 key)
{
    for (; key < of.keys; key += KEY_TILE) {
        i64 j = key + threadIdx.x;
        if (__syncthreads_or(threadIdx.x < KEY_TILE && j < of.keys && any_sees(of, first, last, j)))
            break;
    }
    return key;
}

template <int D> __device__ static void take_queries(running<D> *r, const tile<D> *q)
{
    int lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        load_matrices(r->q[i], &q->at[warp * 16 + lane % 16][i * 16 + lane / 16 * 8]);
}

/* scores [16, KEY_TILE] = q k^T */
template <int D>
__device__ static void multiply_keys(float (&scores)[KEY_TILE / 8][4], const running<D> &r, const tile<D> *k)
{
    int lane = threadIdx.x % WARP_THREADS;
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int j = 0; j < KEY_TILE / 16; j++) {
            u32 b[4];
            load_matrices(b, &k->at[j * 16 + lane / 16 * 8 + lane % 8][i * 16 + lane / 8 % 2 * 8]);
            mma(scores[2 * j], r.q[i], b);
            mma(scores[2 * j + 1], r.q[i], b + 2);
        }
}

/* Scores of one row in units of log2, -inf where the query does not see the key; the largest of them and `most`. */
template <int D>
__device__ static float mask_row(float (&scores)[KEY_TILE / 8][4], int half, i32 query, float most,
                                 const typename stage<D>::bounds &of)
{
    float scale = rsqrtf((float)D) * 1.44269504f;
    int pair = place_of_lane().pair;
#pragma unroll
    for (int j = 0; j < KEY_TILE / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int at = j * 8 + pair + c;
            bool seen =
                of.begin[at] <= query && query < of.end[at] && !(of.hole_begin[at] <= query && query < of.hole_end[at]);
            float *score = &scores[j][2 * half + c];
            *score = seen ? *score * scale : -INFINITY;
            most = fmaxf(most, *score);
        }
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    return fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
}

/* Scores of one row become probabilities against the largest so far; what was summed up before is rescaled to it. */
template <int D>
__device__ static void soften_row(float (&scores)[KEY_TILE / 8][4], int half, running<D> *r,
                                  const typename stage<D>::bounds &of)
{
    float most = mask_row<D>(scores, half, r->query[half], r->most[half], of);
    float base = most == -INFINITY ? 0 : most, rescale = exp2_approximate(r->most[half] - base);
    r->most[half] = most;
    r->sum[half] *= rescale;
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        r->out[j][2 * half] *= rescale;
        r->out[j][2 * half + 1] *= rescale;
    }
#pragma unroll
    for (int j = 0; j < KEY_TILE / 8; j++)
#pragma unroll
        for (int c = 2 * half; c < 2 * half + 2; c++) {
            scores[j][c] = exp2_approximate(scores[j][c] - base);
            r->sum[half] += scores[j][c];
        }
}

/* out += probabilities v; the layout of a product's result is that of the next one's left operand. */
template <int D>
__device__ static void add_values(running<D> *r, const float (&probabilities)[KEY_TILE / 8][4], const tile<D> *v)
{
    int lane = threadIdx.x % WARP_THREADS;
#pragma unroll
    for (int j = 0; j < KEY_TILE / 16; j++) {
        u32 a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = pack_bf16(probabilities[2 * j + i / 2][i % 2 * 2], probabilities[2 * j + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            load_matrices_transposed(b, &v->at[j * 16 + lane % 16][i * 16 + lane / 16 * 8]);
            mma(r->out[2 * i], a, b);
            mma(r->out[2 * i + 1], a, b + 2);
        }
    }
}

template <int D> __device__ static void take_stage(running<D> *r, const stage<D> *s)
{
    float scores[KEY_TILE / 8][4] = {};
    multiply_keys<D>(scores, *r, &s->k);
#pragma unroll
    for (int half = 0; half < 2; half++)
        soften_row<D>(scores, half, r, s->bounds);
    add_values<D>(r, scores, &s->v);
}

template <int D> __device__ static void store_row(const struct attention_problem &p, running<D> *r, int half, i64 row)
{
    struct lane_place at = place_of_lane();
    float sum = r->sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (row >= p.q.rows)
        return;
    float inverse = sum > 0 ? 1 / sum : 0;
#pragma unroll
    for (int j = 0; j < D / 8; j++)
        *(u32 *)(row_of<bf16>(p.out, row) + blockIdx.y * D + j * 8 + at.pair) =
            pack_bf16(r->out[j][2 * half] * inverse, r->out[j][2 * half + 1] * inverse);
    if (at.pair == 0)
        p.lse[row * p.heads + blockIdx.y] = sum > 0 ? (r->most[half] + log2f(sum)) * 0.693147181f : -INFINITY;
}

/* A block has QUERY_TILE queries of one head. */
template <int D> __global__ void __launch_bounds__(THREADS) attend_by_mma(struct attention_problem p)
{
    DYNAMIC_SHARED(tiles<D>, s);
    i64 first = (i64)blockIdx.x * QUERY_TILE, column = blockIdx.y / (p.heads / p.kv_heads) * D;
    i64 last = (first + QUERY_TILE < p.q.rows ? first + QUERY_TILE : p.q.rows) - 1;
    i64 own_row = first + threadIdx.x / WARP_THREADS * 16 + place_of_lane().g;
    i32 first_query = p.intervals.query[first], last_query = p.intervals.query[last];
    running<D> r = {{}, {}, {-INFINITY, -INFINITY}, {}, {}};
    for (int half = 0; half < 2; half++)
        r.query[half] = p.intervals.query[own_row + 8 * half < last ? own_row + 8 * half : last];
    i64 key = next_tile(p.intervals, first_query, last_query, 0), next = key;
    load_tile<D>(&s->q, p.q, first, (i64)blockIdx.y * D);
    if (key < p.intervals.keys)
        load_stage<D>(&s->at[0], p, key, column);
    copies_commit();
    for (int now = 0; key < p.intervals.keys; key = next, now ^= 1) {
        next = next_tile(p.intervals, first_query, last_query, key + KEY_TILE);
        if (next < p.intervals.keys)
            load_stage<D>(&s->at[now ^ 1], p, next, column);
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        take_queries<D>(&r, &s->q);
        take_stage<D>(&r, &s->at[now]); /* free again behind the barrier of next_tile */
    }
    for (int half = 0; half < 2; half++)
        store_row<D>(p, &r, half, own_row + 8 * half);
}

template <int D> static bool launch(struct device *device, const struct attention_problem &p)
{
    dim3 grid((unsigned)ceil_div(p.q.rows, QUERY_TILE), (unsigned)p.heads);
    CUDA_CHECK(
        cudaFuncSetAttribute(attend_by_mma<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(tiles<D>)));
    LAUNCH(device, attend_by_mma<D>, grid, THREADS, sizeof(tiles<D>), p);
    return true;
}

/* Rows that begin at multiples of 16 bytes. */
static bool is_aligned(struct matrix m)
{
    return (uintptr_t)m.data % 16 == 0 && m.stride % 8 == 0;
}

bool attention_on_tensor_cores(struct device *device, const struct attention_problem &p)
{
    if (p.q.dtype != DTYPE_BF16 || !is_aligned(p.q) || !is_aligned(p.k) || !is_aligned(p.v) || !is_aligned(p.out))
        return false;
    switch (p.width) {
    case 16:
        return launch<16>(device, p);
    case 32:
        return launch<32>(device, p);
    case 64:
        return launch<64>(device, p);
    case 128:
        return launch<128>(device, p);
    default:
        return false;
    }
}
