/* The vision tokenizer: its gradients, the information in its code, invariance under inflation and
 * in time, its files. */
#include "kernels/resample.h"
#include "tests/vision_fixture.h"

/* ---- gradients ----
 * Rounding, signs and the residual loop are constants to the gradient. With f the projection,
 * and f0, latent0 and sum0 its value, its rounding and its code at the base point, training
 * follows the smooth
 *   L = losses of pixels decoded from f + (sum0 - f0)  +  commitment of f + (latent0 - f0) to sum0
 *     + entropy of u0 + area means of (f - f0). */
struct vision_tokenizer_probe {
    struct vision *vision;
    struct tape tape;
    const u8 *pixels;
    struct vision_size size;
    const struct vision_shape *shape;
    struct vision_loss_weights weights;
    i64 count; /* number of values in f */
    float *f0, *latent0, *sum0, *u0;
    float amplitude[VISION_SCALES_MOST];
};

static void open_surrogate(struct vision_tokenizer_probe *s)
{
    i64 n = s->size.n * vision_latent_frames(s->size.frames), d = s->vision->config.bits;
    tape_open(&s->tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&s->tape, false);
    struct tensor *patches = vision_patches(&s->tape, s->vision, s->pixels, s->size);
    struct tensor *features = vision_features(&s->tape, s->vision, patches, s->size);
    struct tensor *f = vision_project(&s->tape, s->vision, features),
                  *latent = vision_latent(&s->tape, s->vision, features, false);
    i64 codes = n * vision_tokens(s->shape) * d;
    s->count = f->rows * d;
    u8 *bits = tape_alloc(&s->tape, codes);
    float *sum = tape_alloc(&s->tape, s->count * 4), *u = tape_alloc(&s->tape, codes * 4);
    device.ops->quantize_bits(&device, bits, sum, u, latent->data, NULL, n, s->shape->h, s->shape->w, d,
                              s->shape->scales, s->shape->scale_count, vision_amplitude(s->vision, s->shape));
    s->f0 = to_host(&device, f->data, s->count * 4);
    s->latent0 = to_host(&device, latent->data, s->count * 4);
    s->sum0 = to_host(&device, sum, s->count * 4);
    s->u0 = to_host(&device, u, codes * 4);
    device_get(&device, s->amplitude, vision_amplitude(s->vision, s->shape), s->shape->scale_count * 4);
}

static void close_surrogate(struct vision_tokenizer_probe *s)
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

/* Mean of f - f0 over the area of cell (y, x) of scale s, channel c. The grid is 2x2: scale 1
 * covers all of it, scale 2 one cell. */
static double area_change(const struct vision_tokenizer_probe *s, const float *f, i64 image, i64 scale, i64 cell, i64 c)
{
    i64 d = s->vision->config.bits, grid = s->shape->h * s->shape->w;
    double sum = 0;
    assert_int_equal(grid, 4);
    for (i64 p = 0; p < grid; p++)
        if (scale == 1 || p == cell)
            sum += (double)f[(image * grid + p) * d + c] - s->f0[(image * grid + p) * d + c];
    return sum / (scale == 1 ? 4 : 1);
}

static double entropy_term(const struct vision_tokenizer_probe *s, const float *f)
{
    i64 n = s->size.n * vision_latent_frames(s->size.frames), d = s->vision->config.bits,
        tokens = vision_tokens(s->shape);
    double total = 0;
    for (i64 k = 0, first = 0; k < s->shape->scale_count; k++) {
        i64 scale = s->shape->scales[k].h, square = scale_positions(s->shape->scales[k]);
        double slope = s->weights.sharpness / s->amplitude[k], mean_entropy = 0, together = 0;
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

static double pixel_terms(struct vision_tokenizer_probe *s, const float *f, struct tensor *patches)
{
    struct tensor *sum = tape_tensor(&s->tape, DTYPE_F32, s->count / s->vision->config.bits, s->vision->config.bits);
    float *values = memory_alloc(s->count * 4);
    for (i64 i = 0; i < s->count; i++)
        values[i] = f[i] + (s->sum0[i] - s->f0[i]);
    device_put(&device, sum->data, values, s->count * 4);
    memory_free(values);
    struct tensor *out = vision_pixels(&s->tape, s->vision, sum, s->size);
    i64 count = out->rows * out->columns;
    float *a = to_host(&device, out->data, count * 4), *b = to_host(&device, patches->data, count * 4);
    double l1 = 0, l2 = 0;
    for (i64 i = 0; i < count; i++) {
        double e = (double)a[i] - b[i];
        l1 += fabs(e) / (double)count;
        l2 += e * e / (double)count;
    }
    memory_free(a);
    memory_free(b);
    return s->weights.of[VISION_L1] * l1 + s->weights.of[VISION_L2] * l2;
}

static double surrogate_loss(struct vision_tokenizer_probe *s)
{
    tape_clear(&s->tape, false);
    struct tensor *patches = vision_patches(&s->tape, s->vision, s->pixels, s->size);
    struct tensor *projected =
        vision_project(&s->tape, s->vision, vision_features(&s->tape, s->vision, patches, s->size));
    float *f = to_host(&device, projected->data, s->count * 4);
    double commitment = 0;
    for (i64 i = 0; i < s->count; i++)
        commitment += pow((double)f[i] + (s->latent0[i] - s->f0[i]) - s->sum0[i], 2) / (double)s->count;
    double loss = pixel_terms(s, f, patches) + s->weights.of[VISION_COMMITMENT] * commitment +
                  s->weights.of[VISION_ENTROPY] * entropy_term(s, f);
    memory_free(f);
    return loss;
}

/* Compares the loss's slope along a random direction of one weight with the gradient's. */
static void check_direction(struct vision_tokenizer_probe *s, struct weight *w, u32 number)
{
    i64 n = w->value.rows * w->value.columns;
    struct weights *weights = &s->vision->weights;
    float *base = weight_values(weights, w), *moved = memory_alloc(n * 4);
    float *gradient = to_host(&device, w->value.grad, n * 4);
    double slope = 0, size = 0, step = 2e-3, values[2];
    for (i64 j = 0; j < n; j++)
        size += pow(draw(number + 500, (u32)j) - 0.5, 2);
    for (i64 j = 0; j < n; j++)
        slope += (draw(number + 500, (u32)j) - 0.5) / sqrt(size) * gradient[j];
    for (int side = 0; side < 2; side++) {
        for (i64 j = 0; j < n; j++)
            moved[j] = base[j] + (float)((side ? step : -step) * (draw(number + 500, (u32)j) - 0.5) / sqrt(size));
        weight_put(weights, w, 0, w->value.rows, moved);
        values[side] = surrogate_loss(s);
    }
    weight_put(weights, w, 0, w->value.rows, base);
    double measured = (values[1] - values[0]) / (2 * step);
    if (fabs(measured - slope) > 0.02 * fabs(measured) + 3e-4)
        fail_msg("%s: gradient %.6f, measured %.6f", w->spec.name, slope, measured);
    memory_free(base);
    memory_free(moved);
    memory_free(gradient);
}

TEST(gradients_match_finite_differences)
{
    struct vision vision;
    struct tape tape;
    open_toy(&vision, true, DTYPE_F32);
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    u8 *pixels = toy_pixels(3, 5, 16);
    struct vision_tokenizer_probe s = {.vision = &vision,
                                       .pixels = pixels,
                                       .size = {3, 5, 16, 16},
                                       .shape = &vision.config.shapes[1],
                                       .weights = {{0.7, 1.3, 0.5, 4}, 0.8}};
    double sums[VISION_LOSSES];
    tape_clear(&tape, true);
    weights_begin_step(&vision.weights);
    double *on_device = tape_alloc(&tape, sizeof sums);
    device.ops->zero(&device, on_device, sizeof sums);
    vision_loss(on_device, &tape, &vision, pixels, s.size, s.shape, &s.weights, NULL);
    tape_backward(&tape);
    device_get(&device, sums, on_device, sizeof sums);
    struct vision_losses losses = vision_losses_of(sums, &vision, s.size);
    open_surrogate(&s);
    double total = 0.7 * losses.of[VISION_L1] + 1.3 * losses.of[VISION_L2] + 0.5 * losses.of[VISION_COMMITMENT] +
                   4 * losses.of[VISION_ENTROPY];
    assert_float_equal(vision_weighted(&losses, &s.weights), total, 1e-12);
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
    ENTROPY_TOKENS = 1 + 2 + 9 + 10
};
static const struct scale entropy_scales[ENTROPY_SCALES] = {{1, 1}, {2, 1}, {3, 3}, {5, 2}};
static const float entropy_amplitudes[ENTROPY_SCALES] = {0.5f, 0.7f, 0.3f, 0.2f};
static const float entropy_sharpness = 1.5f;

/* u [n, tokens, d]: area means of x, without subtracting previous scales. */
static void lower_all(double *u, const double *x)
{
    for (i64 n = 0, at = 0; n < ENTROPY_N; n++)
        for (i64 k = 0; k < ENTROPY_SCALES; k++)
            for (i64 cell = 0; cell < scale_positions(entropy_scales[k]) * ENTROPY_D; cell++, at++) {
                struct scale s = entropy_scales[k];
                i64 y = cell / ENTROPY_D / s.w, x0 = cell / ENTROPY_D % s.w, count = 0;
                u[at] = 0;
                for (i64 j = area_begin(y, ENTROPY_H, s.h); j < area_end(y, ENTROPY_H, s.h); j++)
                    for (i64 i = area_begin(x0, ENTROPY_W, s.w); i < area_end(x0, ENTROPY_W, s.w); i++, count++)
                        u[at] += x[((n * ENTROPY_H + j) * ENTROPY_W + i) * ENTROPY_D + cell % ENTROPY_D];
                u[at] /= (double)count;
            }
}

static double entropy_by_loops(const double *x)
{
    double u[ENTROPY_N * ENTROPY_TOKENS * ENTROPY_D], total = 0;
    lower_all(u, x);
    for (i64 k = 0, first = 0; k < ENTROPY_SCALES; k++) {
        i64 square = scale_positions(entropy_scales[k]);
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

TEST(bit_entropy_matches_loops)
{
    enum { COUNT = ENTROPY_N * ENTROPY_H * ENTROPY_W * ENTROPY_D, CODES = ENTROPY_N * ENTROPY_TOKENS * ENTROPY_D };
    struct {
        float u[CODES], amplitude[ENTROPY_SCALES], coefficient;
        float mean_p[ENTROPY_SCALES * ENTROPY_D], magnitude[ENTROPY_SCALES], entropy, dx[3][COUNT];
    } host = {.coefficient = 2}, *on_device = device_alloc(&device, sizeof host);
    double x[COUNT], codes[CODES];
    for (i64 i = 0; i < COUNT; i++)
        x[i] = 2 * draw(77, (u32)i) - 1;
    lower_all(codes, x);
    for (i64 i = 0; i < CODES; i++)
        host.u[i] = (float)codes[i];
    for (i64 i = 0; i < 3 * COUNT; i++)
        host.dx[i / COUNT][i % COUNT] = 0.125f;
    memcpy(host.amplitude, entropy_amplitudes, sizeof host.amplitude);
    device_put(&device, on_device, &host, sizeof host);
    for (int run = 0; run < 3; run++) {
        workers_start(1 << run);
        device.ops->bit_entropy(&device, &on_device->entropy, on_device->mean_p, on_device->magnitude, on_device->u,
                                ENTROPY_N, ENTROPY_D, entropy_scales, ENTROPY_SCALES, on_device->amplitude,
                                entropy_sharpness);
        device.ops->bit_entropy_backward(&device, on_device->dx[run], on_device->u, on_device->mean_p, ENTROPY_N,
                                         ENTROPY_H, ENTROPY_W, ENTROPY_D, entropy_scales, ENTROPY_SCALES,
                                         on_device->amplitude, entropy_sharpness, &on_device->coefficient);
    }
    device_get(&device, &host, on_device, sizeof host);
    device_free(&device, on_device, sizeof host);
    assert_memory_equal(host.dx[0], host.dx[1], sizeof host.dx[0]);
    assert_memory_equal(host.dx[0], host.dx[2], sizeof host.dx[0]);
    assert_true(fabs(host.entropy - entropy_by_loops(x)) < 1e-6);
    for (i64 i = 0; i < COUNT; i += 4) {
        double step = 1e-4, base = x[i], sides[2];
        for (int side = 0; side < 2; side++) {
            x[i] = base + (side ? step : -step);
            sides[side] = entropy_by_loops(x);
        }
        x[i] = base;
        assert_true(fabs(0.125 + host.coefficient * (sides[1] - sides[0]) / (2 * step) - host.dx[0][i]) < 2e-6);
    }
}

/* ---- time ---- */

TEST(stills_are_the_same_after_inflation)
{
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

TEST(the_future_never_moves_the_past)
{
    struct vision vision;
    open_toy(&vision, true, DTYPE_F32);
    enum { LATENT = 4, CELLS = 4 };
    i64 d = vision.config.bits, frames = vision_frames(LATENT), frame = 16 * 16 * 3, values = CELLS * d;
    u8 *pixels = toy_pixels(1, frames, 16), *out[2] = {memory_alloc(frames * frame), memory_alloc(frames * frame)};
    float *latent[2] = {memory_alloc(LATENT * values * 4), memory_alloc(LATENT * values * 4)};
    vision_encode(&vision, latent[0], NULL, pixels, 1, frames, 16, 16);
    for (i64 t = 1; t < LATENT; t++) {
        for (i64 i = 0; i < frame; i++)
            pixels[vision_frames(t) * frame + i] ^= 0x7f; /* first frame of latent frame t */
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

/* vision_encode and vision_decode split a long clip into
 * parts; a single tape does not, and must agree. */
TEST(long_clips_in_parts_are_the_whole)
{
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
    float *expected = to_host(&device, whole->data, latent_frames * 4 * 8 * 4);
    for (i64 i = 0; i < latent_frames * 4 * 8; i++)
        assert_true(fabsf(expected[i] - features[i]) < 1e-5f);
    memory_free(expected);
    expected = to_host(&device, vision_latent(&tape, &vision, whole, false)->data, values * 4);
    for (i64 i = 0; i < values; i++)
        assert_true(fabsf(expected[i] - latent[i]) < 1e-5f);
    memory_free(expected);
    vision_decode(&vision, out, latent, 1, latent_frames, 2, 2);
    struct tensor *x = tape_tensor(&tape, DTYPE_F32, latent_frames * 4, d);
    device_put(&device, x->data, latent, values * 4);
    struct tensor *patches = vision_pixels(&tape, &vision, x, size);
    expected = to_host(&device, patches->data, frames * 16 * 16 * 3 * 4);
    for (i64 i = 0; i < frames * 16 * 16 * 3; i++) {
        i64 f = i / 768, y = i / 48 % 16, column = i / 3 % 16, row = (f * 4 + y / 4) * 4 + column / 4;
        float value = expected[row * 48 + (y % 4 * 4 + column % 4) * 3 + i % 3] * 127.5f + 127.5f;
        value = value < 0 ? 0 : value > 255 ? 255 : value;
        if (fabsf(value - (float)out[i]) > 0.51f)
            fail_msg("frame %lld, pixel %lld,%lld: %f, stored %d", (long long)f, (long long)y, (long long)column, value,
                     out[i]);
    }
    memory_free(expected);
    memory_free(pixels);
    memory_free(out);
    memory_free(features);
    memory_free(latent);
    tape_close(&tape);
    vision_close(&vision);
}

/* ---- codes ---- */

TEST(codes_decode_to_what_was_encoded)
{
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

/* ---- files ---- */

/* A shape has as many scales as the square, in its own proportions, and all shapes share one row of
 * amplitudes. */
TEST(scales_of_a_shape_have_its_proportions)
{
    static const struct scale wanted[3][5] = {{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {6, 6}},
                                              {{1, 1}, {1, 3}, {2, 5}, {3, 6}, {4, 9}},
                                              {{1, 1}, {4, 1}, {6, 2}, {8, 2}, {12, 3}}};
    static const i64 size[3][2] = {{48, 48}, {32, 72}, {96, 24}}, sides[] = {1, 2, 3, 4, 6};
    struct vision_config config = {.stride = 8, .bits = 4, .channels = {6, 8}, .blocks = {1, 1}}, again;
    for (i64 i = 0; i < 3; i++) {
        if (vision_add_shape(&config, 1, size[i][0], size[i][1], 0, i ? sides : NULL, 5))
            fail_msg("%s", error_text());
        assert_int_equal(config.shapes[i].scale_count, 5);
        for (i64 k = 0; k < 5; k++) {
            assert_int_equal(config.shapes[i].scales[k].h, wanted[i][k].h);
            assert_int_equal(config.shapes[i].scales[k].w, wanted[i][k].w);
        }
        assert_int_equal(config.shapes[i].amplitude, 0);
    }
    config.shapes[1].crop = 0.125;
    assert_string_equal(config.shapes[1].name, "72x32");
    struct json *json = vision_config_json(&config);
    assert_int_equal(vision_config_parse(&again, json, "config.json"), 0);
    assert_memory_equal(again.shapes, config.shapes, sizeof config.shapes);
    json_free(json);
}

/* A long picture through the code: decoding the bits gives the quantized latent. */
TEST(long_pictures_are_coded)
{
    struct vision_config config = toy_config(false);
    struct vision vision;
    assert_int_equal(vision_add_shape(&config, 1, 16, 48, 0, NULL, 0), 0);
    const struct vision_shape *shape = &config.shapes[2];
    vision_open(&vision, &device, &config, DTYPE_F32, true);
    vision_init(&vision, 3);
    disturb(&vision, 0.4);
    i64 tokens = vision_tokens(shape), values = shape->h * shape->w * config.bits;
    assert_int_equal(tokens, 1 + 1 * 4 + 2 * 6);
    u8 *pixels = toy_pixels(3, 1, 16), *bits = memory_alloc(tokens * config.bits), out[2][16 * 48 * 3];
    float *latent = memory_alloc(values * 4), *sum = memory_alloc(values * 4), *again = memory_alloc(values * 4);
    vision_encode(&vision, latent, NULL, pixels, 1, 1, 16, 48);
    vision_quantize(&vision, bits, sum, latent, 1, shape);
    vision_dequantize(&vision, again, bits, 1, shape);
    assert_memory_equal(sum, again, values * 4);
    vision_decode(&vision, out[0], sum, 1, 1, shape->h, shape->w);
    vision_reconstruct(&vision, out[1], NULL, pixels, 1, shape);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    memory_free(pixels);
    memory_free(bits);
    memory_free(latent);
    memory_free(sum);
    memory_free(again);
    vision_close(&vision);
}

static void assert_refused(const char *scales, const char *why)
{
    struct vision_config config;
    char *text = string_format("{\"stride\":8,\"bits\":4,\"channels\":[6,8],\"blocks\":[1,1],\"shapes\":[{\"frames\":1,"
                               "\"height\":16,\"width\":48,\"scales\":%s}]}",
                               scales);
    struct json *json = json_parse(text, (i64)strlen(text), "config.json");
    assert_non_null(json);
    int status = vision_config_parse(&config, json, "config.json");
    if (why ? status != -1 || !strstr(error_text(), why) : status != 0)
        fail_msg("%s: %s", scales, status ? error_text() : "taken");
    json_free(json);
    memory_free(text);
}

TEST(bad_scales_of_a_table_are_refused)
{
    assert_refused("[1, [1, 3], [2, 6]]", NULL);
    assert_refused("[1, [2, 3], [1, 6], [2, 6]]", "must rise");
    assert_refused("[1, [1, 3], [1, 3], [2, 6]]", "must rise");
    assert_refused("[1, 2, 6]", "latent grid, 2 x 6"); /* square scales of older configs */
    assert_refused("[1, [6, 2]]", "latent grid, 2 x 6");
    assert_refused("[1, [0, 6], [2, 6]]", "scale 2");
    assert_refused("[1, [1, 2, 3], [2, 6]]", "scale 2");
    assert_refused("[1, \"2x3\", [2, 6]]", "scale 2");
    assert_refused("[1, [2, 4096]]", "scale 2");
    assert_refused("[]", "0 scales");
}

TEST(saved_and_loaded_is_the_same)
{
    char folder[64];
    struct vision vision, loaded;
    make_vision_folder(folder);
    open_toy(&vision, true, DTYPE_F32);
    device_put(&device, vision.at.amplitude->master + 1, &(float){0.25f}, sizeof(float));
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

/* ---- centres ---- */

static void open_centred(struct vision *vision, bool centred)
{
    struct vision_config config = toy_config(true);
    config.centred = centred;
    vision_open(vision, &device, &config, DTYPE_F32, true);
    vision_init(vision, 3);
    disturb(vision, 0.4);
}

/* Means over the rows of the projection, and of the latent [d]. */
static void means_of(double *projected, double *centred, struct vision *vision, const u8 *pixels,
                     struct vision_size size)
{
    struct tape tape;
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&tape, false);
    struct tensor *features = vision_features(&tape, vision, vision_patches(&tape, vision, pixels, size), size);
    struct tensor *p = vision_project(&tape, vision, features),
                  *l = vision_latent(&tape, vision, features, size.frames > 1);
    i64 d = vision->config.bits, n = p->rows * d;
    float *before = to_host(&device, p->data, n * 4), *after = to_host(&device, l->data, n * 4);
    for (i64 c = 0; c < d; c++)
        projected[c] = centred[c] = 0;
    for (i64 i = 0; i < n; i++) {
        projected[i % d] += (double)before[i] / (double)p->rows;
        centred[i % d] += (double)after[i] / (double)p->rows;
    }
    memory_free(before);
    memory_free(after);
    tape_close(&tape);
}

/* One update, as after a step. */
static void move_centre(struct vision *vision, const u8 *pixels, struct vision_size size,
                        const struct vision_shape *shape, double keep)
{
    struct tape tape;
    const struct vision_loss_weights weights = {{1, 1, 0.25, 0.1}, 0.125};
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&tape, true);
    weights_begin_step(&vision->weights);
    double *sums = tape_alloc(&tape, VISION_LOSSES * (i64)sizeof *sums);
    const struct vision_means means = vision_loss(sums, &tape, vision, pixels, size, shape, &weights, NULL);
    vision_state_update(vision, shape, &means, 1, keep);
    tape_close(&tape);
}

/* Of clips alone where clips were seen; each update goes a share of the way. */
TEST(a_centre_is_the_running_mean_of_its_kind)
{
    enum { D = 5 };
    struct vision vision;
    struct vision_size size = {3, 5, 16, 16};
    double projected[D], centred[D], most = 0;
    open_centred(&vision, true);
    u8 *pixels = toy_pixels(3, 5, 16);
    const struct vision_shape *clips = &vision.config.shapes[1];
    means_of(projected, centred, &vision, pixels, size);
    for (i64 c = 0; c < D; c++)
        most = fmax(most, fabs(centred[c] - projected[c]));
    assert_true(most < 0.02); /* the rounding to bf16 */
    move_centre(&vision, pixels, size, clips, 0.75);
    float *centre = to_host(&device, vision.at.centre->value.data, 2 * D * 4);
    for (i64 c = 0; c < D; c++) {
        assert_true(fabs(projected[c]) > 0.05);
        assert_true(centre[c] == 0 && fabs((double)centre[D + c] - projected[c] / 4) < 0.01);
    }
    memory_free(centre);
    move_centre(&vision, pixels, size, clips, 0);
    means_of(projected, centred, &vision, pixels, size);
    for (i64 c = 0; c < D; c++)
        assert_true(fabs(centred[c]) < 0.01);
    memory_free(pixels);
    vision_close(&vision);
}

/* The decoder sees the code around the centre of its kind; the file keeps both centres. */
TEST(a_centre_is_added_again_and_saved)
{
    enum { D = 5, VALUES = 2 * 2 * 2 * D };
    char folder[64];
    struct vision centred, plain, loaded;
    float centres[2 * D], sum[VALUES], moved[VALUES];
    u8 out[3][5 * 768];
    open_centred(&centred, true);
    open_centred(&plain, false);
    for (i64 c = 0; c < 2 * D; c++)
        centres[c] = (float)(draw(7, (u32)c) - 0.5);
    weight_put(&centred.weights, centred.at.centre, 0, 2, centres);
    make_vision_folder(folder);
    assert_int_equal(vision_save(&centred, folder), 0);
    if (vision_load(&loaded, &device, folder, DTYPE_F32, false))
        fail_msg("%s", error_text());
    assert_true(loaded.config.centred && !plain.config.centred);
    for (i64 clips = 0; clips < 2; clips++) {
        i64 bytes = clips ? 5 * 768 : 768;
        for (i64 i = 0; i < VALUES; i++) {
            sum[i] = (float)(draw(8, (u32)i) - 0.5);
            moved[i] = sum[i] + centres[clips * D + i % D];
        }
        vision_decode(&centred, out[0], sum, 1, 1 + clips, 2, 2);
        vision_decode(&plain, out[1], moved, 1, 1 + clips, 2, 2);
        vision_decode(&loaded, out[2], sum, 1, 1 + clips, 2, 2);
        assert_memory_equal(out[0], out[1], (size_t)bytes);
        assert_memory_equal(out[0], out[2], (size_t)bytes);
        vision_decode(&plain, out[1], sum, 1, 1 + clips, 2, 2);
        assert_memory_not_equal(out[0], out[1], (size_t)bytes);
    }
    assert_int_equal(vision_save(&plain, folder), 0); /* as tokenizers without centres have been saved */
    struct buffer config = {0};
    char *path = path_join(folder, "config.json");
    assert_int_equal(file_read(&config, path), 0);
    assert_null(strstr(config.data, "centre"));
    buffer_release(&config);
    memory_free(path);
    vision_close(&centred);
    vision_close(&plain);
    vision_close(&loaded);
    directory_remove(folder);
}

TEST(shapes_that_do_not_fit_are_refused)
{
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

static int run(const char *name)
{
    return tests_run_as(name, NULL, NULL);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    return on_both_devices(&device, run);
}
