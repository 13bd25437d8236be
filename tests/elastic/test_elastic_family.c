/* Draws of a family of sizes: each size in its turn, nested in one order of the experts, alone or in passes
 * beside the full model. A training step adds the weighted gradients of its passes, and the order is found
 * from the rows of a step. */
#include "elastic/expert_sums.h"
#include "submodels/submodels.h"
#include "tests/scratch.h"
#include "tests/toy_train.h"

#include <math.h>
#include <string.h>

enum { SEED = 9, SIZES = 3, STEPS = 12, SLICES = 4, START = 3 };

static struct device device;
static struct arena arena;
#define SHARE(value) ((struct schedule)SCHEDULE_CONSTANT(value))
/* {layers, experts, topk} of twelve layers, 32 experts, top-4 */
static i64 sizes[SIZES * SIZE_NAMES] = {6, 16, 2, 0, 8, 0, 9, 0, 1};

static i64 first_step[1];
static double half[] = {0.5};

static struct elastic_settings family(void)
{
    return (struct elastic_settings){.family = {sizes, SIZES},
                                     .share = {first_step, half, 1},
                                     .expert_groups = 1,
                                     .pass_weight = 0.25,
                                     .start = START / (double)STEPS};
}

static struct model_config toy(void)
{
    struct model_config c = toy_config(12, TOY_TIED);
    c.first_moe_layer = 0;
    c.experts = 32;
    c.topk = 4;
    return c;
}

static struct submodel drawn(const struct elastic_settings *s, const struct model_config *c, const double *order,
                             i64 step, i64 slice, i64 pass)
{
    struct submodel sub;
    i32 sample[2] = {0, 1};
    const struct elastic_draw draw = {s, c, order, SEED, step, STEPS, pass};
    elastic_pick(&sub, &arena, &draw, &(struct batch){.n = 2, .slice = slice, .sample = sample});
    return sub;
}

/* Number of the size; -1: the whole model. */
static i64 size_of(const struct submodel *sub, const struct model_config *c)
{
    for (i64 i = 0; i < SIZES; i++) {
        const i64 *size = sizes + i * SIZE_NAMES;
        if (sub->layer_count == (size[0] ? size[0] : c->layers) &&
            sub->expert_count == (size[1] ? size[1] : c->experts) && sub->topk == (size[2] ? size[2] : c->topk) &&
            !sub->sample_topk)
            return i;
    }
    assert_int_equal(sub->layer_count, c->layers);
    assert_int_equal(sub->expert_count, c->experts);
    assert_int_equal(sub->topk, c->topk);
    return -1;
}

/* ---- Draws ---- */

TEST(a_share_of_the_slices_runs_each_size_alike)
{
    struct model_config c = toy();
    struct elastic_settings s = family();
    i64 count[SIZES + 1] = {0}, draws = 0;
    s.start = 0;
    for (i64 step = 0; step < 3000; step++)
        for (i64 slice = 0; slice < SLICES; slice++, draws++) {
            arena_reset(&arena, 0);
            struct submodel sub = drawn(&s, &c, NULL, step, slice, 0);
            count[1 + size_of(&sub, &c)]++;
        }
    for (i64 i = 0; i <= SIZES; i++) {
        double p = i ? 0.5 / SIZES : 0.5, sigma = sqrt(p * (1 - p) / (double)draws);
        assert_true(fabs((double)count[i] / (double)draws - p) < 5 * sigma);
    }
}

TEST(passes_run_the_full_model_and_then_each_size_in_its_turn)
{
    struct model_config c = toy();
    struct elastic_settings s = family();
    bool orders_differ = false;
    s.passes = 2;
    assert_int_equal(elastic_pass_count(&s, START - 1, STEPS), 1);
    assert_int_equal(elastic_pass_count(&s, START, STEPS), 3);
    assert_true(elastic_pass_weight(&s, 0) == 1 && elastic_pass_weight(&s, 2) == 0.25);
    for (i64 slice = 0; slice < SLICES; slice++)
        for (i64 pass = 0; pass < 3; pass++) {
            i64 seen[SIZES] = {0};
            for (i64 step = START; step < STEPS; step++) {
                arena_reset(&arena, 0);
                struct submodel sub = drawn(&s, &c, NULL, step, slice, pass);
                i64 size = size_of(&sub, &c);
                assert_int_equal(sub.counts, pass == 0);
                assert_int_equal(size < 0, pass == 0);
                if (pass == 0)
                    continue;
                seen[size]++;
                assert_int_equal(seen[size], 1 + (step - START) / SIZES); /* once in each round */
                orders_differ |= size != (step - START) % SIZES;
            }
        }
    assert_true(orders_differ);
}

/* Six layers with 16 experts and top-2 are the smallest; the other passes run the other sizes. */
TEST(the_first_pass_is_the_smallest_size)
{
    struct model_config c = toy();
    struct elastic_settings s = family();
    i64 seen[SIZES] = {0};
    s.passes = 2;
    s.smallest = true;
    for (i64 step = START; step < START + 8; step++) {
        arena_reset(&arena, 0);
        struct submodel first = drawn(&s, &c, NULL, step, 0, 1), second = drawn(&s, &c, NULL, step, 0, 2);
        assert_int_equal(size_of(&first, &c), 0);
        seen[size_of(&second, &c)]++;
    }
    assert_int_equal(seen[0], 0);
    assert_int_equal(seen[1], 4);
    assert_int_equal(seen[2], 4);
}

static double flops_of(const struct submodel *sub, const struct model_config *c)
{
    struct model_config cut = submodel_config(sub, c);
    return model_flops_forward(&cut, 512, 256, 512);
}

/* The flops of all passes that a run makes, over those of its whole passes. Sizes have equal turns in
 * whole rounds of three steps. */
TEST(the_cost_of_passes_is_that_of_the_sizes_they_run)
{
    struct model_config c = toy();
    struct elastic_settings s = family();
    assert_true(elastic_passes_cost(&s, &c, STEPS) == 1);
    for (s.passes = 1; s.passes <= 3; s.passes++)
        for (int smallest = 0; smallest < 2; smallest++) {
            double sum = 0, whole = 0;
            s.smallest = smallest;
            for (i64 step = 0; step < START + 12; step++)
                for (i64 pass = 0; pass < elastic_pass_count(&s, step, STEPS); pass++) {
                    arena_reset(&arena, 0);
                    struct submodel sub = drawn(&s, &c, NULL, step, 0, pass);
                    *(pass ? &sum : &whole) += flops_of(&sub, &c);
                }
            double of_round = sum / 12 / (whole / (START + 12));
            assert_float_equal(elastic_passes_cost(&s, &c, STEPS), 1 + of_round * (STEPS - START) / STEPS, 1e-12);
        }
}

/* ---- Nested draws ---- */

static void shuffled(double *scores, const struct model_config *c)
{
    for (i64 i = 0; i < model_order_count(c); i++)
        scores[i] = rng_uniform((struct rng_key){5, RNG_TEST}, (u32)i, 0, 0, 0);
}

/* Experts of the layer with a higher score. */
static i64 better(const double *scores, const struct model_config *c, i64 layer, i64 expert, i64 first, i64 count)
{
    i64 better = 0;
    for (i64 e = first; e < first + count; e++)
        better += scores[layer * c->experts + e] > scores[layer * c->experts + expert];
    return better;
}

TEST(an_order_ranks_the_experts_of_each_layer_and_group)
{
    struct model_config c = toy();
    struct elastic_settings s = family();
    double scores[12 * 33], order[12 * 32];
    shuffled(scores, &c);
    elastic_order(order, scores, &s, &c);
    for (i64 layer = 0; layer < c.layers; layer++)
        for (i64 e = 0; e < c.experts; e++)
            assert_true(order[layer * 32 + e] == (double)(32 - better(scores, &c, layer, e, 0, 32)));
    s.expert_groups = 4;
    elastic_order(order, scores, &s, &c);
    for (i64 layer = 0; layer < c.layers; layer++)
        for (i64 e = 0; e < c.experts; e++) {
            i64 group = e / 8, place = better(scores, &c, layer, e, group * 8, 8);
            assert_true(order[layer * 32 + e] == (double)(32 - 4 * place - group));
        }
    for (i64 i = 0; i < 12 * 32; i++)
        scores[i] = 1;
    s.expert_groups = 1;
    elastic_order(order, scores, &s, &c);
    assert_true(order[0] == 32 && order[31] == 1); /* ties to the smaller id */
}

/* The first layer and the last stay whatever their place; of the others no dropped one has a higher
 * place than a kept one. */
static void assert_first_of_order(const struct submodel *sub, const double *places)
{
    bool kept[12] = {false};
    for (i64 i = 0; i < sub->layer_count; i++)
        kept[sub->layer[i]] = true;
    assert_true(kept[0] && kept[11]);
    for (i64 layer = 1; layer < 11; layer++)
        for (i64 other = 1; other < 11; other++)
            assert_false(!kept[layer] && kept[other] && places[layer] > places[other]);
}

/* What a draw keeps is what `--experts N` and `--layers N` cut out later. */
TEST(nested_draws_keep_what_is_cut_out)
{
    struct model_config c = toy();
    struct elastic_settings s = family();
    struct model model;
    double order[12 * 33];
    s.nested = true;
    s.passes = 1;
    succeed(model_open(&model, &device, &c, DTYPE_F32, false, NULL));
    shuffled(order, &c);
    elastic_order(order, order, &s, &c);
    model_set_order(&model, order);
    for (i64 step = START; step < STEPS; step++) {
        char layers[8], experts[8], topk[8];
        struct submodel cut;
        arena_reset(&arena, 0);
        struct submodel sub = drawn(&s, &c, model.order, step, 0, 1);
        snprintf(layers, sizeof layers, "%lld", (long long)sub.layer_count);
        snprintf(experts, sizeof experts, "%lld", (long long)sub.expert_count);
        snprintf(topk, sizeof topk, "%lld", (long long)sub.topk);
        succeed(submodel_parse(&cut, &arena, &(struct submodel_options){layers, experts, topk}, &model));
        assert_memory_equal(cut.layer, sub.layer, (size_t)sub.layer_count * 4);
        assert_first_of_order(&sub, order + 12 * 32);
        for (i64 layer = 0; layer < c.layers; layer++) {
            assert_int_equal(!cut.expert[layer], !sub.expert[layer]);
            for (i64 i = 0; i < sub.expert_count && sub.expert[layer]; i++) {
                assert_int_equal(cut.expert[layer][i], sub.expert[layer][i]);
                assert_true(order[layer * 32 + sub.expert[layer][i]] > (double)(32 - sub.expert_count));
            }
        }
    }
    model_close(&model);
}

/* Axes drawn one by one nest too: any two subsets of a layer hold one another. */
TEST(axes_are_nested_without_a_family)
{
    struct model_config c = toy();
    struct elastic_settings s = {.depth_full = SHARE(0),
                                 .depth_drop = SHARE(0.3),
                                 .experts_full = SHARE(0),
                                 .expert_groups = 4,
                                 .topk_full = SHARE(1),
                                 .topk_min = 1,
                                 .nested = true};
    double order[12 * 33];
    i64 layer_counts = 0, last = 0;
    shuffled(order, &c);
    elastic_order(order, order, &s, &c);
    for (i64 step = 0; step < 50; step++) {
        arena_reset(&arena, 0);
        struct submodel sub = drawn(&s, &c, order, step, 0, 0);
        i64 of_group[4] = {0};
        assert_first_of_order(&sub, order + 12 * 32);
        layer_counts += last != sub.layer_count;
        last = sub.layer_count;
        for (i64 i = 0; i < sub.expert_count; i++) {
            of_group[sub.expert[5][i] / 8]++;
            assert_true(order[5 * 32 + sub.expert[5][i]] > (double)(32 - sub.expert_count));
        }
        for (i64 g = 0; g < 4; g++)
            assert_int_equal(of_group[g], sub.expert_count / 4);
    }
    assert_true(layer_counts > 10);
}

/* ---- What is refused ---- */

static void expect_refused(const struct elastic_settings *s, const struct model_config *c, const char *why)
{
    assert_int_equal(elastic_check_settings(s, c), -1);
    if (!strstr(error_text(), why))
        fail_msg("\"%s\" does not say \"%s\"", error_text(), why);
    assert_null(strchr(error_text(), '\n'));
}

TEST(sizes_that_no_draw_can_run_are_refused)
{
    static const struct {
        i64 size[SIZE_NAMES];
        const char *why;
    } cases[] = {
        {{13, 0, 0}, "elastic.family: layers 13: expected at most 12, the model's"},
        {{1, 0, 0}, "elastic.family: layers 1: expected at least 2, which are never dropped"},
        {{0, 33, 0}, "elastic.family: experts 33: expected at most 32, the model's"},
        {{0, 0, 5}, "elastic.family: topk 5: expected at most 4, the model's"},
        {{0, 2, 0}, "elastic.family: experts 2: expected at least 4, the top-k of this size"},
        {{0, 10, 0}, "elastic.family: experts 10: expected a multiple of 4, elastic.expert_groups"},
        {{12, 32, 4}, "elastic.family: size 1 is the whole model"},
        {{0, 0, 0}, "elastic.family: size 1 is the whole model"},
    };
    struct model_config c = toy(), dense = toy();
    struct elastic_settings s = family();
    s.expert_groups = 4;
    assert_int_equal(elastic_check_settings(&s, &c), 0);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        i64 size[SIZE_NAMES];
        memcpy(size, cases[i].size, sizeof size);
        s.family = (struct size_list){size, 1};
        expect_refused(&s, &c, cases[i].why);
    }
    dense.first_moe_layer = dense.layers;
    s.family = (struct size_list){sizes, 1};
    expect_refused(&s, &dense, "elastic.family: a size names experts or topk, and the model has no experts");
}

TEST(settings_that_exclude_each_other_are_refused)
{
    struct model_config c = toy();
    struct elastic_settings s = family();
    s.smallest = true;
    expect_refused(&s, &c, "elastic.smallest is true: expected elastic.passes");
    s.passes = 2;
    assert_int_equal(elastic_check_settings(&s, &c), 0);
    s.family.count = 0;
    expect_refused(&s, &c, "elastic.passes is 2: expected elastic.family, the sizes that they run");
    s = family();
    s.nested = true;
    s.expert_groups = 5;
    expect_refused(&s, &c, "elastic.expert_groups is 5: expected a divisor of the model's 32 experts");
    s.expert_groups = 1;
    s.depth_groups = 4;
    expect_refused(&s, &c, "elastic.nested drops layers in one order, and elastic.depth_groups groups of them");
}

/* ---- A training step ---- */

static i64 toy_sizes[] = {3, 4, 1, 0, 0, 1};

static void run_open(struct toy_run *r, const struct elastic_settings *s, i64 layers)
{
    struct model_config c = toy_config(layers, TOY_ALL);
    c.experts = 8;
    c.topk = 2;
    toy_run_open(r, &device, &c, 2);
    for (i64 i = 0; i < 2; i++)
        toy_batch_init(&r->batches[i], &arena, 4, (struct rng_key){8 + (u64)i, RNG_TEST}, i);
    r->trainer.elastic = s;
    r->trainer.lr.total = 1;
    r->trainer.seed = SEED;
    r->trainer.balance.weight[TARGET_TEXT] = 1;
}

/* Adds `weight` times the gradients of the last backward to those of all weights, one after another. */
static void add_gradients(double *sum, const struct toy_run *r, double weight)
{
    for (i64 i = 0; i < r->model.weights.count; i++) {
        const struct weight *w = &r->model.weights.list[i];
        i64 n = weight_elements(w);
        if (!w->spec.trained)
            continue;
        float *gradient = toy_gradient(&device, w);
        for (i64 e = 0; e < n; e++)
            *sum++ += weight * (double)gradient[e];
        memory_free(gradient);
    }
}

/* Forward and backward of one sub-model on the micro-batch, by model_forward alone. */
static void run_alone(struct toy_run *r, i64 micro, const struct submodel *sub)
{
    struct tape tape;
    struct forward out;
    double totals[TARGETS] = {0}, factors[TARGETS];
    toy_plan(r, 0, totals);
    trainer_factors(factors, &r->trainer, totals);
    weights_begin_step(&r->model.weights);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
    tape_clear(&tape, true);
    model_forward(&out, &tape, &r->model, &r->batches[micro].batch, sub, &(struct forward_options){.factors = factors});
    tape_backward(&tape);
    tape_close(&tape);
}

TEST(a_step_adds_the_weighted_gradients_of_its_passes)
{
    static struct toy_run r;
    struct elastic_settings s = {
        .family = {toy_sizes, 2}, .passes = 2, .pass_weight = 0.25, .expert_groups = 1, .nested = true};
    arena_reset(&arena, 0);
    run_open(&r, &s, 4);
    double *scores = arena_alloc(&arena, model_order_count(&r.model.config) * 8);
    shuffled(scores, &r.model.config);
    elastic_order(scores, scores, &s, &r.model.config);
    model_set_order(&r.model, scores);
    i64 elements = weights_parameters(&r.model.weights);
    double *expected = arena_alloc(&arena, elements * 8), *alone = arena_alloc(&arena, elements * 8),
           *taken = arena_alloc(&arena, elements * 8), wrong = 0, moved = 0;
    memset(expected, 0, (size_t)elements * 8);
    memset(alone, 0, (size_t)elements * 8);
    memset(taken, 0, (size_t)elements * 8);
    for (i64 micro = 0; micro < 2; micro++)
        for (i64 pass = 0; pass < 3; pass++) {
            struct submodel sub;
            const struct elastic_draw draw = {&s, &r.model.config, r.model.order, SEED, 0, 1, pass};
            elastic_pick(&sub, &arena, &draw, &r.batches[micro].batch);
            run_alone(&r, micro, &sub);
            add_gradients(expected, &r, pass ? 0.25 : 1);
            if (pass == 0)
                add_gradients(alone, &r, 1);
        }
    struct step_result result = toy_step(&r, 0);
    add_gradients(taken, &r, 1);
    for (i64 i = 0; i < elements; i++) {
        wrong = fmax(wrong, fabs(taken[i] - expected[i]));
        moved = fmax(moved, fabs(expected[i] - alone[i]));
    }
    print_message("gradients differ by %.2g at most; the smaller passes change one by %.2g\n", wrong, moved);
    assert_true(wrong < 1e-5 * moved);
    s.passes = 0;
    s.share = SHARE(0);
    struct step_result full = toy_step(&r, 0); /* the rate is 0: the weights are the same */
    assert_int_equal(result.positions, full.positions);
    assert_true(step_mean_loss(&result, TARGET_TEXT) == step_mean_loss(&full, TARGET_TEXT));
    assert_true(result.flops > 1.5 * full.flops && result.flops < 3 * full.flops);
    toy_run_close(&r);
}

/* The loss of the rows of the step without these layers of the model: text, and a half of vision. */
static double loss_without(struct toy_run *r, const bool *gone)
{
    double loss[TARGETS] = {0}, weight[TARGETS] = {0};
    struct submodel sub;
    submodel_full(&sub, &r->model.config);
    sub.layer_count = 0;
    for (i32 layer = 0; layer < r->model.config.layers; layer++)
        if (!gone[layer])
            sub.layer[sub.layer_count++] = layer;
    for (i64 micro = 0; micro < 2; micro++) {
        struct tape tape;
        struct forward out;
        const struct batch *batch = &r->batches[micro].batch;
        tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
        tape_clear(&tape, false);
        model_forward(&out, &tape, &r->model, batch, &sub, NULL);
        for (enum target_kind kind = 0; kind < TARGETS; kind++) {
            const struct target_list *targets = &batch->targets[kind];
            double own = 0;
            for (i64 i = 0; i < targets->n && r->trainer.balance.weight[kind] > 0; i++)
                own += (double)targets->weight[i];
            loss[kind] += own > 0 ? own * forward_mean_loss(&out, &tape, kind) : 0;
            weight[kind] += own;
        }
        tape_close(&tape);
    }
    return loss[TARGET_TEXT] / weight[TARGET_TEXT] + 0.5 * loss[TARGET_VISION] / weight[TARGET_VISION];
}

/* The first layers, the last and those with heads stay. Of 11 or 9 layers two go at once, of 7 one. */
TEST(layers_go_in_the_order_of_what_their_absence_costs)
{
    enum { LAYERS = 11 };
    static struct toy_run r;
    struct elastic_settings s = {.family = {toy_sizes, 2}, .share = SHARE(0.5), .expert_groups = 1, .nested = true};
    bool gone[LAYERS] = {false};
    double place = 0, expected[LAYERS];
    arena_reset(&arena, 0);
    run_open(&r, &s, LAYERS);
    for (enum target_kind kind = 0; kind < TARGETS; kind++)
        r.trainer.balance.weight[kind] = kind == TARGET_TEXT ? 1 : kind == TARGET_VISION ? 0.5 : 0;
    i64 left = LAYERS, may_go = 0;
    for (i64 layer = 0; layer < LAYERS; layer++) {
        may_go += !elastic_layer_fixed(&r.model.config, layer);
        expected[layer] = LAYERS;
    }
    assert_true(may_go > 4);
    while (may_go > 0) {
        double losses[LAYERS];
        i64 drop = min_i64(left >= 8 ? 2 : 1, may_go);
        for (i64 layer = 0; layer < LAYERS; layer++) {
            losses[layer] = INFINITY;
            if (gone[layer] || elastic_layer_fixed(&r.model.config, layer))
                continue;
            gone[layer] = true;
            losses[layer] = loss_without(&r, gone);
            gone[layer] = false;
        }
        for (i64 i = 0; i < drop; i++, left--, may_go--) {
            i64 least = 0;
            for (i64 layer = 0; layer < LAYERS; layer++)
                if (losses[layer] < losses[least])
                    least = layer;
            losses[least] = INFINITY;
            gone[least] = true;
            expected[least] = ++place;
        }
    }
    struct step_result result = toy_step(&r, 0);
    const double *places = model_order_layers(r.model.order, &r.model.config);
    for (i64 layer = 0; layer < LAYERS; layer++)
        assert_true(places[layer] == expected[layer]);
    assert_true(result.flops > 1.5 * toy_step(&r, 1).flops); /* what was run is counted */
    toy_run_close(&r);
}

/* The sum of the rows of the step, taken here batch by batch. Once there is an order it stays. */
TEST(the_order_is_found_from_the_rows_of_a_step)
{
    static struct toy_run r;
    struct elastic_settings s = {.family = {toy_sizes, 2}, .share = SHARE(0.5), .expert_groups = 1, .nested = true};
    arena_reset(&arena, 0);
    run_open(&r, &s, 4);
    const struct model_config *c = &r.model.config;
    double gated[4 * 8] = {0}, order[4 * 8];
    struct submodel full;
    submodel_full(&full, c);
    for (i64 micro = 0; micro < 2; micro++) {
        struct tape tape;
        struct forward out;
        struct expert_sums sums = {.model = &r.model, .batch = &r.batches[micro].batch, .gated = gated};
        tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
        tape_clear(&tape, false);
        model_forward(&out, &tape, &r.model, sums.batch, &full,
                      &(struct forward_options){.see_experts = expert_sums_add, .see_context = &sums});
        tape_close(&tape);
    }
    elastic_order(order, gated, &s, c);
    toy_step(&r, 0);
    assert_non_null(r.model.order);
    assert_memory_equal(r.model.order, order, sizeof order);
    double other[4 * 9] = {[8] = 8, 7, 6, 5, 4, 3, 2, 1, [33] = 2, 1};
    model_set_order(&r.model, other);
    toy_step(&r, 0);
    assert_memory_equal(r.model.order, other, sizeof other);
    toy_run_close(&r);
}

int main(void)
{
    device_open_cpu(&device);
    arena_open(&arena, (i64)1 << 32);
    return tests_run(NULL, NULL);
}
