#include "tokenizer_training/discriminator.h"

#include "dist/dist.h"

#include <math.h>
#include <stdio.h>

/* Running means keep this share, fewer at first. Betas of the discriminator as in VQGAN's program. */
static const double keep_most = 0.99, beta1 = 0.5, beta2 = 0.9;
static const float silu_gain = 1.6f; /* keeps the size of what passes a layer and its SiLU */

const char *const discriminator_names[] = {"real", "decoded", "loss", "adversarial", "weight"};

/* ---- formulas ---- */

double discriminator_loss(float *gradient, const float *logits, i64 n, const double *means, double lecam)
{
    double sum = 0;
    for (i64 i = 0; i < 2 * n; i++) {
        double sign = i < n ? 1 : -1, under = 1 - sign * (double)logits[i], slope = under > 0 ? -sign : 0;
        double away = means ? (double)logits[i] - means[i < n ? DISCRIMINATOR_DECODED : DISCRIMINATOR_REAL] : 0;
        sum += fmax(under, 0) + lecam * away * away;
        gradient[i] = (float)((slope + 2 * lecam * away) / (double)n);
        if (isnan(under)) /* neither of fmax nor of the comparison */
            sum = gradient[i] = NAN;
    }
    return sum / (double)n;
}

double discriminator_weight(double others, double adversarial, const struct discriminator_settings *s)
{
    if (!isfinite(others) || !isfinite(adversarial))
        return NAN;
    return s->weight * fmin(sqrt(others) / (sqrt(adversarial) + 1e-6), s->most);
}

i64 discriminator_begin(const struct discriminator_settings *s, i64 steps)
{
    return (i64)ceil(s->start * (double)steps);
}

/* ---- the table ---- */

void discriminator_open(struct discriminator *d, struct device *device, enum dtype dtype,
                        const struct discriminator_settings *settings)
{
    *d = (struct discriminator){.settings = settings};
    struct weight_spec state = {.name = "discriminator.state",
                                .matrices = 1,
                                .rows = 1,
                                .columns = DISCRIMINATOR_FIGURES + 1,
                                .pieces = {{"discriminator.state", 1}},
                                .disk_rank = 1,
                                .type = TYPE_F32,
                                .init = INIT_ZEROS};
    weights_open(&d->weights, device, dtype, true, NULL);
    d->state = weights_add(&d->weights, &state);
    tape_open(&d->tape, device, dtype, (i64)1 << 36);
}

void discriminator_close(struct discriminator *d)
{
    weights_close(&d->weights);
    tape_close(&d->tape);
    *d = (struct discriminator){0};
}

/* ---- layers ---- */

struct discriminator_layer discriminator_add_layer(struct discriminator *d, const char *stem, i64 rows, i64 columns,
                                                   bool silu)
{
    char name[64];
    struct discriminator_layer layer;
    snprintf(name, sizeof name, "discriminator.%s.weight", stem);
    struct weight_spec weight = weight_matrix(name, rows, columns);
    weight.init = INIT_NORMAL;
    weight.init_std *= silu ? silu_gain : 1;
    layer.weight = weights_add(&d->weights, &weight);
    snprintf(name, sizeof name, "discriminator.%s.bias", stem);
    struct weight_spec bias = {.name = name,
                               .matrices = 1,
                               .rows = 1,
                               .columns = rows,
                               .pieces = {{name, 1}},
                               .disk_rank = 1,
                               .trained = true,
                               .init = INIT_ZEROS,
                               .type = TYPE_F32};
    layer.bias = weights_add(&d->weights, &bias);
    return layer;
}

/* As much padding as gives size / stride, on both sides. */
static struct conv conv_of(struct discriminator_plane p, const struct discriminator_kernel *k)
{
    const i64 pad[2] = {(k->size[0] - k->stride[0] + 1) / 2, (k->size[1] - k->stride[1] + 1) / 2};
    return (struct conv){.batch = p.count,
                         .size = {1, p.h, p.w},
                         .kernel = {1, k->size[0], k->size[1]},
                         .stride = {1, k->stride[0], k->stride[1]},
                         .dilation = {1, 1, 1},
                         .pad_front = {0, pad[0], pad[1]},
                         .pad_back = {0, pad[0], pad[1]}};
}

struct discriminator_plane discriminator_plane_after(struct discriminator_plane before,
                                                     const struct discriminator_kernel *kernel)
{
    const struct conv conv = conv_of(before, kernel);
    return (struct discriminator_plane){before.count, conv_out_size(&conv, 1), conv_out_size(&conv, 2)};
}

struct tensor *discriminator_convolve(struct tape *tape, struct tensor *x, const struct discriminator_layer *layer,
                                      struct discriminator_plane *plane, const struct discriminator_kernel *kernel)
{
    struct conv conv = conv_of(*plane, kernel);
    conv.in = x->columns;
    conv.out = layer->weight->rows;
    *plane = discriminator_plane_after(*plane, kernel);
    return op_bias(tape, op_conv(tape, x, &layer->weight->value, &conv), &layer->bias->value);
}

/* ---- figures ---- */

struct state_values {
    float mean[DISCRIMINATOR_FIGURES], updates;
};

static struct state_values get_state(const struct discriminator *d)
{
    struct state_values values;
    weight_get(&d->weights, d->state, 0, 1, (float *)&values);
    return values;
}

struct json *discriminator_json(const struct discriminator *d)
{
    struct json *out = json_object();
    struct state_values now = get_state(d);
    for (int i = 0; i < DISCRIMINATOR_FIGURES && now.updates > 0; i++)
        json_set(out, discriminator_names[i], json_of_number((double)now.mean[i]));
    return out;
}

void discriminator_put_metrics(struct metrics *metrics, const struct discriminator *d)
{
    char name[64];
    for (int i = 0; i < DISCRIMINATOR_FIGURES; i++) {
        snprintf(name, sizeof name, "discriminator/%s", discriminator_names[i]);
        metrics_put(metrics, name, d->now[i]);
    }
}

/* ---- passes ---- */

static void set_learning(struct discriminator *d, bool learns)
{
    for (i64 i = 0; i < d->weights.count; i++)
        d->weights.list[i].value.needs_grad = learns && d->weights.list[i].spec.trained;
}

void discriminator_freeze(struct discriminator *d)
{
    tape_clear(&d->tape, true);
    set_learning(d, false);
    weights_pack(&d->weights);
}

struct tensor *discriminator_input(struct discriminator *d, const struct tensor *media)
{
    struct tensor *x = op_borrow(&d->tape, media->data, media->dtype, media->rows, media->columns);
    x->needs_grad = true;
    return x;
}

/* Device memory on its tape. */
static struct matrix put_gradient(struct discriminator *d, const float *values, i64 count)
{
    float *on_device = tape_alloc(&d->tape, count * 4);
    device_put(d->tape.device, on_device, values, count * 4);
    return matrix_of(on_device, DTYPE_F32, count, 1);
}

static double mean_of(const float *values, i64 count)
{
    double sum = 0;
    for (i64 i = 0; i < count; i++)
        sum += (double)values[i];
    return sum / (double)count;
}

static float *get_logits(struct discriminator *d, const struct tensor *logits)
{
    float *values = memory_alloc(logits->rows * 4);
    device_get(d->tape.device, values, logits->data, logits->rows * 4);
    return values;
}

struct matrix discriminator_listen(struct discriminator *d, const struct tensor *decoded)
{
    discriminator_freeze(d);
    struct tensor *x = discriminator_input(d, decoded), *media = d->media ? d->media(&d->tape, d->context, x) : x;
    struct tensor *logits = d->network(&d->tape, d->context, media);
    i64 n = logits->rows;
    float *values = get_logits(d, logits);
    d->now[DISCRIMINATOR_ADVERSARIAL] = -mean_of(values, n);
    for (i64 i = 0; i < n; i++)
        values[i] = (float)(-1 / (double)n);
    op_add_gradient(&d->tape, logits, put_gradient(d, values, n));
    memory_free(values);
    tape_backward(&d->tape);
    return tape_output_gradient(x);
}

double discriminator_weigh(struct discriminator *d, const double *squares)
{
    double norms[2];
    device_get(d->tape.device, norms, squares, sizeof norms);
    return d->now[DISCRIMINATOR_WEIGHT] = discriminator_weight(norms[0], norms[1], d->settings);
}

void discriminator_learn(struct discriminator *d, const struct tensor *original, const struct tensor *decoded)
{
    struct device *device = d->tape.device;
    struct state_values state = get_state(d);
    double means[2] = {(double)state.mean[DISCRIMINATOR_REAL], (double)state.mean[DISCRIMINATOR_DECODED]};
    tape_clear(&d->tape, true);
    set_learning(d, true);
    weights_begin_step(&d->weights);
    struct tensor *both = tape_tensor(&d->tape, original->dtype, 2 * original->rows, original->columns);
    struct matrix all = tensor_matrix(both);
    device->ops->copy(device, matrix_rows(all, 0, original->rows), tensor_matrix(original), 1, false);
    device->ops->copy(device, matrix_rows(all, original->rows, original->rows), tensor_matrix(decoded), 1, false);
    struct tensor *logits = d->network(&d->tape, d->context, both);
    i64 n = logits->rows / 2;
    float *values = get_logits(d, logits), *gradient = memory_alloc(2 * n * 4);
    d->now[DISCRIMINATOR_REAL] = mean_of(values, n);
    d->now[DISCRIMINATOR_DECODED] = mean_of(values + n, n);
    d->now[DISCRIMINATOR_LOSS] =
        discriminator_loss(gradient, values, n, state.updates > 0 ? means : NULL, d->settings->lecam);
    op_add_gradient(&d->tape, logits, put_gradient(d, gradient, 2 * n));
    memory_free(values);
    memory_free(gradient);
    tape_backward(&d->tape);
}

/* ---- the update ---- */

static void move_means(struct discriminator *d)
{
    struct state_values state = get_state(d);
    double keep = fmin(keep_most, (double)state.updates / (double)(state.updates + 10));
    for (int i = 0; i < DISCRIMINATOR_FIGURES; i++)
        state.mean[i] = (float)(keep * (double)state.mean[i] + (1 - keep) * d->now[i]);
    state.updates++;
    weight_put(&d->weights, d->state, 0, 1, (const float *)&state);
}

void discriminator_update(struct discriminator *d, const struct discriminator_update *u)
{
    struct device *device = d->tape.device;
    const struct parallel *alone = parallel_alone();
    struct optimizer_settings own = *u->optimizer;
    double *squares = tape_alloc(&d->tape, 2 * sizeof *squares), norms[2], before;
    device_get(device, &before, u->squares, sizeof before);
    device->ops->zero(device, squares, 2 * sizeof *squares);
    optimizer_squares(alone, u->weights, &squares[0]);
    optimizer_squares(alone, &d->weights, &squares[1]);
    device_get(device, norms, squares, sizeof norms);
    bool moves = isfinite(before) && isfinite(norms[0]) && isfinite(norms[1]);
    norms[0] = norms[1] = moves ? 0 : INFINITY; /* infinite: suppresses an update */
    device_put(device, squares, norms, sizeof norms);
    own.beta1 = beta1;
    own.beta2 = beta2;
    optimizer_step_over(alone, u->weights, u->optimizer, u->lr, u->step, &squares[0]);
    optimizer_step_over(alone, &d->weights, &own, u->lr * d->settings->lr, u->own_step, &squares[1]);
    device_get(device, norms, squares, sizeof norms);
    device_put(device, u->squares, norms, sizeof *norms);
    if (moves)
        move_means(d);
}
