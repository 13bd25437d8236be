/* Rotation of one pair of a head. */
#ifndef WEFT_CUDA_ROPE_H
#define WEFT_CUDA_ROPE_H
#include "kernels/cuda/cuda.h"

/* Frequencies and angles are computed in f64, because positions reach 1e5. */
__device__ inline double rope_frequency(i64 j, i64 pairs, double theta)
{
    return pow(theta, -(double)j / (double)pairs);
}

/* Cosine and sine of the rotation of pair j of a head. */
__device__ inline float2 rope_rotation_by(const float *position /* (t,h,w) */, i64 j, i64 pairs, i64 t_pairs,
                                          double frequency)
{
    i64 axis = j >= pairs - t_pairs ? 0 : j % 2 == 0 ? 1 : 2;
    double sine, cosine;
    sincos((double)position[axis] * frequency, &sine, &cosine);
    return make_float2((float)cosine, (float)sine);
}
__device__ inline float2 rope_rotation(const float *position, i64 j, i64 pairs, i64 t_pairs, double theta)
{
    return rope_rotation_by(position, j, pairs, t_pairs, rope_frequency(j, pairs, theta));
}

template <typename T> __device__ inline void rope_pair(T *pair, float2 rotation)
{
    float a = to_f32(pair[0]), b = to_f32(pair[1]);
    pair[0] = from_f32<T>(a * rotation.x - b * rotation.y);
    pair[1] = from_f32<T>(b * rotation.x + a * rotation.y);
}

#endif
