/* The gradient of the whole toy with every mechanism on: text, multi-token block, pictures and
 * clips as input and output, sound, a dense layer, routed and shared experts, recomputed layers, a
 * top-k per sample. For every trained weight (each expert separately), derivatives along random
 * directions are compared with central differences of the loss.
 *
 * The choices of experts are fixed by the first forward, so that the loss is differentiable. It is
 * a sum in double of f32 losses, accurate to about 1e-7. A direction has the norm of the weight,
 * and (4 d(h/2) - d(h)) / 3 from two step sizes has an error of O(h^4). At h = 0.05 both errors
 * are below 3e-3 of a typical derivative (at 0.02 rounding gives 5e-3, at 0.1 the fourth order
 * gives 2e-3); the tolerance is 1e-2. */
#include <math.h>

#include "tests/device.h"
#include "tests/toy.h"

enum { LAYERS = 4, SAMPLES = 8, DIRECTIONS_TRIED = 2 };
static const struct rng_key key = {5, RNG_TEST};

static struct device device;
static struct arena arena;

struct gradient_fixture {
    struct model model;
    struct tape tape;
    struct toy_batch batch;
    struct submodel sub;
    struct forward_options options;
    float *coefficient[TARGETS]; /* one per target kind; the same for every level */
};

/* A sub-model without one layer and with some of the experts. */
enum { DROPPED_LAYER = 1, KEPT_EXPERTS = 5 };
static const i32 kept_experts[KEPT_EXPERTS] = {0, 2, 3, 5, 7};

/* Coefficients like those of train/, with a separate weight for each target kind. */
static void make_coefficients(struct gradient_fixture *w)
{
    static const double weight[TARGETS] = {1, 0.3, 2, 0.7};
    double totals[TARGETS] = {0};
    toy_totals(totals, &w->batch.batch);
    for (int kind = 0; kind < TARGETS; kind++) {
        const struct target_list *t = &w->batch.batch.targets[kind];
        assert_true(t->n > 3);
        w->coefficient[kind] = arena_alloc(&arena, t->n * 4);
        for (i64 i = 0; i < t->n; i++)
            w->coefficient[kind][i] = (float)(weight[kind] / totals[kind]) * t->weight[i];
    }
}

static i64 levels_of(int kind)
{
    return target_levels((enum target_kind)kind, &toy_widths);
}

static double loss(struct forward *out, struct gradient_fixture *w, bool recording)
{
    double sum = 0;
    tape_clear(&w->tape, recording);
    model_forward(out, &w->tape, &w->model, &w->batch.batch, &w->sub, &w->options);
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 level = 0; level < levels_of(kind); level++) {
            i64 n = w->batch.batch.targets[kind].n;
            float *values = toy_floats(&device, out->loss[kind][level].value, n);
            for (i64 i = 0; i < n; i++)
                sum += (double)w->coefficient[kind][i] * values[i];
            memory_free(values);
        }
    return sum;
}

static void keep_routes(struct gradient_fixture *w)
{
    struct forward out;
    i64 assignments = LAYERS * w->batch.batch.n * w->sub.topk;
    i32 *routes = arena_alloc(&arena, assignments * 4);
    w->options = (struct forward_options){.keep_routes = true};
    loss(&out, w, false);
    device_get(&device, routes, out.routes, assignments * 4);
    w->options = (struct forward_options){.routes = routes, .recompute = true};
}

static void open_model(struct gradient_fixture *w, const struct model_config *c)
{
    i32 *topk = arena_alloc(&arena, SAMPLES * 4);
    toy_open(&w->model, &device, c, true);
    tape_open(&w->tape, &device, DTYPE_F32, (i64)1 << 30);
    struct toy_sample samples[SAMPLES];
    for (u32 i = 0; i < SAMPLES; i++) {
        toy_draw_sample(&samples[i], key, i);
        if (c->voice && i % 2)
            toy_add_voice(&samples[i]);
    }
    toy_lay(&w->batch, &arena, samples, SAMPLES, key, 0, 0);
    submodel_full(&w->sub, c);
    for (i32 i = 0; i < SAMPLES; i++)
        topk[i] = 1 + (i32)(i % c->topk);
    w->sub.sample_topk = topk;
    make_coefficients(w);
}

static void fixture_open(struct gradient_fixture *w, unsigned parts)
{
    struct model_config c = toy_config(LAYERS, parts);
    c.init_std = 0.1; /* larger values make attention too sharp for differences */
    open_model(w, &c);
}

static void cut(struct submodel *sub)
{
    sub->layer_count = 0;
    for (i32 i = 0; i < LAYERS; i++) {
        sub->expert[i] = kept_experts;
        if (i != DROPPED_LAYER)
            sub->layer[sub->layer_count++] = i;
    }
    sub->expert_count = KEPT_EXPERTS;
}

static void fixture_close(struct gradient_fixture *w)
{
    tape_close(&w->tape);
    model_close(&w->model);
    arena_reset(&arena, 0);
}

static void backward(struct gradient_fixture *w)
{
    struct forward out;
    loss(&out, w, true);
    for (int kind = 0; kind < TARGETS; kind++)
        for (i64 level = 0; level < levels_of(kind); level++)
            device_put(&device, out.coefficient[kind][level], w->coefficient[kind], w->batch.batch.targets[kind].n * 4);
    weights_begin_step(&w->model.weights);
    tape_backward(&w->tape);
}

/* ---- Differences ---- */

static double norm(const float *x, i64 n)
{
    double sum = 0;
    for (i64 i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

struct gradient_probe { /* elements [first, + n) of a weight */
    struct gradient_fixture *whole;
    struct weight *weight;
    const float *values, *direction;
    i64 first, n;
};

static double loss_along(const struct gradient_probe *p, double h)
{
    struct forward out;
    i64 all = weight_elements(p->weight);
    float *moved = memory_alloc(all * 4);
    memcpy(moved, p->values, (size_t)all * 4);
    for (i64 i = 0; i < p->n; i++)
        moved[p->first + i] = (float)((double)p->values[p->first + i] + h * p->direction[i]);
    toy_set_weight(&p->whole->model.weights, p->weight, moved);
    memory_free(moved);
    return loss(&out, p->whole, false);
}

static double slope(const struct gradient_probe *p, double h)
{
    return (loss_along(p, h) - loss_along(p, -h)) / (2 * h);
}

static double extrapolated(const struct gradient_probe *p)
{
    const double h = 0.05;
    return (4 * slope(p, h / 2) - slope(p, h)) / 3;
}

/* True if the sub-model contains this part of the weight. */
static bool runs(const struct submodel *sub, const struct weight *weight, i64 part)
{
    bool kept = weight->spec.elastic != ELASTIC_EXPERT_MATRICES || !sub->expert[weight->spec.layer];
    for (i64 i = 0; !kept && i < sub->expert_count; i++)
        kept = sub->expert[weight->spec.layer][i] == part;
    for (i64 i = 0; kept && i < sub->layer_count; i++)
        if (sub->layer[i] == weight->spec.layer)
            return true;
    return kept && (weight->spec.layer < 0 || weight->spec.layer >= LAYERS);
}

/* Returns the largest error relative to a typical directional derivative. */
static double check_part(struct gradient_fixture *w, struct weight *weight, const float *values, const float *gradient,
                         i64 part)
{
    i64 n = weight->rows * weight->columns, first = part * n;
    double size = norm(values + first, n) / sqrt((double)n), typical = size * norm(gradient + first, n), worst = 0;
    float *direction = memory_alloc(n * 4);
    if ((typical > 0) != runs(&w->sub, weight, part))
        fail_msg("%s, part %d: a gradient of %g", weight->spec.name, (int)part, typical);
    for (u32 t = 0; t < DIRECTIONS_TRIED && typical > 0; t++) {
        double expected = 0;
        for (i64 i = 0; i < n; i++) {
            direction[i] = (float)(size * rng_normal(key, (u32)i, t, (u32)part, 12));
            expected += (double)direction[i] * gradient[first + i];
        }
        double got = extrapolated(&(struct gradient_probe){w, weight, values, direction, first, n});
        double error = fabs(got - expected) / typical;
        worst = error > worst ? error : worst;
    }
    toy_set_weight(&w->model.weights, weight, values);
    memory_free(direction);
    return worst;
}

static void check_weights(struct gradient_fixture *w)
{
    double worst = 0;
    const char *name = "";
    for (i64 i = 0; i < w->model.weights.count; i++) {
        struct weight *weight = &w->model.weights.list[i];
        if (!weight->spec.trained)
            continue;
        float *values = toy_weight(&device, weight), *gradient = toy_gradient(&device, weight);
        for (i64 part = 0; part < weight->matrices; part++) {
            double error = check_part(w, weight, values, gradient, part);
            name = error > worst ? weight->spec.name : name;
            worst = fmax(worst, error);
        }
        memory_free(values);
        memory_free(gradient);
    }
    print_message("largest error %.2e, of %s\n", worst, name);
    assert_true(worst < 1e-2);
}

static void expect_gradients(unsigned parts, bool is_cut)
{
    static struct gradient_fixture w;
    fixture_open(&w, parts);
    if (is_cut)
        cut(&w.sub);
    keep_routes(&w);
    backward(&w);
    check_weights(&w);
    fixture_close(&w);
}

TEST(every_weight_has_the_gradient_of_the_loss)
{
    expect_gradients(TOY_ALL & ~(unsigned)TOY_TIED, false);
}

TEST(a_voice_has_the_gradient_of_the_loss)
{
    expect_gradients(TOY_AUDIO | TOY_VOICE | TOY_MEDIA | TOY_MTP, false);
}

TEST(tied_embeddings_have_the_gradient_of_both)
{
    expect_gradients(TOY_ALL, false);
}

TEST(what_a_sub_model_leaves_out_has_none)
{
    expect_gradients(TOY_ALL, true);
}

/* Draws depend on the name of the weight, so models with different layer counts share all other
 * weights. The model has a dense layer, routed and shared experts. */
static double loss_at_init(i64 layers, bool zero_init)
{
    static struct gradient_fixture w;
    struct forward out;
    struct model_config c = toy_config(layers, TOY_ALL);
    c.zero_init = zero_init;
    open_model(&w, &c);
    weights_init(&w.model.weights, 3); /* norms included, as ones */
    double value = loss(&out, &w, false);
    fixture_close(&w);
    return value;
}

TEST(layers_may_begin_as_the_identity)
{
    double two = loss_at_init(2, true), four = loss_at_init(LAYERS, true);
    if (two != four)
        fail_msg("loss of two layers %.9g, of %d %.9g", two, LAYERS, four);
    assert_true(fabs(loss_at_init(LAYERS, false) - four) > 0.01);
}

int main(void)
{
    test_device_open(&device);
    workers_start(1);
    arena_open(&arena, (i64)1 << 32);
    return tests_run(NULL, NULL);
}
