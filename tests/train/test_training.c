/* The training loop of stages, with a stage of a single weight. */
#include <malloc.h>
#include <math.h>
#include <signal.h>

#include "dist/dist.h"
#include "tests/sanitized.h"
#include "tests/scratch.h"
#include "train/train.h"

enum { STEPS = 7 };
static struct device device;

struct training_toy {
    struct weights weights, critic; /* critic: only if it has one */
    bool has_critic;
    const char *continues;
    i64 begun, calls;  /* first step; number of steps done */
    double memory;     /* the whole state of the stage */
    i64 steps;         /* 0: STEPS */
    bool stays_broken; /* so are all steps behind the broken one, but `good` */
    i64 good;
    double seconds;              /* of the work within a step, as it says; 0: the whole step */
    i64 broken, stopped, killed; /* steps with a non-finite gradient, an interruption inside, and a signal */
};

static int begin(void *context, i64 step, const struct json *state, const char *folder)
{
    struct training_toy *toy = context;
    toy->begun = step;
    assert_true((state != NULL) == (folder != NULL));
    json_numbers(&toy->memory, 1, json_get(state, "memory"));
    return 0;
}

static int step(void *context, i64 at, struct training_step *said)
{
    static const struct optimizer_settings optimizer = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    struct training_toy *toy = context;
    struct weight *w = &toy->weights.list[0];
    if (at == toy->stopped)
        return STAGE_INTERRUPTED;
    weights_begin_step(&toy->weights);
    for (i64 i = 0; i < 4; i++)
        ((float *)w->value.grad)[i] = at == toy->broken || (toy->stays_broken && at > toy->broken && at != toy->good)
                                          ? NAN
                                          : w->master[i] + (float)toy->memory;
    w->value.grad_written = true;
    said->optimizer = optimizer_step(&toy->weights, &optimizer, optimizer.lr, at);
    if (toy->has_critic) { /* the critic follows the weights, and the memory follows the critic */
        struct weight *critic = &toy->critic.list[0];
        weights_begin_step(&toy->critic);
        for (i64 i = 0; i < 4; i++)
            ((float *)critic->value.grad)[i] = critic->master[i] - w->master[i];
        critic->value.grad_written = true;
        optimizer_step(&toy->critic, &optimizer, 0.03, at);
        toy->memory += (double)critic->master[0];
    }
    toy->memory = 0.5 * toy->memory + (double)at;
    metrics_put(said->metrics, "memory", toy->memory);
    buffer_printf(&said->note, "memory %g", toy->memory);
    said->count = 10;
    said->seconds = toy->seconds;
    said->flops = 10; /* slower than any product */
    toy->calls++;
    static const int signals[] = {SIGUSR1, SIGXCPU, SIGTERM, SIGXCPU}; /* warnings, and the end among them */
    for (i64 i = 0; at == toy->killed && i < COUNT_OF(signals); i++)
        raise(signals[i]);
    return 0;
}

static int save(void *context, const char *folder)
{
    struct training_toy *toy = context;
    char *path = path_join(folder, "result.json");
    double values[4];
    for (i64 i = 0; i < 4; i++)
        values[i] = (double)toy->weights.list[0].master[i];
    struct json *j = json_of_numbers(values, 4);
    int status = json_save(path, j);
    json_free(j);
    memory_free(path);
    return status;
}

static int write_state(void *context, struct json *state, const char *folder)
{
    (void)folder;
    json_set(state, "memory", json_of_numbers(&((struct training_toy *)context)->memory, 1));
    return 0;
}

static int run(struct training_toy *toy, const char *name, bool calibrated)
{
    struct stage stage = {.name = name,
                          .out = path_of(name),
                          .device = &device,
                          .dtype = DTYPE_F32,
                          .calibrated = calibrated,
                          .ranks = parallel_alone()};
    struct training_settings settings = {.checkpoint_steps = 2, .keep = 2};
    struct further_weights critic = {"critic", &toy->critic};
    struct training training = {.stage = &stage,
                                .settings = &settings,
                                .steps = toy->steps ? toy->steps : STEPS,
                                .unit = "things",
                                .weights = &toy->weights,
                                .more = &critic,
                                .more_count = toy->has_critic,
                                .continues = toy->continues,
                                .context = toy,
                                .begin = begin,
                                .step = step,
                                .save = save,
                                .state = write_state};
    struct weight_spec spec = weight_matrix("w", 2, 2);
    weights_open(&toy->weights, &device, DTYPE_F32, true, NULL);
    weights_add(&toy->weights, &spec);
    weights_allocate(&toy->weights);
    weights_init(&toy->weights, 1);
    weights_open(&toy->critic, &device, DTYPE_F32, true, NULL);
    weights_add(&toy->critic, &spec);
    weights_allocate(&toy->critic);
    weights_init(&toy->critic, 2);
    toy->memory = 1;
    succeed(directory_make(stage.out));
    int status = training_run(&training);
    weights_close(&toy->critic);
    weights_close(&toy->weights);
    return status;
}

static struct buffer content(const char *run_name, const char *file)
{
    struct buffer text = {0};
    char *path = path_join(path_of(run_name), file);
    succeed(file_read(&text, path));
    memory_free(path);
    return text;
}

/* Checks that metric lines have consecutive steps. Returns the number of lines with a numeric
 * `key`; *sum is the sum of its values. */
static i64 check_metrics(const char *run_name, i64 count, const char *key, double *sum)
{
    struct buffer text = content(run_name, "metrics.jsonl");
    i64 lines = 0, found = 0;
    *sum = 0;
    for (char *line = text.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct json *j = json_parse(line, end - line, "metrics");
        assert_int_equal(json_integer(json_get(j, "step"), -1), ++lines);
        double value = json_number(json_get(j, key), NAN);
        found += isfinite(value);
        *sum += isfinite(value) ? value : 0;
        json_free(j);
    }
    assert_int_equal(lines, count);
    buffer_release(&text);
    return found;
}

static bool has_checkpoint(const char *run_name, i64 done)
{
    char *checkpoints = path_join(path_of(run_name), "checkpoints"), *path = checkpoint_path(checkpoints, done);
    bool has = file_is_directory(path);
    memory_free(checkpoints);
    memory_free(path);
    return has;
}

static void same_as_whole(const char *run_name)
{
    struct buffer a = content("whole", "result.json"), b = content(run_name, "result.json");
    assert_string_equal(a.data, b.data);
    buffer_release(&a);
    buffer_release(&b);
}

TEST(steps_are_counted_as_done)
{
    struct training_toy toy = {.broken = -1, .stopped = -1, .killed = -1};
    double sum;
    assert_int_equal(run(&toy, "whole", true), 0);
    assert_int_equal(toy.begun, 0);
    assert_int_equal(toy.calls, STEPS);
    assert_true(check_metrics("whole", STEPS, "gflops_per_s", &sum) == STEPS && sum > 0);
    assert_int_equal(check_metrics("whole", STEPS, "product_share", &sum), STEPS);
    assert_true(sum > 0 && sum < STEPS);
    assert_int_equal(check_metrics("whole", STEPS, "peak_share", &sum), 0); /* of GPUs alone */
    assert_int_equal(check_metrics("whole", STEPS, "things_per_s", &sum), STEPS);
    assert_int_equal(check_metrics("whole", STEPS, "skipped", &sum), STEPS);
    assert_true(sum == 0);
    assert_int_equal(check_metrics("whole", STEPS, "memory_bytes", &sum), STEPS);
    assert_true(sum / STEPS > 1 << 20 && sum / STEPS < 2 * (double)memory_peak_bytes()); /* counted loosely */
    assert_int_equal(check_metrics("whole", STEPS, "device_bytes", &sum), 0);            /* of GPUs alone */
    assert_false(has_checkpoint("whole", 2) || has_checkpoint("whole", 4));              /* keep is 2 */
    assert_true(has_checkpoint("whole", 6) && has_checkpoint("whole", 7));
}

/* A stage with two tables, whole and stopped in the middle, ends alike; one that continues another
 * stage without the second begins that table anew. */
TEST(further_weights_are_resumed_with_the_first)
{
    struct training_toy toy = {.broken = -1, .stopped = -1, .killed = -1, .has_critic = true};
    struct training_toy alone = {.broken = -1, .stopped = -1, .killed = -1};
    char *checkpoints = string_format("%s/checkpoints", path_of("alone"));
    succeed(run(&toy, "two", false));
    toy.stopped = 3;
    assert_int_equal(run(&toy, "two-parts", false), STAGE_INTERRUPTED);
    toy.stopped = -1;
    succeed(run(&toy, "two-parts", false));
    assert_int_equal(toy.begun, 3);
    struct buffer whole = content("two", "result.json"), parts = content("two-parts", "result.json");
    assert_string_equal(whole.data, parts.data);
    static const char *const files[] = {"state.json", "critic.safetensors"};
    for (i64 i = 0; i < COUNT_OF(files); i++) {
        char *file = string_format("checkpoints/step-%06d/weft/%s", STEPS, files[i]);
        struct buffer a = content("two", file), b = content("two-parts", file);
        assert_int_equal(a.length, b.length);
        assert_memory_equal(a.data, b.data, (size_t)a.length);
        buffer_release(&a);
        buffer_release(&b);
        memory_free(file);
    }
    alone.steps = 3;
    succeed(run(&alone, "alone", false));
    toy.continues = checkpoints;
    succeed(run(&toy, "from-alone", false));
    assert_int_equal(toy.begun, 3);
    char *lost = string_format("%s/checkpoints/step-%06d/weft/critic.safetensors", path_of("two"), STEPS);
    succeed(remove(lost)); /* its own checkpoint may not lack it */
    toy.continues = NULL;
    toy.steps = STEPS + 1;
    succeed(run(&toy, "two", false)); /* goes back to the checkpoint before */
    assert_int_equal(toy.begun, STEPS - 1);
    buffer_release(&whole);
    buffer_release(&parts);
    memory_free(checkpoints);
    memory_free(lost);
}

TEST(without_a_product_there_is_no_share_of_it)
{
    struct training_toy toy = {.broken = -1, .stopped = -1, .killed = -1};
    double sum;
    assert_int_equal(run(&toy, "unmeasured", 0), 0);
    assert_int_equal(check_metrics("unmeasured", STEPS, "product_share", &sum), 0);
    assert_int_equal(check_metrics("unmeasured", STEPS, "gflops_per_s", &sum), STEPS);
    struct buffer metrics = content("unmeasured", "metrics.jsonl");
    assert_null(strstr(metrics.data, "_share"));
    buffer_release(&metrics);
    same_as_whole("unmeasured");
}

/* 10 things and 10 flops a step: per second of the whole step, or of the seconds that the step states. */
TEST(speeds_are_per_second_of_the_work)
{
    for (int stated = 0; stated < 2; stated++) {
        struct training_toy toy = {.broken = -1, .stopped = -1, .killed = -1, .seconds = stated ? 2.5 : 0};
        const char *name = stated ? "stated" : "measured";
        i64 lines = 0;
        assert_int_equal(run(&toy, name, 0), 0);
        struct buffer text = content(name, "metrics.jsonl");
        for (char *line = text.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, lines++) {
            struct json *j = json_parse(line, end - line, "metrics");
            double busy = stated ? 2.5 : json_number(json_get(j, "seconds"), NAN);
            assert_float_equal(json_number(json_get(j, "things_per_s"), NAN) * busy, 10, 1e-3);
            assert_float_equal(json_number(json_get(j, "gflops_per_s"), NAN) * busy * 1e9, 10, 1e-3);
            json_free(j);
        }
        assert_int_equal(lines, STEPS);
        buffer_release(&text);
    }
}

TEST(a_skipped_update_is_in_the_metrics)
{
    struct training_toy toy = {.broken = 3, .stopped = -1, .killed = -1};
    double sum;
    assert_int_equal(run(&toy, "broken", true), 0);
    check_metrics("broken", STEPS, "skipped", &sum);
    assert_true(sum == 1);
    assert_int_equal(check_metrics("broken", STEPS, "grad_norm", &sum), STEPS - 1);
}

TEST(twenty_skipped_updates_in_a_row_end_the_stage)
{
    struct training_toy toy = {.broken = 3, .stays_broken = true, .steps = 40, .stopped = -1, .killed = -1};
    assert_int_equal(run(&toy, "lost", 0), -1);
    assert_says("lost: step 23: the norm of the gradients was not finite in 20 steps in a row");
    assert_int_equal(toy.calls, 23);
    toy = (struct training_toy){.broken = 3, .stays_broken = true, .steps = 22, .stopped = -1, .killed = -1};
    assert_int_equal(run(&toy, "nearly lost", 0), 0);
    toy = (struct training_toy){.stays_broken = true, .good = 19, .steps = 39, .stopped = -1, .killed = -1};
    assert_int_equal(run(&toy, "lost twice", 0), 0); /* 19 steps before the good one, 19 behind it */
    toy = (struct training_toy){.stays_broken = true, .good = 19, .steps = 40, .stopped = -1, .killed = -1};
    assert_int_equal(run(&toy, "lost behind", 0), -1);
    assert_says("step 40");
}

/* Lines that are begun and never ended, as by steps that were interrupted. */
TEST(an_unfinished_line_is_freed_with_what_is_not_finite)
{
    succeed(directory_make(path_of("unfinished")));
    struct metrics *m = metrics_open(path_of("unfinished"), 0);
    assert_non_null(m);
    size_t before = 0;
    for (i64 i = 0; i < 2000; i++) {
        before = i == 1000 ? mallinfo2().uordblks : before;
        metrics_begin(m, i + 1);
        metrics_put(m, "loss", NAN);
    }
    assert_true(is_sanitized() || mallinfo2().uordblks < before + 16000);
    metrics_begin(m, 2001);
    metrics_put(m, "loss", NAN);
    succeed(metrics_end(m));
    metrics_close(m);
    struct buffer text = content("unfinished", "metrics.jsonl");
    assert_non_null(strstr(text.data, "\"nonfinite\":[\"loss\"]"));
    buffer_release(&text);
}

/* Metrics of the interrupted step are dropped; the state before it is saved. */
TEST(a_step_stopped_within_is_made_again)
{
    struct training_toy toy = {.broken = -1, .stopped = 3, .killed = -1};
    double sum;
    assert_int_equal(run(&toy, "stopped", true), STAGE_INTERRUPTED);
    check_metrics("stopped", 3, "memory", &sum);
    assert_true(has_checkpoint("stopped", 3));
    toy.stopped = -1;
    assert_int_equal(run(&toy, "stopped", true), 0);
    assert_int_equal(toy.begun, 3);
    assert_int_equal(toy.calls, STEPS);
    check_metrics("stopped", STEPS, "memory", &sum);
    same_as_whole("stopped");
}

TEST(a_warm_up_is_honoured_or_refused)
{
    struct optimizer_settings s = {.lr = 1, .warmup = 8, .shape = LR_CONSTANT};
    struct lr_schedule lr = lr_of_settings(&s, 10);
    assert_true(lr_at(&lr, 3) == 0.5 && lr_at(&lr, 7) == 1); /* the whole warm-up, although it is most of the run */
    succeed(lr_check(&s, 8, "steps"));
    assert_int_equal(lr_check(&s, 7, "steps"), -1);
    assert_non_null(strstr(error_text(), "optimizer.warmup is 8 steps, and steps gives 7"));
    assert_int_equal(error_status(), STATUS_USAGE);
    s.warmup = -8;
    succeed(lr_check(&s, 7, "steps"));
    lr = lr_of_settings(&s, 10);
    assert_true(lr_at(&lr, 0) == 0.2 && lr_at(&lr, 4) == 1); /* at most half */
    lr = lr_of_settings(&s, 100);
    assert_true(lr_at(&lr, 3) == 0.5);
}

TEST(without_room_for_a_checkpoint_no_step_is_made)
{
    struct training_toy toy = {.broken = -1, .stopped = -1, .killed = -1};
    setenv("WEFT_SPARE_BYTES", "1e18", 1);
    assert_int_equal(run(&toy, "room", 0), -1);
    assert_non_null(strstr(error_text(), "the next checkpoint needs"));
    unsetenv("WEFT_SPARE_BYTES");
    succeed(run(&toy, "room", 0));
    double sum;
    assert_int_equal(check_metrics("room", STEPS, "lr", &sum), STEPS);
}

/* Last: the signal stays pending. */
TEST(a_signal_saves_the_step_that_is_done)
{
    struct training_toy toy = {.broken = -1, .stopped = -1, .killed = 4};
    double sum;
    signals_catch();
    assert_int_equal(run(&toy, "signal", true), STAGE_INTERRUPTED);
    assert_true(has_checkpoint("signal", 5));
    check_metrics("signal", 5, "memory", &sum);
    char *result = path_join(path_of("signal"), "result.json");
    assert_false(file_exists(result));
    memory_free(result);
    /* The signal stays: a stage that has measured before its first step keeps that in a checkpoint. */
    toy = (struct training_toy){.broken = -1, .stopped = -1, .killed = -1};
    assert_int_equal(run(&toy, "at once", true), STAGE_INTERRUPTED);
    assert_true(has_checkpoint("at once", 0));
    assert_int_equal(run(&toy, "at once", true), STAGE_INTERRUPTED);
    assert_true(has_checkpoint("at once", 0));
}

int main(void)
{
    log_set_level(LOG_QUIET);
    device_open_cpu(&device);
    workers_start(1);
    int failed = tests_run(make_directory, remove_directory);
    workers_stop();
    device_close(&device);
    return failed;
}
