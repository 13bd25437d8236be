/* Training with CUDA graphs on the emulated GPU: weights and losses are bitwise equal to those
 * without graphs, for any batches and sub-models; warm steps need few launches; and no recording is
 * stale. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device.h"
#include "kernels/device/deferred.h"
#include "tests/test.h"
#include "tests/toy_train.h"

enum { STEPS_MOST = 48 };
static struct device gpu;

/* ---- Runs ---- */

struct segments_plan { /* configuration of a run */
    unsigned parts;
    i64 layers, steps, micro_batches, batches;
    i64 length; /* length of all batches; 0: each has its own */
    bool recompute, fp8, elastic;
    i64 broken;          /* a step with non-finite gradients; 0: none */
    const char *refused; /* a call that the driver refuses once, in step 1 */
};
struct segments_result {
    double loss[STEPS_MOST], norm[STEPS_MOST];
    float *weights;
    /* number of weights; skipped updates; the tape's peak */
    i64 count, skipped, bytes;
    long launches[STEPS_MOST], graphs[STEPS_MOST], changed, allocations; /* allocations: in the second half only */
};

static void keep_weights(struct segments_result *out, struct model *model)
{
    out->weights = memory_alloc(weights_parameters(&model->weights) * 4);
    out->count = 0;
    for (i64 i = 0; i < model->weights.count; i++) {
        const struct weight *w = &model->weights.list[i];
        if (!w->spec.trained)
            continue;
        weight_get(&model->weights, w, 0, w->matrices * w->rows, out->weights + out->count);
        out->count += w->matrices * w->rows * w->columns;
    }
}

static void run_step(struct segments_result *out, struct toy_run *run, const struct segments_plan *plan, i64 step)
{
    struct emu_counts before = emu_counts;
    float *weight = &run->batches[step * run->each % run->count].batch.targets[TARGET_TEXT].weight[0], was = *weight;
    if (plan->broken && step == plan->broken)
        *weight = INFINITY;
    if (plan->refused && step == 1)
        emu_fail_next(plan->refused);
    struct step_result r = toy_step(run, step);
    *weight = was;
    out->loss[step] = step_mean_loss(&r, TARGET_TEXT);
    out->norm[step] = r.optimizer.grad_norm;
    out->skipped += r.optimizer.skipped;
    out->launches[step] = emu_counts.launches - before.launches;
    out->graphs[step] = emu_counts.graphs - before.graphs;
    out->allocations += step >= plan->steps / 2 ? emu_counts.allocations - before.allocations : 0;
}

/* Draws a batch of all modalities, or of text alone. */
static void draw_batch(struct toy_batch *out, struct arena *arena, const struct segments_plan *plan, i64 i)
{
    enum { SAMPLES = 6 };
    static struct toy_sample samples[SAMPLES];
    const struct rng_key key = {2, RNG_TEST};
    for (i64 s = 0; s < SAMPLES; s++) {
        u32 number = (u32)(SAMPLES * i + s);
        samples[s].count = 0;
        if (plan->parts & TOY_MEDIA)
            toy_draw_sample(&samples[s], key, number);
        while (samples[s].count < 2)
            toy_draw_part(&samples[s], key, number, STREAM_TEXT);
    }
    toy_lay(out, arena, samples, SAMPLES, key, SAMPLES * (i32)i, plan->length);
}

static void train(struct segments_result *out, const struct segments_plan *plan, struct device *device,
                  const char *graphs)
{
    static struct toy_run run;
    struct arena arena;
    const struct model_config config = toy_config(plan->layers, plan->parts);
    const struct elastic_settings elastic = {.depth_full = SCHEDULE_CONSTANT(0.75),
                                             .depth_drop = SCHEDULE_CONSTANT(0.25),
                                             .experts_full = SCHEDULE_CONSTANT(0.8),
                                             .expert_groups = 1,
                                             .topk_full = SCHEDULE_CONSTANT(0.8),
                                             .topk_min = 1,
                                             .slice_rows = 1};
    memset(out, 0, sizeof *out);
    setenv("WEFT_GRAPHS", graphs, 1);
    arena_open(&arena, 64 << 20);
    toy_run_open(&run, device, &config, plan->micro_batches);
    run.count = plan->batches;
    run.trainer.lr = (struct lr_schedule){.peak = 1e-3, .warmup = 3, .total = plan->steps}; /* changes with each step */
    run.trainer.recompute = plan->recompute;
    run.trainer.elastic = plan->elastic ? &elastic : NULL;
    run.bias_speed = 1e-3;
    if (plan->fp8)
        weights_fp8(&run.model.weights);
    for (i64 i = 0; i < plan->batches; i++)
        draw_batch(&run.batches[i], &arena, plan, i);
    long changed = emu_counts.changed_nodes;
    for (i64 step = 0; step < plan->steps; step++)
        run_step(out, &run, plan, step);
    out->changed = emu_counts.changed_nodes - changed;
    out->bytes = tape_peak_bytes(&run.trainer.in_flight[0].tape);
    keep_weights(out, &run.model);
    toy_run_close(&run);
    arena_close(&arena);
    unsetenv("WEFT_GRAPHS");
}

static void check_equal(const struct segments_result *a, const struct segments_result *b,
                        const struct segments_plan *plan)
{
    assert_memory_equal(a->loss, b->loss, (size_t)plan->steps * 8);
    assert_memory_equal(a->norm, b->norm, (size_t)plan->steps * 8);
    assert_int_equal(a->skipped, b->skipped);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->weights, b->weights, (size_t)a->count * 4);
}

static long sum(const long *values, i64 first, i64 end)
{
    long total = 0;
    for (i64 i = first; i < end; i++)
        total += values[i];
    return total;
}

/* Compares graphs off, on, and (nightly) recorded again each time. With graphs, the last `warm`
 * steps need at most `share` of the launches. */
static void check_run(const char *what, const struct segments_plan *plan, i64 warm, double share)
{
    static struct segments_result plain, graphs, update, estimated;
    struct device meta;
    device_open_meta(&meta);
    device_meta_gpu(&meta, gpu.has_fp8);
    train(&plain, plan, &gpu, "0");
    train(&graphs, plan, &gpu, "1");
    if (is_nightly())
        train(&update, plan, &gpu, "update");
    train(&estimated, plan, &meta, "1");
    device_close(&meta);
    i64 first = plan->steps - warm;
    long without = sum(plain.launches, first, plan->steps), with = sum(graphs.launches, first, plan->steps);
    print_message("%s: %ld launches in %ld steps, %ld with graphs, %ld of them graphs\n", what, without, (long)warm,
                  with, sum(graphs.graphs, first, plan->steps));
    assert_true(plain.loss[0] > plain.loss[plan->steps - 1]); /* weights change */
    check_equal(&plain, &graphs, plan);
    print_message("%s: %lld bytes of tape, %lld with graphs, %lld estimated\n", what, (long long)plain.bytes,
                  (long long)graphs.bytes, (long long)estimated.bytes);
    assert_true((double)graphs.bytes <= 1.1 * (double)plain.bytes);
    assert_int_equal(estimated.bytes, graphs.bytes);
    assert_int_equal(sum(plain.graphs, 0, plan->steps), 0);
    assert_true((double)with <= share * (double)without);
    assert_int_equal(graphs.allocations, 0);
    assert_int_equal(plain.skipped, plan->broken ? 1 : 0);
    if (is_nightly()) {
        check_equal(&plain, &update, plan);
        assert_int_equal(update.changed, 0);
        memory_free(update.weights);
    }
    memory_free(plain.weights);
    memory_free(graphs.weights);
    memory_free(estimated.weights);
}

/* Batches of all modalities whose list lengths vary, around layers of one shape. */
TEST(batches_of_one_length_share_recordings)
{
    struct segments_plan plan = {
        .parts = TOY_ALL, .layers = 4, .steps = 7, .micro_batches = 1, .batches = 3, .length = 200};
    if (!is_nightly()) {
        plan.layers = plan.batches = 2;
        plan.steps = 4;
    }
    check_run("other lists", &plan, 1, is_nightly() ? 0.47 : 0.62);
}

TEST(batches_of_other_lengths_have_their_own)
{
    nightly_only();
    const struct segments_plan plan = {
        .parts = TOY_DENSE | TOY_SHARED | TOY_TIED, .layers = 2, .steps = 4, .micro_batches = 2, .batches = 4};
    check_run("other lengths", &plan, 1, 0.26);
}

TEST(micro_batches_add_up)
{
    const struct segments_plan plan = {.parts = TOY_MTP | TOY_TIED,
                                       .layers = 2,
                                       .steps = 4,
                                       .micro_batches = 2,
                                       .batches = 3,
                                       .length = 150,
                                       .broken = 2};
    check_run("accumulated, one update skipped", &plan, 1, 0.27);
}

TEST(layers_are_recomputed)
{
    struct segments_plan plan = {
        .parts = TOY_MEDIA | TOY_MTP, .layers = 4, .steps = 3, .micro_batches = 1, .batches = 1, .recompute = true};
    plan.layers = is_nightly() ? 4 : 2;
    check_run("recomputed", &plan, 1, is_nightly() ? 0.45 : 0.56);
    if (!is_nightly())
        return;
    plan.parts = TOY_TIED;
    plan.fp8 = true;
    check_run("recomputed, in 8 bits", &plan, 1, 0.1);
}

/* Depths, experts and k are drawn for each micro-batch. */
TEST(sub_models_share_recordings)
{
    static struct segments_result plain, graphs, update;
    const struct segments_plan plan = {
        .parts = TOY_DENSE, .layers = 4, .steps = 24, .micro_batches = 1, .batches = 4, .length = 60, .elastic = true};
    nightly_only();
    train(&plain, &plan, &gpu, "0");
    train(&graphs, &plan, &gpu, "1");
    train(&update, &plan, &gpu, "update");
    check_equal(&plain, &graphs, &plan);
    check_equal(&plain, &update, &plan);
    assert_int_equal(update.changed, 0);
    for (i64 from = 0; from < plan.steps; from += 8)
        print_message("elastic, steps %ld to %ld: %ld launches, %ld with graphs, %ld of them graphs\n", (long)from + 1,
                      (long)from + 8, sum(plain.launches, from, from + 8), sum(graphs.launches, from, from + 8),
                      sum(graphs.graphs, from, from + 8));
    assert_true(2 * sum(graphs.launches, 16, 24) < sum(plain.launches, 16, 24));
    memory_free(plain.weights);
    memory_free(graphs.weights);
    memory_free(update.weights);
}

TEST(a_refused_recording_trains_op_by_op)
{
    static const char *const functions[] = {"cudaStreamBeginCapture", "cudaLaunchKernel", "cudaStreamEndCapture",
                                            "cudaGraphInstantiate", "cudaGraphLaunch"};
    static struct segments_result plain, graphs;
    struct segments_plan plan = {
        .parts = TOY_TIED, .layers = 2, .steps = 3, .micro_batches = 1, .batches = 1, .length = 60};
    train(&plain, &plan, &gpu, "0");
    for (i64 i = 0; i < COUNT_OF(functions); i += is_nightly() ? 1 : 3) {
        plan.refused = functions[i];
        train(&graphs, &plan, &gpu, "1");
        check_equal(&plain, &graphs, &plan);
        /* 2 layers, forward and backward, and the balance: 5 calls, of which 1 runs op by op */
        assert_int_equal(graphs.graphs[2], 4);
        memory_free(graphs.weights);
    }
    memory_free(plain.weights);
}

/* ---- Sensitivity of the checks above ---- */

/* Returns the number of graph launches in 5 steps of an op
 * whose argument is `change` times the step. */
static long fill_deferred(float *last, float change)
{
    struct recordings *recordings = device_recordings_open(&gpu);
    struct deferred *deferred = deferred_open(&gpu);
    float *there = device_alloc(&gpu, 4);
    long before = emu_counts.graphs;
    for (int step = 0; step < 5; step++) {
        struct device *device = deferred_begin(deferred);
        device->ops->fill(device, there, 1, change * (float)step);
        deferred_end(deferred, recordings);
    }
    device_get(&gpu, last, there, 4);
    deferred_close(deferred);
    device_recordings_close(&gpu, recordings);
    device_free(&gpu, there, 4);
    return emu_counts.graphs - before;
}

/* A changing argument costs launches but never correctness, unlike a recording with an explicit
 * key, which would be stale (tests/emulated/test_emulated_graphs.c). */
TEST(an_argument_that_changes_makes_another_key)
{
    float last;
    assert_int_equal(fill_deferred(&last, 0), 4); /* all but the first */
    assert_true(last == 0);
    assert_int_equal(fill_deferred(&last, 2), 0);
    assert_true(last == 8);
}

/* Struct arguments are compared by content, not by address. They have no padding. */
TEST(arguments_are_compared_by_what_they_say)
{
    struct recordings *recordings = device_recordings_open(&gpu);
    struct deferred *deferred = deferred_open(&gpu);
    float *there = device_alloc(&gpu, 64);
    for (int step = 0; step < 4; step++) {
        struct matrix out, in;
        memset(&out, step, sizeof out);
        memset(&in, -step, sizeof in);
        out.data = there;
        in.data = there + 4;
        out.dtype = in.dtype = DTYPE_F32;
        out.gap = in.gap = 0;
        out.rows = in.rows = 1;
        out.columns = in.columns = out.stride = in.stride = 4;
        out.packed = in.packed = NULL;
        struct device *device = deferred_begin(deferred);
        long before = emu_counts.graphs;
        device->ops->copy(device, out, in, 1, false);
        deferred_end(deferred, recordings);
        assert_int_equal(emu_counts.graphs - before, step > 0);
    }
    deferred_close(deferred);
    device_recordings_close(&gpu, recordings);
    device_free(&gpu, there, 64);
}

int main(void)
{
    setenv("WEFT_THREADS", "1", 0); /* products are so small that waking a thread costs more */
    if (device_open_cuda(&gpu, 0))
        panic("%s", error_text());
    int failed = tests_run(NULL, NULL);
    device_close(&gpu);
    return failed;
}
