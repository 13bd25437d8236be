#include "kernels/cuda/cuda.h"

struct turning {
    struct matrix x, k, v; /* k, v: a cache, where rows go by index; index NULL: none */
    const float *positions;
    const i32 *index;
    i64 heads, kv_heads, pairs, t_pairs; /* heads that turn; the last kv_heads of them are keys, values lie behind */
    double theta;
    bool inverse;
};

/* Row i's pair j of keys and values. */
template <typename T> __device__ static void keep(const struct turning &t, i64 i, i64 j)
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

/* One thread turns one pair of all heads of a row. Angles are formed in f64, as positions reach 1e5. */
template <typename T> static __global__ void turn(struct turning t)
{
    grid_wait();
    GRID_STRIDE(i, t.x.rows * t.pairs)
    {
        i64 row = i / t.pairs, j = i % t.pairs, axis = j >= t.pairs - t.t_pairs ? 0 : j % 2 == 0 ? 1 : 2;
        double sine, cosine;
        sincos((double)t.positions[row * 3 + axis] * pow(t.theta, -(double)j / (double)t.pairs), &sine, &cosine);
        float c = (float)cosine, s = (float)(t.inverse ? -sine : sine);
        for (i64 head = 0; head < t.heads; head++) {
            T *pair = row_of<T>(t.x, row) + (head * t.pairs + j) * 2;
            float a = to_f32(pair[0]), b = to_f32(pair[1]);
            pair[0] = from_f32<T>(a * c - b * s);
            pair[1] = from_f32<T>(b * c + a * s);
        }
        if (t.index)
            keep<T>(t, row, j);
    }
}

extern "C" void cuda_rope(struct device *device, struct matrix x, const float *positions, i64 heads, float theta,
                          i64 t_pairs, bool inverse)
{
    i64 pairs = x.columns / (2 * heads);
    require(x.columns % (2 * heads) == 0 && t_pairs >= 0 && t_pairs <= pairs,
            "rope: %lld columns, %lld heads, %lld pairs of t", (long long)x.columns, (long long)heads,
            (long long)t_pairs);
    struct turning t = {x, {}, {}, positions, NULL, heads, 0, pairs, t_pairs, (double)theta, inverse};
    LAUNCH_ELEMENTS(device, x.dtype, turn, (x.rows * pairs), t);
}

extern "C" void cuda_rope_cache(struct device *device, struct matrix k, struct matrix v, struct matrix x,
                                const float *positions, const i32 *index, i64 heads, i64 kv_heads, float theta,
                                i64 t_pairs)
{
    i64 width = k.columns / kv_heads, pairs = width / 2;
    require(k.columns == kv_heads * width && v.columns == k.columns && x.columns == (heads + 2 * kv_heads) * width &&
                width % 2 == 0 && k.dtype == x.dtype && v.dtype == x.dtype && t_pairs >= 0 && t_pairs <= pairs,
            "rope_cache: %lld columns, %lld heads, %lld of keys and values, which have %lld and %lld columns",
            (long long)x.columns, (long long)heads, (long long)kv_heads, (long long)k.columns, (long long)v.columns);
    struct turning t = {x, k, v, positions, index, heads + kv_heads, kv_heads, pairs, t_pairs, (double)theta, false};
    LAUNCH_ELEMENTS(device, x.dtype, turn, (x.rows * pairs), t);
}
