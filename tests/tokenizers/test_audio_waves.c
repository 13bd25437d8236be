/* The audio tokenizer whose decoder writes magnitudes and phases (decoder: istft). */
#include "core/json.h"
#include "data/media/media.h"
#include "tests/scratch.h"
#include "tokenizer_training/audio_step.h"

#include <math.h>
#include <string.h>

static const struct rng_key test_key = {6, RNG_TEST};
static const struct audio_config toy = {16, 4, 2, 8, AUDIO_ISTFT};
static const struct vocoder rounds = {2, 1};
static struct device device;

static int make(void **state)
{
    device_open_cpu(&device);
    log_set_level(LOG_QUIET);
    return make_directory(state);
}

static int clear(void **state)
{
    device_close(&device);
    return remove_directory(state);
}

/* A gliding chord. */
static float *chord(i64 samples)
{
    float *out = memory_alloc(samples * 4);
    for (i64 i = 0; i < samples; i++) {
        double t = (double)i;
        out[i] = (float)(0.2 * sin(0.05 * t + 1e-6 * t * t) + 0.1 * sin(0.31 * t) + 0.05 * sin(0.11 * t));
    }
    return out;
}

/* A tokenizer none of whose matrices is zero. */
static void open_filled(struct audio_tokenizer *audio, const struct audio_config *config)
{
    audio_open(audio, &device, config, DTYPE_F32, true);
    weights_init(&audio->weights, 3);
    for (i64 i = 0; i < audio->weights.count; i++) {
        struct weight *w = &audio->weights.list[i];
        i64 n = w->rows * w->columns;
        float scale = 0.7f / sqrtf((float)w->columns), *values = memory_alloc(n * 4);
        for (i64 j = 0; j < n; j++)
            values[j] = scale * (float)rng_normal(test_key, 20, (u32)i, (u32)j, 0);
        weight_put(&audio->weights, w, 0, w->rows, values);
        memory_free(values);
    }
}

static i32 *random_codes(i64 count)
{
    i32 *codes = memory_alloc(count * 4);
    for (i64 i = 0; i < count; i++)
        codes[i] = (i32)rng_below(test_key, 8, 40, (u32)i, 0, 0);
    return codes;
}

/* Spectra of a sound, of windows that begin at each hop, give the sound: all of it that four windows cover. */
TEST(true_spectra_give_the_sound_back)
{
    enum { T = 24, HOP = 160, N_FFT = 640, BINS = 321, N = T * HOP, PADDED = N + N_FFT };
    float *x = chord(N), *padded = memory_alloc(PADDED * 4), *spectra = memory_alloc((PADDED / HOP + 1) * 2 * BINS * 4);
    float *polar = memory_alloc(T * 2 * BINS * 4), back[N];
    struct tape tape;
    memcpy(padded + N_FFT / 2, x, N * 4); /* window j begins at j hops less N_FFT, of x */
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&tape, false);
    struct tensor *in = tape_tensor(&tape, DTYPE_F32, 1, PADDED);
    struct tensor *out = tape_tensor(&tape, DTYPE_F32, PADDED / HOP + 1, 2 * BINS);
    device_put(&device, in->data, padded, PADDED * 4);
    device.ops->stft(&device, tensor_matrix(out), tensor_matrix(in), N_FFT, HOP, false);
    device_get(&device, spectra, out->data, out->rows * out->columns * 4);
    for (i64 t = 0; t < T; t++)
        for (i64 k = 0; k < BINS; k++) {
            const float *s = spectra + (t + N_FFT / HOP) * 2 * BINS + k;
            polar[t * 2 * BINS + k] = (float)log(hypot((double)s[0], (double)s[BINS]) + 1e-9);
            polar[(t * 2 + 1) * BINS + k] =
                (float)(atan2((double)s[BINS], (double)s[0]) - acos(-1) / 2 * (double)(t * k % 4));
        }
    struct tensor *p = tape_tensor(&tape, DTYPE_F32, T, 2 * BINS);
    device_put(&device, p->data, polar, T * 2 * BINS * 4);
    device_get(&device, back, op_stft_inverse(&tape, op_polar(&tape, p), 1, N_FFT, HOP)->data, sizeof back);
    for (i64 i = N_FFT - HOP; i < N; i++)
        assert_float_equal(back[i], x[i], 1e-4);
    assert_true(fabsf(back[0]) < 1e-3f); /* and it fades in */
    tape_close(&tape);
    memory_free(x);
    memory_free(padded);
    memory_free(spectra);
    memory_free(polar);
}

/* Samples of a sound in several pieces are those of one that fits a pass: a sample depends on 6 frames before and
 * after its own, and on the windows of the frame before. */
TEST(waves_meet_without_a_seam)
{
    enum { LONG = 1100, SHORT = 250, EDGE = 7 };
    struct audio_tokenizer audio;
    i32 *codes = random_codes(LONG * 2);
    float *whole = memory_alloc(LONG * 1280 * 4), *part = memory_alloc(SHORT * 1280 * 4);
    open_filled(&audio, &toy);
    audio_decode(&audio, whole, codes, LONG, &rounds);
    audio_decode(&audio, part, codes, SHORT, &rounds);
    assert_memory_equal(whole, part, (SHORT - EDGE) * 1280 * sizeof(float));
    for (i64 first = LONG - SHORT; first > 0; first -= 137) {
        audio_decode(&audio, part, codes + first * 2, SHORT, &rounds);
        assert_memory_equal(whole + (first + EDGE) * 1280, part + EDGE * 1280,
                            (SHORT - 2 * EDGE) * 1280 * sizeof(float));
    }
    memory_free(codes);
    memory_free(whole);
    memory_free(part);
    audio_close(&audio);
}

static void read_text(struct buffer *out, const char *name)
{
    *out = (struct buffer){0};
    succeed(file_read(out, path_of(name)));
}

/* A directory says which decoder it has; one that does not say has Griffin-Lim. */
TEST(a_directory_says_its_decoder)
{
    struct audio_tokenizer audio, loaded;
    struct audio_config old = toy, config;
    struct buffer text;
    enum dtype dtype;
    float samples[8 * 1280], other[8 * 1280];
    i32 *codes = random_codes(16);
    open_filled(&audio, &toy);
    succeed(audio_save(&audio, directory));
    succeed(audio_load(&loaded, &device, directory));
    audio_decode(&audio, samples, codes, 8, &rounds);
    audio_decode(&loaded, other, codes, 8, &rounds);
    assert_memory_equal(samples, other, sizeof samples);
    audio_decode_levels(&audio, other, codes, 8, 1, &rounds);
    assert_memory_not_equal(samples, other, sizeof samples);
    audio_close(&loaded);
    audio_close(&audio);
    read_text(&text, "config.json");
    char *at = strstr(text.data, "\"istft\"");
    assert_non_null(at);
    memcpy(at, "\"xstft\"", 7);
    succeed(file_replace(path_of("config.json"), text.data, text.length));
    assert_int_equal(audio_config_load(&config, &dtype, directory), -1);
    assert_non_null(strstr(error_text(), "decoder \"xstft\": expected griffin-lim or istft"));
    buffer_release(&text);
    old.decoder = AUDIO_GRIFFIN_LIM;
    open_filled(&audio, &old);
    succeed(audio_save(&audio, directory));
    audio_close(&audio);
    read_text(&text, "config.json");
    assert_null(strstr(text.data, "decoder"));
    succeed(audio_config_load(&config, &dtype, directory));
    assert_int_equal(config.decoder, AUDIO_GRIFFIN_LIM);
    buffer_release(&text);
    memory_free(codes);
}

/* ---- training ---- */

struct course {
    struct audio_settings settings;
    struct audio_media media;
    struct audio_trainer trainer;
};

/* A tokenizer of one chord. */
static void open_course(struct course *c, const struct setting_override *more, i64 count)
{
    enum { SAMPLES = 16 * 1280 };
    struct setting_override all[24] = {{"data", "./none"}, {"width", "64"},          {"latent", "16"},
                                       {"codes", "16"},    {"levels", "2"},          {"batch", "2"},
                                       {"augment", "0"},   {"steps", "200"},         {"crop_s", "0.48"},
                                       {"seed", "1"},      {"optimizer.lr", "4e-3"}, {"decoder", "istft"}};
    struct sound sound = {SAMPLES, AUDIO_RATE_HZ, chord(SAMPLES)};
    static const char line[] = "{\"audio\":\"0.wav\",\"text\":\"one\"}\n";
    all[9] = (struct setting_override){"validation", "0"};
    if (count)
        memcpy(all + 12, more, (size_t)count * sizeof *more);
    *c = (struct course){0};
    succeed(settings_read(&c->settings, audio_stage_table, NULL, NULL, all, 12 + count));
    succeed(sound_write_wav(path_of("0.wav"), &sound));
    succeed(file_replace(path_of("captions.jsonl"), line, sizeof line - 1));
    sound_release(&sound);
    succeed(
        audio_media_load(&c->media, &(struct media_request){.data = directory}, &(struct audio_media_request){0, 100}));
    c->trainer = (struct audio_trainer){.settings = &c->settings, .media = &c->media, .seed = 1};
    audio_trainer_open(&c->trainer, &device, DTYPE_F32);
    weights_init(&c->trainer.audio.weights, 1);
}

static void close_course(struct course *c)
{
    audio_trainer_close(&c->trainer);
    audio_media_release(&c->media);
    settings_release(&c->settings, audio_stage_table);
}

TEST(a_sound_is_learnt_through_its_samples)
{
    struct course c;
    struct audio_result result, first = {0};
    open_course(&c, NULL, 0);
    for (i64 step = 0; step < c.settings.steps; step++) {
        succeed(audio_step(&result, &c.trainer, step));
        first = step ? first : result;
    }
    assert_true(result.losses[AUDIO_DISTANCE] < 0.25);
    assert_true(result.losses[AUDIO_CONVERGENCE] < 0.8 * first.losses[AUDIO_CONVERGENCE]);
    i64 frames;
    struct mel_distance distance;
    struct spectral_sum sum = {0};
    float *sound = audio_clip_samples(&c.media.clips[0], &frames), *samples = memory_alloc(frames * 1280 * 4);
    i32 codes[16 * 2];
    audio_encode(&c.trainer.audio, &(struct audio_item){sound, frames * 1280, codes}, 1);
    audio_decode(&c.trainer.audio, samples, codes, frames, &rounds);
    mel_distance_open(&distance, &device, AUDIO_RATE_HZ);
    mel_distance_add(&distance, &sum, sound, samples, frames * 1280);
    assert_true(spectral_mean(&sum) < 0.65);
    mel_distance_close(&distance);
    memory_free(sound);
    memory_free(samples);
    close_course(&c);
}

/* The parts with their weights are the loss; another weight changes no part. */
TEST(a_loss_of_samples_is_the_sum_of_its_parts)
{
    static const struct setting_override weights[] = {
        {"log_magnitude", "0.5"}, {"convergence", "3"}, {"unquantised_share", "0"}, {"optimizer.lr", "0"}};
    static const struct setting_override none[] = {
        {"log_magnitude", "0"}, {"convergence", "0"}, {"unquantised_share", "0"}, {"optimizer.lr", "0"}};
    struct course c, other;
    struct audio_result with, without;
    open_course(&c, weights, COUNT_OF(weights));
    open_course(&other, none, COUNT_OF(none));
    succeed(audio_step(&with, &c.trainer, 0));
    succeed(audio_step(&without, &other.trainer, 0));
    const double *l = with.losses;
    assert_float_equal(with.loss,
                       2 * l[AUDIO_DISTANCE] + 0.25 * 2 * l[AUDIO_COMMITMENT] + 0.5 * l[AUDIO_LOG_MAGNITUDE] +
                           3 * l[AUDIO_CONVERGENCE],
                       1e-6);
    assert_float_equal(without.loss, 2 * l[AUDIO_DISTANCE] + 0.25 * 2 * l[AUDIO_COMMITMENT], 1e-6);
    assert_true(l[AUDIO_LOG_MAGNITUDE] > 0 && l[AUDIO_CONVERGENCE] > 0);
    assert_true(with.optimizer.grad_norm > without.optimizer.grad_norm);
    close_course(&c);
    close_course(&other);
}

int main(void)
{
    return tests_run(make, clear);
}
