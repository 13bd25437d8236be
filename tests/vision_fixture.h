/* Fixture for the tests of the vision tokenizer: a small
 * network, pictures made of waves, folders. */
#ifndef WEFT_TESTS_VISION_FIXTURE_H
#define WEFT_TESTS_VISION_FIXTURE_H
#include "tokenizer_training/vision_step.h"
#include "tests/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct device device;

/* The shapes of struct vision_media_request: one for stills, one for clips. */
/* clang-format off */
#define SQUARE(size) {{1, {{size, size}}}, {1, {{size, size}}}}
/* clang-format on */

static inline double draw(u32 a, u32 b)
{
    return rng_uniform((struct rng_key){11, RNG_TEST}, a, b, 0, 0);
}

static inline struct vision_config toy_config(bool inflated)
{
    struct vision_config config = {.stride = 8, .bits = 5, .channels = {6, 8}, .blocks = {1, 1}, .inflated = inflated};
    assert_int_equal(vision_add_shape(&config, 1, 16, 16, 0, NULL, 0), 0);
    assert_int_equal(vision_add_shape(&config, 5, 16, 16, 8, NULL, 0), 0);
    assert_int_equal(vision_config_check(&config), 0);
    return config;
}

/* Perturbs every trained weight, including the temporal ones and those initialized to zero. */
static inline void disturb(struct vision *vision, double size)
{
    for (i64 i = 0; i < vision->weights.count; i++) {
        struct weight *w = &vision->weights.list[i];
        float *values = weight_values(&vision->weights, w);
        for (i64 j = 0; w->spec.trained && j < w->value.rows * w->value.columns; j++)
            values[j] += (float)(size * (draw((u32)i, (u32)j) - 0.5));
        weight_put(&vision->weights, w, 0, w->value.rows, values);
        memory_free(values);
    }
}

static inline void open_toy(struct vision *vision, bool inflated, enum dtype dtype)
{
    struct vision_config config = toy_config(inflated);
    vision_open(vision, &device, &config, dtype, true);
    vision_init(vision, 3);
    disturb(vision, 0.4);
}

static inline u8 *toy_pixels(i64 n, i64 frames, i64 size)
{
    u8 *pixels = memory_alloc(n * frames * size * size * 3);
    for (i64 i = 0; i < n * frames; i++)
        for (i64 p = 0; p < size * size * 3; p++) {
            double x = (double)(p / 3 % size), y = (double)(p / 3 / size), a = 6 * draw(1000, (u32)(i * 3 + p % 3));
            pixels[i * size * size * 3 + p] = (u8)(127 + 100 * sin(a + 0.3 * x * a) * cos(0.5 * y + (double)i));
        }
    return pixels;
}

static inline void make_vision_folder(char path[64])
{
    snprintf(path, 64, "/tmp/weft-vision-XXXXXX");
    assert_non_null(mkdtemp(path));
}

#endif
