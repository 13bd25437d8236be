/* Losses of the vision tokenizer, in the order of VISION_LOSS_ROWS. */
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

/* What losses are of. */
struct loss_inputs {
    struct tape *tape;
    struct tensor *patches, *latent, *code; /* the pixels, and the latent before and after quantization */
    const float *u;                         /* what the bits are the signs of */
    const struct bit_grid *grid;
    struct tensor *out;                 /* decoded patches; NULL before the decoder */
    const float *magnitude;             /* mean |u_k| */
    const struct vision_layers *layers; /* NULL but for losses of features */
};

/* Each adds its losses to *sum, and their gradients times the weight to the tape. */

static void add_l1(double *sum, struct loss_inputs *in, double weight)
{
    add_distance(sum, in->tape, in->out, in->patches, DISTANCE_L1, weight);
}

static void add_l2(double *sum, struct loss_inputs *in, double weight)
{
    add_distance(sum, in->tape, in->out, in->patches, DISTANCE_L2, weight);
}

static void add_commitment(double *sum, struct loss_inputs *in, double weight)
{
    add_distance(sum, in->tape, in->latent, in->code, DISTANCE_L2, weight);
}

static void add_entropy(double *sum, struct loss_inputs *in, double weight)
{
    struct bit_use use = op_bit_entropy(in->tape, in->latent, in->u, in->grid, mean_of(in->tape, 1, weight));
    in->tape->device->ops->sum_values(in->tape->device, sum, use.value, 1);
    in->magnitude = use.magnitude;
}

static struct tensor *to_f32(struct tape *tape, struct tensor *x)
{
    return x->dtype == DTYPE_F32 ? x : op_scale(tape, x, 1, DTYPE_F32);
}

/* Distances of groups of rows of x and y, each as a share of y's group. */
static void add_shares(double *sum, const struct loss_inputs *in, struct tensor *x, struct tensor *y, i64 rows,
                       double weight)
{
    struct tape *tape = in->tape;
    struct loss loss = op_convergence(tape, x, y, rows, (float)(weight / (double)in->layers->pictures));
    tape->device->ops->sum_values(tape->device, sum, loss.value, loss.n);
}

static void add_features(double *sum, struct loss_inputs *in, double weight)
{
    const struct vision_layers *l = in->layers;
    for (i64 i = 0; i < l->count; i++)
        add_shares(sum, in, to_f32(in->tape, l->decoded[i]), to_f32(in->tape, l->original[i]),
                   l->decoded[i]->rows / l->pictures, weight);
}

/* Channels of all pictures as rows, [pictures * C, positions]. */
static struct tensor *channels_of(struct tape *tape, struct tensor *x, i64 pictures)
{
    const i64 shape[3] = {pictures, x->rows / pictures, x->columns}, order[3] = {0, 2, 1};
    return op_permute(tape, to_f32(tape, x), 3, shape, order, shape[1]);
}

static struct tensor *gram(struct tape *tape, struct tensor *channels, i64 picture, i64 count)
{
    struct tensor *x = op_rows(tape, channels, picture * count, count);
    return op_linear(tape, x, x, DTYPE_F32);
}

static void add_gram(double *sum, struct loss_inputs *in, double weight)
{
    const struct vision_layers *l = in->layers;
    for (i64 i = 0; i < l->count; i++) {
        struct tensor *x = channels_of(in->tape, l->decoded[i], l->pictures),
                      *y = channels_of(in->tape, l->original[i], l->pictures);
        i64 count = l->decoded[i]->columns;
        for (i64 k = 0; k < l->pictures; k++)
            add_shares(sum, in, gram(in->tape, x, k, count), gram(in->tape, y, k, count), count, weight);
    }
}

enum each { PATCHES, POSITIONS, BATCH, PICTURES, MEDIUM };
static const struct {
    enum each each;
    void (*add)(double *sum, struct loss_inputs *in, double weight);
} rows[] = {
#define ROW(KEY, name, each, ...) {each, add_##name},
#define OWN(KEY, name, each, ...) {each, NULL},
    VISION_LOSS_ROWS(ROW, OWN)};
#define METRIC(KEY, name, each, metric, ...) metric,
const char *const vision_loss_metrics[] = {VISION_LOSS_ROWS(METRIC, METRIC)};

/* The inputs are those of losses of features, behind the decoder, or behind the quantizer. */
static bool is_due(enum each each, const struct loss_inputs *in)
{
    return each == PICTURES ? in->layers != NULL : !in->layers && (each == PATCHES) == (in->out != NULL);
}

static void add_losses(double *sums, struct loss_inputs *in, const struct vision_loss_weights *weights)
{
    for (i64 i = 0; i < VISION_LOSSES; i++)
        if (rows[i].add && is_due(rows[i].each, in) && (rows[i].each != PICTURES || weights->of[i] > 0))
            rows[i].add(&sums[i], in, weights->of[i]);
}

void vision_patch_losses(double *sums, struct tape *tape, struct tensor *patches, struct tensor *original,
                         const struct vision_loss_weights *weights)
{
    struct loss_inputs in = {.tape = tape, .patches = original, .out = patches};
    add_losses(sums, &in, weights);
}

void vision_feature_losses(double *sums, struct tape *tape, const struct vision_layers *layers,
                           const struct vision_loss_weights *weights)
{
    struct loss_inputs in = {.tape = tape, .layers = layers};
    add_losses(sums, &in, weights);
}

/* Quantizes the latent. Returns the code, whose gradient goes to the latent. */
static struct tensor *quantize(struct loss_inputs *in, const struct bit_grid *grid)
{
    struct tape *tape = in->tape;
    struct device *device = tape->device;
    i64 d = in->latent->columns, codes = 0;
    for (i64 k = 0; k < grid->scale_count; k++)
        codes += grid->n * scale_positions(grid->scales[k]) * d;
    u8 *bits = tape_alloc(tape, codes);
    float *u = tape_alloc(tape, codes * 4);
    in->code = tape_tensor(tape, DTYPE_F32, in->latent->rows, d);
    device->ops->quantize_bits(device, bits, in->code->data, u, in->latent->data, NULL, grid->n, grid->h, grid->w, d,
                               grid->scales, grid->scale_count, grid->amplitude);
    in->u = u;
    in->grid = grid;
    return op_straight_through(tape, in->latent, in->code);
}

struct vision_means vision_loss(double *sums, struct tape *tape, const struct vision *vision, const u8 *pixels,
                                struct vision_size size, const struct vision_shape *shape,
                                const struct vision_loss_weights *weights, struct vision_decoded *decoded)
{
    struct loss_inputs in = {.tape = tape, .patches = vision_patches(tape, vision, pixels, size)};
    const struct bit_grid grid = {size.n * vision_latent_frames(size.frames),
                                  shape->h,
                                  shape->w,
                                  shape->scales,
                                  shape->scale_count,
                                  vision_amplitude(vision, shape),
                                  (float)weights->sharpness};
    tape_segment_begin(tape, 0);
    in.latent = vision_latent(tape, vision, vision_features(tape, vision, in.patches, size), size.frames > 1);
    struct tensor *code = quantize(&in, &grid);
    struct vision_means means = {.rows = in.latent->rows};
    if (vision->at.centre) {
        means.latent = tape_alloc(tape, in.latent->columns * 4);
        tape->device->ops->column_sums(tape->device, matrix_of(means.latent, DTYPE_F32, 1, in.latent->columns),
                                       tensor_matrix(in.latent), false);
    }
    add_losses(sums, &in, weights);
    struct tensor *inside = vision_inside(tape, vision, code, size);
    in.out = vision_outside(tape, vision, inside, size);
    add_losses(sums, &in, weights);
    if (decoded) {
        *decoded = (struct vision_decoded){in.patches, in.out, inside, code};
        tape_place_gradient(tape, in.out);
        tape_place_gradient(tape, code);
    }
    tape_segment_end(tape);
    means.magnitude = in.magnitude;
    return means;
}

struct vision_losses vision_losses_of(const double *sums, const struct vision *vision, struct vision_size size)
{
    i64 stride = vision->config.stride;
    const i64 counts[] = {[PATCHES] = size.n * size.frames * (size.height / 4) * (size.width / 4),
                          [POSITIONS] = size.n * vision_latent_frames(size.frames) * (size.height / stride) *
                                        (size.width / stride),
                          [BATCH] = 1,
                          [PICTURES] = size.n * size.frames,
                          [MEDIUM] = size.n};
    struct vision_losses losses;
    for (i64 i = 0; i < VISION_LOSSES; i++)
        losses.of[i] = sums[i] / (double)counts[rows[i].each];
    return losses;
}

double vision_weighted(const struct vision_losses *losses, const struct vision_loss_weights *weights)
{
    double sum = 0;
    for (i64 i = 0; i < VISION_LOSSES; i++)
        sum += weights->of[i] * losses->of[i];
    return sum;
}

void vision_state_update(struct vision *vision, const struct vision_shape *shape, const struct vision_means *means,
                         double keep, double keep_centre)
{
    i64 d = vision->config.bits, kept = vision->kept_bits;
    float *a = vision->at.amplitude->master + shape->amplitude * VISION_SCALES_MOST;
    if (kept == 0)
        vision->device->ops->running_mean(vision->device, a, means->magnitude, shape->scale_count, keep);
    if (!vision->at.centre || kept == d)
        return;
    float *centre = vision->at.centre->master + (shape->frames > 1) * d;
    vision->device->ops->copy(vision->device, matrix_of(centre + kept, DTYPE_F32, 1, d - kept),
                              matrix_of(means->latent + kept, DTYPE_F32, 1, d - kept),
                              (float)((1 - keep_centre) / (double)means->rows), true);
}
