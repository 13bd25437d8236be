/* The network of the vision tokenizer: table of weights and forward pass on a tape. Layers in []
 * exist with `inflated` only.
 *
 *   encoder: 4x4 patches -> 3x3 conv -> blocks -> space to depth -> 1x1
 *            -> [time, reduce, time] -> blocks -> norm -> 1x1
 *   decoder: 3x3 conv -> [time, expand, time] -> blocks -> norm -> 1x1
 *            -> depth to space -> blocks -> norm -> 3x3 conv */
#include "tokenizers/vision/vision_blocks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATCH = 4, PATCH_VALUES = PATCH * PATCH * 3 };

/* ---- the table ---- */

static void add_encoder(struct weights *weights, struct vision_weights *at, const struct vision_config *c)
{
    i64 fine = c->channels[0], coarse = c->channels[1], ratio = c->stride / PATCH;
    at->enc_in = vision_add_matrix(weights, "encoder.in.weight", fine, 9 * PATCH_VALUES, INIT_NORMAL);
    at->enc_in_bias = vision_add_vector(weights, "encoder.in.bias", fine, INIT_ZEROS);
    vision_add_blocks(weights, at->enc_fine, c->blocks[0], "encoder.fine", fine);
    at->enc_down = vision_add_matrix(weights, "encoder.down.weight", coarse, ratio * ratio * fine, INIT_NORMAL);
    at->enc_time1 = vision_add_matrix(weights, "encoder.time1.weight", coarse, 3 * coarse, INIT_ZEROS);
    at->enc_reduce = vision_add_matrix(weights, "encoder.reduce.weight", coarse, VISION_GROUP * coarse, INIT_ZEROS);
    at->enc_time2 = vision_add_matrix(weights, "encoder.time2.weight", coarse, 3 * coarse, INIT_ZEROS);
    vision_add_blocks(weights, at->enc_coarse, c->blocks[1], "encoder.coarse", coarse);
    at->enc_norm = vision_add_vector(weights, "encoder.norm.weight", coarse, INIT_ONES);
    at->enc_out = vision_add_matrix(weights, "encoder.out.weight", c->bits, coarse, INIT_NORMAL);
    at->enc_out_bias = vision_add_vector(weights, "encoder.out.bias", c->bits, INIT_ZEROS);
}

static void add_decoder(struct weights *weights, struct vision_weights *at, const struct vision_config *c)
{
    i64 fine = c->channels[0], coarse = c->channels[1], ratio = c->stride / PATCH;
    at->dec_in = vision_add_matrix(weights, "decoder.in.weight", coarse, 9 * c->bits, INIT_NORMAL);
    at->dec_in_bias = vision_add_vector(weights, "decoder.in.bias", coarse, INIT_ZEROS);
    at->dec_time1 = vision_add_matrix(weights, "decoder.time1.weight", coarse, 3 * coarse, INIT_ZEROS);
    at->dec_expand = vision_add_matrix(weights, "decoder.expand.weight", VISION_GROUP * coarse, coarse, INIT_ZEROS);
    at->dec_time2 = vision_add_matrix(weights, "decoder.time2.weight", coarse, 3 * coarse, INIT_ZEROS);
    vision_add_blocks(weights, at->dec_coarse, c->blocks[1], "decoder.coarse", coarse);
    at->dec_norm = vision_add_vector(weights, "decoder.norm.weight", coarse, INIT_ONES);
    at->dec_up = vision_add_matrix(weights, "decoder.up.weight", ratio * ratio * fine, coarse, INIT_NORMAL);
    vision_add_blocks(weights, at->dec_fine, c->blocks[0], "decoder.fine", fine);
    at->dec_out_norm = vision_add_vector(weights, "decoder.out_norm.weight", fine, INIT_ONES);
    at->dec_out = vision_add_matrix(weights, "decoder.out.weight", PATCH_VALUES, 9 * fine, INIT_NORMAL);
    at->dec_out_bias = vision_add_vector(weights, "decoder.out.bias", PATCH_VALUES, INIT_ZEROS);
}

/* The optimizer skips weights without a gradient: the temporal ones without inflation, and those that make
 * bits that stay. The encoder's rows come first, the projection to bits is the last of them. */
static void mark_trained(struct vision *vision)
{
    const struct vision_weights *at = &vision->at;
    struct weight *temporal[] = {at->enc_time1, at->enc_reduce, at->enc_time2,
                                 at->dec_time1, at->dec_expand, at->dec_time2};
    for (i64 i = 0; i < COUNT_OF(temporal); i++)
        temporal[i]->value.needs_grad = vision->weights.training && vision->config.inflated;
    for (i64 i = 0; vision->kept_bits && &vision->weights.list[i] != at->dec_in; i++)
        vision->weights.list[i].value.needs_grad = false;
    if (vision->kept_bits == 0 || vision->kept_bits == vision->config.bits)
        return;
    at->enc_out->value.needs_grad = at->enc_out_bias->value.needs_grad = vision->weights.training;
    at->enc_out->kept = vision->kept_bits * at->enc_out->columns;
    at->enc_out_bias->kept = vision->kept_bits;
}

void vision_keep_bits(struct vision *vision, i64 bits)
{
    vision->kept_bits = bits;
    mark_trained(vision);
}

void vision_open(struct vision *vision, struct device *device, const struct vision_config *config, enum dtype dtype,
                 bool training)
{
    *vision = (struct vision){.config = *config, .device = device, .dtype = dtype};
    weights_open(&vision->weights, device, dtype, training, NULL);
    add_encoder(&vision->weights, &vision->at, config);
    add_decoder(&vision->weights, &vision->at, config);
    struct weight_spec state = {.name = "amplitude",
                                .matrices = 1,
                                .rows = config->shape_count,
                                .columns = VISION_SCALES_MOST,
                                .pieces = {{"amplitude", config->shape_count}},
                                .disk_rank = 2,
                                .type = TYPE_F32,
                                .init = INIT_ONES};
    vision->at.amplitude = weights_add(&vision->weights, &state);
    if (config->centred) {
        struct weight_spec centre = state;
        centre.name = centre.pieces[0].name = "centre";
        centre.rows = centre.pieces[0].rows = 2;
        centre.columns = config->bits;
        centre.init = INIT_ZEROS;
        vision->at.centre = weights_add(&vision->weights, &centre);
    }
    weights_allocate(&vision->weights);
    mark_trained(vision);
    tape_open(&vision->tape, device, dtype, (i64)16 << 30);
}

void vision_close(struct vision *vision)
{
    weights_close(&vision->weights);
    tape_close(&vision->tape);
    *vision = (struct vision){0};
}

/* Sets identity taps: all four row blocks of the expansion (rows), or the last column block of the
 * reduction. */
static void put_taps(struct weights *weights, struct weight *w, i64 channels, bool rows)
{
    float *values = memory_alloc(w->rows * w->columns * 4);
    for (i64 tap = rows ? 0 : VISION_GROUP - 1; tap < VISION_GROUP; tap++)
        for (i64 c = 0; c < channels; c++)
            values[rows ? (tap * channels + c) * w->columns + c : c * w->columns + tap * channels + c] = 1;
    weight_put(weights, w, 0, w->rows, values);
    memory_free(values);
}

void vision_init(struct vision *vision, u64 seed)
{
    weights_init(&vision->weights, seed);
    put_taps(&vision->weights, vision->at.enc_reduce, vision->config.channels[1], false);
    put_taps(&vision->weights, vision->at.dec_expand, vision->config.channels[1], true);
}

/* Copies the beginning of each row, or of each of `blocks` blocks of a row. The rest keeps its values, or
 * becomes 0. */
static void take_weight(struct vision *vision, struct weight *to, const struct vision *source, struct weight *from,
                        i64 blocks, bool zeros)
{
    i64 has = from->columns / blocks, width = to->columns / blocks;
    float *values = memory_alloc(to->rows * to->columns * 4), *taken = memory_alloc(from->rows * from->columns * 4);
    require(strcmp(from->spec.name, to->spec.name) == 0 && from->rows <= to->rows && has <= width, "weight %s, %s",
            from->spec.name, to->spec.name);
    if (!zeros)
        weight_get(&vision->weights, to, 0, to->rows, values);
    weight_get(&source->weights, from, 0, from->rows, taken);
    for (i64 i = 0; i < from->rows * blocks; i++)
        memcpy(values + i * width, taken + i * has, (size_t)has * 4);
    weight_put(&vision->weights, to, 0, to->rows, values);
    memory_free(values);
    memory_free(taken);
}

void vision_take(struct vision *vision, const struct vision *from)
{
    for (i64 i = 0; i < from->weights.count; i++) { /* the same order */
        struct weight *to = &vision->weights.list[i];
        bool reads_bits = to == vision->at.dec_in; /* 3x3 positions of d bits */
        take_weight(vision, to, from, &from->weights.list[i], reads_bits ? 9 : 1, reads_bits);
    }
}

void vision_inflate(struct vision *vision)
{
    vision->config.inflated = true;
    mark_trained(vision);
}

/* ---- the forward; rows are (time, n, h, w) ---- */

/* Causal convolution over time only: all other axes have kernel 1, and padding is in front only. */
static struct tensor *conv_time(struct tape *tape, struct tensor *x, struct weight *w, struct vision_grid g, i64 kernel,
                                i64 stride)
{
    struct conv conv = {.batch = 1,
                        .in = x->columns,
                        .out = w->rows,
                        .size = {g.frames, 1, g.n * g.h * g.w},
                        .kernel = {kernel, 1, 1},
                        .stride = {stride, 1, 1},
                        .dilation = {1, 1, 1},
                        .pad_front = {kernel - 1, 0, 0}};
    return op_conv(tape, x, &w->value, &conv);
}

static struct tensor *add_time(struct tape *tape, struct tensor *x, struct weight *w, struct vision_grid g)
{
    return op_add_onto(tape, conv_time(tape, x, w, g, 3, 1), x);
}

/* Reduces frames -3..0 (three are padding), 1..4, ... to one each. */
static struct tensor *reduce_time(struct tape *tape, struct tensor *x, const struct vision_weights *at,
                                  struct vision_grid *g)
{
    x = add_time(tape, x, at->enc_time1, *g);
    x = conv_time(tape, x, at->enc_reduce, *g, VISION_GROUP, VISION_GROUP);
    g->frames = vision_latent_frames(g->frames);
    return add_time(tape, x, at->enc_time2, *g);
}

/* Expands each latent frame to four frames; the first three precede the clip and are dropped. */
static struct tensor *expand_time(struct tape *tape, struct tensor *x, const struct vision_weights *at,
                                  struct vision_grid *g)
{
    i64 channels = x->columns, rows = g->n * g->h * g->w;
    const i64 shape[4] = {g->frames, rows, VISION_GROUP, channels};
    const i64 order[4] = {0, 2, 1, 3};
    x = add_time(tape, x, at->dec_time1, *g);
    x = op_linear(tape, x, &at->dec_expand->value, tape->activations);
    x = op_permute(tape, x, 4, shape, order, channels);
    i64 before = (VISION_GROUP - 1) * rows;
    x = op_rows(tape, x, before, x->rows - before);
    g->frames = vision_frames(g->frames);
    return add_time(tape, x, at->dec_time2, *g);
}

/* Maps 0..255 to -1..1. */
struct tensor *vision_patches(struct tape *tape, const struct vision *vision, const u8 *pixels, struct vision_size s)
{
    struct device *device = tape->device;
    i64 stride = vision->config.stride;
    require(s.n > 0 && s.height % stride == 0 && s.width % stride == 0 && (s.frames - 1) % VISION_GROUP == 0,
            "vision: %lld clips of %lld frames of %lld x %lld", (long long)s.n, (long long)s.frames,
            (long long)s.height, (long long)s.width);
    i64 h = s.height / PATCH, w = s.width / PATCH, bytes = s.n * s.frames * s.height * s.width * 3;
    const i64 shape[6] = {s.n, s.frames, h, PATCH, w, PATCH * 3};
    const i64 order[6] = {1, 0, 2, 4, 3, 5};
    u8 *in = tape_alloc(tape, bytes), *ordered = tape_alloc(tape, bytes);
    struct tensor *x = tape_tensor(tape, tape->activations, bytes / PATCH_VALUES, PATCH_VALUES);
    device_put(device, in, pixels, bytes);
    device->ops->permute(device, ordered, in, DTYPE_U8, 6, shape, order);
    device->ops->widen_bytes(device, tensor_matrix(x), ordered, 2.0f / 255, -1);
    return x;
}

struct tensor *vision_features(struct tape *tape, const struct vision *vision, struct tensor *patches,
                               struct vision_size s)
{
    const struct vision_weights *at = &vision->at;
    const struct vision_config *c = &vision->config;
    i64 ratio = c->stride / PATCH, fine = c->channels[0];
    struct vision_grid g = {s.frames, s.n, s.height / PATCH, s.width / PATCH};
    require(s.frames == 1 || c->inflated, "a clip for a vision tokenizer of stills");
    struct tensor *x = op_bias(tape, vision_conv3x3(tape, patches, at->enc_in, g), &at->enc_in_bias->value);
    x = vision_run_blocks(tape, x, at->enc_fine, c->blocks[0], g);
    g.h /= ratio;
    g.w /= ratio;
    const i64 shape[6] = {g.frames * g.n, g.h, ratio, g.w, ratio, fine};
    const i64 order[6] = {0, 1, 3, 2, 4, 5};
    x = op_permute(tape, x, 6, shape, order, ratio * ratio * fine);
    x = op_linear(tape, x, &at->enc_down->value, tape->activations);
    if (c->inflated)
        x = reduce_time(tape, x, at, &g);
    x = vision_run_blocks(tape, x, at->enc_coarse, c->blocks[1], g);
    return op_rmsnorm(tape, x, &at->enc_norm->value, vision_norm_eps);
}

struct tensor *vision_project(struct tape *tape, const struct vision *vision, struct tensor *features)
{
    struct tensor *f = op_linear(tape, features, &vision->at.enc_out->value, DTYPE_F32);
    return op_bias(tape, f, &vision->at.enc_out_bias->value);
}

/* x + sign * the centre of stills or clips. */
static struct tensor *add_centre(struct tape *tape, const struct vision *vision, struct tensor *x, bool clips,
                                 float sign)
{
    i64 d = vision->config.bits;
    if (!vision->at.centre)
        return x;
    struct tensor *by = tape_tensor(tape, DTYPE_F32, 1, d);
    struct matrix row = matrix_of((float *)vision->at.centre->value.data + clips * d, DTYPE_F32, 1, d);
    tape->device->ops->copy(tape->device, tensor_matrix(by), row, sign, false);
    return op_bias(tape, x, by);
}

struct tensor *vision_latent(struct tape *tape, const struct vision *vision, struct tensor *features, bool clips)
{
    struct device *device = tape->device;
    struct tensor *f = add_centre(tape, vision, vision_project(tape, vision, features), clips, -1),
                  *rounded = tape_tensor(tape, DTYPE_F32, f->rows, f->columns);
    struct matrix narrow = matrix_of(tape_alloc(tape, f->rows * f->columns * 2), DTYPE_BF16, f->rows, f->columns);
    device->ops->copy(device, narrow, tensor_matrix(f), 1, false);
    device->ops->copy(device, tensor_matrix(rounded), narrow, 1, false);
    return op_straight_through(tape, f, rounded);
}

struct tensor *vision_inside(struct tape *tape, const struct vision *vision, struct tensor *sum, struct vision_size s)
{
    const struct vision_weights *at = &vision->at;
    const struct vision_config *c = &vision->config;
    i64 ratio = c->stride / PATCH, fine = c->channels[0];
    struct vision_grid g = {vision_latent_frames(s.frames), s.n, s.height / c->stride, s.width / c->stride};
    struct tensor *x = op_scale(tape, add_centre(tape, vision, sum, s.frames > 1, 1), 1, tape->activations);
    x = op_bias(tape, vision_conv3x3(tape, x, at->dec_in, g), &at->dec_in_bias->value);
    if (c->inflated)
        x = expand_time(tape, x, at, &g);
    x = vision_run_blocks(tape, x, at->dec_coarse, c->blocks[1], g);
    x = op_rmsnorm(tape, x, &at->dec_norm->value, vision_norm_eps);
    x = op_linear(tape, x, &at->dec_up->value, tape->activations);
    const i64 shape[6] = {g.frames * g.n, g.h, g.w, ratio, ratio, fine};
    const i64 order[6] = {0, 1, 3, 2, 4, 5};
    x = op_permute(tape, x, 6, shape, order, fine);
    g.h *= ratio;
    g.w *= ratio;
    x = vision_run_blocks(tape, x, at->dec_fine, c->blocks[0], g);
    return op_rmsnorm(tape, x, &at->dec_out_norm->value, vision_norm_eps);
}

/* The grid of patches. */
static struct vision_grid patch_grid(struct vision_size s)
{
    return (struct vision_grid){s.frames, s.n, s.height / PATCH, s.width / PATCH};
}

struct tensor *vision_outside(struct tape *tape, const struct vision *vision, struct tensor *inside,
                              struct vision_size s)
{
    const struct vision_weights *at = &vision->at;
    return op_bias(tape, vision_conv3x3(tape, inside, at->dec_out, patch_grid(s)), &at->dec_out_bias->value);
}

struct tensor *vision_pixels(struct tape *tape, const struct vision *vision, struct tensor *sum, struct vision_size s)
{
    return vision_outside(tape, vision, vision_inside(tape, vision, sum, s), s);
}

void vision_last_square(double *square, struct tape *tape, const struct vision *vision, const struct tensor *inside,
                        struct matrix gradient, struct vision_size s)
{
    const struct weight *last = vision->at.dec_out;
    struct conv conv = vision_conv_of(inside, last, patch_grid(s));
    i64 count = last->rows * last->columns;
    float *of_weight = tape_alloc(tape, count * 4);
    struct update update = {.g = of_weight, .count = count};
    tape->device->ops->conv_backward_weights(tape->device, matrix_of(of_weight, DTYPE_F32, last->rows, last->columns),
                                             gradient, tensor_matrix(inside), &conv, false);
    tape->device->ops->sum_squares(tape->device, square, &(struct updates){1, &update});
}
