/* The discriminator of pictures and of frames of clips: a patch discriminator, each of whose logits sees a
 * square of 44 pixels (Isola et al. 2017, arXiv 1611.07004), of residual blocks as in StyleGAN2 (Karras et
 * al. 2020, arXiv 1912.04958), with SiLU and without the statistics of the batch.
 *
 *   patches -> pixels -> 4x4, stride 2 -> silu -> two blocks, each half as fine and twice as wide
 *           -> 3x3 -> silu -> 1x1 -> logits, one for 8 x 8 pixels
 *   block: (silu(3x3, stride 2 of silu(3x3 of x)) + 2x2, stride 2 of x) / sqrt(2)
 *
 * Losses of features read what the first layer and the blocks give. */
#include "tokenizer_training/vision_step.h"

#include <math.h>
#include <stdio.h>

enum { PATCH = 4, FIRST = 4, COLOURS = 3 };

/* ---- the table ---- */

static struct tensor *run_network(struct tape *tape, void *context, struct tensor *patches);

bool vision_has_discriminator(const struct vision_settings *s)
{
    return s->discriminator.weight > 0 || s->loss.of[VISION_FEATURES] > 0 || s->loss.of[VISION_GRAM] > 0;
}

void vision_discriminator_open(struct vision_discriminator *v, struct device *device, enum dtype dtype,
                               const struct vision_settings *settings, u64 seed)
{
    struct weights *weights = &v->common.weights;
    i64 width = settings->discriminator.width;
    discriminator_open(&v->common, device, dtype, &settings->discriminator);
    v->common.network = run_network;
    v->common.context = v;
    v->in = discriminator_add_layer(&v->common, "in", width, FIRST * FIRST * COLOURS, true);
    for (i64 i = 0; i < VISION_DISCRIMINATOR_BLOCKS; i++, width *= 2) {
        struct vision_discriminator_block *b = &v->blocks[i];
        char stem[32];
        snprintf(stem, sizeof stem, "%lld.same", (long long)i);
        b->same = discriminator_add_layer(&v->common, stem, width, 9 * width, true);
        snprintf(stem, sizeof stem, "%lld.down", (long long)i);
        b->down = discriminator_add_layer(&v->common, stem, 2 * width, 9 * width, true);
        snprintf(stem, sizeof stem, "%lld.skip", (long long)i);
        b->skip = discriminator_add_layer(&v->common, stem, 2 * width, 4 * width, false);
    }
    v->last = discriminator_add_layer(&v->common, "last", width, 9 * width, true);
    v->logits = discriminator_add_layer(&v->common, "logits", 1, width, false);
    weights_allocate(weights);
    weights_init(weights, seed);
}

/* ---- the network ---- */

static struct tensor *convolve(struct tape *tape, struct tensor *x, const struct discriminator_layer *layer,
                               struct discriminator_plane *p, i64 kernel, i64 stride)
{
    const struct discriminator_kernel square = {{kernel, kernel}, {stride, stride}};
    return discriminator_convolve(tape, x, layer, p, &square);
}

static struct tensor *convolve_silu(struct tape *tape, struct tensor *x, const struct discriminator_layer *layer,
                                    struct discriminator_plane *p, i64 kernel, i64 stride)
{
    return op_activate(tape, convolve(tape, x, layer, p, kernel, stride), ACTIVATION_SILU);
}

static struct tensor *run_block(struct tape *tape, struct tensor *x, const struct vision_discriminator_block *b,
                                struct discriminator_plane *p)
{
    struct discriminator_plane same = *p;
    struct tensor *skip = convolve(tape, x, &b->skip, &same, 2, 2);
    x = convolve_silu(tape, x, &b->same, p, 3, 1);
    x = convolve_silu(tape, x, &b->down, p, 3, 2);
    return op_scale(tape, op_add(tape, x, skip), sqrtf(0.5f), tape->activations);
}

/* Patches [pictures * h * w, 48], as of vision_patches, of pictures of v->height x v->width. */
static struct tensor *run_network(struct tape *tape, void *context, struct tensor *patches)
{
    struct vision_discriminator *v = context;
    i64 h = v->height / PATCH, w = v->width / PATCH;
    struct discriminator_plane p = {patches->rows / (h * w), v->height, v->width};
    const i64 shape[5] = {p.count, h, w, PATCH, PATCH * COLOURS}, order[5] = {0, 1, 3, 2, 4};
    struct tensor *x = op_permute(tape, patches, 5, shape, order, COLOURS);
    x = v->layers[0] = convolve_silu(tape, x, &v->in, &p, FIRST, 2);
    for (i64 i = 0; i < VISION_DISCRIMINATOR_BLOCKS; i++)
        x = v->layers[1 + i] = run_block(tape, x, &v->blocks[i], &p);
    x = convolve_silu(tape, x, &v->last, &p, 3, 1);
    return op_bias(tape, op_linear(tape, x, &v->logits.weight->value, DTYPE_F32), &v->logits.bias->value);
}

/* ---- in a step ---- */

/* Adds losses of features to sums, and their gradient at the decoded patches to `gradient`. */
static void add_feature_losses(double *sums, struct matrix gradient, struct vision_discriminator *v,
                               const struct vision_decoded *decoded, struct vision_size size,
                               const struct vision_loss_weights *weights)
{
    struct discriminator *d = &v->common;
    struct vision_layers layers = {.pictures = size.n * size.frames, .count = COUNT_OF(v->layers)};
    const struct tensor *original = decoded->original;
    discriminator_freeze(d);
    run_network(&d->tape, v, op_borrow(&d->tape, original->data, original->dtype, original->rows, original->columns));
    for (i64 i = 0; i < layers.count; i++)
        layers.original[i] = v->layers[i];
    struct tensor *x = discriminator_input(d, decoded->patches);
    run_network(&d->tape, v, x);
    for (i64 i = 0; i < layers.count; i++)
        layers.decoded[i] = v->layers[i];
    vision_feature_losses(sums, &d->tape, &layers, weights);
    tape_backward(&d->tape);
    d->tape.device->ops->copy(d->tape.device, gradient, tape_output_gradient(x), 1, true);
}

/* Adds the gradient of the losses of patches at the decoded ones. */
static void add_patch_losses(struct matrix gradient, struct discriminator *d, const struct vision_decoded *decoded,
                             const struct vision_loss_weights *weights)
{
    discriminator_freeze(d);
    double *unused = tape_alloc(&d->tape, VISION_LOSSES * (i64)sizeof *unused);
    struct tensor *x = discriminator_input(d, decoded->patches);
    d->tape.device->ops->zero(d->tape.device, unused, VISION_LOSSES * (i64)sizeof *unused);
    vision_patch_losses(unused, &d->tape, x, decoded->original, weights);
    tape_backward(&d->tape);
    d->tape.device->ops->copy(d->tape.device, gradient, tape_output_gradient(x), 1, true);
}

/* A gradient of zeros, shaped as x, on the tape. */
static struct matrix zeros_like(struct tape *tape, const struct tensor *x)
{
    struct matrix m = tensor_matrix(tape_tensor(tape, x->dtype, x->rows, x->columns));
    tape->device->ops->zero(tape->device, m.data, m.rows * m.columns * dtype_bytes(m.dtype));
    return m;
}

/* Adds the adversarial gradient to that of the losses of features, weighed against it and the gradient of the
 * losses of patches. */
static void add_adversarial(struct matrix gradient, struct vision_trainer *t, const struct vision_decoded *decoded,
                            struct vision_size size)
{
    struct discriminator *d = &t->discriminator.common;
    struct device *device = t->tape.device;
    double *squares = tape_alloc(&t->tape, 2 * sizeof *squares);
    struct matrix others = zeros_like(&t->tape, decoded->patches);
    device->ops->zero(device, squares, 2 * sizeof *squares);
    device->ops->copy(device, others, gradient, 1, false);
    add_patch_losses(others, d, decoded, &t->settings->loss);
    struct matrix adversarial = discriminator_listen(d, decoded->patches);
    vision_last_square(&squares[0], &t->tape, &t->vision, decoded->inside, others, size);
    vision_last_square(&squares[1], &t->tape, &t->vision, decoded->inside, adversarial, size);
    device->ops->copy(device, gradient, adversarial, (float)discriminator_weigh(d, squares), true);
}

void vision_discriminate(double *sums, struct vision_trainer *t, const struct vision_decoded *decoded,
                         struct vision_size size)
{
    struct vision_discriminator *v = &t->discriminator;
    const struct vision_loss_weights *weights = &t->settings->loss;
    struct matrix gradient = zeros_like(&t->tape, decoded->patches);
    v->height = size.height;
    v->width = size.width;
    if (weights->of[VISION_FEATURES] > 0 || weights->of[VISION_GRAM] > 0)
        add_feature_losses(sums, gradient, v, decoded, size, weights);
    if (t->settings->discriminator.weight > 0)
        add_adversarial(gradient, t, decoded, size);
    op_add_gradient(&t->tape, decoded->patches, gradient);
    discriminator_learn(&v->common, decoded->original, decoded->patches);
}
