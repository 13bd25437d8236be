/* Online distillation: which sub-models are taught, the gradient of a taught step, and what a teacher
 * leaves alone: its own weights, the router's counters, the losses that are reported. */
#include "core/json.h"
#include "tests/toy_train.h" /* before pretrain_toy.h, whose `device` its parameters would shadow */
#include "tests/pretrain_toy.h"
#include "train/memory_estimate.h"
#include "train/synthetic_batches.h"

#include <math.h>

enum { SEED = 6, LAYERS = 6, SAMPLES = 8, DRAWS = 20000 };
static struct arena arena;

/* Settings of the stage with `elastic` (flow YAML), so that the draws are those of a recipe. */
static void settings_open(struct pretrain_settings *s, const char *elastic)
{
    char *text = string_format("{data: %s, batch: {rows: 8, length: 64, micro_rows: 4}, elastic: %s}", shards, elastic);
    struct yaml *recipe = yaml_parse(text, (i64)strlen(text), "settings");
    assert_non_null(recipe);
    memset(s, 0, sizeof *s);
    succeed(settings_read(s, pretrain_table, yaml_root(recipe), NULL, NULL, 0));
    yaml_free(recipe);
    memory_free(text);
}

/* ---- Draws ---- */

static i64 taught_share(const struct elastic_settings *s, const struct submodel *sub, const struct model_config *c,
                        const i32 *sample, i64 n)
{
    i64 taught = 0;
    for (i64 i = 0; i < DRAWS; i++) {
        struct batch b = {.n = n, .slice = i % 8, .sample = (i32 *)(uintptr_t)sample};
        taught += elastic_is_taught(s, sub, c, SEED, i / 8, &b);
    }
    return taught;
}

TEST(smaller_sub_models_are_taught_as_often_as_said)
{
    struct elastic_settings s = {.distill = 0.3};
    struct model_config c = toy_config(LAYERS, TOY_ALL), dense = c;
    struct submodel full, sub;
    static const i32 samples[] = {0, 1, -1, 2}, some[] = {0, -1, 2};
    static const i32 all_k[] = {2, 2, 2}, one_less[] = {2, 1, 2}, more[] = {3, 2, 3};
    double sigma = sqrt(0.3 * 0.7 / DRAWS);
    submodel_full(&full, &c);
    full.sample_topk = all_k;
    assert_int_equal(taught_share(&s, &full, &c, samples, 4), 0);
    full.sample_topk = more;
    assert_int_equal(taught_share(&s, &full, &c, samples, 4), 0);
    sub = full;
    sub.layer_count--;
    i64 once = taught_share(&s, &sub, &c, samples, 4);
    assert_true(fabs((double)once / DRAWS - 0.3) < 5 * sigma);
    sub = full;
    sub.expert_count /= 2;
    assert_int_equal(taught_share(&s, &sub, &c, samples, 4), once); /* one draw per slice, of any axis */
    sub = full;
    sub.sample_topk = one_less;
    assert_int_equal(taught_share(&s, &sub, &c, samples, 4), once);
    assert_int_equal(taught_share(&s, &sub, &c, some, 3), 0); /* the smaller sample is in another micro-batch */
    dense.first_moe_layer = LAYERS;
    assert_int_equal(taught_share(&s, &sub, &dense, samples, 4), 0);
    s.distill = 1;
    assert_int_equal(taught_share(&s, &sub, &c, samples, 4), DRAWS);
    s.distill = 0;
    assert_int_equal(taught_share(&s, &sub, &c, samples, 4), 0);
}

/* ---- Steps ---- */

struct distill_run {
    struct toy_run r;
    struct pretrain_settings s;
    bool elastic;
};

/* weight < 0: no teacher. elastic NULL: the student is the full model. */
static void run_open(struct distill_run *d, struct device *on, const char *elastic, double weight, i64 micro_batches)
{
    struct model_config c = toy_config(LAYERS, TOY_ALL);
    arena_reset(&arena, 0);
    memset(d, 0, sizeof *d);
    toy_run_open(&d->r, on, &c, micro_batches);
    for (i64 i = 0; i < micro_batches; i++) {
        toy_batch_init(&d->r.batches[i], &arena, SAMPLES, (struct rng_key){8 + (u64)i, RNG_TEST}, 0);
        d->r.batches[i].batch.slice = i;
    }
    d->r.trainer.seed = SEED;
    d->r.trainer.balance.weight[TARGET_MTP] = 0;
    d->elastic = elastic != NULL;
    if (elastic)
        settings_open(&d->s, elastic);
    d->r.trainer.elastic = elastic ? &d->s.elastic : NULL;
    if (weight >= 0)
        succeed(trainer_open_teacher(&d->r.trainer, weight, (i64)1 << 28));
}

static void run_close(struct distill_run *d)
{
    if (d->elastic)
        settings_release(&d->s, pretrain_table);
    toy_run_close(&d->r);
}

static struct step_result run_once(float **gradients, const char *elastic, double weight, bool recompute,
                                   i64 micro_batches)
{
    static struct distill_run d;
    run_open(&d, &device, elastic, weight, micro_batches);
    d.r.trainer.recompute = recompute;
    struct step_result result = toy_step(&d.r, 0);
    for (i64 i = 0; i < d.r.model.weights.count; i++)
        gradients[i] =
            d.r.model.weights.list[i].spec.trained ? toy_gradient(&device, &d.r.model.weights.list[i]) : NULL;
    gradients[d.r.model.weights.count] = NULL;
    run_close(&d);
    return result;
}

enum { GRADIENTS_MOST = 256 };
/* Fails unless got = share_a a + share_b b for the gradient of every weight. */
static void expect_mixed(float **got, float **a, double share_a, float **b, double share_b, double tolerance)
{
    struct model_config c = toy_config(LAYERS, TOY_ALL);
    static struct model shapes;
    double largest = 0;
    succeed(model_open(&shapes, &device, &c, DTYPE_F32, true, NULL));
    assert_true(shapes.weights.count < GRADIENTS_MOST);
    for (i64 i = 0; i < shapes.weights.count; i++) {
        const struct weight *w = &shapes.weights.list[i];
        double most = 0, apart = 0;
        for (i64 k = 0; got[i] && k < weight_elements(w); k++) {
            double want = share_a * (double)a[i][k] + (b ? share_b * (double)b[i][k] : 0);
            most = fmax(most, fabs(want));
            apart = fmax(apart, fabs(want - (double)got[i][k]));
        }
        if (!(apart <= tolerance * most))
            fail_msg("%s: gradients differ by %g of %g", w->spec.name, apart, most);
        largest = fmax(largest, most);
    }
    assert_true(largest > 1e-4);
    model_close(&shapes);
}

static void free_gradients(float **gradients)
{
    for (i64 i = 0; i < GRADIENTS_MOST; i++) {
        memory_free(gradients[i]);
        gradients[i] = NULL;
    }
}

TEST(a_teacher_equal_to_the_student_leaves_the_share_of_the_targets)
{
    static float *alone[GRADIENTS_MOST], *taught[GRADIENTS_MOST];
    struct step_result a = run_once(alone, NULL, -1, false, 1), b = run_once(taught, NULL, 0.25, false, 1);
    for (int kind = 0; kind < TARGETS; kind++) {
        assert_true(step_mean_loss(&a, kind) == step_mean_loss(&b, kind));
        assert_true(b.divergence[kind] == 0);
        assert_true((b.taught_weight[kind] > 0) == (kind != TARGET_MTP));
        assert_true(a.taught_weight[kind] == 0);
    }
    expect_mixed(taught, alone, 0.75, NULL, 0, 1e-4);
    free_gradients(alone);
    free_gradients(taught);
}

/* Keeps the layers 0, 4 and 5: the first, and those with audio heads. */
static const char shallow[] = "{depth_full: 0, depth_drop: 1, experts_full: 1, topk_full: 1, distill: 1}";
static const char mixed[] = "{depth_full: 0.4, depth_drop: 0.5, experts_full: 0.4, topk_full: 0.5, distill: 0.6}";

TEST(the_weight_mixes_both_gradients)
{
    static float *alone[GRADIENTS_MOST], *none[GRADIENTS_MOST], *half[GRADIENTS_MOST], *all[GRADIENTS_MOST];
    struct step_result a = run_once(alone, shallow, -1, false, 2), b = run_once(none, shallow, 0, false, 2);
    struct step_result c = run_once(half, shallow, 0.5, false, 2), d = run_once(all, shallow, 1, false, 2);
    expect_mixed(none, alone, 1, NULL, 0, 1e-4);
    expect_mixed(half, none, 0.5, all, 0.5, 1e-4);
    for (int kind = 0; kind < TARGETS; kind++) {
        assert_true(step_mean_loss(&a, kind) == step_mean_loss(&d, kind));
        assert_true(b.divergence[kind] == d.divergence[kind] && c.divergence[kind] == d.divergence[kind]);
        if (kind != TARGET_MTP)
            assert_true(d.divergence[kind] > 0.01 * d.taught_weight[kind]);
    }
    free_gradients(alone);
    free_gradients(none);
    free_gradients(half);
    free_gradients(all);
}

TEST(no_gradient_reaches_the_teacher)
{
    static struct distill_run d;
    i64 without = 0;
    run_open(&d, &device, shallow, 1, 2);
    struct step_result result = toy_step(&d.r, 0);
    assert_true(result.divergence[TARGET_TEXT] > 0);
    for (i64 i = 0; i < d.r.model.weights.count; i++) {
        const struct weight *w = &d.r.model.weights.list[i];
        bool dropped = w->spec.layer >= 1 && w->spec.layer <= 3;
        for (i64 p = 0; dropped && w->spec.trained && p < w->matrices; p++, without++)
            if (toy_has_gradient(&device, w, p))
                fail_msg("%s, part %d, has a gradient and only the teacher reads it", w->spec.name, (int)p);
        assert_int_equal(w->value.uses, 0);
    }
    assert_true(without > 12);
    run_close(&d);
}

TEST(a_recomputed_step_has_the_same_gradients)
{
    static float *kept[GRADIENTS_MOST], *again[GRADIENTS_MOST];
    run_once(kept, mixed, 0.5, false, 4);
    run_once(again, mixed, 0.5, true, 4);
    expect_mixed(again, kept, 1, NULL, 0, 0);
    free_gradients(kept);
    free_gradients(again);
}

/* ---- Finite differences: the student's weights move, the teacher's rows stay ---- */

struct frozen_teacher {
    struct toy_run *r;
    struct tape tape;
    struct teacher teacher;
    struct submodel sub;
    double factors[TARGETS];
    i64 taught, untaught; /* targets */
};

/* Mean mixed loss over all targets. */
static double objective(struct frozen_teacher *f, struct tape *tape)
{
    struct forward out;
    const struct batch *b = &f->r->batches[0].batch;
    const struct forward_options options = {.factors = f->factors, .teacher = &f->teacher};
    double sum = 0;
    model_forward(&out, tape, &f->r->model, b, &f->sub, &options);
    f->taught = f->untaught = 0;
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 level = 0; kind != TARGET_MTP && level < target_levels(kind, &f->r->model.config.sizes); level++) {
            const struct target_list *t = &b->targets[kind];
            float *loss = toy_floats(&device, out.loss[kind][level].value, t->n);
            float *soft = toy_floats(&device, out.loss[kind][level].divergence, t->n);
            double share = f->factors[kind] / (double)target_levels(kind, &f->r->model.config.sizes);
            for (i64 i = 0; i < t->n; i++) {
                bool taught = submodel_is_smaller(&f->sub, &f->r->model.config, b->sample[t->position[i]]);
                double w = taught ? (double)f->teacher.weight : 0;
                sum += share * (double)t->weight[i] * ((1 - w) * (double)loss[i] + w * (double)soft[i]);
                taught ? f->taught++ : f->untaught++;
            }
            memory_free(loss);
            memory_free(soft);
        }
    return sum;
}

/* Moves a weight along its gradient, by which the objective has to grow. */
static void check_slope(struct frozen_teacher *f, struct tape *tape, struct weight *w, const float *gradient)
{
    float *values = toy_weight(&device, w), *moved = memory_alloc(weight_elements(w) * 4);
    double norm = 0, step = 2.5e-4, at[2]; /* small, so that no position changes its experts */
    for (i64 i = 0; i < weight_elements(w); i++)
        norm += (double)gradient[i] * (double)gradient[i];
    norm = sqrt(norm);
    assert_true(norm > 1e-3);
    for (int side = 0; side < 2; side++) {
        for (i64 i = 0; i < weight_elements(w); i++)
            moved[i] = values[i] + (float)((side ? -step : step) * (double)gradient[i] / norm);
        toy_set_weight(&f->r->model.weights, w, moved);
        tape_clear(tape, false);
        at[side] = objective(f, tape);
    }
    toy_set_weight(&f->r->model.weights, w, values);
    if (!(fabs((at[0] - at[1]) / (2 * step) - norm) <= 0.03 * norm))
        fail_msg("%s: slope %g, by differences %g", w->spec.name, norm, (at[0] - at[1]) / (2 * step));
    memory_free(values);
    memory_free(moved);
}

static void check_slopes(const struct submodel *sub, bool all_taught)
{
    static struct distill_run d;
    static struct frozen_teacher f;
    static struct tape tape;
    run_open(&d, &device, NULL, -1, 1);
    f.r = &d.r;
    tape_open(&f.tape, &device, DTYPE_F32, (i64)1 << 28);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
    toy_totals(f.factors, &d.r.batches[0].batch);
    for (int kind = 0; kind < TARGETS; kind++)
        f.factors[kind] = kind == TARGET_MTP || f.factors[kind] == 0 ? 0 : 1 / f.factors[kind];
    f.teacher.weight = 0.7f;
    f.sub = *sub;
    model_teach(&f.teacher, &f.tape, &d.r.model, &d.r.batches[0].batch);
    weights_begin_step(&d.r.model.weights);
    tape_clear(&tape, true);
    objective(&f, &tape);
    tape_backward(&tape);
    struct model *m = &d.r.model;
    struct weight *some[] = {m->layer[0].qkv,         m->layer[2].out,  m->layer[4].norm2, m->norm,
                             m->audio_head[0],        m->audio_norm[1], m->audio_embed,    m->vision_embed,
                             m->vision_norm,          m->vision_head,   m->scale_embed,    m->layer[5].router,
                             m->layer[2].experts_down};
    float *gradients[COUNT_OF(some)];
    for (i64 i = 0; i < COUNT_OF(some); i++)
        gradients[i] = toy_gradient(&device, some[i]);
    for (i64 i = 0; i < COUNT_OF(some); i++) {
        check_slope(&f, &tape, some[i], gradients[i]);
        memory_free(gradients[i]);
    }
    assert_true(f.taught > 0 && (f.untaught == 0) == all_taught);
    tape_close(&tape);
    tape_close(&f.tape);
    run_close(&d);
}

TEST(gradients_are_those_of_the_mixed_loss)
{
    static const i32 ids[] = {0, 1, 2, 4, 6, 7};
    struct submodel sub = {.layer_count = 4, .layer = {0, 2, 4, 5}, .expert_count = 6, .topk = 2};
    for (i64 layer = 0; layer < LAYERS; layer++)
        sub.expert[layer] = ids;
    check_slopes(&sub, true);
}

/* Samples with the full top-k learn from their targets alone. */
TEST(only_samples_with_a_smaller_topk_are_taught)
{
    static const i32 topk[SAMPLES] = {2, 1, 2, 1, 1, 2, 1, 2};
    struct model_config c = toy_config(LAYERS, TOY_ALL);
    struct submodel sub;
    struct step_result result;
    static float *gradients[GRADIENTS_MOST];
    submodel_full(&sub, &c);
    sub.sample_topk = topk;
    check_slopes(&sub, false);
    result = run_once(gradients, "{depth_full: 1, experts_full: 1, topk_full: 0.5, distill: 1}", 0.5, false, 2);
    free_gradients(gradients);
    for (int kind = 0; kind < TARGETS; kind++) {
        double weight = 0;
        for (int stream = 0; stream < LOSS_STREAMS; stream++)
            weight += result.weight[stream][kind];
        if (kind == TARGET_TEXT)
            assert_true(result.taught_weight[kind] > 0 && result.taught_weight[kind] < weight);
    }
}

/* ---- Counters ---- */

/* The use of experts and the router's biases after some steps without a learning rate. */
static double *run_counters(float **biases, double *flops, double weight)
{
    static struct distill_run d;
    run_open(&d, &device, mixed, weight, 4);
    i64 count = model_use_count(&d.r.model.config);
    double *use = memory_alloc(count * 8);
    d.r.bias_speed = 0.01;
    *flops = 0;
    for (i64 step = 0; step < 3; step++)
        *flops += toy_step(&d.r, step).flops;
    model_use_get(use, &d.r.model);
    for (i64 layer = 0; layer < LAYERS; layer++)
        biases[layer] = d.r.model.layer[layer].bias ? toy_weight(&device, d.r.model.layer[layer].bias) : NULL;
    run_close(&d);
    return use;
}

TEST(the_router_counts_nothing_of_the_teacher)
{
    struct model_config c = toy_config(LAYERS, TOY_ALL);
    float *alone_bias[LAYERS], *taught_bias[LAYERS];
    double alone_flops, taught_flops, used = 0;
    i64 count = model_use_count(&c);
    double *alone = run_counters(alone_bias, &alone_flops, -1), *taught = run_counters(taught_bias, &taught_flops, 0.5);
    assert_memory_equal(alone, taught, count * 8);
    for (i64 i = 0; i < count; i++)
        used += alone[i];
    assert_true(used > 0);
    for (i64 layer = 0; layer < LAYERS; layer++) {
        if (alone_bias[layer])
            assert_memory_equal(alone_bias[layer], taught_bias[layer], c.experts * 4);
        memory_free(alone_bias[layer]);
        memory_free(taught_bias[layer]);
    }
    assert_true(taught_flops > alone_flops);
    memory_free(alone);
    memory_free(taught);
}

TEST(flops_of_a_step_count_the_teachers_forward)
{
    static float *gradients[GRADIENTS_MOST];
    static struct toy_batch batches[2];
    struct model_config c = toy_config(LAYERS, TOY_ALL);
    struct submodel full;
    double forward = 0;
    double alone = run_once(gradients, NULL, -1, false, 2).flops;
    free_gradients(gradients);
    double taught = run_once(gradients, NULL, 0.5, false, 2).flops;
    free_gradients(gradients);
    submodel_full(&full, &c);
    c.mtp = false;
    for (u64 i = 0; i < 2; i++) {
        toy_batch_init(&batches[i], &arena, SAMPLES, (struct rng_key){8 + i, RNG_TEST}, 0);
        forward += step_flops(&c, &batches[i].batch, &full);
    }
    assert_true(fabs(taught - alone - forward) < 1e-9 * alone);
}

/* ---- Memory ---- */

static void measure_step(struct step_memory *out, const struct pretrain_settings *s, const struct model_config *c,
                         struct device *on)
{
    static struct model model;
    static struct trainer trainer;
    struct synthetic_batches batches;
    struct step_result result;
    succeed(model_open(&model, on, c, DTYPE_F32, true, NULL));
    trainer_open(&trainer, &model, (i64)1 << 30);
    if (pretrain_distills(s))
        succeed(trainer_open_teacher(&trainer, 0.5, (i64)1 << 30));
    synthetic_batches_init(&batches, c, 8, 4, 64, 1);
    trainer.source = synthetic_batches_source(&batches);
    trainer.optimizer = &s->optimizer;
    trainer.balance.weight[TARGET_MTP] = 1;
    for (i64 step = 0; step < 2; step++)
        succeed(train_step(&result, &trainer, step));
    step_memory_of(out, &trainer);
    synthetic_batches_release(&batches);
    trainer_close(&trainer);
    model_close(&model);
}

TEST(the_estimate_has_the_memory_of_a_teacher)
{
    struct model_config c = toy_config(LAYERS, TOY_ALL);
    i64 activations[2], hidden = 4 * 64 * c.width * 4;
    double flops[2];
    for (int distill = 0; distill < 2; distill++) {
        struct pretrain_settings s;
        struct step_needs needs = {0};
        struct step_memory measured;
        settings_open(&s, distill ? "{distill: 0.1}" : "{distill: 0}");
        measure_step(&measured, &s, &c, &device);
        struct step_work work = {.settings = &s, .config = &c, .dtype = DTYPE_F32, .layout = {.data = 1}, .ranks = 1};
        succeed(step_estimate(&needs, &work, 0));
        assert_int_equal(needs.memory.activations, measured.activations);
        activations[distill] = needs.memory.activations;
        flops[distill] = needs.flops;
        settings_release(&s, pretrain_table);
    }
    assert_true(activations[1] >= activations[0] + 3 * hidden); /* its state, its text rows, a chunk of logits */
    assert_true(flops[0] == flops[1]);
}

/* A teacher's tape holds one layer at a time. */
TEST(more_layers_take_no_more_memory_of_a_teacher)
{
    i64 bytes[2];
    for (int deep = 0; deep < 2; deep++) {
        static struct model model;
        struct tape tape;
        struct teacher teacher;
        struct model_config c = toy_config(deep ? 24 : 6, TOY_ALL);
        arena_reset(&arena, 0);
        static struct toy_batch batch;
        toy_batch_init(&batch, &arena, SAMPLES, (struct rng_key){8, RNG_TEST}, 0);
        toy_open(&model, &device, &c, true);
        tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
        model_teach(&teacher, &tape, &model, &batch.batch);
        bytes[deep] = tape_peak_bytes(&tape);
        tape_close(&tape);
        model_close(&model);
    }
    assert_int_equal(bytes[0], bytes[1]);
}

/* ---- Layouts ---- */

TEST(ranks_that_would_share_a_teacher_are_refused)
{
    static const struct {
        struct layout layout;
        i64 ranks;
        const char *words; /* NULL: taken */
    } cases[] = {{{.pipeline = 2}, 2, "has a pipeline"},
                 {{.chunks = 2}, 1, "has a pipeline"},
                 {{.data = 2, .expert = 2}, 2, "2 expert ranks"},
                 {{.data = 2}, 2, NULL},
                 {{.tensor = 2}, 2, NULL}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        static struct model model;
        static struct trainer trainer;
        struct device meta;
        struct parallel parallel;
        struct model_config c = toy_config(LAYERS, 0);
        device_open_meta(&meta);
        struct comm *world = comm_open_meta(&meta, 0, cases[i].ranks);
        succeed(parallel_open(&parallel, world, &cases[i].layout));
        succeed(model_open(&model, &meta, &c, DTYPE_F32, true, &parallel));
        trainer_open(&trainer, &model, (i64)1 << 28);
        int status = trainer_open_teacher(&trainer, 0.5, (i64)1 << 28);
        assert_int_equal(status, cases[i].words ? -1 : 0);
        if (cases[i].words) {
            assert_int_equal(error_status(), STATUS_USAGE);
            assert_non_null(strstr(error_text(), cases[i].words));
        }
        trainer_close(&trainer);
        model_close(&model);
        parallel_close(&parallel);
        comm_close(world);
        device_close(&meta);
    }
}

/* ---- The stage ---- */

enum { STEPS = 4 };
static void train(const char *name, const char *elastic)
{
    char *settings = string_format("steps: %d, elastic: %s", STEPS, elastic);
    pretrain_toy(name, (struct stage){.seed = SEED, .dtype = DTYPE_F32}, settings);
    memory_free(settings);
}

static i64 count_metric(const char *name, const char *metric)
{
    double values[STEPS];
    i64 count = 0;
    toy_metric(values, STEPS, name, metric);
    for (i64 step = 0; step < STEPS; step++)
        count += isfinite(values[step]) && values[step] > 0;
    return count;
}

#define SHALLOW "start: 0, depth_full: 0, depth_drop: 1, experts_full: 1, topk_full: 1"
TEST(the_settings_reach_the_step)
{
    double plain[STEPS], none[STEPS], weightless[STEPS], taught[STEPS];
    train("plain", "{on: true, " SHALLOW "}");
    train("none", "{on: true, distill: 0, distill_weight: 1, " SHALLOW "}");
    train("weightless", "{on: true, distill: 1, distill_weight: 0, " SHALLOW "}");
    train("taught", "{on: true, distill: 1, distill_weight: 0.9, " SHALLOW "}");
    train("whole", "{on: true, start: 0, distill: 1, depth_full: 1, experts_full: 1, topk_full: 1}");
    toy_metric(plain, STEPS, "plain", "loss/text");
    toy_metric(none, STEPS, "none", "loss/text");
    toy_metric(weightless, STEPS, "weightless", "loss/text");
    toy_metric(taught, STEPS, "taught", "loss/text");
    assert_memory_equal(plain, none, sizeof plain);
    assert_true(plain[0] == taught[0]);
    for (i64 step = 0; step < STEPS; step++) {
        assert_true(fabs(plain[step] - weightless[step]) < 1e-3);
        assert_true(step == 0 || fabs(plain[step] - taught[step]) > 1e-4);
    }
    assert_int_equal(count_metric("plain", "distill/text"), 0);
    assert_int_equal(count_metric("none", "distill/text"), 0);
    assert_int_equal(count_metric("whole", "distill/text"), 0);
    assert_int_equal(count_metric("taught", "distill/text"), STEPS);
    assert_int_equal(count_metric("taught", "distill/mtp"), 0);
    assert_true(count_metric("taught", "distill/vision") > 0 && count_metric("taught", "distill/audio") > 0);
}

static int make(void **state)
{
    arena_open(&arena, (i64)1 << 32);
    return make_shards(state, "distill");
}

int main(void)
{
    return tests_run(make, remove_shards);
}
