#include "kernels/cuda/cuda.h"

#include "kernels/bit_entropy.h"
#include "kernels/resample.h"

/* Sums over the positions of a scale take three steps, each in an order fixed by shapes: a thread
 * sums one column over every LANES-th position of a run; a block adds its threads of that column;
 * the last kernel adds the runs. */
enum { SCALES_MOST = 32, COLUMNS_OF_BLOCK = 32, LANES = BLOCK_THREADS / COLUMNS_OF_BLOCK, RUNS_MOST = 64 };
enum { SUM_P, SUM_ENTROPY, SUM_MAGNITUDE, SUMS };

struct entropy_problem {
    float *partials, *each; /* workspace: [scales, runs, SUMS, d], [scales] */
    const float *u, *amplitude;
    i64 n, d, tokens, runs;
    float sharpness;
    int scale_count;
    struct scale scales[SCALES_MOST];
};

__device__ static i64 first_token(const struct entropy_problem &p, int scale)
{
    i64 first = 0;
    for (int k = 0; k < scale; k++)
        first += scale_positions(p.scales[k]);
    return first;
}

__device__ static float logit_entropy(float z)
{
    float a = fabsf(z), e = expf(-a);
    return logit_entropy_of(a, e, log1pf(e));
}

__device__ static float mean_entropy(float p)
{
    return p > 0.0f && p < 1.0f ? logit_entropy(logf(p / (1.0f - p))) : 0.0f;
}

/* Sums over a run of positions. Grid: (columns, run, scale). */
static __global__ void entropy_partials(struct entropy_problem p)
{
    grid_wait();
    SHARED(float, sums, SUMS *BLOCK_THREADS);
    int k = (int)blockIdx.z, lane = (int)threadIdx.x / COLUMNS_OF_BLOCK;
    i64 in_scale = scale_positions(p.scales[k]), positions = p.n * in_scale, length = (positions + p.runs - 1) / p.runs;
    i64 c = (i64)blockIdx.x * COLUMNS_OF_BLOCK + threadIdx.x % COLUMNS_OF_BLOCK, begin = blockIdx.y * length;
    i64 end = begin + length < positions ? begin + length : positions, first = first_token(p, k);
    float slope = p.sharpness / p.amplitude[k], sum[SUMS] = {};
    for (i64 i = begin + lane; i < end && c < p.d; i += LANES) {
        float u = p.u[(i / in_scale * p.tokens + first + i % in_scale) * p.d + c];
        sum[SUM_P] += sigmoid(slope * u);
        sum[SUM_ENTROPY] += logit_entropy(slope * u);
        sum[SUM_MAGNITUDE] += fabsf(u);
    }
    for (int s = 0; s < SUMS; s++)
        sums[s * BLOCK_THREADS + threadIdx.x] = sum[s];
    __syncthreads();
    if (lane > 0 || c >= p.d)
        return;
    for (int s = 0; s < SUMS; s++) {
        float total = 0;
        for (int l = 0; l < LANES; l++)
            total += sums[s * BLOCK_THREADS + l * COLUMNS_OF_BLOCK + threadIdx.x];
        p.partials[((k * p.runs + blockIdx.y) * SUMS + s) * p.d + c] = total;
    }
}

/* One block per scale. */
static __global__ void entropy_of_scales(float *mean_p, float *magnitude, struct entropy_problem p)
{
    grid_wait();
    int k = (int)blockIdx.x;
    float count = (float)(p.n * scale_positions(p.scales[k])), alone = 0, together = 0, size = 0;
    COLUMNS(c, p.d)
    {
        float sum[SUMS] = {};
        for (i64 run = 0; run < p.runs; run++)
            for (int s = 0; s < SUMS; s++)
                sum[s] += p.partials[((k * p.runs + run) * SUMS + s) * p.d + c];
        float mean = sum[SUM_P] / count;
        mean_p[k * p.d + c] = mean;
        together += mean_entropy(mean);
        alone += sum[SUM_ENTROPY];
        size += sum[SUM_MAGNITUDE];
    }
    alone = block_sum(alone);
    together = block_sum(together);
    size = block_sum(size);
    if (threadIdx.x == 0) {
        p.each[k] = (alone / count - together) / (float)p.d;
        magnitude[k] = size / (count * (float)p.d);
    }
}

static __global__ void entropy_of_all(float *entropy, const float *each, int scale_count)
{
    grid_wait();
    float sum = 0;
    for (int k = 0; k < scale_count; k++)
        sum += each[k] / (float)scale_count;
    entropy[0] = sum;
}

static struct entropy_problem problem_of(const float *u, i64 n, i64 d, const struct scale *scales, i64 scale_count,
                                         const float *amplitude, float sharpness)
{
    struct entropy_problem p = {};
    require(scale_count <= SCALES_MOST, "bit_entropy of %lld scales, at most %d are known", (long long)scale_count,
            SCALES_MOST);
    p.u = u;
    p.amplitude = amplitude;
    p.n = n;
    p.d = d;
    p.sharpness = sharpness;
    p.scale_count = (int)scale_count;
    for (i64 k = 0; k < scale_count; k++) {
        p.scales[k] = scales[k];
        p.tokens += scale_positions(scales[k]);
        p.runs = max_i64(p.runs, ceil_div(n * scale_positions(scales[k]), 4 * LANES));
    }
    p.runs = min_i64(p.runs, RUNS_MOST);
    return p;
}

extern "C" void cuda_bit_entropy(struct device *device, float *entropy, float *mean_p, float *magnitude, const float *u,
                                 i64 n, i64 d, const struct scale *scales, i64 scale_count, const float *amplitude,
                                 float sharpness)
{
    struct entropy_problem p = problem_of(u, n, d, scales, scale_count, amplitude, sharpness);
    i64 partials = scale_count * p.runs * SUMS * d;
    p.partials = (float *)cuda_workspace_of(device, "bit_entropy", (partials + scale_count) * (i64)sizeof(float));
    p.each = p.partials + partials;
    dim3 grid((unsigned)ceil_div(d, COLUMNS_OF_BLOCK), (unsigned)p.runs, (unsigned)scale_count);
    LAUNCH(device, entropy_partials, grid, BLOCK_THREADS, 0, p);
    LAUNCH(device, entropy_of_scales, (unsigned)scale_count, threads_for(d), 0, mean_p, magnitude, p);
    LAUNCH(device, entropy_of_all, 1, 1, 0, entropy, p.each, p.scale_count);
}

/* One thread handles one channel of a cell. A cell contributes to every token whose area contains
 * it; these tokens are the area ranges with the sizes exchanged. */
static __global__ void entropy_backward(float *dx, const float *mean_p, i64 h, i64 w, const float *coefficient,
                                        struct entropy_problem p)
{
    grid_wait();
    GRID_STRIDE(at, p.n * h * w * p.d)
    {
        i64 c = at % p.d, cell = at / p.d, image = cell / (h * w), y = cell / w % h, x = cell % w, first = 0;
        float sum = dx[at];
        for (int k = 0; k < p.scale_count; k++) {
            struct scale s = p.scales[k];
            i64 y_end = area_end(y, s.h, h), x_end = area_end(x, s.w, w);
            float slope = p.sharpness / p.amplitude[k], mean_logit = mean_logit_of(mean_p[k * p.d + c]);
            float factor = coefficient[0] * slope / (float)(p.scale_count * p.n * scale_positions(s) * p.d);
            for (i64 j = area_begin(y, s.h, h); j < y_end; j++)
                for (i64 i = area_begin(x, s.w, w); i < x_end; i++) {
                    float z = slope * p.u[(image * p.tokens + first + j * s.w + i) * p.d + c];
                    float share = area_weight(y, j, h, s.h) * area_weight(x, i, w, s.w);
                    sum += share * bit_entropy_derivative(z, sigmoid(z), mean_logit, factor);
                }
            first += scale_positions(s);
        }
        dx[at] = sum;
    }
}

extern "C" void cuda_bit_entropy_backward(struct device *device, float *dx, const float *u, const float *mean_p, i64 n,
                                          i64 h, i64 w, i64 d, const struct scale *scales, i64 scale_count,
                                          const float *amplitude, float sharpness, const float *coefficient)
{
    struct entropy_problem p = problem_of(u, n, d, scales, scale_count, amplitude, sharpness);
    if (n * h * w * d > 0)
        LAUNCH(device, entropy_backward, blocks_for(n * h * w * d), BLOCK_THREADS, 0, dx, mean_p, h, w, coefficient, p);
}
