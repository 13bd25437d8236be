/* The network of the refiner, and its loss. */
#include "tokenizers/vision/refiner.h"

#include "tokenizers/vision/vision_blocks.h"

#include <math.h>
#include <stdio.h>

static const float z_gain = 4; /* z is about a quarter as large as c */

/* ---- the table ---- */

static struct weight *add_level(struct weights *weights, const char *stem, i64 level, i64 rows, i64 columns)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%lld.weight", stem, (long long)level);
    return rows ? vision_add_matrix(weights, name, rows, columns, INIT_NORMAL)
                : vision_add_vector(weights, name, columns, INIT_ONES);
}

void refiner_open(struct refiner *r, struct device *device, const struct refiner_config *c, enum dtype dtype,
                  bool training)
{
    struct refiner_weights *at = &r->at;
    struct weights *w = &r->weights;
    char stem[32];
    *r = (struct refiner){.config = *c, .device = device};
    weights_open(w, device, dtype, training, NULL);
    at->in = vision_add_matrix(w, "in.weight", c->channels[0], 9 * REFINER_INPUTS, INIT_NORMAL);
    at->in_bias = vision_add_vector(w, "in.bias", c->channels[0], INIT_ZEROS);
    for (i64 l = 0; l < REFINER_LEVELS - 1; l++) {
        snprintf(stem, sizeof stem, "enc.%lld", (long long)l);
        vision_add_blocks(w, at->enc[l], c->blocks, stem, c->channels[l]);
        at->down[l] = add_level(w, "down", l, c->channels[l + 1], 4 * c->channels[l]);
    }
    vision_add_blocks(w, at->middle, 2 * c->blocks, "middle", c->channels[REFINER_LEVELS - 1]);
    for (i64 l = REFINER_LEVELS - 2; l >= 0; l--) {
        snprintf(stem, sizeof stem, "dec.%lld", (long long)l);
        at->norm[l] = add_level(w, "norm", l, 0, c->channels[l + 1]);
        at->up[l] = add_level(w, "up", l, 4 * c->channels[l], c->channels[l + 1]);
        vision_add_blocks(w, at->dec[l], c->blocks, stem, c->channels[l]);
    }
    at->out_norm = vision_add_vector(w, "out_norm.weight", c->channels[0], INIT_ONES);
    at->out = vision_add_matrix(w, "out.weight", REFINER_VALUES, 9 * c->channels[0], INIT_ZEROS);
    at->out_bias = vision_add_vector(w, "out.bias", REFINER_VALUES, INIT_ZEROS);
    weights_allocate(w);
    tape_open(&r->tape, device, dtype, (i64)16 << 30);
}

void refiner_close(struct refiner *r)
{
    weights_close(&r->weights);
    tape_close(&r->tape);
    *r = (struct refiner){0};
}

/* ---- rows ---- */

/* Writes 2 x 2 pixels of `values` [height, width, 3] as the columns of a patch. */
static void put_patch(float *patch, const float *values, i64 width, i64 y, i64 x)
{
    for (i64 dy = 0; dy < REFINER_PATCH; dy++)
        for (i64 i = 0; i < 3 * REFINER_PATCH; i++)
            patch[dy * 3 * REFINER_PATCH + i] = values[((y + dy) * width + x) * 3 + i];
}

void refiner_to_patches(float *patches, const float *values, i64 height, i64 width)
{
    for (i64 y = 0; y < height; y += REFINER_PATCH)
        for (i64 x = 0; x < width; x += REFINER_PATCH, patches += REFINER_VALUES)
            put_patch(patches, values, width, y, x);
}

void refiner_of_patches(float *values, const float *patches, i64 height, i64 width)
{
    for (i64 y = 0; y < height; y += REFINER_PATCH)
        for (i64 x = 0; x < width; x += REFINER_PATCH)
            for (i64 dy = 0; dy < REFINER_PATCH; dy++)
                for (i64 i = 0; i < 3 * REFINER_PATCH; i++)
                    values[((y + dy) * width + x) * 3 + i] = *patches++;
}

static float signed_of(u8 value)
{
    return (float)value * (2.0f / 255) - 1;
}

void refiner_put_rows(float *rows, const float *z, const u8 *enlarged, i64 height, i64 width, double t, double strength)
{
    float flags[REFINER_FLAGS] = {(float)strength, (float)t};
    for (int i = 0; i < 3; i++) {
        flags[2 + 2 * i] = (float)cos(M_PI * t * (1 << i));
        flags[3 + 2 * i] = (float)sin(M_PI * t * (1 << i));
    }
    for (i64 y = 0; y < height; y += REFINER_PATCH)
        for (i64 x = 0; x < width; x += REFINER_PATCH, rows += REFINER_INPUTS) {
            put_patch(rows, z, width, y, x);
            for (i64 i = 0; i < REFINER_VALUES; i++) {
                i64 dy = i / (3 * REFINER_PATCH), at = ((y + dy) * width + x) * 3 + i % (3 * REFINER_PATCH);
                rows[i] *= z_gain;
                rows[REFINER_VALUES + i] = signed_of(enlarged[at]);
            }
            for (i64 i = 0; i < REFINER_FLAGS; i++)
                rows[2 * REFINER_VALUES + i] = flags[i];
        }
}

void refiner_between(float *z, float *velocity, const u8 *original, const u8 *enlarged, i64 count,
                     const struct refiner_state *s)
{
    for (i64 i = 0; i < count; i++) {
        double noise = s->noise * rng_normal(s->key, s->step, s->item, (u32)i, REFINER_NOISE);
        double residual = (double)(original[i] - enlarged[i]) * (2.0 / 255);
        z[i] = (float)((1 - s->t) * noise + s->t * residual);
        velocity[i] = (float)(residual - noise);
    }
}

/* ---- the forward ---- */

/* Host rows as a tensor in F32, or in the activations' dtype. */
static struct tensor *put_rows(struct tape *tape, const float *rows, i64 count, i64 columns, enum dtype dtype)
{
    struct tensor *out = tape_tensor(tape, dtype, count, columns);
    float *values = dtype == DTYPE_F32 ? out->data : tape_alloc(tape, count * columns * 4);
    device_put(tape->device, values, rows, count * columns * 4);
    if (dtype != DTYPE_F32)
        tape->device->ops->copy(tape->device, tensor_matrix(out), matrix_of(values, DTYPE_F32, count, columns), 1,
                                false);
    return out;
}

/* 2 x 2 positions become one with four times the channels. */
static struct tensor *gather_positions(struct tape *tape, struct tensor *x, struct vision_grid *g)
{
    const i64 shape[6] = {g->n, g->h / 2, 2, g->w / 2, 2, x->columns}, order[6] = {0, 1, 3, 2, 4, 5};
    g->h /= 2;
    g->w /= 2;
    return op_permute(tape, x, 6, shape, order, 4 * x->columns);
}

static struct tensor *spread_positions(struct tape *tape, struct tensor *x, struct vision_grid *g)
{
    const i64 shape[6] = {g->n, g->h, g->w, 2, 2, x->columns / 4}, order[6] = {0, 1, 3, 2, 4, 5};
    g->h *= 2;
    g->w *= 2;
    return op_permute(tape, x, 6, shape, order, x->columns / 4);
}

struct tensor *refiner_velocity(struct tape *tape, const struct refiner *r, const struct refiner_batch *b)
{
    const struct refiner_weights *at = &r->at;
    const struct refiner_config *c = &r->config;
    struct vision_grid g = {1, b->n, b->height / REFINER_PATCH, b->width / REFINER_PATCH};
    struct tensor *kept[REFINER_LEVELS - 1];
    struct tensor *x = put_rows(tape, b->rows, g.n * g.h * g.w, REFINER_INPUTS, tape->activations);
    x = op_bias(tape, vision_conv3x3(tape, x, at->in, g), &at->in_bias->value);
    for (i64 l = 0; l < REFINER_LEVELS - 1; l++) {
        x = kept[l] = vision_run_blocks(tape, x, at->enc[l], c->blocks, g);
        x = op_linear(tape, gather_positions(tape, x, &g), &at->down[l]->value, tape->activations);
    }
    x = vision_run_blocks(tape, x, at->middle, 2 * c->blocks, g);
    for (i64 l = REFINER_LEVELS - 2; l >= 0; l--) {
        x = op_rmsnorm(tape, x, &at->norm[l]->value, vision_norm_eps);
        x = op_linear(tape, x, &at->up[l]->value, tape->activations);
        x = op_add(tape, spread_positions(tape, x, &g), kept[l]);
        x = vision_run_blocks(tape, x, at->dec[l], c->blocks, g);
    }
    x = op_rmsnorm(tape, x, &at->out_norm->value, vision_norm_eps);
    x = op_bias(tape, vision_conv3x3(tape, x, at->out, g), &at->out_bias->value);
    return op_scale(tape, x, 1, DTYPE_F32);
}

void refiner_loss(double *sum, struct tape *tape, const struct refiner *r, const struct refiner_batch *b)
{
    struct tensor *x = refiner_velocity(tape, r, b);
    struct tensor *y = put_rows(tape, b->velocity, x->rows, REFINER_VALUES, DTYPE_F32);
    float *share = tape_alloc(tape, x->rows * 4); /* the mean of the rows */
    tape->device->ops->fill(tape->device, share, x->rows, (float)(1 / (double)x->rows));
    struct loss loss = op_distance(tape, x, y, DISTANCE_L2, share);
    tape->device->ops->sum_values(tape->device, sum, loss.value, loss.n);
}
