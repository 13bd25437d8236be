/* Losses of the vision tokenizer: L1 + L2 of pixels, commitment of the latent to its code, entropy
 * of the bits. */
#include "tokenizers/vision/vision.h"

/* n coefficients value / n, which give the mean of n losses. */
static float *mean_of(struct tape *tape, i64 n, double value)
{
    float *out = tape_alloc(tape, n * 4);
    tape->device->ops->fill(tape->device, out, n, (float)(value / (double)n));
    return out;
}

static void add_distance(double *sum, struct tape *tape, struct tensor *x, struct tensor *y, enum distance kind,
                         double weight)
{
    struct loss loss = op_distance(tape, x, y, kind, mean_of(tape, x->rows, weight));
    tape->device->ops->sum_values(tape->device, sum, loss.value, loss.n);
}

/* Quantizes the latent. Adds two losses of the latent: its distance to the sum of the code
 * (commitment), and the entropy of the bits. */
static struct tensor *quantize(double *sums, const float **magnitude, struct tape *tape, const struct vision *vision,
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
    add_distance(&sums[VISION_COMMITMENT], tape, latent, sum, DISTANCE_L2, weights->commitment);
    struct bit_use use = op_bit_entropy(tape, latent, u, &grid, mean_of(tape, 1, weights->entropy));
    device->ops->sum_values(device, &sums[VISION_ENTROPY], use.value, 1);
    *magnitude = use.magnitude;
    return out;
}

const float *vision_loss(double *sums, struct tape *tape, const struct vision *vision, const u8 *pixels,
                         struct vision_size size, const struct vision_shape *shape,
                         const struct vision_loss_weights *weights)
{
    const float *magnitude;
    struct tensor *patches = vision_patches(tape, vision, pixels, size);
    tape_segment_begin(tape, 0);
    struct tensor *latent = vision_latent(tape, vision, vision_features(tape, vision, patches, size));
    struct tensor *sum = quantize(sums, &magnitude, tape, vision, latent, size, shape, weights);
    struct tensor *out = vision_pixels(tape, vision, sum, size);
    add_distance(&sums[VISION_L1], tape, out, patches, DISTANCE_L1, weights->l1);
    add_distance(&sums[VISION_L2], tape, out, patches, DISTANCE_L2, weights->l2);
    tape_segment_end(tape);
    return magnitude;
}

struct vision_losses vision_losses_of(const double *sums, const struct vision *vision, struct vision_size size)
{
    i64 stride = vision->config.stride, patches = size.n * size.frames * (size.height / 4) * (size.width / 4);
    i64 positions = size.n * vision_latent_frames(size.frames) * (size.height / stride) * (size.width / stride);
    return (struct vision_losses){sums[VISION_L1] / (double)patches, sums[VISION_L2] / (double)patches,
                                  sums[VISION_COMMITMENT] / (double)positions, sums[VISION_ENTROPY]};
}

void vision_amplitude_update(struct vision *vision, const struct vision_shape *shape, const float *magnitude,
                             double keep)
{
    float *a = vision->at.amplitude->master + shape->amplitude * VISION_SCALES_MOST;
    vision->device->ops->running_mean(vision->device, a, magnitude, shape->scale_count, keep);
}
