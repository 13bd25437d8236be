/* The vision tokenizer's losses: L1 + L2 of pixels, commitment of the latent to its code, entropy of the bits. */
#include "tokenizers/vision.h"

/* n coefficients of value / n: the mean of n losses. */
static float *mean_of(struct tape *tape, i64 n, double value)
{
    float *out = tape_alloc(tape, n * 4);
    if (tape->device->backend != BACKEND_META)
        for (i64 i = 0; i < n; i++)
            out[i] = (float)(value / (double)n);
    return out;
}

static double mean(const struct tape *tape, struct loss loss)
{
    double sum = 0;
    if (tape->device->backend != BACKEND_META)
        for (i64 i = 0; i < loss.n; i++)
            sum += loss.value[i];
    return sum / (double)loss.n;
}

static struct loss distance(struct tape *tape, struct tensor *x, struct tensor *y, enum distance kind, double weight)
{
    return op_distance(tape, x, y, kind, mean_of(tape, x->rows, weight));
}

/* Bits and their sum; the entropy of the bits and the distance of the latent to the sum are losses of the latent. */
static struct tensor *quantize(struct vision_losses *losses, struct tape *tape, const struct vision *vision,
                               struct tensor *latent, struct vision_size size, const struct vision_shape *shape,
                               const struct vision_loss_weights *weights)
{
    i64 d = latent->columns, n = size.n * vision_latent_frames(size.frames), codes = n * vision_tokens(shape) * d;
    struct device *device = tape->device;
    struct bit_grid grid = {n,
                            shape->h,
                            shape->w,
                            shape->scales,
                            shape->scale_count,
                            vision_amplitude(vision, shape),
                            (float)weights->sharpness};
    u8 *bits = tape_alloc(tape, codes);
    float *u = tape_alloc(tape, codes * 4);
    struct tensor *sum = tape_tensor(tape, DTYPE_F32, latent->rows, d);
    device->ops->quantize_bits(device, bits, sum->data, u, latent->data, NULL, n, grid.h, grid.w, d, grid.scales,
                               grid.scale_count, grid.amplitude);
    struct tensor *out = op_straight_through(tape, latent, sum);
    losses->commitment = mean(tape, distance(tape, latent, sum, DISTANCE_L2, weights->commitment));
    struct bit_use use = op_bit_entropy(tape, latent, u, &grid, mean_of(tape, 1, weights->entropy));
    bool counts = device->backend == BACKEND_META;
    losses->entropy = counts ? 0 : use.value[0];
    for (i64 k = 0; k < shape->scale_count; k++)
        losses->magnitude[k] = counts ? 0 : use.magnitude[k];
    return out;
}

void vision_loss(struct vision_losses *losses, struct tape *tape, const struct vision *vision, const u8 *pixels,
                 struct vision_size size, const struct vision_shape *shape, const struct vision_loss_weights *weights)
{
    struct tensor *patches = vision_patches(tape, vision, pixels, size);
    struct tensor *latent = vision_latent(tape, vision, vision_features(tape, vision, patches, size));
    struct tensor *sum = quantize(losses, tape, vision, latent, size, shape, weights);
    struct tensor *out = vision_pixels(tape, vision, sum, size);
    losses->l1 = mean(tape, distance(tape, out, patches, DISTANCE_L1, weights->l1));
    losses->l2 = mean(tape, distance(tape, out, patches, DISTANCE_L2, weights->l2));
}

void vision_amplitude_update(struct vision *vision, const struct vision_shape *shape, const double *magnitude,
                             double keep)
{
    float *a = vision->at.amplitude->master + shape->amplitude * VISION_SCALES_MOST;
    for (i64 k = 0; k < shape->scale_count; k++)
        a[k] = (float)(keep * a[k] + (1 - keep) * magnitude[k]);
}
