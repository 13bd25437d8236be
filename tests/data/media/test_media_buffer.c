/* Media of packed archives in windows: each is drawn equally often, with unchanged content; an
 * interrupted run draws the same; one window is in memory at a time. */
#include "tokenizer_training/audio_step.h"
#include "tokenizer_training/vision_step.h"
#include "dist/dist.h"
#include "tests/scratch.h"
#include "tests/tar_text.h"

enum { SIZE = 16, STILLS = 37, CLIPS = 9, SOUNDS = 30, SAMPLES = 4000 };
static const double still_mib = 8.0 * SIZE * SIZE * 3 / (1 << 20); /* 8 stills, or 1 clip */
static struct device device;

static void add_file(struct buffer *tar, int number, const char *ending)
{
    struct buffer bytes = {0};
    char name[32];
    snprintf(name, sizeof name, "%03d.%s", number, ending);
    succeed(file_read(&bytes, path_of("one")));
    tar_member_of(tar, name, bytes.data, bytes.length);
    buffer_release(&bytes);
}

/* Adds media of all kinds in turn, each with its own shade or loudness. */
static void add_pictures(struct buffer *tar, int i)
{
    u8 pixels[5 * SIZE * SIZE * 3];
    struct clip clip = {5, SIZE, SIZE, 8, pixels};
    memset(pixels, 5 * i + 10, sizeof pixels);
    succeed(image_write_png(path_of("one"), pixels, SIZE, SIZE));
    add_file(tar, i, "png");
    if (i >= CLIPS)
        return;
    succeed(clip_write_mp4(path_of("one"), &clip));
    add_file(tar, 100 + i, "mp4");
}

static void add_sound(struct buffer *tar, int i)
{
    struct sound sound;
    sound_init(&sound, SAMPLES + i, AUDIO_RATE_HZ);
    for (i64 k = 0; k < sound.samples; k++)
        sound.values[k] = (float)((i + 1) * (k % 7 - 3)) / 200;
    succeed(sound_write_wav(path_of("one"), &sound));
    add_file(tar, 200 + i, "wav");
    sound_release(&sound);
}

static int make(void **state)
{
    struct buffer tar = {0};
    if (make_directory(state) < 0)
        return -1;
    workers_start(2);
    device_open_cpu(&device);
    succeed(directory_make(path_of("in/train")));
    for (int i = 0; i < STILLS; i++) {
        add_pictures(&tar, i);
        if (i < SOUNDS)
            add_sound(&tar, i);
    }
    tar_member(&tar, "300.png", "no picture"); /* skipped */
    tar_end(&tar);
    succeed(file_replace(path_of("all.tar"), tar.data, tar.length));
    buffer_release(&tar);
    char *command = string_format("gzip -c %s > %s", path_of("all.tar"), path_of("in/train/packed.tar.gz"));
    int status = system(command);
    memory_free(command);
    return status;
}

static int clear(void **state)
{
    device_close(&device);
    return remove_directory(state);
}

static void load_pictures(struct vision_media *media, double mib)
{
    struct media_request from = {.data = path_of("in")};
    struct vision_media_request request = {
        {{1, {{SIZE, SIZE}}}, {1, {{SIZE, SIZE}}}}, 5, 8, 1, picture_rules_usual, 0, mib};
    succeed(vision_media_load(media, &from, &request));
    assert_true(media->still_count == STILLS && media->clip_count == CLIPS);
}

/* Finds the still shown by each draw of an epoch, one per batch. */
static void draw_epoch(int *seen, const struct vision_media *media, i64 epoch, i64 first)
{
    u8 out[SIZE * SIZE * 3];
    for (i64 i = first; i < STILLS; i++) {
        struct vision_draw draw = {.n = 1, .frames = 1, .first = epoch * STILLS + i, .step = i, .seed = 5};
        succeed(vision_media_draw(out, media, &draw));
        seen[i] = (out[0] - 10) / 5;
    }
}

TEST(an_epoch_shows_each_picture_once)
{
    struct vision_media media, other;
    int seen[2][STILLS], later[STILLS], times[STILLS] = {0};
    load_pictures(&media, still_mib);
    load_pictures(&other, still_mib);
    assert_int_equal(media.bytes, 0);
    assert_int_equal(media_buffer_windows(media.still_buffer), (STILLS + 7) / 8);
    for (int epoch = 0; epoch < 2; epoch++)
        draw_epoch(seen[epoch], &media, epoch, 0);
    for (i64 i = 0; i < STILLS; i++) {
        times[seen[0][i]]++;
        assert_int_equal(seen[0][i] / 8, i / 8); /* archive order, window by window */
    }
    for (i64 i = 0; i < STILLS; i++)
        assert_int_equal(times[i], 1);
    assert_memory_not_equal(seen[0], seen[1], sizeof seen[0]);
    draw_epoch(later, &other, 1, 21); /* from the middle on, as after a kill */
    assert_memory_equal(later + 21, seen[1] + 21, (STILLS - 21) * sizeof later[0]);
    vision_media_release(&media);
    vision_media_release(&other);
}

/* A third of the pictures are long. */
static void make_long(void)
{
    struct buffer tar = {0};
    u8 pixels[SIZE * SIZE * 3];
    for (int i = 0; i < STILLS; i++) {
        memset(pixels, 5 * i + 10, sizeof pixels);
        i64 height = i % 3 ? SIZE : SIZE / 2;
        succeed(image_write_png(path_of("one"), pixels, height, SIZE * SIZE / height));
        add_file(&tar, i, "png");
    }
    tar_end(&tar);
    succeed(directory_make(path_of("long/train")));
    succeed(file_replace(path_of("all.tar"), tar.data, tar.length));
    buffer_release(&tar);
    char *command = string_format("gzip -c %s > %s", path_of("all.tar"), path_of("long/train/packed.tar.gz"));
    assert_int_equal(system(command), 0);
    memory_free(command);
}

TEST(an_epoch_of_a_shape_shows_each_of_its_pictures_once)
{
    struct vision_media_request request = {
        {{2, {{SIZE, SIZE}, {SIZE / 2, 2 * SIZE}}}, {1, {{SIZE, SIZE}}}}, 5, 8, 1, picture_rules_usual, 0, still_mib};
    struct vision_media media;
    int times[STILLS] = {0};
    u8 out[SIZE * SIZE * 3];
    make_long();
    struct media_request from = {.data = path_of("long")};
    succeed(vision_media_load(&media, &from, &request));
    for (i64 shape = 0; shape < 2; shape++) {
        i64 count = vision_media_count(&media, false, shape), window = 0;
        assert_int_equal(count, shape ? (STILLS + 2) / 3 : STILLS - (STILLS + 2) / 3);
        for (i64 i = 0; i < count; i++) {
            struct vision_draw draw = {.n = 1, .frames = 1, .shape = shape, .first = i, .step = i, .seed = 5};
            succeed(vision_media_draw(out, &media, &draw));
            int number = (out[0] - 10) / 5;
            assert_true((number % 3 == 0) == (shape == 1) && number / 8 >= window); /* window by window */
            window = number / 8;
            times[number]++;
        }
    }
    for (i64 i = 0; i < STILLS; i++)
        assert_int_equal(times[i], 1);
    vision_media_release(&media);
}

/* Batches of clips that are larger than their windows. */
TEST(what_is_drawn_is_what_is_there)
{
    struct vision_media kept, media;
    static u8 out[2][4 * 5 * SIZE * SIZE * 3];
    i64 found = 0;
    load_pictures(&kept, 0);
    load_pictures(&media, still_mib);
    assert_non_null(kept.clips[0]);
    for (i64 i = 0; i < CLIPS; i++) {
        succeed(vision_media_copy(out[0], &kept, true, i, 5));
        succeed(vision_media_copy(out[1], &media, true, i, 5));
        assert_memory_equal(out[0], out[1], 5 * SIZE * SIZE * 3);
    }
    struct vision_draw draw = {.n = 4, .frames = 5, .first = 3, .step = 1, .augment = 0.5, .seed = 5};
    succeed(vision_media_draw(out[0], &media, &draw));
    succeed(vision_media_draw(out[1], &media, &draw));
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    for (i64 i = 0; i < STILLS; i++)
        found += kept.stills[i] != NULL;
    assert_int_equal(found, STILLS); /* without windows all stay in memory */
    vision_media_release(&kept);
    vision_media_release(&media);
}

static void load_sounds(struct audio_media *media, i64 memory_mb, double mib)
{
    struct media_request from = {.data = path_of("in")};
    succeed(audio_media_load(media, &from, &(struct audio_media_request){0, memory_mb, mib}));
    assert_int_equal(media->count, SOUNDS);
}

static int loudness(const float *samples, i64 count)
{
    float most = 0;
    for (i64 i = 0; i < count; i++)
        most = samples[i] > most ? samples[i] : most;
    return (int)(most * 200 / 3 + 0.5f) - 1;
}

TEST(every_sound_has_its_turn)
{
    enum { N = 6, CROP = 2000, STEPS = 50 }; /* 10 draws each on average */
    struct audio_media kept, media, other;
    float out[2][N * CROP], response[N * 4];
    int times[SOUNDS] = {0};
    load_sounds(&kept, 100, 0);
    load_sounds(&media, 0, 7.5 * SAMPLES * 2 / (1 << 20));
    load_sounds(&other, 0, 7.5 * SAMPLES * 2 / (1 << 20));
    assert_int_equal(media.bytes, 0);
    assert_int_equal(media_buffer_windows(media.buffer), 5);
    struct audio_draw draw = {.n = N, .samples = CROP, .bins = 4, .seed = 3};
    for (draw.step = 0; draw.step < STEPS; draw.step++) {
        succeed(audio_media_draw(out[0], response, &media, &draw));
        for (i64 i = 0; i < N; i++)
            times[loudness(out[0] + i * CROP, CROP)]++;
        if (draw.step != 37)
            continue;
        succeed(audio_media_draw(out[1], response, &other, &draw)); /* first draw of another run */
        assert_memory_equal(out[0], out[1], sizeof out[0]);
    }
    for (i64 i = 0; i < SOUNDS; i++) {
        i64 frames[2];
        assert_in_range(times[i], 1, 25);
        float *one = audio_clip_samples(&kept.clips[i], &frames[0]),
              *two = audio_clip_samples(&media.clips[i], &frames[1]);
        assert_true(one && two && frames[0] == frames[1]);
        assert_memory_equal(one, two, (size_t)(kept.clips[i].samples * 4));
        memory_free(one);
        memory_free(two);
    }
    audio_media_release(&kept);
    audio_media_release(&media);
    audio_media_release(&other);
}

/* ---- stages ---- */

static struct buffer train(int (*run)(const void *, const struct stage *), const void *settings, const char *out)
{
    struct buffer weights = {0};
    struct stage stage = {.name = "codec",
                          .out = out,
                          .seed = 4,
                          .device = &device,
                          .dtype = DTYPE_F32,
                          .calibrated = true,
                          .ranks = parallel_alone()};
    char *path = path_join(out, "weights.safetensors");
    succeed(directory_make(out));
    succeed(run(settings, &stage));
    succeed(file_read(&weights, path));
    memory_free(path);
    return weights;
}

/* Deletes the later checkpoint and everything after it, like a killed run. */
static void assert_resumes(int (*run)(const void *, const struct stage *), const void *settings)
{
    directory_remove(path_of("out"));
    struct buffer whole = train(run, settings, path_of("out"));
    succeed(directory_remove(path_of("out/checkpoints/step-000012")));
    unlink(path_of("out/report.json"));
    struct buffer again = train(run, settings, path_of("out"));
    assert_int_equal(whole.length, again.length);
    assert_memory_equal(whole.data, again.data, (size_t)whole.length);
    buffer_release(&whole);
    buffer_release(&again);
}

TEST(a_resumed_audio_stage_is_the_uninterrupted_one)
{
    struct audio_settings settings;
    struct setting_override all[] = {{"data", path_of("in")}, {"width", "32"},
                                     {"latent", "16"},        {"codes", "16"},
                                     {"levels", "2"},         {"steps", "12"},
                                     {"batch", "3"},          {"augment", "0.5"},
                                     {"memory_mb", "0"},      {"shuffle_buffer", "0.06"},
                                     {"validation", "0"},     {"checkpoint_steps", "6"}};
    memset(&settings, 0, sizeof settings);
    succeed(settings_read(&settings, audio_stage_table, NULL, NULL, all, COUNT_OF(all)));
    assert_resumes(audio_stage, &settings);
    settings_release(&settings, audio_stage_table);
}

TEST(a_resumed_vision_stage_is_the_uninterrupted_one)
{
    struct vision_settings settings;
    struct setting_override all[] = {{"data", path_of("in")},
                                     {"size", "16"},
                                     {"frames", "5"},
                                     {"rate_hz", "8"},
                                     {"channels", "[6, 8]"},
                                     {"blocks", "[1, 1]"},
                                     {"stride", "8"},
                                     {"bits", "5"},
                                     {"steps", "8"},
                                     {"clip_steps", "4"},
                                     {"batch", "6"},
                                     {"clip_batch", "2"},
                                     {"memory_mb", "0"},
                                     {"bad_share", "0.5"},
                                     {"shuffle_buffer", "0.01"},
                                     {"validation", "0"},
                                     {"checkpoint_steps", "6"}};
    memset(&settings, 0, sizeof settings);
    succeed(settings_read(&settings, vision_stage_table, NULL, NULL, all, COUNT_OF(all)));
    assert_resumes(vision_stage, &settings);
    settings_release(&settings, vision_stage_table);
}

/* The archive changed after it was first read. */
TEST(an_archive_that_shrinks_is_named)
{
    struct audio_media media;
    struct buffer tar = {0};
    i64 frames;
    load_sounds(&media, 0, 0.01);
    add_sound(&tar, 0);
    tar_end(&tar);
    succeed(file_replace(path_of("in/train/packed.tar.gz"), tar.data, tar.length));
    assert_null(audio_clip_samples(&media.clips[SOUNDS - 1], &frames));
    assert_says("it has fewer media than when it was read first");
    audio_media_release(&media);
    buffer_release(&tar);
}

int main(void)
{
    return tests_run(make, clear);
}
