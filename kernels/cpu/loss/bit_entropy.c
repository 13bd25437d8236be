#include "kernels/bit_entropy.h"
#include "kernels/cpu/rows.h"
#include "kernels/resample.h"

/* A tile is one scale in the forward, one image in the backward. */
struct bit_entropy_job {
    float *mean_p, *magnitude, *each; /* each [scale_count]: entropy term per scale */
    float *dx;
    const float *u, *amplitude, *means;
    const struct scale *scales;
    i64 n, h, w, d, scale_count, tokens;
    float sharpness, coefficient;
};
enum { SLOT_SUMS, SLOT_EACH };

static i64 first_token(const struct bit_entropy_job *job, i64 scale)
{
    i64 first = 0;
    for (i64 k = 0; k < scale; k++)
        first += scale_positions(job->scales[k]);
    return first;
}

static inline float logit_entropy(float z)
{
    float a = __builtin_fabsf(z), e = vector_exp(-a);
    return logit_entropy_of(a, e, vector_log1p(e));
}

static inline float mean_entropy(float p)
{
    return p > 0.0f && p < 1.0f ? logit_entropy(logf(p / (1.0f - p))) : 0.0f;
}

/* Adds one position to the sums of its scale: [3][d] p, H(p), |u|. */
static void add_position(float *restrict sums, const float *restrict u, i64 d, float slope)
{
#pragma omp simd
    for (i64 c = 0; c < d; c++) {
        float z = slope * u[c];
        sums[c] += vector_sigmoid(z);
        sums[d + c] += logit_entropy(z);
        sums[2 * d + c] += __builtin_fabsf(u[c]);
    }
}

static void run_scale(void *context, i64 k, int worker)
{
    const struct bit_entropy_job *job = context;
    i64 d = job->d, in_scale = scale_positions(job->scales[k]), first = first_token(job, k);
    float *sums = CPU(scratch)(worker, SLOT_SUMS, 3 * d * 4), count = (float)(job->n * in_scale);
    float slope = job->sharpness / job->amplitude[k], together = 0;
    memset(sums, 0, (size_t)(3 * d) * 4);
    for (i64 image = 0; image < job->n; image++)
        for (i64 i = 0; i < in_scale; i++)
            add_position(sums, job->u + (image * job->tokens + first + i) * d, d, slope);
    for (i64 c = 0; c < d; c++) {
        float p = sums[c] / count;
        job->mean_p[k * d + c] = p;
        together += mean_entropy(p);
    }
    job->each[k] = (row_sum(sums + d, d) / count - together) / (float)d;
    job->magnitude[k] = row_sum(sums + 2 * d, d) / (count * (float)d);
}

static i64 count_tokens(struct bit_entropy_job *job)
{
    job->tokens = first_token(job, job->scale_count);
    return job->tokens;
}

void CPU(bit_entropy)(struct device *device, float *entropy, float *mean_p, float *magnitude, const float *u, i64 n,
                      i64 d, const struct scale *scales, i64 scale_count, const float *amplitude, float sharpness)
{
    (void)device;
    struct bit_entropy_job job = {.mean_p = mean_p,
                                  .magnitude = magnitude,
                                  .u = u,
                                  .amplitude = amplitude,
                                  .scales = scales,
                                  .n = n,
                                  .d = d,
                                  .scale_count = scale_count,
                                  .sharpness = sharpness};
    count_tokens(&job);
    job.each = CPU(scratch)(0, SLOT_EACH, scale_count * 4);
    workers_run(scale_count, run_scale, &job);
    entropy[0] = 0;
    for (i64 k = 0; k < scale_count; k++)
        entropy[0] += job.each[k] / (float)scale_count;
}

static void derive(float *restrict du, const float *restrict u, const float *restrict mean_logit, i64 d, float slope,
                   float factor)
{
#pragma omp simd
    for (i64 c = 0; c < d; c++) {
        float z = slope * u[c];
        du[c] = bit_entropy_derivative(z, vector_sigmoid(z), mean_logit[c], factor);
    }
}

/* Spreads a gradient: each position of a scale is the mean of an area of the image. */
static void spread(float *dx, const float *du, const struct bit_entropy_job *job, i64 y, i64 x, struct scale s)
{
    i64 y0 = area_begin(y, job->h, s.h), y1 = area_end(y, job->h, s.h), x0 = area_begin(x, job->w, s.w),
        x1 = area_end(x, job->w, s.w);
    float share = 1.0f / (float)((y1 - y0) * (x1 - x0));
    for (i64 j = y0; j < y1; j++)
        for (i64 i = x0; i < x1; i++)
#pragma omp simd
            for (i64 c = 0; c < job->d; c++)
                dx[(j * job->w + i) * job->d + c] += share * du[c];
}

static void run_image(void *context, i64 image, int worker)
{
    const struct bit_entropy_job *job = context;
    i64 d = job->d;
    float *mean_logit = CPU(scratch)(worker, SLOT_SUMS, 2 * d * 4), *du = mean_logit + d;
    float *dx = job->dx + image * job->h * job->w * d;
    const float *u = job->u + image * job->tokens * d;
    for (i64 k = 0; k < job->scale_count; k++) {
        struct scale s = job->scales[k];
        float slope = job->sharpness / job->amplitude[k];
        float factor = job->coefficient * slope / (float)(job->scale_count * job->n * scale_positions(s) * d);
        for (i64 c = 0; c < d; c++)
            mean_logit[c] = mean_logit_of(job->means[k * d + c]);
        for (i64 i = 0; i < scale_positions(s); i++, u += d) {
            derive(du, u, mean_logit, d, slope, factor);
            spread(dx, du, job, i / s.w, i % s.w, s);
        }
    }
}

void CPU(bit_entropy_backward)(struct device *device, float *dx, const float *u, const float *mean_p, i64 n, i64 h,
                               i64 w, i64 d, const struct scale *scales, i64 scale_count, const float *amplitude,
                               float sharpness, const float *coefficient)
{
    (void)device;
    struct bit_entropy_job job = {.dx = dx,
                                  .u = u,
                                  .amplitude = amplitude,
                                  .means = mean_p,
                                  .scales = scales,
                                  .n = n,
                                  .h = h,
                                  .w = w,
                                  .d = d,
                                  .scale_count = scale_count,
                                  .sharpness = sharpness,
                                  .coefficient = coefficient[0]};
    count_tokens(&job);
    workers_run(n, run_image, &job);
}
