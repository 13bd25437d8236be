/* The discriminator: its formulas against loops and differences, the adaptive weight against gradients taken
 * another way, updates of both networks or neither, and runs that resume. */
#define _GNU_SOURCE
#include "core/json.h"
#include "dist/dist.h"
#include "tests/files.h"
#include "tests/vision_stage_fixture.h"

enum { SIZE = 16, BYTES = SIZE * SIZE * 3, PICTURES = 2 };

/* ---- formulas ---- */

static double hinge_of(const double *logits, i64 n, const double *means, double lecam)
{
    double sum = 0;
    for (i64 i = 0; i < n; i++) {
        double real = logits[i], decoded = logits[n + i];
        sum += (real < 1 ? 1 - real : 0) + (decoded > -1 ? 1 + decoded : 0);
        if (means) /* originals are held near the mean of what is decoded, and the other way round */
            sum += lecam * (pow(real - means[1], 2) + pow(decoded - means[0], 2));
    }
    return sum / (double)n;
}

TEST(the_loss_is_hinge_and_regularizer)
{
    const double means[2] = {0.6, -0.4};
    const float logits[] = {0.3f, 1.7f, -2, 0.9f, -0.2f, -1.6f, 2, 0.5f};
    enum { N = 4 };
    for (int with = 0; with < 2; with++) {
        float gradient[2 * N];
        double moved[2 * N], loss = discriminator_loss(gradient, logits, N, with ? means : NULL, 0.3);
        for (i64 i = 0; i < 2 * N; i++)
            moved[i] = (double)logits[i];
        assert_float_equal(loss, hinge_of(moved, N, with ? means : NULL, 0.3), 1e-12);
        for (i64 i = 0; i < 2 * N; i++) {
            moved[i] += 1e-4;
            double above = hinge_of(moved, N, with ? means : NULL, 0.3);
            moved[i] -= 2e-4;
            double slope = (above - hinge_of(moved, N, with ? means : NULL, 0.3)) / 2e-4;
            moved[i] += 1e-4;
            assert_float_equal((double)gradient[i], slope, 1e-6);
        }
    }
    const float broken[] = {NAN, 0};
    float gradient[2];
    assert_true(isnan(discriminator_loss(gradient, broken, 1, NULL, 0)));
    assert_true(isnan(gradient[0]));
}

TEST(the_weight_is_a_bounded_ratio)
{
    const struct discriminator_settings s = {.weight = 0.5, .most = 10};
    assert_float_equal(discriminator_weight(9, 4, &s), 0.5 * 1.5, 1e-6);
    assert_float_equal(discriminator_weight(10000, 4, &s), 5, 0);
    assert_float_equal(discriminator_weight(9, 0, &s), 5, 0);
    assert_float_equal(discriminator_weight(0, 4, &s), 0, 0);
    assert_true(isnan(discriminator_weight(INFINITY, 4, &s)));
    assert_true(isnan(discriminator_weight(9, NAN, &s)));
    const struct discriminator_settings half = {.start = 0.5}, last = {.start = 1};
    assert_int_equal(discriminator_begin(&half, 7), 4);
    assert_int_equal(discriminator_begin(&last, 7), 7);
}

/* ---- two small networks that are no pictures ---- */

struct toy {
    struct weights weights; /* of the other network */
    struct discriminator d;
    struct weight *row;
};

static struct tensor *toy_logits(struct tape *tape, void *context, struct tensor *media)
{
    return op_linear(tape, media, &((struct toy *)context)->row->value, DTYPE_F32);
}

static void open_toys(struct toy *t, const struct discriminator_settings *settings)
{
    struct weight_spec row = weight_matrix("row", 1, 3), other = weight_matrix("other", 2, 3);
    discriminator_open(&t->d, &device, DTYPE_F32, settings);
    t->row = weights_add(&t->d.weights, &row);
    t->d.network = toy_logits;
    t->d.context = t;
    weights_allocate(&t->d.weights);
    weights_init(&t->d.weights, 1);
    weights_open(&t->weights, &device, DTYPE_F32, true, NULL);
    weights_add(&t->weights, &other);
    weights_allocate(&t->weights);
    weights_init(&t->weights, 2);
}

static u64 hash_table(const struct weights *weights, u64 hash)
{
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        const float *parts[] = {w->value.data, w->m, w->v};
        for (i64 k = 0; k < COUNT_OF(parts); k++) {
            float *values = parts[k] ? to_host(&device, parts[k], w->rows * w->columns * 4) : NULL;
            hash = values ? hash_bytes(values, w->rows * w->columns * 4, hash) : hash;
            memory_free(values);
        }
    }
    return hash;
}

/* Gradients of both networks by a step with these values of the media; `scale` is that of the other's.
 * before: what the sum of squares holds on entry. */
static bool step_toys(struct toy *t, float value, float scale, i64 step, double before)
{
    const struct optimizer_settings optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    struct tape tape;
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 22);
    tape_clear(&tape, true);
    weights_begin_step(&t->weights);
    const float originals[6] = {1, 2, value, 0, 1, 1}, decoded[6] = {0.5f, 1, 0, value, 1, -1};
    struct tensor *x = tape_tensor(&tape, DTYPE_F32, 2, 3), *y = tape_tensor(&tape, DTYPE_F32, 2, 3);
    device_put(&device, x->data, originals, sizeof originals);
    device_put(&device, y->data, decoded, sizeof decoded);
    struct tensor *out = op_scale(&tape, op_linear(&tape, y, &t->weights.list[0].value, DTYPE_F32), scale, DTYPE_F32);
    op_add_gradient(&tape, out, matrix_of(y->data, DTYPE_F32, 2, 2));
    tape_backward(&tape);
    discriminator_learn(&t->d, x, y);
    double squares = before, *on_device = tape_alloc(&tape, 8);
    const struct discriminator_update update = {&t->weights, &optimizer, 0.01, step, step, on_device};
    device_put(&device, on_device, &squares, 8);
    discriminator_update(&t->d, &update);
    device_get(&device, &squares, on_device, 8);
    tape_close(&tape);
    return isfinite(squares);
}

/* A value of 1e30 breaks the discriminator's norm alone, a scale of infinity that of the other alone. */
TEST(both_networks_move_or_neither)
{
    const struct discriminator_settings settings = {.weight = 1, .lr = 1, .lecam = 0.1};
    static const struct {
        float value, scale;
        bool moves;
        double before;
    } cases[] = {{1, 1, true}, {1e30f, 0, false}, {1, INFINITY, false}, {1, 1, false, INFINITY}, {2, 1, true}};
    struct toy t;
    open_toys(&t, &settings);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        u64 own = hash_table(&t.d.weights, 0), other = hash_table(&t.weights, 0);
        assert_int_equal(step_toys(&t, cases[i].value, cases[i].scale, i, cases[i].before), cases[i].moves);
        assert_int_equal(hash_table(&t.d.weights, 0) != own, cases[i].moves);
        assert_int_equal(hash_table(&t.weights, 0) != other, cases[i].moves);
    }
    float *kept = weight_values(&t.d.weights, t.d.state);
    assert_true(kept[DISCRIMINATOR_FIGURES] == 2); /* updates */
    memory_free(kept);
    discriminator_close(&t.d);
    weights_close(&t.weights);
}

/* The regularizer needs means, which are those of the steps before. */
TEST(means_run_and_are_told)
{
    const struct discriminator_settings settings = {.weight = 1, .lr = 0, .lecam = 0};
    struct toy t;
    double real[2];
    open_toys(&t, &settings);
    struct json *j = discriminator_json(&t.d);
    assert_int_equal(json_count(j), 0);
    json_free(j);
    for (i64 i = 0; i < 2; i++) {
        step_toys(&t, (float)(1 + i), 0, i, 0);
        real[i] = t.d.now[DISCRIMINATOR_REAL];
    }
    j = discriminator_json(&t.d);
    /* 0 of 0 and 1, then 1/11 of it stays */
    assert_float_equal(json_number(json_get(j, "real"), NAN), (real[0] + 10 * real[1]) / 11, 1e-6);
    assert_true(fabs(real[0] - real[1]) > 1e-3);
    json_free(j);
    discriminator_close(&t.d);
    weights_close(&t.weights);
}

/* ---- pictures ---- */

static struct vision_settings settings;
static struct vision_media media;
static struct vision_trainer trainer;
static struct vision_config config;
static u8 *pixels, *stills[PICTURES], *clips[1];
static i64 clip_frames[1] = {5};
static struct content_size inner[PICTURES];

static void open_trainer(const char *weight, const char *features, const char *gram, const char *most)
{
    const struct setting_override all[] = {{"data", "./none"},
                                           {"size", "16"},
                                           {"stride", "8"},
                                           {"bits", "5"},
                                           {"frames", "5"},
                                           {"channels", "[6, 8]"},
                                           {"batch", "2"},
                                           {"clip_batch", "1"},
                                           {"still_share", "0"},
                                           {"augment", "0"},
                                           {"discriminator.start", "0"},
                                           {"discriminator.width", "3"},
                                           {"discriminator.weight", weight},
                                           {"discriminator.most", most},
                                           {"loss.features", features},
                                           {"loss.gram", gram}};
    succeed(settings_read(&settings, vision_stage_table, NULL, NULL, all, COUNT_OF(all)));
    config = toy_config(true);
    pixels = toy_pixels(PICTURES + 1, 5, SIZE);
    clips[0] = pixels + PICTURES * BYTES;
    for (i64 i = 0; i < PICTURES; i++)
        stills[i] = pixels + i * BYTES;
    media = (struct vision_media){.request = {.shapes = SQUARE(SIZE)},
                                  .still_count = PICTURES,
                                  .stills = stills,
                                  .still_inner = inner,
                                  .clip_count = 1,
                                  .clips = clips,
                                  .clip_inner = inner,
                                  .clip_frames = clip_frames};
    trainer =
        (struct vision_trainer){.settings = &settings, .media = &media, .seed = 5, .still_steps = 2, .clip_steps = 2};
    vision_trainer_open(&trainer, &device, &config, DTYPE_F32);
    vision_init(&trainer.vision, 5);
    disturb(&trainer.vision, 0.3);
}

static void close_trainer(void)
{
    vision_trainer_close(&trainer);
    settings_release(&settings, vision_stage_table);
    memory_free(pixels);
}

/* Gradients of all weights of the tokenizer as one array (memory_free); 0 where there is none. */
static float *gradients_of(struct weights *weights, i64 *count)
{
    float *out = memory_alloc(weights->grad_elements * 4);
    *count = 0;
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        i64 n = w->rows * w->columns;
        if (!w->spec.trained)
            continue;
        if (w->value.grad_written)
            device_get(&device, out + *count, w->value.grad, n * 4);
        *count += n;
    }
    return out;
}

static double norm_of_last(const struct weights *weights, const float *gradients)
{
    double sum = 0;
    i64 at = 0;
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        i64 n = w->spec.trained ? w->rows * w->columns : 0;
        for (i64 k = 0; k < n && strcmp(w->spec.name, "decoder.out.weight") == 0; k++)
            sum += pow((double)gradients[at + k], 2);
        at += n;
    }
    return sqrt(sum);
}

/* Losses of features on a tape through both networks. */
static void add_feature_losses(double *sums, struct tape *tape, const struct vision_decoded *decoded, i64 pictures)
{
    struct vision_discriminator *v = &trainer.discriminator;
    struct vision_layers layers = {.pictures = pictures, .count = COUNT_OF(v->layers)};
    discriminator_freeze(&v->common);
    v->common.network(tape, v, decoded->original);
    memcpy(layers.original, v->layers, sizeof v->layers);
    v->common.network(tape, v, decoded->patches);
    memcpy(layers.decoded, v->layers, sizeof v->layers);
    vision_feature_losses(sums, tape, &layers, &settings.loss);
}

/* Gradients of the tokenizer from some of its losses: those of the table, or the adversarial one, by one
 * tape through both networks. */
static float *gradients_from(bool adversarial, struct vision_size size, const struct vision_shape *shape)
{
    struct vision_loss_weights none = {.sharpness = settings.loss.sharpness};
    struct discriminator *d = &trainer.discriminator.common;
    struct vision_decoded decoded;
    struct tape tape;
    i64 count;
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 28);
    tape_clear(&tape, true);
    weights_begin_step(&trainer.vision.weights);
    double *sums = tape_alloc(&tape, VISION_LOSSES * 8);
    vision_loss(sums, &tape, &trainer.vision, trainer.pixels, size, shape, adversarial ? &none : &settings.loss,
                &decoded);
    if (adversarial) {
        discriminator_freeze(d);
        struct tensor *logits = d->network(&tape, d->context, decoded.patches);
        float *each = memory_alloc(logits->rows * 4);
        for (i64 i = 0; i < logits->rows; i++)
            each[i] = -1 / (float)logits->rows;
        float *on_device = tape_alloc(&tape, logits->rows * 4);
        device_put(&device, on_device, each, logits->rows * 4);
        op_add_gradient(&tape, logits, matrix_of(on_device, DTYPE_F32, logits->rows, 1));
        memory_free(each);
    }
    if (!adversarial && settings.loss.of[VISION_FEATURES] > 0)
        add_feature_losses(sums, &tape, &decoded, size.n * size.frames);
    tape_backward(&tape);
    float *out = gradients_of(&trainer.vision.weights, &count);
    tape_close(&tape);
    return out;
}

/* Runs step `at` of a trainer, and compares with what the two parts give. */
static void expect_adaptive(const char *most, i64 at, bool bounded, const char *features)
{
    struct vision_step_result result;
    i64 count;
    open_trainer("0.7", features, "0", most);
    struct vision_batch batch = vision_step_batch(&trainer, at);
    struct vision_size size = {batch.draw.n, batch.draw.frames, SIZE, SIZE};
    succeed(vision_media_draw(trainer.pixels, &media, &batch.draw));
    trainer.discriminator.height = trainer.discriminator.width = SIZE;
    float *others = gradients_from(false, size, batch.shape), *adversarial = gradients_from(true, size, batch.shape);
    double ratio = norm_of_last(&trainer.vision.weights, others) / norm_of_last(&trainer.vision.weights, adversarial);
    double weight = 0.7 * (bounded ? atof(most) : ratio), apart = 0, all = 0;
    assert_int_equal(ratio > atof(most), bounded);
    succeed(vision_step(&result, &trainer, at));
    assert_true(result.discriminates && result.clips == (at > 1));
    assert_float_equal(trainer.discriminator.common.now[DISCRIMINATOR_WEIGHT], weight, 1e-3 * weight);
    float *both = gradients_of(&trainer.vision.weights, &count);
    for (i64 i = 0; i < count; i++) {
        apart += pow((double)both[i] - ((double)others[i] + weight * (double)adversarial[i]), 2);
        all += pow((double)both[i], 2);
    }
    assert_true(all > 0 && apart < 1e-6 * all);
    memory_free(others);
    memory_free(adversarial);
    memory_free(both);
    close_trainer();
}

TEST(the_decoder_learns_by_the_adaptive_weight)
{
    expect_adaptive("1e6", 0, false, "0");
    expect_adaptive("1e6", 2, false, "0.5");
    expect_adaptive("0.001", 0, true, "0");
}

/* ---- its own gradients, and those of the losses of features ---- */

struct pass { /* one pair of pictures and what is made of it */
    float *original, *decoded;
    i64 rows;
};

static struct pass open_pass(void)
{
    struct pass p = {.rows = PICTURES * SIZE * SIZE / 16};
    p.original = memory_alloc(p.rows * 48 * 4);
    p.decoded = memory_alloc(p.rows * 48 * 4);
    for (i64 i = 0; i < p.rows * 48; i++) {
        p.original[i] = (float)(2 * draw(700, (u32)i) - 1);
        p.decoded[i] = (float)(0.5 * p.original[i] + draw(701, (u32)i) - 0.5);
    }
    return p;
}

static void close_pass(struct pass *p)
{
    memory_free(p->original);
    memory_free(p->decoded);
}

static struct tensor *put_rows(struct tape *tape, const float *values, i64 rows)
{
    struct tensor *x = tape_tensor(tape, DTYPE_F32, rows, 48);
    device_put(&device, x->data, values, rows * 48 * 4);
    return x;
}

static double discriminator_loss_of(struct pass *p, const double *means)
{
    struct discriminator *d = &trainer.discriminator.common;
    double logits[256];
    i64 n = 0;
    for (int k = 0; k < 2; k++) {
        discriminator_freeze(d);
        struct tensor *out =
            d->network(&d->tape, d->context, put_rows(&d->tape, k ? p->decoded : p->original, p->rows));
        float *values = to_host(&device, out->data, out->rows * 4);
        n = out->rows;
        for (i64 i = 0; i < n; i++)
            logits[k * n + i] = (double)values[i];
        memory_free(values);
    }
    assert_int_equal(n, PICTURES * (SIZE / 8) * (SIZE / 8));
    return hinge_of(logits, n, means, 0.01);
}

TEST(the_discriminator_learns_by_its_loss)
{
    struct tape tape;
    open_trainer("1", "0", "0", "1");
    struct discriminator *d = &trainer.discriminator.common;
    struct pass p = open_pass();
    const float before[DISCRIMINATOR_FIGURES + 1] = {0.4f, -0.3f, 0, 0, 0, 1};
    const double means[2] = {(double)before[0], (double)before[1]};
    trainer.discriminator.height = trainer.discriminator.width = SIZE;
    weight_put(&d->weights, d->state, 0, 1, before);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 24);
    discriminator_learn(d, put_rows(&tape, p.original, p.rows), put_rows(&tape, p.decoded, p.rows));
    assert_float_equal(d->now[DISCRIMINATOR_LOSS], discriminator_loss_of(&p, means), 1e-5);
    for (i64 i = 0; i < d->weights.count; i++) {
        struct weight *w = &d->weights.list[i];
        i64 n = w->rows * w->columns;
        if (!w->spec.trained)
            continue;
        float *base = weight_values(&d->weights, w), *moved = memory_alloc(n * 4);
        float *gradient = to_host(&device, w->value.grad, n * 4);
        double slope = 0, size = 0, step = 2e-3, values[2];
        for (i64 j = 0; j < n; j++)
            size += pow(draw(800 + (u32)i, (u32)j) - 0.5, 2);
        for (i64 j = 0; j < n; j++)
            slope += (draw(800 + (u32)i, (u32)j) - 0.5) / sqrt(size) * (double)gradient[j];
        for (int side = 0; side < 2; side++) {
            for (i64 j = 0; j < n; j++)
                moved[j] = base[j] + (float)((side ? step : -step) * (draw(800 + (u32)i, (u32)j) - 0.5) / sqrt(size));
            weight_put(&d->weights, w, 0, w->rows, moved);
            values[side] = discriminator_loss_of(&p, means);
        }
        weight_put(&d->weights, w, 0, w->rows, base);
        double measured = (values[1] - values[0]) / (2 * step);
        if (fabs(measured - slope) > 0.02 * fabs(measured) + 1e-3)
            fail_msg("%s: gradient %.6f, measured %.6f", w->spec.name, slope, measured);
        memory_free(base);
        memory_free(moved);
        memory_free(gradient);
    }
    tape_close(&tape);
    close_pass(&p);
    close_trainer();
}

/* Norm of x - y as a share of that of y. */
static double share(const double *x, const double *y, i64 n)
{
    double apart = 0, own = 0;
    for (i64 i = 0; i < n; i++) {
        apart += pow(x[i] - y[i], 2);
        own += y[i] * y[i];
    }
    return sqrt(apart / own);
}

static double *gram_of(const double *x, i64 positions, i64 channels)
{
    double *out = memory_alloc(channels * channels * 8);
    for (i64 p = 0; p < positions; p++)
        for (i64 a = 0; a < channels; a++)
            for (i64 b = 0; b < channels; b++)
                out[a * channels + b] += x[p * channels + a] * x[p * channels + b];
    return out;
}

/* The two losses of features by loops over what the layers give. */
static void feature_losses_of(double out[2], struct pass *p)
{
    enum { LAYERS = 1 + VISION_DISCRIMINATOR_BLOCKS };
    struct vision_discriminator *v = &trainer.discriminator;
    struct discriminator *d = &v->common;
    double *layers[2][LAYERS];
    i64 rows[LAYERS], columns[LAYERS];
    out[0] = out[1] = 0;
    for (int k = 0; k < 2; k++) {
        discriminator_freeze(d);
        d->network(&d->tape, d->context, put_rows(&d->tape, k ? p->original : p->decoded, p->rows));
        for (i64 i = 0; i < LAYERS; i++) {
            i64 n = v->layers[i]->rows * v->layers[i]->columns;
            float *values = to_host(&device, v->layers[i]->data, n * 4);
            rows[i] = v->layers[i]->rows / PICTURES;
            columns[i] = v->layers[i]->columns;
            layers[k][i] = memory_alloc(n * 8);
            for (i64 j = 0; j < n; j++)
                layers[k][i][j] = (double)values[j];
            memory_free(values);
        }
    }
    for (i64 i = 0; i < LAYERS; i++)
        for (i64 picture = 0; picture < PICTURES; picture++) {
            i64 n = rows[i] * columns[i];
            const double *x = layers[0][i] + picture * n, *y = layers[1][i] + picture * n;
            double *a = gram_of(x, rows[i], columns[i]), *b = gram_of(y, rows[i], columns[i]);
            out[0] += share(x, y, n) / PICTURES;
            out[1] += share(a, b, columns[i] * columns[i]) / PICTURES;
            memory_free(a);
            memory_free(b);
        }
    for (i64 i = 0; i < LAYERS; i++) {
        memory_free(layers[0][i]);
        memory_free(layers[1][i]);
    }
}

/* With a weight of 0 for the adversarial loss, the gradient at the decoded patches is that of the features. */
TEST(losses_of_features_match_loops)
{
    struct tape tape;
    double sums[VISION_LOSSES], losses[2], moved[2][2], slope = 0, step = 1e-3;
    open_trainer("0", "0.6", "0.4", "1");
    struct pass p = open_pass();
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 26);
    struct tape *own = &trainer.tape;
    tape_clear(own, true);
    struct tensor *x = put_rows(own, p.decoded, p.rows);
    x->needs_grad = true;
    const struct vision_decoded decoded = {put_rows(own, p.original, p.rows), x, NULL};
    double *on_device = tape_alloc(own, sizeof sums);
    device.ops->zero(&device, on_device, sizeof sums);
    vision_discriminate(on_device, &trainer, &decoded, (struct vision_size){PICTURES, 1, SIZE, SIZE});
    tape_backward(own);
    device_get(&device, sums, on_device, sizeof sums);
    float *gradient = to_host(&device, x->grad, p.rows * 48 * 4);
    feature_losses_of(losses, &p);
    const struct vision_losses means =
        vision_losses_of(sums, &trainer.vision, (struct vision_size){PICTURES, 1, SIZE, SIZE});
    assert_float_equal(means.of[VISION_FEATURES], losses[0], 1e-5);
    assert_float_equal(means.of[VISION_GRAM], losses[1], 1e-5);
    for (i64 i = 0; i < p.rows * 48; i++)
        slope += (draw(900, (u32)i) - 0.5) * (double)gradient[i];
    for (int side = 0; side < 2; side++) {
        struct pass other = open_pass();
        for (i64 i = 0; i < p.rows * 48; i++)
            other.decoded[i] += (float)((side ? step : -step) * (draw(900, (u32)i) - 0.5));
        feature_losses_of(moved[side], &other);
        close_pass(&other);
    }
    double measured = (0.6 * (moved[1][0] - moved[0][0]) + 0.4 * (moved[1][1] - moved[0][1])) / (2 * step);
    assert_true(fabs(measured) > 1e-3);
    assert_float_equal(slope, measured, 0.01 * fabs(measured));
    memory_free(gradient);
    tape_close(&tape);
    close_pass(&p);
    close_trainer();
}

/* ---- runs ---- */

static void make_pictures(void)
{
    struct buffer captions = {0};
    succeed(directory_make(path_of("data")));
    for (i64 i = 0; i < 6; i++) {
        u8 *values = toy_pixels(1 + i, i < 4 ? 1 : 5, SIZE);
        char *name = string_format("data/%lld.%s", (long long)i, i < 4 ? "png" : "mp4");
        struct clip clip = {5, SIZE, SIZE, 8, values};
        succeed(i < 4 ? image_write_png(path_of(name), values + i * BYTES, SIZE, SIZE)
                      : clip_write_mp4(path_of(name), &clip));
        buffer_printf(&captions, "{\"%s\":\"%s\",\"text\":\"\"}\n", i < 4 ? "image" : "video", name + 5);
        memory_free(name);
        memory_free(values);
    }
    succeed(file_replace(path_of("data/captions.jsonl"), captions.data, captions.length));
    buffer_release(&captions);
}

static int run_stage(const char *name, const struct setting_override *more, i64 count)
{
    return run_vision(name, path_of("data"), more, count);
}

static const struct setting_override told[] = {{"discriminator.weight", "0.5"},
                                               {"discriminator.start", "0.3"},
                                               {"discriminator.width", "2"},
                                               {"loss.features", "0.1"},
                                               {"loss.gram", "0.1"}};

/* Killed after each number of steps, before, at and after the discriminator's first. */
TEST(resumed_runs_equal_uninterrupted_ones)
{
    struct buffer lines = {0};
    on_one_device(&device, false);
    make_pictures();
    succeed(run_stage("whole", told, COUNT_OF(told)));
    for (i64 killed = 1; killed < 6; killed += is_nightly() ? 1 : 2) {
        char *name = string_format("killed-%lld", (long long)killed);
        succeed(run_stage(name, told, COUNT_OF(told)));
        for (i64 step = killed + 1; step <= 6; step++) {
            char *path = string_format("%s/checkpoints/step-%06lld", path_of(name), (long long)step);
            succeed(directory_remove(path));
            memory_free(path);
        }
        succeed(run_stage(name, told, COUNT_OF(told)));
        expect_same_file(path_of("whole"), path_of(name), "weights.safetensors");
        expect_same_file(path_of("whole"), path_of(name), "report.json");
        expect_same_file(path_of("whole"), path_of(name), "checkpoints/step-000006/weft/discriminator.safetensors");
        expect_same_file(path_of("whole"), path_of(name), "checkpoints/step-000006/weft/optimizer.safetensors");
        memory_free(name);
    }
    succeed(file_read(&lines, path_of("whole/metrics.jsonl")));
    i64 count = 0;
    for (const char *at = lines.data; (at = strstr(at, "\"discriminator/weight\":")) != NULL; at++)
        count++;
    assert_int_equal(count, 4); /* from step 2 of 6 on */
    assert_non_null(strstr(lines.data, "\"features_loss\":"));
    buffer_release(&lines);
    struct json *report = json_load(path_of("whole/report.json"));
    assert_true(json_number(json_get(json_get(report, "discriminator"), "weight"), 0) > 0);
    json_free(report);
    assert_false(file_exists(path_of("whole/weft/discriminator.safetensors")));
    succeed(file_read(&lines, path_of("whole/weights.safetensors")));
    assert_null(memmem(lines.data, (size_t)lines.length, "discriminator", 13));
    buffer_release(&lines);
}

/* One that never begins changes nothing, and leaves no line. */
TEST(without_a_discriminator_all_is_as_before)
{
    const struct setting_override never[] = {
        {"discriminator.weight", "1"}, {"discriminator.start", "1"}, {"loss.gram", "1"}};
    struct buffer lines = {0};
    on_one_device(&device, true);
    make_pictures();
    succeed(run_stage("plain", NULL, 0));
    succeed(run_stage("never", never, COUNT_OF(never)));
    expect_same_file(path_of("plain"), path_of("never"), "weights.safetensors");
    expect_same_file(path_of("plain"), path_of("never"), "checkpoints/step-000006/weft/optimizer.safetensors");
    assert_false(file_exists(path_of("plain/checkpoints/step-000006/weft/discriminator.safetensors")));
    succeed(file_read(&lines, path_of("never/metrics.jsonl")));
    assert_null(strstr(lines.data, "discriminator"));
    assert_null(strstr(lines.data, "gram_loss"));
    buffer_release(&lines);
}

static int run(const char *name)
{
    return tests_run_as(name, make_directory, remove_directory);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    return on_both_devices(&device, run);
}
