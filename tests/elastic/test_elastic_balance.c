/* The router's bias under elastic draws (setting balance): with `all`, every pass counts, a subset's
 * counts go to its experts in the numbering of the whole model, and they are compared with equal
 * shares among those that could have been chosen. The counts are worked out from the kept routes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tests/toy_train.h"

enum { LAYERS = 6, EXPERTS = 8, SAMPLES = 8, SEED = 9, STEPS = 12, MICRO = 2 };

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

/* Adds the choices of a micro-batch that count, and what an equal choice would have been. */
static void count(double *usage, double *expected, struct model *model, const struct batch *b,
                  const struct submodel *sub, bool all)
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
        bool counts = sample >= 0 && (all || (!ids && sub->sample_topk[sample] == model->config.topk));
        if (routes[a] < 0 || !counts)
            continue;
        usage[layer * EXPERTS + (ids ? ids[routes[a]] : routes[a])]++;
        for (i64 e = 0; e < sub->expert_count; e++)
            expected[layer * EXPERTS + (ids ? ids[e] : e)] += 1.0 / (double)sub->expert_count;
    }
    memory_free(routes);
    tape_close(&tape);
}

static void run_open(struct toy_run *r, const struct elastic_settings *s, bool recompute)
{
    struct model_config c = toy_config(LAYERS, TOY_ALL);
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

/* Runs steps that move nothing but the bias. */
static void check_bias(const struct elastic_settings *s, bool recompute)
{
    static struct toy_run r;
    double use[LAYERS * EXPERTS], before[LAYERS * EXPERTS] = {0};
    i64 up = 0, down = 0, still = 0;
    arena_reset(&arena, 0);
    run_open(&r, s, recompute);
    for (i64 step = 0; step < STEPS; step++) {
        double usage[LAYERS * EXPERTS] = {0}, expected[LAYERS * EXPERTS] = {0};
        float *bias[LAYERS] = {0};
        for (i64 micro = 0; micro < MICRO; micro++) {
            const struct batch *b = &r.batches[micro].batch;
            struct submodel sub;
            elastic_pick(&sub, &arena, s, &r.model.config, SEED, step, 0, b);
            count(usage, expected, &r.model, b, &sub, s->balance == BALANCE_ALL);
        }
        for (i64 layer = 1; layer < LAYERS; layer++)
            bias[layer] = toy_weight(&device, r.model.layer[layer].bias);
        toy_step(&r, step);
        model_use_get(use, &r.model);
        for (i64 layer = 1; layer < LAYERS; layer++) {
            float *now = toy_weight(&device, r.model.layer[layer].bias);
            for (i64 e = 0; e < EXPERTS; e++) {
                i64 at = layer * EXPERTS + e;
                double gap = expected[at] - usage[at];
                float move = gap > 1e-9 ? 0.25f : gap < -1e-9 ? -0.25f : 0;
                if (now[e] - bias[layer][e] != move)
                    fail_msg("step %d, layer %d, expert %d: %g of %g uses, the bias moved by %g", (int)step, (int)layer,
                             (int)e, usage[at], expected[at], (double)(now[e] - bias[layer][e]));
                assert_true(use[at] - before[at] == usage[at]);
                up += move > 0;
                down += move < 0;
                still += move == 0;
            }
            memory_free(now);
            memory_free(bias[layer]);
        }
        memcpy(before, use, sizeof use);
    }
    assert_true(up > 20 && down > 20 && still > 20);
    toy_run_close(&r);
}

static void passes_at_full_width_and_k_move_the_bias(void **state)
{
    (void)state;
    check_bias(&draws, false);
    check_bias(&draws, true);
}

static void every_pass_moves_the_bias(void **state)
{
    struct elastic_settings s = draws;
    (void)state;
    s.balance = BALANCE_ALL;
    check_bias(&s, false);
    check_bias(&s, true);
}

/* Steps before the first draw count as before: their equal shares are the mean. */
static void full_passes_count_alike(void **state)
{
    struct elastic_settings s = draws, full = draws;
    struct toy_run *a = memory_alloc(sizeof *a), *b = memory_alloc(sizeof *b);
    (void)state;
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_at_full_width_and_k_move_the_bias),
        cmocka_unit_test(every_pass_moves_the_bias),
        cmocka_unit_test(full_passes_count_alike),
    };
    device_open_cpu(&device);
    arena_open(&arena, (i64)1 << 32);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
