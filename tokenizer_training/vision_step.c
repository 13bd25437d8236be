/* The training step of the vision tokenizer, top down. */
#include "tokenizer_training/vision_step.h"
#include "tokenizer_training/codec_update.h"

#include "dist/dist.h"

#include <math.h>

void vision_trainer_open(struct vision_trainer *t, struct device *device, const struct vision_config *config,
                         enum dtype dtype)
{
    const struct vision_settings *s = t->settings;
    i64 frames = max_i64(max_i64(s->batch, s->still_batch), t->clip_steps ? s->clip_batch * s->frames : 0);
    vision_open(&t->vision, device, config, dtype, true);
    if (s->start.train != TRAIN_ALL)
        vision_keep_bits(&t->vision, s->start.train == TRAIN_BITS ? config->kept_bits : config->bits);
    if (vision_has_discriminator(s))
        vision_discriminator_open(&t->discriminator, device, dtype, s, t->seed);
    tape_open(&t->tape, device, dtype, (i64)16 << 30);
    tape_segments_open(&t->tape, 1);
    i64 largest = 0;
    for (i64 i = 0; i < config->shape_count; i++)
        largest = max_i64(largest, config->shapes[i].height * config->shapes[i].width * 3);
    t->pixels = memory_alloc(frames * largest);
    t->drawn = memory_alloc(max_i64(s->clip_batch, max_i64(s->batch, s->still_batch)) * 4);
    if (t->targets)
        semantic_open(&t->semantic, device, dtype, t->targets, config->bits, t->seed);
}

void vision_trainer_close(struct vision_trainer *t)
{
    tape_close(&t->tape);
    vision_close(&t->vision);
    if (vision_has_discriminator(t->settings))
        discriminator_close(&t->discriminator.common);
    semantic_close(&t->semantic);
    memory_free(t->drawn);
    memory_free(t->pixels);
    t->pixels = NULL;
}

/* Number of still steps among the first clip_step steps of the clip phase. */
static i64 stills_among_clips(const struct vision_settings *s, i64 clip_step)
{
    return (i64)floor((double)clip_step * s->still_share);
}

const struct vision_shape *vision_shape_of(const struct vision_config *config, bool clips, struct aspect size)
{
    for (i64 i = 0; i < config->shape_count; i++) {
        const struct vision_shape *s = &config->shapes[i];
        if ((s->frames > 1) == clips && s->height == size.height && s->width == size.width)
            return s;
    }
    return NULL;
}

/* A course is a sequence of batches of one shape each: stills, clips, or stills among clips. An
 * epoch has as many batches of a shape as there are media of it, in a random order: each medium
 * gives its shape to one batch. */
struct shape_schedule {
    const struct vision_media *media;
    /* draw clips; also set for stills if there are no stills */
    bool clips;
    u64 seed;
    u32 number;
};

/* Returns the shape of batch `index`, and in `before` the number of earlier
 * batches of each shape. */
static i64 shape_schedule_at(i64 before[ASPECT_LIST_MOST], const struct shape_schedule *c, i64 index)
{
    i64 count = c->clips ? c->media->clip_count : c->media->still_count, epoch = index / count, shape = 0;
    for (i64 i = 0; i < ASPECT_LIST_MOST; i++)
        before[i] = 0;
    if (vision_media_count(c->media, c->clips, 0) == count) { /* only one shape */
        before[0] = index;
        return 0;
    }
    i32 *order = memory_alloc(count * 4);
    rng_permutation(order, count, (struct rng_key){c->seed, RNG_SHUFFLE}, (u32)epoch, 0x80000000u | c->number);
    for (i64 i = 0; i < count; i++)
        before[vision_media_shape(c->media, c->clips, order[i])] += epoch + (i < index % count);
    shape = vision_media_shape(c->media, c->clips, order[index % count]);
    memory_free(order);
    return shape;
}

enum { COURSE_STILLS, COURSE_CLIPS, COURSE_AMONG };

static struct shape_schedule shape_schedule_of(const struct vision_trainer *t, u32 number)
{
    return (struct shape_schedule){t->media, number == COURSE_CLIPS || t->media->still_count == 0, t->seed, number};
}

struct vision_batch vision_step_batch(const struct vision_trainer *t, i64 step)
{
    const struct vision_settings *s = t->settings;
    i64 into_clips = step - t->still_steps, stills = into_clips < 0 ? 0 : stills_among_clips(s, into_clips);
    bool clips = into_clips >= 0 && stills_among_clips(s, into_clips + 1) == stills;
    i64 before[ASPECT_LIST_MOST], first[ASPECT_LIST_MOST] = {0}, n = s->batch, index = step;
    struct shape_schedule course = shape_schedule_of(t, COURSE_STILLS);
    if (into_clips >= 0 && !clips)
        shape_schedule_at(first, &course, t->still_steps);
    if (into_clips >= 0) {
        course = shape_schedule_of(t, clips ? COURSE_CLIPS : COURSE_AMONG);
        n = clips ? s->clip_batch : s->still_batch;
        index = clips ? into_clips - stills : stills;
    }
    i64 shape = shape_schedule_at(before, &course, index);
    struct vision_batch batch = {.clips = clips};
    batch.shape = vision_shape_of(&t->vision.config, clips, t->media->request.shapes[course.clips].items[shape]);
    batch.draw = (struct vision_draw){.n = n,
                                      .frames = batch.shape->frames,
                                      .shape = shape,
                                      .first = first[shape] * s->batch + before[shape] * n,
                                      .step = step,
                                      .augment = s->augment,
                                      .seed = t->seed};
    return batch;
}

/* Stills and clips each have a learning-rate schedule of their own. */
static double learning_rate(const struct vision_trainer *t, i64 step)
{
    const struct vision_settings *s = t->settings;
    bool clips = step >= t->still_steps;
    struct optimizer_settings optimizer = s->optimizer;
    optimizer.lr *= clips ? s->clip_lr : 1;
    struct lr_schedule schedule = lr_of_settings(&optimizer, clips ? t->clip_steps : t->still_steps);
    return lr_at(&schedule, clips ? step - t->still_steps : step);
}

static void forget_moments(struct weights *weights)
{
    for (i64 i = 0; i < weights->count; i++)
        weight_clear_moments(weights, &weights->list[i]);
}

/* Decay of the running mean. Of a new tokenizer, and of new bits, it starts small, so that a first guess
 * does not determine the quantisation. */
static double amplitude_keep(const struct vision_trainer *t, i64 step)
{
    double most = t->begun ? 1 : (double)step / (double)(step + 10);
    return fmin(t->settings->amplitude_keep, most);
}

i64 vision_discriminator_begin(const struct vision_trainer *t)
{
    return discriminator_begin(&t->settings->discriminator, t->still_steps + t->clip_steps);
}

static bool discriminates(const struct vision_trainer *t, i64 step)
{
    return vision_has_discriminator(t->settings) && step >= vision_discriminator_begin(t);
}

static void add_semantics(double *sums, struct vision_trainer *t, const struct vision_decoded *decoded,
                          const struct vision_batch *batch)
{
    const struct vision_shape *s = batch->shape;
    const struct semantic_batch media = {batch->draw.n, s->latent_frames, s->h * s->w, t->drawn};
    semantic_add(&sums[VISION_SEMANTIC], &t->semantic, &t->tape, decoded->code, &media,
                 t->settings->loss.of[VISION_SEMANTIC]);
}

/* Forward and backward of a batch in t->pixels. Adds to sums [VISION_LOSSES], device memory. */
static struct vision_means run_batch(double *sums, struct vision_trainer *t, const struct vision_batch *batch, i64 step)
{
    struct vision_size size = {batch->draw.n, batch->draw.frames, batch->shape->height, batch->shape->width};
    struct vision_decoded decoded;
    bool with = discriminates(t, step);
    const struct vision_means means = vision_loss(sums, &t->tape, &t->vision, t->pixels, size, batch->shape,
                                                  &t->settings->loss, with || t->targets ? &decoded : NULL);
    if (with)
        vision_discriminate(sums, t, &decoded, size);
    if (t->targets)
        add_semantics(sums, t, &decoded, batch);
    tape_backward(&t->tape);
    return means;
}

/* updates: number of those before. */
static void update(struct vision_trainer *t, double lr, i64 updates, i64 step, double *squares)
{
    codec_update(&(struct discriminator_update){&t->vision.weights, &t->settings->optimizer, lr, updates,
                                                step - vision_discriminator_begin(t), squares},
                 &t->tape, discriminates(t, step) ? &t->discriminator.common : NULL, t->targets ? &t->semantic : NULL);
}

/* Device memory; the host reads it at the end of a step. */
struct vision_sums {
    double losses[VISION_LOSSES];
    double squares; /* sum of squared gradients */
};

int vision_step(struct vision_step_result *result, struct vision_trainer *t, i64 step)
{
    const struct vision_settings *s = t->settings;
    struct vision *vision = &t->vision;
    struct device *device = vision->device;
    struct vision_batch batch = vision_step_batch(t, step);
    struct vision_size size = {batch.draw.n, batch.draw.frames, batch.shape->height, batch.shape->width};
    struct vision_sums sums, *on_device;
    if (step >= t->still_steps)
        vision_inflate(vision);
    if (step == t->still_steps)
        forget_moments(&vision->weights);
    if (step == t->still_steps && t->targets)
        forget_moments(&t->semantic.weights);
    batch.draw.drawn = t->drawn;
    if (vision_media_draw(t->pixels, t->media, &batch.draw) < 0)
        return -1;
    for (i64 i = 0; i < batch.draw.n && (batch.clips || t->media->still_count == 0); i++)
        t->drawn[i] += (i32)t->media->still_count;
    tape_clear(&t->tape, true);
    weights_begin_step(&vision->weights);
    if (t->targets)
        weights_begin_step(&t->semantic.weights);
    on_device = tape_alloc(&t->tape, sizeof *on_device);
    device->ops->zero(device, on_device, sizeof *on_device);
    const struct vision_means means = run_batch(on_device->losses, t, &batch, step);
    i64 updates = step < t->still_steps ? step : step - t->still_steps;
    double lr = learning_rate(t, step);
    update(t, lr, updates, step, &on_device->squares);
    device_get(device, &sums, on_device, sizeof sums);
    result->losses = vision_losses_of(sums.losses, vision, size);
    if (t->targets)
        result->losses.of[VISION_SEMANTIC] *= semantic_unit(&t->semantic);
    result->optimizer = optimizer_result_of(sums.squares, lr);
    if (!result->optimizer.skipped) /* a skipped update moves no other state either */
        vision_state_update(vision, batch.shape, &means, amplitude_keep(t, step),
                            amplitude_keep(t, batch.clips ? updates : step));
    result->loss = vision_weighted(&result->losses, &s->loss);
    result->psnr_db = vision_psnr(result->losses.of[VISION_L2] / 4); /* for pixels in 0..1 */
    result->frames = batch.draw.n * batch.draw.frames;
    result->clips = batch.clips;
    result->shape = batch.shape;
    result->discriminates = discriminates(t, step);
    return 0;
}

double vision_step_flops(const struct vision_trainer *t, i64 step)
{
    struct vision_trainer counted = *t;
    struct device device;
    struct vision_batch batch = vision_step_batch(t, step);
    device_open_meta(&device);
    vision_open(&counted.vision, &device, &t->vision.config, t->vision.dtype, true);
    vision_keep_bits(&counted.vision, t->vision.kept_bits);
    if (step >= t->still_steps)
        vision_inflate(&counted.vision);
    if (vision_has_discriminator(t->settings))
        vision_discriminator_open(&counted.discriminator, &device, t->vision.dtype, t->settings, t->seed);
    if (t->targets)
        semantic_open(&counted.semantic, &device, t->vision.dtype, t->targets, t->vision.config.bits, t->seed);
    tape_open(&counted.tape, &device, t->vision.dtype, (i64)16 << 30);
    run_batch(tape_alloc(&counted.tape, VISION_LOSSES * (i64)sizeof(double)), &counted, &batch, step);
    double flops = device.cost.flops;
    if (vision_has_discriminator(t->settings))
        discriminator_close(&counted.discriminator.common);
    if (t->targets)
        semantic_close(&counted.semantic);
    tape_close(&counted.tape);
    vision_close(&counted.vision);
    device_close(&device);
    return flops;
}
