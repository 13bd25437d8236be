/* The CPU training step with optimizer on one fixed shape (V 8192, C 512, L 8 of which the first is
 * dense, F 1536, H 8, G 2, D 64, E 32 of F 256, top-4, 1 shared, untied; batch 4 x 1024; AdamW),
 * alternating with the peak from registers. */
#include "bench/step.h"

#include <math.h>

enum { ROUNDS = 5 };

static i64 plan(void *context, i64 step, double totals[TARGETS])
{
    (void)context;
    (void)step;
    totals[TARGET_TEXT] = STEP_ROWS * (STEP_LENGTH - 1);
    return 1;
}

static int fill(void *context, i64 step, i64 micro, struct batch *batch, struct arena *arena)
{
    struct step_bench *b = context;
    (void)micro;
    for (u32 i = 0; i < STEP_ROWS * STEP_LENGTH; i++)
        b->ids[i] = (i32)rng_below((struct rng_key){1, RNG_TEST}, b->model.config.vocabulary, (u32)step, i, 0, 0);
    batch_of_ids(batch, arena, b->ids, STEP_ROWS, STEP_LENGTH, false);
    return 0;
}

struct model_config step_bench_config(i64 vocabulary, i64 positions)
{
    return (struct model_config){.vocabulary = vocabulary,
                                 .rope_theta = 1e6,
                                 .norm_eps = 1e-5,
                                 .norm_min = 1e-12,
                                 .init_std = 0.02,
                                 .max_positions = positions,
                                 .pad_id = 0,
                                 .bos_id = 1,
                                 .eos_id = 2,
                                 .t_pairs = 10};
}

struct model_config step_bench_shape(i64 experts)
{
    struct model_config c = step_bench_config(8192, STEP_LENGTH);
    c.width = 512;
    c.layers = 8;
    c.heads = 8;
    c.kv_heads = 2;
    c.head_width = 64;
    c.dense_width = 1536;
    c.experts = experts;
    c.topk = 4;
    c.expert_width = 256;
    c.shared_experts = 1;
    c.first_moe_layer = 1;
    return c;
}

int step_bench_open_shape(struct step_bench *b, struct device *device, enum dtype dtype,
                          const struct model_config *config, i64 arena_bytes)
{
    if (model_open(&b->model, device, config, dtype, true, NULL))
        return -1;
    if (device->backend != BACKEND_META) /* meta computes nothing */
        weights_init(&b->model.weights, 1);
    trainer_open(&b->trainer, &b->model, arena_bytes);
    b->optimizer = (struct optimizer_settings){
        .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1};
    b->trainer.optimizer = &b->optimizer;
    b->trainer.lr = (struct lr_schedule){.peak = 1e-4};
    b->trainer.source = (struct batch_source){b, plan, fill, NULL};
    return 0;
}

int step_bench_open(struct step_bench *b, struct device *device, enum dtype dtype, i64 experts)
{
    struct model_config config = step_bench_shape(experts);
    return step_bench_open_shape(b, device, dtype, &config, STEP_ARENA_BYTES);
}

void step_bench_close(struct step_bench *b)
{
    trainer_close(&b->trainer);
    model_close(&b->model);
}

/* GFLOP/s of model flops over steps of at least 1 s. */
static int steps_rate(double *rate, struct step_bench *b, i64 *step)
{
    double flops = 0, seconds = 0;
    struct step_result result;
    while (seconds < 1) {
        if (train_step(&result, &b->trainer, (*step)++))
            return -1;
        flops += result.flops;
        seconds += result.seconds;
    }
    *rate = flops / seconds * 1e-9;
    return 0;
}

int bench_step(struct device *device, bool json)
{
    struct step_bench *b = memory_alloc(sizeof *b);
    enum dtype dtype = device->has_bf16 ? DTYPE_BF16 : DTYPE_F32;
    double ratios[ROUNDS], rates[ROUNDS], warm;
    i64 step = 0;
    if (step_bench_open(b, device, dtype, 32) || steps_rate(&warm, b, &step))
        return -1;
    for (int round = 0; round < ROUNDS; round++) {
        double before = kernels_matrix_peak(device, dtype, 0.05);
        if (steps_rate(&rates[round], b, &step))
            return -1;
        ratios[round] = rates[round] / fmax(before, kernels_matrix_peak(device, dtype, 0.05));
    }
    double rate = bench_median(rates, ROUNDS), ratio = bench_median(ratios, ROUNDS);
    bench_print(&(struct bench_row){"step", "training step with optimizer, model flops", "GFLOP/s", bench_peak(device),
                                    rate, rate / ratio, 0.30, false, NULL},
                json);
    /* One expert's up projection. */
    const struct model_config *c = &b->model.config;
    bench_print(
        &(struct bench_row){"step", "the same, beside one product 1024 x 256 x 512", "GFLOP/s", "matrix product", rate,
                            kernels_gemm_rate(device, 1024, c->expert_width, c->width, dtype, 0.2), 0, false, NULL},
        json);
    step_bench_close(b);
    memory_free(b);
    return 0;
}
