/* Training steps of models that fill a GPU, an MoE of 2.6 B parameters (0.5 B active) and a dense
 * model of 1.5 B, on samples of 4,096 tokens, against the GPU's peak. Without a GPU it
 * prints the roofline on an H200, op by op, also of decoding (decode.c). */
#include "bench/large.h"
#include "bench/profile.h"

#include <math.h>

enum { ROWS = LARGE_ROWS, LENGTH = LARGE_LENGTH, ROUNDS = 5, STEPS = 4, VOCABULARY = 32768 };

static i64 plan(void *context, i64 step, double totals[TARGETS])
{
    (void)context, (void)step;
    totals[TARGET_TEXT] = ROWS * (LENGTH - 1);
    return 1;
}

static int fill(void *context, i64 step, i64 micro, struct batch *batch, struct arena *arena)
{
    i32 *ids = context;
    (void)micro;
    for (u32 i = 0; i < ROWS * LENGTH; i++)
        ids[i] = (i32)rng_below((struct rng_key){1, RNG_TEST}, VOCABULARY, (u32)step, i, 0, 0);
    batch_of_ids(batch, arena, ids, ROWS, LENGTH, false);
    return 0;
}

static struct model_config common(i64 width, i64 layers, i64 head_width)
{
    struct model_config c = step_bench_config(VOCABULARY, LENGTH);
    c.width = width;
    c.layers = layers;
    c.heads = width / head_width;
    c.kv_heads = 4;
    c.head_width = head_width;
    return c;
}

struct model_config large_mixture(void)
{
    struct model_config c = common(1024, 24, 64);
    c.dense_width = 4096;
    c.experts = 64;
    c.topk = 8;
    c.expert_width = 512;
    c.shared_experts = 1;
    c.first_moe_layer = 1;
    return c;
}

struct model_config large_dense(void)
{
    struct model_config c = common(2048, 30, 128);
    c.dense_width = 5632;
    c.first_moe_layer = c.layers;
    return c;
}

/* TFLOP/s of steps and of the peak, medians over rounds. */
static int share_of_peak(double *rate, double *peak, struct step_bench *b, enum dtype dtype)
{
    double rates[ROUNDS], peaks[ROUNDS];
    struct step_result result;
    for (i64 round = -1, step = 0; round < ROUNDS; round++) { /* round -1 warms up */
        double flops = 0, seconds = 0;
        for (i64 i = 0; i < STEPS; i++) {
            if (train_step(&result, &b->trainer, step++))
                return -1;
            flops += result.flops;
            seconds += result.seconds;
        }
        rates[round < 0 ? 0 : round] = flops / seconds * 1e-12;
        peaks[round < 0 ? 0 : round] = kernels_matrix_peak(b->model.device, dtype, 0.1) * 1e-3;
    }
    *rate = bench_median(rates, ROUNDS);
    *peak = bench_median(peaks, ROUNDS);
    return 0;
}

static const struct large {
    const char *what;
    struct model_config (*config)(void);
    double goal;
} models[] = {{"step, mixture of 2.6 B, 0.5 B active", large_mixture, 0.44},
              {"step, dense model of 1.5 B", large_dense, 0.55}};

struct large_bench {
    struct step_bench bench;
    i32 ids[ROWS * LENGTH];
};

static struct large_bench *open_large(const struct large *l, struct device *device, enum dtype dtype)
{
    struct large_bench *o = memory_alloc(sizeof *o);
    struct model_config config = l->config();
    if (step_bench_open_shape(&o->bench, device, dtype, &config, LARGE_ARENA_BYTES) == 0) {
        o->bench.trainer.source = (struct batch_source){o->ids, plan, fill, NULL};
        return o;
    }
    memory_free(o);
    return NULL;
}

static void close_large(struct large_bench *o)
{
    step_bench_close(&o->bench);
    memory_free(o);
}

int bench_large(struct device *device, bool json)
{
    enum dtype dtype = device->has_bf16 ? DTYPE_BF16 : DTYPE_F32;
    int status = 0;
    if (device->backend != BACKEND_CUDA)
        return error_set("weft bench large: its models fill a GPU; give --device cuda");
    for (i64 i = 0; status == 0 && i < COUNT_OF(models); i++) {
        double rate, peak;
        struct large_bench *o = open_large(&models[i], device, dtype);
        if (!o)
            return -1;
        status = share_of_peak(&rate, &peak, &o->bench, dtype);
        close_large(o);
        if (status == 0)
            bench_print(&(struct bench_row){"large", models[i].what, "TFLOP/s", bench_peak(device), rate, peak,
                                            models[i].goal, false, NULL},
                        json);
    }
    return status;
}

int bench_roofline(struct device *device, bool json)
{
    (void)device;
    int status = 0;
    for (i64 i = 0; status == 0 && i < COUNT_OF(models); i++) {
        struct device meta;
        device_open_meta(&meta);
        meta.isa = CPU_ISA_V3; /* no packed weights */
        struct large_bench *o = open_large(&models[i], &meta, DTYPE_BF16);
        status = o ? profile_steps(&o->bench, models[i].what, &limits_of_h200, false, json) : -1;
        if (o)
            close_large(o);
        device_close(&meta);
    }
    return status ? status : bench_decode_roofline(json);
}
