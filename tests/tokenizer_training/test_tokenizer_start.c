/* Tokenizers that start from another: continued as one run, trained further, or with the decoder alone. */
#include "core/json.h"
#include "dist/dist.h"
#include "tests/files.h"
#include "tests/model_fixture.h"
#include "tests/scratch.h"
#include "tokenizer_training/code_use.h"
#include "tokenizer_training/tokenizer_start.h"

static struct device device;

static int make(void **state)
{
    device_open_cpu(&device);
    log_set_level(LOG_QUIET);
    make_directory(state);
    succeed(directory_make(path_of("media")));
    succeed(directory_make(path_of("stills")));
    fixture_media(path_of("media"));
    succeed(file_copy(path_of("stills/picture.png"), path_of("media/picture.png")));
    return 0;
}

static int clear(void **state)
{
    device_close(&device);
    return remove_directory(state);
}

#define VISION                                                                                                         \
    "data: @/media, validation: 0, batch: 2, clip_batch: 1, still_batch: 2, augment: 0.5, keep: 99, "                  \
    "checkpoint_steps: 1, "
#define SIZES "size: 32, stride: 8, frames: 5, bits: 6, channels: [8, 5], scales: [1, 4], "
#define AUDIO "data: @/media, validation: 0, batch: 2, augment: 0.5, vocoder_rounds: 2, keep: 99, checkpoint_steps: 1, "
#define AUDIO_SIZES "width: 16, latent: 8, codes: 16, levels: 2, "
#define STEADY ", optimizer: {shape: constant, warmup: 1}"
#define STILL ", optimizer: {lr: 0, warmup: 1}"

static bool is_audio(const char *settings)
{
    return strstr(settings, AUDIO) == settings;
}

/* Runs a stage in the folder `name` with a seed of its own; @ is the folder of the test. */
static int run_in(const char *name, u64 seed, enum dtype dtype, const char *settings)
{
    static max_align_t values[1024];
    struct buffer text = {0};
    const struct setting *table = is_audio(settings) ? audio_stage_table : vision_stage_table;
    struct stage stage = {.name = "stage",
                          .out = path_of(name),
                          .seed = seed,
                          .recipe_seed = 7,
                          .device = &device,
                          .dtype = dtype,
                          .ranks = parallel_alone()};
    buffer_printf(&text, "{");
    for (const char *at = settings; *at; at++)
        if (*at == '@')
            buffer_printf(&text, "%s", directory);
        else
            buffer_append(&text, at, 1);
    buffer_printf(&text, "}");
    memset(values, 0, sizeof values);
    struct yaml *recipe = yaml_parse(text.data, text.length, name);
    assert_non_null(recipe);
    succeed(settings_read(values, table, yaml_root(recipe), NULL, NULL, 0));
    succeed(directory_make(stage.out));
    int status = (table == audio_stage_table ? audio_stage : vision_stage)(values, &stage);
    settings_release(values, table);
    yaml_free(recipe);
    buffer_release(&text);
    return status;
}

static void run(const char *name, u64 seed, const char *settings)
{
    succeed(run_in(name, seed, DTYPE_F32, settings));
}

static void expect_same(const char *a, const char *b, const char *file)
{
    char *one = string_format("%s/%s", a, file), *two = string_format("%s/%s", b, file);
    if (!same_files(path_of(one), path_of(two)))
        fail_msg("%s and %s differ", one, two);
    memory_free(one);
    memory_free(two);
}

static bool same_weights(const char *a, const char *b)
{
    char *one = string_format("%s/weights.safetensors", a), *two = string_format("%s/weights.safetensors", b);
    bool same = same_files(path_of(one), path_of(two));
    memory_free(one);
    memory_free(two);
    return same;
}

/* A tensor of both tokenizers has the same bytes. */
static bool same_tensor(const char *a, const char *b, const char *tensor)
{
    struct safetensors sets[2];
    const char *folders[2] = {a, b};
    const struct tensor_view *found[2];
    for (int i = 0; i < 2; i++) {
        char *path = string_format("%s/weights.safetensors", path_of(folders[i]));
        succeed(safetensors_open(&sets[i], path));
        found[i] = safetensors_find(&sets[i], tensor);
        assert_non_null(found[i]);
        memory_free(path);
    }
    i64 count = tensor_view_elements(found[0]);
    assert_int_equal(count, tensor_view_elements(found[1]));
    float *values = memory_alloc(2 * count * 4);
    succeed(tensor_view_to_f32(values, found[0]));
    succeed(tensor_view_to_f32(values + count, found[1]));
    bool same = memcmp(values, values + count, (size_t)count * 4) == 0;
    memory_free(values);
    safetensors_close(&sets[0]);
    safetensors_close(&sets[1]);
    return same;
}

/* The draws are those of the first stage; so is the step at which codes began. */
TEST(a_continued_tokenizer_is_that_of_one_run)
{
    static const struct {
        const char *base, *more, *whole;
    } cases[] = {
        {VISION SIZES "steps: 2, clip_steps: 2" STEADY, VISION "steps: 2, clip_steps: 4, continue: @/first" STEADY,
         VISION SIZES "steps: 2, clip_steps: 4" STEADY},
        {VISION SIZES "steps: 2, clip_steps: 0" STEADY, VISION "steps: 4, clip_steps: 0, continue: @/first" STEADY,
         VISION SIZES "steps: 4, clip_steps: 0" STEADY},
        {AUDIO AUDIO_SIZES "steps: 4, unquantised_share: 0.5" STEADY,
         AUDIO "steps: 8, unquantised_share: 0.9, continue: @/first" STEADY,
         AUDIO AUDIO_SIZES "steps: 8, unquantised_share: 0.25" STEADY},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        static const char *const names[] = {"first", "more", "whole"};
        for (i64 k = 0; k < COUNT_OF(names); k++)
            succeed(directory_remove(path_of(names[k])));
        run("first", 7, cases[i].base);
        run("more", 8, cases[i].more);
        run("whole", 7, cases[i].whole);
        expect_same("more", "whole", "weights.safetensors");
        expect_same("more", "whole", "config.json");
        assert_false(same_weights("first", "more"));
        succeed(directory_remove(path_of(i < 2 ? "more/checkpoints/step-000004" : "more/checkpoints/step-000008")));
        if (i == 0)
            succeed(directory_remove(path_of("more/checkpoints/step-000006")));
        run("more", 8, cases[i].more); /* resumed from its own checkpoint */
        expect_same("more", "whole", "weights.safetensors");
    }
}

/* With a learning rate of 0 all weights are those before; codes are used from the first step on. */
TEST(a_tokenizer_goes_on_from_another)
{
    run("vis", 7, VISION SIZES "steps: 2, clip_steps: 2, optimizer: {warmup: 1}");
    run("vis-same", 9, VISION "from: @/vis, steps: 2, clip_steps: 2, amplitude_keep: 1" STILL);
    expect_same("vis", "vis-same", "weights.safetensors");
    expect_same("vis", "vis-same", "config.json");
    run("vis-on", 9,
        VISION "from: @/vis, steps: 1, clip_steps: 1, size: 64, amplitude_keep: 1, optimizer: {warmup: 1}");
    expect_same("vis", "vis-on", "config.json");
    assert_false(same_tensor("vis", "vis-on", "encoder.out.weight"));
    assert_true(same_tensor("vis", "vis-on", "amplitude"));
    run("vis-two", 9, VISION "from: @/vis, steps: 2, clip_steps: 0" STEADY);
    run("vis-four", 8, VISION "continue: @/vis-two, steps: 4, clip_steps: 0" STEADY);
    run("vis-once", 9, VISION "from: @/vis, steps: 4, clip_steps: 0" STEADY);
    expect_same("vis-four", "vis-once", "weights.safetensors");
    run("aud", 7, AUDIO AUDIO_SIZES "steps: 4, optimizer: {warmup: 1}");
    run("aud-same", 9, AUDIO "from: @/aud, steps: 2, unquantised_share: 1, codebook_decay: 1" STILL);
    assert_true(same_tensor("aud", "aud-same", "encoder.in"));
    assert_true(same_tensor("aud", "aud-same", "codebooks")); /* no k-means */
    struct buffer lines = {0};
    succeed(file_read(&lines, path_of("aud-same/metrics.jsonl")));
    assert_null(strstr(lines.data, "\"commitment\":0.0,")); /* there are codes */
    buffer_release(&lines);
}

/* What both decoders have is taken over before the first step, when the rate is 0; the rest is new. */
TEST(a_new_decoder_begins_with_the_old_one)
{
    run("aud-new", 9, AUDIO "from: @/aud, decoder: istft, steps: 2, codebook_decay: 1" STILL);
    static const char *const kept[] = {"encoder.fine.1.taps", "codebooks", "decoder.in", "decoder.split"};
    for (i64 i = 0; i < COUNT_OF(kept); i++)
        assert_true(same_tensor("aud", "aud-new", kept[i]));
    struct audio_config config;
    enum dtype dtype;
    succeed(audio_config_load(&config, &dtype, path_of("aud-new")));
    assert_int_equal(config.decoder, AUDIO_ISTFT);
}

/* Of stills to one of clips; codes of stills stay for as long as no weight moves. */
TEST(a_tokenizer_of_stills_learns_clips)
{
    run("still", 7, VISION SIZES "steps: 2, clip_steps: 0, optimizer: {warmup: 1}");
    run("film", 7, VISION "from: @/still, steps: 1, clip_steps: 2, frames: 5, amplitude_keep: 1" STILL);
    assert_true(same_tensor("still", "film", "encoder.in.weight"));
    struct vision_config config;
    succeed(vision_config_load(&config, path_of("film")));
    assert_int_equal(config.shape_count, 2);
    assert_int_equal(config.shapes[1].frames, 5);
    assert_int_equal(config.bits, 6);
    assert_true(config.inflated);
}

/* Bits of a still and a clip by a tokenizer. */
static struct buffer bits_of(const char *name)
{
    struct buffer out = {0};
    struct vision vision;
    u8 *pixels = memory_alloc(5 * 32 * 32 * 3), *again = memory_alloc(5 * 32 * 32 * 3);
    for (i64 i = 0; i < 5 * 32 * 32 * 3; i++)
        pixels[i] = (u8)(i / 3072 * 20 + i % 50);
    succeed(vision_load(&vision, &device, path_of(name), DTYPE_F32, false));
    for (i64 i = 0; i < vision.config.shape_count; i++) {
        const struct vision_shape *s = &vision.config.shapes[i];
        i64 count = s->latent_frames * vision_tokens(s) * vision.config.bits;
        u8 *bits = memory_alloc(count);
        vision_reconstruct(&vision, again, bits, pixels, 1, s);
        buffer_append(&out, (const char *)bits, count);
        memory_free(bits);
    }
    vision_close(&vision);
    memory_free(pixels);
    memory_free(again);
    return out;
}

static struct buffer codes_of(const char *name)
{
    struct buffer out = {0};
    struct audio_tokenizer audio;
    float *samples = memory_alloc(20000 * 4);
    for (i64 i = 0; i < 20000; i++)
        samples[i] = 0.3f * (float)((i * i / 37) % 200 - 100) / 100;
    succeed(audio_load(&audio, &device, path_of(name)));
    i64 count = audio_frames(AUDIO_RATE_HZ, 20000) * audio.config.levels;
    i32 *codes = memory_alloc(count * 4);
    audio_encode(&audio, &(struct audio_item){samples, 20000, codes}, 1);
    buffer_append(&out, (const char *)codes, count * 4);
    audio_close(&audio);
    memory_free(codes);
    memory_free(samples);
    return out;
}

/* Codes stay byte for byte, of `from` and of `continue`, while the decoder learns. */
TEST(the_decoder_learns_alone)
{
    static const struct {
        const char *base, *name, *settings, *kept[4], *learns;
    } cases[] = {
        {"vis",
         "vis-decoder",
         VISION "from: @/vis, train: decoder, steps: 2, clip_steps: 2, optimizer: {warmup: 1}",
         {"encoder.out.bias", "encoder.time1.weight", "amplitude", "encoder.in.weight"},
         "decoder.in.weight"},
        {"vis",
         "vis-more",
         VISION "continue: @/vis, train: decoder, steps: 2, clip_steps: 4, optimizer: {warmup: 1}",
         {"encoder.out.bias", "encoder.time1.weight", "amplitude", "encoder.in.weight"},
         "decoder.time1.weight"},
        {"vis",
         "vis-told",
         VISION "from: @/vis, train: decoder, steps: 2, clip_steps: 2, optimizer: {warmup: 1}, "
                "discriminator: {weight: 1, start: 0, width: 2}, loss: {features: 1, gram: 1}",
         {"encoder.out.bias", "encoder.time1.weight", "amplitude", "encoder.in.weight"},
         "decoder.in.weight"},
        {"aud",
         "aud-decoder",
         AUDIO "from: @/aud, train: decoder, steps: 3, optimizer: {warmup: 1}",
         {"encoder.in", "encoder.out", "codebooks", "encoder.join"},
         "decoder.out"},
        {"aud",
         "aud-more",
         AUDIO "continue: @/aud, train: decoder, steps: 6, optimizer: {warmup: 1}",
         {"encoder.in", "encoder.out", "codebooks", "encoder.join"},
         "decoder.out"},
        {"aud",
         "aud-waves",
         AUDIO "from: @/aud, train: decoder, decoder: istft, steps: 3, optimizer: {warmup: 1}",
         {"encoder.in", "encoder.out", "codebooks", "encoder.join"},
         "decoder.in"},
        {"aud-waves",
         "aud-waves-on",
         AUDIO "from: @/aud-waves, train: decoder, steps: 3, optimizer: {warmup: 1}",
         {"encoder.in", "encoder.out", "codebooks", "encoder.join"},
         "decoder.wave_split"},
        {"aud-waves",
         "aud-waves-told",
         AUDIO "from: @/aud-waves, train: decoder, steps: 3, optimizer: {warmup: 1}, "
               "discriminator: {weight: 1, start: 0, width: 2}",
         {"encoder.in", "encoder.out", "codebooks", "encoder.join"},
         "decoder.wave_split"},
        {"aud-waves-told",
         "aud-waves-untold",
         AUDIO "continue: @/aud-waves-told, train: decoder, steps: 6, optimizer: {warmup: 1}",
         {"encoder.in", "encoder.out", "codebooks", "encoder.join"},
         "decoder.wave_split"},
        {"aud-waves",
         "aud-waves-more",
         AUDIO "continue: @/aud-waves, train: decoder, decoder: istft, steps: 6, optimizer: {warmup: 1}",
         {"encoder.in", "encoder.out", "codebooks", "encoder.join"},
         "decoder.out"},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct buffer (*code)(const char *name) = is_audio(cases[i].settings) ? codes_of : bits_of;
        run(cases[i].name, 9, cases[i].settings);
        if (strcmp(cases[i].name, "aud-waves") != 0)
            expect_same(cases[i].base, cases[i].name, "config.json");
        for (i64 k = 0; k < COUNT_OF(cases[i].kept); k++)
            assert_true(same_tensor(cases[i].base, cases[i].name, cases[i].kept[k]));
        assert_false(same_tensor(cases[i].base, cases[i].name, cases[i].learns));
        struct buffer before = code(cases[i].base), after = code(cases[i].name);
        assert_int_equal(before.length, after.length);
        assert_memory_equal(before.data, after.data, (size_t)before.length);
        buffer_release(&before);
        buffer_release(&after);
    }
}

/* Bits and pictures of a still and a clip. */
struct coded {
    i64 d;
    struct buffer bits, pixels;
};

static struct coded coded_by(const char *name, enum dtype dtype)
{
    struct coded out = {0};
    struct vision vision;
    i64 bytes = 5 * 32 * 32 * 3;
    u8 *pixels = memory_alloc(bytes), *again = memory_alloc(bytes);
    for (i64 i = 0; i < bytes; i++)
        pixels[i] = (u8)(i / 3072 * 20 + i * 7 % 150);
    succeed(vision_load(&vision, &device, path_of(name), dtype, false));
    out.d = vision.config.bits;
    for (i64 i = 0; i < vision.config.shape_count; i++) {
        const struct vision_shape *s = &vision.config.shapes[i];
        i64 count = s->latent_frames * vision_tokens(s) * out.d;
        u8 *bits = memory_alloc(count);
        vision_reconstruct(&vision, again, bits, pixels, 1, s);
        buffer_append(&out.bits, (const char *)bits, count);
        buffer_append(&out.pixels, (const char *)again, s->frames * s->height * s->width * 3);
        memory_free(bits);
    }
    vision_close(&vision);
    memory_free(pixels);
    memory_free(again);
    return out;
}

/* The first bits of all codes of `grown` are those of `base`; so are the pictures, to rounding, if asked. */
static void expect_grown(const char *base, const char *grown, enum dtype dtype, bool pictures)
{
    struct coded a = coded_by(base, dtype), b = coded_by(grown, dtype);
    i64 positions = a.bits.length / a.d;
    assert_int_equal(b.bits.length, positions * b.d);
    assert_true(b.d > a.d);
    for (i64 i = 0; i < positions; i++)
        assert_memory_equal(b.bits.data + i * b.d, a.bits.data + i * a.d, (size_t)a.d);
    assert_int_equal(a.pixels.length, b.pixels.length);
    i64 most = dtype == DTYPE_F32 ? 1 : 3;
    for (i64 i = 0; i < a.pixels.length && pictures; i++)
        assert_in_range((u8)a.pixels.data[i] + most - (u8)b.pixels.data[i], 0, 2 * most);
    buffer_release(&a.bits);
    buffer_release(&a.pixels);
    buffer_release(&b.bits);
    buffer_release(&b.pixels);
}

static struct vision_config config_of(const char *name)
{
    struct vision_config config;
    succeed(vision_config_load(&config, path_of(name)));
    return config;
}

/* Values [first, +count) of row `row` of a tensor. */
static void values_of(float *out, const char *name, const char *tensor, i64 row, i64 first, i64 count)
{
    struct safetensors set;
    char *path = string_format("%s/weights.safetensors", path_of(name));
    succeed(safetensors_open(&set, path));
    const struct tensor_view *view = safetensors_find(&set, tensor);
    assert_non_null(view);
    struct tensor_view part = tensor_view_part(view, row * view->shape[view->rank - 1] + first, count);
    succeed(tensor_view_to_f32(out, &part));
    safetensors_close(&set);
    memory_free(path);
}

static bool same_values(const char *a, const char *b, const char *tensor, i64 row, i64 first, i64 count)
{
    float one[64], two[64];
    values_of(one, a, tensor, row, first, count);
    values_of(two, b, tensor, row, first, count);
    return memcmp(one, two, (size_t)count * 4) == 0;
}

/* Before the first update nothing is heard of the new bits, whatever will learn. */
TEST(new_bits_change_nothing_at_first)
{
    run("vis-grown", 9, VISION "from: @/vis, bits: 10, steps: 2, clip_steps: 2, amplitude_keep: 1" STILL);
    expect_grown("vis", "vis-grown", DTYPE_F32, true);
    expect_grown("vis", "vis-grown", DTYPE_BF16, true);
    assert_true(same_tensor("vis", "vis-grown", "amplitude"));
    assert_int_equal(config_of("vis-grown").bits, 10);
    assert_int_equal(config_of("vis-grown").kept_bits, 0);
    assert_int_equal(config_of("vis-grown").shape_count, config_of("vis").shape_count);
    run("vis-first", 9, VISION "from: @/vis, bits: 10, train: bits, steps: 2, clip_steps: 2" STILL);
    expect_grown("vis", "vis-first", DTYPE_F32, true);
    assert_int_equal(config_of("vis-first").kept_bits, 6);
    run("vis-usual", 9, VISION "from: @/vis, train: bits, steps: 1, clip_steps: 0" STILL); /* to the default */
    expect_grown("vis", "vis-usual", DTYPE_F32, true);
    assert_int_equal(config_of("vis-usual").bits, 32);
    assert_int_equal(vision_bits_stay(path_of("vis"), path_of("vis-first")), 1);
}

/* At the sizes of the defaults, where products are tiled: whatever the number of new bits. */
TEST(first_bits_stay_at_usual_sizes)
{
    enum { PICTURES = 6, BYTES = 64 * 64 * 3 };
    static const i64 more[] = {1, 13, 32, 96};
    struct vision_config config = {.stride = 16, .bits = 32, .channels = {64, 128}, .blocks = {1, 1}};
    succeed(vision_add_shape(&config, 1, 64, 64, 0, NULL, 0));
    const struct vision_shape *s = &config.shapes[0];
    i64 positions = PICTURES * vision_tokens(s);
    u8 *pixels = memory_alloc(PICTURES * BYTES), *again = memory_alloc(PICTURES * BYTES);
    u8 *bits = memory_alloc(positions * 32), *grown = memory_alloc(positions * 128);
    for (i64 i = 0; i < PICTURES * BYTES; i++)
        pixels[i] = (u8)rng_below((struct rng_key){5, RNG_TEST}, 256, (u32)(i / 97), (u32)(i % 3), 0, 0);
    for (enum dtype dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++)
        for (i64 k = 0; k < COUNT_OF(more); k++) {
            struct vision few, many;
            struct vision_config wide = config;
            wide.bits += more[k];
            vision_open(&few, &device, &config, dtype, false);
            vision_open(&many, &device, &wide, dtype, false);
            vision_init(&few, 3);
            vision_init(&many, 4);
            vision_take(&many, &few);
            vision_reconstruct(&few, again, bits, pixels, PICTURES, s);
            vision_reconstruct(&many, again, grown, pixels, PICTURES, s);
            for (i64 i = 0; i < positions; i++)
                assert_memory_equal(grown + i * wide.bits, bits + i * 32, 32);
            vision_close(&few);
            vision_close(&many);
        }
    memory_free(pixels);
    memory_free(again);
    memory_free(bits);
    memory_free(grown);
}

#define GROWS "train: bits, optimizer: {shape: constant, warmup: 1, weight_decay: 0.1}"

/* Codes of the old bits stay byte for byte while new ones and the decoder learn, of `from` and `continue`. */
TEST(first_bits_stay_while_more_learn)
{
    run("vis-bits", 9, VISION "from: @/vis, bits: 10, steps: 2, clip_steps: 2, " GROWS);
    run("vis-bits-more", 8, VISION "continue: @/vis-bits, steps: 2, clip_steps: 4, " GROWS);
    run("vis-bits-whole", 9, VISION "from: @/vis, bits: 10, steps: 2, clip_steps: 4, " GROWS);
    expect_same("vis-bits-more", "vis-bits-whole", "weights.safetensors");
    expect_same("vis-bits-more", "vis-bits-whole", "config.json");
    succeed(directory_remove(path_of("vis-bits-whole/checkpoints/step-000006")));
    succeed(directory_remove(path_of("vis-bits-whole/checkpoints/step-000005")));
    run("vis-bits-whole", 9, VISION "from: @/vis, bits: 10, steps: 2, clip_steps: 4, " GROWS); /* resumed */
    expect_same("vis-bits-more", "vis-bits-whole", "weights.safetensors");
    run("vis-bits-again", 9, VISION "from: @/vis-bits, bits: 10, steps: 1, clip_steps: 1, " GROWS);
    run("vis-bits-decoder", 9, VISION "from: @/vis-bits, train: decoder, steps: 1, clip_steps: 0" STEADY);
    static const char *const grown[] = {"vis-bits", "vis-bits-more", "vis-bits-again", "vis-bits-decoder"};
    for (i64 i = 0; i < COUNT_OF(grown); i++) {
        expect_grown("vis", grown[i], DTYPE_F32, false);
        expect_grown("vis", grown[i], DTYPE_BF16, false);
        assert_int_equal(config_of(grown[i]).kept_bits, 6);
        assert_true(same_tensor("vis", grown[i], "amplitude"));
        assert_true(same_tensor("vis", grown[i], "encoder.in.weight"));
        assert_int_equal(vision_bits_stay(path_of("vis"), path_of(grown[i])), 1);
    }
    for (i64 row = 6; row < 10; row++)
        assert_false(same_values("vis-first", "vis-bits", "encoder.out.weight", row, 0, 5));
    assert_false(same_values("vis-first", "vis-bits", "encoder.out.bias", 0, 6, 4));
    assert_false(same_values("vis-first", "vis-bits", "decoder.in.weight", 0, 0, 6));
    assert_false(same_values("vis-first", "vis-bits", "decoder.in.weight", 0, 6, 4));
    assert_false(same_values("vis-bits", "vis-bits-again", "encoder.out.weight", 9, 0, 5));
    run("vis-all", 9, VISION "from: @/vis-bits, steps: 1, clip_steps: 0" STEADY);
    assert_int_equal(config_of("vis-all").kept_bits, 0);
    assert_int_equal(config_of("vis-all").bits, 10);
    assert_int_equal(vision_bits_stay(path_of("vis"), path_of("vis-all")), 0);
    run("vis-twice", 9, VISION "from: @/vis-bits, bits: 12, steps: 1, clip_steps: 0, " GROWS);
    expect_grown("vis-bits", "vis-twice", DTYPE_F32, false);
    assert_int_equal(config_of("vis-twice").kept_bits, 10);
}

/* The means of the old bits stay; those of the new ones run. */
TEST(centres_of_first_bits_stay)
{
    run("centre", 7, VISION SIZES "centre: true, steps: 2, clip_steps: 2" STEADY);
    run("centre-bits", 9, VISION "from: @/centre, bits: 10, steps: 2, clip_steps: 2, " GROWS);
    expect_grown("centre", "centre-bits", DTYPE_F32, false);
    assert_int_equal(vision_bits_stay(path_of("centre"), path_of("centre-bits")), 1);
    for (i64 clips = 0; clips < 2; clips++) {
        float means[4];
        assert_true(same_values("centre", "centre-bits", "centre", clips, 0, 6));
        values_of(means, "centre-bits", "centre", clips, 6, 4);
        for (i64 i = 0; i < 4; i++)
            assert_true(means[i] != 0);
    }
    run("centre-all", 9, VISION "from: @/centre, bits: 10, steps: 1, clip_steps: 1" STEADY);
    assert_false(same_values("centre", "centre-all", "centre", 0, 0, 6));
}

TEST(bad_starts_are_refused)
{
    static const struct {
        const char *settings, *says;
        bool bf16;
    } cases[] = {
        {VISION "from: @/vis, train: decoder, bits: 8", "bits is 8, and the tokenizer of"},
        {VISION "from: @/vis, train: decoder, bits: 8", "train: decoder keeps its codes; omit bits"},
        {VISION "from: @/vis, bits: 4", "bits is 4, fewer than the 6 of the tokenizer of"},
        {VISION "continue: @/vis, steps: 3, bits: 64", "bits is 64, and the tokenizer of"},
        {VISION "from: @/vis, bits: 4, train: bits", "bits is 4, fewer than the 6 of the tokenizer of"},
        {VISION "from: @/vis, bits: 6, train: bits", "train: bits has no new bits that could learn: the tokenizer of"},
        {VISION "continue: @/vis, steps: 3, train: bits", "train: bits has no new bits that could learn"},
        {VISION "from: @/vis-bits, bits: 8, train: bits", "bits is 8, fewer than the 10 of the tokenizer of"},
        {VISION "from: @/still, bits: 8, train: bits", "train: bits keeps its shapes: expected clip_steps: 0"},
        {VISION "from: @/kept", "the first 7 bits of 6 are kept: expected at most as many as there are"},
        {VISION "from: @/vis, channels: [8, 6]", "channels is 6, and the tokenizer of"},
        {VISION "from: @/vis, centre: true", "centre is 1, and the tokenizer of"},
        {VISION "from: @/vis, blocks: [1, 0]", "blocks is 0, fewer than the 1"},
        {VISION "from: @/vis, stride: 16, steps: 1, clip_steps: 0, optimizer: {warmup: 1}", NULL},
        {VISION "continue: @/vis, steps: 2, clip_steps: 2", "4 steps, and"},
        {VISION "continue: @/vis, steps: 3, clip_steps: 2", "expected steps: 2 and more clip_steps"},
        {VISION "continue: @/still, steps: 3, clip_steps: 2", "continue keeps its shapes: expected clip_steps: 0"},
        {VISION "from: @/still, steps: 3, clip_steps: 2, train: decoder", "train: decoder keeps its shapes"},
        {VISION "from: @/still, steps: 1, clip_steps: 1, size: 64, scales: [1, 2, 8], optimizer: {warmup: 1}", NULL},
        {VISION "from: @/media", "config.json"},
        {VISION "from: @/aud", "this is no vision tokenizer but a"},
        {VISION "continue: @/media", "no checkpoint"},
        {AUDIO "from: @/aud, levels: 1", "levels is 1, fewer than the 2 of the tokenizer of"},
        {AUDIO "from: @/aud, codes: 32, train: decoder", "codes is 32, and the tokenizer of"},
        {AUDIO "from: @/vis", "config.json"},
        {AUDIO "from: @/aud, rate_hz: 24000", "rate_hz is 24000, and the tokenizer of"},
        {AUDIO "from: @/aud, decoder: istft, causal: true", "causal is 1, and the tokenizer of"},
        {AUDIO "continue: @/aud, decoder: istft, steps: 9", "decoder: istft, and the tokenizer of"},
        {AUDIO "continue: @/aud, steps: 4", "4 steps, and"},
        {AUDIO "from: @/aud, train: decoder", "was trained in f32", true},
    };
    static const char kept[] =
        "{\"kind\": \"vision\", \"stride\": 8, \"bits\": 6, \"kept_bits\": 7, \"channels\": [8, 5], "
        "\"shapes\": [{\"frames\": 1, \"height\": 32, \"width\": 32, \"scales\": [1, 4]}]}";
    succeed(directory_make(path_of("kept")));
    succeed(file_replace(path_of("kept/config.json"), kept, (i64)strlen(kept)));
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        succeed(directory_remove(path_of("bad")));
        if (!cases[i].says) /* 16 is the default of stride; shapes of the settings are not read */
            succeed(run_in("bad", 7, DTYPE_F32, cases[i].settings));
        else if (run_in("bad", 7, cases[i].bf16 ? DTYPE_BF16 : DTYPE_F32, cases[i].settings) == 0)
            fail_msg("%s was taken", cases[i].settings);
        else if (!strstr(error_text(), cases[i].says) || strchr(error_text(), '\n'))
            fail_msg("%s says: %s", cases[i].settings, error_text());
    }
}

int main(void)
{
    return tests_run(make, clear);
}
