/* Elastic draws: frequencies match the settings, independently on each axis; required layers are
 * always kept; draws do not depend on how the global batch is split; and a training step runs the
 * drawn sub-model. Keys are fixed; frequencies are within 5 standard deviations of a binomial (a
 * correct sampler exceeds that once in 2 million). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/loader/packer.h"
#include "tests/shard_fixture.h"
#include "tests/test.h"
#include "tests/toy_train.h"

enum { DRAWS = 20000, SAMPLES = 8, SEED = 9 };

static struct device device;
static struct arena arena;

static const struct elastic_settings settings = {.depth_full = SCHEDULE_CONSTANT(0.75),
                                                 .depth_drop = SCHEDULE_CONSTANT(0.25),
                                                 .experts_full = SCHEDULE_CONSTANT(0.8),
                                                 .expert_groups = 4,
                                                 .topk_full = SCHEDULE_CONSTANT(0.8),
                                                 .topk_min = 1,
                                                 .slice_rows = 4};

/* Ten layers, of which the first and the last two, with audio heads, must be kept; 32 experts in 4
 * groups, top 4. */
static struct model_config big_toy(void)
{
    struct model_config c = toy_config(10, TOY_ALL);
    c.experts = 32;
    c.topk = 4;
    return c;
}

static struct batch bare_batch(i64 slice, i32 *sample, i64 n)
{
    for (i64 i = 0; i < n; i++)
        sample[i] = (i32)i;
    return (struct batch){.n = n, .slice = slice, .sample = sample};
}

/* Draw i is step i / 8, slice i % 8. */
static struct submodel drawn(const struct elastic_settings *s, const struct model_config *c, i64 i)
{
    struct submodel sub;
    i32 *sample = arena_alloc(&arena, SAMPLES * 4);
    struct batch b = bare_batch(i % 8, sample, SAMPLES);
    elastic_pick(&sub, &arena, &(struct elastic_draw){s, c, NULL, SEED, i / 8, 0, 0}, &b);
    return sub;
}

static void expect_share(const char *what, double count, double n, double p)
{
    double sigma = sqrt(p * (1 - p) / n);
    if (!(fabs(count / n - p) <= 5 * sigma))
        fail_msg("%s: %.4f of %.0f, expected %.4f +- %.4f", what, count / n, n, p, sigma);
}

static bool has_layer(const struct submodel *sub, i64 layer)
{
    for (i64 i = 0; i < sub->layer_count; i++)
        if (sub->layer[i] == layer)
            return true;
    return false;
}

static bool has_expert(const struct submodel *sub, i64 layer, i64 expert)
{
    if (!sub->expert[layer])
        return true;
    for (i64 i = 0; i < sub->expert_count; i++)
        if (sub->expert[layer][i] == expert)
            return true;
    return false;
}

/* ---- Depth ---- */

TEST(layers_are_dropped_as_often_as_said)
{
    struct model_config c = big_toy();
    double absent[16] = {0}, both = 0, full = 0, neighbour = 0;
    for (i64 i = 0; i < DRAWS; i++) {
        arena_reset(&arena, 0);
        struct submodel sub = drawn(&settings, &c, i);
        full += sub.layer_count == c.layers;
        for (i64 layer = 0; layer < c.layers; layer++)
            absent[layer] += !has_layer(&sub, layer);
        both += !has_layer(&sub, 2) && !has_layer(&sub, 5);
        arena_reset(&arena, 0);
        struct submodel next = drawn(&settings, &c, i ^ 1); /* another slice of the same step */
        neighbour += !has_layer(&sub, 2) && !has_layer(&next, 2);
        for (i64 k = 1; k < sub.layer_count; k++)
            assert_true(sub.layer[k - 1] < sub.layer[k]);
    }
    for (i64 layer = 0; layer < c.layers; layer++)
        expect_share("a layer is absent", absent[layer], DRAWS, layer == 0 || layer >= 8 ? 0 : 0.25 * 0.25);
    expect_share("all layers", full, DRAWS, 0.75 + 0.25 * pow(0.75, 7));
    expect_share("two layers are absent together", both, DRAWS, 0.25 * 0.25 * 0.25);
    expect_share("a layer is absent in two slices", neighbour / 2, DRAWS / 2.0, pow(0.25 * 0.25, 2));
}

TEST(a_layer_that_must_stay_is_never_dropped)
{
    struct elastic_settings harsh = settings;
    struct model_config c = big_toy(), silent = toy_config(10, TOY_TIED);
    harsh.depth_full = (struct schedule)SCHEDULE_CONSTANT(0);
    harsh.depth_drop = (struct schedule)SCHEDULE_CONSTANT(1);
    for (i64 i = 0; i < 100; i++) {
        arena_reset(&arena, 0);
        struct submodel sub = drawn(&harsh, &c, i);
        assert_int_equal(sub.layer_count, 3);
        assert_true(has_layer(&sub, 0) && has_layer(&sub, 8) && has_layer(&sub, 9)); /* first, heads, last */
        sub = drawn(&harsh, &silent, i);
        assert_int_equal(sub.layer_count, 2);
        assert_true(has_layer(&sub, 0) && has_layer(&sub, 9));
    }
}

/* ---- Experts ---- */

static void check_groups(const struct submodel *sub, const struct model_config *c, i64 layer)
{
    i64 size = c->experts / settings.expert_groups;
    for (i64 g = 0; g < settings.expert_groups; g++) {
        i64 members = 0;
        for (i64 i = 0; i < sub->expert_count; i++)
            members += sub->expert[layer][i] / size == g;
        assert_int_equal(members, sub->expert_count / settings.expert_groups);
    }
    for (i64 i = 1; i < sub->expert_count; i++)
        assert_true(sub->expert[layer][i - 1] < sub->expert[layer][i]);
    assert_true(sub->expert[layer][0] >= 0 && sub->expert[layer][sub->expert_count - 1] < c->experts);
}

/* A subset has 4 to 7 of a group's 8 experts, each size equally likely, so an expert is kept with
 * probability 5.5 / 8. */
TEST(experts_are_drawn_as_often_as_said)
{
    struct model_config c = big_toy();
    double subsets = 0, share[8] = {0}, present[32] = {0}, both = 0, layers = 0;
    for (i64 i = 0; i < DRAWS; i++) {
        arena_reset(&arena, 0);
        struct submodel sub = drawn(&settings, &c, i);
        assert_null(sub.expert[0]); /* dense layer */
        if (sub.expert_count == c.experts)
            continue;
        subsets++;
        share[sub.expert_count / 4]++;
        for (i64 layer = 1; layer < c.layers; layer++)
            check_groups(&sub, &c, layer);
        for (i64 e = 0; e < c.experts; e++)
            present[e] += has_expert(&sub, 3, e);
        if (sub.expert_count == 16) { /* half of each group: tests 2 experts of one group, and 1 expert in 2 layers */
            both += has_expert(&sub, 3, 0) && has_expert(&sub, 3, 1);
            layers += has_expert(&sub, 3, 6) && has_expert(&sub, 4, 6);
        }
    }
    expect_share("a subset", subsets, DRAWS, 0.2);
    for (i64 s = 0; s < 8; s++)
        expect_share("experts of each group", share[s], subsets, s >= 4 ? 0.25 : 0);
    for (i64 e = 0; e < c.experts; e++)
        expect_share("an expert is in a subset", present[e], subsets, 5.5 / 8);
    expect_share("two experts of a group are in its half", both, share[4], 4.0 / 8 * 3.0 / 7);
    expect_share("an expert is in the halves of two layers", layers, share[4], 0.25);
}

TEST(no_subset_is_smaller_than_said)
{
    struct elastic_settings s = settings;
    struct model_config c = big_toy();
    i64 smallest = c.experts;
    s.experts_full = (struct schedule)SCHEDULE_CONSTANT(0);
    s.experts_min = 23; /* 6 of each group of 8 is the smallest size that reaches it */
    for (i64 i = 0; i < 1000; i++) {
        arena_reset(&arena, 0);
        smallest = min_i64(smallest, drawn(&s, &c, i).expert_count);
    }
    assert_int_equal(smallest, 24);
}

/* ---- Top-k ---- */

TEST(topk_is_drawn_as_often_as_said)
{
    struct model_config c = big_toy();
    double k[5] = {0}, together = 0, alike = 0;
    for (i64 i = 0; i < DRAWS / 8; i++) {
        arena_reset(&arena, 0);
        struct submodel sub = drawn(&settings, &c, 8 * i); /* the step's samples, in any slice */
        assert_int_equal(sub.topk, c.topk);
        for (i64 sample = 0; sample < SAMPLES; sample++) {
            assert_in_range(sub.sample_topk[sample], 1, c.topk);
            k[sub.sample_topk[sample]]++;
        }
        together += sub.sample_topk[0] < c.topk && sub.sample_topk[1] < c.topk;
        alike += sub.sample_topk[0] < c.topk && sub.sample_topk[0] == sub.sample_topk[1];
    }
    expect_share("full top-k", k[4], DRAWS, 0.8);
    for (i64 i = 1; i < 4; i++)
        expect_share("a smaller top-k", k[i], DRAWS, 0.2 / 3);
    expect_share("two samples have a smaller top-k", together, DRAWS / 8.0, 0.2 * 0.2);
    expect_share("two samples have the same smaller top-k", alike, DRAWS / 8.0, 0.2 * 0.2 / 3);
}

/* ---- Each axis alone ---- */

TEST(the_axes_are_independent)
{
    struct model_config c = big_toy();
    double depth_experts = 0, depth_topk = 0, experts_topk = 0, depth = 0.25 * (1 - pow(0.75, 7));
    for (i64 i = 0; i < DRAWS; i++) {
        arena_reset(&arena, 0);
        struct submodel sub = drawn(&settings, &c, i);
        bool fewer_layers = sub.layer_count < c.layers, fewer_experts = sub.expert_count < c.experts;
        bool smaller = sub.sample_topk[i % 8] < c.topk; /* each sample of the step once */
        depth_experts += fewer_layers && fewer_experts;
        depth_topk += fewer_layers && smaller;
        experts_topk += fewer_experts && smaller;
    }
    expect_share("fewer layers and experts", depth_experts, DRAWS, depth * 0.2);
    expect_share("fewer layers and a smaller top-k", depth_topk, DRAWS, depth * 0.2);
    expect_share("fewer experts and a smaller top-k", experts_topk, DRAWS, 0.2 * 0.2);
}

/* Samples at full top-k update the router's bias only if all experts are present. */
TEST(subsets_of_experts_do_not_count)
{
    struct model_config c = big_toy();
    for (i64 i = 0; i < 1000; i++) {
        arena_reset(&arena, 0);
        struct submodel sub = drawn(&settings, &c, i);
        assert_int_equal(sub.counts, sub.expert_count == c.experts);
    }
}

TEST(all_ones_are_the_full_model)
{
    struct elastic_settings full = settings;
    struct model_config c = big_toy();
    full.depth_full = full.experts_full = full.topk_full = (struct schedule)SCHEDULE_CONSTANT(1);
    for (i64 i = 0; i < 1000; i++) {
        arena_reset(&arena, 0);
        struct submodel sub = drawn(&full, &c, i);
        assert_true(sub.layer_count == c.layers && sub.expert_count == c.experts && sub.counts);
        for (i64 sample = 0; sample < SAMPLES; sample++)
            assert_int_equal(sub.sample_topk[sample], c.topk);
    }
}

/* ---- Steps before the first draw ---- */

static bool is_full(const struct submodel *sub, const struct model_config *c)
{
    bool full = sub->layer_count == c->layers && sub->expert_count == c->experts && sub->topk == c->topk && sub->counts;
    for (i64 sample = 0; sub->sample_topk && sample < SAMPLES; sample++)
        full &= sub->sample_topk[sample] == c->topk;
    for (i64 layer = 0; layer < c->layers; layer++)
        full &= !sub->expert[layer];
    return full;
}

static void expect_same(const struct submodel *a, const struct submodel *b, const struct model_config *c)
{
    assert_int_equal(a->layer_count, b->layer_count);
    assert_memory_equal(a->layer, b->layer, (size_t)a->layer_count * 4);
    assert_int_equal(a->expert_count, b->expert_count);
    for (i64 layer = 0; layer < c->layers; layer++) {
        assert_int_equal(!a->expert[layer], !b->expert[layer]);
        if (a->expert[layer])
            assert_memory_equal(a->expert[layer], b->expert[layer], (size_t)a->expert_count * 4);
    }
    assert_int_equal(a->topk, b->topk);
    assert_memory_equal(a->sample_topk, b->sample_topk, SAMPLES * 4);
    assert_int_equal(a->counts, b->counts);
}

/* The first floor(start * steps) steps are full; the draws of the others do not depend on start. */
TEST(nothing_is_drawn_before_the_start)
{
    static const struct {
        double start;
        i64 steps, first;
    } cases[] = {{0, 50, 0}, {0.5, 50, 25}, {0.5, 51, 25}, {0.29, 100, 29}, {0.999, 100, 99}, {0.001, 100, 0}};
    struct model_config c = big_toy();
    struct batch b;
    i32 sample[SAMPLES];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct elastic_settings late = settings, always = settings;
        i64 reduced = 0;
        late.start = cases[i].start;
        for (i64 step = 0; step < cases[i].steps; step++)
            for (i64 slice = 0; slice < 8; slice++) {
                struct submodel sub, other;
                arena_reset(&arena, 0);
                b = bare_batch(slice, sample, SAMPLES);
                elastic_pick(&sub, &arena, &(struct elastic_draw){&late, &c, NULL, SEED, step, cases[i].steps, 0}, &b);
                elastic_pick(&other, &arena, &(struct elastic_draw){&always, &c, NULL, SEED, step, cases[i].steps, 0},
                             &b);
                if (step < cases[i].first) {
                    assert_true(is_full(&sub, &c));
                    continue;
                }
                expect_same(&sub, &other, &c);
                reduced += step == cases[i].first && !is_full(&sub, &c);
            }
        assert_true(reduced > 0); /* the first step of draws draws */
    }
}

/* ---- Axes that the settings or the model switch off ---- */

/* elastic_check, and what it logs. */
static int checked(char said[1024], const struct elastic_settings *s, const struct model_config *c)
{
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    assert_non_null(log);
    fflush(stderr);
    dup2(fileno(log), STDERR_FILENO);
    int status = elastic_check(s, c, 1);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(log);
    said[fread(said, 1, 1023, log)] = 0;
    fclose(log);
    return status;
}

static void expect_refused(const struct elastic_settings *s, const struct model_config *c, const char *words)
{
    char said[1024];
    assert_int_equal(checked(said, s, c), -1);
    assert_int_equal(error_status(), STATUS_USAGE);
    if (!strstr(error_text(), words))
        fail_msg("\"%s\" does not say \"%s\"", error_text(), words);
}

static void expect_line(const struct elastic_settings *s, const struct model_config *c, const char *words)
{
    char said[1024];
    assert_int_equal(checked(said, s, c), 0);
    if (words ? !strstr(said, words) : *said)
        fail_msg("\"%s\" does not say \"%s\"", said, words ? words : "");
}

TEST(no_axis_is_switched_off_without_a_word)
{
    struct elastic_settings s = settings;
    struct model_config c = big_toy(), small = c, dense = c, flat = c;
    expect_line(&s, &c, NULL);
    for (s.topk_min = 4; s.topk_min <= 5; s.topk_min++)
        expect_refused(&s, &c, "expected at most 3, less than the model's top-k of 4");
    s.topk_full = (struct schedule)SCHEDULE_CONSTANT(1);
    expect_line(&s, &c, NULL); /* asked for */
    s = settings;
    s.topk_min = 3;
    expect_line(&s, &c, NULL);
    s = settings;
    for (s.experts_min = 29; s.experts_min <= 33; s.experts_min += 2) /* 29 of 4 groups rounds up to 32 */
        expect_refused(&s, &c, "expected at most 28");
    s.experts_min = 28;
    expect_line(&s, &c, NULL);
    s.experts_min = 32;
    s.experts_full = (struct schedule)SCHEDULE_CONSTANT(1);
    expect_line(&s, &c, NULL);
    s = settings;
    small.topk = 1;
    expect_line(&s, &small, "every sample uses the full top-k: the model's is 1");
    s.topk_min = 2;
    expect_refused(&s, &small, "elastic.topk_min is 2: expected at most 1");
    s = settings;
    small.topk = 29; /* 8 of each group */
    expect_line(&s, &small, "every slice uses all 32 experts");
    s.expert_groups = 32;
    expect_line(&s, &c, "every slice uses all 32 experts");
    s = settings;
    dense.first_moe_layer = dense.layers;
    expect_line(&s, &dense, "the model has no experts");
    s.start = 1;
    expect_refused(&s, &dense, "elastic.start is 1: expected less than 1");
    s.start = 0.999;
    expect_line(&s, &dense, "the model has no experts");
    s = settings;
    flat.layers = 3; /* the first, and two with audio heads */
    expect_line(&s, &flat, "every slice runs all 3 layers");
    s.depth_drop = (struct schedule)SCHEDULE_CONSTANT(0);
    expect_line(&s, &flat, NULL);
}

/* ---- Any split of the global batch ---- */

enum { ROWS = 8, LENGTH = 96, STEPS = 12 };

/* Hashes what each row runs: its layers, its experts, the top-k of its positions. */
static void hash_rows(u64 hash[ROWS], struct loader *loader, const struct model_config *c, i64 step, i64 micro_batches)
{
    for (i64 micro = 0; micro < micro_batches; micro++) {
        struct batch b;
        struct submodel sub;
        arena_reset(&arena, 0);
        assert_int_equal(loader_batch(loader, step, micro, &b, &arena), 0);
        elastic_pick(&sub, &arena, &(struct elastic_draw){&settings, c, NULL, SEED, step, 0, 0}, &b);
        for (i64 row = 0; row < b.rows; row++) {
            u64 h = hash_bytes(sub.layer, sub.layer_count * 4, (u64)sub.expert_count);
            for (i64 layer = 1; layer < c->layers && sub.expert[layer]; layer++)
                h = hash_bytes(sub.expert[layer], sub.expert_count * 4, h);
            for (i64 i = row * LENGTH; i < (row + 1) * LENGTH; i++) {
                i64 of[2] = {b.sample[i], b.sample[i] < 0 ? 0 : sub.sample_topk[b.sample[i]]};
                h = hash_bytes(of, sizeof of, h);
            }
            hash[b.first_row + row] = h;
        }
    }
}

TEST(any_split_runs_the_same_sub_models)
{
    static i64 zero_step[1];
    static double rows[] = {ROWS}, length[] = {LENGTH};
    struct model_config c = big_toy();
    char *folder = fixture_shards("elastic", 400, 40);
    struct loader_settings s = {.rows = {zero_step, rows, 1},
                                .length = {zero_step, length, 1},
                                .slice_rows = 4,
                                .mixture = {1, 1, 1, 1, 1, 1, 1, 1}};
    u64 want[STEPS][ROWS], got[ROWS];
    i64 differ = 0;
    for (s.micro_rows = 4; s.micro_rows >= 1; s.micro_rows /= 2) {
        struct loader *loader = loader_open(folder, "train", &s, 5);
        assert_non_null(loader);
        for (i64 step = 0; step < STEPS; step++) {
            hash_rows(s.micro_rows == 4 ? want[step] : got, loader, &c, step, ROWS / s.micro_rows);
            if (s.micro_rows < 4)
                assert_memory_equal(got, want[step], sizeof got);
            else
                differ += memcmp(want[0], want[step], sizeof want[0]) != 0;
        }
        loader_close(loader);
    }
    assert_int_equal(differ, STEPS - 1);
    directory_remove(folder);
    memory_free(folder);
}

/* ---- Sub-models of a training step ---- */

static const struct elastic_settings halves = {.depth_full = SCHEDULE_CONSTANT(0.5),
                                               .depth_drop = SCHEDULE_CONSTANT(0.5),
                                               .experts_full = SCHEDULE_CONSTANT(0.5),
                                               .expert_groups = 2,
                                               .topk_full = SCHEDULE_CONSTANT(0.5),
                                               .topk_min = 1};

static void run_open(struct toy_run *r)
{
    struct model_config c = toy_config(6, TOY_ALL);
    toy_run_open(r, &device, &c, 1);
    toy_batch_init(&r->batches[0], &arena, SAMPLES, (struct rng_key){8, RNG_TEST}, 0);
    r->trainer.elastic = &halves;
    r->trainer.recompute = true;
    r->trainer.seed = SEED;
}

/* Mean losses of the same batch through a sub-model, from model_forward directly. */
static void losses_of(double loss[TARGETS], struct toy_run *r, const struct submodel *sub)
{
    struct tape tape;
    struct forward out;
    struct step_result result;
    struct step_sums *sums = step_sums_open(&device);
    struct step_end end;
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
    tape_clear(&tape, false);
    model_forward(&out, &tape, &r->model, &r->batches[0].batch, sub, NULL);
    step_sums_clear(&device, sums);
    step_sums_add(&device, sums, &out, &r->model.config);
    step_sums_get(&result, &end, &device, sums);
    step_sums_close(&device, sums);
    for (int kind = 0; kind < TARGETS; kind++)
        loss[kind] = step_mean_loss(&result, kind);
    tape_close(&tape);
}

/* Gradients exist exactly for the matrices of the layers in the sub-model. */
static void check_gradients(const struct toy_run *r, const struct submodel *sub)
{
    for (i64 i = 0; i < r->model.weights.count; i++) {
        const struct weight *w = &r->model.weights.list[i];
        bool stacked = w->spec.elastic == ELASTIC_EXPERT_MATRICES;
        if (!w->spec.trained || w->spec.layer < 0 || w->spec.layer >= r->model.config.layers)
            continue;
        for (i64 p = 0; p < w->matrices; p++) {
            bool kept = has_layer(sub, w->spec.layer) && (!stacked || has_expert(sub, w->spec.layer, p));
            if (toy_has_gradient(&device, w, p) && !kept)
                fail_msg("%s, part %d has a gradient and is not in the sub-model", w->spec.name, (int)p);
            if (!stacked && kept)
                assert_true(toy_has_gradient(&device, w, p));
        }
    }
}

TEST(a_step_runs_the_sub_model_it_drew)
{
    static struct toy_run r;
    double full[TARGETS], loss[TARGETS];
    i64 fewer_layers = 0, fewer_experts = 0;
    struct submodel whole;
    arena_reset(&arena, 0);
    run_open(&r);
    submodel_full(&whole, &r.model.config);
    losses_of(full, &r, &whole);
    for (i64 step = 0; step < 12; step++) {
        struct submodel sub;
        bool differ = false;
        r.batches[0].batch.slice = step % 3;
        elastic_pick(&sub, &arena, &(struct elastic_draw){&halves, &r.model.config, NULL, SEED, step, 0, 0},
                     &r.batches[0].batch);
        struct step_result result = toy_step(&r, step);
        losses_of(loss, &r, &sub);
        for (int kind = 0; kind < TARGETS; kind++) {
            assert_true(step_mean_loss(&result, kind) == loss[kind]);
            differ |= loss[kind] != full[kind];
        }
        assert_true(differ); /* at least one sample has a smaller top-k */
        check_gradients(&r, &sub);
        fewer_layers += sub.layer_count < r.model.config.layers;
        fewer_experts += sub.expert_count < r.model.config.experts;
    }
    assert_true(fewer_layers > 0 && fewer_experts > 0);
    toy_run_close(&r);
}

int main(void)
{
    device_open_cpu(&device);
    arena_open(&arena, (i64)1 << 32);
    return tests_run(NULL, NULL);
}
