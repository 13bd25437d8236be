/* The pictures that the refiner learns from: originals, and what the tokenizer decodes of them, degraded. */
#include "tokenizer_training/refiner_step.h"

#include "data/media/media.h"

#include <math.h>
#include <string.h>

static const double noise_most = 24; /* grey levels */

void refiner_decoded(u8 *out, struct vision *vision, const u8 *pixels, i64 n, const struct vision_shape *shape)
{
    i64 low = shape->height * shape->width * 3, frames = n * shape->frames;
    struct clip large = {.frames = frames,
                         .height = REFINER_FACTOR * shape->height,
                         .width = REFINER_FACTOR * shape->width,
                         .pixels = memory_alloc(frames * low * REFINER_FACTOR * REFINER_FACTOR)},
                small;
    memcpy(large.pixels, pixels, (size_t)(frames * low * REFINER_FACTOR * REFINER_FACTOR));
    clip_resize(&small, &large, shape->height, shape->width);
    vision_reconstruct(vision, out, NULL, small.pixels, n, shape);
    memory_free(large.pixels);
    clip_release(&small);
}

/* Blurs values [height, width, 3] by 1 2 1 in both directions; borders are repeated. */
static void blur(double *out, const double *in, i64 height, i64 width)
{
    for (i64 y = 0; y < height; y++)
        for (i64 i = 0; i < width * 3; i++) {
            i64 rows[3] = {max_i64(y - 1, 0), y, min_i64(y + 1, height - 1)}, x = i / 3, c = i % 3;
            i64 columns[3] = {max_i64(x - 1, 0), x, min_i64(x + 1, width - 1)};
            double sum = 0;
            for (int k = 0; k < 9; k++)
                sum += (k / 3 == 1 ? 2 : 1) * (k % 3 == 1 ? 2 : 1) * in[(rows[k / 3] * width + columns[k % 3]) * 3 + c];
            out[y * width * 3 + i] = sum / 16;
        }
}

void refiner_degrade(u8 *pixels, i64 height, i64 width, double strength, struct rng_key key, u32 step, u32 item)
{
    i64 count = height * width * 3;
    double *noisy = memory_alloc(count * 8), *soft = memory_alloc(count * 8);
    for (i64 i = 0; i < count; i++)
        noisy[i] = (double)pixels[i] + strength * noise_most * rng_normal(key, step, item, (u32)i, REFINER_DEGRADED);
    blur(soft, noisy, height, width);
    for (i64 i = 0; i < count; i++)
        pixels[i] = (u8)lround(fmin(fmax(noisy[i] + strength * (soft[i] - noisy[i]), 0), 255));
    memory_free(noisy);
    memory_free(soft);
}

static double choose(const struct refiner_trainer *t, i64 step, i64 item, u32 which)
{
    return rng_uniform((struct rng_key){t->seed, RNG_AUGMENT}, (u32)step, (u32)item, which, REFINER_CHOICE);
}

/* Number of steps on clips among the first `steps`. */
static i64 clip_steps(const struct refiner_trainer *t, i64 steps)
{
    const struct vision_media *m = t->media;
    double share = m->clip_count == 0 || m->request.frames == 1 ? 0 : m->still_count == 0 ? 1 : t->settings->clip_share;
    return (i64)floor((double)steps * share);
}

enum { CHOOSE_SHAPE, CHOOSE_TIME, CHOOSE_DEGRADED, CHOOSE_STRENGTH, CHOOSE_FRAME };

/* Each medium has the same chance to give its shape to the batch. */
static struct vision_draw draw_of(const struct refiner_trainer *t, i64 step, bool clips, i64 frames)
{
    const struct vision_media *m = t->media;
    i64 all = clips ? m->clip_count : m->still_count, before = clip_steps(t, step);
    i64 medium = min_i64((i64)(choose(t, step, 0, CHOOSE_SHAPE) * (double)all), all - 1);
    i64 n = clips ? ceil_div(t->settings->batch, 4) : t->settings->batch;
    return (struct vision_draw){.n = n,
                                .frames = frames,
                                .shape = vision_media_shape(m, clips, medium),
                                .first = (clips ? before : step - before) * n,
                                .step = step,
                                .augment = t->settings->augment,
                                .seed = t->seed,
                                .whole = true};
}

/* Copies the frames that the items of a batch are: of clip i % clips, a frame drawn at random. */
static void take_items(struct refiner_pictures *out, u8 *low, const struct refiner_trainer *t, i64 step,
                       const struct vision_draw *draw, const u8 *pixels, const u8 *decoded)
{
    i64 bytes = out->shape->height * out->shape->width * 3, large = bytes * REFINER_FACTOR * REFINER_FACTOR;
    for (i64 i = 0; i < out->n; i++) {
        i64 frame = min_i64((i64)(choose(t, step, i, CHOOSE_FRAME) * (double)draw->frames), draw->frames - 1);
        i64 at = i % draw->n * draw->frames + frame;
        memcpy(out->original + i * large, pixels + at * large, (size_t)large);
        memcpy(low + i * bytes, decoded + at * bytes, (size_t)bytes);
    }
}

struct refiner_degrading {
    struct refiner_pictures *pictures;
    u8 *low;
    struct rng_key key;
    i64 step;
};

static void degrade_item(void *context, i64 i, int worker)
{
    struct refiner_degrading *d = context;
    const struct vision_shape *s = d->pictures->shape;
    i64 bytes = s->height * s->width * 3;
    double strength = d->pictures->strength[i];
    u8 *low = d->low + i * bytes;
    (void)worker;
    if (strength > 0)
        refiner_degrade(low, s->height, s->width, strength, d->key, (u32)d->step, (u32)i);
    refiner_enlarge(d->pictures->enlarged + i * bytes * REFINER_FACTOR * REFINER_FACTOR, low, s->height, s->width);
}

int refiner_pictures_draw(struct refiner_pictures *out, const struct refiner_trainer *t, i64 step)
{
    bool clips = clip_steps(t, step + 1) > clip_steps(t, step);
    struct aspect_list shapes = t->media->request.shapes[clips];
    struct vision_draw draw = draw_of(t, step, clips, clips ? t->media->request.frames : 1);
    struct aspect size = shapes.items[draw.shape];
    const struct vision_shape *shape = vision_shape_of(
        &t->vision->config, clips, (struct aspect){size.height / REFINER_FACTOR, size.width / REFINER_FACTOR});
    i64 n = t->settings->batch, bytes = shape->height * shape->width * 3, taken = draw.n * draw.frames;
    i64 large = bytes * REFINER_FACTOR * REFINER_FACTOR;
    *out = (struct refiner_pictures){.shape = shape, .clips = clips, .n = n};
    u8 *pixels = memory_alloc(taken * large);
    if (vision_media_draw(pixels, t->media, &draw)) {
        memory_free(pixels);
        return -1;
    }
    u8 *decoded = memory_alloc(taken * bytes), *low = memory_alloc(n * bytes);
    out->original = memory_alloc(n * large);
    out->enlarged = memory_alloc(n * large);
    out->strength = memory_alloc(n * 8);
    out->t = memory_alloc(n * 8);
    refiner_decoded(decoded, t->vision, pixels, draw.n, shape);
    take_items(out, low, t, step, &draw, pixels, decoded);
    for (i64 i = 0; i < n; i++) {
        bool degraded = choose(t, step, i, CHOOSE_DEGRADED) < t->settings->degraded;
        out->strength[i] = degraded ? choose(t, step, i, CHOOSE_STRENGTH) : 0;
        out->t[i] = ((double)i + choose(t, step, i, CHOOSE_TIME)) / (double)n;
    }
    struct refiner_degrading d = {out, low, {t->seed, RNG_AUGMENT}, step};
    workers_run(n, degrade_item, &d);
    memory_free(pixels);
    memory_free(decoded);
    memory_free(low);
    return 0;
}

void refiner_pictures_release(struct refiner_pictures *p)
{
    memory_free(p->original);
    memory_free(p->enlarged);
    memory_free(p->strength);
    memory_free(p->t);
    *p = (struct refiner_pictures){0};
}
