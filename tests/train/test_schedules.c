/* Learning rates step by step against the reference (tests/golden/optim), the schedules of
 * settings, and whole optimizer steps over a table of weights against torch's AdamW and
 * clipping. */
#include "tests/golden.h"
#include "tests/toy.h"
#include "train/train.h"

/* ---- Schedules ---- */

struct schedule_settings {
    struct optimizer_settings optimizer;
};
static const struct setting table[] = {OPTIMIZER_ROWS(struct schedule_settings, "1e-3", "0.95", "0.1"), {0}};

static struct optimizer_settings choose(const char *shape, const char *decay)
{
    struct schedule_settings chosen = {0};
    const struct setting_override overrides[] = {{"optimizer.shape", shape}, {"optimizer.decay", decay}};
    if (settings_read(&chosen, table, NULL, NULL, overrides, 2))
        fail_msg("%s", error_text());
    return chosen.optimizer;
}

static double number(const struct json *object, const char *key)
{
    double value = json_number(json_get(object, key), NAN);
    assert_true(isfinite(value));
    return value;
}

/* Weft counts warm-up steps from 1, so no step has a rate of 0. The reference does the same if its
 * offset is 1. */
static void check_schedule(const struct json *want)
{
    struct optimizer_settings named =
        choose(json_string(json_get(want, "kind"), ""), json_string(json_get(want, "decay"), "linear"));
    const struct json *lr = json_get(want, "lr");
    i64 total = json_integer(json_get(want, "total"), 0), offset = json_integer(json_get(want, "warmup_offset"), 0);
    struct lr_schedule s = {.peak = number(want, "peak"),
                            .min = number(want, "min"),
                            .warmup = json_integer(json_get(want, "warmup"), 0),
                            .total = total,
                            .decay_start = json_integer(json_get(want, "decay_start"), 0),
                            .shape = (enum lr_shape)named.shape,
                            .decay = (enum lr_decay)named.decay};
    assert_int_equal(json_count(lr), total + 1);
    for (i64 step = 0; step <= total; step++) {
        i64 at = step < s.warmup ? step + 1 - offset : step;
        double expected = json_number(json_at(lr, at), NAN);
        if (!(fabs(lr_at(&s, step) - expected) <= 1e-12 * s.peak))
            fail_msg("%s, step %d: %.15g, expected %.15g", json_string(json_get(want, "name"), ""), (int)step,
                     lr_at(&s, step), expected);
    }
    assert_true(lr_at(&s, total + 1000) == (s.shape == LR_CONSTANT ? s.peak : s.min));
}

TEST(learning_rates_are_those_of_the_reference)
{
    struct json *schedules = json_load(GOLDEN "/optim/schedules.json");
    assert_true(json_count(schedules) >= 5);
    for (i64 i = 0; i < json_count(schedules); i++)
        check_schedule(json_at(schedules, i));
    json_free(schedules);
}

static void expect_rates(const struct optimizer_settings *settings, i64 steps, const double (*rates)[2], i64 count)
{
    struct lr_schedule s = lr_of_settings(settings, steps);
    for (i64 i = 0; i < count; i++)
        assert_float_equal(lr_at(&s, (i64)rates[i][0]), rates[i][1], 1e-15);
}

/* 200 steps; the last quarter decays from 1e-2 to a tenth of it. */
TEST(settings_say_where_a_schedule_bends)
{
    static const double wsd[][2] = {{0, 1e-3},     {4, 5e-3},      {9, 1e-2},  {150, 1e-2},
                                    {175, 5.5e-3}, {199, 1.18e-3}, {200, 1e-3}};
    static const double cosine[][2] = {{9, 1e-2}, {10, 1e-2}, {105, 5.5e-3}, {200, 1e-3}};
    static const double constant[][2] = {{9, 1e-2}, {199, 1e-2}, {200, 1e-2}};
    struct optimizer_settings s = choose("wsd", "linear");
    s.lr = 1e-2;
    s.min_lr_ratio = 0.1;
    s.warmup = 10;
    s.decay_share = 0.25;
    expect_rates(&s, 200, wsd, COUNT_OF(wsd));
    s.shape = choose("cosine", "linear").shape;
    expect_rates(&s, 200, cosine, COUNT_OF(cosine));
    s.shape = choose("constant", "linear").shape;
    expect_rates(&s, 200, constant, COUNT_OF(constant));
}

/* Warm-up takes at most half of the steps, and decay begins after it. */
TEST(a_short_run_warms_up_in_half_of_it)
{
    static const double rates[][2] = {{0, 2e-3}, {4, 1e-2}, {5, 1e-2}, {6, 8e-3}, {9, 2e-3}, {10, 0}};
    struct optimizer_settings s = choose("wsd", "linear");
    s.lr = 1e-2;
    s.min_lr_ratio = 0;
    s.warmup = -50;
    s.decay_share = 0.9;
    expect_rates(&s, 10, rates, COUNT_OF(rates));
}

/* ---- The optimizer over a table: the first two weights decay, the third does not ---- */

enum { WEIGHTS = 3 };
struct schedules_bench {
    struct golden golden;
    struct weights weights;
    struct weight *weight[WEIGHTS];
};

static void bench_open(struct schedules_bench *b, float lr_factor, const char *prefix)
{
    static const i64 sizes[WEIGHTS][2] = {{7, 5}, {1, 33}, {12, 2}};
    golden_open(&b->golden, GOLDEN "/optim/adamw.safetensors");
    b->golden.prefix = prefix;
    weights_open(&b->weights, &b->golden.device, DTYPE_F32, true, NULL);
    for (int i = 0; i < WEIGHTS; i++) {
        struct weight_spec spec = weight_matrix((const char *[]){"a", "b", "c"}[i], sizes[i][0], sizes[i][1]);
        spec.decay = i < 2;
        spec.lr_factor = lr_factor;
        b->weight[i] = weights_add(&b->weights, &spec);
    }
    weights_allocate(&b->weights);
}

static void bench_close(struct schedules_bench *b)
{
    weights_close(&b->weights);
    golden_close(&b->golden);
}

static void put_gradients(struct schedules_bench *b, const char *const names[WEIGHTS])
{
    weights_begin_step(&b->weights);
    for (int i = 0; i < WEIGHTS; i++)
        toy_set_gradient(&b->golden.device, b->weight[i], golden_load(&b->golden, names[i]));
}

static void expect_floats(struct schedules_bench *b, const char *name, const float *data, i64 n, double factor,
                          double relative, double absolute)
{
    float *got = toy_floats(&b->golden.device, data, n);
    for (i64 i = 0; i < n; i++)
        got[i] = (float)(factor * got[i]);
    golden_check(&b->golden, name, matrix_of(got, DTYPE_F32, 1, n), relative, absolute);
    memory_free(got);
}

static char *named(const char *what, int i, int t) /* valid for the next 7 calls */
{
    static char names[8][32];
    static int next;
    char *name = names[next++ % 8];
    snprintf(name, sizeof names[0], "%s.%d.%d", what, i, t);
    return name;
}

static void run_adamw(float lr_factor)
{
    struct schedules_bench b;
    struct json *setup = json_load(GOLDEN "/optim/setup.json");
    const struct json *s = json_get(setup, "adamw"), *lr = json_get(s, "lr"), *betas = json_get(s, "betas");
    const struct optimizer_settings settings = {.beta1 = json_number(json_at(betas, 0), NAN),
                                                .beta2 = json_number(json_at(betas, 1), NAN),
                                                .eps = number(s, "eps"),
                                                .weight_decay = number(s, "weight_decay")};
    bench_open(&b, lr_factor, "");
    for (int i = 0; i < WEIGHTS; i++)
        toy_set_weight(&b.weights, b.weight[i], golden_load(&b.golden, named("param", i, 0)));
    for (int t = 1; t <= json_count(lr); t++) {
        put_gradients(&b, (const char *[]){named("grad", 0, t), named("grad", 1, t), named("grad", 2, t)});
        double rate = json_number(json_at(lr, t - 1), NAN) / lr_factor;
        assert_true(optimizer_step(&b.weights, &settings, rate, t - 1).lr == rate);
        for (int i = 0; i < WEIGHTS; i++) {
            i64 n = weight_elements(b.weight[i]);
            expect_floats(&b, named("param", i, t), b.weight[i]->value.data, n, 1, 1e-6, 1e-7);
            expect_floats(&b, named("m", i, t), b.weight[i]->m, n, 1, 1e-5, 1e-10);
            expect_floats(&b, named("v", i, t), b.weight[i]->v, n, 1, 1e-5, 1e-18);
        }
    }
    bench_close(&b);
    json_free(setup);
}

TEST(a_table_of_weights_moves_as_torch_moves_it)
{
    run_adamw(1);
    run_adamw(0.5f); /* half of twice the rate */
}

/* With zero moments, m after a step is (1 - beta1) times the clipped gradient. */
TEST(gradients_are_clipped_as_torch_clips_them)
{
    static const char *const given[WEIGHTS] = {"grad.0", "grad.1", "grad.2"};
    static const char *const clipped[WEIGHTS] = {"clipped.0", "clipped.1", "clipped.2"};
    struct optimizer_settings settings = {.beta1 = 0.5, .beta2 = 0.5, .eps = 1e-8};
    for (int c = 0; c < 3; c++) {
        struct schedules_bench b;
        bench_open(&b, 1, c == 0 ? "clip.0." : "clip.1.");
        settings.clip = c < 2 ? *(const float *)golden_load(&b.golden, "max_norm") : 0; /* 0: no clipping */
        put_gradients(&b, given);
        float norm = (float)optimizer_step(&b.weights, &settings, 1e-3, 0).grad_norm;
        golden_check(&b.golden, "norm", matrix_of(&norm, DTYPE_F32, 1, 1), 1e-6, 0);
        for (int i = 0; i < WEIGHTS; i++)
            expect_floats(&b, c < 2 ? clipped[i] : given[i], b.weight[i]->m, weight_elements(b.weight[i]), 2, 1e-5, 0);
        bench_close(&b);
    }
}

TEST(a_norm_that_is_not_finite_moves_nothing)
{
    struct schedules_bench b;
    const struct optimizer_settings settings = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1};
    bench_open(&b, 1, "");
    for (int i = 0; i < WEIGHTS; i++)
        toy_set_weight(&b.weights, b.weight[i], golden_load(&b.golden, named("param", i, 0)));
    put_gradients(&b, (const char *[]){"grad.0.1", "grad.1.1", "grad.2.1"});
    float *broken = golden_load(&b.golden, "grad.1.1");
    broken[5] = INFINITY;
    toy_set_gradient(&b.golden.device, b.weight[1], broken);
    assert_true(optimizer_step(&b.weights, &settings, 1e-3, 0).skipped);
    for (int i = 0; i < WEIGHTS; i++)
        expect_floats(&b, named("param", i, 0), b.weight[i]->value.data, weight_elements(b.weight[i]), 1, 0, 0);
    bench_close(&b);
}

/* One step along a gradient, then one along -0.1 times it:
 * the first moment still points the old way. */
TEST(a_cautious_optimizer_waits_where_it_is_against_the_gradient)
{
    for (int cautious = 0; cautious < 2; cautious++) {
        struct optimizer_settings settings = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .cautious = cautious};
        struct schedules_bench b;
        bench_open(&b, 1, "");
        struct weight *w = b.weight[0];
        struct device *device = &b.golden.device;
        i64 n = weight_elements(w);
        float *gradient = golden_load(&b.golden, "grad.0.1"), *seen[4];
        for (int t = 0; t < 4; t++) { /* along, against, along */
            seen[t] = toy_floats(device, w->value.data, n);
            for (i64 i = 0; i < n && t > 0; i++)
                gradient[i] *= -0.1f;
            weights_begin_step(&b.weights);
            toy_set_gradient(device, w, gradient);
            optimizer_step(&b.weights, &settings, 1e-3, t);
        }
        for (i64 i = 0; i < n; i++) {
            assert_true(seen[0][i] != seen[1][i]);
            assert_true((seen[1][i] == seen[2][i]) == cautious); /* against the gradient */
            assert_true(seen[2][i] != seen[3][i]);               /* along it again */
        }
        for (int t = 0; t < 4; t++)
            memory_free(seen[t]);
        bench_close(&b);
    }
}

/* A step along the weights themselves pulls each towards zero; one against them pulls none. */
TEST(a_cautious_decay_is_of_weights_that_are_drawn_to_zero)
{
    for (int away = 0; away < 2; away++) {
        float *after[2];
        i64 n = 0;
        for (int cautious = 0; cautious < 2; cautious++) {
            struct optimizer_settings settings = {
                .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.5, .cautious_decay = cautious};
            struct schedules_bench b;
            bench_open(&b, 1, "");
            struct weight *w = b.weight[0];
            n = weight_elements(w);
            float *gradient = golden_load(&b.golden, "param.0.0");
            toy_set_weight(&b.weights, w, gradient);
            for (i64 i = 0; i < n; i++)
                gradient[i] *= away ? -1 : 1;
            weights_begin_step(&b.weights);
            toy_set_gradient(&b.golden.device, w, gradient);
            optimizer_step(&b.weights, &settings, 1e-3, 0);
            after[cautious] = toy_floats(&b.golden.device, w->value.data, n);
            bench_close(&b);
        }
        i64 decayed = 0;
        for (i64 i = 0; i < n; i++) {
            assert_true(fabsf(after[0][i]) <= fabsf(after[1][i]));
            decayed += after[0][i] != after[1][i];
        }
        assert_true(away ? decayed > n / 2 : decayed == 0);
        memory_free(after[0]);
        memory_free(after[1]);
    }
}

int main(void)
{
    return tests_run(NULL, NULL);
}
