/* The report of the audio tokenizer, recomputed independently: code usage, reconstruction error,
 * digit probe. */
#include <math.h>
#include "tokenizer_training/code_use.h"
#include "core/json.h"
#include "data/media/media.h"
#include "tests/scratch.h"

enum { CLIPS = 20, FRAMES = 4, SAMPLES = FRAMES * 1280, LEVELS = 2, CODES = 16, ROUNDS = 2, SEED = 1 };

static struct device device;
static struct audio_settings settings;
static struct audio_media media;
static struct audio_trainer trainer;
static struct json *report;
static i32 codes[CLIPS][FRAMES * LEVELS];

/* Writes every digit twice, each as its own continuous chord. */
static void write_clips(const char *folder)
{
    static const char *const digits[] = {"zero", "one", "two",   "three", "four",
                                         "five", "six", "seven", "eight", "nine"};
    struct buffer lines = {0};
    for (int i = 0; i < CLIPS; i++) {
        char *path = string_format("%s/%d.wav", folder, i);
        struct sound sound;
        sound_init(&sound, SAMPLES, AUDIO_RATE_HZ);
        for (i64 t = 0; t < SAMPLES; t++)
            sound.values[t] =
                0.3f * (float)(sin(0.05 * (1 + i % 10) * (double)t) + sin(0.31 * (double)t * (1 + i % 7)));
        succeed(sound_write_wav(path, &sound));
        buffer_printf(&lines, "{\"audio\":\"%d.wav\",\"text\":\"%s\"}\n", i, digits[i % 10]);
        sound_release(&sound);
        memory_free(path);
    }
    char *captions = path_join(folder, "captions.jsonl");
    succeed(file_replace(captions, lines.data, lines.length));
    memory_free(captions);
    buffer_release(&lines);
}

static float *samples_of(i64 clip)
{
    i64 frames;
    float *samples = audio_clip_samples(&media.clips[clip], &frames);
    assert_int_equal(frames, FRAMES);
    return samples;
}

static int setup(void **state)
{
    const struct setting_override all[] = {{"data", "./none"},      {"width", "32"},          {"latent", "16"},
                                           {"codes", "16"},         {"levels", "2"},          {"steps", "30"},
                                           {"vocoder_rounds", "2"}, {"batch", "4"},           {"crop_s", "0.2"},
                                           {"augment", "0"},        {"optimizer.warmup", "1"}};
    struct audio_result result;
    make_directory(state);
    log_set_level(LOG_QUIET);
    device_open_cpu(&device);
    write_clips(directory);
    succeed(settings_read(&settings, audio_stage_table, NULL, NULL, all, COUNT_OF(all)));
    succeed(
        audio_media_load(&media, &(struct media_request){.data = directory}, &(struct audio_media_request){0, 100}));
    assert_int_equal(media.count, CLIPS);
    trainer = (struct audio_trainer){.settings = &settings, .media = &media, .seed = SEED};
    audio_trainer_open(&trainer, &device, DTYPE_F32);
    weights_init(&trainer.audio.weights, 1);
    for (i64 step = 0; step < settings.steps; step++)
        succeed(audio_step(&result, &trainer, step));
    for (i64 i = 0; i < CLIPS; i++) {
        float *samples = samples_of(i);
        audio_encode(&trainer.audio, &(struct audio_item){samples, SAMPLES, codes[i]}, 1);
        memory_free(samples);
    }
    succeed(directory_make(path_of("out")));
    settings.level_dropout = 0.5; /* reported by number of levels */
    succeed(audio_report(&trainer, &media, path_of("out")));
    settings.level_dropout = 0;
    report = json_load(path_of("out/report.json"));
    assert_non_null(report);
    return 0;
}

static int teardown(void **state)
{
    json_free(report);
    audio_trainer_close(&trainer);
    audio_media_release(&media);
    settings_release(&settings, audio_stage_table);
    device_close(&device);
    return remove_directory(state);
}

/* 2 to the power of the entropy in bits, over all frames: no frame is silent. */
TEST(perplexity_is_of_the_codes_used)
{
    static const char *const kinds[] = {"training", "held_out"};
    for (i64 level = 0; level < LEVELS; level++) {
        double uses[CODES] = {0}, bits = 0, n = CLIPS * FRAMES;
        i64 dead = 0;
        for (i64 i = 0; i < CLIPS; i++)
            for (i64 f = 0; f < FRAMES; f++)
                uses[codes[i][f * LEVELS + level]]++;
        for (i64 c = 0; c < CODES; c++) {
            bits -= uses[c] > 0 ? uses[c] / n * log2(uses[c] / n) : 0;
            dead += uses[c] == 0;
        }
        assert_true(bits > 0.5); /* several codes are used */
        for (int k = 0; k < 2; k++) {
            const struct json *j = json_get(report, kinds[k]), *entry = json_at(json_get(j, "levels"), level);
            assert_int_equal(json_integer(json_get(j, "sounding_frames"), -1), CLIPS * FRAMES);
            assert_float_equal(json_number(json_get(entry, "perplexity"), -1), pow(2, bits), 1e-9);
            assert_int_equal(json_integer(json_get(entry, "dead"), -1), dead);
        }
    }
}

/* On the same recordings as above: those of the report, training and held out. */
TEST(codes_in_use_are_measured_during_training)
{
    static const char *const sets[] = {"training", "heldout"}, *const kinds[] = {"training", "held_out"};
    struct audio_use use;
    struct metrics *metrics = metrics_open(path_of("out"), 0);
    assert_non_null(metrics);
    struct audio_media other = media;
    other.count = CLIPS / 2;
    succeed(audio_use_open(&use, &trainer, &media));
    metrics_begin(metrics, 1);
    audio_use_measure(&use, metrics, &trainer.audio, "aud", 1);
    struct json *line = metrics_values(metrics);
    for (i64 level = 0; level < LEVELS; level++)
        for (int set = 0; set < 2; set++) {
            char *perplexity = string_format("use/codes/%s/%lld/perplexity", sets[set], (long long)level);
            char *dead = string_format("use/codes/%s/%lld/dead", sets[set], (long long)level);
            const struct json *entry = json_at(json_get(json_get(report, kinds[set]), "levels"), level);
            assert_float_equal(json_number(json_get(line, perplexity), -1),
                               json_number(json_get(entry, "perplexity"), -2), 1e-9);
            assert_float_equal(json_number(json_get(line, dead), -1), json_number(json_get(entry, "dead"), -2), 0);
            memory_free(perplexity);
            memory_free(dead);
        }
    json_free(line);
    audio_use_close(&use);
    succeed(audio_use_open(&use, &trainer, &other));
    metrics_begin(metrics, 2);
    audio_use_measure(&use, metrics, &trainer.audio, "aud", 2);
    line = metrics_values(metrics);
    double half = json_number(json_get(line, "use/codes/heldout/0/perplexity"), NAN);
    assert_true(half < json_number(json_get(line, "use/codes/training/0/perplexity"), NAN));
    json_free(line);
    audio_use_close(&use);
    metrics_close(metrics);
}

/* error: NULL, or the standard error of the mean over recordings, which all have the same length. */
static double distance_of_levels(i64 levels, double *error)
{
    double means[CLIPS], squares = 0;
    struct mel_distance distance;
    struct spectral_sum sum = {0};
    struct vocoder vocoder = {ROUNDS, SEED};
    float *m = memory_alloc(8 * FRAMES * AUDIO_BANDS * 4), *made = memory_alloc(SAMPLES * 4);
    mel_distance_open(&distance, &device, AUDIO_RATE_HZ);
    for (i64 i = 0; i < CLIPS; i++) {
        float *own = samples_of(i);
        audio_decode_spectra(&trainer.audio, m, codes[i], FRAMES, levels);
        audio_vocode(&trainer.audio, made, m, FRAMES, &vocoder);
        struct spectral_sum one = {0};
        mel_distance_add(&distance, &one, own, made, SAMPLES);
        mel_distance_add(&distance, &sum, own, made, SAMPLES);
        means[i] = spectral_mean(&one);
        memory_free(own);
    }
    mel_distance_close(&distance);
    memory_free(m);
    memory_free(made);
    for (i64 i = 0; i < CLIPS; i++)
        squares += (means[i] - spectral_mean(&sum)) * (means[i] - spectral_mean(&sum));
    if (error)
        *error = sqrt(squares / (CLIPS * (CLIPS - 1)));
    return spectral_mean(&sum);
}

TEST(distances_are_of_all_levels_and_of_the_first)
{
    const struct json *j = json_get(report, "held_out_distance");
    double error, all = distance_of_levels(LEVELS, &error), first = distance_of_levels(1, NULL);
    assert_true(fabs(all - first) > 1e-4);
    assert_int_equal(json_integer(json_get(j, "recordings"), -1), CLIPS);
    assert_float_equal(json_number(json_get(j, "log_mel"), -1), all, 1e-6);
    assert_float_equal(json_number(json_get(j, "log_mel_error"), -1), error, 1e-6);
    assert_float_equal(json_number(json_get(j, "log_mel_level_0"), -1), first, 1e-6);
    assert_true(json_number(json_get(j, "log_mel_mean_spectrum"), -1) > 0);
    const struct json *by_levels = json_get(j, "log_mel_by_levels");
    assert_int_equal(json_count(by_levels), LEVELS);
    assert_float_equal(json_number(json_at(by_levels, 0), -1), first, 1e-6);
    assert_float_equal(json_number(json_at(by_levels, LEVELS - 1), -1), all, 1e-6);
}

/* The probe is tested on its training recordings, ten chords; chance is 10 %. */
TEST(digits_are_told_from_their_codes)
{
    const struct json *accuracy = json_get(json_get(report, "digit_probe"), "accuracy");
    assert_int_equal(json_count(accuracy), LEVELS);
    assert_true(json_number(json_at(accuracy, 0), 0) > 0.5);
}

/* The sum over levels of the commitment loss times its weight, plus twice the spectral distance. */
TEST(a_loss_is_the_sum_of_its_parts)
{
    struct audio_result with, without;
    struct audio_settings changed = settings;
    trainer.settings = &changed;
    changed.optimizer.lr = 0;
    changed.weights[AUDIO_COMMITMENT] = 0;
    succeed(audio_step(&without, &trainer, settings.steps));
    assert_float_equal(without.loss, 2 * without.losses[AUDIO_DISTANCE], 1e-6);
    changed.weights[AUDIO_COMMITMENT] = 3;
    succeed(audio_step(&with, &trainer, settings.steps));
    assert_true(with.losses[AUDIO_COMMITMENT] > 0);
    assert_float_equal(with.loss, 2 * with.losses[AUDIO_DISTANCE] + 3 * LEVELS * with.losses[AUDIO_COMMITMENT], 1e-6);
    trainer.settings = &settings;
}

/* Commitment loss for codewords of zero, with `levels` levels. */
static double commitment_to_nothing(i64 levels)
{
    struct audio_settings changed = settings;
    struct audio_trainer t = {.settings = &changed, .media = &media, .seed = SEED};
    struct audio_result result;
    changed.config.levels = levels;
    audio_trainer_open(&t, &device, DTYPE_F32);
    weights_init(&t.audio.weights, 1);
    const struct weight *words = t.audio.w.codebooks;
    device.ops->zero(&device, words->master, words->matrices * words->rows * words->columns * 4);
    succeed(audio_step(&result, &t, settings.steps - 1));
    audio_trainer_close(&t);
    return result.losses[AUDIO_COMMITMENT];
}

/* Every level has the same loss, so the mean equals that of one. */
TEST(commitment_is_the_mean_over_levels)
{
    double one = commitment_to_nothing(1);
    assert_true(one > 0);
    assert_float_equal(commitment_to_nothing(2), one, 1e-6 * one);
}

int main(void)
{
    return tests_run(setup, teardown);
}
