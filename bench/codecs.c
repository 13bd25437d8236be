/* Training steps of the vision and audio tokenizers on synthetic media, relative to the peak
 * of products: at default sizes, and on a GPU at sizes that fill it. */
#include "bench/bench.h"
#include "tokenizer_training/audio_step.h"
#include "tokenizer_training/vision_step.h"

#include <math.h>

enum { ROUNDS = 5, STEPS = 2, SOUND_S = 4 };

static const struct setting_override vision_usual[] = {{"data", "./none"}, {"clip_steps", "0"}};
static const struct setting_override vision_large[] = {
    {"data", "./none"}, {"clip_steps", "0"},        {"size", "256"},
    {"batch", "64"},    {"channels", "[256, 512]"}, {"blocks", "[2, 4]"}};
static const struct setting_override audio_usual[] = {{"data", "./none"}};
static const struct setting_override audio_large[] = {{"data", "./none"}, {"batch", "256"}, {"crop_s", "2.56"}};

struct tokenizer_bench {
    const char *what;
    double goal; /* fraction of the peak */
    int (*step)(void *trainer, i64 step);
    void *trainer;
    double flops; /* per step */
};

static int run_vision_step(void *trainer, i64 step)
{
    struct vision_step_result result;
    return vision_step(&result, trainer, step);
}

static int run_audio_step(void *trainer, i64 step)
{
    struct audio_result result;
    return audio_step(&result, trainer, step);
}

/* Measures steps and the peak alternately. */
static int measure(struct device *device, const struct tokenizer_bench *c, enum dtype dtype, bool json)
{
    double rates[ROUNDS], peaks[ROUNDS];
    for (i64 round = -1, step = 0; round < ROUNDS; round++) { /* round -1 warms up */
        double begin = clock_s();
        for (i64 i = 0; i < STEPS; i++)
            if (c->step(c->trainer, step++)) /* returns its losses, so the device is done */
                return -1;
        rates[max_i64(round, 0)] = STEPS * c->flops / (clock_s() - begin) * 1e-9;
        peaks[max_i64(round, 0)] = kernels_matrix_peak(device, dtype, 0.05);
    }
    bench_print(&(struct bench_row){"codecs", c->what, "GFLOP/s", bench_peak(device), bench_median(rates, ROUNDS),
                                    bench_median(peaks, ROUNDS), c->goal, false, NULL},
                json);
    return 0;
}

static int measure_vision(struct device *device, const struct vision_settings *s, enum dtype dtype, bool json)
{
    i64 bytes = s->size * s->size * 3;
    u8 *picture = memory_alloc(bytes);
    struct vision_config config;
    struct vision_media media = {.request = {.shapes = {{1, {{s->size, s->size}}}, {1, {{s->size, s->size}}}}},
                                 .still_count = 1,
                                 .stills = &picture};
    struct vision_trainer t = {.settings = s, .media = &media, .seed = 1, .still_steps = s->steps};
    for (i64 i = 0; i < bytes; i++)
        picture[i] = (u8)(128 + 100 * sin((double)(i % 3 + 1) * (double)(i / 3) * 0.01));
    int status = vision_stage_config(&config, s, &media, false);
    if (status == 0) {
        vision_trainer_open(&t, device, &config, dtype);
        vision_init(&t.vision, 1);
        status = measure(device,
                         &(struct tokenizer_bench){"training on pictures", device->backend == BACKEND_CUDA ? 0.40 : 0,
                                                   run_vision_step, &t, vision_step_flops(&t, 0)},
                         dtype, json);
        vision_trainer_close(&t);
    }
    memory_free(picture);
    return status;
}

static int measure_audio(struct device *device, const struct audio_settings *s, enum dtype dtype, bool json)
{
    enum { SAMPLES = SOUND_S * AUDIO_RATE_HZ };
    int16_t *values = memory_alloc(SAMPLES * (i64)sizeof *values);
    struct audio_clip clip = {.text = "", .speaker = "", .samples = SAMPLES, .values = values};
    struct audio_media media = {.clips = &clip, .count = 1, .samples = SAMPLES};
    struct audio_trainer t = {.settings = s, .media = &media, .seed = 1};
    for (i64 i = 0; i < SAMPLES; i++)
        values[i] = (int16_t)(8000 * sin((double)i * (0.05 + (double)i * 1e-5)));
    audio_trainer_open(&t, device, dtype);
    weights_init(&t.audio.weights, 1);
    int status = measure(device,
                         &(struct tokenizer_bench){"training on sounds, without codes",
                                                   device->backend == BACKEND_CUDA ? 0.40 : 0, run_audio_step, &t,
                                                   audio_step_flops(&t, 0)},
                         dtype, json);
    audio_trainer_close(&t);
    memory_free(values);
    return status;
}

int bench_codecs(struct device *device, bool json)
{
    struct vision_settings vision = {0};
    struct audio_settings audio = {0};
    enum dtype dtype = device->has_bf16 ? DTYPE_BF16 : DTYPE_F32;
    bool gpu = device->backend == BACKEND_CUDA;
    int status = gpu ? settings_read(&vision, vision_stage_table, NULL, NULL, vision_large, COUNT_OF(vision_large))
                     : settings_read(&vision, vision_stage_table, NULL, NULL, vision_usual, COUNT_OF(vision_usual));
    if (status == 0)
        status = gpu ? settings_read(&audio, audio_stage_table, NULL, NULL, audio_large, COUNT_OF(audio_large))
                     : settings_read(&audio, audio_stage_table, NULL, NULL, audio_usual, COUNT_OF(audio_usual));
    if (status == 0)
        status = measure_vision(device, &vision, dtype, json);
    if (status == 0)
        status = measure_audio(device, &audio, dtype, json);
    settings_release(&vision, vision_stage_table);
    settings_release(&audio, audio_stage_table);
    return status;
}
