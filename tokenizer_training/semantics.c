#include "tokenizer_training/tokenizer_training.h"

#include "dist/dist.h"

#include <math.h>
#include <string.h>

static const float norm_eps = 1e-6f;

bool semantic_is_wanted(const struct semantic_settings *s)
{
    return s->target && *s->target;
}

int semantic_check(const struct semantic_settings *s, int train)
{
    if (semantic_is_wanted(s) && train == TRAIN_DECODER)
        return error_usage("semantic: %s with train: decoder, which leaves the codes as they are: expected train: all, "
                           "or no semantic",
                           s->target);
    return 0;
}

/* ---- the table ---- */

/* Odds of a word that the captions of `media` of `count` have; one more and one less, so they are finite. */
static float log_odds(i64 media, i64 count)
{
    return (float)log(((double)media + 1) / ((double)(count - media) + 1));
}

static void put_bias(struct semantic *s)
{
    const struct semantic_targets *t = s->targets;
    float *values = memory_alloc(t->width * 4);
    for (i64 i = 0; i < t->words.count; i++)
        values[i] = log_odds(t->words.media[i], t->count);
    weight_put(&s->weights, s->bias, 0, 1, values);
    memory_free(values);
}

void semantic_open(struct semantic *s, struct device *device, enum dtype dtype, const struct semantic_targets *targets,
                   i64 columns, u64 seed)
{
    struct weight_spec map = weight_matrix("semantic.map", targets->width, columns);
    struct weight_spec bias = {.name = "semantic.bias",
                               .matrices = 1,
                               .rows = 1,
                               .columns = targets->width,
                               .pieces = {{"semantic.bias", 1}},
                               .disk_rank = 1,
                               .trained = true,
                               .type = TYPE_F32,
                               .init = INIT_ZEROS};
    map.type = TYPE_F32;
    *s = (struct semantic){.targets = targets};
    weights_open(&s->weights, device, dtype, true, NULL);
    s->map = weights_add(&s->weights, &map);
    s->bias = weights_add(&s->weights, &bias);
    weights_allocate(&s->weights);
    weights_init(&s->weights, seed);
    put_bias(s);
}

void semantic_close(struct semantic *s)
{
    if (s->targets)
        weights_close(&s->weights);
    *s = (struct semantic){0};
}

/* ---- the loss ---- */

/* [n, D] */
static struct tensor *mean_of_media(struct tape *tape, struct tensor *features, const struct semantic_batch *b)
{
    i64 rows = b->times * b->positions, width = features->columns;
    const i64 shape[4] = {b->times, b->n, b->positions, width}, order[4] = {1, 3, 0, 2};
    require(features->rows == rows * b->n, "%lld rows of features of %lld media", (long long)features->rows,
            (long long)b->n);
    struct tensor *apart = op_permute(tape, features, 4, shape, order, rows); /* [n D, rows] */
    float *share = tape_alloc(tape, rows * 4);
    tape->device->ops->fill(tape->device, share, rows, 1 / (float)rows);
    return op_view(tape, op_linear_exact(tape, apart, op_borrow(tape, share, DTYPE_F32, 1, rows)), width);
}

/* Rows of a table of the targets, of `bytes` each, on the device. */
static void *put_rows(struct tape *tape, const void *table, const struct semantic_batch *b, i64 bytes)
{
    char *rows = memory_alloc(b->n * bytes), *on_device = tape_alloc(tape, b->n * bytes);
    for (i64 i = 0; i < b->n; i++)
        memcpy(rows + i * bytes, (const char *)table + b->media[i] * bytes, (size_t)bytes);
    device_put(tape->device, on_device, rows, b->n * bytes);
    memory_free(rows);
    return on_device;
}

double semantic_unit(const struct semantic *s)
{
    /* 1 - cos is half of the squared distance of two directions */
    return s->targets->features ? 0.5 : (double)s->targets->width;
}

void semantic_add(double *sum, struct semantic *s, struct tape *tape, struct tensor *features,
                  const struct semantic_batch *b, double weight)
{
    const struct semantic_targets *t = s->targets;
    struct device *device = tape->device;
    struct tensor *out = op_linear_exact(tape, mean_of_media(tape, features, b), &s->map->value);
    float *coefficients = tape_alloc(tape, b->n * 4);
    struct loss loss;
    out = op_bias(tape, out, &s->bias->value);
    device->ops->fill(device, coefficients, b->n, (float)(weight * semantic_unit(s) / (double)b->n));
    if (t->features) {
        float *teacher = put_rows(tape, t->features, b, t->width * 4);
        loss = op_distance(tape, op_rmsnorm(tape, out, NULL, norm_eps),
                           op_borrow(tape, teacher, DTYPE_F32, b->n, t->width), DISTANCE_L2, coefficients);
    } else {
        loss = op_bit_cross_entropy(tape, out, put_rows(tape, t->occurs, b, t->width), coefficients, false, NULL);
    }
    device->ops->sum_values(device, sum, loss.value, loss.n);
}

/* ---- the update ---- */

void semantic_guard(struct semantic *s, struct tape *tape, double *squares)
{
    double *own = tape_alloc(tape, sizeof *own), value, suppressed = INFINITY;
    tape->device->ops->zero(tape->device, own, sizeof *own);
    optimizer_squares(parallel_alone(), &s->weights, own);
    device_get(tape->device, &value, own, sizeof value);
    if (!isfinite(value))
        device_put(tape->device, squares, &suppressed, sizeof suppressed);
}

void semantic_update(struct semantic *s, struct tape *tape, const struct optimizer_settings *settings, double lr,
                     i64 step, const double *squares)
{
    double *own = tape_alloc(tape, sizeof *own), value;
    device_get(tape->device, &value, squares, sizeof value);
    value = isfinite(value) ? 0 : INFINITY;
    device_put(tape->device, own, &value, sizeof value);
    optimizer_step_over(parallel_alone(), &s->weights, settings, lr, step, own);
}

/* ---- checkpoints ---- */

static struct json *state_of(const struct semantic *s)
{
    struct json *words = json_array();
    for (i64 i = 0; i < s->targets->words.count; i++)
        json_push(words, json_of_string(s->targets->words.list[i]));
    return words;
}

void semantic_put_state(const struct semantic *s, struct json *state)
{
    if (s->targets)
        json_set(state, "semantic", state_of(s));
}

int semantic_check_state(const struct semantic *s, const struct json *state, const char *folder)
{
    const struct json *was = json_get(state, "semantic");
    if (!s->targets || !was)
        return 0;
    for (i64 i = 0; i < max_i64(json_count(was), s->targets->words.count); i++) {
        const char *before = json_string(json_at(was, i), ""),
                   *now = i < s->targets->words.count ? s->targets->words.list[i] : "";
        if (strcmp(before, now) != 0)
            return error_set("%s tells word %lld, \"%s\", and the captions of these data give \"%s\" there: expected "
                             "the same data, or `from` instead of `continue`, which begins a new head",
                             folder, (long long)i + 1, before, now);
    }
    return 0;
}
