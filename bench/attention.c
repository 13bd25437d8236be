/* Attention over packed samples and over bidirectional blocks, relative to one causal sample:
 * seconds per unmasked pair of query and key, forward and backward. On a GPU also long samples,
 * wide heads, and the causal sample against the GPU's peak. */
#include "bench/bench.h"

enum { ROUNDS = 5, RUNS_LEAST = 3 };
enum operand { Q, K, V, OUT, DOUT, DQ, DK, DV, OPERANDS };
enum bound { QUERY, BEGIN, END, NONE, BOUNDS };

struct attention_shape {
    i64 length, heads, kv_heads, width;
};
struct attention_problem { /* device memory, except shape and pairs */
    struct attention_shape shape;
    struct matrix m[OPERANDS];
    float *lse;
    i32 *bounds[BOUNDS];
    double pairs; /* unmasked */
};
struct attention_layout {
    const char *what;
    i64 sample; /* 0: all */
    /* True: bidirectional within the sample, as within a scale of an image; false: causal. */
    bool sees_all;
    double goal; /* seconds per pair, relative to one causal sample */
};

static i64 columns_of(const struct attention_shape *s, int operand)
{
    return (operand == K || operand == V || operand == DK || operand == DV ? s->kv_heads : s->heads) * s->width;
}

static void draw(struct matrix m, int operand, struct device *device)
{
    i64 count = m.rows * m.columns, bytes = count * dtype_bytes(m.dtype);
    char *values = memory_alloc(bytes);
    for (i64 j = 0; j < count; j++) {
        float x = (float)rng_normal((struct rng_key){1, RNG_TEST}, (u32)operand, (u32)j, 0, 0);
        if (m.dtype == DTYPE_BF16)
            ((bf16 *)values)[j] = bf16_from_f32(x);
        else
            ((float *)values)[j] = x;
    }
    device_put(device, m.data, values, bytes);
    memory_free(values);
}

static void open_problem(struct attention_problem *p, const struct attention_shape *shape, struct device *device,
                         enum dtype dtype)
{
    p->shape = *shape;
    for (int i = 0; i < OPERANDS; i++) {
        i64 columns = columns_of(shape, i), bytes = shape->length * columns * dtype_bytes(dtype);
        p->m[i] = matrix_of(device_alloc(device, bytes), dtype, shape->length, columns);
        draw(p->m[i], i, device);
    }
    p->lse = device_alloc(device, shape->length * shape->heads * 4);
    for (int i = 0; i < BOUNDS; i++)
        p->bounds[i] = device_alloc(device, shape->length * 4);
}

static void close_problem(struct attention_problem *p, struct device *device)
{
    i64 length = p->shape.length;
    for (int i = 0; i < OPERANDS; i++)
        device_free(device, p->m[i].data, length * columns_of(&p->shape, i) * dtype_bytes(p->m[i].dtype));
    device_free(device, p->lse, length * p->shape.heads * 4);
    for (int i = 0; i < BOUNDS; i++)
        device_free(device, p->bounds[i], length * 4);
}

static void lay_out(struct attention_problem *p, const struct attention_layout *layout, struct device *device)
{
    i64 length = p->shape.length, sample = layout->sample ? layout->sample : length;
    i32 *bounds[BOUNDS];
    for (int i = 0; i < BOUNDS; i++)
        bounds[i] = memory_alloc(length * 4);
    p->pairs = 0;
    for (i64 j = 0; j < length; j++) {
        i64 first = j / sample * sample;
        bounds[QUERY][j] = (i32)j;
        bounds[BEGIN][j] = (i32)(layout->sees_all ? first : j);
        bounds[END][j] = (i32)min_i64(first + sample, length);
        p->pairs += bounds[END][j] - bounds[BEGIN][j];
    }
    for (int i = 0; i < BOUNDS; i++) {
        device_put(device, p->bounds[i], bounds[i], length * 4);
        memory_free(bounds[i]);
    }
}

static void run(struct attention_problem *p, struct device *device, bool backward)
{
    const struct attention_shape *s = &p->shape;
    struct intervals v = {s->length,      s->length,       p->bounds[QUERY], p->bounds[BEGIN],
                          p->bounds[END], p->bounds[NONE], p->bounds[NONE]};
    struct matrix *m = p->m;
    if (backward)
        device->ops->attention_backward(device, m[DQ], m[DK], m[DV], m[DOUT], m[OUT], p->lse, m[Q], m[K], m[V],
                                        s->heads, s->kv_heads, &v);
    else
        device->ops->attention(device, m[OUT], p->lse, m[Q], m[K], m[V], s->heads, s->kv_heads, &v);
}

static void wait_for(struct attention_problem *p, struct device *device)
{
    float last;
    device_get(device, &last, p->lse, sizeof last);
}

static double seconds_per_pair(struct attention_problem *p, const struct attention_layout *layout,
                               struct device *device, bool backward)
{
    i64 runs = 0;
    lay_out(p, layout, device);
    run(p, device, false);
    wait_for(p, device);
    double begin = clock_s();
    while (runs < RUNS_LEAST || clock_s() - begin < 0.3) {
        for (int i = 0; i < RUNS_LEAST; i++, runs++)
            run(p, device, backward);
        wait_for(p, device);
    }
    return (clock_s() - begin) / ((double)runs * p->pairs);
}

/* Flops per pair, head and column: 2 gemms in the forward, 5 in the backward. */
static void print_causal(const struct attention_problem *p, const struct device *device, double seconds, bool backward,
                         double peak, bool json)
{
    double flops = (backward ? 10.0 : 4.0) * (double)(p->shape.heads * p->shape.width);
    char *what = string_format("one causal sample of %lld%s", (long long)p->shape.length, backward ? ", backward" : "");
    bench_print(&(struct bench_row){"attention", what, "TFLOP/s", bench_peak(device), flops / seconds * 1e-12,
                                    peak * 1e-3, backward ? 430.0 / 989 : 560.0 / 989, false, NULL},
                json);
    memory_free(what);
}

static void measure(struct attention_problem *p, struct device *device, bool backward, double peak, bool json)
{
    static const struct attention_layout dense = {"one causal sample", 0, false, 1},
                                         others[] = {{"packed samples of 1024", 1024, false, 1.15},
                                                     {"blocks of 256 that see all of themselves", 256, true, 1.15},
                                                     {"samples of 40", 40, false, 1.5}};
    double causal = 0;
    for (i64 i = 0; i < COUNT_OF(others); i++) {
        double ratios[ROUNDS], times[ROUNDS], denses[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            times[round] = seconds_per_pair(p, &others[i], device, backward);
            denses[round] = seconds_per_pair(p, &dense, device, backward);
            ratios[round] = times[round] / denses[round];
        }
        double time = bench_median(times, ROUNDS) * 1e12, ratio = bench_median(ratios, ROUNDS);
        char *what = string_format("%s%s", others[i].what, backward ? ", backward" : "");
        bench_print(&(struct bench_row){"attention", what, "ps/pair", dense.what, time, time / ratio, others[i].goal,
                                        true, NULL},
                    json);
        memory_free(what);
        causal = bench_median(denses, ROUNDS);
    }
    if (peak > 0)
        print_causal(p, device, causal, backward, peak, json);
}

int bench_attention(struct device *device, bool json)
{
    static const struct attention_shape usual[] = {{4096, 8, 2, 64}},
                                        of_gpu[] = {{8192, 16, 4, 128}, {32768, 16, 4, 128}};
    bool gpu = device->backend == BACKEND_CUDA;
    enum dtype dtype = device->has_bf16 ? DTYPE_BF16 : DTYPE_F32;
    double peak = gpu ? kernels_matrix_peak(device, dtype, 0.1) : 0;
    for (i64 i = 0; i < (gpu ? COUNT_OF(of_gpu) : COUNT_OF(usual)); i++) {
        struct attention_problem p;
        open_problem(&p, gpu ? &of_gpu[i] : &usual[i], device, dtype);
        for (int backward = 0; backward < 2; backward++)
            measure(&p, device, backward, peak, json);
        close_problem(&p, device);
    }
    return 0;
}
