/* keep_best: the result of a stage is the step with the best measure, whatever interrupts it. The stage is
 * a toy whose measures are given. */
#include <math.h>

#include "dist/dist.h"
#include "tests/scratch.h"
#include "train/train.h"

enum { STEPS = 13, EVERY = 2 };
static struct device device;

struct toy {
    const double *measures; /* by step, [STEPS + 1] */
    struct best_settings settings;
    bool higher;
    i64 steps;            /* of the stage */
    i64 calls, fails_at;  /* callbacks so far; the one that fails, -1: none */
    bool stays;           /* it does not go back to the best step */
    i64 stops_at;         /* step whose measure is interrupted once, -1: none */
    i64 given_up;         /* step that is interrupted once behind its measure, -1: none */
    i64 times[STEPS + 1]; /* measured, by step */
    i64 made, restored;   /* steps made; step of the last restore, -1: none */
    double memory;        /* what the result depends on besides the weights */
    struct weights weights;
};

static int call(struct toy *toy)
{
    return toy->calls++ == toy->fails_at ? error_set("a planned end") : 0;
}

static int begin(void *context, i64 step, const struct json *state, const char *folder)
{
    struct toy *toy = context;
    assert_true(state ? folder != NULL : step == 0);
    json_numbers(&toy->memory, 1, json_get(state, "memory"));
    return call(toy);
}

static int restore(void *context, i64 step, const struct json *state, const char *folder)
{
    struct toy *toy = context;
    toy->restored = step;
    return toy->stays ? error_set("a planned end") : begin(context, step, state, folder);
}

static int measure(double *value, void *context, i64 step, struct metrics *metrics)
{
    struct toy *toy = context;
    bool due = step % EVERY == 0 || step == toy->steps;
    *value = due ? toy->measures[step] : NAN;
    if (due && step == toy->stops_at) {
        toy->stops_at = -1;
        return STAGE_INTERRUPTED;
    }
    if (due)
        metrics_put(metrics, "measured", *value);
    toy->times[step]++;
    return call(toy);
}

static int step(void *context, i64 at, struct training_step *said)
{
    static const struct optimizer_settings optimizer = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    struct toy *toy = context;
    struct weight *w = &toy->weights.list[0];
    if (at == toy->given_up) {
        toy->given_up = -1;
        return STAGE_INTERRUPTED;
    }
    if (call(toy))
        return -1;
    weights_begin_step(&toy->weights);
    for (i64 i = 0; i < 4; i++)
        ((float *)w->value.grad)[i] = w->master[i] + (float)toy->memory;
    w->value.grad_written = true;
    said->optimizer = optimizer_step(&toy->weights, &optimizer, optimizer.lr, at);
    toy->memory = 0.5 * toy->memory + (double)at;
    toy->made++;
    return 0;
}

static int save(void *context, const char *folder)
{
    struct toy *toy = context;
    double values[5] = {toy->memory};
    for (i64 i = 0; i < 4; i++)
        values[1 + i] = (double)toy->weights.list[0].master[i];
    if (call(toy))
        return -1;
    char *path = path_join(folder, "result.json");
    struct json *j = json_of_numbers(values, 5);
    int status = json_save(path, j);
    json_free(j);
    memory_free(path);
    return status;
}

static int write_state(void *context, struct json *state, const char *folder)
{
    (void)folder;
    json_set(state, "memory", json_of_numbers(&((struct toy *)context)->memory, 1));
    return 0;
}

static void open_weights(struct toy *toy)
{
    struct weight_spec spec = weight_matrix("w", 2, 2);
    weights_open(&toy->weights, &device, DTYPE_F32, true, NULL);
    weights_add(&toy->weights, &spec);
    weights_allocate(&toy->weights);
    weights_init(&toy->weights, 1);
    toy->memory = 1;
}

static int run(struct toy *toy, const char *name)
{
    struct stage stage = {
        .name = name, .out = path_of(name), .device = &device, .dtype = DTYPE_F32, .ranks = parallel_alone()};
    struct training_settings settings = {.checkpoint_steps = 3, .keep = 1};
    struct training training = {.stage = &stage,
                                .settings = &settings,
                                .steps = toy->steps,
                                .unit = "things",
                                .weights = &toy->weights,
                                .best = &toy->settings,
                                .higher = toy->higher,
                                .context = toy,
                                .begin = begin,
                                .measure = measure,
                                .restore = restore,
                                .step = step,
                                .save = save,
                                .state = write_state};
    open_weights(toy);
    succeed(directory_make(stage.out));
    int status = training_run(&training);
    weights_close(&toy->weights);
    return status;
}

static struct toy toy_of(const double *measures, const char *measure_name, i64 patience)
{
    return (struct toy){.measures = measures,
                        .settings = {(char *)(uintptr_t)measure_name, patience},
                        .steps = STEPS,
                        .fails_at = -1,
                        .stops_at = -1,
                        .given_up = -1,
                        .restored = -1};
}

static struct buffer content(const char *run_name, const char *file)
{
    struct buffer text = {0};
    char *path = path_join(path_of(run_name), file);
    succeed(file_read(&text, path));
    memory_free(path);
    return text;
}

static void expect_same(const char *run_name, const char *other, const char *file)
{
    struct buffer a = content(other, file), b = content(run_name, file);
    assert_string_equal(a.data, b.data);
    buffer_release(&a);
    buffer_release(&b);
}

/* Lines of metrics.jsonl, which count steps from 1; *measured: those with the measure. */
static i64 lines_of(const char *run_name, i64 *measured)
{
    struct buffer text = content(run_name, "metrics.jsonl");
    i64 lines = 0;
    *measured = 0;
    for (char *line = text.data, *end; line && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct json *j = json_parse(line, end - line, "metrics");
        assert_int_equal(json_integer(json_get(j, "step"), -1), ++lines);
        *measured += json_get(j, "measured") != NULL;
        json_free(j);
    }
    buffer_release(&text);
    return lines;
}

static bool has_checkpoint(const char *run_name, i64 done)
{
    char *checkpoints = path_join(path_of(run_name), "checkpoints"), *path = checkpoint_path(checkpoints, done);
    bool has = file_is_directory(path);
    memory_free(checkpoints);
    memory_free(path);
    return has;
}

/* Weights and the rest after `steps` steps, without keep_best. */
static void make_plain(const char *name, i64 steps)
{
    struct toy toy = toy_of((const double[STEPS + 1]){0}, "", 0);
    toy.steps = steps;
    succeed(run(&toy, name));
    assert_int_equal(toy.made, steps);
}

/*                                           0  1  2  3  4  5  6  7  8  9  10 11 12 13 */
static const double dips[STEPS + 1] = {9, 0, 7, 0, 4, 0, 5, 0, 6, 0, 8, 0, 8, 9};
static const double falls[STEPS + 1] = {9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0, 3, 2};
static const double rises[STEPS + 1] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 8};
static const double dips_twice[STEPS + 1] = {9, 0, 4, 0, 6, 0, 7, 0, 3, 0, 3, 0, 5, 5};

TEST(the_result_is_the_best_step)
{
    static const struct {
        const char *name;
        const double *measures;
        bool higher;
        i64 patience, best, last;
    } rows[] = {
        {"dips", dips, false, 0, 4, 13},
        {"falls", falls, false, 0, 13, 13},
        {"rises", rises, false, 0, 0, 13}, /* no step helped: the weights at the beginning */
        {"higher", rises, true, 0, 13, 13},
        {"highest at once", falls, true, 2, 0, 4},
        {"patient", dips, false, 3, 4, 10},
        {"impatient", dips_twice, false, 2, 2, 6},
        {"patient enough", dips_twice, false, 3, 8, 13}, /* of two equal ones, the first */
        {"at the last", dips_twice, false, 4, 8, 13},
    };
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        struct toy toy = toy_of(rows[i].measures, "heldout", rows[i].patience);
        toy.higher = rows[i].higher;
        char *plain = string_format("plain %lld", (long long)i);
        succeed(run(&toy, rows[i].name));
        assert_int_equal(toy.made, rows[i].last);
        assert_int_equal(toy.restored, rows[i].best == rows[i].last ? -1 : rows[i].best);
        make_plain(plain, max_i64(rows[i].best, 1));
        if (rows[i].best)
            expect_same(rows[i].name, plain, "result.json");
        for (i64 s = 0; s <= STEPS; s++) /* the newest checkpoint is the result's, for a stage that continues it */
            assert_false(s > rows[i].best && has_checkpoint(rows[i].name, s));
        assert_true(has_checkpoint(rows[i].name, rows[i].best));
        struct buffer text = content(rows[i].name, BEST_FILE);
        struct json *j = json_parse(text.data, text.length, BEST_FILE);
        assert_int_equal(json_integer(json_get(j, "step"), -1), rows[i].best);
        assert_true(json_number(json_get(j, "value"), -1) == rows[i].measures[rows[i].best]);
        assert_int_equal(json_count(json_get(j, "history")), rows[i].last / EVERY + 1 + (rows[i].last == STEPS));
        assert_string_equal(json_string(json_get(j, "measure"), ""), "heldout");
        assert_true(json_bool(json_get(j, "higher"), !rows[i].higher) == rows[i].higher);
        json_free(j);
        buffer_release(&text);
        memory_free(plain);
    }
}

TEST(steps_that_only_harm_are_undone)
{
    struct toy toy = toy_of(rises, "heldout", 0);
    double values[5];
    struct buffer text = content("rises", "result.json");
    struct json *j = json_parse(text.data, text.length, "result");
    json_numbers(values, 5, j);
    open_weights(&toy);
    assert_true(values[0] == toy.memory);
    for (i64 i = 0; i < 4; i++)
        assert_true(values[1 + i] == (double)toy.weights.list[0].master[i]);
    weights_close(&toy.weights);
    json_free(j);
    buffer_release(&text);
}

static void expect_patient(const char *name)
{
    i64 measured, all;
    expect_same(name, "patient", "result.json");
    expect_same(name, "patient", BEST_FILE);
    assert_int_equal(lines_of("patient", &all), 10);
    assert_int_equal(lines_of(name, &measured), 10);
    assert_int_equal(measured, all);
    assert_true(has_checkpoint(name, 4) && !has_checkpoint(name, 9) && !has_checkpoint(name, 10));
}

/* Ends the stage in each of its callbacks, and in each measure, and calls it again. */
TEST(an_interrupted_stage_ends_as_an_unbroken_one)
{
    for (i64 k = 0, more = true; more; k++) {
        struct toy toy = toy_of(dips, "heldout", 3);
        char *name = string_format("fails %lld", (long long)k);
        toy.fails_at = k;
        more = run(&toy, name) != 0;
        assert_true(more || k > 20);
        if (more)
            succeed(run(&toy, name));
        expect_patient(name);
        memory_free(name);
    }
    for (i64 k = 0; k <= 10; k += EVERY) {
        struct toy toy = toy_of(dips, "heldout", 3);
        char *name = string_format("stops %lld", (long long)k);
        toy.stops_at = k;
        assert_int_equal(run(&toy, name), STAGE_INTERRUPTED);
        succeed(run(&toy, name));
        assert_int_equal(toy.made, 10);
        expect_patient(name);
        memory_free(name);
    }
}

/* An interrupt behind a measure keeps it: for the best step, and for the line of metrics. */
TEST(what_was_measured_is_not_measured_again)
{
    for (i64 k = 0; k <= 8; k += EVERY) {
        struct toy toy = toy_of(dips, "heldout", 3);
        char *name = string_format("gives up %lld", (long long)k);
        toy.given_up = k;
        assert_int_equal(run(&toy, name), STAGE_INTERRUPTED);
        assert_true(has_checkpoint(name, k));
        succeed(run(&toy, name));
        for (i64 i = 0; i <= 10; i++)
            assert_int_equal(toy.times[i], 1);
        expect_patient(name);
        memory_free(name);
    }
}

TEST(a_damaged_best_checkpoint_is_named)
{
    char *file = path_join(path_of("damaged"), "checkpoints/step-000004/result.json");
    struct toy toy = toy_of(dips, "heldout", 0);
    toy.stays = true;
    assert_int_equal(run(&toy, "damaged"), -1);
    toy.stays = false;
    succeed(file_replace(file, "[]", 2));
    assert_int_equal(run(&toy, "damaged"), -1);
    assert_says("step-000004/result.json: 2 bytes");
    memory_free(file);
}

TEST(without_a_finite_measure_the_last_step_is_the_result)
{
    static const double none[STEPS + 1] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    struct toy toy = toy_of(none, "heldout", 1);
    succeed(run(&toy, "not finite"));
    make_plain("plain last", STEPS);
    expect_same("not finite", "plain last", "result.json");
}

TEST(settings_that_measure_nothing_are_refused)
{
    struct best_settings s = {(char *)(uintptr_t) "", 3};
    assert_int_equal(best_check(&s, "heldout_steps", 100), -1);
    assert_says("patience 3 needs keep_best");
    s = (struct best_settings){(char *)(uintptr_t) "heldout", 0};
    assert_int_equal(best_check(&s, "heldout_steps", 0), -1);
    assert_says("expected heldout_steps above 0");
    succeed(best_check(&s, "heldout_steps", 1));
    s.measure = (char *)(uintptr_t) "";
    succeed(best_check(&s, "heldout_steps", 0));
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
