#include "kernels/cuda/cuda.h"

/* Rows are short, so narrow rows get a block of one warp. For one bit, with a = |x| and e =
 * exp(-a): entropy = log(1 + e) + a e / (1 + e), loss = max(-+x, 0) + log(1 + e). */
template <typename T>
static __global__ void bit_losses(float *loss, float *entropy, struct matrix logits, const u8 *bits)
{
    grid_wait();
    i64 row = blockIdx.x, n = logits.columns;
    float losses = 0, entropies = 0;
    COLUMNS(i, n)
    {
        float x = to_f32(row_of<T>(logits, row)[i]), a = fabsf(x), e = expf(-a), log1 = log1pf(e);
        losses += fmaxf(bits[row * n + i] ? -x : x, 0) + log1;
        entropies += log1 + a * e / (1 + e);
    }
    losses = block_sum(losses);
    if (entropy)
        entropies = block_sum(entropies);
    if (threadIdx.x > 0)
        return;
    loss[row] = losses / (float)n;
    if (entropy)
        entropy[row] = entropies / (float)n;
}

extern "C" void cuda_bit_cross_entropy(struct device *device, float *loss, float *entropy, struct matrix logits,
                                       const u8 *bits)
{
    LAUNCH_ROWS(device, logits.dtype, bit_losses, logits.rows, logits.columns, loss, entropy, logits, bits);
}

template <typename Out, typename In, int N>
static __global__ void bit_gradients(struct matrix dlogits, struct matrix logits, const u8 *bits,
                                     const float *coefficient)
{
    grid_wait();
    RUNS(N, at, column, logits.rows, logits.columns)
    {
        elements<In, N> x = load<N>(row_of<In>(logits, at.row) + column);
        elements<u8, N> bit = load<N>(bits + at.row * logits.columns + column);
        elements<Out, N> dx;
        float scale = coefficient[at.row] / (float)logits.columns;
        for (int k = 0; k < N; k++) {
            float sign = bit.at[k] ? -1.0f : 1.0f;
            dx.at[k] = from_f32<Out>(scale * sign * sigmoid(sign * to_f32(x.at[k])));
        }
        store(row_of<Out>(dlogits, at.row) + column, dx);
    }
}

extern "C" void cuda_bit_cross_entropy_backward(struct device *device, struct matrix dlogits, struct matrix logits,
                                                const u8 *bits, const float *coefficient)
{
    bool quads = in_quads(dlogits, logits) && array_in_quads(bits, 1, logits.columns);
    i64 runs = logits.rows * logits.columns / (quads ? QUAD : 1);
    if (runs > 0)
        LAUNCH_RUNS_BY_DTYPES(device, quads, dlogits.dtype, logits.dtype, bit_gradients, blocks_for(runs),
                              BLOCK_THREADS, dlogits, logits, bits, coefficient);
}
