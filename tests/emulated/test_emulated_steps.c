/* Host work of a warm step on a GPU, counted on the emulated one. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/device.h"
#include "model/generate.h"
#include "tests/test.h"
#include "tests/toy_train.h"

enum { WARM = 2, STEPS = 4, MICRO_BATCHES = 2, LAYERS = 2 };

static struct device gpu;

static struct emu_counts since(struct emu_counts before)
{
    return (struct emu_counts){.launches = emu_counts.launches - before.launches,
                               .allocations = emu_counts.allocations - before.allocations,
                               .waits = emu_counts.waits - before.waits,
                               .pageable_copies = emu_counts.pageable_copies - before.pageable_copies};
}

static void print_counts(const char *what, struct emu_counts c)
{
    print_message("%s: %ld launches, %ld allocations, %ld waits, %ld pageable copies\n", what, c.launches,
                  c.allocations, c.waits, c.pageable_copies);
}

/* Losses, the norm and other results of a step are read at its end, in one block. */
TEST(training_step_waits_for_its_result_alone)
{
    struct arena arena;
    struct toy_run run;
    const struct model_config config = toy_config(LAYERS, TOY_ALL);
    arena_open(&arena, 64 << 20);
    toy_run_open(&run, &gpu, &config, MICRO_BATCHES);
    run.trainer.lr = (struct lr_schedule){.peak = 1e-3, .total = STEPS};
    for (i64 i = 0; i < MICRO_BATCHES; i++)
        toy_batch_init(&run.batches[i], &arena, 6, (struct rng_key){2, RNG_TEST}, 6 * (i32)i);
    for (i64 step = 0; step < STEPS; step++) {
        struct emu_counts before = emu_counts;
        toy_step(&run, step);
        struct emu_counts asked = since(before);
        print_counts("training step", asked);
        if (step < WARM)
            continue;
        assert_int_equal(asked.allocations, 0);
        assert_int_equal(asked.waits, 1);
        assert_int_equal(asked.pageable_copies, 0);
    }
    toy_run_close(&run);
    arena_close(&arena);
}

/* Every second step measures the router, or none does. Adds the number of measured counts that are not
 * those that balance the router, and the sum of all. Returns the loss of the last step. */
static double train_measured(bool measured, i64 *differences, i64 *counted)
{
    static struct toy_run run;
    struct arena arena;
    struct routing_monitor m;
    struct step_result result = {0};
    const struct model_config config = toy_config(LAYERS, TOY_ALL);
    i64 n = model_use_count(&config);
    double *before = memory_alloc(n * 8), *after = memory_alloc(n * 8);
    arena_open(&arena, 64 << 20);
    toy_run_open(&run, &gpu, &config, MICRO_BATCHES);
    routing_monitor_open(&m, &config, 0);
    run.trainer.lr = (struct lr_schedule){.peak = 1e-3, .total = 2 * STEPS};
    run.bias_speed = 1e-2;
    for (i64 i = 0; i < MICRO_BATCHES; i++)
        toy_batch_init(&run.batches[i], &arena, 6, (struct rng_key){2, RNG_TEST}, 6 * (i32)i);
    for (i64 step = 0; step < 2 * STEPS; step++) {
        bool now = measured && step % 2;
        run.trainer.routing = now ? &m : NULL;
        model_use_get(before, &run.model);
        result = toy_step(&run, step);
        model_use_get(after, &run.model);
        for (i64 i = 0; i < m.counts.layers * config.experts && now; i++) {
            i64 layer = i / config.experts, e = i % config.experts, at = m.counts.layer[layer] * config.experts + e;
            i64 sum = 0;
            for (int s = 0; s < STREAMS; s++)
                sum += routing_use(&m.counts, layer, s)[e];
            *differences += sum != (i64)(after[at] - before[at]);
            *counted += sum;
        }
    }
    routing_monitor_close(&m);
    toy_run_close(&run);
    arena_close(&arena);
    memory_free(before);
    memory_free(after);
    return step_mean_loss(&result, TARGET_TEXT);
}

/* Layers that are replayed as graphs count as well, and train the same. */
TEST(measured_steps_count_what_balances_the_router)
{
    i64 differences = 0, counted = 0;
    double with = train_measured(true, &differences, &counted), without = train_measured(false, &differences, &counted);
    assert_int_equal(differences, 0);
    assert_true(counted > 0);
    assert_float_equal(with, without, 1e-3 * without); /* blocks of the emulated GPU end in any order */
}

/* ---- Training in 8 bits ---- */

enum { FP8_STEPS = 2 };
/* Returns the host calls of the last step. */
static struct emu_counts train_in_fp8(double losses[FP8_STEPS], struct device *device)
{
    struct arena arena;
    struct toy_run run;
    struct emu_counts asked;
    const struct model_config config = toy_config(LAYERS, TOY_ALL);
    arena_open(&arena, 64 << 20);
    toy_run_open(&run, device, &config, MICRO_BATCHES);
    weights_fp8(&run.model.weights);
    run.trainer.lr = (struct lr_schedule){.peak = 1e-3, .total = FP8_STEPS};
    for (i64 i = 0; i < MICRO_BATCHES; i++)
        toy_batch_init(&run.batches[i], &arena, 6, (struct rng_key){2, RNG_TEST}, 6 * (i32)i);
    for (i64 step = 0; step < FP8_STEPS; step++) {
        struct emu_counts before = emu_counts;
        struct step_result result = toy_step(&run, step);
        asked = since(before);
        losses[step] = step_mean_loss(&result, TARGET_TEXT);
    }
    i64 in_codes = 0;
    for (i64 i = 0; i < run.model.weights.count; i++)
        in_codes += run.model.weights.list[i].codes[0].codes != NULL;
    assert_true(device->has_fp8 ? in_codes > 0 : in_codes == 0);
    toy_run_close(&run);
    arena_close(&arena);
    return asked;
}

/* FP8 products equal products of rounded operands; the CPU's first loss is the same, and later ones
 * diverge like updates that depend on gradient signs. The host does not wait more often. */
TEST(losses_of_codes_are_those_of_rounded_operands)
{
    double codes[FP8_STEPS], rounded[FP8_STEPS], cpu[FP8_STEPS];
    struct device host;
    assert_true(gpu.has_fp8);
    struct emu_counts asked = train_in_fp8(codes, &gpu);
    gpu.has_fp8 = false;
    train_in_fp8(rounded, &gpu);
    gpu.has_fp8 = true;
    device_open_cpu(&host);
    train_in_fp8(cpu, &host);
    device_close(&host);
    for (int i = 0; i < FP8_STEPS; i++) {
        print_message("step %d: loss %.7f of codes, %.7f of rounded operands, %.7f on the CPU\n", i, codes[i],
                      rounded[i], cpu[i]);
        assert_float_equal(codes[i], rounded[i], 1e-3 * rounded[i]);
        assert_float_equal(codes[i], cpu[i], (i == 0 ? 1e-5 : 2e-2) * cpu[i]);
    }
    assert_int_equal(asked.allocations, 0);
    assert_int_equal(asked.waits, 1);
}

/* A decode step reads back only the sampled ids; guidance adds no reads. */
static void check_decode_steps(unsigned parts, const struct vocabulary *vocabulary, struct generate_request request)
{
    struct model model;
    struct submodel sub;
    struct decoder d;
    struct answer answer = {0};
    const struct model_config config = toy_config(4, parts);
    const i32 prompt[5] = {3, 7, 11, 2, 9};
    struct part part = {.kind = STREAM_TEXT, .ids = prompt, .count = 5};
    toy_open(&model, &gpu, &config, false);
    submodel_full(&sub, &model.config);
    struct decoder_options o = {.model = &model,
                                .sub = &sub,
                                .vocabulary = vocabulary,
                                .sampling = {.temperature = 1, .top_p = 0.9f, .key = {1, RNG_SAMPLING}}};
    request.parts = &part;
    request.part_count = request.copies = 1;
    request.stop[0] = request.stop[1] = request.stop[2] = request.stop[3] = -1;
    request.most = STEPS + 1;
    decoder_open(&d, &o, 1, request_cache_rows(&o, &request));
    assert_int_equal(decoder_add(&d, &answer, &request), 0);
    for (i64 step = 0; step <= STEPS; step++) {
        struct emu_counts before = emu_counts;
        assert_true(decoder_step(&d));
        struct emu_counts asked = since(before);
        print_counts("decode step", asked);
        if (step < WARM)
            continue;
        assert_int_equal(asked.launches, 1); /* one graph */
        assert_int_equal(asked.allocations, 0);
        assert_int_equal(asked.waits, 1);
        assert_int_equal(asked.pageable_copies, 0);
    }
    assert_false(decoder_step(&d));
    decoder_close(&d);
    answer_release(&answer);
    model_close(&model);
}

TEST(decode_step_waits_for_its_draws_alone)
{
    static const i32 sound[1] = {TOY_BOA};
    const struct generate_request text = {0}, plain = {.opening = sound, .opening_count = 1, .media_only = true},
                                  guided = {.opening = sound,
                                            .opening_count = 1,
                                            .media_only = true,
                                            .guided = true,
                                            .guidance = 2};
    check_decode_steps(TOY_TIED, &vocabulary_of_text, text);
    check_decode_steps(TOY_TIED | TOY_AUDIO, &toy_vocabulary, plain);
    check_decode_steps(TOY_TIED | TOY_AUDIO, &toy_vocabulary, guided);
}

/* Any set of slices takes one launch: here a third of them, different ones each time. */
TEST(an_update_is_one_launch)
{
    enum { UPDATES = 3000, EACH = 5, COUNT = UPDATES * EACH };
    const struct adamw adamw = {1, 0, 0, 1e-8f, 0, 1};
    static struct update list[UPDATES];
    static float host[4][COUNT];
    float *p = device_alloc(&gpu, 4 * COUNT * 4);
    double *sum = device_alloc(&gpu, 8), squares;
    for (i64 i = 0; i < COUNT; i++)
        host[3][i] = 1;
    device_put(&gpu, p, host, 4 * COUNT * 4);
    for (i64 step = 0; step < 2; step++) {
        struct updates updates = {0, list};
        for (i64 i = step; i < UPDATES; i += 3)
            list[updates.count++] = (struct update){.p = p + i * EACH,
                                                    .m = p + COUNT + i * EACH,
                                                    .v = p + 2 * COUNT + i * EACH,
                                                    .g = p + 3 * COUNT + i * EACH,
                                                    .count = EACH,
                                                    .lr_factor = 1};
        struct emu_counts before = emu_counts;
        gpu.ops->zero(&gpu, sum, 8);
        gpu.ops->sum_squares(&gpu, sum, &updates);
        gpu.ops->adamw(&gpu, &updates, sum, 0, &adamw);
        struct emu_counts asked = since(before);
        assert_int_equal(asked.launches, 3); /* squares, their sum, the update; zeroing is not a kernel */
        assert_int_equal(asked.waits + asked.allocations + asked.pageable_copies, 0);
        device_get(&gpu, &squares, sum, 8);
        assert_true(squares == (double)updates.count * EACH);
    }
    device_get(&gpu, host, p, 4 * COUNT * 4);
    for (i64 i = 0; i < COUNT; i++) {
        float moved = i / EACH % 3 == 2 ? 0 : -1;
        assert_float_equal(host[0][i], moved, 1e-6);
    }
    device_free(&gpu, p, 4 * COUNT * 4);
    device_free(&gpu, sum, 8);
}

/* ---- The pinned ring ---- */

enum { RING_BUFFERS = 16, RING_BYTES = 64 << 20, MORE_BYTES = 20 << 20 };

static int host_waits(void *context)
{
    return emu_counts.waits > *(long *)context;
}

/* Behind endless work, puts take one ring buffer after another, and wait when there are no more. */
TEST(puts_wait_where_the_ring_is_full)
{
    i64 bytes = RING_BYTES + MORE_BYTES, piece = 3 << 20;
    long *waits = memory_alloc(sizeof *waits);
    char *host = memory_alloc(bytes), *back = memory_alloc(bytes), *there = device_alloc(&gpu, bytes);
    for (i64 i = 0; i < bytes; i++)
        back[i] = (char)(i * 7 + i / 4096);
    memcpy(host, back, (size_t)bytes);
    struct emu_counts before = emu_counts;
    *waits = before.waits;
    emu_enqueue_polled(gpu.queue, host_waits, waits);
    for (i64 at = 0; at < bytes; at += piece) {
        i64 part = min_i64(piece, bytes - at);
        device_put(&gpu, there + at, host + at, part);
        memset(host + at, 0x55, (size_t)part); /* already copied */
    }
    struct emu_counts asked = since(before);
    assert_in_range(asked.allocations, RING_BUFFERS - 2, RING_BUFFERS);
    assert_in_range(asked.waits, 1, MORE_BYTES / (4 << 20) + 1);
    assert_int_equal(gpu.memory->held(&gpu) - CUDA_HELD_BYTES, RING_BYTES + (4 << 20)); /* plus the buffer for reads */
    device_get(&gpu, host, there, bytes);
    assert_memory_equal(host, back, (size_t)bytes);
    device_free(&gpu, there, bytes);
    memory_free(host);
    memory_free(back);
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
