/* The factor of the experts' sum with fewer experts than top-k (topk_power): what it does to a forward and
 * to its gradients, what a cut model keeps of it, and what other software gets. */
#include "tests/cut_fixture.h"
#include "tests/scratch.h"
#include "tests/toy.h"

#include <math.h>

enum { LAYERS = 3, EXPERTS = 8, TOPK = 4, SAMPLES = 4 };

static struct device device;
static struct arena arena;
static struct toy_batch batch;

static void open_model(struct model *model, double power)
{
    struct model_config c = toy_config(LAYERS, TOY_ALL);
    c.experts = EXPERTS;
    c.topk = TOPK;
    c.topk_power = power;
    toy_open(model, &device, &c, true);
}

static struct submodel with_topk(const struct model *model, i64 topk)
{
    struct submodel sub;
    submodel_full(&sub, &model->config);
    sub.topk = topk;
    return sub;
}

/* The mean loss of text, and the gradients of the routers (memory_free) unless they are NULL. */
static double loss_of(float **routers, struct model *model, const struct submodel *sub)
{
    struct tape tape;
    struct forward out;
    double totals[TARGETS] = {0}, factors[TARGETS] = {0};
    toy_totals(totals, &batch.batch);
    factors[TARGET_TEXT] = 1 / totals[TARGET_TEXT];
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
    tape_clear(&tape, true);
    weights_begin_step(&model->weights);
    model_forward(&out, &tape, model, &batch.batch, sub, &(struct forward_options){.factors = factors});
    double loss = forward_mean_loss(&out, &tape, TARGET_TEXT);
    if (routers) {
        tape_backward(&tape);
        for (i64 l = 0; l < LAYERS; l++)
            routers[l] = model->layer[l].router ? toy_gradient(&device, model->layer[l].router) : NULL;
    }
    tape_close(&tape);
    return loss;
}

/* Multiplies the outputs of all experts. */
static void scale_experts(struct model *model, float factor)
{
    for (i64 l = 0; l < LAYERS; l++) {
        struct weight *down = model->layer[l].experts_down;
        if (!down)
            continue;
        float *values = toy_weight(&device, down);
        for (i64 i = 0; i < weight_elements(down); i++)
            values[i] *= factor;
        toy_set_weight(&model->weights, down, values);
        memory_free(values);
    }
}

static void expect_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-5 * fabs(expected)))
        fail_msg("%.9g, expected %.9g", value, expected);
}

/* k of K experts with topk_power p are those of a model without it whose experts give (k/K)^p as much. */
TEST(fewer_experts_weigh_less)
{
    struct model model, plain;
    float *mine[LAYERS], *theirs[LAYERS];
    open_model(&model, 0.7);
    open_model(&plain, 0);
    struct submodel full = with_topk(&model, TOPK), two = with_topk(&model, 2);
    assert_true(loss_of(NULL, &model, &full) == loss_of(NULL, &plain, &full));
    double unscaled = loss_of(NULL, &plain, &two), loss = loss_of(mine, &model, &two);
    scale_experts(&plain, powf(0.5f, 0.7f));
    expect_near(loss, loss_of(theirs, &plain, &two));
    assert_true(fabs(loss - unscaled) > 1e-4);
    for (i64 l = 0; l < LAYERS; l++) {
        double off = 0, most = 0;
        for (i64 i = 0; mine[l] && i < EXPERTS * model.config.width; i++) {
            off = fmax(off, fabs((double)mine[l][i] - (double)theirs[l][i]));
            most = fmax(most, fabs((double)theirs[l][i]));
        }
        assert_true(off <= 1e-4 * most);
        memory_free(mine[l]);
        memory_free(theirs[l]);
    }
    model_close(&model);
    model_close(&plain);
}

/* Each sample has the factor of its own k. */
TEST(samples_have_their_own_factor)
{
    struct model model;
    i32 topk[SAMPLES] = {1, 1, 1, 1};
    open_model(&model, 0.7);
    struct submodel one = with_topk(&model, 1), each = with_topk(&model, TOPK);
    each.sample_topk = topk;
    double alone = loss_of(NULL, &model, &one);
    expect_near(loss_of(NULL, &model, &each), alone);
    topk[0] = TOPK;
    assert_true(fabs(loss_of(NULL, &model, &each) - alone) > 1e-4);
    model_close(&model);
}

/* Cut out, saved, loaded and cut again: the bits of the masked whole. */
TEST(what_is_cut_out_keeps_the_factor)
{
    struct model model, two, one;
    unsigned heads = 0;
    open_model(&model, 0.3);
    struct submodel sub = with_topk(&model, 2);
    succeed(toy_cut(&two, &model, &sub, path_of("two")));
    assert_true(two.config.routed_scale == pow(0.5, 0.3) && two.config.topk_power == 0.3);
    succeed(submodel_compare(&heads, &two, &model, &sub, &batch.batch));
    struct submodel again = with_topk(&two, 1), least = with_topk(&model, 1), full;
    succeed(toy_cut(&one, &two, &again, path_of("one")));
    assert_true((float)one.config.routed_scale == (float)pow(0.25, 0.3));
    submodel_full(&full, &one.config);
    expect_near(loss_of(NULL, &one, &full), loss_of(NULL, &model, &least));
    model_close(&one);
    model_close(&two);
    model_close(&model);
}

/* Software that has no such number gets experts that give as much. */
TEST(exports_have_the_factor_in_their_weights)
{
    struct model model, one;
    struct submodel full;
    open_model(&model, 0.5);
    struct submodel sub = with_topk(&model, 1);
    succeed(toy_cut(&one, &model, &sub, path_of("cut")));
    submodel_full(&full, &one.config);
    double before = loss_of(NULL, &one, &full);
    model_fold_scale(&one);
    assert_true(one.config.routed_scale == 0 && one.config.topk_power == 0);
    expect_near(loss_of(NULL, &one, &full), before);
    model_close(&one);
    model_close(&model);
}

int main(void)
{
    device_open_cpu(&device);
    arena_open(&arena, (i64)1 << 30);
    toy_batch_init(&batch, &arena, SAMPLES, (struct rng_key){8, RNG_TEST}, 0);
    return tests_run(make_directory, remove_directory);
}
