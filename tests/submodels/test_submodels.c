/* Sub-models by options, the grid of sub-models, and extraction: the kept layers and experts, and
 * parameter counts worked out by hand. */
#include <math.h>
#include "core/json.h"
#include "submodels/submodels.h"
#include "tests/cut_fixture.h"
#include "tests/scratch.h"
#include "tests/toy.h"
#include "train/synthetic_batches.h"

enum { LAYERS = 10, EXPERTS = 8, TOPK = 4 };

static struct device device;
static struct model model;
static struct arena arena;

/* The first layer is dense. In layer l, expert e was used
 * (7 e + l) % 5 times, so that ties occur. */
static double use_of(i64 layer, i64 expert)
{
    return (double)((7 * expert + layer) % 5);
}

static int setup(void **state)
{
    make_directory(state);
    device_open_cpu(&device);
    arena_open(&arena, (i64)1 << 28);
    struct model_config c = toy_config(LAYERS, TOY_DENSE);
    c.topk = TOPK;
    toy_open(&model, &device, &c, false);
    double use[LAYERS * EXPERTS];
    for (i64 l = 0; l < LAYERS; l++)
        for (i64 e = 0; e < EXPERTS; e++)
            use[l * EXPERTS + e] = use_of(l, e);
    model_use_put(&model, use);
    return 0;
}

static int teardown(void **state)
{
    model_close(&model);
    arena_close(&arena);
    device_close(&device);
    return remove_directory(state);
}

static struct submodel parsed(const char *layers, const char *experts, const char *topk)
{
    struct submodel sub;
    struct submodel_options o = {layers, experts, topk};
    succeed(submodel_parse(&sub, &arena, &o, &model));
    return sub;
}

static void refused(const char *layers, const char *experts, const char *topk)
{
    struct submodel sub;
    struct submodel_options o = {layers, experts, topk};
    assert_int_equal(submodel_parse(&sub, &arena, &o, &model), -1);
}

static bool is_kept(const struct submodel *sub, i64 layer, i64 expert)
{
    for (i64 i = 0; i < sub->expert_count; i++)
        if (sub->expert[layer][i] == expert)
            return true;
    return false;
}

/* ---- Options ---- */

/* No kept expert was used less than a dropped one; among ties the smaller ids are kept. */
TEST(the_most_used_experts_stay)
{
    struct submodel sub = parsed(NULL, "5", NULL);
    assert_int_equal(sub.expert_count, 5);
    assert_false(sub.counts);
    for (i64 l = 1; l < LAYERS; l++)
        for (i64 stays = 0; stays < EXPERTS; stays++)
            for (i64 goes = 0; goes < EXPERTS; goes++)
                if (is_kept(&sub, l, stays) && !is_kept(&sub, l, goes))
                    assert_true(use_of(l, stays) > use_of(l, goes) ||
                                (use_of(l, stays) == use_of(l, goes) && stays < goes));
    for (i64 l = 1; l < LAYERS; l++)
        for (i64 i = 1; i < 5; i++)
            assert_true(sub.expert[l][i - 1] < sub.expert[l][i]);
}

TEST(ranges_name_their_ends)
{
    struct submodel sub = parsed("0,2-4,9", "1,3-5", "2");
    static const i32 layers[] = {0, 2, 3, 4, 9}, experts[] = {1, 3, 4, 5};
    assert_int_equal(sub.layer_count, 5);
    assert_memory_equal(sub.layer, layers, sizeof layers);
    assert_int_equal(sub.expert_count, 4);
    assert_memory_equal(sub.expert[7], experts, sizeof experts);
    assert_int_equal(sub.topk, 2);
    assert_true(parsed(NULL, NULL, NULL).counts && parsed(NULL, "8", NULL).counts);
    refused("0-10", NULL, NULL);
    refused("3-1", NULL, NULL);
    refused(NULL, "9", NULL);
    refused(NULL, "0", NULL);
    refused(NULL, NULL, "0");
    refused(NULL, "3", NULL);                          /* top-k is 4 */
    assert_int_equal(parsed(NULL, NULL, "8").topk, 8); /* above the model's, up to the kept experts */
    assert_int_equal(parsed(NULL, "6", "6").topk, 6);
    refused(NULL, NULL, "9");
    refused(NULL, "5", "6");
}

/* A number of layers keeps the first, the last and those with heads; one list for each layer may be
 * given as it is. */
TEST(numbers_and_lists_are_told_apart)
{
    struct submodel sub = parsed("6", NULL, NULL), other;
    assert_int_equal(sub.layer_count, 6);
    assert_int_equal(sub.layer[0], 0);
    assert_int_equal(sub.layer[5], LAYERS - 1);
    sub = parsed("6-6", NULL, NULL);
    assert_int_equal(sub.layer_count, 1);
    assert_int_equal(sub.layer[0], 6);
    refused("11", NULL, NULL);
    assert_says("the model has 10 layers");
    refused("1", NULL, NULL);
    assert_says("expected 2 or more");
    sub = parsed(NULL, "[[],[0,7],[1,2],[0,7],[1,2],[0,7],[1,2],[0,7],[1,2],[3,4]]", "2");
    assert_int_equal(sub.expert_count, 2);
    assert_int_equal(sub.expert[9][1], 4);
    refused(NULL, "[[],[0,7]]", "2");
    double scores[LAYERS * EXPERTS];
    for (i64 i = 0; i < LAYERS * EXPERTS; i++)
        scores[i] = -use_of(i / EXPERTS, i % EXPERTS);
    const struct submodel_options o = {NULL, "5", NULL};
    succeed(submodel_parse_by(&other, &arena, &o, &model, scores));
    sub = parsed(NULL, "5", NULL);
    assert_true(is_kept(&sub, 3, 3) && !is_kept(&other, 3, 3)); /* used (21 + 3) % 5 = 4 times */
    assert_true(is_kept(&other, 3, 6) && !is_kept(&sub, 3, 6)); /* and 0 times */
}

/* Without counts a number says nothing of which experts to keep. */
TEST(a_number_of_experts_needs_counts)
{
    double use[LAYERS * EXPERTS], none[LAYERS * EXPERTS] = {0};
    struct grid_point points[16];
    model_use_get(use, &model);
    model_use_put(&model, none);
    refused(NULL, "5", NULL);
    assert_says("`weft extract --data DIR`");
    parsed(NULL, "8", NULL);
    parsed(NULL, "0-4", NULL);
    i64 count = elastic_grid(points, 16, &arena, &model, NULL);
    for (i64 i = 0; i < count; i++)
        assert_int_equal(points[i].sub.expert_count, EXPERTS);
    model_use_put(&model, use);
}

/* ---- Targets ---- */

static void expect_shape(const struct submodel_target *target, i64 layers, i64 experts, i64 topk)
{
    const struct submodel_shape top = {LAYERS, EXPERTS, TOPK}, least = {2, 1, 1};
    struct submodel_shape s;
    assert_true(submodel_shape_in_order(&s, &model, &least, &top, target));
    assert_int_equal(s.layers, layers);
    assert_int_equal(s.experts, experts);
    assert_int_equal(s.topk, topk);
}

/* k first, for active parameters alone, to a quarter; then layers, to 3/4; then experts. */
TEST(without_data_axes_give_way_in_order)
{
    struct submodel full;
    submodel_full(&full, &model.config);
    double active = (double)model_parameters_active(&model.config);
    struct model_config c = model.config;
    c.topk = 2;
    double half = (double)model_parameters_active(&c) / active;
    expect_shape(&(struct submodel_target){.active = half}, LAYERS, EXPERTS, 2);
    expect_shape(&(struct submodel_target){.active = half * 0.999}, LAYERS, EXPERTS, 1);
    const struct submodel_size all = submodel_size(&full, &model);
    expect_shape(&(struct submodel_target){.bytes = all.bytes}, LAYERS, EXPERTS, TOPK);
    expect_shape(&(struct submodel_target){.bytes = all.bytes - 1}, LAYERS - 1, EXPERTS, TOPK);
    struct submodel fewer = full;
    submodel_keep_layers(&fewer, &model.config, NULL, 8); /* 3/4 of 10, rounded up */
    i64 bytes = submodel_size(&fewer, &model).bytes;
    expect_shape(&(struct submodel_target){.bytes = bytes}, 8, EXPERTS, TOPK);
    expect_shape(&(struct submodel_target){.bytes = bytes - 1}, 8, EXPERTS - 1, TOPK);
    struct submodel_shape s;
    const struct submodel_shape top = {LAYERS, EXPERTS, TOPK}, least = {2, 1, 1};
    assert_false(submodel_shape_in_order(&s, &model, &least, &top, &(struct submodel_target){.bytes = 1}));
}

/* Every shape fits, none contains another, and every shape that fits is within one of them. */
TEST(shapes_are_the_largest_that_fit)
{
    struct submodel_shape shapes[256];
    const struct submodel_shape top = {LAYERS, EXPERTS, TOPK}, least = {2, 1, 1};
    const struct submodel_target targets[] = {{.active = 0.6}, {.parameters = 0.5}, {.active = 0.7, .parameters = 0.6}};
    struct submodel full;
    submodel_full(&full, &model.config);
    const struct submodel_size all = submodel_size(&full, &model);
    for (i64 t = 0; t < COUNT_OF(targets); t++) {
        i64 count = submodel_shapes(shapes, 256, &model, &least, &top, &targets[t]), seen = 0;
        assert_true(count > 1 && count < 256);
        for (i64 layers = 2; layers <= LAYERS; layers++)
            for (i64 experts = 1; experts <= EXPERTS; experts++)
                for (i64 topk = 1; topk <= TOPK && topk <= experts; topk++) {
                    struct submodel sub = full;
                    submodel_keep_layers(&sub, &model.config, NULL, layers);
                    sub.expert_count = experts;
                    sub.topk = topk;
                    const struct submodel_size size = submodel_size(&sub, &model);
                    bool within = false, is = false;
                    for (i64 i = 0; i < count; i++) {
                        const struct submodel_shape *s = &shapes[i];
                        within |= s->layers >= layers && s->experts >= experts && s->topk >= topk;
                        is |= s->layers == layers && s->experts == experts && s->topk == topk;
                    }
                    assert_int_equal(within, submodel_fits(&size, &all, &targets[t]));
                    seen += is;
                }
        assert_int_equal(seen, count);
        for (i64 i = 0; i < count; i++)
            for (i64 j = 0; j < count; j++)
                assert_false(i != j && shapes[i].layers >= shapes[j].layers && shapes[i].experts >= shapes[j].experts &&
                             shapes[i].topk >= shapes[j].topk);
    }
}

/* ---- The grid ---- */

static const struct grid_point *point_of(const struct grid_point *points, i64 count, const char *name)
{
    for (i64 i = 0; i < count; i++)
        if (strcmp(points[i].name, name) == 0)
            return &points[i];
    fail_msg("no sub-model %s", name);
    return NULL;
}

/* Matrix parameters of `layers` layers, the first dense, with `experts` experts each. */
static i64 matrices_of(i64 layers, i64 experts)
{
    const struct model_config *c = &model.config;
    i64 attention = c->width * (c->heads + 2 * c->kv_heads) * c->head_width + c->heads * c->head_width * c->width;
    return layers * attention + 3 * c->width * c->dense_width +
           (layers - 1) * (c->width * EXPERTS + experts * 3 * c->width * c->expert_width);
}

static void expect_point(const struct grid_point *p, i64 layers, i64 experts, i64 topk)
{
    assert_int_equal(p->sub.layer_count, layers);
    assert_int_equal(p->sub.expert_count, experts);
    assert_int_equal(p->sub.topk, topk);
}

TEST(the_grid_halves_and_drops_as_it_says)
{
    struct grid_point points[16];
    i64 count = elastic_grid(points, 16, &arena, &model, NULL), norms = 2 * model.config.width;
    assert_int_equal(count, 9);
    expect_point(point_of(points, count, "full"), LAYERS, EXPERTS, TOPK);
    expect_point(point_of(points, count, "k/2"), LAYERS, EXPERTS, 2);
    expect_point(point_of(points, count, "k/4"), LAYERS, EXPERTS, 1);
    expect_point(point_of(points, count, "experts 3/4"), LAYERS, 6, TOPK);
    expect_point(point_of(points, count, "experts 1/2"), LAYERS, 4, TOPK);
    expect_point(point_of(points, count, "layers -1/8"), LAYERS - 2, EXPERTS, TOPK); /* 10 / 8, rounded up */
    expect_point(point_of(points, count, "layers -2/8"), LAYERS - 3, EXPERTS, TOPK);
    expect_point(point_of(points, count, "layers -2/8, experts 1/2, k/2"), LAYERS - 3, 4, 2);
    const struct grid_point *full = point_of(points, count, "full"), *fewer = point_of(points, count, "k/2");
    assert_int_equal(full->active, matrices_of(LAYERS, TOPK));
    assert_int_equal(full->parameters, weights_parameters(&model.weights));
    assert_int_equal(full->parameters - point_of(points, count, "layers -2/8, experts 1/2, k/2")->parameters,
                     matrices_of(LAYERS, EXPERTS) - matrices_of(LAYERS - 3, 4) + 3 * norms +
                         (LAYERS - 4) * model.config.width * (EXPERTS - 4)); /* rows of routers */
    assert_int_equal(fewer->active, matrices_of(LAYERS, 2));
    assert_int_equal(fewer->parameters, full->parameters);
    assert_int_equal(elastic_grid(points, 2, &arena, &model, NULL), 2);
}

/* Drops 3 of the 8 layers between the first and the last: no
 * two are neighbours, and both ends are kept. */
TEST(dropped_layers_are_spread)
{
    struct grid_point points[16];
    i64 count = elastic_grid(points, 16, &arena, &model, NULL);
    const struct submodel *sub = &point_of(points, count, "layers -2/8")->sub;
    assert_int_equal(sub->layer[0], 0);
    assert_int_equal(sub->layer[sub->layer_count - 1], LAYERS - 1);
    for (i64 i = 1; i < sub->layer_count; i++)
        assert_in_range(sub->layer[i] - sub->layer[i - 1], 1, 2);
}

/* ---- Cut out ---- */

TEST(what_is_cut_out_keeps_its_counts)
{
    static const i32 layers[] = {0, 3, 4, 9}, experts[] = {1, 3, 4, 5};
    struct submodel sub = parsed("0,3,4,9", "1,3-5", "2");
    struct model out;
    double use[4 * 4];
    succeed(toy_cut(&out, &model, &sub, path_of("toy_cut")));
    assert_int_equal(out.config.layers, 4);
    assert_int_equal(out.config.experts, 4);
    assert_int_equal(out.config.topk, 2);
    assert_int_equal(out.config.first_moe_layer, 1);
    model_use_get(use, &out);
    for (i64 l = 1; l < 4; l++)
        for (i64 e = 0; e < 4; e++)
            assert_true(use[l * 4 + e] == use_of(layers[l], experts[e]));
    model_close(&out);
}

/* The order that training fixed is saved, loaded and cut with the model. */
TEST(what_is_cut_out_keeps_the_order_of_its_experts_and_layers)
{
    static const i32 layers[] = {0, 3, 4, 9}, experts[] = {1, 3, 4, 5};
    i64 count = model_order_count(&model.config);
    double *order = memory_alloc(count * 8);
    struct submodel sub = parsed("0,3,4,9", "1,3-5", "2");
    struct model out;
    for (i64 i = 0; i < count; i++)
        order[i] = (double)(1 + (i * 7) % 11);
    succeed(toy_cut(&out, &model, &sub, path_of("without_order")));
    assert_null(out.order);
    model_close(&out);
    model_set_order(&model, order);
    succeed(toy_cut(&out, &model, &sub, path_of("ordered")));
    assert_non_null(out.order);
    for (i64 l = 1; l < 4; l++)
        for (i64 e = 0; e < 4; e++)
            assert_true(out.order[l * 4 + e] == order[layers[l] * model.config.experts + experts[e]]);
    for (i64 l = 0; l < 4; l++)
        assert_true(model_order_layers(out.order, &out.config)[l] ==
                    model_order_layers(order, &model.config)[layers[l]]);
    model_close(&out);
    memory_free(model.order);
    memory_free(order);
    model.order = NULL;
}

/* The cut model's own top-k is the one asked for, below or above that of the whole. */
TEST(what_is_cut_out_takes_the_top_k_asked_for)
{
    static const char *const asked[] = {"1", "5", "6"};
    for (i64 i = 0; i < COUNT_OF(asked); i++) {
        struct submodel sub = parsed("0,3,4,9", "6", asked[i]);
        struct model out;
        struct model_config c;
        const char *folder = path_of("cut");
        succeed(toy_cut(&out, &model, &sub, path_of("toy_cut")));
        assert_int_equal(out.config.topk, atoi(asked[i]));
        succeed(directory_make(folder));
        succeed(model_save(&out, folder));
        succeed(model_config_load(&c, folder));
        assert_int_equal(c.topk, atoi(asked[i]));
        succeed(directory_remove(folder));
        model_close(&out);
    }
}

/* One changed value in any head of the cut model is found, on samples of every kind. */
TEST(every_head_of_what_is_cut_out_is_compared)
{
    static const char *const spoilt[][2] = {{"head", "text"},
                                            {"mtp.project", "mtp"},
                                            {"vision.head", "vision"},
                                            {"audio.head.0", "audio"},
                                            {"audio.head.1", "audio"}};
    struct model_config c = toy_config(6, TOY_ALL & ~(unsigned)TOY_TIED);
    struct model from, out;
    struct submodel sub;
    struct submodel_options o = {"0,2,4,5", "1,3-5", "1"};
    struct synthetic_batches random;
    struct batch batch;
    unsigned heads = 0;
    toy_open(&from, &device, &c, false);
    succeed(submodel_parse(&sub, &arena, &o, &from));
    synthetic_batches_init(&random, &c, 2, 2, 512, 7);
    struct batch_source source = synthetic_batches_source(&random);
    succeed(source.fill(source.context, 0, 0, &batch, &arena));
    succeed(toy_cut(&out, &from, &sub, path_of("toy_cut")));
    succeed(submodel_compare(&heads, &out, &from, &sub, &batch));
    assert_int_equal(heads, (1u << TARGETS) - 1);
    for (i64 i = 0; i < COUNT_OF(spoilt); i++) {
        struct weight *w = weights_find(&out.weights, spoilt[i][0]);
        assert_non_null(w);
        float *values = toy_weight(&device, w), before = values[0];
        values[0] += 1;
        toy_set_weight(&out.weights, w, values);
        assert_int_equal(submodel_compare(&heads, &out, &from, &sub, &batch), -1);
        assert_says(spoilt[i][1]);
        values[0] = before;
        toy_set_weight(&out.weights, w, values);
        memory_free(values);
    }
    succeed(submodel_compare(&heads, &out, &from, &sub, &batch));
    synthetic_batches_release(&random);
    model_close(&out);
    model_close(&from);
}

/* Heads of sound on any layers stay with their layers, which other layers leave; a saved model has the
 * new numbers. */
TEST(heads_of_sound_stay_with_their_layers)
{
    static const struct {
        i32 whole[TOY_LEVELS], cut[TOY_LEVELS];
        const char *layers, *without;
    } cases[] = {
        {{2, 4}, {1, 2}, "0,2,4", "0,2,5"}, {{4, 4}, {2, 2}, "0,2,4,5", "0,5"}, {{0, 5}, {0, 1}, "0,5", "0,2"}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct model_config c = toy_config(6, TOY_ALL & ~(unsigned)TOY_TIED), stored;
        struct submodel_options o = {.layers = cases[i].layers};
        struct model from, out;
        struct submodel sub;
        struct synthetic_batches random;
        struct batch batch;
        unsigned heads = 0;
        for (c.audio_layer_count = 0; c.audio_layer_count < TOY_LEVELS; c.audio_layer_count++)
            c.audio_layer[c.audio_layer_count] = cases[i].whole[c.audio_layer_count];
        toy_open(&from, &device, &c, false);
        succeed(submodel_parse(&sub, &arena, &o, &from));
        synthetic_batches_init(&random, &c, 2, 2, 512, 7);
        struct batch_source source = synthetic_batches_source(&random);
        succeed(source.fill(source.context, 0, 0, &batch, &arena));
        succeed(toy_cut(&out, &from, &sub, path_of("toy_cut")));
        succeed(submodel_compare(&heads, &out, &from, &sub, &batch));
        assert_true(heads & 1u << TARGET_AUDIO);
        const char *folder = path_of("cut");
        succeed(directory_make(folder));
        succeed(model_save(&out, folder));
        succeed(model_config_load(&stored, folder));
        assert_int_equal(stored.audio_layer_count, TOY_LEVELS);
        assert_memory_equal(stored.audio_layer, cases[i].cut, sizeof cases[i].cut);
        succeed(directory_remove(folder));
        o.layers = cases[i].without;
        assert_int_equal(submodel_parse(&sub, &arena, &o, &from), -1);
        assert_says("carries a head and must stay");
        synthetic_batches_release(&random);
        model_close(&out);
        model_close(&from);
    }
}

TEST(layers_that_no_head_can_read_are_refused)
{
    static const struct {
        i64 count;
        i32 layer[3];
        const char *words;
    } bad[] = {{1, {5}, "audio_layers has 1 entry, expected 2"},
               {3, {1, 2, 3}, "audio_layers has 3 entries, expected 2"},
               {2, {3, 2}, "audio_layers: entry 1 is 2"},
               {2, {2, 6}, "audio_layers: entry 1 is 6: expected ascending or equal layers below 6"}};
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        struct model_config c = toy_config(6, TOY_ALL);
        c.audio_layer_count = bad[i].count;
        memcpy(c.audio_layer, bad[i].layer, sizeof bad[i].layer);
        assert_int_equal(model_config_check(&c), -1);
        assert_says(bad[i].words);
    }
}

/* ---- Counts for the balance of experts ---- */

/* Assignments counted by a training forward: those of every position in every MoE layer, or none
 * for a subset of experts. */
static double counted_by(struct model *trained, const struct submodel *sub)
{
    enum { ROWS = 2, LENGTH = 12 };
    i32 ids[ROWS * LENGTH];
    float usage[LAYERS * EXPERTS];
    struct batch batch;
    struct forward out;
    struct tape tape;
    double sum = 0;
    for (i32 i = 0; i < ROWS * LENGTH; i++)
        ids[i] = (7 * i + 3) % TOY_VOCABULARY;
    batch_of_ids(&batch, &arena, ids, ROWS, LENGTH, false);
    device.ops->zero(&device, trained->usage, sizeof usage);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
    tape_clear(&tape, true);
    model_forward(&out, &tape, trained, &batch, sub, NULL);
    device_get(&device, usage, trained->usage, sizeof usage);
    for (i64 i = 0; i < LAYERS * EXPERTS; i++) {
        assert_true(i >= EXPERTS || usage[i] == 0); /* the first layer is dense */
        sum += usage[i];
    }
    tape_close(&tape);
    return sum / (ROWS * LENGTH);
}

TEST(subsets_of_experts_are_not_counted)
{
    struct submodel full = parsed(NULL, NULL, NULL), half = parsed(NULL, "4", NULL);
    struct model trained;
    toy_open(&trained, &device, &model.config, true);
    assert_true(counted_by(&trained, &full) == (LAYERS - 1) * TOPK);
    assert_true(counted_by(&trained, &half) == 0);
    model_close(&trained);
}

int main(void)
{
    return tests_run(setup, teardown);
}
