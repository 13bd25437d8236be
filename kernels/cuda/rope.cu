#include "kernels/cuda/rope.h"

struct rope_call {
    struct matrix x, k, v; /* k, v: cache whose rows are given by index; index NULL: none */
    const float *positions;
    const i32 *index;
    /* heads: rotated heads, the last kv_heads of which are keys; values follow them. */
    i64 heads, kv_heads, pairs, t_pairs;
    double theta;
    bool inverse;
};

/* Copies pair j of row i's keys and values to the cache. */
template <typename T> __device__ static void store_in_cache(const struct rope_call &t, i64 i, i64 j)
{
    i64 row = t.index[i], step = 2 * t.pairs;
    if (row < 0)
        return;
    const T *keys = row_of<T>(t.x, i) + (t.heads - t.kv_heads) * step + 2 * j, *values = keys + t.kv_heads * step;
    T *k = row_of<T>(t.k, row) + 2 * j, *v = row_of<T>(t.v, row) + 2 * j;
    for (i64 at = 0; at < t.kv_heads * step; at += step) {
        k[at] = keys[at];
        k[at + 1] = keys[at + 1];
        v[at] = values[at];
        v[at + 1] = values[at + 1];
    }
}

/* Loads a pair. `whole`: all pairs are aligned to their size. */
template <bool whole, typename T> __device__ static packed<T, 2> load_pair(const T *from)
{
    if constexpr (whole)
        return load_packed<2>(from);
    else
        return pack(elements<T, 2>{from[0], from[1]});
}
template <bool whole, typename T> __device__ static void store_pair(T *to, const elements<T, 2> &pair)
{
    if constexpr (whole) {
        store(to, pair);
    } else {
        to[0] = pair.at[0];
        to[1] = pair.at[1];
    }
}

/* Rotates one pair of `heads` heads, `step` apart. AT_ONCE pairs are read before the first is
 * written. */
template <bool whole, typename T> __device__ static void rotate_heads(T *pair, i64 heads, i64 step, float2 by)
{
    enum { AT_ONCE = 4 };
    for (i64 first = 0; first < heads; first += AT_ONCE) {
        packed<T, 2> pairs[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++)
            pairs[i] = first + i < heads ? load_pair<whole>(pair + (first + i) * step) : 0;
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i < heads) {
                elements<T, 2> rotated = unpack<T, 2>(pairs[i]);
                rope_pair(rotated.at, by);
                store_pair<whole>(pair + (first + i) * step, rotated);
            }
    }
}

/* One thread rotates one pair of all heads of a row. */
template <typename T> static __global__ void rotate(struct rope_call t)
{
    grid_wait();
    GRID_STRIDE(i, t.x.rows * t.pairs)
    {
        i64 row = i / t.pairs, j = i % t.pairs;
        T *pair = row_of<T>(t.x, row) + 2 * j;
        float2 by = rope_rotation(t.positions + row * 3, j, t.pairs, t.t_pairs, t.theta);
        if (t.inverse)
            by.y = -by.y;
        if (((uintptr_t)t.x.data | (uintptr_t)(t.x.stride * sizeof(T))) % (2 * sizeof(T)) == 0)
            rotate_heads<true>(pair, t.heads, 2 * t.pairs, by);
        else
            rotate_heads<false>(pair, t.heads, 2 * t.pairs, by);
        if (t.index)
            store_in_cache<T>(t, row, j);
    }
}

extern "C" void cuda_rope(struct device *device, struct matrix x, const float *positions, i64 heads, float theta,
                          i64 t_pairs, bool inverse)
{
    i64 pairs = x.columns / (2 * heads);
    struct rope_call t = {x, {}, {}, positions, NULL, heads, 0, pairs, t_pairs, (double)theta, inverse};
    LAUNCH_ELEMENTS(device, x.dtype, rotate, (x.rows * pairs), t);
}

extern "C" void cuda_rope_cache(struct device *device, struct matrix x, const struct rope_cache *to)
{
    i64 pairs = to->k.columns / to->kv_heads / 2, heads = to->heads + to->kv_heads;
    struct rope_call t = {
        x, to->k, to->v, to->positions, to->index, heads, to->kv_heads, pairs, to->t_pairs, (double)to->theta, false};
    LAUNCH_ELEMENTS(device, x.dtype, rotate, (x.rows * pairs), t);
}
