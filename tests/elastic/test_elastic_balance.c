/* The router's bias under elastic draws (setting balance): with `all`, every pass counts, a subset's
 * counts go to its experts in the numbering of the whole model, and they are compared with equal
 * shares among those that could have been chosen. With `width`, those of subsets move a bias of their own. The counts
 * are worked out from the kept routes. */
#include <string.h>

#include "tests/cut_fixture.h"
#include "tests/scratch.h"
#include "tests/toy_train.h"

enum { LAYERS = 6, EXPERTS = 8, SAMPLES = 8, SEED = 9, STEPS = 12, MICRO = 2, CELLS_OF_BIAS = LAYERS * EXPERTS };

static struct device device;
static struct arena arena;

/* The k of a sample may exceed the model's 2. */
static const struct elastic_settings draws = {.depth_full = SCHEDULE_CONSTANT(0.5),
                                              .depth_drop = SCHEDULE_CONSTANT(0.5),
                                              .experts_full = SCHEDULE_CONSTANT(0.3),
                                              .expert_groups = 1,
                                              .topk_full = SCHEDULE_CONSTANT(0.5),
                                              .topk_min = 1,
                                              .topk_max = 3};

/* Adds the choices of a micro-batch that count, and what an equal choice would have been, to those of
 * the first or the second bias, [2, L, E]. */
static void count(double *usage, double *expected, struct model *model, const struct batch *b,
                  const struct submodel *sub, int balance)
{
    struct tape tape;
    struct forward out;
    const struct forward_options options = {.keep_routes = true};
    i64 width = b->n * sub->topk, total = model->config.layers * width;
    i32 *routes = memory_alloc(total * 4);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
    tape_clear(&tape, false);
    model_forward(&out, &tape, model, b, sub, &options);
    device_get(&device, routes, out.routes, total * 4);
    for (i64 a = 0; a < total; a++) {
        i64 layer = a / width, sample = b->sample[a % width / sub->topk];
        const i32 *ids = sub->expert[layer];
        bool all = balance == BALANCE_ALL || (balance == BALANCE_WIDTH && ids);
        bool counts = sample >= 0 && (all || (!ids && sub->sample_topk[sample] == model->config.topk));
        i64 first = (balance == BALANCE_WIDTH && ids ? CELLS_OF_BIAS : 0) + layer * EXPERTS;
        if (routes[a] < 0 || !counts)
            continue;
        usage[first + (ids ? ids[routes[a]] : routes[a])]++;
        for (i64 e = 0; e < sub->expert_count; e++)
            expected[first + (ids ? ids[e] : e)] += 1.0 / (double)sub->expert_count;
    }
    memory_free(routes);
    tape_close(&tape);
}

static void run_open(struct toy_run *r, const struct elastic_settings *s, bool recompute)
{
    struct model_config c = toy_config(LAYERS, TOY_ALL);
    c.reduced_bias = s->balance == BALANCE_WIDTH;
    toy_run_open(r, &device, &c, MICRO);
    for (u32 i = 0; i < MICRO; i++) {
        toy_batch_init(&r->batches[i], &arena, SAMPLES, (struct rng_key){8 + i, RNG_TEST}, 0);
        r->batches[i].batch.slice = i;
    }
    r->trainer.elastic = s;
    r->trainer.recompute = recompute;
    r->trainer.seed = SEED;
    r->bias_speed = 0.25;
}

/* Both biases, [2, L, E]; 0 where there is none. */
static void get_bias(float *out, const struct model *m)
{
    memset(out, 0, 2 * CELLS_OF_BIAS * sizeof *out);
    for (i64 layer = 1; layer < LAYERS; layer++) {
        const struct weight *all[2] = {m->layer[layer].bias, m->layer[layer].reduced_bias};
        for (i64 i = 0; i < 2 && all[i]; i++) {
            float *values = toy_weight(&device, all[i]);
            memcpy(out + i * CELLS_OF_BIAS + layer * EXPERTS, values, EXPERTS * sizeof *out);
            memory_free(values);
        }
    }
}

/* Runs steps that move nothing but the biases. */
static void check_steps(struct toy_run *r, const struct elastic_settings *s)
{
    double use[CELLS_OF_BIAS], before[CELLS_OF_BIAS] = {0};
    float old[2 * CELLS_OF_BIAS], now[2 * CELLS_OF_BIAS];
    i64 moved[2][3] = {{0}};
    for (i64 step = 0; step < STEPS; step++) {
        double usage[2 * CELLS_OF_BIAS] = {0}, expected[2 * CELLS_OF_BIAS] = {0};
        for (i64 micro = 0; micro < MICRO; micro++) {
            const struct batch *b = &r->batches[micro].batch;
            struct submodel sub;
            elastic_pick(&sub, &arena, &(struct elastic_draw){s, &r->model.config, NULL, SEED, step, 0, 0}, b);
            count(usage, expected, &r->model, b, &sub, s->balance);
        }
        get_bias(old, &r->model);
        toy_step(r, step);
        get_bias(now, &r->model);
        model_use_get(use, &r->model);
        for (i64 i = 0; i < 2 * CELLS_OF_BIAS; i++) {
            double gap = expected[i] - usage[i];
            float move = gap > 1e-9 ? 0.25f : gap < -1e-9 ? -0.25f : 0;
            if (now[i] - old[i] != move)
                fail_msg("step %d, bias %d, layer %d, expert %d: %g of %g uses, the bias moved by %g", (int)step,
                         (int)i / CELLS_OF_BIAS, (int)i % CELLS_OF_BIAS / EXPERTS, (int)i % EXPERTS, usage[i],
                         expected[i], (double)(now[i] - old[i]));
            moved[i / CELLS_OF_BIAS][(move > 0) - (move < 0) + 1]++;
        }
        for (i64 i = 0; i < CELLS_OF_BIAS; i++)
            assert_true(use[i] - before[i] == usage[i] + usage[i + CELLS_OF_BIAS]);
        memcpy(before, use, sizeof use);
    }
    for (i64 i = 0; i < (r->model.config.reduced_bias ? 2 : 1); i++)
        assert_true(moved[i][0] > 20 && moved[i][1] > 20 && moved[i][2] > 20);
}

static void check_bias(const struct elastic_settings *s, bool recompute)
{
    static struct toy_run r;
    arena_reset(&arena, 0);
    run_open(&r, s, recompute);
    check_steps(&r, s);
    toy_run_close(&r);
}

TEST(passes_at_full_width_and_k_move_the_bias)
{
    check_bias(&draws, false);
    check_bias(&draws, true);
}

TEST(every_pass_moves_the_bias)
{
    struct elastic_settings s = draws;
    s.balance = BALANCE_ALL;
    check_bias(&s, false);
    check_bias(&s, true);
}

/* The cut model's biases are those of the experts `ids` in `bias` [L, E]. */
static void expect_bias(const struct model *cut, const float *bias, const i32 *ids, i64 count)
{
    for (i64 layer = 1; layer < LAYERS; layer++) {
        float *values = toy_weight(&device, cut->layer[layer].bias);
        for (i64 e = 0; e < count; e++)
            assert_true(values[e] == bias[layer * EXPERTS + ids[e]]);
        memory_free(values);
    }
}

/* A subset cut out has the bias of subsets, the whole keeps both; a saved model too. */
TEST(subsets_have_a_bias_of_their_own)
{
    static struct toy_run r;
    struct elastic_settings s = draws;
    struct model cut, stored;
    struct submodel sub;
    static const i32 ids[] = {1, 3, 4, 6}, all[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct submodel_options o = {.experts = "1,3,4,6"}, whole = {.layers = "0-5"};
    float bias[2 * CELLS_OF_BIAS], again[2 * CELLS_OF_BIAS];
    const char *folder = path_of("model");
    s.balance = BALANCE_WIDTH;
    check_bias(&s, true);
    arena_reset(&arena, 0);
    run_open(&r, &s, false);
    check_steps(&r, &s);
    get_bias(bias, &r.model);
    assert_memory_not_equal(bias, bias + CELLS_OF_BIAS, sizeof bias / 2);
    succeed(submodel_parse(&sub, &arena, &o, &r.model));
    succeed(toy_cut(&cut, &r.model, &sub, path_of("toy_cut")));
    assert_false(cut.config.reduced_bias);
    expect_bias(&cut, bias + CELLS_OF_BIAS, ids, 4);
    model_close(&cut);
    succeed(submodel_parse(&sub, &arena, &whole, &r.model));
    succeed(toy_cut(&cut, &r.model, &sub, path_of("toy_cut")));
    assert_true(cut.config.reduced_bias);
    expect_bias(&cut, bias, all, EXPERTS);
    succeed(directory_make(folder));
    succeed(model_save(&cut, folder));
    model_close(&cut);
    succeed(model_load(&stored, &device, folder, DTYPE_F32, false));
    get_bias(again, &stored);
    assert_memory_equal(again, bias, sizeof bias);
    model_close(&stored);
    toy_run_close(&r);
}

TEST(a_bias_that_a_model_lacks_is_refused)
{
    struct model_config c = toy_config(LAYERS, TOY_ALL);
    struct elastic_settings s = draws;
    s.balance = BALANCE_WIDTH;
    assert_int_equal(elastic_check_settings(&s, &c), -1);
    assert_says("balance is width, and the model has one selection bias");
    c.reduced_bias = true;
    succeed(elastic_check_settings(&s, &c));
    s.balance = BALANCE_ALL;
    assert_int_equal(elastic_check_settings(&s, &c), -1);
    assert_says("balance is all");
}

/* Steps before the first draw count as before: their equal shares are the mean. */
TEST(full_passes_count_alike)
{
    struct elastic_settings s = draws, full = draws;
    struct toy_run *a = memory_alloc(sizeof *a), *b = memory_alloc(sizeof *b);
    arena_reset(&arena, 0);
    s.balance = BALANCE_ALL;
    s.start = full.start = 0.9;
    run_open(a, &s, false);
    run_open(b, &full, false);
    a->trainer.lr.total = b->trainer.lr.total = 100;
    for (i64 step = 0; step < STEPS; step++) {
        toy_step(a, step);
        toy_step(b, step);
    }
    for (i64 layer = 1; layer < LAYERS; layer++) {
        float *x = toy_weight(&device, a->model.layer[layer].bias),
              *y = toy_weight(&device, b->model.layer[layer].bias);
        assert_memory_equal(x, y, EXPERTS * sizeof *x);
        memory_free(x);
        memory_free(y);
    }
    toy_run_close(a);
    toy_run_close(b);
    memory_free(a);
    memory_free(b);
}

int main(void)
{
    device_open_cpu(&device);
    arena_open(&arena, (i64)1 << 32);
    return tests_run(make_directory, remove_directory);
}
