#include "kernels/cuda/cuda.h"
#include "kernels/quantize_bits.h"

/* A block handles LANES channels of one image. The residual (or the sum so far) and the values of
 * one scale are in shared memory, or in the workspace if the image is too large. For each scale,
 * threads split the tokens, then the pixels. Each value is computed by one thread in the order of
 * quantize_bits.h, so the bits equal the CPU's. */
enum { LANES = 8, SCALES_MOST = 32, SHARED_MOST = 96 << 10, GROUPS_MOST = 1 << 16 };

struct bits_problem {
    u8 *bits;
    float *sum, *u, *inputs;
    const float *x, *amplitude;
    const u8 *flip, *coded;
    i64 n, h, w, d, tokens, groups; /* groups of LANES channels, over all images */
    char *memory;                   /* memory of all blocks; NULL: shared memory */
    i64 memory_bytes;               /* per block */
    int scale_count;
    struct scale scales[SCALES_MOST];
};

struct bits_block {
    i64 image, channel;
    int lanes;     /* channels present */
    float *cells;  /* [h*w, LANES]: the residual, or the sum so far */
    float *values; /* [positions of a scale, LANES] */
    struct bilinear_source *y, *x;
};

__device__ static struct bits_block open_block(const struct bits_problem &p, i64 group, char *memory)
{
    i64 groups = (p.d + LANES - 1) / LANES;
    struct bits_block b;
    b.image = group / groups;
    b.channel = group % groups * LANES;
    b.lanes = p.d - b.channel < LANES ? (int)(p.d - b.channel) : LANES;
    b.y = (struct bilinear_source *)memory;
    b.x = b.y + p.h;
    b.cells = (float *)(b.x + p.w);
    b.values = b.cells + p.h * p.w * LANES;
    return b;
}

/* Loop over this thread's elements [position, lane] of `positions` positions. */
#define LANES_OF(i, lane, positions)                                                                                   \
    for (i64 i = threadIdx.x / LANES, lane = threadIdx.x % LANES; lane < b.lanes && i < (positions);                   \
         i += blockDim.x / LANES)

__device__ static void fill_sources(const struct bits_problem &p, const struct bits_block &b, struct scale scale)
{
    COLUMNS(i, p.h) b.y[i] = bilinear_source_of(i, scale.h, p.h);
    COLUMNS(i, p.w) b.x[i] = bilinear_source_of(i, scale.w, p.w);
}

/* Channel `lane` of the scale's values, upsampled to position i. */
__device__ static float raised_at(const struct bits_problem &p, const struct bits_block &b, i64 i, i64 lane,
                                  struct scale scale)
{
    struct bilinear_source v = b.y[i / p.w], u = b.x[i % p.w];
    const float *above = b.values + v.low * scale.w * LANES + lane, *below = b.values + v.high * scale.w * LANES + lane;
    return bits_raised(above[u.low * LANES], above[u.high * LANES], below[u.low * LANES], below[u.high * LANES],
                       u.weight, v.weight);
}

__device__ static void quantize_scale(const struct bits_problem &p, const struct bits_block &b, int k, i64 token)
{
    struct scale scale = p.scales[k];
    LANES_OF(i, lane, scale_positions(scale))
    {
        i64 code = (b.image * p.tokens + token + i) * p.d + b.channel + lane;
        float u;
        bits_lower(&u, b.cells + lane, i / scale.w, i % scale.w, p.h, p.w, LANES, 1, scale.h, scale.w);
        u8 bit = u > 0.0f;
        if (p.u)
            p.u[code] = u;
        p.bits[code] = bit;
        b.values[i * LANES + lane] = bit_value(bit ^ (p.flip ? p.flip[code] : 0), p.amplitude[k]);
    }
}

__device__ static void quantize_group(const struct bits_problem &p, const struct bits_block &b)
{
    i64 cells = p.h * p.w, first = b.image * cells * p.d + b.channel;
    LANES_OF(i, lane, cells)
    {
        b.cells[i * LANES + lane] = p.x[first + i * p.d + lane];
        p.sum[first + i * p.d + lane] = 0;
    }
    for (i64 k = 0, token = 0; k < p.scale_count; token += scale_positions(p.scales[k]), k++) {
        __syncthreads();
        quantize_scale(p, b, (int)k, token);
        fill_sources(p, b, p.scales[k]);
        __syncthreads();
        LANES_OF(i, lane, cells)
        {
            float q = raised_at(p, b, i, lane, p.scales[k]);
            p.sum[first + i * p.d + lane] += q;
            b.cells[i * LANES + lane] -= q;
        }
    }
}

/* Resizes the sum so far to a scale and stores it in inputs from token `input` on. */
__device__ static void lower_sum(const struct bits_problem &p, const struct bits_block &b, struct scale scale,
                                 i64 input)
{
    i64 inputs = p.tokens - scale_positions(p.scales[0]) + 1;
    LANES_OF(i, lane, scale_positions(scale))
    {
        float *out = p.inputs + (b.image * inputs + input + i) * p.d + b.channel + lane;
        bits_lower(out, b.cells + lane, i / scale.w, i % scale.w, p.h, p.w, LANES, 1, scale.h, scale.w);
    }
}

__device__ static void dequantize_group(const struct bits_problem &p, const struct bits_block &b)
{
    i64 cells = p.h * p.w, token = 0, input = 0;
    LANES_OF(i, lane, cells) b.cells[i * LANES + lane] = 0;
    for (int k = 0; k < p.scale_count; k++) {
        struct scale scale = p.scales[k];
        i64 positions = scale_positions(scale);
        __syncthreads();
        if (k > 0) {
            lower_sum(p, b, scale, input);
            input += positions;
        }
        LANES_OF(i, lane, positions)
        b.values[i * LANES + lane] =
            bit_value(p.coded[(b.image * p.tokens + token + i) * p.d + b.channel + lane], p.amplitude[k]);
        fill_sources(p, b, scale);
        __syncthreads();
        LANES_OF(i, lane, cells) b.cells[i * LANES + lane] += raised_at(p, b, i, lane, scale);
        token += positions;
    }
    __syncthreads();
    lower_sum(p, b, {1, 1}, input);
    if (p.sum)
        LANES_OF(i, lane, cells)
    p.sum[(b.image * cells + i) * p.d + b.channel + lane] = b.cells[i * LANES + lane];
}

template <bool quantize> static __global__ void walk_scales(struct bits_problem p)
{
    grid_wait();
    DYNAMIC_SHARED(char, shared);
    char *memory = p.memory ? p.memory + blockIdx.x * p.memory_bytes : shared;
    for (i64 group = blockIdx.x; group < p.groups; group += gridDim.x) {
        struct bits_block b = open_block(p, group, memory);
        if (quantize)
            quantize_group(p, b);
        else
            dequantize_group(p, b);
        __syncthreads();
    }
}

static void set_scales(struct bits_problem *p, const struct scale *scales, i64 scale_count)
{
    i64 largest = 1;
    require(scale_count >= 1 && scale_count <= SCALES_MOST, "quantize_bits: %lld scales, at most %d are known",
            (long long)scale_count, (int)SCALES_MOST);
    for (i64 k = 0; k < scale_count; k++) {
        p->scales[k] = scales[k];
        p->tokens += scale_positions(scales[k]);
        largest = max_i64(largest, scale_positions(scales[k]));
    }
    p->scale_count = (int)scale_count;
    p->groups = p->n * ceil_div(p->d, LANES);
    p->memory_bytes =
        (p->h + p->w) * (i64)sizeof(struct bilinear_source) + (p->h * p->w + largest) * LANES * (i64)sizeof(float);
}

template <bool quantize> static void run(struct device *device, struct bits_problem p)
{
    i64 blocks = min_i64(p.groups, GROUPS_MOST), bytes = p.memory_bytes;
    if (blocks == 0)
        return;
    if (bytes > SHARED_MOST) {
        bytes = 0;
        p.memory_bytes = round_up(p.memory_bytes, 128);
        p.memory = (char *)cuda_workspace_of(device, "quantize_bits", p.memory_bytes);
        blocks = min_i64(blocks, cuda_handles_of(device)->workspace_bytes / p.memory_bytes);
    }
    CUDA_CHECK(cudaFuncSetAttribute(walk_scales<quantize>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_MOST));
    LAUNCH(device, walk_scales<quantize>, (unsigned)blocks, BLOCK_THREADS, bytes, p);
}

extern "C" void cuda_quantize_bits(struct device *device, u8 *bits, float *sum, float *u, const float *x,
                                   const u8 *flip, i64 n, i64 h, i64 w, i64 d, const struct scale *scales,
                                   i64 scale_count, const float *amplitude)
{
    struct bits_problem p = {};
    p.bits = bits;
    p.sum = sum;
    p.u = u;
    p.x = x;
    p.amplitude = amplitude;
    p.flip = flip;
    p.n = n;
    p.h = h;
    p.w = w;
    p.d = d;
    set_scales(&p, scales, scale_count);
    run<true>(device, p);
}

extern "C" void cuda_dequantize_bits(struct device *device, float *inputs, float *sum, const u8 *bits, i64 n, i64 h,
                                     i64 w, i64 d, const struct scale *scales, i64 scale_count, const float *amplitude)
{
    struct bits_problem p = {};
    p.inputs = inputs;
    p.sum = sum;
    p.coded = bits;
    p.amplitude = amplitude;
    p.n = n;
    p.h = h;
    p.w = w;
    p.d = d;
    set_scales(&p, scales, scale_count);
    run<false>(device, p);
}
