#include "kernels/cuda/cuda.h"

/* One thread turns one pair of all heads of a row. Angles are formed in f64, as positions reach 1e5. */
template <typename T>
static __global__ void turn(struct matrix x, const float *positions, i64 heads, i64 pairs, double theta, i64 t_pairs,
                            bool inverse)
{
    GRID_STRIDE(i, x.rows * pairs)
    {
        i64 row = i / pairs, j = i % pairs, axis = j >= pairs - t_pairs ? 0 : j % 2 == 0 ? 1 : 2;
        double sine, cosine;
        sincos((double)positions[row * 3 + axis] * pow(theta, -(double)j / (double)pairs), &sine, &cosine);
        float c = (float)cosine, s = (float)(inverse ? -sine : sine);
        for (i64 head = 0; head < heads; head++) {
            T *pair = row_of<T>(x, row) + (head * pairs + j) * 2;
            float a = to_f32(pair[0]), b = to_f32(pair[1]);
            pair[0] = from_f32<T>(a * c - b * s);
            pair[1] = from_f32<T>(b * c + a * s);
        }
    }
}

extern "C" void cuda_rope(struct device *device, struct matrix x, const float *positions, i64 heads, float theta,
                          i64 t_pairs, bool inverse)
{
    i64 pairs = x.columns / (2 * heads);
    require(x.columns % (2 * heads) == 0 && t_pairs >= 0 && t_pairs <= pairs,
            "rope: %lld columns, %lld heads, %lld pairs of t", (long long)x.columns, (long long)heads,
            (long long)t_pairs);
    LAUNCH_ELEMENTS(device, x.dtype, turn, (x.rows * pairs), x, positions, heads, pairs, (double)theta, t_pairs,
                    inverse);
}
