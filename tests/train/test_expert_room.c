/* Experts placed on expert ranks by the counts of their use, and the check of the room for their rows. */
#include "dist/dist.h"
#include "tests/test.h"
#include "tests/toy.h"
#include "train/memory_estimate.h"
#include "train/routing_counts.h"
#include "train/train.h"

enum { LAYERS = 3, EXPERTS = 8 };
static struct device device;
static struct model model;
static struct comm world = {.size = 2}; /* never called */
static struct parallel ranks = {.layout = {.data = 2, .expert = 2, .capacity_factor = 1}, .world = &world};
static i32 seen[LAYERS * EXPERTS];
static int times, refuses;

static int see(void *context, i32 *placement, i64 layers, i64 experts)
{
    (void)context;
    require(layers == LAYERS && experts == EXPERTS, "%lld layers of %lld", (long long)layers, (long long)experts);
    memcpy(seen, placement, sizeof seen);
    times++;
    return refuses ? error_set("another model") : 0;
}

static struct stage stage = {.name = "base", .device = &device, .ranks = &ranks, .ranks_place = see};

static int setup(void **state)
{
    (void)state;
    const struct model_config config = toy_config(LAYERS, TOY_DENSE);
    device_open_cpu(&device);
    toy_open(&model, &device, &config, true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    model_close(&model);
    device_close(&device);
    return 0;
}

/* In the last layer the first half of the experts is used three times as much as the other one. */
static void count_use(void)
{
    double use[LAYERS * EXPERTS] = {0};
    for (i64 e = 0; e < EXPERTS; e++) {
        use[EXPERTS + e] = 2;
        use[2 * EXPERTS + e] = e < EXPERTS / 2 ? 3 : 1;
    }
    model_use_put(&model, use);
}

static int place(bool in_a_row)
{
    double use[LAYERS * EXPERTS];
    count_use();
    model_use_get(use, &model);
    return routing_place_experts(&model, &stage, use, in_a_row);
}

TEST(room_is_that_of_experts_as_they_are_placed)
{
    static const i32 spread[EXPERTS] = {0, 2, 4, 6, 1, 3, 5, 7};
    assert_int_equal(place(false), 0);
    assert_memory_equal(seen + 2 * EXPERTS, spread, sizeof spread);
    assert_memory_equal(model.weights.layout.placement, seen, sizeof seen);
    assert_memory_equal(seen + EXPERTS, spread, sizeof spread);
    assert_true(placement_is_in_a_row(seen, 1, EXPERTS)); /* a dense layer */
    assert_int_equal(routing_check_room(&model, &stage), 0);
}

TEST(experts_may_lie_in_a_row)
{
    assert_int_equal(place(true), 0);
    assert_true(placement_is_in_a_row(seen, LAYERS, EXPERTS));
    assert_null(model.weights.layout.placement);
    assert_int_equal(routing_check_room(&model, &stage), -1);
    assert_non_null(
        strstr(error_text(),
               "base: by the experts' use so far the busiest of 2 expert ranks takes 1.50 times the mean of rows "
               "(layer 2), there is room for 1 times: expected --layout part=2 or more"));
}

TEST(a_foreseen_load_is_that_of_experts_as_they_are_placed)
{
    double use[LAYERS * EXPERTS];
    struct pretrain_settings settings = {.elastic_on = true, .elastic.expert_groups = 1};
    const struct step_work work = {.settings = &settings, .config = &model.config, .layout.expert = 2};
    count_use();
    model_use_get(use, &model);
    assert_float_equal(step_expert_load(use, &work), 1, 1e-9);
    settings.elastic.expert_groups = 2;
    assert_float_equal(step_expert_load(use, &work), 1.25, 1e-9); /* 1 and 1.5 in the MoE layers */
    settings.elastic_on = false;
    assert_float_equal(step_expert_load(use, &work), 1, 1e-9);
}

TEST(one_rank_places_nothing)
{
    ranks.layout.expert = 1;
    times = 0;
    assert_int_equal(place(false), 0);
    assert_int_equal(times, 0);
    ranks.layout.expert = 2;
}

TEST(a_replay_may_refuse)
{
    refuses = 1;
    assert_int_equal(place(false), -1);
    assert_null(model.weights.layout.placement); /* as before */
    refuses = 0;
}

int main(void)
{
    return tests_run(setup, teardown);
}
