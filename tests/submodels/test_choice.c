/* Choosing sub-models by data: statistics of experts against plain recounts, greedy choices on models
 * of which the needless parts are known, targets, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "core/json.h"
#include "core/settings.h"
#include "submodels/choice.h"
#include "submodels/submodels.h"
#include "routing/routing.h"
#include "tests/shard_fixture.h"
#include "tests/test.h"
#include "tests/toy.h"
#include "train/pretrain.h"

enum { LAYERS = 6, EXPERTS = 8, TOPK = 2, CELLS_ALL = LAYERS * EXPERTS };
static char *shards, *model_folder, *foreign_folder, *ordered_folder, *out_folder;
static struct device device;
static struct model model;

static void scale_output(i64 layer, i64 expert, float factor)
{
    struct weight *w = model.layer[layer].experts_down;
    float *values = toy_weight(&device, w);
    for (i64 i = 0, n = w->rows * w->columns; i < n; i++)
        values[expert * n + i] *= factor;
    toy_set_weight(&model.weights, w, values);
    memory_free(values);
}

/* A layer that hardly changes what passes through it. */
static void quieten(i64 layer)
{
    struct weight *w = model.layer[layer].out;
    float *values = toy_weight(&device, w);
    for (i64 i = 0, n = w->rows * w->columns; i < n; i++)
        values[i] *= 0.01f;
    toy_set_weight(&model.weights, w, values);
    memory_free(values);
    for (i64 e = 0; e < EXPERTS; e++)
        scale_output(layer, e, 0.01f);
}

static void save_model(const char *folder, bool counts)
{
    double use[CELLS_ALL];
    for (i64 i = 0; i < CELLS_ALL; i++)
        use[i] = counts ? (double)(1 + i * 5 % 7) : 0;
    model_use_put(&model, use);
    require(directory_make(folder) == 0 && model_save(&model, folder) == 0, "%s", error_text());
    require(copy_tokenizers(folder, shards) == 0, "%s", error_text());
}

static int make(void **state)
{
    (void)state;
    device_open_cpu(&device);
    shards = fixture_shards("choice", 200, 40);
    model_folder = path_join(shards, "model");
    foreign_folder = path_join(shards, "foreign");
    out_folder = path_join(shards, "out");
    struct model_config c = toy_config(LAYERS, (TOY_ALL & ~(unsigned)TOY_SHARED & ~(unsigned)TOY_MTP) | TOY_DENSE);
    c.vocabulary = round_up(fixture_meta.vocabulary, 16);
    toy_open(&model, &device, &c, false);
    quieten(1); /* layers that are spread would drop another first */
    save_model(foreign_folder, false);
    save_model(model_folder, true);
    ordered_folder = path_join(shards, "ordered");
    double order[CELLS_ALL + LAYERS];
    for (i64 i = 0; i < CELLS_ALL + LAYERS; i++)
        order[i] = (double)(i * 3 % EXPERTS);
    model_set_order(&model, order);
    save_model(ordered_folder, true);
    memory_free(model.order);
    model.order = NULL;
    return 0;
}

static int clear(void **state)
{
    (void)state;
    model_close(&model);
    directory_remove(shards);
    memory_free(shards);
    memory_free(model_folder);
    memory_free(foreign_folder);
    memory_free(ordered_folder);
    memory_free(out_folder);
    device_close(&device);
    return 0;
}

static void open_choice(struct choice *c, unsigned directions, i64 rows)
{
    const struct heldout_pass pass = {shards, "train", 128, rows, .directions = directions};
    if (choice_open(c, &model, &pass))
        fail_msg("%s", error_text());
}

/* ---- Statistics ---- */

TEST(only_the_wanted_directions_are_read)
{
    struct choice c;
    open_choice(&c, 1u << DIRECTION_IMAGE_OUT | 1u << DIRECTION_TEXT, 4);
    assert_int_equal(c.directions, 1u << DIRECTION_IMAGE_OUT | 1u << DIRECTION_TEXT);
    for (int d = 0; d < DIRECTIONS; d++)
        for (i64 b = 0; b < c.rows[d].count; b++)
            for (i64 i = 0; i < c.rows[d].batches[b].n; i++) {
                u8 stream = c.rows[d].batches[b].stream[i];
                assert_true(stream == STREAM_TEXT || (d == DIRECTION_IMAGE_OUT && stream == STREAM_IMAGE_OUT));
            }
    assert_int_equal(c.rows[DIRECTION_TEXT].count, 2); /* of 2 rows each */
    choice_close(&c);
    open_choice(&c, 0, 2);
    assert_int_equal(c.directions, (1u << DIRECTIONS) - 1);
    choice_close(&c);
}

/* Counts by the routes that a forward keeps. */
static void recount(double *use, struct choice *c, int direction)
{
    struct submodel full;
    double positions = 0;
    submodel_full(&full, &model.config);
    memset(use, 0, CELLS_ALL * sizeof *use);
    for (i64 b = 0; b < c->rows[direction].count; b++) {
        const struct batch *batch = &c->rows[direction].batches[b];
        struct forward out;
        i32 *routes = memory_alloc(LAYERS * batch->n * TOPK * 4);
        tape_clear(&c->tape, false);
        model_forward(&out, &c->tape, &model, batch, &full, &(struct forward_options){.keep_routes = true});
        device_get(&device, routes, out.routes, LAYERS * batch->n * TOPK * 4);
        for (i64 i = 0; i < LAYERS * batch->n * TOPK; i++)
            if (batch->sample[i / TOPK % batch->n] >= 0 && routes[i] >= 0)
                use[i / (TOPK * batch->n) * EXPERTS + routes[i]]++;
        positions += (double)step_positions(batch);
        memory_free(routes);
    }
    for (i64 i = 0; i < CELLS_ALL; i++)
        use[i] /= positions;
}

TEST(use_and_weight_are_those_of_the_routes)
{
    double use[CELLS_ALL], found[CELLS_ALL], weight[CELLS_ALL], both[CELLS_ALL], other[CELLS_ALL];
    struct choice c;
    open_choice(&c, 1u << DIRECTION_IMAGE_OUT | 1u << DIRECTION_TEXT, 4);
    recount(use, &c, DIRECTION_TEXT);
    recount(other, &c, DIRECTION_IMAGE_OUT);
    choice_scores(both, &c, CRITERION_USE);
    choice_scores(weight, &c, CRITERION_WEIGHT);
    for (i64 i = 0; i < CELLS_ALL; i++)
        assert_float_equal(both[i], use[i] + other[i], 1e-9); /* directions count alike */
    c.directions = 1u << DIRECTION_TEXT;
    choice_scores(found, &c, CRITERION_USE);
    for (i64 i = 0; i < CELLS_ALL; i++)
        assert_float_equal(found[i], use[i], 1e-9);
    for (i64 l = 1; l < LAYERS; l++) { /* the weights of a position sum to 1 */
        double sum = 0;
        for (i64 e = 0; e < EXPERTS; e++)
            sum += weight[l * EXPERTS + e];
        assert_float_equal(sum, 2, 1e-5);
    }
    c.directions |= 1u << DIRECTION_IMAGE_OUT;
    choice_close(&c);
}

/* The last layer's outputs move no router. */
TEST(norms_follow_the_outputs)
{
    enum { LAST = (LAYERS - 1) * EXPERTS };
    double man[CELLS_ALL], reap[CELLS_ALL], weight[CELLS_ALL], use[CELLS_ALL], more[CELLS_ALL], gated[CELLS_ALL];
    struct choice c;
    open_choice(&c, 1u << DIRECTION_TEXT, 4);
    choice_scores(man, &c, CRITERION_MAN);
    choice_scores(reap, &c, CRITERION_REAP);
    choice_scores(weight, &c, CRITERION_WEIGHT);
    choice_scores(use, &c, CRITERION_USE);
    scale_output(LAYERS - 1, 3, 4);
    choice_scores(more, &c, CRITERION_MAN);
    choice_scores(gated, &c, CRITERION_REAP);
    scale_output(LAYERS - 1, 3, 0.25f);
    for (i64 e = 0; e < EXPERTS; e++) {
        double factor = e == 3 ? 4 : 1;
        assert_float_equal(more[LAST + e], factor * man[LAST + e], 1e-6 * man[LAST + e]);
        assert_float_equal(gated[LAST + e], factor * reap[LAST + e], 1e-6 * reap[LAST + e]);
        /* A weight is at most 1, and the mean of the products is near the product of the means. */
        double mean = weight[LAST + e] / use[LAST + e];
        assert_true(reap[LAST + e] < man[LAST + e] && mean < 1);
        assert_in_range((i64)(100 * reap[LAST + e] / (mean * man[LAST + e])), 60, 140);
    }
    choice_close(&c);
}

/* ---- Greedy choices ---- */

/* Each time the layer goes without which the loss is least, of those that may go. */
TEST(the_layer_missed_least_goes_first)
{
    struct choice c;
    struct submodel sub, before;
    open_choice(&c, 0, 2);
    submodel_full(&sub, &model.config);
    for (i64 left = LAYERS - 1; left >= submodel_least_layers(&model.config); left--) {
        before = sub;
        assert_int_equal(choice_layers_greedy(&sub, &c, left), 0);
        assert_int_equal(sub.layer_count, left);
        double loss = choice_loss(&c, &sub);
        for (i64 gone = 0; gone <= left; gone++) {
            struct submodel other = before;
            other.layer_count = 0;
            for (i64 i = 0; i <= left; i++)
                if (i != gone)
                    other.layer[other.layer_count++] = before.layer[i];
            assert_true(elastic_layer_fixed(&model.config, before.layer[gone]) || choice_loss(&c, &other) >= loss);
        }
    }
    for (i64 i = 0; i < sub.layer_count; i++)
        assert_true(elastic_layer_fixed(&model.config, sub.layer[i]));
    choice_close(&c);
}

TEST(a_model_without_finite_losses_is_named)
{
    struct choice c;
    struct submodel sub;
    open_choice(&c, 0, 2);
    submodel_full(&sub, &model.config);
    for (int d = 0; d < DIRECTIONS; d++)
        for (int s = 0; s < LOSS_STREAMS; s++)
            for (int kind = 0; kind < TARGETS; kind++)
                c.full[d][s][kind] = NAN;
    assert_int_equal(choice_layers_greedy(&sub, &c, LAYERS - 1), -1);
    assert_non_null(strstr(error_text(), "no sub-model of 5 layers has a finite loss"));
    choice_close(&c);
}

TEST(greedy_experts_lose_no_more_than_the_ranks_before)
{
    double scores[CELLS_ALL], before[CELLS_ALL];
    struct choice c;
    struct submodel full, cut;
    struct arena arena;
    arena_open(&arena, 1 << 20);
    open_choice(&c, 0, 2);
    submodel_full(&full, &model.config);
    choice_scores(before, &c, CRITERION_REAP);
    for (i64 i = 0; i < CELLS_ALL; i++)
        before[i] = scores[i] = -before[i]; /* the worst */
    assert_int_equal(choice_experts_greedy(scores, &c, &full, 4), 0);
    assert_float_equal(choice_loss(&c, &full), 0, 1e-12); /* the model is as it was */
    cut = full;
    submodel_keep_experts(&cut, &arena, &model.config, before, 4);
    double worst = choice_loss(&c, &cut);
    submodel_keep_experts(&cut, &arena, &model.config, scores, 4);
    double best = choice_loss(&c, &cut);
    print_message("half of the experts: %.4f by ranks, %.4f greedily\n", worst, best);
    assert_true(best < worst);
    choice_close(&c);
    arena_close(&arena);
}

TEST(experts_are_ranked_for_fewer_than_a_token_chooses)
{
    double scores[CELLS_ALL];
    struct choice c;
    struct submodel full;
    open_choice(&c, 0, 2);
    submodel_full(&full, &model.config);
    assert_int_equal(choice_experts(scores, &c, CRITERION_GREEDY, &full, TOPK - 1), 0);
    assert_int_equal(full.topk, TOPK);
    choice_close(&c);
}

/* ---- The stage ---- */

static struct extract_settings settings(const char *layers, const char *experts, const char *topk)
{
    return (struct extract_settings){.from = model_folder,
                                     .sub = {layers, experts, topk},
                                     .data = shards,
                                     .split = (char *)"train",
                                     .rows = 2,
                                     .length = 128};
}

static struct model_config extracted(const struct extract_settings *s)
{
    struct model_config config;
    assert_int_equal(directory_remove(out_folder), 0);
    assert_int_equal(directory_make(out_folder), 0);
    if (extract_directory(s, out_folder, &device))
        fail_msg("%s", error_text());
    assert_int_equal(model_config_load(&config, out_folder), 0);
    return config;
}

static void refused(const struct extract_settings *s, const char *why)
{
    assert_int_equal(directory_remove(out_folder), 0);
    assert_int_equal(directory_make(out_folder), 0);
    assert_int_equal(extract_directory(s, out_folder, &device), -1);
    if (!strstr(error_text(), why))
        fail_msg("\"%s\" does not say \"%s\"", error_text(), why);
    assert_null(strchr(error_text(), '\n'));
}

TEST(every_criterion_extracts)
{
    for (int criterion = CRITERION_AUTO; criterion <= CRITERION_GREEDY; criterion++) {
        struct extract_settings s = settings("5", "4", NULL);
        s.criterion = criterion;
        struct model_config c = extracted(&s);
        assert_int_equal(c.layers, 5);
        assert_int_equal(c.experts, 4);
    }
}

TEST(targets_are_met)
{
    struct submodel full;
    submodel_full(&full, &model.config);
    const struct submodel_size all = submodel_size(&full, &model);
    for (int i = 0; i < 6; i++) {
        struct extract_settings s = settings(NULL, NULL, NULL);
        s.data = i % 2 ? s.data : NULL;
        s.target = (struct submodel_target){.active = i / 2 == 0 ? 0.7 : 0,
                                            .parameters = i / 2 == 1 ? 0.8 : 0,
                                            .bytes = i / 2 == 2 ? all.bytes * 8 / 10 : 0};
        extracted(&s);
        struct model cut;
        struct submodel whole;
        assert_int_equal(model_load(&cut, &device, out_folder, DTYPE_OTHER, false), 0);
        submodel_full(&whole, &cut.config);
        struct submodel_size size = submodel_size(&whole, &cut);
        assert_true(submodel_fits(&size, &all, &s.target));
        assert_true((double)size.parameters > 0.4 * (double)all.parameters);
        assert_int_equal(size.parameters, weights_parameters(&cut.weights));
        model_close(&cut);
    }
}

/* Shares of parameters counted from the model's table of weights, beside what a target was. */
TEST(targets_are_told_beside_what_they_came_to)
{
    struct buffer said = {0};
    struct submodel sub, full;
    const struct submodel_shape top = {6, 8, 2};
    submodel_full(&full, &model.config);
    sub = full;
    submodel_keep_layers(&sub, &model.config, NULL, 5);
    struct submodel_size all = submodel_size(&full, &model), size = submodel_size(&sub, &model);
    double share = (double)size.active / (double)all.active;
    struct submodel_target target = {.active = share + 0.01};
    char *expected = string_format("active parameters: asked for at most %.3f, got %.3f: one more layer would make it "
                                   "1.000",
                                   share + 0.01, share);
    submodel_target_print(&said, &sub, &model, &top, &target, true);
    assert_string_equal(said.data, expected);
    memory_free(expected);
    buffer_clear(&said);
    target.active = share; /* to the printed digits: no reason is needed */
    expected = string_format("active parameters: asked for at most %.3f, got %.3f", share, share);
    submodel_target_print(&said, &sub, &model, &top, &target, true);
    assert_string_equal(said.data, expected);
    memory_free(expected);
    buffer_clear(&said);
    target.active = 1;
    submodel_target_print(&said, &sub, &model, &top, &target, true);
    assert_non_null(strstr(said.data, ": one more layer would fit too, but did not lose less on the data"));
    buffer_clear(&said);
    submodel_target_print(&said, &sub, &model, &top, &target, false);
    assert_non_null(strstr(said.data, ": one more layer would fit too: without data a fixed order"));
    buffer_clear(&said);
    const struct submodel_shape listed = {5, 8, 2};
    submodel_target_print(&said, &sub, &model, &listed, &target, true);
    assert_non_null(strstr(said.data, ": no option leaves more"));
    buffer_clear(&said);
    target = (struct submodel_target){.active = share + 0.01, .bytes = 2 * all.bytes};
    submodel_target_print(&said, &sub, &model, &top, &target, true);
    expected = string_format("; weights: asked for at most %.1f MB, got %.1f MB: another target is narrower",
                             (double)(2 * all.bytes) * 1e-6, (double)size.bytes * 1e-6);
    assert_non_null(strstr(said.data, expected));
    memory_free(expected);
    buffer_release(&said);
}

TEST(what_cannot_be_chosen_is_said)
{
    char *image_out[] = {(char *)"image-out"}, *wrong[] = {(char *)"imgae"}, *chat[] = {(char *)"chat"};
    char *no_chats = fixture_shards("texts", DIRECTION_CHAT, 40); /* the first of each other direction */
    struct extract_settings s = settings(NULL, "4", NULL);
    s.from = foreign_folder;
    s.data = NULL;
    refused(&s, "--data DIR");
    s.data = shards;
    assert_int_equal(extracted(&s).experts, 4);
    s = settings(NULL, NULL, NULL);
    s.target.parameters = 0.01;
    refused(&s, "the smallest, with 3 layers, 1 expert and top-1");
    s = settings("7", NULL, NULL);
    refused(&s, "the model has 6 layers");
    s = settings("1", NULL, NULL);
    refused(&s, "expected 3 or more");
    s = settings(NULL, "4", NULL);
    s.only = (struct string_list){chat, 1};
    s.data = no_chats;
    refused(&s, "has no samples of chat");
    s.data = shards;
    s.only = (struct string_list){wrong, 1};
    refused(&s, "imgae is none of text, image-in");
    s.only = (struct string_list){image_out, 1};
    s.data = NULL;
    refused(&s, "expected data");
    s.only.count = 0;
    s.criterion = CRITERION_REAP;
    refused(&s, "expected data");
    s = settings("0-5", "0-3", NULL);
    refused(&s, "nothing is chosen by it");
    directory_remove(no_chats);
    memory_free(no_chats);
}

/* ---- The grid ---- */

static struct grid_settings grid_settings_of(int choose, const char *part, const char *choose_part)
{
    return (struct grid_settings){.from = model_folder,
                                  .data = shards,
                                  .split = (char *)part,
                                  .rows = 2,
                                  .length = 128,
                                  .decode_tokens = 1,
                                  .rounds = 1,
                                  .choose = choose,
                                  .choose_part = (char *)choose_part,
                                  .choose_rows = 2};
}

static struct grid_result measured(const struct grid_settings *s)
{
    struct grid_result result;
    if (grid_measure_all(&result, s, &device))
        fail_msg("%s", error_text());
    return result;
}

static const struct grid_point *named_point(const struct grid_result *r, const char *name)
{
    for (i64 i = 0; i < r->count; i++)
        if (strcmp(r->points[i].name, name) == 0)
            return &r->points[i];
    return NULL;
}

static void expect_same(const struct submodel *a, const struct submodel *b)
{
    assert_int_equal(a->layer_count, b->layer_count);
    assert_memory_equal(a->layer, b->layer, (size_t)a->layer_count * 4);
    assert_int_equal(a->expert_count, b->expert_count);
    assert_int_equal(a->topk, b->topk);
    for (i64 l = 0; l < LAYERS; l++) {
        assert_true(!a->expert[l] == !b->expert[l]);
        if (a->expert[l])
            assert_memory_equal(a->expert[l], b->expert[l], (size_t)a->expert_count * 4);
    }
}

/* The sub-model that `extract` with data chooses. */
static void expect_extracted(const struct grid_point *point, const char *layers, const char *experts)
{
    struct extract_settings s = settings(layers, experts, NULL);
    struct submodel_name named;
    struct submodel sub;
    struct arena arena;
    char *file = path_join(model_folder, "weft/submodels.json");
    arena_open(&arena, 1 << 20);
    assert_non_null(point);
    assert_int_equal(extract_name(&s, "chosen", &device), 0);
    assert_int_equal(submodel_name_load(&named, model_folder, "chosen"), 0);
    assert_int_equal(submodel_parse(&sub, &arena, &named.options, &model), 0);
    expect_same(&point->sub, &sub);
    submodel_name_release(&named);
    assert_int_equal(remove(file), 0);
    arena_close(&arena);
    memory_free(file);
}

TEST(the_grid_keeps_what_extract_keeps)
{
    struct grid_settings s = grid_settings_of(GRID_BY_DATA, "train", "train");
    struct grid_result r = measured(&s);
    const struct grid_point *half = named_point(&r, "experts 1/2"), *both;
    both = named_point(&r, "layers -2/8, experts 1/2, k/2");
    expect_extracted(half, NULL, "4");
    const struct grid_point *shallow = named_point(&r, "layers -1/8");
    expect_extracted(shallow, "5", NULL);
    assert_int_equal(shallow->sub.layer[1], 2);
    expect_extracted(named_point(&r, "layers -2/8"), "4", NULL);
    assert_non_null(both);
    for (i64 l = 1; l < LAYERS; l++) /* ranks of the full model */
        assert_memory_equal(both->sub.expert[l], half->sub.expert[l], 4 * 4);
    assert_memory_equal(both->sub.layer, named_point(&r, "layers -2/8")->sub.layer, 4 * 4);
    assert_int_equal(both->sub.topk, 1);
    assert_string_equal(half->chosen, "data");
    assert_null(named_point(&r, "full")->chosen);
    assert_null(named_point(&r, "k/2")->chosen);
    struct json *j = grid_point_json(&r, half - r.points);
    assert_string_equal(json_string(json_get(j, "chosen"), ""), "data");
    assert_string_equal(json_string(json_get(j, "chosen_on"), ""), "train");
    json_free(j);
    struct buffer table = {0};
    grid_print(&table, &r);
    assert_non_null(strstr(table.data, "  chosen by\n"));
    assert_non_null(strstr(table.data, "  data (train)\n"));
    buffer_release(&table);
    grid_result_release(&r);
}

/* As before there was data to choose by. */
TEST(by_use_the_grid_keeps_the_most_used_experts)
{
    struct grid_point points[GRID_SHAPES];
    struct grid_settings s = grid_settings_of(GRID_BY_USE, "train", "");
    struct grid_result r = measured(&s);
    struct arena arena;
    struct submodel sub;
    arena_open(&arena, 1 << 20);
    assert_int_equal(elastic_grid(points, GRID_SHAPES, &arena, &model, NULL), r.count);
    for (i64 i = 0; i < r.count; i++)
        expect_same(&points[i].sub, &r.points[i].sub);
    assert_int_equal(submodel_parse(&sub, &arena, &(struct submodel_options){NULL, "4", NULL}, &model), 0);
    expect_same(&named_point(&r, "experts 1/2")->sub, &sub);
    assert_string_equal(named_point(&r, "experts 1/2")->chosen, "use");
    assert_string_equal(named_point(&r, "layers -1/8")->chosen, "spread");
    assert_string_equal(r.chosen_on, "");
    grid_result_release(&r);
    arena_close(&arena);
}

static void expect_part(int choose, const char *part, const char *choose_part, const char *expected)
{
    struct grid_settings s = grid_settings_of(choose, part, choose_part);
    const char *found;
    assert_int_equal(grid_choice_part(&found, &s), 0);
    if (expected)
        assert_string_equal(found, expected);
    else
        assert_null(found);
}

/* The part that is measured does not choose, unless it is asked for. */
TEST(another_part_than_the_measured_one_chooses)
{
    char *from = path_join(shards, "train"), *validation = path_join(shards, "validation");
    expect_part(GRID_BY_DATA, "train", "", NULL); /* there is no other */
    expect_part(GRID_BY_DATA, "validation", "", "train");
    assert_int_equal(symlink(from, validation), 0);
    expect_part(GRID_BY_DATA, "test", "", "validation");
    expect_part(GRID_BY_DATA, "train", "", "validation");
    expect_part(GRID_BY_DATA, "validation", "", "train");
    expect_part(GRID_BY_DATA, "validation", "validation", "validation");
    expect_part(GRID_BY_USE, "test", "", NULL);
    assert_int_equal(unlink(validation), 0);
    memory_free(from);
    memory_free(validation);
}

/* What nested draws have trained stays, here 4 experts with the ranks 6, 4, 7 and 5. */
TEST(the_grid_keeps_what_was_trained_in_an_order)
{
    static const i32 first[] = {2, 4, 5, 7};
    char *from = path_join(shards, "train"), *validation = path_join(shards, "validation");
    struct grid_settings s = grid_settings_of(GRID_AUTO, "train", "");
    assert_int_equal(symlink(from, validation), 0);
    s.from = ordered_folder;
    struct grid_result r = measured(&s);
    const struct grid_point *half = named_point(&r, "experts 1/2");
    for (i64 l = 1; l < LAYERS; l++)
        assert_memory_equal(half->sub.expert[l], first, sizeof first);
    assert_string_equal(half->chosen, "order");
    grid_result_release(&r);
    s.choose_part = (char *)"validation";
    r = measured(&s);
    assert_string_equal(named_point(&r, "experts 1/2")->chosen, "data");
    grid_result_release(&r);
    assert_int_equal(unlink(validation), 0);
    memory_free(from);
    memory_free(validation);
}

/* Without another part use chooses, and without counts of use all experts stay. */
TEST(without_samples_the_grid_goes_by_use)
{
    struct grid_settings s = grid_settings_of(GRID_AUTO, "train", "");
    struct grid_result r = measured(&s);
    assert_string_equal(named_point(&r, "experts 1/2")->chosen, "use");
    grid_result_release(&r);
    s.from = foreign_folder;
    r = measured(&s);
    assert_null(named_point(&r, "experts 1/2"));
    grid_result_release(&r);
    s.choose_part = (char *)"train";
    r = measured(&s);
    assert_string_equal(named_point(&r, "experts 1/2")->chosen, "data");
    grid_result_release(&r);
}

TEST(criteria_have_their_own_names)
{
    static const struct {
        const char *name;
        enum criterion criterion;
    } all[] = {{"auto", CRITERION_AUTO},    {"use", CRITERION_USE},   {"weight", CRITERION_WEIGHT},
               {"man", CRITERION_MAN},      {"reap", CRITERION_REAP}, {"balanced", CRITERION_BALANCED},
               {"greedy", CRITERION_GREEDY}};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        assert_int_equal(setting_choice(CRITERION_NAMES, all[i].name), all[i].criterion);
}

int main(void)
{
    return tests_run(make, clear);
}
