/* Loss coefficients: target weight over the step's total of its kind, times the kind's own weight,
 * rescaled (except the multi-token block) by the running mean loss of text over that of the kind;
 * the running means are updated once per step, after it. The expected values are computed here in
 * double from batches and losses alone. */
#include <math.h>

#include "tests/device.h"
#include "tests/toy_train.h"

enum { SAMPLES = 7 };
static const double own_weight[TARGETS] = {1, 0.3, 2, 0.5};

static struct device device;
static struct arena arena;
static struct toy_run run;

/* Coefficients that the objective returned in this step, and the losses it saw. */
static struct observed_step {
    i64 step;
    double expected[TARGETS]; /* coefficient of a target of weight 1, before division by the total */
    double pulled[TARGETS];   /* sums of coefficient * loss */
    double loss[TARGETS], weight[TARGETS];
    i64 coefficients;
} seen;

static i64 levels_of(int kind)
{
    return target_levels((enum target_kind)kind, &toy_widths);
}

/* Total target weight of the whole step, counted independently of the batch source. */
static double total_of(int kind, i64 step)
{
    double totals[TARGETS] = {0};
    for (i64 i = 0; i < run.each; i++)
        toy_totals(totals, &run.batches[(step * run.each + i) % run.count].batch);
    return totals[kind];
}

static void look_at_level(const struct forward *out, const struct target_list *list, int kind, i64 level, double total)
{
    float *coefficient = toy_floats(&device, out->coefficient[kind][level], list->n);
    float *loss = toy_floats(&device, out->loss[kind][level].value, list->n);
    for (i64 i = 0; i < list->n; i++) {
        double share = (double)list->weight[i] / (double)levels_of(kind);
        double expected = seen.expected[kind] * share / total;
        if (!(fabs(coefficient[i] - expected) <= 1e-6 * expected))
            fail_msg("%s, target %d: coefficient %.9g, expected %.9g", target_rows[kind].name, (int)i, coefficient[i],
                     expected);
        seen.pulled[kind] += (double)coefficient[i] * loss[i];
        seen.loss[kind] += share * loss[i];
        seen.weight[kind] += share;
        seen.coefficients++;
    }
    memory_free(coefficient);
    memory_free(loss);
}

static void objective(struct trainer *t, struct micro_batch *m, struct forward *out, const double totals[TARGETS])
{
    const struct batch *batch = &m->batch;
    (void)t;
    (void)totals;
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 level = 0; batch->targets[kind].n && level < levels_of(kind); level++)
            look_at_level(out, &batch->targets[kind], kind, level, total_of(kind, seen.step));
}

static void open_run(i64 each, bool posterior)
{
    struct model_config c = toy_config(4, TOY_ALL);
    arena_reset(&arena, 0);
    toy_run_open(&run, &device, &c, each);
    for (i64 i = 0; i < TOY_BATCHES; i++)
        toy_batch_init(&run.batches[i], &arena, SAMPLES, (struct rng_key){(u64)i, RNG_TEST}, 0);
    memcpy(run.trainer.balance.weight, own_weight, sizeof own_weight);
    run.trainer.balance.posterior = posterior;
    run.trainer.balance.decay = 0.75;
    run.trainer.objective = objective;
}

static struct step_result step_with(const double expected[TARGETS], i64 step)
{
    memset(&seen, 0, sizeof seen);
    memcpy(seen.expected, expected, sizeof seen.expected);
    seen.step = step;
    struct step_result result = toy_step(&run, step);
    assert_true(seen.coefficients > 20);
    return result;
}

static double mean(int kind)
{
    return seen.loss[kind] / seen.weight[kind];
}

static void expect_near(const char *what, int kind, double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * fabs(want)))
        fail_msg("%s of %s: %.9g, expected %.9g", what, target_rows[kind].name, got, want);
}

/* Running means of 4, 3, 0.5 and 8: bits count 8 times, sound half; the multi-token block keeps its
 * share of text. */
TEST(small_losses_are_raised_and_large_ones_lowered)
{
    const double means[TARGETS] = {4, 3, 0.5, 8}, expected[TARGETS] = {1, 0.3, 16, 0.25};
    open_run(2, true);
    memcpy(run.trainer.running, means, sizeof means);
    step_with(expected, 0);
    toy_run_close(&run);
}

TEST(without_it_means_do_not_matter)
{
    const double means[TARGETS] = {4, 3, 0.5, 8};
    open_run(2, false);
    memcpy(run.trainer.running, means, sizeof means);
    step_with(own_weight, 0);
    toy_run_close(&run);
}

/* Means follow the losses step by step; the first losses initialize them. */
TEST(means_move_once_a_step_after_it)
{
    double running[TARGETS] = {0};
    open_run(2, true);
    run.count = TOY_BATCHES;
    for (i64 step = 0; step < 4; step++) {
        double expected[TARGETS];
        for (int kind = 0; kind < TARGETS; kind++) {
            double ratio = step > 0 && kind != TARGET_MTP ? running[TARGET_TEXT] / running[kind] : 1;
            expected[kind] = own_weight[kind] * ratio;
        }
        struct step_result result = step_with(expected, step);
        for (int kind = 0; kind < TARGETS; kind++) {
            expect_near("weights", kind, seen.weight[kind], total_of(kind, step));
            expect_near("mean loss", kind, step_mean_loss(&result, kind), mean(kind));
            running[kind] = step ? 0.75 * running[kind] + 0.25 * mean(kind) : mean(kind);
            expect_near("running mean", kind, run.trainer.running[kind], running[kind]);
        }
    }
    /* losses differ between steps */
    assert_true(fabs(running[TARGET_AUDIO] - mean(TARGET_AUDIO)) > 1e-3 * running[TARGET_AUDIO]);
    toy_run_close(&run);
}

/* Once the means have settled, every kind contributes its own weight times text's mean loss. */
TEST(all_kinds_move_in_the_interval_of_text)
{
    double expected[TARGETS];
    open_run(1, true);
    step_with(own_weight, 0);
    for (int kind = 0; kind < TARGETS; kind++)
        expected[kind] = own_weight[kind] * (kind == TARGET_MTP ? 1 : mean(TARGET_TEXT) / mean(kind));
    step_with(expected, 1);
    expect_near("pull", TARGET_TEXT, seen.pulled[TARGET_TEXT], mean(TARGET_TEXT));
    expect_near("pull", TARGET_MTP, seen.pulled[TARGET_MTP], 0.3 * mean(TARGET_MTP));
    expect_near("pull", TARGET_VISION, seen.pulled[TARGET_VISION], 2 * mean(TARGET_TEXT));
    expect_near("pull", TARGET_AUDIO, seen.pulled[TARGET_AUDIO], 0.5 * mean(TARGET_TEXT));
    toy_run_close(&run);
}

static void put_words(struct toy_batch *b)
{
    struct toy_sample samples[2] = {0};
    for (u32 i = 0; i < 2; i++)
        for (i64 part = 0; part < 3; part++)
            toy_draw_part(&samples[i], (struct rng_key){6, RNG_TEST}, i, STREAM_TEXT);
    toy_lay(b, &arena, samples, 2, (struct rng_key){6, RNG_TEST}, 0, 0);
}

/* A step of text alone leaves the means of media unchanged. */
TEST(a_kind_without_targets_keeps_its_mean)
{
    double before[TARGETS];
    open_run(1, true);
    put_words(&run.batches[1]);
    run.count = 2;
    step_with(own_weight, 0);
    memcpy(before, run.trainer.running, sizeof before);
    struct step_result result = step_with(own_weight, 1);
    assert_true(isnan(step_mean_loss(&result, TARGET_VISION)) && isnan(step_mean_loss(&result, TARGET_AUDIO)));
    assert_true(run.trainer.running[TARGET_VISION] == before[TARGET_VISION]);
    assert_true(run.trainer.running[TARGET_AUDIO] == before[TARGET_AUDIO]);
    assert_true(run.trainer.running[TARGET_TEXT] != before[TARGET_TEXT]);
    toy_run_close(&run);
}

/* Losses are summed separately per stream of their position. */
TEST(losses_are_summed_by_stream)
{
    double weight[STREAMS][TARGETS] = {0};
    open_run(1, true);
    struct step_result result = step_with(own_weight, 0);
    const struct batch *b = &run.batches[0].batch;
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 i = 0; i < b->targets[kind].n; i++)
            weight[b->targets[kind].stream[i]][kind] += (double)b->targets[kind].weight[i];
    for (int kind = 0; kind < TARGETS; kind++) {
        double loss = 0;
        for (int stream = 0; stream < STREAMS; stream++) {
            assert_float_equal(result.weight[stream][kind], weight[stream][kind], 1e-4);
            loss += result.loss[stream][kind];
        }
        expect_near("sum of losses", kind, loss, seen.loss[kind]);
    }
    assert_true(weight[STREAM_IMAGE_OUT][TARGET_VISION] > 0 && weight[STREAM_VIDEO_OUT][TARGET_VISION] > 0);
    toy_run_close(&run);
}

/* The first step of AdamW moves every element with a gradient by the learning rate. */
TEST(a_step_moves_weights_by_its_learning_rate)
{
    open_run(1, false);
    run.trainer.lr = (struct lr_schedule){.peak = 8e-3, .warmup = 8, .shape = LR_CONSTANT};
    float *before = toy_weight(&device, run.model.norm);
    struct step_result result = step_with(own_weight, 0);
    float *after = toy_weight(&device, run.model.norm);
    assert_float_equal(result.optimizer.lr, 1e-3, 1e-12);
    for (i64 i = 0; i < weight_elements(run.model.norm); i++)
        assert_float_equal(fabsf(after[i] - before[i]), 1e-3, 2e-6);
    memory_free(before);
    memory_free(after);
    assert_float_equal(step_with(own_weight, 2).optimizer.lr, 3e-3, 1e-12);
    toy_run_close(&run);
}

/* Copies of all masters, one behind the other; memory_free. */
static float *masters(i64 *count)
{
    const struct weights *weights = &run.model.weights;
    i64 at = 0;
    *count = 0;
    for (i64 i = 0; i < weights->count; i++)
        *count += weight_elements(&weights->list[i]);
    float *out = memory_alloc(*count * 4);
    for (i64 i = 0; i < weights->count; at += weight_elements(&weights->list[i++]))
        device_get(&device, out + at, weights->list[i].master, weight_elements(&weights->list[i]) * 4);
    return out;
}

/* Neither decay, nor momentum, nor the router's balancing bias move anything in a step without a
 * target whose kind has a weight. */
TEST(a_step_without_targets_moves_nothing)
{
    i64 count;
    for (int unweighted = 0; unweighted < 2; unweighted++) {
        open_run(1, true);
        run.trainer.objective = NULL;
        run.trainer.lr = (struct lr_schedule){.peak = 1e-3, .shape = LR_CONSTANT};
        run.optimizer.weight_decay = 0.1;
        run.bias_speed = 0.1;
        for (int kind = 0; kind < TARGETS; kind++)
            if (!unweighted)
                run.batches[1].batch.targets[kind].n = 0;
        run.count = 2;
        float *first = masters(&count);
        assert_false(toy_step(&run, 0).without_targets);
        float *before = masters(&count);
        assert_memory_not_equal(first, before, (size_t)count * 4);
        if (unweighted)
            memset(run.trainer.balance.weight, 0, sizeof run.trainer.balance.weight);
        struct step_result result = toy_step(&run, 1);
        float *after = masters(&count);
        assert_true(result.without_targets && result.optimizer.grad_norm == 0 && result.optimizer.skipped == 0);
        assert_memory_equal(before, after, (size_t)count * 4);
        memory_free(first);
        memory_free(before);
        memory_free(after);
        toy_run_close(&run);
    }
}

int main(void)
{
    test_device_open(&device);
    arena_open(&arena, (i64)1 << 32);
    return tests_run(NULL, NULL);
}
