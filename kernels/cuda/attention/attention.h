/* Tile visibility and tensor core helpers shared by attention and its backward. A row is a pair of
 * a query and one of the `group` heads that share a key-value head: row = query . group + head in
 * the group. A tile of rows therefore reads its keys once for the whole group, even with few
 * queries.
 *
 * In: q, k, v and intervals. Out: `out` and lse, or dq, dk, dv. All of it is the caller's;
 * summaries of keys and partial sums are in the workspace. attention.cu chooses among f32 units,
 * mma.sync (also with the keys split over blocks, for decoding) and attention_hopper.cu; the
 * gradients are in attention_backward.cu and attention_backward_hopper.cu. */
#ifndef WEFT_CUDA_ATTENTION_H
#define WEFT_CUDA_ATTENTION_H
#include "kernels/cuda/ptx.h"

#define LOG2_E 1.44269504f
#define LN_2 0.693147181f

enum { LISTED_MOST = 512, UNSEEN_LSE = 1 << 30 /* replaces -inf: every probability becomes 0 */ };

/* Summary of the bounds of a tile's keys. */
struct key_span {
    i32 begin_min, end_max;           /* over keys that some query may see */
    i32 begin_max, end_min;           /* over all keys */
    i32 hole_begin_min, hole_end_max; /* over keys with a hole */
    i32 hole_begin_max, hole_end_min; /* over all keys, if all have a hole */
};
enum visibility { VISIBLE_NONE, VISIBLE_PART, VISIBLE_ALL };

/* Visibility of a tile from query indices first .. last. NONE and ALL are exact; PART may be
 * conservative. */
__device__ inline enum visibility visibility_of(struct key_span s, i32 first, i32 last)
{
    if (last < s.begin_min || first >= s.end_max || (s.hole_begin_max <= first && last < s.hole_end_min))
        return VISIBLE_NONE;
    bool whole = s.begin_max <= first && last < s.end_min && (last < s.hole_begin_min || first >= s.hole_end_max);
    return whole ? VISIBLE_ALL : VISIBLE_PART;
}

/* The range of tiles that a block must visit: from the first seen tile to just after the last.
 * Packed samples see only few of many tiles. The range is computed once for all heads, so that each
 * block searches only as far as it walks. */
struct tile_range {
    i32 first, end;
};

/* Computes the range with a whole block; every thread gets the result. class_of(tile) returns an
 * enum seen. */
template <typename Class> __device__ inline struct tile_range range_of(i64 tiles, Class class_of)
{
    i32 first = INT32_MAX, last = -1;
#pragma unroll 4
    for (i64 tile = threadIdx.x; tile < tiles; tile += blockDim.x) {
        bool seen = class_of(tile) != VISIBLE_NONE;
        first = seen && tile < first ? (i32)tile : first;
        last = seen ? (i32)tile : last;
    }
    return {-1 - block_combine(-1 - first, INT32_MIN, max_operator()), 1 + block_combine(last, -1, max_operator())};
}

struct cuda_key_bounds {
    i32 begin, end, hole_begin, hole_end;
};
/* Bounds of a key. Keys past the last are seen by no query. */
__device__ inline struct cuda_key_bounds bounds_of(struct intervals of, i64 key)
{
    if (key >= of.keys)
        return {0, INT32_MIN, 0, 0};
    return {of.begin[key], of.end[key], of.hole_begin[key], of.hole_end[key]};
}
__device__ inline bool sees(i32 query, struct cuda_key_bounds key)
{
    return key.begin <= query && query < key.end && !(key.hole_begin <= query && query < key.hole_end);
}

__device__ inline i32 warp_least(i32 value)
{
    for (int step = WARP_THREADS / 2; step; step /= 2) {
        i32 other = __shfl_xor_sync(0xffffffffu, value, step);
        value = other < value ? other : value;
    }
    return value;
}

/* Summary of keys first .. first + tile - 1, computed by a warp; every lane gets the result. */
__device__ inline struct key_span span_of(struct intervals of, i64 first, i64 tile)
{
    i32 least[8]; /* maxima are kept as -1 - value, which cannot overflow */
    for (int i = 0; i < 8; i++)
        least[i] = INT32_MAX;
    for (i64 j = threadIdx.x % WARP_THREADS; j < tile; j += WARP_THREADS) {
        struct cuda_key_bounds k = bounds_of(of, first + j);
        bool seen = k.begin < k.end, hole = k.hole_begin < k.hole_end;
        i32 values[8] = {seen ? k.begin : INT32_MAX,
                         seen ? -1 - k.end : INT32_MAX,
                         -1 - k.begin,
                         k.end,
                         hole ? k.hole_begin : INT32_MAX,
                         hole ? -1 - k.hole_end : INT32_MAX,
                         !seen  ? INT32_MAX
                         : hole ? -1 - k.hole_begin
                                : INT32_MIN,
                         !seen  ? INT32_MAX
                         : hole ? k.hole_end
                                : INT32_MIN};
        for (int i = 0; i < 8; i++)
            least[i] = values[i] < least[i] ? values[i] : least[i];
    }
    for (int i = 0; i < 8; i++)
        least[i] = warp_least(least[i]);
    return {least[0], -1 - least[1], -1 - least[2], least[3], least[4], -1 - least[5], -1 - least[6], least[7]};
}

/* One warp summarizes one tile of `tile` keys. */
static __global__ void summarize_keys(struct key_span *spans, struct intervals of, i64 tile)
{
    grid_wait();
    i64 at = (i64)blockIdx.x * (BLOCK_THREADS / WARP_THREADS) + threadIdx.x / WARP_THREADS;
    if (at * tile >= of.keys)
        return;
    struct key_span span = span_of(of, at * tile, tile);
    if (threadIdx.x % WARP_THREADS == 0)
        spans[at] = span;
}
static inline void launch_summary(struct device *device, struct key_span *spans, struct intervals of, i64 tile)
{
    i64 blocks = ceil_div(ceil_div(of.keys, tile), BLOCK_THREADS / WARP_THREADS);
    if (blocks > 0)
        LAUNCH(device, summarize_keys, (unsigned)blocks, BLOCK_THREADS, 0, spans, of, tile);
}

/* List of tiles to visit, in order; shared memory. */
struct tile_list {
    i32 at[LISTED_MOST]; /* 2 tile + (all of it is seen) */
};
__device__ inline i64 listed_tile(const struct tile_list *list, i32 i)
{
    return list->at[i] >> 1;
}
__device__ inline bool listed_whole(const struct tile_list *list, i32 i)
{
    return list->at[i] & 1;
}

/* Lists the tiles in first .. end - 1 (at most LISTED_MOST) that class_of(tile) reports as seen,
 * and returns their number. class_of may read at[tile - first], which still holds the old content.
 */
template <typename Class> __device__ inline i32 list_tiles(struct tile_list *list, i64 first, i64 end, Class class_of)
{
    i32 count = 0;
    __syncthreads(); /* the previous list may still be read */
    for (i64 base = first; base < end; base += blockDim.x) {
        i64 tile = base + threadIdx.x;
        enum visibility seen = tile < end ? class_of(tile) : VISIBLE_NONE;
        i32 total, earlier = block_scan((i32)(seen != VISIBLE_NONE), &total);
        if (seen != VISIBLE_NONE)
            list->at[count + earlier] = (i32)tile * 2 + (seen == VISIBLE_ALL);
        count += total;
    }
    __syncthreads();
    return count;
}

/* Visits the tiles of a list with the whole block, double-buffered. load(to, tile, whole) starts
 * the copy of a tile into buffer `to`; take(at, whole) uses buffer `at`. The copy of the next tile
 * overlaps the use of the current one. */
template <typename Load, typename Take>
__device__ inline void walk_list(const struct tile_list *list, i32 count, Load load, Take take)
{
    for (i32 n = -1; n < count; n++) {
        if (n + 1 < count)
            load((n + 1) % 2, listed_tile(list, n + 1), listed_whole(list, n + 1));
        copies_commit();
        if (n < 0)
            continue;
        copies_wait<1>();
        __syncthreads();
        take(n % 2, listed_whole(list, n));
        __syncthreads();
    }
}

/* Calls visit(tile, whole) with all lanes of a warp for each seen tile of a range, in order. */
template <typename Class, typename Visit>
__device__ inline void each_visible(struct tile_range range, Class class_of, Visit visit)
{
    i32 lane = threadIdx.x % WARP_THREADS;
    for (i32 base = range.first; base < range.end; base += WARP_THREADS) {
        enum visibility seen = base + lane < range.end ? class_of(base + lane) : VISIBLE_NONE;
        u32 listed = __ballot_sync(0xffffffffu, seen != VISIBLE_NONE),
            whole = __ballot_sync(0xffffffffu, seen == VISIBLE_ALL);
        for (; listed; listed &= listed - 1) {
            int at = __ffs((int)listed) - 1;
            visit((i64)base + at, (bool)(whole >> at & 1));
        }
    }
}

struct attention_heads {
    i64 count, kv_count, group, width;
};
static inline struct attention_heads heads_of(struct matrix q, i64 heads, i64 kv_heads)
{
    return {heads, kv_heads, heads / kv_heads, q.columns / heads};
}
/* Pointer to the head of a row (of a key-value head) in a matrix [queries, heads * width]. */
template <typename T> __device__ inline T *head_row(struct matrix m, struct attention_heads heads, i64 kv_head, i64 row)
{
    return row_of<T>(m, row / heads.group) + (kv_head * heads.group + row % heads.group) * heads.width;
}

/* ---- Forward on tensor cores ---- */
struct attention_split {
    float *out;       /* [splits, kv heads, rows, stride], not yet divided by sums; unwritten where no key is seen */
    float2 *sums;     /* [splits, kv heads, rows]: running maximum (base 2) and sum */
    u32 *arrived;     /* [kv heads, blocks of rows]: number of stored splits */
    i64 count, tiles; /* number of splits, and key tiles of each */
    i64 stride;       /* width rounded up to QUAD */
};
struct attention_call {
    struct matrix out, q, k, v;
    float *lse;
    struct attention_heads heads;
    struct intervals of;
    struct key_span *spans;    /* NULL: each block summarizes its own tiles */
    struct tile_range *ranges; /* [blocks of rows]; used by attention_hopper.cu */
    struct attention_split split;
    i64 rows, vector;
};
__device__ inline void store_lse(const struct attention_call &p, i64 kv_head, i64 row, float most, float sum)
{
    p.lse[row / p.heads.group * p.heads.count + kv_head * p.heads.group + row % p.heads.group] =
        sum > 0 ? (most + log2f(sum)) * LN_2 : -INFINITY;
}

/* Hopper kernel without splits (attention_hopper.cu). Returns false, with nothing launched, if the
 * device or the operands do not suit it. */
bool attention_hopper(struct device *device, struct attention_call p);

/* ---- Backward ---- */
struct row_statistics {
    float lse, delta; /* lse in base 2 */
};
struct attention_backward_call {
    struct matrix dq, dk, dv, dout, out, q, k, v;
    const float *lse;
    struct row_statistics *statistics; /* [queries, heads] */
    struct key_span *spans;
    struct tile_range *ranges; /* [blocks of keys, then of rows]; used by attention_backward_hopper.cu */
    struct attention_heads heads;
    struct intervals of;
    i64 rows; /* queries times group */
    i64 vector;
};

/* Statistics of a row. Rows past the last get probability 0. */
__device__ inline struct row_statistics statistics_of(const struct attention_backward_call &b, i64 kv_head, i64 row)
{
    if (row >= b.rows)
        return {(float)UNSEEN_LSE, 0};
    return b.statistics[row / b.heads.group * b.heads.count + kv_head * b.heads.group + row % b.heads.group];
}
__device__ inline i32 query_of(const struct attention_backward_call &b, i64 row)
{
    return b.of.query[(row < b.rows ? row : b.rows - 1) / b.heads.group];
}

/* Hopper kernel of attention_backward_hopper.cu; call it after the statistics. Returns false as
 * above. */
bool attention_backward_hopper(struct device *device, struct attention_backward_call b);

/* ---- Tensor cores ----
 * Tiles of bf16 in shared memory. Row padding makes the 8 rows of an ldmatrix hit each bank once.
 */
template <int D> struct padded_row {
    bf16 at[D + 8];
};

/* Loads rows first .. first + count - 1 of those before `end`, `width` of D columns, and zeros
 * elsewhere. row(i) points to row i. `vector`: 16-byte reads are allowed. */
template <int D, typename Row>
__device__ inline void load_tile(struct padded_row<D> *to, int count, i64 first, i64 end, i64 width, bool vector,
                                 Row row)
{
    for (int i = threadIdx.x; i < count * (D / 8); i += blockDim.x) {
        int r = i / (D / 8), c = i % (D / 8) * 8;
        i64 left = first + r < end ? width - c : 0;
        const bf16 *from = left > 0 ? row(first + r) + c : row(0);
        if (vector) {
            copy_async(&to[r].at[c], from, left > 0);
            continue;
        }
        for (int j = 0; j < 8; j++)
            to[r].at[c + j] = j < left ? from[j] : 0;
    }
}
static inline bool reads_vectors(struct matrix m, i64 width)
{
    return ((uintptr_t)m.data | (uintptr_t)(m.stride * 2) | (uintptr_t)(width * 2)) % 16 == 0;
}

/* Loads a 16 x 16 left operand stored [row, k]. */
template <int D> __device__ inline void load_left(u32 (&out)[4], const struct padded_row<D> *tile, int row, int k)
{
    int lane = threadIdx.x % WARP_THREADS;
    load_matrices(out, &tile[row + lane % 16].at[k + lane / 16 * 8]);
}
/* Loads a 16 x 16 right operand stored [column, k]. out[0..1] hold the first eight columns,
 * out[2..3] the others. */
template <int D> __device__ inline void load_right(u32 (&out)[4], const struct padded_row<D> *tile, int column, int k)
{
    int lane = threadIdx.x % WARP_THREADS;
    load_matrices(out, &tile[column + lane / 16 * 8 + lane % 8].at[k + lane / 8 % 2 * 8]);
}
/* The same for a right operand stored [k, column]. */
template <int D>
__device__ inline void load_right_transposed(u32 (&out)[4], const struct padded_row<D> *tile, int column, int k)
{
    int lane = threadIdx.x % WARP_THREADS;
    load_matrices_transposed(out, &tile[k + lane % 16].at[column + lane / 16 * 8]);
}

/* d [16, N] += left [16, D] right^T, right [N, D]. The left operand comes from shared memory. */
template <int D, int N>
__device__ inline void add_scores(float (&d)[N / 8][4], const struct padded_row<D> *left, int row,
                                  const struct padded_row<D> *right)
{
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        u32 a[4], b[4];
        load_left(a, left, row, k);
#pragma unroll
        for (int j = 0; j < N / 16; j++) {
            load_right(b, right, 16 * j, k);
            mma(d[2 * j], a, b);
            mma(d[2 * j + 1], a, b + 2);
        }
    }
}
/* d [16, D] += x [16, N] right [N, D]. x is the accumulator of an earlier product, rounded to bf16.
 */
template <int D, int N>
__device__ inline void add_weighted(float (&d)[D / 8][4], const float (&x)[N / 8][4], const struct padded_row<D> *right)
{
#pragma unroll
    for (int j = 0; j < N / 16; j++) {
        u32 a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = pack_bf16(x[2 * j + i / 2][i % 2 * 2], x[2 * j + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            load_right_transposed(b, right, 16 * c, 16 * j);
            mma(d[2 * c], a, b);
            mma(d[2 * c + 1], a, b + 2);
        }
    }
}

/* Stores one row of d [16, D], `width` columns of it, times a factor. A lane holds, of each 16 x 8
 * part of a product, rows lane / 4 and lane / 4 + 8, columns lane % 4 * 2 and the next; `half`
 * selects the row. */
template <int D>
__device__ inline void store_row(bf16 *to, const float (&d)[D / 8][4], int half, i64 width, float factor)
{
    int pair = threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        float first = d[j][2 * half] * factor, second = d[j][2 * half + 1] * factor;
        bf16 *at = to + 8 * j + pair;
        if (8 * j + pair + 1 < width && (uintptr_t)at % 4 == 0) {
            *(u32 *)at = pack_bf16(first, second);
            continue;
        }
        if (8 * j + pair < width)
            at[0] = from_f32<bf16>(first);
        if (8 * j + pair + 1 < width)
            at[1] = from_f32<bf16>(second);
    }
}

#endif
