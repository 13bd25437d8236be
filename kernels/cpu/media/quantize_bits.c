#include "kernels/quantize_bits.h"
#include "kernels/cpu/cpu.h"

/* A tile is one image. Its residual and the values of one scale are in the worker's scratch. */
struct quantize_bits_job {
    u8 *bits;
    float *sum, *u, *inputs;
    const float *x, *amplitude;
    const u8 *flip, *coded;
    i64 h, w, d, tokens, scale_count;
    const struct scale *scales;
};
enum { SLOT_REST, SLOT_VALUES, SLOT_SUM };

static i64 tokens_of(const struct scale *scales, i64 count)
{
    i64 tokens = 0;
    for (i64 k = 0; k < count; k++)
        tokens += scale_positions(scales[k]);
    return tokens;
}

static i64 largest_of(const struct scale *scales, i64 count)
{
    i64 largest = 1;
    for (i64 k = 0; k < count; k++)
        largest = max_i64(largest, scale_positions(scales[k]));
    return largest;
}

/* Writes the signs of one scale, [its positions, d], from element `at` of the image's codes on.
 * `values` receives the values that are summed. */
static void quantize_scale(float *values, const struct quantize_bits_job *job, const float *rest, i64 at,
                           struct scale scale, float amplitude)
{
    for (i64 i = 0; i < scale_positions(scale); i++, at += job->d) {
        float *value = values + i * job->d;
        bits_lower(value, rest, i / scale.w, i % scale.w, job->h, job->w, job->d, job->d, scale.h, scale.w);
        if (job->u)
            memcpy(job->u + at, value, (size_t)job->d * 4);
        for (i64 c = 0; c < job->d; c++) {
            u8 bit = value[c] > 0.0f;
            job->bits[at + c] = bit;
            value[c] = bit_value(bit ^ (job->flip ? job->flip[at + c] : 0), amplitude);
        }
    }
}

static void run_quantize(void *context, i64 image, int worker)
{
    const struct quantize_bits_job *job = context;
    i64 elements = job->h * job->w * job->d, largest = largest_of(job->scales, job->scale_count);
    float *rest = CPU(scratch)(worker, SLOT_REST, elements * 4), *sum = job->sum + image * elements;
    float *values = CPU(scratch)(worker, SLOT_VALUES, largest * job->d * 4);
    memcpy(rest, job->x + image * elements, (size_t)elements * 4);
    memset(sum, 0, (size_t)elements * 4);
    i64 at = image * job->tokens * job->d;
    for (i64 k = 0; k < job->scale_count; k++) {
        struct scale scale = job->scales[k];
        quantize_scale(values, job, rest, at, scale, job->amplitude[k]);
        bits_raise(sum, rest, values, job->h, job->w, job->d, job->d, scale.h, scale.w);
        at += scale_positions(scale) * job->d;
    }
}

void CPU(quantize_bits)(struct device *device, u8 *bits, float *sum, float *u, const float *x, const u8 *flip, i64 n,
                        i64 h, i64 w, i64 d, const struct scale *scales, i64 scale_count, const float *amplitude)
{
    (void)device;
    struct quantize_bits_job job = {.bits = bits,
                                    .sum = sum,
                                    .u = u,
                                    .x = x,
                                    .amplitude = amplitude,
                                    .flip = flip,
                                    .h = h,
                                    .w = w,
                                    .d = d,
                                    .scales = scales,
                                    .scale_count = scale_count};
    job.tokens = tokens_of(scales, scale_count);
    workers_run(n, run_quantize, &job);
}

static void run_dequantize(void *context, i64 image, int worker)
{
    const struct quantize_bits_job *job = context;
    i64 d = job->d, elements = job->h * job->w * d, largest = largest_of(job->scales, job->scale_count);
    float *sum = job->sum ? job->sum + image * elements : CPU(scratch)(worker, SLOT_SUM, elements * 4);
    float *values = CPU(scratch)(worker, SLOT_VALUES, largest * d * 4);
    float *inputs = job->inputs + image * (job->tokens - scale_positions(job->scales[0]) + 1) * d;
    const u8 *coded = job->coded + image * job->tokens * d;
    memset(sum, 0, (size_t)elements * 4);
    for (i64 k = 0; k < job->scale_count; k++) {
        struct scale scale = job->scales[k];
        for (i64 i = 0; k > 0 && i < scale_positions(scale); i++, inputs += d)
            bits_lower(inputs, sum, i / scale.w, i % scale.w, job->h, job->w, d, d, scale.h, scale.w);
        for (i64 i = 0; i < scale_positions(scale) * d; i++)
            values[i] = bit_value(*coded++, job->amplitude[k]);
        bits_raise(sum, NULL, values, job->h, job->w, d, d, scale.h, scale.w);
    }
    bits_lower(inputs, sum, 0, 0, job->h, job->w, d, d, 1, 1);
}

void CPU(dequantize_bits)(struct device *device, float *inputs, float *sum, const u8 *bits, i64 n, i64 h, i64 w, i64 d,
                          const struct scale *scales, i64 scale_count, const float *amplitude)
{
    (void)device;
    struct quantize_bits_job job = {.inputs = inputs,
                                    .sum = sum,
                                    .coded = bits,
                                    .amplitude = amplitude,
                                    .h = h,
                                    .w = w,
                                    .d = d,
                                    .scales = scales,
                                    .scale_count = scale_count};
    job.tokens = tokens_of(scales, scale_count);
    workers_run(n, run_dequantize, &job);
}
