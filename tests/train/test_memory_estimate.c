/* The memory estimate for tokenizer training, made without the media, matches real steps on the
 * CPU: the same tensors, at most the same scratch, and a total within 5 % of the growth of the
 * process, apart from what any program takes (its own pages, partly used huge pages, memory kept by
 * the C library). */
#include "core/json.h"
#include "tokenizer_training/audio_step.h"
#include "tokenizer_training/memory_estimate.h"
#include "tokenizer_training/refiner_step.h"
#include "tests/vision_fixture.h"

#include <sys/wait.h>
#include <unistd.h>

struct estimate_outcome {
    struct tokenizer_needs needs;
    i64 peak_bytes; /* growth of the process */
};
typedef void measure(struct estimate_outcome *out, const void *settings, struct device *cpu, enum dtype dtype);

static void keep(struct estimate_outcome *out, const struct weights *weights, const struct tape *tape, i64 host_bytes)
{
    struct step_memory *m = &out->needs.memory;
    m->activations = tape_peak_bytes(tape);
    m->host = tape->host.peak_bytes + tape->staged.peak_bytes + host_bytes;
    m->backend = device_held_bytes(tape->device);
    step_memory_add_weights(m, weights);
    out->needs.parameters = weights_parameters(weights);
}

/* ---- Measured steps ---- */

enum { BESIDES_BYTES = 16 << 20 };
enum { SIZE = 64, FRAMES = 9 }; /* default values */
static const struct setting_override vision_values[] = {
    {"data", "./none"}, {"steps", "3"}, {"clip_steps", "6"}, {"still_share", "0.25"}};

static void measure_vision(struct estimate_outcome *out, const void *settings, struct device *cpu, enum dtype dtype)
{
    const struct vision_settings *s = settings;
    u8 *clip = toy_pixels(1, FRAMES, SIZE);
    i64 frames = FRAMES;
    struct vision_media media = {.request = {.shapes = SQUARE(SIZE)},
                                 .still_count = 1,
                                 .stills = &clip,
                                 .clip_count = 1,
                                 .clips = &clip,
                                 .clip_frames = &frames};
    struct vision_config config;
    require(vision_stage_config(&config, s, &media, true) == 0, "%s", error_text());
    struct vision_trainer t = {
        .settings = s, .media = &media, .seed = 5, .still_steps = s->steps, .clip_steps = s->clip_steps};
    i64 before = memory_peak_bytes();
    vision_trainer_open(&t, cpu, &config, dtype);
    vision_init(&t.vision, 5);
    for (i64 step = 0; step < s->steps + s->clip_steps; step++) {
        struct vision_step_result result;
        require(vision_step(&result, &t, step) == 0, "%s", error_text());
    }
    keep(out, &t.vision.weights, &t.tape, s->clip_batch * FRAMES * SIZE * SIZE * 3);
    out->peak_bytes = memory_peak_bytes() - before;
}

static const struct setting_override audio_values[] = {
    {"data", "./none"}, {"steps", "6"}, {"unquantised_share", "0.5"}};

static void measure_audio(struct estimate_outcome *out, const void *settings, struct device *cpu, enum dtype dtype)
{
    enum { SAMPLES = 3 * AUDIO_RATE_HZ };
    static int16_t values[SAMPLES];
    const struct audio_settings *s = settings;
    for (i64 i = 0; i < SAMPLES; i++)
        values[i] = (int16_t)(8000 * sin((double)i * (0.05 + (double)i * 1e-5)));
    struct audio_clip clip = {.text = "", .speaker = "", .samples = SAMPLES, .values = values};
    struct audio_media media = {.clips = &clip, .count = 1, .samples = SAMPLES};
    struct semantic_targets targets = {0};
    struct audio_trainer t = {.settings = s, .media = &media, .seed = 1};
    i64 before = memory_peak_bytes();
    if (semantic_is_wanted(&s->semantic)) {
        semantic_targets_of_zeros(&targets, &s->semantic, media.count);
        t.targets = &targets;
    }
    audio_trainer_open(&t, cpu, dtype);
    weights_init(&t.audio.weights, 1);
    for (i64 step = 0; step < s->steps; step++) {
        struct audio_result result;
        require(audio_step(&result, &t, step) == 0, "%s", error_text());
    }
    keep(out, &t.audio.weights, &t.tape, (t.frames * AUDIO_FRAME_SAMPLES + s->batch * t.audio.mel.bins) * 4);
    if (t.targets)
        step_memory_add_weights(&out->needs.memory, &t.semantic.weights);
    if (audio_has_discriminator(s)) {
        step_memory_add_weights(&out->needs.memory, &t.discriminator.common.weights);
        step_memory_add_tape(&out->needs.memory, &t.discriminator.common.tape);
    }
    out->needs.memory.activations += t.audio.arena.peak_bytes;
    out->peak_bytes = memory_peak_bytes() - before;
}

/* The tokenizer lies in s->vision, as the estimate reads it. */
static void measure_refiner(struct estimate_outcome *out, const void *settings, struct device *cpu, enum dtype dtype)
{
    const struct refiner_settings *s = settings;
    struct vision vision;
    require(vision_load(&vision, cpu, s->vision, dtype, false) == 0, "%s", error_text());
    const struct vision_shape *still = &vision.config.shapes[0];
    i64 side = REFINER_FACTOR * still->height, values = s->batch * side * side * 3;
    u8 *picture = toy_pixels(1, 1, side);
    struct vision_media media = {.request = {.shapes = SQUARE(side)}, .still_count = 1, .stills = &picture};
    struct refiner_config config = {.blocks = s->blocks,
                                    .noise = s->noise,
                                    .temperature = s->temperature,
                                    .steps = s->sampling_steps,
                                    .size_count = 1,
                                    .sizes = {{still->height, still->width}}};
    for (i64 i = 0; i < REFINER_LEVELS; i++)
        config.channels[i] = s->channels.values[i];
    media.request.frames = 1;
    struct refiner_trainer t = {.settings = s, .media = &media, .vision = &vision, .seed = 5};
    i64 before = memory_peak_bytes();
    refiner_trainer_open(&t, &config, dtype);
    weights_init(&t.refiner.weights, 5);
    for (i64 step = 0; step < s->steps; step++) {
        struct refiner_step_result result;
        require(refiner_step(&result, &t, step) == 0, "%s", error_text());
    }
    keep(out, &t.refiner.weights, &t.tape,
         vision.tape.host.peak_bytes + vision.tape.staged.peak_bytes + values * (2 + 4) +
             values / REFINER_VALUES * REFINER_INPUTS * 4);
    step_memory_add_tape(&out->needs.memory, &vision.tape);
    step_memory_add_weights(&out->needs.memory, &vision.weights);
    out->peak_bytes = memory_peak_bytes() - before;
}

/* ---- Comparison with the estimate ---- */

/* Runs the steps in a child process, so that its peak resident size is theirs. */
static void measured_apart(struct estimate_outcome *out, measure *steps, const void *settings)
{
    int ends[2], status = 1;
    workers_stop();
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct device cpu;
        device_open_cpu(&cpu);
        *out = (struct estimate_outcome){0};
        steps(out, settings, &cpu, cpu.has_bf16 ? DTYPE_BF16 : DTYPE_F32);
        _exit(write(ends[1], out, sizeof *out) == sizeof *out ? 0 : 1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], out, sizeof *out), sizeof *out);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(ends[0]);
}

static void compare(const char *what, const struct tokenizer_needs *estimated, const struct estimate_outcome *measured)
{
    const struct step_memory *a = &estimated->memory, *b = &measured->needs.memory;
    double total = (double)step_memory_total(a);
    assert_int_equal(estimated->parameters, measured->needs.parameters);
    assert_int_equal(a->copies, b->copies);
    assert_int_equal(a->masters, b->masters);
    assert_int_equal(a->moments, b->moments);
    assert_int_equal(a->gradients, b->gradients);
    assert_int_equal(a->activations, b->activations);
    assert_int_equal(a->host, b->host);
    print_message("%s: estimated %.0f, held %lld, resident %lld, scratch %lld of %lld\n", what, total,
                  (long long)step_memory_total(b), (long long)measured->peak_bytes, (long long)b->backend,
                  (long long)a->backend);
    /* A worker that never ran a largest tile holds less scratch. */
    assert_in_range(b->backend, a->backend / 2, a->backend * 21 / 20);
    if (!is_sanitized()) { /* sanitizers use extra memory */
        assert_true(total > 0.95 * (double)(measured->peak_bytes - BESIDES_BYTES));
        assert_true(total < 1.05 * (double)measured->peak_bytes);
    }
}

static void both(const char *what, const struct setting *table, measure *steps, const void *settings)
{
    struct device meta, cpu;
    struct tokenizer_needs needs;
    struct estimate_outcome measured;
    measured_apart(&measured, steps, settings);
    device_open_cpu(&cpu); /* bf16 if the CPU would use it */
    device_open_meta(&meta);
    if (tokenizer_estimate(&needs, table, settings, &meta, cpu.has_bf16 ? DTYPE_BF16 : DTYPE_F32))
        fail_msg("%s", error_text());
    device_close(&meta);
    compare(what, &needs, &measured);
}

/* Each part has a value of its own. */
TEST(all_parts_are_counted_and_named)
{
    struct step_memory m;
    struct memory_estimate e = {0};
    struct buffer all = {0};
    i64 bytes[sizeof m / sizeof(i64)], sum = 0;
    for (i64 i = 0; i < COUNT_OF(bytes); i++)
        bytes[i] = (i64)100000 << i;
    memcpy(&m, bytes, sizeof m);
    struct json *j = step_memory_json(&m);
    struct json_iterator at;
    for (bool more = json_first(&at, j); more; more = json_next(&at, j))
        sum += json_integer(at.value, 0);
    assert_int_equal(step_memory_total(&m), ((i64)100000 << COUNT_OF(bytes)) - 100000);
    assert_int_equal(sum, 2 * step_memory_total(&m));
    assert_int_equal(json_count(j), COUNT_OF(bytes) + 1);
    assert_int_equal(step_memory_gpu(&m), step_memory_total(&m) - m.host - m.backend - m.program);
    step_memory_estimate(&e, &m);
    assert_int_equal(e.bytes, step_memory_gpu(&m));
    assert_int_equal(e.data_bytes, m.activations + m.buckets + m.rounding);
    assert_string_equal(e.parts.data, "weights 0.1, masters 0.2, moments 0.4, gradients 0.8, sites 6.4, cache 51.2, "
                                      "activations 1.6, buckets 12.8, rounding 204.8");
    m.masters = 0;
    step_memory_print(&all, &m, 1e6);
    assert_string_equal(all.data,
                        "weights 0.1, moments 0.4, gradients 0.8, sites 6.4, cache 51.2, activations 1.6, host 3.2, "
                        "buckets 12.8, backend 25.6, program 102.4, rounding 204.8");
    json_free(j);
    buffer_release(&all);
    buffer_release(&e.parts);
}

TEST(a_vision_tokenizer_needs_what_is_estimated)
{
    struct vision_settings s = {0};
    assert_int_equal(settings_read(&s, vision_stage_table, NULL, NULL, vision_values, COUNT_OF(vision_values)), 0);
    both("vision", vision_stage_table, measure_vision, &s);
    settings_release(&s, vision_stage_table);
}

TEST(a_refiner_needs_what_is_estimated)
{
    char folder[] = "/tmp/weft-estimate-XXXXXX";
    static const char *files[] = {"config.json", "weights.safetensors"};
    struct vision_config config = {.stride = 16, .bits = 32, .channels = {64, 128}, .blocks = {1, 1}};
    struct refiner_settings s = {0};
    struct vision vision;
    assert_non_null(mkdtemp(folder));
    const struct setting_override values[] = {{"data", "./none"}, {"vision", folder}, {"steps", "4"}};
    assert_int_equal(vision_add_shape(&config, 1, SIZE, SIZE, 0, NULL, 0), 0);
    assert_int_equal(vision_config_check(&config), 0);
    device_open_cpu(&device);
    vision_open(&vision, &device, &config, DTYPE_F32, true);
    vision_init(&vision, 3);
    assert_int_equal(vision_save(&vision, folder), 0);
    vision_close(&vision);
    device_close(&device);
    assert_int_equal(settings_read(&s, refiner_stage_table, NULL, NULL, values, COUNT_OF(values)), 0);
    both("refiner", refiner_stage_table, measure_refiner, &s);
    settings_release(&s, refiner_stage_table);
    for (int i = 0; i < COUNT_OF(files); i++) {
        char *path = string_format("%s/%s", folder, files[i]);
        assert_int_equal(unlink(path), 0);
        memory_free(path);
    }
    assert_int_equal(rmdir(folder), 0);
}

TEST(an_audio_tokenizer_needs_what_is_estimated)
{
    struct audio_settings s = {0};
    assert_int_equal(settings_read(&s, audio_stage_table, NULL, NULL, audio_values, COUNT_OF(audio_values)), 0);
    both("audio", audio_stage_table, measure_audio, &s);
    settings_release(&s, audio_stage_table);
}

TEST(an_audio_tokenizer_with_semantics_needs_what_is_estimated)
{
    enum { MORE = 2 };
    struct setting_override values[COUNT_OF(audio_values) + MORE] = {
        [COUNT_OF(audio_values)] = {"semantic", "words"}, [COUNT_OF(audio_values) + 1] = {"semantic_words", "4000"}};
    struct audio_settings s = {0};
    memcpy(values, audio_values, sizeof audio_values);
    assert_int_equal(settings_read(&s, audio_stage_table, NULL, NULL, values, COUNT_OF(values)), 0);
    both("audio with semantics", audio_stage_table, measure_audio, &s);
    settings_release(&s, audio_stage_table);
}

TEST(an_audio_tokenizer_with_a_discriminator_needs_what_is_estimated)
{
    enum { MORE = 3 };
    struct setting_override values[COUNT_OF(audio_values) + MORE] = {
        [COUNT_OF(audio_values)] = {"decoder", "istft"},
        [COUNT_OF(audio_values) + 1] = {"discriminator.weight", "1"},
        [COUNT_OF(audio_values) + 2] = {"discriminator.start", "0.6"}};
    struct audio_settings s = {0};
    memcpy(values, audio_values, sizeof audio_values);
    assert_int_equal(settings_read(&s, audio_stage_table, NULL, NULL, values, COUNT_OF(values)), 0);
    both("audio with a discriminator", audio_stage_table, measure_audio, &s);
    settings_release(&s, audio_stage_table);
}

TEST(an_audio_tokenizer_of_samples_needs_what_is_estimated)
{
    struct setting_override values[COUNT_OF(audio_values) + 1] = {[COUNT_OF(audio_values)] = {"decoder", "istft"}};
    struct audio_settings s = {0};
    memcpy(values, audio_values, sizeof audio_values);
    assert_int_equal(settings_read(&s, audio_stage_table, NULL, NULL, values, COUNT_OF(values)), 0);
    both("audio samples", audio_stage_table, measure_audio, &s);
    settings_release(&s, audio_stage_table);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
