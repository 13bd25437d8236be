/* Semantics of sounds: what level 0 and the latent get from the words of a transcript, a run that resumes, and
 * the report's probe of words. */
#include <math.h>

#include "core/json.h"
#include "data/media/media.h"
#include "dist/dist.h"
#include "tests/device.h"
#include "tests/files.h"
#include "tests/scratch.h"
#include "tokenizer_training/audio_step.h"

enum { CLIPS = 24, FRAMES = 4, SAMPLES = FRAMES * 1280, LATENT = 8, CODES = 16 };

static struct device device;
static struct audio_settings settings;
static struct audio_media media;
static struct audio_trainer trainer;
static struct semantic_targets targets;

static double draw(u32 a, u32 b)
{
    return rng_uniform((struct rng_key){11, RNG_TEST}, a, b, 0, 0);
}

/* Chords; those of a word share a tone. */
static void write_sounds(const char *folder)
{
    static const char *const texts[] = {"low", "low high", "high", "none"};
    struct buffer lines = {0};
    succeed(directory_make(folder));
    for (int i = 0; i < CLIPS; i++) {
        char *path = string_format("%s/%d.wav", folder, i);
        struct sound sound;
        sound_init(&sound, SAMPLES - 100 * i, AUDIO_RATE_HZ);
        for (i64 t = 1500; t < sound.samples; t++) /* the first frame is silent */
            sound.values[t] =
                0.2f * (float)((i % 4 < 2) * sin(0.06 * (double)t) + (i % 4 > 0) * (i % 4 < 3) * sin(0.9 * (double)t) +
                               sin(0.31 * (double)t * (1 + i % 7)));
        succeed(sound_write_wav(path, &sound));
        buffer_printf(&lines, "{\"audio\":\"%d.wav\",\"text\":\"%s\"}\n", i, texts[i % 4]);
        sound_release(&sound);
        memory_free(path);
    }
    char *captions = path_join(folder, "captions.jsonl");
    succeed(file_replace(captions, lines.data, lines.length));
    memory_free(captions);
    buffer_release(&lines);
}

static void read_settings(struct audio_settings *out, const char *data, const char *weight, const char *share)
{
    const struct setting_override all[] = {{"data", data},
                                           {"width", "16"},
                                           {"latent", "8"},
                                           {"codes", "16"},
                                           {"levels", "2"},
                                           {"steps", "6"},
                                           {"vocoder_rounds", "2"},
                                           {"batch", "4"},
                                           {"crop_s", "0.24"},
                                           {"augment", "0.5"},
                                           {"unquantised_share", share},
                                           {"checkpoint_steps", "1"},
                                           {"keep", "9"},
                                           {"validation", "0"},
                                           {"optimizer.warmup", "1"},
                                           {"use_steps", "0"},
                                           {"semantic", "words"},
                                           {"semantic_weight", weight}};
    memset(out, 0, sizeof *out);
    succeed(settings_read(out, audio_stage_table, NULL, NULL, all, COUNT_OF(all)));
}

static void open_trainer(const char *weight, const char *share)
{
    struct semantic_medium said[CLIPS];
    char *data = path_join(directory, "data");
    read_settings(&settings, data, weight, share);
    succeed(audio_media_load(&media, &(struct media_request){.data = data}, &(struct audio_media_request){0, 100}));
    assert_int_equal(media.count, CLIPS);
    for (i64 i = 0; i < CLIPS; i++)
        said[i] = (struct semantic_medium){media.clips[i].path, media.clips[i].text};
    succeed(semantic_targets_open(&targets, &settings.semantic, said, CLIPS, data));
    assert_int_equal(targets.width, 3);
    trainer = (struct audio_trainer){.settings = &settings, .media = &media, .targets = &targets, .seed = 3};
    audio_trainer_open(&trainer, &device, DTYPE_F32);
    weights_init(&trainer.audio.weights, 1);
    memory_free(data);
}

static void close_trainer(void)
{
    audio_trainer_close(&trainer);
    semantic_targets_release(&targets);
    audio_media_release(&media);
    settings_release(&settings, audio_stage_table);
}

/* ---- draws ---- */

/* Each recording has a value of its own. */
TEST(a_draw_says_what_its_crops_are_of)
{
    enum { SOUNDS = 5, LENGTH = 50, DRAWN = 12, CROP = 10 };
    int16_t values[SOUNDS][LENGTH];
    struct audio_clip clips[SOUNDS];
    float samples[DRAWN * CROP], response[DRAWN];
    i32 drawn[DRAWN];
    bool seen[SOUNDS] = {0};
    for (i64 i = 0; i < SOUNDS; i++) {
        for (i64 t = 0; t < LENGTH; t++)
            values[i][t] = (int16_t)(100 * (i + 1));
        clips[i] = (struct audio_clip){.samples = LENGTH, .values = values[i]};
    }
    const struct audio_media five = {.clips = clips, .count = SOUNDS};
    const struct audio_draw want = {.n = DRAWN, .samples = CROP, .step = 3, .bins = 1, .seed = 1, .drawn = drawn};
    succeed(audio_media_draw(samples, response, &five, &want));
    for (i64 i = 0; i < DRAWN; i++) {
        assert_int_equal(lrintf(samples[i * CROP] * 32767), 100 * (drawn[i] + 1));
        seen[drawn[i]] = true;
    }
    assert_true(seen[0] + seen[1] + seen[2] + seen[3] + seen[4] > 2);
}

/* ---- the encoder learns ---- */

/* Steps before `at`, which move no weight. */
static void begin_trainer(const char *weight, const char *share, i64 at)
{
    struct audio_result result;
    open_trainer(weight, share);
    settings.optimizer.lr = 0;
    for (i64 step = 0; step < at; step++)
        succeed(audio_step(&result, &trainer, step));
}

static float *gradient_of_step(double *loss, const char *weight, const char *share, i64 at)
{
    struct audio_result result;
    begin_trainer(weight, share, at);
    succeed(audio_step(&result, &trainer, at));
    const struct weight *w = trainer.audio.w.encoder.join;
    float *out = memory_alloc(w->rows * w->columns * 4);
    device_get(&device, out, w->value.grad, w->rows * w->columns * 4);
    *loss = result.losses[AUDIO_SEMANTIC];
    close_trainer();
    return out;
}

/* The latents of the drawn crops [F, D], or the code vectors of level 0. */
static float *features(bool codes)
{
    struct tape tape;
    struct audio_quantized q;
    i64 crop = trainer.crop_frames * 1280, batch = settings.batch, bins = trainer.audio.mel.bins;
    tape_open(&tape, &device, DTYPE_F32, (i64)1 << 30);
    tape_clear(&tape, false);
    float *samples = tape_alloc(&tape, batch * crop * 4), *response = tape_alloc(&tape, batch * bins * 4);
    device_put(&device, samples, trainer.samples, batch * crop * 4);
    device_put(&device, response, trainer.response, batch * bins * 4);
    struct tensor *spectra = tape_tensor(&tape, DTYPE_F32, trainer.frames * 4, 2 * AUDIO_BANDS);
    mel_spectra(spectra->data, &trainer.audio.mel, matrix_of(samples, DTYPE_F32, batch, crop), response,
                &trainer.audio.arena);
    device.ops->shift_divide(&device, tensor_matrix(spectra), tensor_matrix(spectra), 1, 2.5f);
    struct tensor *z = audio_encoder(&trainer.audio, &tape, spectra, &trainer.layout);
    if (codes)
        audio_quantize(&q, &trainer.audio, &tape, z, NULL);
    float *out = memory_alloc(z->rows * LATENT * 4);
    device_get(&device, out, codes ? q.partial[0]->data : z->data, z->rows * LATENT * 4);
    tape_close(&tape);
    return out;
}

/* The mean loss over the crops, and its gradient to their features, by loops. */
static double loss_by_loops(double *gradient, const float *values)
{
    float *map = weight_values(&trainer.semantic.weights, trainer.semantic.map);
    float *bias = weight_values(&trainer.semantic.weights, trainer.semantic.bias);
    i64 n = settings.batch, frames = trainer.crop_frames;
    double loss = 0;
    for (i64 i = 0; i < n; i++)
        for (i64 w = 0; w < targets.width; w++) {
            const char *text = media.clips[trainer.drawn[i]].text;
            bool has = strstr(text, targets.words.list[w]) != NULL;
            double logit = (double)bias[w];
            for (i64 k = 0; k < frames * LATENT; k++)
                logit +=
                    (double)map[w * LATENT + k % LATENT] * (double)values[i * frames * LATENT + k] / (double)frames;
            loss += log(1 + exp(has ? -logit : logit)) / (double)n;
            for (i64 k = 0; k < frames * LATENT; k++)
                gradient[i * frames * LATENT + k] +=
                    (1 / (1 + exp(-logit)) - has) * (double)map[w * LATENT + k % LATENT] / (double)(n * frames);
        }
    memory_free(map);
    memory_free(bias);
    return loss;
}

static void expect_encoder_learns(bool codes)
{
    const char *share = codes ? "0" : "1";
    const double step = 1e-3;
    double said, none, slope = 0, measured = 0;
    i64 at = codes;
    float *without = gradient_of_step(&none, "0", share, at), *with = gradient_of_step(&said, "5", share, at);
    begin_trainer("5", share, at);
    struct audio_draw drawn = {.n = settings.batch,
                               .samples = trainer.crop_frames * 1280,
                               .step = at,
                               .bins = trainer.audio.mel.bins,
                               .augment = settings.augment,
                               .seed = trainer.seed,
                               .drawn = trainer.drawn};
    succeed(audio_media_draw(trainer.samples, trainer.response, &media, &drawn));
    struct weight *w = trainer.audio.w.encoder.join;
    i64 count = w->rows * w->columns, values = trainer.frames * LATENT;
    double *gradient = memory_alloc(values * 8);
    float *now = features(codes), *kept = weight_values(&trainer.audio.weights, w), *sides[2];
    assert_float_equal(said, loss_by_loops(gradient, now), 1e-4);
    assert_float_equal(said, none, 1e-5);
    for (int side = 0; side < 2; side++) {
        float *moved = memory_alloc(count * 4);
        for (i64 i = 0; i < count; i++)
            moved[i] = kept[i] + (float)((side ? step : -step) * (draw(7, (u32)i) - 0.5));
        weight_put(&trainer.audio.weights, w, 0, w->rows, moved);
        sides[side] = features(false);
        memory_free(moved);
    }
    for (i64 i = 0; i < values; i++)
        measured += 5 * gradient[i] * ((double)sides[1][i] - (double)sides[0][i]) / (2 * step);
    for (i64 i = 0; i < count; i++)
        slope += (draw(7, (u32)i) - 0.5) * ((double)with[i] - (double)without[i]);
    assert_true(fabs(measured) > 1e-3);
    assert_float_equal(slope, measured, 0.02 * fabs(measured) + 1e-4);
    float *blocks[] = {without, with, now, kept, sides[0], sides[1]};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
    memory_free(gradient);
    close_trainer();
}

TEST(the_encoder_learns_by_level_0)
{
    write_sounds(path_of("data"));
    expect_encoder_learns(true);
}

TEST(the_encoder_learns_before_there_are_codes)
{
    write_sounds(path_of("data"));
    expect_encoder_learns(false);
}

/* ---- runs ---- */

static void run_stage(const char *name)
{
    struct audio_settings own;
    char *data = path_join(directory, "data");
    struct stage stage = {.name = "aud",
                          .out = path_of(name),
                          .seed = 4,
                          .device = &device,
                          .dtype = DTYPE_BF16,
                          .calibrated = true,
                          .ranks = parallel_alone()};
    read_settings(&own, data, "0.5", "0.3");
    succeed(directory_make(stage.out));
    succeed(audio_stage(&own, &stage));
    settings_release(&own, audio_stage_table);
    memory_free(data);
}

TEST(a_resumed_run_is_the_uninterrupted_one)
{
    struct buffer lines = {0};
    on_one_device(&device, false);
    write_sounds(path_of("data"));
    run_stage("whole");
    run_stage("killed");
    for (i64 step = 4; step <= 6; step++) {
        char *path = string_format("%s/checkpoints/step-%06lld", path_of("killed"), (long long)step);
        succeed(directory_remove(path));
        memory_free(path);
    }
    run_stage("killed");
    expect_same_file(path_of("whole"), path_of("killed"), "weights.safetensors");
    expect_same_file(path_of("whole"), path_of("killed"), "checkpoints/step-000006/weft/semantic.safetensors");
    expect_same_file(path_of("whole"), path_of("killed"), "checkpoints/step-000006/weft/optimizer.safetensors");
    succeed(file_read(&lines, path_of("whole/metrics.jsonl")));
    assert_non_null(strstr(lines.data, "\"semantic_loss\":"));
    assert_null(strstr(lines.data, "\"skipped\":1"));
    buffer_release(&lines);
    succeed(file_read(&lines, path_of("whole/checkpoints/step-000006/weft/state.json")));
    assert_non_null(strstr(lines.data, "\"semantic\""));
    buffer_release(&lines);
}

/* ---- the report ---- */

static void fill_set(struct semantic_set *set, i64 first, i64 count)
{
    float *vectors = weight_values(&trainer.audio.weights, trainer.audio.w.codebooks);
    *set =
        (struct semantic_set){memory_alloc(count * LATENT * 4), memory_alloc(count * (i64)sizeof *set->media), count};
    for (i64 i = 0; i < count; i++) {
        i64 frames, sounding = 0;
        i32 codes[2 * (FRAMES + 1)];
        const struct audio_clip *clip = &media.clips[first + i];
        float *samples = audio_clip_samples(clip, &frames);
        u8 *sounds = audio_sounding(&trainer.audio, samples, frames);
        audio_encode(&trainer.audio, &(struct audio_item){samples, frames * 1280, codes}, 1);
        for (i64 f = 0; f < frames; f++)
            for (i64 d = 0; d < LATENT && sounds[f]; d++)
                set->features[i * LATENT + d] += vectors[codes[2 * f] * LATENT + d];
        for (i64 f = 0; f < frames; f++)
            sounding += sounds[f];
        for (i64 d = 0; d < LATENT; d++)
            set->features[i * LATENT + d] /= (float)sounding;
        set->media[i] = (struct semantic_medium){clip->path, clip->text};
        memory_free(samples);
        memory_free(sounds);
    }
    memory_free(vectors);
}

TEST(the_report_tells_words_from_level_0)
{
    struct audio_result result;
    struct semantic_set train, other;
    struct semantic_told told;
    on_one_device(&device, false);
    write_sounds(path_of("data"));
    open_trainer("0.5", "0.3");
    for (i64 step = 0; step < settings.steps; step++)
        succeed(audio_step(&result, &trainer, step));
    struct audio_media held_out = media;
    held_out.clips += 5;
    held_out.count -= 5;
    succeed(directory_make(path_of("out")));
    succeed(audio_report(&trainer, &held_out, path_of("out")));
    fill_set(&train, 0, CLIPS);
    fill_set(&other, 5, CLIPS - 5);
    assert_true(semantic_probe(&told, &train, &other, LATENT));
    struct json *report = json_load(path_of("out/report.json"));
    const struct json *probe = json_get(report, "words_probe");
    assert_int_equal(json_integer(json_get(probe, "words"), 0), told.words);
    assert_int_equal(json_integer(json_get(probe, "media"), 0), told.media);
    assert_float_equal(json_number(json_get(probe, "right"), -1), told.right, 1e-9);
    assert_float_equal(json_number(json_get(probe, "right_chance"), -1), told.chance[1], 1e-9);
    assert_float_equal(json_number(json_get(probe, "average_precision"), -1), told.precision, 1e-6);
    assert_float_equal(json_number(json_get(probe, "average_precision_chance"), -1), told.chance[0], 1e-9);
    json_free(report);
    semantic_set_release(&train);
    semantic_set_release(&other);
    close_trainer();
}

static int run(const char *name)
{
    return tests_run_as(name, make_directory, remove_directory);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    return on_both_devices(&device, run);
}
