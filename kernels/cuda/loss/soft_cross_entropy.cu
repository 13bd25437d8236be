/* Distillation: the divergence of rows of logits, or of bits, from a teacher's, and the gradient of the
 * mixed loss. */
#include "kernels/cuda/cuda.h"

enum { IGNORED = -100 };

/* ---- classes ---- */

template <typename T, int N>
static __global__ void divergences(float *divergence, struct matrix logits, const float *lse, struct matrix teacher,
                                   const float *teacher_lse)
{
    grid_wait();
    i64 row = blockIdx.x;
    float least = lse[row], teacher_least = teacher_lse[row], sum = 0;
    COLUMNS(i, logits.columns / N)
    {
        elements<T, N> x = load<N>(row_of<T>(logits, row) + i * N), t = load<N>(row_of<T>(teacher, row) + i * N);
        for (int k = 0; k < N; k++) {
            float log_q = to_f32(t.at[k]) - teacher_least;
            sum += expf(log_q) * (log_q - (to_f32(x.at[k]) - least));
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        divergence[row] = sum;
}

extern "C" void cuda_soft_cross_entropy(struct device *device, float *divergence, struct matrix logits,
                                        const float *lse, struct matrix teacher, const float *teacher_lse)
{
    LAUNCH_ROWS_OF_RUNS(device, in_quads(logits, teacher), logits.dtype, divergences, logits.rows, logits.columns,
                        divergence, logits, lse, teacher, teacher_lse);
}

/* dx = coefficient (p - w q - (1 - w) onehot) with the row's weight w */
template <typename Out, typename In, int N>
static __global__ void mixed_gradients(struct matrix dlogits, struct matrix logits, const float *lse,
                                       struct matrix teacher, const float *teacher_lse, const i32 *target,
                                       const float *coefficient, const float *weight)
{
    grid_wait();
    RUNS(N, at, column, logits.rows, logits.columns)
    {
        elements<In, N> x = load<N>(row_of<In>(logits, at.row) + column);
        elements<In, N> t = load<N>(row_of<In>(teacher, at.row) + column);
        elements<Out, N> dx = {};
        float least = lse[at.row], teacher_least = teacher_lse[at.row], factor = coefficient[at.row],
              w = weight[at.row];
        i64 right = target[at.row];
        for (int k = 0; k < N && right != IGNORED; k++) {
            float one = (float)(column + k == right), p = expf(to_f32(x.at[k]) - least);
            float q = expf(to_f32(t.at[k]) - teacher_least);
            dx.at[k] = from_f32<Out>(factor * (p - one + w * (one - q)));
        }
        store(row_of<Out>(dlogits, at.row) + column, dx);
    }
}

extern "C" void cuda_soft_cross_entropy_backward(struct device *device, struct matrix dlogits, struct matrix logits,
                                                 const float *lse, struct matrix teacher, const float *teacher_lse,
                                                 const i32 *target, const float *coefficient, const float *weight)
{
    bool quads = in_quads(dlogits, logits, teacher);
    i64 runs = logits.rows * logits.columns / (quads ? QUAD : 1);
    if (runs > 0)
        LAUNCH_RUNS_BY_DTYPES(device, quads, dlogits.dtype, logits.dtype, mixed_gradients, blocks_for(runs),
                              BLOCK_THREADS, dlogits, logits, lse, teacher, teacher_lse, target, coefficient, weight);
}

/* ---- bits ---- */

__device__ static float softplus_of(float x)
{
    return fmaxf(x, 0) + log1pf(expf(-fabsf(x)));
}

/* With q = sigmoid(t): q (log q - log p) + (1 - q) (log(1 - q) - log(1 - p)), where
 * log(1 - p) = log p - x. */
template <typename T>
static __global__ void bit_divergences(float *divergence, struct matrix logits, struct matrix teacher)
{
    grid_wait();
    i64 row = blockIdx.x, n = logits.columns;
    float sum = 0;
    COLUMNS(i, n)
    {
        float x = to_f32(row_of<T>(logits, row)[i]), t = to_f32(row_of<T>(teacher, row)[i]);
        sum += softplus_of(-x) - softplus_of(-t) + sigmoid(-t) * (x - t);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        divergence[row] = sum / (float)n;
}

extern "C" void cuda_soft_bit_cross_entropy(struct device *device, float *divergence, struct matrix logits,
                                            struct matrix teacher)
{
    LAUNCH_ROWS(device, logits.dtype, bit_divergences, logits.rows, logits.columns, divergence, logits, teacher);
}

template <typename Out, typename In, int N>
static __global__ void mixed_bit_gradients(struct matrix dlogits, struct matrix logits, struct matrix teacher,
                                           const u8 *bits, const float *coefficient, const float *weight)
{
    grid_wait();
    RUNS(N, at, column, logits.rows, logits.columns)
    {
        elements<In, N> x = load<N>(row_of<In>(logits, at.row) + column);
        elements<In, N> t = load<N>(row_of<In>(teacher, at.row) + column);
        elements<u8, N> bit = load<N>(bits + at.row * logits.columns + column);
        elements<Out, N> dx;
        float scale = coefficient[at.row] / (float)logits.columns, w = weight[at.row];
        for (int k = 0; k < N; k++) {
            float value = to_f32(x.at[k]), sign = bit.at[k] ? -1.0f : 1.0f;
            float hard = sign * sigmoid(sign * value), soft = sigmoid(value) - sigmoid(to_f32(t.at[k]));
            dx.at[k] = from_f32<Out>(scale * ((1 - w) * hard + w * soft));
        }
        store(row_of<Out>(dlogits, at.row) + column, dx);
    }
}

extern "C" void cuda_soft_bit_cross_entropy_backward(struct device *device, struct matrix dlogits, struct matrix logits,
                                                     struct matrix teacher, const u8 *bits, const float *coefficient,
                                                     const float *weight)
{
    bool quads = in_quads(dlogits, logits, teacher) && array_in_quads(bits, 1, logits.columns);
    i64 runs = logits.rows * logits.columns / (quads ? QUAD : 1);
    if (runs > 0)
        LAUNCH_RUNS_BY_DTYPES(device, quads, dlogits.dtype, logits.dtype, mixed_bit_gradients, blocks_for(runs),
                              BLOCK_THREADS, dlogits, logits, teacher, bits, coefficient, weight);
}
