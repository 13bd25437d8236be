/* The audio tokenizer trained with fewer levels than it has (level_dropout). */
#include "data/media/media.h"
#include "tests/scratch.h"
#include "tokenizer_training/audio_step.h"

#include <math.h>
#include <string.h>

enum { LEVELS = 4, SAMPLES = 24 * 1280 };
static struct device device;
static struct audio_media media;

/* A chord with a new base every 0.1 seconds. */
static float *melody(i64 samples, int voice)
{
    float *out = memory_alloc(samples * 4);
    double phase = 0;
    for (i64 i = 0; i < samples; i++) {
        phase += 0.03 * (1 + (double)((i / 1600 * 7 + voice) % 5) / 4);
        out[i] = (float)(0.2 * sin(phase) + 0.1 * sin(3 * phase) + 0.05 * sin((6 + voice) * phase));
    }
    return out;
}

static int make(void **state)
{
    static const char line[] = "{\"audio\":\"0.wav\",\"text\":\"\"}\n{\"audio\":\"1.wav\",\"text\":\"\"}\n";
    device_open_cpu(&device);
    log_set_level(LOG_QUIET);
    make_directory(state);
    for (int i = 0; i < 2; i++) {
        struct sound sound = {SAMPLES, AUDIO_RATE_HZ, melody(SAMPLES, i)};
        succeed(sound_write_wav(path_of(i ? "1.wav" : "0.wav"), &sound));
        sound_release(&sound);
    }
    succeed(file_replace(path_of("captions.jsonl"), line, sizeof line - 1));
    succeed(
        audio_media_load(&media, &(struct media_request){.data = directory}, &(struct audio_media_request){0, 100}));
    return 0;
}

static int clear(void **state)
{
    audio_media_release(&media);
    device_close(&device);
    return remove_directory(state);
}

static void open_trainer(struct audio_trainer *t, struct audio_settings *settings, const char *dropout)
{
    const struct setting_override all[] = {{"data", "./none"},       {"width", "48"},           {"latent", "16"},
                                           {"codes", "8"},           {"levels", "4"},           {"steps", "160"},
                                           {"batch", "8"},           {"crop_s", "0.4"},         {"augment", "0"},
                                           {"optimizer.lr", "5e-3"}, {"level_dropout", dropout}};
    *settings = (struct audio_settings){0};
    succeed(settings_read(settings, audio_stage_table, NULL, NULL, all, COUNT_OF(all)));
    *t = (struct audio_trainer){.settings = settings, .media = &media, .seed = 1};
    audio_trainer_open(t, &device, DTYPE_F32);
    weights_init(&t->audio.weights, 1);
}

/* Each row has the sum of its own number of levels. */
TEST(rows_are_of_as_many_levels_as_they_are_heard_with)
{
    enum { ROWS = 5 };
    static const int levels[ROWS] = {4, 1, 3, 1, 2};
    i32 heard[ROWS];
    float z[ROWS * 16], row[16], latent[ROWS * 16];
    struct audio_settings settings;
    struct audio_trainer t;
    struct audio_quantized q;
    open_trainer(&t, &settings, "0");
    for (int i = 0; i < ROWS; i++)
        heard[i] = (levels[i] - 1) * ROWS + i;
    for (i64 i = 0; i < COUNT_OF(z); i++)
        z[i] = (float)sin((double)i * 1.7);
    struct weight *words = t.audio.w.codebooks;
    float *values = memory_alloc(words->rows * 16 * 4);
    for (i64 i = 0; i < words->rows * 16; i++)
        values[i] = 0.4f * (float)cos((double)i * 0.9);
    weight_put(&t.audio.weights, words, 0, words->rows, values);
    tape_clear(&t.tape, false);
    struct tensor *in = tape_tensor(&t.tape, DTYPE_F32, ROWS, 16);
    i32 *index = tape_alloc(&t.tape, sizeof heard);
    device_put(&device, in->data, z, sizeof z);
    device_put(&device, index, heard, sizeof heard);
    audio_quantize(&q, &t.audio, &t.tape, in, index);
    device_get(&device, latent, q.latent->data, sizeof latent);
    for (int i = 0; i < ROWS; i++) {
        device_get(&device, row, (float *)q.partial[levels[i] - 1]->data + i * 16, sizeof row);
        assert_memory_equal(row, latent + i * 16, sizeof row);
    }
    memory_free(values);
    audio_trainer_close(&t);
    settings_release(&settings, audio_stage_table);
}

/* All frames of a crop are heard alike. A share of the crops is dropped, and then each number of levels is as likely.
 */
TEST(levels_are_dropped_as_often_as_is_said)
{
    enum { STEPS = 60, CROPS = 8 * STEPS };
    i64 counts[LEVELS] = {0};
    struct audio_settings settings;
    struct audio_trainer t;
    struct audio_result result;
    open_trainer(&t, &settings, "0.5");
    for (i64 step = 0; step < STEPS; step++) {
        succeed(audio_step(&result, &t, step));
        for (i64 f = 0; f < t.frames; f++) {
            assert_int_equal(t.heard[f] % t.frames, f);
            assert_int_equal(t.heard[f] / t.frames, t.heard[f / t.crop_frames * t.crop_frames] / t.frames);
            counts[t.heard[f] / t.frames] += f % t.crop_frames == 0;
        }
    }
    for (i64 levels = 0; levels + 1 < LEVELS; levels++)
        assert_in_range(counts[levels], CROPS / 16, CROPS * 3 / 16); /* an eighth */
    assert_in_range(counts[LEVELS - 1], CROPS / 2, CROPS * 3 / 4);   /* five eighths */
    audio_trainer_close(&t);
    settings_release(&settings, audio_stage_table);
}

/* A step that hears fewer levels is further from its crops; all levels commit as before. */
TEST(a_step_hears_the_levels_that_are_drawn)
{
    struct audio_settings settings[2];
    struct audio_trainer t;
    struct audio_result result[2];
    for (int i = 0; i < 2; i++) {
        open_trainer(&t, &settings[i], i ? "1" : "0");
        t.start = 0;
        succeed(audio_step(&result[i], &t, 0));
        audio_trainer_close(&t);
        settings_release(&settings[i], audio_stage_table);
    }
    assert_true(fabs(result[1].losses[AUDIO_DISTANCE] - result[0].losses[AUDIO_DISTANCE]) > 1e-3);
    assert_float_equal(result[1].losses[AUDIO_COMMITMENT], result[0].losses[AUDIO_COMMITMENT], 1e-7);
}

int main(void)
{
    return tests_run(make, clear);
}
