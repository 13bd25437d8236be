/* Tokenizer training with CUDA graphs on the emulated GPU: weights and losses are bitwise equal to
 * those without graphs, warm steps need few launches, and memory equals the estimate. */
#include <cuda_runtime.h>

#include "tokenizer_training/audio_step.h"
#include "tokenizer_training/memory_estimate.h"
#include "tests/vision_fixture.h"

#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 6, CHANGE = 3 }; /* from step CHANGE on: clips, or codes */

struct codecs_result {
    double loss[STEPS];
    float *weights;
    i64 count;
    long launches[STEPS], graphs[STEPS], waits[STEPS], allocations[STEPS], changed;
};
typedef double take_step(void *trainer, i64 step);

static void take_steps(struct codecs_result *out, take_step *take, void *trainer)
{
    long changed = emu_counts.changed_nodes;
    for (i64 step = 0; step < STEPS; step++) {
        struct emu_counts before = emu_counts;
        out->loss[step] = take(trainer, step);
        out->launches[step] = emu_counts.launches - before.launches;
        out->graphs[step] = emu_counts.graphs - before.graphs;
        out->waits[step] = emu_counts.waits - before.waits;
        out->allocations[step] = emu_counts.allocations - before.allocations;
    }
    out->changed = emu_counts.changed_nodes - changed;
}

static void keep_weights(struct codecs_result *out, const struct weights *weights)
{
    i64 count = 0;
    for (i64 i = 0; i < weights->count; i++)
        count += weights->list[i].share_rows * weights->list[i].columns;
    float *at = out->weights = memory_alloc(count * 4);
    out->count = count;
    for (i64 i = 0; i < weights->count; i++) {
        const struct weight *w = &weights->list[i];
        weight_get(weights, w, w->share_first, w->share_rows, at);
        at += w->share_rows * w->columns;
    }
}

/* ---- Vision: stills, then clips with stills among them ---- */

static double take_vision_step(void *trainer, i64 step)
{
    struct vision_step_result result;
    assert_int_equal(vision_step(&result, trainer, step), 0);
    return result.loss;
}

static void train_vision(struct codecs_result *out)
{
    struct vision_settings settings = {0};
    const struct setting_override all[] = {
        {"data", "./none"},     {"size", "16"},         {"stride", "8"},     {"bits", "16"},       {"frames", "5"},
        {"channels", "[8, 8]"}, {"batch", "1"},         {"clip_batch", "1"}, {"still_batch", "1"}, {"steps", "3"},
        {"clip_steps", "3"},    {"still_share", "0.5"}, {"augment", "0.5"}};
    assert_int_equal(settings_read(&settings, vision_stage_table, NULL, NULL, all, COUNT_OF(all)), 0);
    u8 *clip = toy_pixels(1, 5, 16), *stills[2] = {clip, clip + 768};
    i64 frames = 5;
    struct vision_media media = {.request = {.shapes = SQUARE(16)},
                                 .still_count = 2,
                                 .stills = stills,
                                 .clip_count = 1,
                                 .clips = &clip,
                                 .clip_frames = &frames};
    struct vision_config config = {.stride = 8, .bits = 16, .channels = {8, 8}, .blocks = {1, 1}};
    assert_int_equal(vision_add_shape(&config, 1, 16, 16, 0, NULL, 0), 0);
    assert_int_equal(vision_add_shape(&config, 5, 16, 16, 8, NULL, 0), 0);
    struct vision_trainer t = {
        .settings = &settings, .media = &media, .seed = 5, .still_steps = CHANGE, .clip_steps = STEPS - CHANGE};
    vision_trainer_open(&t, &device, &config, DTYPE_BF16);
    vision_init(&t.vision, 5);
    take_steps(out, take_vision_step, &t);
    keep_weights(out, &t.vision.weights);
    vision_trainer_close(&t);
    memory_free(clip);
    settings_release(&settings, vision_stage_table);
}

/* ---- Audio: without codes, then with them ---- */

static double take_audio_step(void *trainer, i64 step)
{
    struct audio_result result;
    assert_int_equal(audio_step(&result, trainer, step), 0);
    return result.loss;
}

static void train_audio_with(struct codecs_result *out, bool discriminates)
{
    enum { SAMPLES = 8 * 1280, MORE = 4 };
    static int16_t values[SAMPLES];
    struct audio_settings settings = {0};
    const struct setting_override all[] = {{"data", "./none"},
                                           {"width", "32"},
                                           {"latent", "16"},
                                           {"codes", "16"},
                                           {"levels", "2"},
                                           {"steps", "6"},
                                           {"batch", "2"},
                                           {"crop_s", "0.3"},
                                           {"unquantised_share", "0.5"},
                                           {"decoder", "istft"},
                                           {"discriminator.weight", "1"},
                                           {"discriminator.start", "0.3"},
                                           {"discriminator.width", "2"}};
    i64 count = COUNT_OF(all) - (discriminates ? 0 : MORE);
    assert_int_equal(settings_read(&settings, audio_stage_table, NULL, NULL, all, count), 0);
    for (i64 i = 0; i < SAMPLES; i++)
        values[i] = (int16_t)(8000 * sin((double)i * (0.05 + (double)i * 1e-5)));
    struct audio_clip clip = {.text = "", .speaker = "", .samples = SAMPLES, .values = values};
    struct audio_media media = {.clips = &clip, .count = 1, .samples = SAMPLES};
    struct audio_trainer t = {.settings = &settings, .media = &media, .seed = 1};
    audio_trainer_open(&t, &device, DTYPE_BF16);
    weights_init(&t.audio.weights, 1);
    take_steps(out, take_audio_step, &t);
    keep_weights(out, &t.audio.weights);
    audio_trainer_close(&t);
    settings_release(&settings, audio_stage_table);
}

static void train_audio(struct codecs_result *out)
{
    train_audio_with(out, false);
}

static void train_told_audio(struct codecs_result *out)
{
    train_audio_with(out, true);
}

/* ---- Graphs off, on, and recorded again each time ---- */

static void train_with(struct codecs_result *out, void (*train)(struct codecs_result *), const char *graphs)
{
    setenv("WEFT_GRAPHS", graphs, 1);
    train(out);
    unsetenv("WEFT_GRAPHS");
}

static void check_equal(const struct codecs_result *a, const struct codecs_result *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->weights, b->weights, (size_t)a->count * 4);
}

/* most: maximum number of launches in the last step with graphs. */
static void check(const char *what, void (*train)(struct codecs_result *), long most)
{
    static struct codecs_result plain, graphs, update;
    train_with(&plain, train, "0");
    train_with(&graphs, train, "1");
    train_with(&update, train, "update");
    for (i64 step = CHANGE - 1; step < STEPS; step += STEPS - CHANGE)
        print_message("%s, step %ld: %ld launches, %ld with graphs, %ld of them graphs\n", what, (long)step + 1,
                      plain.launches[step], graphs.launches[step], graphs.graphs[step]);
    check_equal(&plain, &graphs);
    check_equal(&plain, &update);
    assert_int_equal(update.changed, 0);
    for (i64 step = CHANGE - 1; step < STEPS; step += STEPS - CHANGE) {
        assert_int_equal(graphs.graphs[step], 2); /* forward and backward */
        assert_true(graphs.launches[step] <= most);
        assert_int_equal(graphs.waits[step], 1);
        assert_int_equal(graphs.allocations[step], 0);
    }
    memory_free(plain.weights);
    memory_free(graphs.weights);
    memory_free(update.weights);
}

TEST(a_step_on_pictures_is_two_graphs)
{
    check("vision", train_vision, 10);
}

/* With a discriminator the losses stand outside of the graphs. */
TEST(graphs_do_not_change_a_discriminator)
{
    static struct codecs_result plain, graphs;
    train_with(&plain, train_told_audio, "0");
    train_with(&graphs, train_told_audio, "1");
    check_equal(&plain, &graphs);
    assert_int_equal(graphs.graphs[STEPS - 1], 2);
    memory_free(plain.weights);
    memory_free(graphs.weights);
}

TEST(a_step_on_sounds_is_two_graphs)
{
    check("audio", train_audio, 24);
}

/* ---- Memory ---- */

static void limit_memory(i64 bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)bytes);
    setenv("WEFT_EMU_MEMORY", text, 1);
}

enum { ROOM = 2000000000 };
typedef i64 use_fn(i64 batch); /* runs steps; returns the bytes they took */
typedef int check_fn(i64 batch, i64 *estimated);

static struct stage a_stage(void)
{
    return (struct stage){.device = &device, .dtype = DTYPE_BF16};
}

static void read_vision(struct vision_settings *s, i64 batch)
{
    const struct setting_override all[] = {
        {"data", "./none"}, {"size", "32"},         {"stride", "8"},     {"bits", "16"},      {"frames", "5"},
        {"steps", "1"},     {"channels", "[8, 8]"}, {"clip_batch", "1"}, {"clip_steps", "1"}, {"still_batch", "1"}};
    assert_int_equal(settings_read(s, vision_stage_table, NULL, NULL, all, COUNT_OF(all)), 0);
    s->batch = batch;
}

static i64 use_vision(i64 batch)
{
    struct vision_settings s = {0};
    u8 *clip = toy_pixels(1, 5, 32);
    i64 frames = 5;
    struct vision_media media = {.request = {.shapes = SQUARE(32)},
                                 .still_count = 1,
                                 .stills = &clip,
                                 .clip_count = 1,
                                 .clips = &clip,
                                 .clip_frames = &frames};
    struct vision_config config;
    read_vision(&s, batch);
    assert_int_equal(vision_stage_config(&config, &s, &media, true), 0);
    struct vision_trainer t = {.settings = &s, .media = &media, .seed = 5, .still_steps = 1, .clip_steps = 1};
    vision_trainer_open(&t, &device, &config, DTYPE_BF16);
    vision_init(&t.vision, 5);
    take_vision_step(&t, 0);
    take_vision_step(&t, 1);
    i64 used = ROOM - device_left_bytes(&device);
    vision_trainer_close(&t);
    memory_free(clip);
    settings_release(&s, vision_stage_table);
    return used;
}

static int check_vision(i64 batch, i64 *estimated)
{
    struct vision_settings s = {0};
    struct tokenizer_needs needs;
    struct device meta;
    struct stage stage = a_stage();
    read_vision(&s, batch);
    device_open_meta(&meta);
    device_meta_gpu(&meta, true);
    assert_int_equal(tokenizer_estimate(&needs, vision_stage_table, &s, &meta, DTYPE_BF16), 0);
    device_close(&meta);
    *estimated = step_memory_gpu(&needs.memory);
    int status = codec_check_memory(vision_stage_table, &s, &stage);
    settings_release(&s, vision_stage_table);
    return status;
}

static void read_audio(struct audio_settings *s, i64 batch)
{
    const struct setting_override all[] = {
        {"data", "./none"}, {"width", "32"}, {"latent", "16"},  {"codes", "16"},
        {"levels", "2"},    {"steps", "2"},  {"crop_s", "0.3"}, {"unquantised_share", "0.5"}};
    assert_int_equal(settings_read(s, audio_stage_table, NULL, NULL, all, COUNT_OF(all)), 0);
    s->batch = batch;
}

static i64 use_audio(i64 batch)
{
    enum { SAMPLES = 8 * 1280 };
    static int16_t values[SAMPLES];
    struct audio_settings s = {0};
    for (i64 i = 0; i < SAMPLES; i++)
        values[i] = (int16_t)(8000 * sin((double)i * (0.05 + (double)i * 1e-5)));
    struct audio_clip clip = {.text = "", .speaker = "", .samples = SAMPLES, .values = values};
    struct audio_media media = {.clips = &clip, .count = 1, .samples = SAMPLES};
    read_audio(&s, batch);
    struct audio_trainer t = {.settings = &s, .media = &media, .seed = 1};
    audio_trainer_open(&t, &device, DTYPE_BF16);
    weights_init(&t.audio.weights, 1);
    take_audio_step(&t, 0);
    take_audio_step(&t, 1);
    i64 used = ROOM - device_left_bytes(&device);
    audio_trainer_close(&t);
    settings_release(&s, audio_stage_table);
    return used;
}

static int check_audio(i64 batch, i64 *estimated)
{
    struct audio_settings s = {0};
    struct tokenizer_needs needs;
    struct device meta;
    struct stage stage = a_stage();
    read_audio(&s, batch);
    device_open_meta(&meta);
    device_meta_gpu(&meta, true);
    assert_int_equal(tokenizer_estimate(&needs, audio_stage_table, &s, &meta, DTYPE_BF16), 0);
    device_close(&meta);
    *estimated = step_memory_gpu(&needs.memory);
    int status = codec_check_memory(audio_stage_table, &s, &stage);
    settings_release(&s, audio_stage_table);
    return status;
}

/* Runs `look` and captures its stderr. */
static int said_by(char said[2048], check_fn *look, i64 batch, i64 *estimated)
{
    int ends[2], kept = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    int status = look(batch, estimated);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    ssize_t n = read(ends[0], said, 2047);
    said[n > 0 ? n : 0] = 0;
    close(ends[0]);
    return status;
}

/* Steps take exactly the estimated bytes. For a large batch the message suggests half of it if that
 * fits, and nothing if the weights alone do not fit. */
static void check_memory(check_fn *look, use_fn *use, i64 batch, i64 large)
{
    char said[2048], offer[64];
    i64 estimated, half, all;
    limit_memory(ROOM);
    assert_int_equal(look(batch, &estimated), 0);
    assert_int_equal(use(batch), estimated);
    assert_int_equal(said_by(said, look, large / 2, &half), 0);
    assert_string_equal(said, "");
    limit_memory(half);
    assert_int_equal(said_by(said, look, large, &all), 0);
    assert_true(all > half && half > estimated);
    snprintf(offer, sizeof offer, "batch=%lld", (long long)large / 2);
    assert_non_null(strstr(said, "warning: a step takes "));
    assert_non_null(strstr(said, offer));
    snprintf(offer, sizeof offer, "would take %.1f MB", (double)half * 1e-6);
    assert_non_null(strstr(said, offer));
    limit_memory(1 << 10);
    assert_int_equal(look(large, &all), -1);
    assert_non_null(strstr(error_text(), "; nothing smaller would do, not even batch=1: make the tokenizer smaller"));
    if (is_nightly()) {
        limit_memory(estimated);
        use(batch);
    }
    unsetenv("WEFT_EMU_MEMORY");
}

TEST(vision_takes_what_is_estimated)
{
    check_memory(check_vision, use_vision, 2, 4096);
}

TEST(audio_takes_what_is_estimated)
{
    check_memory(check_audio, use_audio, 1, 1024);
}

int main(void)
{
    setenv("WEFT_THREADS", "1", 0); /* products are so small that waking a thread costs more */
    if (device_open_cuda(&device, 0))
        panic("%s", error_text());
    int failed = tests_run(NULL, NULL);
    device_close(&device);
    return failed;
}
