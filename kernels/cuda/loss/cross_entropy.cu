/* Cross-entropy of rows of logits; one block reads a row once (online softmax, Milakov and
 * Gimelshein 2018, arXiv 1805.02867).
 *
 *     row x of V logits   | thread 0 | thread 1 | .. | thread 0 | ..     runs of N logits
 *                           m, l, and the sum of z e^z of the thread's own runs
 *                           block_max -> m; each rescales to it; block_sum -> l
 *     lse = m + log l     loss = log l - (x[target] - m)     entropy = log l - (sum of z e^z) / l
 *
 * m is seen.most and l is seen.sum. In the backward dx = coefficient (e^(x - lse) - t), where t
 * is 1 at the target and else 0. The cross entropy of the head, chunk by chunk, is in
 * tensor/ops_loss.c. */
#include "kernels/cuda/cuda.h"

#include <float.h>

enum { IGNORED = -100 };

/* Online softmax statistics of the logits seen so far: the maximum, and sums of e^z and z e^z over
 * z = x - most. Masked logits (-inf) add nothing: z is clamped at -100, where e^z is 0. */
struct softmax_statistics {
    float most, sum, product;
};

__device__ static float clamped(float z)
{
    return z < -100 ? -100 : z;
}

/* The same statistics relative to a larger `most`. */
__device__ static struct softmax_statistics statistics_from(struct softmax_statistics s, float most)
{
    float shift = clamped(s.most - most), factor = expf(shift);
    return {most, s.sum * factor, factor * (s.product + shift * s.sum)};
}

template <typename T, int N>
__device__ static struct softmax_statistics statistics_with(struct softmax_statistics s, elements<T, N> x)
{
    float most = s.most;
    for (int k = 0; k < N; k++)
        most = fmaxf(most, to_f32(x.at[k]));
    if (most > s.most)
        s = statistics_from(s, most);
    for (int k = 0; k < N; k++) {
        float z = clamped(to_f32(x.at[k]) - most), e = expf(z);
        s.sum += e;
        s.product += z * e;
    }
    return s;
}

/* One block per row; each row is read once. */
template <typename T, int N>
static __global__ void losses(float *loss, float *lse, float *entropy, struct matrix logits, const i32 *target)
{
    grid_wait();
    i64 row = blockIdx.x;
    const T *x = row_of<T>(logits, row);
    struct softmax_statistics s = {-FLT_MAX, 0, 0};
    COLUMNS(i, logits.columns / N)
    s = statistics_with<T, N>(s, load<N>(x + i * N));
    s = statistics_from(s, block_max(s.most));
    float sum = block_sum(s.sum), product = block_sum(s.product);
    if (threadIdx.x > 0)
        return;
    lse[row] = s.most + logf(sum);
    loss[row] = target[row] == IGNORED ? 0 : logf(sum) - (to_f32(x[target[row]]) - s.most);
    if (entropy)
        entropy[row] = logf(sum) - product / sum;
}

extern "C" void cuda_cross_entropy(struct device *device, float *loss, float *lse, float *entropy, struct matrix logits,
                                   const i32 *target)
{
    LAUNCH_ROWS_OF_RUNS(device, in_quads(logits), logits.dtype, losses, logits.rows, logits.columns, loss, lse, entropy,
                        logits, target);
}

template <typename Out, typename In, int N>
static __global__ void gradients(struct matrix dlogits, struct matrix logits, const float *lse, const i32 *target,
                                 const float *coefficient)
{
    grid_wait();
    RUNS(N, at, column, logits.rows, logits.columns)
    {
        elements<In, N> x = load<N>(row_of<In>(logits, at.row) + column);
        elements<Out, N> dx = {};
        float least = lse[at.row], factor = coefficient[at.row];
        i64 right = target[at.row];
        for (int k = 0; k < N && right != IGNORED; k++)
            dx.at[k] = from_f32<Out>(factor * (expf(to_f32(x.at[k]) - least) - (float)(column + k == right)));
        store(row_of<Out>(dlogits, at.row) + column, dx);
    }
}

/* Adds to dx: -factor p (log p + H); one block per row, which is read twice. */
template <typename Out, typename In>
__device__ static void add_class_gradients(struct matrix dlogits, const In *x, i64 row, float least, float factor)
{
    float sum = 0;
    COLUMNS(i, dlogits.columns)
    {
        float log_p = clamped(to_f32(x[i]) - least);
        sum += expf(log_p) * log_p;
    }
    sum = block_sum(sum);
    Out *dx = row_of<Out>(dlogits, row);
    COLUMNS(i, dlogits.columns)
    {
        float log_p = clamped(to_f32(x[i]) - least);
        dx[i] = from_f32<Out>(to_f32(dx[i]) - factor * expf(log_p) * (log_p - sum));
    }
}

template <typename Out, typename In>
static __global__ void entropy_gradients(struct matrix dlogits, struct matrix logits, const float *lse,
                                         const float *coefficient)
{
    grid_wait();
    i64 row = blockIdx.x;
    const In *x = row_of<In>(logits, row);
    Out *dx = row_of<Out>(dlogits, row);
    if (lse) {
        add_class_gradients<Out, In>(dlogits, x, row, lse[row], coefficient[row]);
        return;
    }
    COLUMNS(i, logits.columns)
    {
        float value = to_f32(x[i]), slope = value * sigmoid(value) * sigmoid(-value);
        dx[i] = from_f32<Out>(to_f32(dx[i]) - coefficient[row] * slope);
    }
}

extern "C" void cuda_entropy_backward(struct device *device, struct matrix dlogits, struct matrix logits,
                                      const float *lse, const float *coefficient)
{
    if (logits.rows > 0)
        LAUNCH_BY_DTYPES(device, dlogits.dtype, logits.dtype, entropy_gradients, (unsigned)logits.rows,
                         threads_for(logits.columns), 0, dlogits, logits, lse, coefficient);
}

extern "C" void cuda_cross_entropy_backward(struct device *device, struct matrix dlogits, struct matrix logits,
                                            const float *lse, const i32 *target, const float *coefficient)
{
    bool quads = in_quads(dlogits, logits);
    i64 runs = logits.rows * logits.columns / (quads ? QUAD : 1);
    if (runs > 0)
        LAUNCH_RUNS_BY_DTYPES(device, quads, dlogits.dtype, logits.dtype, gradients, blocks_for(runs), BLOCK_THREADS,
                              dlogits, logits, lse, target, coefficient);
}
