/* The audio tokenizer: transforms against PyTorch, front end and inverse, network, training. */
#include <signal.h>
#include "tokenizer_training/audio_step.h"
#include "core/safetensors.h"
#include "data/media/media.h"
#include "dist/dist.h"
#include "tests/device.h"
#include "tests/events_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct device device;
static const struct rng_key test_key = {5, RNG_TEST};

/* Synthesizes speech-like sound: gliding harmonics under 2 moving formants, breath noise, a pause.
 * Loud parts have an RMS of about 0.08. memory_free. */
static float *make_sound(i64 samples, u32 voice)
{
    enum { HARMONICS = 24, HELD = 16 }; /* strengths are updated every HELD samples */
    float *out = memory_alloc(max_i64(samples, 1) * 4);
    double phase = 0, base = 90 + 110 * rng_uniform(test_key, voice, 0, 0, 0), strength[HARMONICS];
    for (i64 i = 0; i < samples; i++) {
        double t = (double)i / AUDIO_RATE_HZ, sum = 0, f0 = base * (1 + 0.2 * sin(2.1 * t + voice));
        double first = 500 + 250 * sin(5 * t + 2 * voice), second = 1700 + 600 * sin(3.3 * t + voice);
        double loud = fmod(t + 0.13 * voice, 0.7) < 0.55 ? 1 : 0, breath = fmod(t, 0.9) < 0.12 ? 0.05 : 0.003;
        for (int h = 1; h < HARMONICS && i % HELD == 0; h++) {
            double a = (h * f0 - first) / 220, b = (h * f0 - second) / 300;
            strength[h] = exp(-a * a) + 0.5 * exp(-b * b) + 0.02;
        }
        phase += 6.283185307 * f0 / AUDIO_RATE_HZ;
        double twice = 2 * cos(phase), sine = sin(phase), before = 0; /* sin(h phase) from the previous 2 values */
        for (int h = 1; h < HARMONICS; h++) {
            double next = twice * sine - before;
            sum += strength[h] * sine;
            before = sine;
            sine = next;
        }
        out[i] = (float)(loud * (0.07 * sum + breath * rng_normal(test_key, voice, (u32)i, 1, 0)));
    }
    return out;
}

/* ---- the transform ---- */

static float *golden(i64 *count, const struct safetensors *set, int item, const char *what)
{
    char name[32];
    snprintf(name, sizeof name, "%d.%s", item, what);
    const struct tensor_view *view = safetensors_find(set, name);
    assert_non_null(view);
    *count = tensor_view_elements(view);
    float *values = memory_alloc(*count * 4);
    assert_int_equal(tensor_view_to_f32(values, view), 0);
    return values;
}

static void check_stft(const struct safetensors *set, int item, i64 n_fft, i64 hop)
{
    i64 n, ny, bins = n_fft / 2 + 1;
    float *x = golden(&n, set, item, "x"), *y = golden(&ny, set, item, "y"), *dy = golden(&ny, set, item, "dy");
    float *dx = golden(&n, set, item, "dx"), *plain = golden(&ny, set, item, "abs");
    i64 frames = n / hop + 1;
    float *xd = to_device(&device, x, n * 4), *sd = device_alloc(&device, 2 * ny * 4);
    float *magnitude_d = device_alloc(&device, ny * 4), *back_d = device_alloc(&device, n * 4);
    struct matrix xm = matrix_of(xd, DTYPE_F32, 1, n), sm = matrix_of(sd, DTYPE_F32, frames, 2 * bins);
    assert_int_equal(ny, frames * bins);
    device.ops->stft(&device, sm, xm, n_fft, hop, false);
    device.ops->stft(&device, matrix_of(magnitude_d, DTYPE_F32, frames, bins), xm, n_fft, hop, true);
    device.ops->stft_inverse(&device, matrix_of(back_d, DTYPE_F32, 1, n), sm, n_fft, hop);
    float *s = to_host(&device, sd, 2 * ny * 4), *magnitude = to_host(&device, magnitude_d, ny * 4);
    float *back = to_host(&device, back_d, n * 4);
    for (i64 i = n_fft / 2; i < n - n_fft / 2; i++)
        assert_true(fabsf(back[i] - x[i]) < 1e-5f);
    for (i64 f = 0; f < frames; f++)
        for (i64 k = 0; k < bins; k++) {
            float *re = &s[f * 2 * bins + k], *im = re + bins;
            float value = sqrtf(*re * *re + *im * *im + 1e-8f), d = dy[k * frames + f] / value;
            assert_true(fabsf(value - y[k * frames + f]) < 1e-6f * (float)n_fft);
            assert_true(fabsf(magnitude[f * bins + k] - plain[k * frames + f]) < 1e-6f * (float)n_fft);
            *re *= d;
            *im *= d;
        }
    device_put(&device, sd, s, 2 * ny * 4);
    device.ops->stft_backward(&device, matrix_of(back_d, DTYPE_F32, 1, n), sm, n_fft, hop);
    device_get(&device, back, back_d, n * 4);
    double worst = 0;
    for (i64 i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)back[i] - (double)dx[i]));
    assert_true(worst < 2e-3); /* values reach about 10; 1/y is ill-conditioned for small y */
    void *blocks[] = {x, y, dy, dx, plain, s, magnitude, back};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
    device_free(&device, xd, n * 4);
    device_free(&device, sd, 2 * ny * 4);
    device_free(&device, magnitude_d, ny * 4);
    device_free(&device, back_d, n * 4);
}

TEST(stft_is_torchs)
{
    struct safetensors set;
    assert_int_equal(safetensors_open(&set, GOLDEN "/ops/stft.safetensors"), 0);
    for (int item = 0; item < set.count / 7; item++) {
        i64 two;
        float *shape = golden(&two, &set, item, "n_fft_hop");
        check_stft(&set, item, (i64)shape[0], (i64)shape[1]);
        memory_free(shape);
    }
    safetensors_close(&set);
}

/* ---- spectra and back ---- */

/* Between the first and the last peak, neighbouring triangles sum to 1 at every bin. */
TEST(mel_bands_cover_every_bin_once)
{
    struct mel mel;
    mel_init(&mel, &device, AUDIO_RATE_HZ, 640, 160, 80);
    float *matrix = to_host(&device, mel.matrix, 80 * mel.bins * 4);
    float *inverse = to_host(&device, mel.inverse, 80 * mel.bins * 4);
    for (i64 k = 2; k < 310; k++) {
        double sum = 0;
        for (i64 b = 0; b < 80; b++)
            sum += matrix[b * mel.bins + k];
        assert_true(fabs(sum - 1) < 1e-5);
    }
    for (i64 b = 0; b < 80; b++) {
        double sum = 0;
        for (i64 k = 0; k < mel.bins; k++) {
            float value = matrix[b * mel.bins + k];
            assert_true(value >= 0 && value <= 1);
            sum += value;
        }
        assert_true(sum > 0.1);
    }
    for (i64 i = 0; i < 80; i++) /* M M+ = 1 */
        for (i64 j = 0; j < 80; j++) {
            double sum = 0;
            for (i64 k = 0; k < mel.bins; k++)
                sum += (double)matrix[i * mel.bins + k] * (double)inverse[k * 80 + j];
            assert_true(fabs(sum - (i == j)) < 1e-3);
        }
    memory_free(matrix);
    memory_free(inverse);
    mel_release(&mel);
}

static double vocoded_distance(const float *sound, i64 n, i64 rounds, u64 seed)
{
    struct mel mel;
    struct arena arena;
    struct mel_distance distance;
    struct spectral_sum sum = {0};
    mel_init(&mel, &device, AUDIO_RATE_HZ, 640, 160, 80);
    device_arena_open(&device, &arena, (i64)1 << 30);
    mel_distance_open(&distance, &device, AUDIO_RATE_HZ);
    float *magnitude = arena_alloc(&arena, n / 160 * mel.bins * 4), *x = arena_alloc(&arena, n * 4);
    mel_invert(magnitude, &mel, mel_spectra_of(&mel, sound, n, n, &arena), n / 160, &arena);
    vocode(x, &mel, magnitude, n, &(struct vocoder){rounds, seed}, &arena);
    float *out = to_host(&device, x, n * 4);
    mel_distance_add(&distance, &sum, sound, out, n);
    memory_free(out);
    mel_distance_close(&distance);
    device_arena_close(&device, &arena);
    mel_release(&mel);
    return spectral_mean(&sum);
}

TEST(griffin_lim_brings_true_spectra_back)
{
    i64 n = 16 * AUDIO_FRAME_SAMPLES;
    float *sound = make_sound(n, 1);
    double none = vocoded_distance(sound, n, 0, 1), few = vocoded_distance(sound, n, 32, 1);
    assert_true(few < 0.32 && few < 0.8 * none);
    assert_true(vocoded_distance(sound, n, 32, 1) == few);
    memory_free(sound);
}

/* Rounds that a signal ends: as if none had been asked for. */
TEST(a_vocoder_may_stop)
{
    i64 n = 4 * AUDIO_FRAME_SAMPLES;
    struct mel mel;
    struct arena arena;
    float *sound = make_sound(n, 1), *out[3];
    const struct vocoder ways[3] = {{0, 1}, {8, 1, true}, {8, 1}};
    signals_catch();
    raise(SIGINT);
    mel_init(&mel, &device, AUDIO_RATE_HZ, 640, 160, 80);
    device_arena_open(&device, &arena, (i64)1 << 30);
    float *magnitude = arena_alloc(&arena, n / 160 * mel.bins * 4), *x = arena_alloc(&arena, n * 4);
    mel_invert(magnitude, &mel, mel_spectra_of(&mel, sound, n, n, &arena), n / 160, &arena);
    for (int i = 0; i < 3; i++) {
        vocode(x, &mel, magnitude, n, &ways[i], &arena);
        out[i] = to_host(&device, x, n * 4);
    }
    assert_true(interrupted_forget());
    signal(SIGINT, SIG_DFL);
    assert_memory_equal(out[0], out[1], n * 4);
    assert_memory_not_equal(out[0], out[2], n * 4);
    for (int i = 0; i < 3; i++)
        memory_free(out[i]);
    device_arena_close(&device, &arena);
    mel_release(&mel);
    memory_free(sound);
}

/* Half of the original is silent; at half the amplitude the
 * distance is log 2 in every audible band. */
TEST(silence_of_the_original_does_not_count)
{
    enum { HOP = 256, WINDOW = 1024, N = 128 * HOP };
    struct mel_distance distance;
    struct spectral_sum sum = {0}, nothing = {0};
    float *sound = memory_alloc(N * 4), *other = memory_alloc(N * 4);
    for (i64 i = 0; i < N; i++) {
        sound[i] = i < N / 2 ? (float)(0.3 * rng_normal(test_key, 9, (u32)i, 0, 0)) : 0;
        other[i] = sound[i] / 2;
    }
    mel_distance_open(&distance, &device, AUDIO_RATE_HZ);
    mel_distance_add(&distance, &sum, sound, other, N);
    mel_distance_add(&distance, &nothing, sound + N / 2, other, N / 2);
    mel_distance_close(&distance);
    assert_in_range(sum.spectra, N / 2 / HOP, (N / 2 + WINDOW) / HOP);
    assert_true(fabs(spectral_mean(&sum) - log(2)) < 0.05);
    assert_true(nothing.spectra == 0 && spectral_mean(&nothing) == 0);
    memory_free(sound);
    memory_free(other);
}

TEST(a_long_sound_has_the_spectra_of_its_parts)
{
    i64 n = 4500 * 160, part = 1000 * 160, from = 3900;
    struct mel mel;
    struct arena arena;
    mel_init(&mel, &device, AUDIO_RATE_HZ, 640, 160, 80);
    device_arena_open(&device, &arena, (i64)1 << 32);
    float *x = make_sound(n, 2);
    for (i64 at = 0; at < n; at++)
        x[at] += 0.01f * (float)rng_uniform(test_key, (u32)at, 7, 0, 0);
    float *m = to_host(&device, mel_spectra_of(&mel, x, n, n, &arena), n / 160 * 80 * 4);
    float *other =
        to_host(&device, mel_spectra_of(&mel, x + from * 160 - part / 2, part, part, &arena), part / 160 * 80 * 4);
    for (i64 f = 10; f < 990; f++)
        for (i64 b = 0; b < 80; b++)
            assert_true(fabsf(m[(from - 500 + f) * 80 + b] - other[f * 80 + b]) < 1e-4f);
    memory_free(x);
    memory_free(m);
    memory_free(other);
    device_arena_close(&device, &arena);
    mel_release(&mel);
}

/* The longest crop that the setting crop_s allows: several signals at once. */
TEST(crops_may_be_as_long_as_their_setting_allows)
{
    i64 n = MEL_SPECTRA_TOGETHER * 160, bytes = n / 160 * 80 * 4;
    struct mel mel;
    struct arena arena;
    mel_init(&mel, &device, AUDIO_RATE_HZ, 640, 160, 80);
    device_arena_open(&device, &arena, (i64)1 << 32);
    float *x = make_sound(n, 2), *two = arena_alloc(&arena, 2 * n * 4), *m = arena_alloc(&arena, 2 * bytes);
    device_put(&device, two, x, n * 4);
    device_put(&device, two + n, x, n * 4);
    mel_spectra(m, &mel, matrix_of(two, DTYPE_F32, 2, n), NULL, &arena);
    float *both = to_host(&device, m, 2 * bytes), *one = to_host(&device, mel_spectra_of(&mel, x, n, n, &arena), bytes);
    assert_memory_equal(both, one, (size_t)bytes);
    assert_memory_equal(both + bytes / 4, one, (size_t)bytes);
    memory_free(x);
    memory_free(both);
    memory_free(one);
    device_arena_close(&device, &arena);
    mel_release(&mel);
}

/* ---- the network ---- */

static const struct audio_config toy = {16, 4, 2, 8};

/* Fills all weights: matrices initialized to zero would hide the layers behind them. */
static void fill_weights(struct audio_tokenizer *audio)
{
    weights_init(&audio->weights, 3);
    for (i64 i = 0; i < audio->weights.count; i++) {
        struct weight *w = &audio->weights.list[i];
        i64 n = w->rows * w->columns;
        float scale = w == audio->w.codebooks ? 0.7f : 0.7f / sqrtf((float)w->columns), *values = memory_alloc(n * 4);
        for (i64 j = 0; j < n; j++)
            values[j] = scale * (float)rng_normal(test_key, 20, (u32)i, (u32)j, 0);
        weight_put(&audio->weights, w, 0, w->rows, values);
        memory_free(values);
    }
}

struct toy_problem {
    struct audio_tokenizer audio;
    struct audio_layout layout;
    struct tape tape;
    float *in, *target, *coefficient; /* device memory */
};
enum { FRAMES = 5, ROWS = 4 * FRAMES, VALUES = ROWS * 160 };

static double toy_loss(struct toy_problem *p, bool recording)
{
    float values[ROWS];
    double sum = 0;
    tape_clear(&p->tape, recording);
    struct tensor *x = op_borrow(&p->tape, p->in, DTYPE_F32, ROWS, 160),
                  *y = op_borrow(&p->tape, p->target, DTYPE_F32, ROWS, 160);
    struct tensor *z = audio_encoder(&p->audio, &p->tape, x, &p->layout);
    struct tensor *out = audio_decoder(&p->audio, &p->tape, z, &p->layout);
    struct loss loss = op_distance(&p->tape, out, y, DISTANCE_L2, p->coefficient);
    device_get(&device, values, loss.value, sizeof values);
    for (i64 i = 0; i < ROWS; i++)
        sum += (double)values[i] / ROWS;
    return sum;
}

/* Checks the gradient of a whole matrix along one random direction. */
static void check_slope(struct toy_problem *p, struct weight *w, u32 index)
{
    i64 n = w->rows * w->columns;
    float *direction = memory_alloc(n * 4), *moved = memory_alloc(n * 4), h = 3e-3f;
    float *kept = weight_values(&p->audio.weights, w), *gradient = to_host(&device, w->value.grad, n * 4);
    double slope = 0, losses[2];
    for (i64 j = 0; j < n; j++) {
        direction[j] = (float)rng_normal(test_key, 23, index, (u32)j, 0) / sqrtf((float)n);
        slope += (double)direction[j] * (double)gradient[j];
    }
    for (int side = 0; side < 2; side++) {
        for (i64 j = 0; j < n; j++)
            moved[j] = kept[j] + (side ? h : -h) * direction[j];
        weight_put(&p->audio.weights, w, 0, w->rows, moved);
        losses[side] = toy_loss(p, false);
    }
    weight_put(&p->audio.weights, w, 0, w->rows, kept);
    double measured = (losses[1] - losses[0]) / (2 * (double)h);
    assert_true(fabs(measured - slope) < 2e-4 + 0.02 * fabs(slope));
    void *blocks[] = {direction, moved, kept, gradient};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
}

static float *normals(u32 stream, i64 count)
{
    float *values = memory_alloc(count * 4);
    for (i64 i = 0; i < count; i++)
        values[i] = (float)rng_normal(test_key, stream, (u32)i, 0, 0);
    float *out = to_device(&device, values, count * 4);
    memory_free(values);
    return out;
}

TEST(gradients_are_the_differences_they_should_be)
{
    struct toy_problem p = {
        .in = normals(21, VALUES), .target = normals(22, VALUES), .coefficient = device_alloc(&device, ROWS * 4)};
    audio_open(&p.audio, &device, &toy, DTYPE_F32, true);
    fill_weights(&p.audio);
    tape_open(&p.tape, &device, DTYPE_F32, (i64)1 << 30);
    audio_layout_init(&p.layout, &p.audio, FRAMES, (i64[]){3, 2}, 2);
    device.ops->fill(&device, p.coefficient, ROWS, 1.0f / ROWS);
    weights_begin_step(&p.audio.weights);
    toy_loss(&p, true);
    tape_backward(&p.tape);
    for (i64 i = 0; i < p.audio.weights.count; i++)
        if (p.audio.weights.list[i].spec.trained)
            check_slope(&p, &p.audio.weights.list[i], (u32)i);
    tape_close(&p.tape);
    audio_close(&p.audio);
    device_free(&device, p.in, VALUES * 4);
    device_free(&device, p.target, VALUES * 4);
    device_free(&device, p.coefficient, ROWS * 4);
}

/* ---- codebooks ---- */

static double quantisation_error(struct audio_tokenizer *audio, const float *z, i64 n)
{
    i64 d = audio->config.latent;
    float *x = to_device(&device, z, n * d * 4), *sum_d = device_alloc(&device, n * d * 4);
    i32 *codes = device_alloc(&device, n * audio->config.levels * 4);
    double error = 0;
    device.ops->quantize_vectors(&device, codes, sum_d, NULL, matrix_of(x, DTYPE_F32, n, d), audio->w.codebooks->master,
                                 audio->config.levels, audio->config.codes);
    float *sum = to_host(&device, sum_d, n * d * 4);
    for (i64 i = 0; i < n * d; i++)
        error += (double)(z[i] - sum[i]) * (double)(z[i] - sum[i]);
    memory_free(sum);
    device_free(&device, codes, n * audio->config.levels * 4);
    device_free(&device, x, n * d * 4);
    device_free(&device, sum_d, n * d * 4);
    return error / (double)n;
}

/* Returns the codewords after k-means. */
static float *started(struct audio_tokenizer *audio, const float *z, i64 n, i64 step)
{
    struct codebook_settings settings = {0.95, 5, 8, 9};
    i64 bytes = n * audio->config.latent * 4;
    float *vectors = to_device(&device, z, bytes);
    codebooks_start(audio, vectors, n, &settings, step);
    device_free(&device, vectors, bytes);
    return weight_values(&audio->weights, audio->w.codebooks);
}

TEST(k_means_finds_clusters_again_and_again)
{
    enum { N = 600, CENTRES = 16, BYTES = 2 * 8 * 4 * sizeof(float) };
    struct audio_tokenizer audio;
    float z[N * 4], *words[3];
    for (u32 i = 0; i < N; i++)
        for (u32 c = 0; c < 4; c++)
            z[i * 4 + c] =
                (float)(3 * rng_normal(test_key, 30, i % CENTRES, c, 0) + 0.1 * rng_normal(test_key, 31, i, c, 0));
    audio_open(&audio, &device, &toy, DTYPE_F32, true);
    words[0] = started(&audio, z, N, 7);
    assert_true(quantisation_error(&audio, z, N) < 0.1 * 4 * 9); /* the variance is 9 each */
    words[1] = started(&audio, z, N, 8);
    workers_start(1);
    words[2] = started(&audio, z, N, 7);
    workers_start(0);
    assert_memory_not_equal(words[0], words[1], BYTES);
    assert_memory_equal(words[0], words[2], BYTES);
    for (int i = 0; i < 3; i++)
        memory_free(words[i]);
    audio_close(&audio);
}

TEST(words_follow_their_vectors_and_unseen_ones_return)
{
    enum { N = 8 };
    static const i32 host_codes[N] = {0, 0, 0, 0, 1, 1, 1, 1};
    struct audio_config one = {16, 4, 1, 4};
    struct codebook_settings settings = {0.5, 2, 8, 9};
    struct audio_tokenizer audio;
    float values[N * 4];
    double revived[4];
    for (int i = 0; i < N * 4; i++)
        values[i] = (float)(i / 16 + 1) + (float)(i % 4);
    i32 *codes = to_device(&device, host_codes, sizeof host_codes);
    float *residual = to_device(&device, values, sizeof values);
    double *count = device_alloc(&device, sizeof *count);
    audio_open(&audio, &device, &one, DTYPE_F32, true);
    weights_init(&audio.weights, 1);
    for (i64 step = 0; step < 4; step++) {
        device.ops->zero(&device, count, sizeof *count);
        codebooks_update(&audio, count, &(struct audio_quantized){codes, residual}, N, &settings, step);
        device_get(&device, &revived[step], count, sizeof *count);
    }
    float *words = weight_values(&audio.weights, audio.w.codebooks);
    for (int c = 0; c < 4; c++) {
        assert_true(fabsf(words[c] - (float)(1 + c)) < 1e-5f);
        assert_true(fabsf(words[4 + c] - (float)(2 + c)) < 1e-5f);
    }
    assert_true(revived[0] == 0 && revived[1] == 0 && revived[2] == 2 && revived[3] == 0);
    for (int code = 2; code < 4; code++) /* residuals of the batch */
        assert_true(words[code * 4] == 1 || words[code * 4] == 2);
    memory_free(words);
    device_free(&device, codes, sizeof host_codes);
    device_free(&device, residual, sizeof values);
    device_free(&device, count, sizeof *count);
    audio_close(&audio);
}

/* Code 1 has one row in eight: above an eighth of an even use (two rows of eight), below three quarters. */
TEST(rare_words_return_if_asked_to)
{
    enum { N = 8 };
    static const i32 host_codes[N] = {0, 0, 0, 2, 2, 3, 3, 1};
    static const double least[] = {0, 0.125, 0.75};
    struct audio_config one = {16, 4, 1, 4};
    float values[N * 4];
    for (int i = 0; i < N * 4; i++)
        values[i] = (float)(i / 4 + 1);
    i32 *codes = to_device(&device, host_codes, sizeof host_codes);
    float *residual = to_device(&device, values, sizeof values);
    for (int k = 0; k < 3; k++) {
        struct codebook_settings settings = {0.5, 99, 8, 9, least[k]};
        struct audio_tokenizer audio;
        double revived, *count = device_alloc(&device, sizeof *count);
        audio_open(&audio, &device, &one, DTYPE_F32, true);
        weights_init(&audio.weights, 1);
        device.ops->fill(&device, audio.w.use->master, 4, 2);
        device.ops->zero(&device, count, sizeof *count);
        for (i64 step = 0; step < 2; step++) /* a use of 1.5, then 1.25 */
            codebooks_update(&audio, count, &(struct audio_quantized){codes, residual}, N, &settings, step);
        device_get(&device, &revived, count, sizeof *count);
        assert_true(revived == (k == 2));
        device_free(&device, count, sizeof *count);
        audio_close(&audio);
    }
    device_free(&device, codes, sizeof host_codes);
    device_free(&device, residual, sizeof values);
}

/* ---- encoding ---- */

enum { SOUNDS = 9 };
static const i64 lengths[SOUNDS] = {1, 1279, 1280, 1281, 20000, 15000, 300 * 1280 + 7, 33333, 262 * 1280};

static void encode_order(i32 *const *codes, struct audio_tokenizer *audio, float *const *sounds, const int *order,
                         i64 count)
{
    struct audio_item items[SOUNDS];
    for (i64 i = 0; i < count; i++)
        items[i] = (struct audio_item){sounds[order[i]], lengths[order[i]], codes[order[i]]};
    audio_encode(audio, items, count);
}

static void check_company(enum dtype dtype)
{
    static const int forward[SOUNDS] = {0, 1, 2, 3, 4, 5, 6, 7, 8}, backward[SOUNDS] = {8, 7, 6, 5, 4, 3, 2, 1, 0};
    struct audio_config config = {32, 8, 3, 32};
    struct audio_tokenizer audio;
    float *sounds[SOUNDS];
    i32 *alone[SOUNDS], *together[SOUNDS];
    audio_open(&audio, &device, &config, dtype, false);
    fill_weights(&audio);
    for (int i = 0; i < SOUNDS; i++) {
        i64 bytes = audio_frames(AUDIO_RATE_HZ, lengths[i]) * config.levels * 4;
        sounds[i] = make_sound(lengths[i], (u32)i);
        alone[i] = memory_alloc(bytes);
        together[i] = memory_alloc(bytes);
        encode_order(alone, &audio, sounds, &forward[i], 1);
    }
    for (int way = is_nightly() ? 0 : 2; way < 4; way++) {
        workers_start(way % 2 + 1);
        encode_order(together, &audio, sounds, way < 2 ? forward : backward, SOUNDS);
        for (int i = 0; i < SOUNDS; i++)
            assert_memory_equal(alone[i], together[i],
                                (size_t)(audio_frames(AUDIO_RATE_HZ, lengths[i]) * config.levels) * 4);
    }
    workers_start(0);
    i64 different = 0, frames = audio_frames(AUDIO_RATE_HZ, lengths[6]) * config.levels;
    for (i64 i = 0; i < frames; i++)
        different += alone[6][i] != alone[6][0];
    assert_true(different > frames / 4); /* otherwise the test proves nothing */
    for (int i = 0; i < SOUNDS; i++) {
        memory_free(sounds[i]);
        memory_free(alone[i]);
        memory_free(together[i]);
    }
    audio_close(&audio);
}

TEST(codes_depend_on_the_sound_alone)
{
    if (is_nightly() || !is_guarded(&device))
        check_company(DTYPE_F32);
    if (is_nightly() || is_guarded(&device))
        check_company(DTYPE_BF16);
}

/* A sound decoded in pieces matches one that fits a single
 * pass: the first frames of the same codes. */
TEST(pieces_meet_without_a_seam)
{
    enum { LONG = 300, SHORT = 256 };
    struct audio_tokenizer audio;
    i32 codes[LONG * 2];
    audio_open(&audio, &device, &toy, DTYPE_F32, false);
    fill_weights(&audio);
    for (u32 i = 0; i < LONG * 2; i++)
        codes[i] = (i32)rng_below(test_key, 8, 40, i, 0, 0);
    float *whole = memory_alloc(LONG * 640 * 4), *part = memory_alloc(SHORT * 640 * 4);
    audio_decode_spectra(&audio, whole, codes, LONG, 2);
    audio_decode_spectra(&audio, part, codes, SHORT, 2);
    assert_memory_equal(whole, part, (SHORT - 5) * 640 * sizeof(float));
    audio_decode_spectra(&audio, part, codes + (LONG - SHORT) * 2, SHORT, 2);
    assert_memory_equal(whole + (LONG - SHORT + 5) * 640, part + 5 * 640, (SHORT - 5) * 640 * sizeof(float));
    memory_free(whole);
    memory_free(part);
    audio_close(&audio);
}

static char *temporary_folder(void)
{
    char *path = string_format("/tmp/weft-test-audio-%d", (int)getpid());
    directory_remove(path);
    assert_int_equal(directory_make(path), 0);
    return path;
}

TEST(a_saved_tokenizer_is_the_same)
{
    struct audio_tokenizer audio, loaded;
    char *folder = temporary_folder(), *again = path_join(folder, "again");
    i64 n = 30000, frames = audio_frames(AUDIO_RATE_HZ, n);
    float *sound = make_sound(n, 3), *samples = memory_alloc(frames * 1280 * 4),
          *other = memory_alloc(frames * 1280 * 4);
    i32 codes[24 * 2], codes_loaded[24 * 2];
    struct vocoder vocoder = {4, 1};
    audio_open(&audio, &device, &toy, DTYPE_F32, true);
    fill_weights(&audio);
    assert_int_equal(audio_save(&audio, folder), 0);
    assert_int_equal(audio_load(&loaded, &device, folder), 0);
    audio_encode(&audio, &(struct audio_item){sound, n, codes}, 1);
    audio_encode(&loaded, &(struct audio_item){sound, n, codes_loaded}, 1);
    assert_memory_equal(codes, codes_loaded, (size_t)frames * 2 * 4);
    audio_decode(&audio, samples, codes, frames, &vocoder);
    audio_decode(&loaded, other, codes, frames, &vocoder);
    assert_memory_equal(samples, other, (size_t)frames * 1280 * 4);
    assert_int_equal(directory_make(again), 0);
    assert_int_equal(audio_save(&loaded, again), 0);
    struct buffer first = {0}, second = {0};
    char *a = path_join(folder, "weights.safetensors"), *b = path_join(again, "weights.safetensors");
    assert_int_equal(file_read(&first, a) | file_read(&second, b), 0);
    assert_true(first.length == second.length && memcmp(first.data, second.data, (size_t)first.length) == 0);
    audio_close(&audio);
    audio_close(&loaded);
    assert_int_equal(audio_load(&loaded, &device, "/nowhere"), -1);
    directory_remove(folder);
    void *blocks[] = {a, b, folder, again, sound, samples, other};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
    buffer_release(&first);
    buffer_release(&second);
}

/* ---- training ---- */

static void write_recordings(const char *folder, int count, i64 samples, bool with_garbage)
{
    struct buffer lines = {0};
    char *captions = path_join(folder, "captions.jsonl");
    for (int i = 0; i < count; i++) {
        char *path = string_format("%s/%d.wav", folder, i);
        struct sound sound = {samples, AUDIO_RATE_HZ, make_sound(samples, (u32)i)};
        assert_int_equal(sound_write_wav(path, &sound), 0);
        buffer_printf(&lines, "{\"audio\":\"%d.wav\",\"text\":\"one\",\"speaker\":\"%d\"}\n{\"image\":\"x\"}\n", i, i);
        sound_release(&sound);
        memory_free(path);
    }
    if (with_garbage)
        buffer_printf(&lines, "{\"audio\":\"captions.jsonl\"}\n");
    assert_int_equal(file_replace(captions, lines.data, lines.length), 0);
    buffer_release(&lines);
    memory_free(captions);
}

static void read_settings(struct audio_settings *out, const char *data, const struct setting_override *more, i64 count)
{
    struct setting_override all[16] = {
        {"data", data}, {"width", "32"}, {"latent", "16"}, {"codes", "16"}, {"levels", "2"}};
    memcpy(all + 5, more, (size_t)count * sizeof *more);
    memset(out, 0, sizeof *out);
    assert_int_equal(settings_read(out, audio_stage_table, NULL, NULL, all, 5 + count), 0);
}

TEST(training_learns_one_sound)
{
    on_one_device(&device, false);
    char *folder = temporary_folder();
    struct audio_settings settings;
    struct audio_media media;
    struct audio_trainer trainer;
    struct audio_result result;
    const struct setting_override more[] = {
        {"steps", "240"}, {"batch", "2"}, {"augment", "0"}, {"width", "64"}, {"optimizer.lr", "4e-3"}};
    write_recordings(folder, 1, 16 * 1280, false);
    read_settings(&settings, folder, more, COUNT_OF(more));
    assert_int_equal(
        audio_media_load(&media, &(struct media_request){.data = folder}, &(struct audio_media_request){0, 100}), 0);
    trainer = (struct audio_trainer){.settings = &settings, .media = &media, .seed = 1};
    audio_trainer_open(&trainer, &device, DTYPE_F32);
    weights_init(&trainer.audio.weights, 1);
    for (i64 step = 0; step < settings.steps; step++)
        assert_int_equal(audio_step(&result, &trainer, step), 0);
    assert_true(result.losses[AUDIO_DISTANCE] < 0.2);
    i64 frames;
    struct mel_distance distance;
    struct spectral_sum sum = {0};
    struct vocoder vocoder = {32, 1};
    float *sound = audio_clip_samples(&media.clips[0], &frames), *samples = memory_alloc(frames * 1280 * 4);
    i32 codes[16 * 2];
    audio_encode(&trainer.audio, &(struct audio_item){sound, frames * 1280, codes}, 1);
    audio_decode(&trainer.audio, samples, codes, frames, &vocoder);
    mel_distance_open(&distance, &device, AUDIO_RATE_HZ);
    mel_distance_add(&distance, &sum, sound, samples, frames * 1280);
    assert_true(spectral_mean(&sum) < 0.6);
    mel_distance_close(&distance);
    audio_trainer_close(&trainer);
    audio_media_release(&media);
    settings_release(&settings, audio_stage_table);
    directory_remove(folder);
    memory_free(sound);
    memory_free(samples);
    memory_free(folder);
}

static void get_codebooks(float *out[3], const struct audio_trainer *t)
{
    const struct weight *parts[] = {t->audio.w.codebooks, t->audio.w.use, t->audio.w.unseen};
    for (int i = 0; i < 3; i++) {
        i64 n = parts[i]->rows * parts[i]->columns;
        out[i] = memory_alloc(n * 4);
        device_get(&device, out[i], parts[i]->master, n * 4);
    }
}

/* A weight of the decoder that is not finite leaves the latents finite; the gradients are not. */
TEST(a_skipped_step_moves_no_codebook)
{
    on_one_device(&device, false);
    char *folder = temporary_folder();
    struct audio_settings settings;
    struct audio_media media;
    struct audio_result result;
    float *kept[4][3];
    const struct setting_override more[] = {
        {"steps", "8"}, {"batch", "2"}, {"unquantised_share", "0"}, {"codebook_decay", "0.75"}};
    write_recordings(folder, 1, 16 * 1280, false);
    read_settings(&settings, folder, more, COUNT_OF(more));
    assert_int_equal(
        audio_media_load(&media, &(struct media_request){.data = folder}, &(struct audio_media_request){0, 100}), 0);
    struct audio_trainer t = {.settings = &settings, .media = &media, .seed = 1};
    audio_trainer_open(&t, &device, DTYPE_F32);
    weights_init(&t.audio.weights, 1);
    for (i64 step = 0; step < 3; step++) {
        struct weight *last = t.audio.w.decoder.out;
        float broken = NAN;
        get_codebooks(kept[step], &t);
        if (step == 2)
            device_put(&device, last->value.data, &broken, 4);
        assert_int_equal(audio_step(&result, &t, step), 0);
        assert_int_equal(result.optimizer.skipped, step == 2);
    }
    get_codebooks(kept[3], &t);
    size_t words = (size_t)(settings.config.levels * settings.config.codes) * 4;
    for (int i = 0; i < 3; i++) {
        size_t bytes = i == 0 ? words * (size_t)settings.config.latent : words;
        assert_memory_not_equal(kept[1][i], kept[2][i], bytes);
        assert_memory_equal(kept[2][i], kept[3][i], bytes);
    }
    for (i64 i = 0; i < settings.config.levels * settings.config.codes; i++) {
        double seen = 4 * (kept[2][1][i] - 0.75 * kept[1][1][i]); /* vectors of step 1 that a word took */
        assert_true(fabs(seen - rint(seen)) < 1e-3 && seen > -1e-3);
    }
    for (int i = 0; i < 12; i++)
        memory_free(kept[i / 3][i % 3]);
    audio_trainer_close(&t);
    audio_media_release(&media);
    settings_release(&settings, audio_stage_table);
    directory_remove(folder);
    memory_free(folder);
}

static struct buffer stage_weights(const struct audio_settings *settings, const char *out)
{
    struct buffer weights = {0};
    struct stage stage = {.name = "aud",
                          .out = out,
                          .seed = 4,
                          .device = &device,
                          .dtype = DTYPE_F32,
                          .calibrated = true,
                          .ranks = parallel_alone()};
    char *path = path_join(out, "weights.safetensors");
    assert_int_equal(directory_make(out), 0);
    assert_int_equal(audio_stage(settings, &stage), 0);
    assert_int_equal(file_read(&weights, path), 0);
    memory_free(path);
    return weights;
}

/* Deletes the later checkpoint and everything after it, like a killed run. Recordings are read
 * again when drawn; 1 in 5 is unreadable. */
TEST(a_resumed_run_is_the_uninterrupted_one)
{
    char *folder = temporary_folder(), *out = path_join(folder, "out"), *whole = path_join(folder, "whole");
    char *data = path_join(folder, "data");
    char *last = path_join(out, "checkpoints/step-000012"), *report = path_join(out, "report.json");
    struct audio_settings settings;
    struct setting_override more[] = {{"steps", "12"},           {"batch", "3"},       {"augment", "0.5"},
                                      {"checkpoint_steps", "6"}, {"bad_share", "0.2"}, {"memory_mb", "0"},
                                      {"optimizer.warmup", "2"}};
    assert_int_equal(directory_make(data), 0);
    write_recordings(data, 4, 15000, true);
    read_settings(&settings, data, more, COUNT_OF(more));
    struct buffer first = stage_weights(&settings, whole);
    workers_start(1);
    struct buffer killed = stage_weights(&settings, out);
    workers_start(0);
    assert_int_equal(directory_remove(last), 0);
    unlink(report);
    struct buffer second = stage_weights(&settings, out);
    assert_true(file_exists(report) && file_is_directory(last));
    assert_true(first.length == second.length && memcmp(first.data, second.data, (size_t)first.length) == 0);
    assert_true(first.length == killed.length && memcmp(first.data, killed.data, (size_t)first.length) == 0);
    settings.bad_share = 0.1;
    struct stage stage = {.name = "aud", .out = out, .device = &device, .dtype = DTYPE_F32, .ranks = parallel_alone()};
    assert_int_equal(audio_stage(&settings, &stage), -1);
    assert_non_null(strstr(error_text(), "1 of 5 recordings"));
    settings_release(&settings, audio_stage_table);
    directory_remove(folder);
    struct buffer *texts[] = {&first, &killed, &second};
    void *blocks[] = {folder, out, whole, last, report, data};
    for (i64 i = 0; i < COUNT_OF(texts); i++)
        buffer_release(texts[i]);
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
}

/* Every recording in the report has its sounds and their pictures. */
TEST(held_out_recordings_are_kept_with_pictures)
{
    static const char *const keys[] = {"original", "original_picture", "reconstructed", "reconstructed_picture"};
    char *folder = temporary_folder(), *train = path_join(folder, "train"), *other = path_join(folder, "validation");
    char *out = path_join(folder, "out"), *report = path_join(out, "report.json");
    struct audio_settings settings;
    struct setting_override more[] = {
        {"steps", "2"}, {"batch", "2"}, {"vocoder_rounds", "2"}, {"optimizer.warmup", "1"}};
    assert_true(directory_make(train) == 0 && directory_make(other) == 0);
    write_recordings(train, 2, 9000, false);
    write_recordings(other, 3, 9000, false);
    read_settings(&settings, folder, more, COUNT_OF(more));
    struct buffer weights = stage_weights(&settings, out);
    struct json *j = json_load(report);
    const struct json *shown = json_get(j, "shown");
    assert_int_equal(json_count(shown), 3);
    for (i64 i = 0; i < json_count(shown); i++)
        for (i64 k = 0; k < COUNT_OF(keys); k++) {
            char *path = path_join(out, json_string(json_get(json_at(shown, i), keys[k]), "none"));
            assert_true(file_exists(path) && file_bytes(path) > 44);
            if (k % 2)
                assert_true(events_have_file(out, json_string(json_get(json_at(shown, i), keys[k]), "none")));
            memory_free(path);
        }
    json_free(j);
    settings_release(&settings, audio_stage_table);
    directory_remove(folder);
    buffer_release(&weights);
    void *blocks[] = {folder, train, other, out, report};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
}

/* sound.mp4 has a sound of 3 s and a picture. */
TEST(films_are_heard_if_asked_for)
{
    static const char *const films[] = {"false", "true"};
    char *folder = temporary_folder(), *train = path_join(folder, "train"), *other = path_join(folder, "validation");
    char *out = path_join(folder, "out"), *copies[] = {path_join(train, "a.mp4"), path_join(other, "b.mp4")};
    struct buffer film = {0};
    assert_true(directory_make(train) == 0 && directory_make(other) == 0 && directory_make(out) == 0);
    assert_int_equal(file_read(&film, SOURCE_TREE "/tests/media/films/sound.mp4"), 0);
    for (i64 i = 0; i < COUNT_OF(copies); i++)
        assert_int_equal(file_replace(copies[i], film.data, film.length), 0);
    for (int heard = 0; heard < 2; heard++) {
        const struct setting_override more[] = {{"steps", "2"},
                                                {"batch", "2"},
                                                {"vocoder_rounds", "2"},
                                                {"optimizer.warmup", "1"},
                                                {"films", films[heard]}};
        struct audio_settings settings;
        struct stage stage = {.name = "aud",
                              .out = out,
                              .seed = 4,
                              .device = &device,
                              .dtype = DTYPE_F32,
                              .calibrated = true,
                              .ranks = parallel_alone()};
        read_settings(&settings, folder, more, COUNT_OF(more));
        int status = audio_stage(&settings, &stage);
        if (heard ? status != 0 : status != -1 || !strstr(error_text(), "no recordings to train with"))
            fail_msg("films %s: %d, %s", films[heard], status, error_text());
        settings_release(&settings, audio_stage_table);
    }
    buffer_release(&film);
    directory_remove(folder);
    void *blocks[] = {folder, train, other, out, copies[0], copies[1]};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
}

static int run(const char *name)
{
    return tests_run_as(name, NULL, NULL);
}

int main(void)
{
    return on_both_devices(&device, run);
}
