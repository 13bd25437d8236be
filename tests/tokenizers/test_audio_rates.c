/* Audio tokenizers of 24 kHz. */
#include "data/media/media.h"
#include "tests/scratch.h"
#include "tokenizer_training/audio_step.h"

#include <math.h>
#include <string.h>

enum { RATE = 24000, FRAME = 1920, FRAMES = 12 };
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

static struct sound tone(i64 rate_hz, double hz, i64 samples)
{
    struct sound sound;
    sound_init(&sound, samples, rate_hz);
    for (i64 i = 0; i < samples; i++)
        sound.values[i] = (float)(0.3 * sin(2 * acos(-1) * hz * (double)i / (double)rate_hz));
    return sound;
}

/* A tone of 10 kHz is above all bands at 16 kHz, and in one at 24 kHz. Frames are 80 ms at both. */
TEST(bands_reach_half_of_the_rate)
{
    struct mel_distance distance;
    struct sound high = tone(RATE, 10000, RATE), low = tone(RATE, 3000, RATE);
    i64 spectra, most = 0;
    mel_distance_open(&distance, &device, RATE);
    assert_int_equal(distance.mel.hop, 384);
    assert_int_equal(distance.mel.n_fft, 1536);
    const float *m = mel_distance_spectra(&distance, &spectra, high.values, high.samples) + spectra / 2 * AUDIO_BANDS;
    for (i64 b = 0; b < AUDIO_BANDS; b++)
        most = m[b] > m[most] ? b : most;
    double top = log10(1 + 12000 / 700.0), place = log10(1 + 10000 / 700.0) / top * (AUDIO_BANDS + 1);
    assert_in_range(most, (i64)place - 2, (i64)place);
    struct spectral_sum sum = {0};
    mel_distance_add(&distance, &sum, high.values, low.values, high.samples);
    assert_true(spectral_mean(&sum) > 0.1);
    mel_distance_close(&distance);
    sound_release(&high);
    sound_release(&low);
    assert_int_equal(audio_frames(RATE, FRAME + 1), 2);
    assert_int_equal(audio_frames(AUDIO_RATE_HZ, 1281), 2);
    assert_int_equal(audio_frames(0, 1280), 1);
}

/* Trains, saves, loads, encodes and decodes; recordings are read at the rate. */
static void check_decoder(const char *decoder)
{
    static const char line[] = "{\"audio\":\"0.wav\",\"text\":\"\"}\n";
    const struct setting_override all[] = {{"data", "./none"},   {"width", "32"},     {"latent", "8"},
                                           {"codes", "8"},       {"levels", "2"},     {"steps", "3"},
                                           {"batch", "2"},       {"crop_s", "0.16"},  {"augment", "0.5"},
                                           {"rate_hz", "24000"}, {"decoder", decoder}};
    struct sound sound = tone(AUDIO_RATE_HZ, 440, FRAMES * 1280 - 100);
    struct audio_settings settings = {0};
    struct audio_media media;
    struct audio_result result;
    struct audio_tokenizer loaded;
    float *samples = memory_alloc(FRAMES * FRAME * 4), *other = memory_alloc(FRAMES * FRAME * 4);
    i32 codes[FRAMES * 2];
    i64 frames;
    succeed(settings_read(&settings, audio_stage_table, NULL, NULL, all, COUNT_OF(all)));
    succeed(audio_check_settings(&settings));
    succeed(sound_write_wav(path_of("0.wav"), &sound));
    succeed(file_replace(path_of("captions.jsonl"), line, sizeof line - 1));
    succeed(audio_media_load(&media, &(struct media_request){.data = directory},
                             &(struct audio_media_request){0, 100, .rate_hz = settings.config.rate_hz}));
    assert_in_range(media.samples, FRAMES * FRAME - 160, FRAMES * FRAME - 140);
    struct audio_trainer t = {.settings = &settings, .media = &media, .seed = 1};
    audio_trainer_open(&t, &device, DTYPE_F32);
    assert_int_equal(t.crop_frames, 2);
    weights_init(&t.audio.weights, 1);
    for (i64 step = 0; step < settings.steps; step++)
        succeed(audio_step(&result, &t, step));
    assert_true(isfinite(result.loss));
    succeed(audio_save(&t.audio, directory));
    succeed(audio_load(&loaded, &device, directory));
    assert_int_equal(loaded.config.rate_hz, RATE);
    assert_int_equal(loaded.mel.n_fft, 960);
    float *own = audio_clip_samples(&media.clips[0], &frames);
    assert_int_equal(frames, FRAMES);
    audio_encode(&loaded, &(struct audio_item){own, FRAMES * FRAME, codes}, 1);
    audio_decode(&loaded, samples, codes, FRAMES, &(struct vocoder){2, 1});
    audio_decode(&t.audio, other, codes, FRAMES, &(struct vocoder){2, 1});
    assert_memory_equal(samples, other, FRAMES * FRAME * 4);
    audio_close(&loaded);
    audio_trainer_close(&t);
    audio_media_release(&media);
    settings_release(&settings, audio_stage_table);
    sound_release(&sound);
    memory_free(samples);
    memory_free(other);
    memory_free(own);
}

TEST(a_tokenizer_of_24_khz_is_one)
{
    check_decoder("griffin-lim");
    check_decoder("istft");
}

TEST(other_rates_are_refused)
{
    const struct audio_config config = {16, 4, 2, 8, .rate_hz = 22050};
    struct audio_tokenizer audio;
    struct audio_config found;
    struct buffer text = {0};
    enum dtype dtype;
    assert_int_equal(audio_config_check(&config), -1);
    assert_non_null(strstr(error_text(), "rate_hz is 22050: expected 16000 or 24000"));
    audio_open(&audio, &device, &(struct audio_config){16, 4, 2, 8, .rate_hz = RATE}, DTYPE_F32, true);
    weights_init(&audio.weights, 1);
    succeed(audio_save(&audio, directory));
    audio_close(&audio);
    succeed(file_read(&text, path_of("config.json")));
    char *at = strstr(text.data, "1920");
    assert_non_null(at);
    memcpy(at, "1280", 4);
    succeed(file_replace(path_of("config.json"), text.data, text.length));
    assert_int_equal(audio_config_load(&found, &dtype, directory), -1);
    assert_non_null(strstr(error_text(), "at 24000 Hz with frames of 1280 samples; expected"));
    buffer_release(&text);
}

int main(void)
{
    return tests_run(make, clear);
}
