#include "tokenizer_training/discriminator.h"

#include "dist/dist.h"

#include <math.h>

/* Running means keep this share, fewer at first. Betas of the discriminator as in VQGAN's program. */
static const double keep_most = 0.99, beta1 = 0.5, beta2 = 0.9;

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
    tape_open(&d->tape, device, dtype, (i64)16 << 30);
}

void discriminator_close(struct discriminator *d)
{
    weights_close(&d->weights);
    tape_close(&d->tape);
    *d = (struct discriminator){0};
}

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
    struct tensor *x = discriminator_input(d, decoded), *logits = d->network(&d->tape, d->context, x);
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
