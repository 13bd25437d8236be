/* Enlarging and sampling of the refiner. */
#include "tokenizers/vision/refiner.h"

#include <math.h>
#include <string.h>

/* ---- bicubic ---- */

enum { TAPS = 4, ONE = 128 };
/* Weights of the pixels at distance -7/4, -3/4, 1/4 and 5/4 from a new one left of a pixel's middle, in 1 / ONE; a new
 * one right of it has them in the other order. */
static const int taps[TAPS] = {-3, 29, 111, -9};

/* Enlarges `count` values that are `stride` apart, into 2 count ones. */
static void enlarge_line(int *out, i64 out_stride, const int *in, i64 stride, i64 count)
{
    for (i64 i = 0; i < 2 * count; i++) {
        int sum = 0;
        for (i64 k = 0; k < TAPS; k++) {
            i64 at = i / 2 + (i % 2 ? 2 - k : k - 2);
            sum += taps[k] * in[max_i64(0, min_i64(at, count - 1)) * stride];
        }
        out[i * out_stride] = sum;
    }
}

void refiner_enlarge(u8 *out, const u8 *pixels, i64 height, i64 width)
{
    i64 wide = 2 * width, count = height * width * 3;
    int *in = memory_alloc(count * (i64)sizeof *in), *rows = memory_alloc(2 * count * (i64)sizeof *rows);
    int *all = memory_alloc(4 * count * (i64)sizeof *all);
    for (i64 i = 0; i < count; i++)
        in[i] = pixels[i];
    for (i64 y = 0; y < height; y++)
        for (int c = 0; c < 3; c++)
            enlarge_line(rows + y * wide * 3 + c, 3, in + y * width * 3 + c, 3, width);
    for (i64 i = 0; i < wide * 3; i++)
        enlarge_line(all + i, wide * 3, rows + i, wide * 3, height);
    for (i64 i = 0; i < 4 * count; i++) {
        int value = (all[i] + ONE * ONE / 2) >> 14;
        out[i] = (u8)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    memory_free(in);
    memory_free(rows);
    memory_free(all);
}

/* ---- sampling ---- */

/* One step of Euler: z += v / steps. */
static void step(struct refiner *r, float *z, float *rows, float *patches, const u8 *enlarged, i64 height, i64 width,
                 double t, double strength)
{
    i64 count = height * width * 3;
    struct refiner_batch batch = {.n = 1, .height = height, .width = width, .rows = rows};
    float *velocity = rows; /* read by then */
    refiner_put_rows(rows, z, enlarged, height, width, t, strength);
    tape_clear(&r->tape, false);
    struct tensor *out = refiner_velocity(&r->tape, r, &batch);
    device_get(r->device, patches, out->data, count * 4);
    refiner_of_patches(velocity, patches, height, width);
    for (i64 i = 0; i < count; i++)
        z[i] += velocity[i] / (float)r->config.steps;
}

void refiner_sample(struct refiner *r, u8 *out, const u8 *pixels, i64 frames, i64 low_height, i64 low_width,
                    const struct refiner_draw *draw)
{
    const struct refiner_config *c = &r->config;
    const struct rng_key key = {draw->seed, RNG_SAMPLING};
    i64 height = REFINER_FACTOR * low_height, width = REFINER_FACTOR * low_width, count = height * width * 3;
    float *noise = memory_alloc(count * 4), *z = memory_alloc(count * 4), *patches = memory_alloc(count * 4);
    float *rows = memory_alloc(count / REFINER_VALUES * REFINER_INPUTS * 4);
    weights_pack(&r->weights);
    for (i64 i = 0; i < count; i++)
        noise[i] = (float)(c->temperature * c->noise * rng_normal(key, draw->identity, (u32)i, 0, REFINER_SAMPLING));
    for (i64 f = 0; f < frames; f++) {
        u8 *to = out + f * count;
        refiner_enlarge(to, pixels + f * low_height * low_width * 3, low_height, low_width);
        memcpy(z, noise, (size_t)count * 4);
        for (i64 k = 0; k < c->steps; k++)
            step(r, z, rows, patches, to, height, width, (double)k / (double)c->steps, draw->strength);
        for (i64 i = 0; i < count; i++)
            to[i] = (u8)lround(fmin(fmax((double)to[i] + 127.5 * (double)z[i], 0), 255));
    }
    memory_free(noise);
    memory_free(z);
    memory_free(patches);
    memory_free(rows);
}
