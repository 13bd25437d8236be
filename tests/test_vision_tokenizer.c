/* The vision tokenizer: its gradients, what its code keeps, what inflation and time may not change, its files, its
 * stage. */
#define _GNU_SOURCE
#include "codecs/vision_step.h"
#include "data/media.h"
#include "dist/dist.h"
#include "kernels/resample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static struct device device;

static double draw(u32 a, u32 b)
{
    return rng_uniform((struct rng_key){11, RNG_TEST}, a, b, 0, 0);
}

/* ---- toys ---- */

static struct vision_config toy_config(bool inflated)
{
    struct vision_config config = {.stride = 8, .bits = 5, .channels = {6, 8}, .blocks = {1, 1}, .inflated = inflated};
    assert_int_equal(vision_add_shape(&config, 1, 16, 16, 0, NULL, 0), 0);
    assert_int_equal(vision_add_shape(&config, 5, 16, 16, 8, NULL, 0), 0);
    assert_int_equal(vision_config_check(&config), 0);
    return config;
}

/* Every weight differs from its start, the temporal ones and those that begin at zero too. */
static void disturb(struct vision *vision, double size)
{
    for (i64 i = 0; i < vision->weights.count; i++) {
        struct weight *w = &vision->weights.list[i];
        for (i64 j = 0; w->spec.trained && j < w->value.rows * w->value.columns; j++)
            w->master[j] += (float)(size * (draw((u32)i, (u32)j) - 0.5));
    }
    weights_refresh(&vision->weights);
}

static void open_toy(struct vision *vision, bool inflated, enum dtype dtype)
{
    struct vision_config config = toy_config(inflated);
    vision_open(vision, &device, &config, dtype, true);
    vision_init(vision, 3);
    disturb(vision, 0.4);
}

static u8 *toy_pixels(i64 n, i64 frames, i64 size)
{
    u8 *pixels = memory_alloc(n * frames * size * size * 3);
    for (i64 i = 0; i < n * frames; i++)
        for (i64 p = 0; p < size * size * 3; p++) {
            double x = (double)(p / 3 % size), y = (double)(p / 3 / size), a = 6 * draw(1000, (u32)(i * 3 + p % 3));
            pixels[i * size * size * 3 + p] = (u8)(127 + 100 * sin(a + 0.3 * x * a) * cos(0.5 * y + (double)i));
        }
    return pixels;
}

/* ---- gradients ----
 * Rounding, signs and the residual loop are constants to the gradient: with f the projection, f0, latent0 and sum0 its
 * value, its rounding and its code at the base point, training follows the smooth
 *   L = losses of pixels decoded from f + (sum0 - f0)  +  commitment of f + (latent0 - f0) to sum0
 *     + entropy of u0 + area means of (f - f0). */
struct surrogate {
    struct vision *vision;
    struct tape tape;
    const u8 *pixels;
    struct vision_size size;
    const struct vision_shape *shape;
    struct vision_loss_weights weights;
    i64 count; /* values of f */
    float *f0, *latent0, *sum0, *u0;
};

static void open_surrogate(struct surrogate *s)
{
    i64 n = s->size.n * vision_latent_frames(s->size.frames), d = s->vision->config.bits;
    tape_open(&s->tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&s->tape, false);
    struct tensor *patches = vision_patches(&s->tape, s->vision, s->pixels, s->size);
    struct tensor *features = vision_features(&s->tape, s->vision, patches, s->size);
    struct tensor *f = vision_project(&s->tape, s->vision, features),
                  *latent = vision_latent(&s->tape, s->vision, features);
    s->count = f->rows * d;
    s->f0 = memory_alloc(s->count * 4);
    s->latent0 = memory_alloc(s->count * 4);
    s->sum0 = memory_alloc(s->count * 4);
    s->u0 = memory_alloc(n * vision_tokens(s->shape) * d * 4);
    u8 *bits = memory_alloc(n * vision_tokens(s->shape) * d);
    memcpy(s->f0, f->data, (size_t)s->count * 4);
    memcpy(s->latent0, latent->data, (size_t)s->count * 4);
    device.ops->quantize_bits(&device, bits, s->sum0, s->u0, s->latent0, NULL, n, s->shape->h, s->shape->w, d,
                              s->shape->scales, s->shape->scale_count, vision_amplitude(s->vision, s->shape));
    memory_free(bits);
}

static void close_surrogate(struct surrogate *s)
{
    tape_close(&s->tape);
    memory_free(s->f0);
    memory_free(s->latent0);
    memory_free(s->sum0);
    memory_free(s->u0);
}

static double entropy_of(double p)
{
    return -(p * log(p) + (1 - p) * log(1 - p));
}

/* Mean of f - f0 over the area of cell (y, x) of scale s, channel c. The grid is 2x2: scale 1 is all of it, 2 the cell.
 */
static double area_change(const struct surrogate *s, const float *f, i64 image, i64 scale, i64 cell, i64 c)
{
    i64 d = s->vision->config.bits, grid = s->shape->h * s->shape->w;
    double sum = 0;
    assert_int_equal(grid, 4);
    for (i64 p = 0; p < grid; p++)
        if (scale == 1 || p == cell)
            sum += (double)f[(image * grid + p) * d + c] - s->f0[(image * grid + p) * d + c];
    return sum / (scale == 1 ? 4 : 1);
}

static double entropy_term(const struct surrogate *s, const float *f)
{
    i64 n = s->size.n * vision_latent_frames(s->size.frames), d = s->vision->config.bits,
        tokens = vision_tokens(s->shape);
    double total = 0;
    for (i64 k = 0, first = 0; k < s->shape->scale_count; k++) {
        i64 scale = s->shape->scales[k], square = scale * scale;
        double slope = s->weights.sharpness / vision_amplitude(s->vision, s->shape)[k], mean_entropy = 0, together = 0;
        for (i64 c = 0; c < d; c++) {
            double mean_p = 0;
            for (i64 i = 0; i < n * square; i++) {
                double u = s->u0[(i / square * tokens + first + i % square) * d + c];
                double p = 1 / (1 + exp(-slope * (u + area_change(s, f, i / square, scale, i % square, c))));
                mean_p += p / (double)(n * square);
                mean_entropy += entropy_of(p) / (double)(n * square * d);
            }
            together += entropy_of(mean_p) / (double)d;
        }
        total += (mean_entropy - together) / (double)s->shape->scale_count;
        first += square;
    }
    return total;
}

static double pixel_terms(struct surrogate *s, const float *f, struct tensor *patches)
{
    struct tensor *sum = tape_tensor(&s->tape, DTYPE_F32, s->count / s->vision->config.bits, s->vision->config.bits);
    for (i64 i = 0; i < s->count; i++)
        ((float *)sum->data)[i] = f[i] + (s->sum0[i] - s->f0[i]);
    struct tensor *out = vision_pixels(&s->tape, s->vision, sum, s->size);
    const float *a = out->data, *b = patches->data;
    i64 values = out->rows * out->columns;
    double l1 = 0, l2 = 0;
    for (i64 i = 0; i < values; i++) {
        double e = (double)a[i] - b[i];
        l1 += fabs(e) / (double)values;
        l2 += e * e / (double)values;
    }
    return s->weights.l1 * l1 + s->weights.l2 * l2;
}

static double surrogate_loss(struct surrogate *s)
{
    tape_clear(&s->tape, false);
    struct tensor *patches = vision_patches(&s->tape, s->vision, s->pixels, s->size);
    const float *f = vision_project(&s->tape, s->vision, vision_features(&s->tape, s->vision, patches, s->size))->data;
    double commitment = 0;
    for (i64 i = 0; i < s->count; i++)
        commitment += pow((double)f[i] + (s->latent0[i] - s->f0[i]) - s->sum0[i], 2) / (double)s->count;
    return pixel_terms(s, f, patches) + s->weights.commitment * commitment + s->weights.entropy * entropy_term(s, f);
}

/* A random direction of one weight: the loss's slope along it, and the gradient's. */
static void check_direction(struct surrogate *s, struct weight *w, u32 number)
{
    i64 n = w->value.rows * w->value.columns;
    float *base = memory_alloc(n * 4);
    double slope = 0, size = 0, step = 2e-3, values[2];
    memcpy(base, w->master, (size_t)n * 4);
    for (i64 j = 0; j < n; j++)
        size += pow(draw(number + 500, (u32)j) - 0.5, 2);
    for (i64 j = 0; j < n; j++)
        slope += (draw(number + 500, (u32)j) - 0.5) / sqrt(size) * ((const float *)w->value.grad)[j];
    for (int side = 0; side < 2; side++) {
        for (i64 j = 0; j < n; j++)
            w->master[j] = base[j] + (float)((side ? step : -step) * (draw(number + 500, (u32)j) - 0.5) / sqrt(size));
        values[side] = surrogate_loss(s);
    }
    memcpy(w->master, base, (size_t)n * 4);
    double measured = (values[1] - values[0]) / (2 * step);
    if (fabs(measured - slope) > 0.02 * fabs(measured) + 3e-4)
        fail_msg("%s: gradient %.6f, measured %.6f", w->spec.name, slope, measured);
    memory_free(base);
}

static void gradients_match_finite_differences(void **state)
{
    (void)state;
    struct vision vision;
    struct tape tape;
    open_toy(&vision, true, DTYPE_F32);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    u8 *pixels = toy_pixels(3, 5, 16);
    struct surrogate s = {.vision = &vision,
                          .pixels = pixels,
                          .size = {3, 5, 16, 16},
                          .shape = &vision.config.shapes[1],
                          .weights = {0.7, 1.3, 0.5, 4, 0.8}};
    struct vision_losses losses;
    tape_clear(&tape, true);
    weights_begin_step(&vision.weights);
    vision_loss(&losses, &tape, &vision, pixels, s.size, s.shape, &s.weights);
    tape_backward(&tape);
    open_surrogate(&s);
    double total = 0.7 * losses.l1 + 1.3 * losses.l2 + 0.5 * losses.commitment + 4 * losses.entropy;
    assert_true(fabs(total - surrogate_loss(&s)) < 1e-5 * fabs(total));
    for (i64 i = 0; i < vision.weights.count; i++) {
        struct weight *w = &vision.weights.list[i];
        assert_int_equal(w->value.grad_written, w->spec.trained);
        if (w->spec.trained)
            check_direction(&s, w, (u32)i);
    }
    close_surrogate(&s);
    memory_free(pixels);
    tape_close(&tape);
    vision_close(&vision);
}

/* ---- the op bit_entropy: areas that overlap, against double loops ---- */

enum {
    ENTROPY_N = 3,
    ENTROPY_H = 5,
    ENTROPY_W = 3,
    ENTROPY_D = 7,
    ENTROPY_SCALES = 4,
    ENTROPY_TOKENS = 1 + 4 + 9 + 25
};
static const i64 entropy_scales[ENTROPY_SCALES] = {1, 2, 3, 5};
static const float entropy_amplitudes[ENTROPY_SCALES] = {0.5f, 0.7f, 0.3f, 0.2f};
static const float entropy_sharpness = 1.5f;

/* u [n, tokens, d]: area means of x, nothing taken off between scales. */
static void lower_all(double *u, const double *x)
{
    for (i64 n = 0, at = 0; n < ENTROPY_N; n++)
        for (i64 k = 0; k < ENTROPY_SCALES; k++)
            for (i64 cell = 0, s = entropy_scales[k]; cell < s * s * ENTROPY_D; cell++, at++) {
                i64 y = cell / ENTROPY_D / s, x0 = cell / ENTROPY_D % s, count = 0;
                u[at] = 0;
                for (i64 j = area_begin(y, ENTROPY_H, s); j < area_end(y, ENTROPY_H, s); j++)
                    for (i64 i = area_begin(x0, ENTROPY_W, s); i < area_end(x0, ENTROPY_W, s); i++, count++)
                        u[at] += x[((n * ENTROPY_H + j) * ENTROPY_W + i) * ENTROPY_D + cell % ENTROPY_D];
                u[at] /= (double)count;
            }
}

static double entropy_by_loops(const double *x)
{
    double u[ENTROPY_N * ENTROPY_TOKENS * ENTROPY_D], total = 0;
    lower_all(u, x);
    for (i64 k = 0, first = 0; k < ENTROPY_SCALES; k++) {
        i64 square = (i64)entropy_scales[k] * entropy_scales[k];
        for (i64 c = 0; c < ENTROPY_D; c++) {
            double mean_p = 0, mean_entropy = 0, count = (double)(ENTROPY_N * square);
            for (i64 i = 0; i < ENTROPY_N * square; i++) {
                double value = u[(i / square * ENTROPY_TOKENS + first + i % square) * ENTROPY_D + c];
                double p = 1 / (1 + exp(-(double)entropy_sharpness * value / (double)entropy_amplitudes[k]));
                mean_p += p / count;
                mean_entropy += entropy_of(p) / count;
            }
            total += (mean_entropy - entropy_of(mean_p)) / (ENTROPY_D * ENTROPY_SCALES);
        }
        first += square;
    }
    return total;
}

static void bit_entropy_matches_loops(void **state)
{
    enum { VALUES = ENTROPY_N * ENTROPY_H * ENTROPY_W * ENTROPY_D, CODES = ENTROPY_N * ENTROPY_TOKENS * ENTROPY_D };
    double x[VALUES], codes[CODES];
    float u[CODES], mean_p[ENTROPY_SCALES * ENTROPY_D], magnitude[ENTROPY_SCALES], entropy, coefficient = 2,
                                                                                            dx[3][VALUES];
    (void)state;
    for (i64 i = 0; i < VALUES; i++)
        x[i] = 2 * draw(77, (u32)i) - 1;
    lower_all(codes, x);
    for (i64 i = 0; i < CODES; i++)
        u[i] = (float)codes[i];
    for (int run = 0; run < 3; run++) {
        workers_start(1 << run);
        for (i64 i = 0; i < VALUES; i++)
            dx[run][i] = 0.125f;
        device.ops->bit_entropy(&device, &entropy, mean_p, magnitude, u, ENTROPY_N, ENTROPY_D, entropy_scales,
                                ENTROPY_SCALES, entropy_amplitudes, entropy_sharpness);
        device.ops->bit_entropy_backward(&device, dx[run], u, mean_p, ENTROPY_N, ENTROPY_H, ENTROPY_W, ENTROPY_D,
                                         entropy_scales, ENTROPY_SCALES, entropy_amplitudes, entropy_sharpness,
                                         &coefficient);
        assert_memory_equal(dx[0], dx[run], sizeof dx[0]);
    }
    assert_true(fabs(entropy - entropy_by_loops(x)) < 1e-6);
    for (i64 i = 0; i < VALUES; i += 4) {
        double step = 1e-4, base = x[i], sides[2];
        for (int side = 0; side < 2; side++) {
            x[i] = base + (side ? step : -step);
            sides[side] = entropy_by_loops(x);
        }
        x[i] = base;
        assert_true(fabs(0.125 + coefficient * (sides[1] - sides[0]) / (2 * step) - dx[0][i]) < 2e-6);
    }
}

/* ---- training ---- */

static void default_settings(struct vision_settings *s, const char *data, const struct setting_override *more,
                             i64 count)
{
    struct setting_override all[32] = {{"data", data}, {"size", "16"},      {"stride", "8"},
                                       {"bits", "16"}, {"frames", "5"},     {"channels", "[16, 24]"},
                                       {"batch", "2"}, {"clip_batch", "2"}, {"still_batch", "2"}};
    i64 n = 9;
    memset(s, 0, sizeof *s);
    for (i64 i = 0; i < count; i++)
        all[n++] = more[i];
    if (settings_read(s, vision_stage_table, NULL, NULL, all, n))
        fail_msg("%s", error_text());
}

static void one_picture_is_learnt(void **state)
{
    (void)state;
    struct vision_settings settings;
    struct setting_override more[] = {{"steps", "300"}, {"clip_steps", "0"}, {"augment", "0"}, {"batch", "1"}};
    default_settings(&settings, "./none", more, 4);
    u8 *pixels = toy_pixels(1, 1, 16), again[16 * 16 * 3];
    struct vision_media media = {.size = 16, .still_count = 1, .stills = &pixels};
    struct vision_config config = {.stride = 8, .bits = 16, .channels = {16, 24}, .blocks = {1, 1}};
    assert_int_equal(vision_add_shape(&config, 1, 16, 16, 0, NULL, 0), 0);
    for (int precision = 0; precision < 2; precision++) {
        struct vision_trainer t = {
            .settings = &settings, .media = &media, .seed = 5, .still_steps = 300, .clip_shape = -1};
        struct vision_step_result result;
        vision_trainer_open(&t, &device, &config, precision ? DTYPE_BF16 : DTYPE_F32);
        vision_init(&t.vision, 5);
        for (i64 step = 0; step < 300; step++)
            vision_step(&result, &t, step);
        vision_reconstruct(&t.vision, again, NULL, pixels, 1, &config.shapes[0]);
        double psnr = vision_psnr(vision_square_error(again, pixels, sizeof again));
        if (psnr < 30 || result.psnr_db < 30)
            fail_msg("PSNR %.1f dB after 300 steps on one picture; the last step said %.1f", psnr, result.psnr_db);
        vision_trainer_close(&t);
    }
    memory_free(pixels);
    settings_release(&settings, vision_stage_table);
}

/* ---- time ---- */

static void stills_are_the_same_after_inflation(void **state)
{
    (void)state;
    for (int precision = 0; precision < 2; precision++) {
        struct vision vision;
        struct vision_config config = toy_config(false);
        i64 values = 3 * 4 * config.bits;
        float before[60], after[60], features[2][3 * 4 * 8];
        u8 *pixels = toy_pixels(3, 1, 16), decoded[2][3 * 16 * 16 * 3];
        assert_int_equal(values, 60);
        vision_open(&vision, &device, &config, precision ? DTYPE_BF16 : DTYPE_F32, false);
        vision_init(&vision, 3);
        vision_encode(&vision, before, features[0], pixels, 3, 1, 16, 16);
        vision_decode(&vision, decoded[0], before, 3, 1, 2, 2);
        vision_inflate(&vision);
        vision_encode(&vision, after, features[1], pixels, 3, 1, 16, 16);
        vision_decode(&vision, decoded[1], before, 3, 1, 2, 2);
        assert_memory_equal(before, after, sizeof before);
        assert_memory_equal(features[0], features[1], sizeof features[0]);
        assert_memory_equal(decoded[0], decoded[1], sizeof decoded[0]);
        memory_free(pixels);
        vision_close(&vision);
    }
}

static void the_future_never_moves_the_past(void **state)
{
    (void)state;
    struct vision vision;
    open_toy(&vision, true, DTYPE_F32);
    enum { LATENT = 4, CELLS = 4 };
    i64 d = vision.config.bits, frames = vision_frames(LATENT), frame = 16 * 16 * 3, values = CELLS * d;
    u8 *pixels = toy_pixels(1, frames, 16), *out[2] = {memory_alloc(frames * frame), memory_alloc(frames * frame)};
    float *latent[2] = {memory_alloc(LATENT * values * 4), memory_alloc(LATENT * values * 4)};
    vision_encode(&vision, latent[0], NULL, pixels, 1, frames, 16, 16);
    for (i64 t = 1; t < LATENT; t++) {
        for (i64 i = 0; i < frame; i++)
            pixels[vision_frames(t) * frame + i] ^= 0x7f; /* the first frame of latent frame t */
        vision_encode(&vision, latent[1], NULL, pixels, 1, frames, 16, 16);
        assert_memory_equal(latent[0], latent[1], t * values * 4);
        assert_memory_not_equal(latent[0] + t * values, latent[1] + t * values, values * 4);
        memcpy(latent[0], latent[1], (size_t)(LATENT * values) * 4);
    }
    vision_decode(&vision, out[0], latent[0], 1, LATENT, 2, 2);
    for (i64 i = 0; i < values; i++)
        latent[0][2 * values + i] += 1;
    vision_decode(&vision, out[1], latent[0], 1, LATENT, 2, 2);
    assert_memory_equal(out[0], out[1], vision_frames(2) * frame);
    assert_memory_not_equal(out[0] + vision_frames(2) * frame, out[1] + vision_frames(2) * frame, frame);
    for (int i = 0; i < 2; i++) {
        memory_free(out[i]);
        memory_free(latent[i]);
    }
    memory_free(pixels);
    vision_close(&vision);
}

/* vision_encode and vision_decode cut a long clip into parts; a tape of its own does not. */
static void long_clips_in_parts_are_the_whole(void **state)
{
    (void)state;
    struct vision vision;
    struct tape tape;
    open_toy(&vision, true, DTYPE_F32);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 32);
    i64 latent_frames = 81, frames = vision_frames(latent_frames), d = vision.config.bits,
        values = latent_frames * 4 * d;
    struct vision_size size = {1, frames, 16, 16};
    u8 *pixels = toy_pixels(1, frames, 16), *out = memory_alloc(frames * 16 * 16 * 3);
    float *features = memory_alloc(latent_frames * 4 * 8 * 4), *latent = memory_alloc(values * 4);
    vision_encode(&vision, latent, features, pixels, 1, frames, 16, 16);
    tape_clear(&tape, false);
    struct tensor *whole = vision_features(&tape, &vision, vision_patches(&tape, &vision, pixels, size), size);
    for (i64 i = 0; i < latent_frames * 4 * 8; i++)
        assert_true(fabsf(((float *)whole->data)[i] - features[i]) < 1e-5f);
    vision_decode(&vision, out, latent, 1, latent_frames, 2, 2);
    struct tensor *patches =
        vision_pixels(&tape, &vision, op_borrow(&tape, latent, DTYPE_F32, latent_frames * 4, d), size);
    for (i64 i = 0; i < frames * 16 * 16 * 3; i++) {
        i64 f = i / 768, y = i / 48 % 16, x = i / 3 % 16, row = (f * 4 + y / 4) * 4 + x / 4;
        float value = ((float *)patches->data)[row * 48 + (y % 4 * 4 + x % 4) * 3 + i % 3] * 127.5f + 127.5f;
        value = value < 0 ? 0 : value > 255 ? 255 : value;
        if (fabsf(value - (float)out[i]) > 0.51f)
            fail_msg("frame %lld, pixel %lld,%lld: %f, stored %d", (long long)f, (long long)y, (long long)x, value,
                     out[i]);
    }
    memory_free(pixels);
    memory_free(out);
    memory_free(features);
    memory_free(latent);
    tape_close(&tape);
    vision_close(&vision);
}

/* ---- codes ---- */

static void codes_decode_to_what_was_encoded(void **state)
{
    (void)state;
    struct vision vision;
    open_toy(&vision, true, DTYPE_F32);
    const struct vision_shape *shape = &vision.config.shapes[1];
    i64 n = 3, frames = n * shape->latent_frames, d = vision.config.bits, values = frames * 4 * d,
        codes = frames * 5 * d;
    i64 bytes = n * 5 * 16 * 16 * 3;
    u8 *pixels = toy_pixels(n, 5, 16), *bits = memory_alloc(codes),
       *out[2] = {memory_alloc(bytes), memory_alloc(bytes)};
    float *latent = memory_alloc(values * 4), *sum = memory_alloc(values * 4), *again = memory_alloc(values * 4);
    assert_int_equal(vision_tokens(shape), 5);
    vision_encode(&vision, latent, NULL, pixels, n, 5, 16, 16);
    for (i64 i = 0; i < values; i++)
        assert_true(latent[i] == bf16_to_f32(bf16_from_f32(latent[i])));
    vision_quantize(&vision, bits, sum, latent, frames, shape);
    vision_dequantize(&vision, again, bits, frames, shape);
    assert_memory_equal(sum, again, values * 4);
    vision_decode(&vision, out[0], sum, n, shape->latent_frames, shape->h, shape->w);
    memset(bits, 7, (size_t)codes);
    vision_reconstruct(&vision, out[1], bits, pixels, n, shape);
    assert_memory_equal(out[0], out[1], bytes);
    for (i64 i = 0; i < codes; i++)
        assert_true(bits[i] < 2);
    assert_true(vision_square_error(pixels, pixels, bytes) == 0);
    assert_true(fabs(vision_psnr(0.01) - 20) < 1e-9);
    memory_free(pixels);
    memory_free(bits);
    memory_free(latent);
    memory_free(sum);
    memory_free(again);
    memory_free(out[0]);
    memory_free(out[1]);
    vision_close(&vision);
}

/* A few steps, then a clip through the code: gradients, optimizer, encoder and decoder in one number. */
static u64 hash_of_training(int threads)
{
    struct vision_settings settings;
    struct setting_override more[] = {{"steps", "2"}, {"clip_steps", "4"}};
    default_settings(&settings, "./none", more, 2);
    workers_start(threads);
    u8 *pixels[2] = {toy_pixels(3, 5, 16), toy_pixels(2, 5, 16)}, *still[3], *out = memory_alloc(5 * 768);
    i64 clip_frames[2] = {5, 5};
    for (int i = 0; i < 3; i++)
        still[i] = pixels[0] + i * 5 * 768;
    struct vision_media media = {
        .size = 16, .still_count = 3, .stills = still, .clip_count = 2, .clips = pixels, .clip_frames = clip_frames};
    struct vision_config config = {.stride = 8, .bits = 16, .channels = {16, 24}, .blocks = {1, 1}};
    vision_add_shape(&config, 1, 16, 16, 0, NULL, 0);
    vision_add_shape(&config, 5, 16, 16, 8, NULL, 0);
    struct vision_trainer t = {
        .settings = &settings, .media = &media, .seed = 5, .still_steps = 2, .clip_steps = 4, .clip_shape = 1};
    struct vision_step_result result;
    vision_trainer_open(&t, &device, &config, DTYPE_BF16);
    vision_init(&t.vision, 5);
    for (i64 step = 0; step < 6; step++)
        vision_step(&result, &t, step);
    vision_reconstruct(&t.vision, out, NULL, pixels[0], 1, &config.shapes[1]);
    u64 hash = hash_bytes(out, 5 * 768, (u64)(result.losses.l2 * 1e15));
    for (i64 i = 0; i < t.vision.weights.count; i++) {
        struct weight *w = &t.vision.weights.list[i];
        hash = hash_bytes(w->master, w->value.rows * w->value.columns * 4, hash);
    }
    vision_trainer_close(&t);
    memory_free(pixels[0]);
    memory_free(pixels[1]);
    memory_free(out);
    settings_release(&settings, vision_stage_table);
    return hash;
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    u64 one = hash_of_training(1);
    assert_int_equal(one, hash_of_training(2));
    assert_int_equal(one, hash_of_training(4));
    assert_int_equal(one, hash_of_training(2));
    workers_start(2);
}

/* ---- files ---- */

static void make_directory(char path[64])
{
    snprintf(path, 64, "/tmp/weft-vision-XXXXXX");
    assert_non_null(mkdtemp(path));
}

static void saved_and_loaded_is_the_same(void **state)
{
    (void)state;
    char folder[64];
    struct vision vision, loaded;
    make_directory(folder);
    open_toy(&vision, true, DTYPE_F32);
    vision.at.amplitude->master[1] = 0.25f;
    assert_int_equal(vision_save(&vision, folder), 0);
    if (vision_load(&loaded, &device, folder, DTYPE_F32, false))
        fail_msg("%s", error_text());
    assert_memory_equal(&vision.config, &loaded.config, sizeof vision.config);
    u8 *pixels = toy_pixels(2, 5, 16), *out[2] = {memory_alloc(2 * 5 * 768), memory_alloc(2 * 5 * 768)};
    vision_reconstruct(&vision, out[0], NULL, pixels, 2, &vision.config.shapes[1]);
    vision_reconstruct(&loaded, out[1], NULL, pixels, 2, &loaded.config.shapes[1]);
    assert_memory_equal(out[0], out[1], 2 * 5 * 768);
    vision_close(&loaded);
    char *path = path_join(folder, "config.json");
    assert_int_equal(file_replace(path, "{\"kind\":\"audio\"}", 16), 0);
    assert_int_equal(vision_load(&loaded, &device, folder, DTYPE_F32, false), -1);
    assert_non_null(strstr(error_text(), "no vision tokenizer"));
    memory_free(path);
    memory_free(pixels);
    memory_free(out[0]);
    memory_free(out[1]);
    vision_close(&vision);
    directory_remove(folder);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct vision_config config = {.stride = 16, .bits = 32, .channels = {8, 8}, .blocks = {1, 1}};
    const i64 falling[] = {1, 3, 2, 4}, too_small[] = {1, 2};
    assert_int_equal(vision_add_shape(&config, 1, 60, 64, 0, NULL, 0), -1);
    assert_int_equal(vision_add_shape(&config, 4, 64, 64, 0, NULL, 0), -1);
    assert_int_equal(vision_add_shape(&config, 1, 64, 64, 0, falling, 4), -1);
    assert_int_equal(vision_add_shape(&config, 1, 64, 64, 0, too_small, 2), -1);
    assert_int_equal(vision_config_check(&config), -1);
    assert_int_equal(vision_add_shape(&config, 1, 64, 64, 0, NULL, 0), 0);
    assert_int_equal(vision_add_shape(&config, 9, 64, 64, 8, NULL, 0), 0);
    assert_int_equal(vision_add_shape(&config, 1, 128, 64, 0, NULL, 0), 0);
    assert_int_equal(vision_config_check(&config), 0);
    assert_int_equal(config.shapes[0].scale_count, 4);
    assert_int_equal(config.shapes[1].amplitude, 0);
    assert_int_equal(config.shapes[2].amplitude, 2);
    assert_string_equal(config.shapes[1].name, "64x64x9");
}

/* ---- the stage ---- */

static void write_item(struct text *captions, const char *folder, const char *kind, i64 number, i64 frames)
{
    char name[32], *path;
    snprintf(name, sizeof name, "%s%lld.%s", kind, (long long)number, frames > 1 ? "mp4" : "png");
    path = path_join(folder, name);
    u8 *pixels = toy_pixels(1 + number, frames, 16);
    struct clip clip = {frames, 16, 16, 8, pixels + number * frames * 768};
    assert_int_equal(frames > 1 ? clip_write_mp4(path, &clip) : image_write_png(path, clip.pixels, 16, 16), 0);
    text_printf(captions, "{\"%s\":\"%s\",\"text\":\"\"}\n", kind, name);
    memory_free(pixels);
    memory_free(path);
}

static char *make_corpus(const char *folder)
{
    struct text captions = {0};
    char *data = path_join(folder, "data"), *path = path_join(data, "captions.jsonl");
    assert_int_equal(directory_make(data), 0);
    for (i64 i = 0; i < 6; i++)
        write_item(&captions, data, i < 4 ? "image" : "video", i, i < 4 ? 1 : 5 + 2 * (i - 4));
    assert_int_equal(file_replace(path, captions.data, captions.length), 0);
    text_release(&captions);
    memory_free(path);
    return data;
}

static int run_stage(const char *data, const char *out, const struct setting_override *more, i64 count)
{
    struct vision_settings settings;
    struct stage stage = {"vision", out, 9, &device, DTYPE_BF16, 100, parallel_alone()};
    default_settings(&settings, data, more, count);
    assert_int_equal(directory_make(out), 0);
    int status = vision_stage(&settings, &stage);
    settings_release(&settings, vision_stage_table);
    return status;
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    char *paths[2] = {path_join(a, name), path_join(b, name)};
    struct text texts[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++)
        if (file_read(&texts[i], paths[i]))
            fail_msg("%s", error_text());
    assert_int_equal(texts[0].length, texts[1].length);
    assert_memory_equal(texts[0].data, texts[1].data, texts[0].length);
    for (int i = 0; i < 2; i++) {
        text_release(&texts[i]);
        memory_free(paths[i]);
    }
}

/* Throws away the last checkpoint, as if the run had been killed after the one before it. */
static void cut_short(const char *out, const char *last)
{
    char *checkpoints = path_join(out, "checkpoints"), *path = path_join(checkpoints, last);
    assert_true(file_is_directory(path));
    assert_int_equal(directory_remove(path), 0);
    memory_free(path);
    path = path_join(out, "weights.safetensors");
    assert_int_equal(unlink(path), 0);
    memory_free(path);
    memory_free(checkpoints);
}

static void resumed_runs_equal_uninterrupted_ones(void **state)
{
    (void)state;
    static const char *const kinds[] = {"4", "0"}, *const lasts[] = {"step-000007", "step-000003"};
    char folder[64];
    make_directory(folder);
    char *data = make_corpus(folder), *out[2] = {path_join(folder, "a"), path_join(folder, "b")};
    for (int k = 0; k < 2; k++) {
        struct setting_override more[] = {
            {"steps", "3"}, {"clip_steps", kinds[k]}, {"checkpoint_steps", k ? "2" : "5"}};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(directory_remove(out[i]), 0);
            if (run_stage(data, out[i], more, 3))
                fail_msg("%s", error_text());
        }
        cut_short(out[1], lasts[k]);
        assert_int_equal(run_stage(data, out[1], more, 3), 0);
        assert_same_file(out[0], out[1], "weights.safetensors");
        assert_same_file(out[0], out[1], "config.json");
        assert_same_file(out[0], out[1], "report.json");
        assert_same_file(out[0], out[1], "samples/stills_training.png");
    }
    memory_free(out[0]);
    memory_free(out[1]);
    memory_free(data);
    directory_remove(folder);
}

static void bad_media_are_skipped_up_to_a_share(void **state)
{
    (void)state;
    char folder[64];
    make_directory(folder);
    char *data = make_corpus(folder), *bad = path_join(data, "image0.png");
    struct vision_media media;
    struct vision_media_request request = {16, 5, 8, 0.2};
    assert_int_equal(file_replace(bad, "no picture", 10), 0);
    assert_int_equal(vision_media_load(&media, data, &request), 0);
    assert_int_equal(media.bad_count, 1);
    assert_int_equal(media.still_count, 3);
    assert_int_equal(media.clip_count, 2);
    assert_true(media.clip_frames[0] >= 5);
    vision_media_release(&media);
    request.bad_share = 0.1;
    assert_int_equal(vision_media_load(&media, data, &request), -1);
    assert_non_null(strstr(error_text(), "1 of 6"));
    assert_int_equal(vision_media_load(&media, folder, &request), -1);
    memory_free(bad);
    memory_free(data);
    directory_remove(folder);
}

/* A long clip is cropped in time, a short one holds its last frame; the same step draws the same batch. */
static void draws_are_functions_of_the_step(void **state)
{
    (void)state;
    u8 *clips[2] = {toy_pixels(1, 20, 16), toy_pixels(2, 5, 16)}, out[2][2 * 5 * 768];
    i64 frames[2] = {20, 5};
    struct vision_media media = {.size = 16, .clip_count = 2, .clips = clips, .clip_frames = frames};
    struct vision_draw d = {.n = 2, .frames = 5, .first = 6, .step = 3, .augment = 0.6, .seed = 4};
    vision_media_draw(out[0], &media, &d);
    vision_media_draw(out[1], &media, &d);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    d.step = 4;
    vision_media_draw(out[1], &media, &d);
    assert_memory_not_equal(out[0], out[1], sizeof out[0]);
    d.augment = 0;
    vision_media_draw(out[0], &media, &d);
    assert_non_null(memmem(clips[0], 20 * 768, out[0], 768) ? clips
                                                            : memmem(clips[0], 20 * 768, out[0] + 5 * 768, 768));
    d.frames = 1; /* no stills: frames of clips */
    vision_media_draw(out[0], &media, &d);
    memory_free(clips[0]);
    memory_free(clips[1]);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    device_open_cpu(&device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(bit_entropy_matches_loops),
        cmocka_unit_test(one_picture_is_learnt),
        cmocka_unit_test(stills_are_the_same_after_inflation),
        cmocka_unit_test(the_future_never_moves_the_past),
        cmocka_unit_test(long_clips_in_parts_are_the_whole),
        cmocka_unit_test(codes_decode_to_what_was_encoded),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(saved_and_loaded_is_the_same),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
        cmocka_unit_test(resumed_runs_equal_uninterrupted_ones),
        cmocka_unit_test(bad_media_are_skipped_up_to_a_share),
        cmocka_unit_test(draws_are_functions_of_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
