/* The meta backend runs the training step of the quickstart's shape like the CPU: the same tensors,
 * at most the same scratch, and a total within 5 % of the growth of the real process. */
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/quickstart.h"
#include "tests/sanitized.h"
#include "tests/test.h"
#include "train/step_memory.h"
#include "train/synthetic_batches.h"

enum { ROWS = 8, MICRO_ROWS = 4, LENGTH = 512, STEPS = 2, STEPS_NIGHTLY = 4 };
static const struct elastic_settings draws = {.depth_full = SCHEDULE_CONSTANT(0.5),
                                              .depth_drop = SCHEDULE_CONSTANT(0.25),
                                              .experts_full = SCHEDULE_CONSTANT(0.5),
                                              .expert_groups = 1,
                                              .topk_full = SCHEDULE_CONSTANT(0.8),
                                              .topk_min = 1,
                                              .slice_rows = MICRO_ROWS};

struct meta_variant {
    const char *name;
    bool recompute, elastic, text_alone;
};
struct meta_outcome {
    struct step_memory memory;
    i64 held_bytes;
    double model_flops, counted_flops;
    i64 peak_bytes; /* growth of the process */
    double targets[TARGETS];
};

static void run_steps(struct meta_outcome *out, struct device *device, enum dtype dtype, const struct meta_variant *v)
{
    struct model *model = memory_alloc(sizeof *model);
    struct trainer *trainer = memory_alloc(sizeof *trainer);
    struct synthetic_batches batches;
    struct optimizer_settings optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1};
    struct model_config config = quickstart;
    if (v->text_alone) {
        config.mtp = false;
        config.bits = config.cell_features = config.levels = 0;
    }
    memset(out, 0, sizeof *out);
    require(model_open(model, device, &config, dtype, true, NULL) == 0, "%s", error_text());
    weights_init(&model->weights, 1);
    trainer_open(trainer, model, (i64)4 << 30);
    synthetic_batches_init(&batches, &model->config, ROWS, MICRO_ROWS, LENGTH, 7);
    trainer->source = synthetic_batches_source(&batches);
    trainer->optimizer = &optimizer;
    trainer->lr = (struct lr_schedule){.peak = 1e-4};
    trainer->balance.weight[TARGET_MTP] = 0.3;
    trainer->elastic = v->elastic ? &draws : NULL;
    trainer->recompute = v->recompute;
    for (i64 step = 0; step < (is_nightly() ? STEPS_NIGHTLY : STEPS); step++) {
        struct step_result result;
        require(train_step(&result, trainer, step) == 0, "%s", error_text());
        out->model_flops += result.flops;
        for (int kind = 0; kind < TARGETS; kind++)
            out->targets[kind] += (double)trainer->in_flight[0].batch.targets[kind].n;
    }
    out->counted_flops = device->cost.flops;
    out->held_bytes = device_held_bytes(device);
    step_memory_of(&out->memory, trainer);
    synthetic_batches_release(&batches);
    trainer_close(trainer);
    model_close(model);
    memory_free(trainer);
    memory_free(model);
}

/* Runs the steps in a child process, so that its peak resident size is theirs. */
static void run_on_cpu(struct meta_outcome *out, const struct meta_variant *v)
{
    int ends[2];
    workers_stop();
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct device cpu;
        device_open_cpu(&cpu);
        i64 before = memory_peak_bytes();
        run_steps(out, &cpu, cpu.has_bf16 ? DTYPE_BF16 : DTYPE_F32, v);
        out->peak_bytes = memory_peak_bytes() - before;
        _exit(write(ends[1], out, sizeof *out) == sizeof *out ? 0 : 1);
    }
    int status = 1;
    close(ends[1]);
    assert_int_equal(read(ends[0], out, sizeof *out), sizeof *out);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(ends[0]);
}

static void run_on_meta(struct meta_outcome *out, const struct meta_variant *v)
{
    struct device meta, cpu;
    device_open_cpu(&cpu); /* bf16 if the CPU would use it */
    device_open_meta(&meta);
    run_steps(out, &meta, cpu.has_bf16 ? DTYPE_BF16 : DTYPE_F32, v);
    device_close(&meta);
}

static void expect_near(const char *variant, const char *what, double predicted, double measured, double share)
{
    print_message("%-18s %-22s predicted %14.0f  measured %14.0f  %+.2f %%\n", variant, what, predicted, measured,
                  100 * (predicted / measured - 1));
    if (!(fabs(predicted - measured) <= share * measured))
        fail_msg("%s: %s is off by more than %g %%", variant, what, 100 * share);
}

/* Model flops leave out the vision encoder, the multi-token prediction block and the media heads.
 * They count the backward of attention as twice the forward, although it has 5 products instead of
 * 2. */
static void compare_flops(const struct meta_variant *v, const struct meta_outcome *meta)
{
    double ratio = meta->counted_flops / meta->model_flops;
    print_message("%-18s flops counted / model flops: %.3f\n", v->name, ratio);
    if (v->text_alone && !v->recompute)
        assert_true(fabs(ratio - 1) < 0.05);
    else
        assert_true(ratio > 1 && ratio < (v->recompute ? 1.1 * 4 / 3 : 1.1));
}

static void compare(const struct meta_variant *v)
{
    struct meta_outcome meta, cpu;
    run_on_meta(&meta, v);
    run_on_cpu(&cpu, v);
    for (int kind = 0; kind < TARGETS; kind++)
        assert_true(meta.targets[kind] == cpu.targets[kind] && (v->text_alone || meta.targets[kind] > 0));
    assert_int_equal(meta.memory.copies, cpu.memory.copies);
    assert_int_equal(meta.memory.masters, cpu.memory.masters);
    assert_int_equal(meta.memory.moments, cpu.memory.moments);
    assert_int_equal(meta.memory.gradients, cpu.memory.gradients);
    assert_int_equal(meta.memory.activations, cpu.memory.activations);
    assert_int_equal(meta.memory.host, cpu.memory.host);
    /* A worker that never ran a largest tile holds less scratch. */
    assert_in_range(cpu.held_bytes, meta.held_bytes / 2, meta.held_bytes * 21 / 20);
    expect_near(v->name, "held in all", (double)step_memory_total(&meta.memory), (double)step_memory_total(&cpu.memory),
                0.05);
    if (!is_sanitized() && is_nightly()) /* sanitizers use extra memory, and a few steps do not touch every page */
        expect_near(v->name, "resident", (double)step_memory_total(&meta.memory), (double)cpu.peak_bytes, 0.05);
    assert_true(cpu.model_flops == meta.model_flops);
    compare_flops(v, &meta);
}

/* One variant covers all code; under a sanitizer each takes minutes. */
static void not_every_day(void)
{
    nightly_only();
    if (is_sanitized())
        skip();
}

TEST(the_step_of_the_quickstart)
{
    not_every_day();
    compare(&(struct meta_variant){"plain", false, false, false});
}

TEST(recomputed)
{
    not_every_day();
    compare(&(struct meta_variant){"recomputed", true, false, false});
}

TEST(with_elastic_draws)
{
    not_every_day();
    compare(&(struct meta_variant){"elastic", false, true, false});
}

TEST(of_text_alone)
{
    not_every_day();
    compare(&(struct meta_variant){"text", false, false, true});
}

TEST(with_elastic_draws_recomputed)
{
    compare(&(struct meta_variant){"elastic recomputed", true, true, false});
}

int main(void)
{
    return tests_run(NULL, NULL);
}
