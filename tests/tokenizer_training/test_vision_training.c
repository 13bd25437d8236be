/* Training of the vision tokenizer: its steps, its bits, its stage, its media. */
#define _GNU_SOURCE
#include "data/media/media.h"
#include "dist/dist.h"
#include "tests/events_fixture.h"
#include "tests/vision_fixture.h"
#include "tests/files.h"

#include <unistd.h>

/* ---- training ---- */

static void default_settings(struct vision_settings *s, const char *data, const struct setting_override *more,
                             i64 count)
{
    struct setting_override all[32] = {{"data", data}, {"size", "16"},      {"stride", "8"},
                                       {"bits", "16"}, {"frames", "5"},     {"channels", "[16, 24]"},
                                       {"batch", "2"}, {"clip_batch", "2"}, {"still_batch", "2"}};
    i64 n = 9;
    memset(s, 0, sizeof *s);
    for (i64 i = 0; i < count; i++)
        all[n++] = more[i];
    if (settings_read(s, vision_stage_table, NULL, NULL, all, n))
        fail_msg("%s", error_text());
}

TEST(one_picture_is_learnt)
{
    struct vision_settings settings;
    struct setting_override more[] = {{"steps", "300"}, {"clip_steps", "0"}, {"augment", "0"}, {"batch", "1"}};
    default_settings(&settings, "./none", more, 4);
    u8 *pixels = toy_pixels(1, 1, 16), again[16 * 16 * 3];
    struct vision_media media = {.request = {.shapes = SQUARE(16)}, .still_count = 1, .stills = &pixels};
    struct vision_config config = {.stride = 8, .bits = 16, .channels = {16, 24}, .blocks = {1, 1}};
    assert_int_equal(vision_add_shape(&config, 1, 16, 16, 0, NULL, 0), 0);
    for (int precision = 0; precision < 2; precision++) {
        if (!is_nightly() && precision != is_guarded(&device))
            continue; /* f32 on one device, bf16 on the other */
        struct vision_trainer t = {.settings = &settings, .media = &media, .seed = 5, .still_steps = 300};
        struct vision_step_result result;
        vision_trainer_open(&t, &device, &config, precision ? DTYPE_BF16 : DTYPE_F32);
        vision_init(&t.vision, 5);
        for (i64 step = 0; step < 300; step++)
            vision_step(&result, &t, step);
        vision_reconstruct(&t.vision, again, NULL, pixels, 1, &config.shapes[0]);
        double psnr = vision_psnr(vision_square_error(again, pixels, sizeof again));
        if (psnr < 30 || result.psnr_db < 30)
            fail_msg("PSNR %.1f dB after 300 steps on one picture; the last step said %.1f", psnr, result.psnr_db);
        vision_trainer_close(&t);
    }
    memory_free(pixels);
    settings_release(&settings, vision_stage_table);
}

/* A weight of the decoder that is not finite leaves the amplitudes finite; the gradients are not. */
TEST(a_skipped_step_moves_no_amplitude_and_no_centre)
{
    struct vision_settings settings;
    struct setting_override more[] = {{"steps", "4"}, {"clip_steps", "0"}, {"batch", "1"}};
    struct vision_config config = {.stride = 8, .bits = 16, .channels = {16, 24}, .blocks = {1, 1}, .centred = true};
    struct vision_step_result result;
    default_settings(&settings, "./none", more, 3);
    u8 *pixels = toy_pixels(1, 1, 16);
    struct vision_media media = {.request = {.shapes = SQUARE(16)}, .still_count = 1, .stills = &pixels};
    assert_int_equal(vision_add_shape(&config, 1, 16, 16, 0, NULL, 0), 0);
    struct vision_trainer t = {.settings = &settings, .media = &media, .seed = 5, .still_steps = 4};
    vision_trainer_open(&t, &device, &config, DTYPE_F32);
    vision_init(&t.vision, 5);
    struct weight *amplitude = t.vision.at.amplitude;
    float *values[4], *centres[4];
    for (i64 step = 0; step < 3; step++) {
        values[step] = weight_values(&t.vision.weights, amplitude);
        centres[step] = weight_values(&t.vision.weights, t.vision.at.centre);
        if (step == 2) {
            struct weight *last = NULL;
            for (i64 i = 0; i < t.vision.weights.count; i++)
                if (t.vision.weights.list[i].value.needs_grad)
                    last = &t.vision.weights.list[i];
            float *broken = weight_values(&t.vision.weights, last);
            broken[0] = NAN;
            weight_put(&t.vision.weights, last, 0, last->matrices * last->rows, broken);
            memory_free(broken);
        }
        assert_int_equal(vision_step(&result, &t, step), 0);
        assert_int_equal(result.optimizer.skipped, step == 2);
    }
    values[3] = weight_values(&t.vision.weights, amplitude);
    centres[3] = weight_values(&t.vision.weights, t.vision.at.centre);
    size_t bytes = (size_t)(amplitude->value.rows * amplitude->value.columns) * 4;
    assert_memory_not_equal(values[1], values[2], bytes);
    assert_memory_equal(values[2], values[3], bytes);
    assert_memory_not_equal(centres[1], centres[2], 16 * 4);
    assert_memory_equal(centres[2], centres[3], 2 * 16 * 4);
    for (i64 c = 0; c < 16; c++) /* no clip was seen */
        assert_true(centres[2][16 + c] == 0);
    for (int i = 0; i < 4; i++) {
        memory_free(values[i]);
        memory_free(centres[i]);
    }
    vision_trainer_close(&t);
    memory_free(pixels);
    settings_release(&settings, vision_stage_table);
}

/* The mean of 16 amplitudes after three steps. */
static double amplitude_with(const char *keep)
{
    struct vision_settings settings;
    struct setting_override more[] = {
        {"steps", "3"}, {"clip_steps", "0"}, {"batch", "1"}, {"augment", "0"}, {"amplitude_keep", keep}};
    struct vision_config config = {.stride = 8, .bits = 16, .channels = {16, 24}, .blocks = {1, 1}};
    struct vision_step_result result;
    default_settings(&settings, "./none", more, COUNT_OF(more));
    u8 *pixels = toy_pixels(1, 1, 16);
    struct vision_media media = {.request = {.shapes = SQUARE(16)}, .still_count = 1, .stills = &pixels};
    assert_int_equal(vision_add_shape(&config, 1, 16, 16, 0, NULL, 0), 0);
    struct vision_trainer t = {.settings = &settings, .media = &media, .seed = 5, .still_steps = 3};
    vision_trainer_open(&t, &device, &config, DTYPE_F32);
    vision_init(&t.vision, 5);
    for (i64 step = 0; step < 3; step++)
        assert_int_equal(vision_step(&result, &t, step), 0);
    float *values = weight_values(&t.vision.weights, t.vision.at.amplitude);
    double mean = 0;
    for (i64 i = 0; i < 16; i++)
        mean += values[i] / 16;
    memory_free(values);
    vision_trainer_close(&t);
    memory_free(pixels);
    settings_release(&settings, vision_stage_table);
    return mean;
}

/* Early steps keep less than the setting says: 0, 1/11 and 2/12 of the mean before. */
TEST(amplitudes_keep_what_the_setting_says)
{
    double none = amplitude_with("0"), some = amplitude_with("0.1"), most = amplitude_with("0.99");
    assert_true(none != some && some != most && none != most);
    assert_true(amplitude_with("0.2") == most);
}

/* Trains a few steps, then codes a clip: hashes gradients, optimizer, encoder and decoder. */
static u64 hash_of_training(int threads)
{
    struct vision_settings settings;
    struct setting_override more[] = {{"steps", "2"}, {"clip_steps", "4"}};
    default_settings(&settings, "./none", more, 2);
    workers_start(threads);
    u8 *pixels[2] = {toy_pixels(3, 5, 16), toy_pixels(2, 5, 16)}, *still[3], *out = memory_alloc(5 * 768);
    i64 clip_frames[2] = {5, 5};
    for (int i = 0; i < 3; i++)
        still[i] = pixels[0] + i * 5 * 768;
    struct vision_media media = {.request = {.shapes = SQUARE(16)},
                                 .still_count = 3,
                                 .stills = still,
                                 .clip_count = 2,
                                 .clips = pixels,
                                 .clip_frames = clip_frames};
    struct vision_config config = {.stride = 8, .bits = 16, .channels = {16, 24}, .blocks = {1, 1}, .centred = true};
    vision_add_shape(&config, 1, 16, 16, 0, NULL, 0);
    vision_add_shape(&config, 5, 16, 16, 8, NULL, 0);
    struct vision_trainer t = {.settings = &settings, .media = &media, .seed = 5, .still_steps = 2, .clip_steps = 4};
    struct vision_step_result result;
    vision_trainer_open(&t, &device, &config, DTYPE_BF16);
    vision_init(&t.vision, 5);
    for (i64 step = 0; step < 6; step++)
        vision_step(&result, &t, step);
    vision_reconstruct(&t.vision, out, NULL, pixels[0], 1, &config.shapes[1]);
    u64 hash = hash_bytes(out, 5 * 768, (u64)(result.losses.of[VISION_L2] * 1e15));
    for (i64 i = 0; i < t.vision.weights.count; i++) {
        struct weight *w = &t.vision.weights.list[i];
        float *values = weight_values(&t.vision.weights, w);
        hash = hash_bytes(values, w->value.rows * w->value.columns * 4, hash);
        memory_free(values);
    }
    vision_trainer_close(&t);
    memory_free(pixels[0]);
    memory_free(pixels[1]);
    memory_free(out);
    settings_release(&settings, vision_stage_table);
    return hash;
}

TEST(bits_do_not_depend_on_threads_or_the_wall)
{
    static u64 plain;
    u64 one = hash_of_training(1);
    plain = plain ? plain : one;
    assert_int_equal(one, plain);
    assert_int_equal(one, hash_of_training(2));
    assert_int_equal(one, hash_of_training(4));
    assert_int_equal(one, hash_of_training(2));
    workers_start(2);
}

/* ---- the stage ---- */

static void write_item(struct buffer *captions, const char *folder, const char *kind, i64 number, i64 frames)
{
    char name[32], *path;
    snprintf(name, sizeof name, "%s%lld.%s", kind, (long long)number, frames > 1 ? "mp4" : "png");
    path = path_join(folder, name);
    u8 *pixels = toy_pixels(1 + number, frames, 16);
    struct clip clip = {frames, 16, 16, 8, pixels + number * frames * 768};
    assert_int_equal(frames > 1 ? clip_write_mp4(path, &clip) : image_write_png(path, clip.pixels, 16, 16), 0);
    buffer_printf(captions, "{\"%s\":\"%s\",\"text\":\"\"}\n", kind, name);
    memory_free(pixels);
    memory_free(path);
}

static char *make_corpus(const char *folder)
{
    struct buffer captions = {0};
    char *data = path_join(folder, "data"), *path = path_join(data, "captions.jsonl");
    assert_int_equal(directory_make(data), 0);
    for (i64 i = 0; i < 6; i++)
        write_item(&captions, data, i < 4 ? "image" : "video", i, i < 4 ? 1 : 5 + 2 * (i - 4));
    assert_int_equal(file_replace(path, captions.data, captions.length), 0);
    buffer_release(&captions);
    memory_free(path);
    return data;
}

static int run_stage(const char *data, const char *out, const struct setting_override *more, i64 count)
{
    struct vision_settings settings;
    struct stage stage = {.name = "vision",
                          .out = out,
                          .seed = 9,
                          .recipe_seed = 9,
                          .device = &device,
                          .dtype = DTYPE_BF16,
                          .calibrated = true,
                          .ranks = parallel_alone()};
    default_settings(&settings, data, more, count);
    assert_int_equal(directory_make(out), 0);
    int status = vision_stage(&settings, &stage);
    settings_release(&settings, vision_stage_table);
    return status;
}

/* Deletes the last checkpoint, as if the run had been killed after the previous one. */
static void cut_short(const char *out, const char *last)
{
    char *checkpoints = path_join(out, "checkpoints"), *path = path_join(checkpoints, last);
    assert_true(file_is_directory(path));
    assert_int_equal(directory_remove(path), 0);
    memory_free(path);
    path = path_join(out, "weights.safetensors");
    assert_int_equal(unlink(path), 0);
    memory_free(path);
    memory_free(checkpoints);
}

/* The report gives the layout of each sheet of originals and reconstructions. */
static void assert_sheets_are_there(const char *out)
{
    char *path = path_join(out, "report.json");
    struct json *report = json_load(path);
    struct json_iterator it;
    i64 sheets = 0;
    for (bool more = json_first(&it, report); more; more = json_next(&it, report)) {
        const struct json *sheet = json_get(it.value, "sheet");
        if (!sheet)
            continue;
        i64 rows = json_integer(json_get(sheet, "rows"), 0), columns = json_integer(json_get(sheet, "columns"), 0);
        i64 pairs = json_integer(json_get(sheet, "pairs"), 0), frames = json_integer(json_get(sheet, "frames"), 0);
        char *file = path_join(out, json_string(json_get(sheet, "file"), "none"));
        assert_true(file_exists(file) && pairs > 0 && 2 * pairs * frames <= rows * columns);
        assert_true(events_have_file(out, json_string(json_get(sheet, "file"), "none")));
        memory_free(file);
        sheets++;
    }
    assert_true(sheets > 0);
    json_free(report);
    memory_free(path);
}

TEST(resumed_runs_equal_uninterrupted_ones)
{
    static const char *const kinds[] = {"4", "0"}, *const lasts[] = {"step-000007", "step-000003"};
    char folder[64];
    make_vision_folder(folder);
    char *data = make_corpus(folder), *out[2] = {path_join(folder, "a"), path_join(folder, "b")};
    for (int k = 0; k < 2; k++) {
        struct setting_override more[] = {
            {"steps", "3"}, {"clip_steps", kinds[k]}, {"checkpoint_steps", k ? "2" : "5"}};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(directory_remove(out[i]), 0);
            if (run_stage(data, out[i], more, 3))
                fail_msg("%s", error_text());
        }
        cut_short(out[1], lasts[k]);
        assert_int_equal(run_stage(data, out[1], more, 3), 0);
        expect_same_file(out[0], out[1], "weights.safetensors");
        expect_same_file(out[0], out[1], "config.json");
        expect_same_file(out[0], out[1], "report.json");
        expect_same_file(out[0], out[1], "samples/stills_training.png");
        assert_sheets_are_there(out[0]);
    }
    memory_free(out[0]);
    memory_free(out[1]);
    memory_free(data);
    directory_remove(folder);
}

TEST(bad_media_are_skipped_up_to_a_share)
{
    char folder[64];
    make_vision_folder(folder);
    char *data = make_corpus(folder), *bad = path_join(data, "image0.png");
    struct vision_media media;
    struct vision_media_request request = {SQUARE(16), 5, 8, 0.2, picture_rules_usual};
    struct media_request from = {.data = data};
    assert_int_equal(file_replace(bad, "no picture", 10), 0);
    assert_int_equal(vision_media_load(&media, &from, &request), 0);
    assert_int_equal(media.bad_count, 1);
    assert_int_equal(media.still_count, 3);
    assert_int_equal(media.clip_count, 2);
    assert_true(media.clip_frames[0] >= 5);
    vision_media_release(&media);
    request.bad_share = 0.1;
    assert_int_equal(vision_media_load(&media, &from, &request), -1);
    assert_non_null(strstr(error_text(), "1 of 6"));
    from.split = SPLIT_TEST;
    assert_int_equal(vision_media_load(&media, &from, &request), 0);
    assert_int_equal(media.still_count + media.bad_count, 0);
    vision_media_release(&media);
    memory_free(bad);
    memory_free(data);
    directory_remove(folder);
}

/* Pictures of 16 x 16 pixels, and clips of 5 and 7 frames. */
TEST(tiny_pictures_and_short_clips_are_counted)
{
    static const struct {
        i64 side, frames, small, brief;
    } cases[] = {{16, 5, 0, 0}, {17, 7, 4, 1}, {17, 9, 4, 2}};
    char folder[64];
    make_vision_folder(folder);
    char *data = make_corpus(folder);
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct vision_media media;
        struct vision_media_request request = {SQUARE(16), cases[i].frames, 8, 0, picture_rules_usual};
        struct media_request from = {.data = data};
        request.side_least = cases[i].side;
        assert_int_equal(vision_media_load(&media, &from, &request), 0);
        assert_int_equal(media.tiny_count, cases[i].small);
        assert_int_equal(media.short_count, cases[i].brief);
        vision_media_release(&media);
    }
    memory_free(data);
    directory_remove(folder);
}

/* Three pictures to train on, three held out; one is the same file under another name. */
TEST(held_out_files_that_are_trained_on_are_counted)
{
    static const char *const splits[] = {"train", "validation"};
    char folder[64];
    make_vision_folder(folder);
    char *data = path_join(folder, "data"), *out = path_join(folder, "out"), *report = path_join(out, "report.json");
    for (int s = 0; s < 2; s++) {
        struct buffer captions = {0};
        char *part = path_join(data, splits[s]), *path = path_join(part, "captions.jsonl");
        assert_int_equal(directory_make(part), 0);
        for (i64 i = 0; i < 3; i++)
            write_item(&captions, part, "image", i + 2 * s, 1); /* image2.png is in both */
        assert_int_equal(file_replace(path, captions.data, captions.length), 0);
        buffer_release(&captions);
        memory_free(path);
        memory_free(part);
    }
    struct setting_override more[] = {{"steps", "2"}, {"clip_steps", "0"}};
    if (run_stage(data, out, more, 2))
        fail_msg("%s", error_text());
    struct json *j = json_load(report);
    assert_int_equal(json_integer(json_get(j, "held_out_files"), -1), 3);
    assert_int_equal(json_integer(json_get(j, "held_out_trained_on"), -1), 1);
    json_free(j);
    memory_free(report);
    memory_free(out);
    memory_free(data);
    directory_remove(folder);
}

/* A long clip is cropped in time, a short one repeats its
 * last frame; the same step draws the same batch. */
TEST(draws_are_functions_of_the_step)
{
    u8 *clips[2] = {toy_pixels(1, 20, 16), toy_pixels(2, 5, 16)}, out[2][2 * 5 * 768];
    i64 frames[2] = {20, 5};
    struct vision_media media = {
        .request = {.shapes = SQUARE(16)}, .clip_count = 2, .clips = clips, .clip_frames = frames};
    struct vision_draw d = {.n = 2, .frames = 5, .first = 6, .step = 3, .augment = 0.6, .seed = 4};
    vision_media_draw(out[0], &media, &d);
    vision_media_draw(out[1], &media, &d);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    d.step = 4;
    vision_media_draw(out[1], &media, &d);
    assert_memory_not_equal(out[0], out[1], sizeof out[0]);
    d.augment = 0;
    vision_media_draw(out[0], &media, &d);
    assert_non_null(memmem(clips[0], 20 * 768, out[0], 768) ? clips
                                                            : memmem(clips[0], 20 * 768, out[0] + 5 * 768, 768));
    d.frames = 1; /* without stills, frames of clips are used */
    vision_media_draw(out[0], &media, &d);
    memory_free(clips[0]);
    memory_free(clips[1]);
}

/* ---- shapes ---- */

static struct vision_media mixed_media(u8 *shapes, i64 stills)
{
    return (struct vision_media){.request = {.shapes = {{2, {{16, 16}, {8, 32}}}, {1, {{16, 16}}}}},
                                 .still_count = stills,
                                 .still_shape = shapes,
                                 .clip_count = 2};
}

/* An epoch has batches of each shape in proportion to its media, and each batch continues where the
 * previous one of its shape ended, also when stills and clips alternate. */
TEST(batches_are_of_one_shape_each_as_often_as_media_have_it)
{
    enum { STILLS = 5, ALONE = 13, CLIPS = 40 };
    u8 shapes[STILLS] = {0, 1, 0, 0, 1};
    struct vision_settings settings;
    struct setting_override more[] = {{"batch", "3"}, {"still_batch", "4"}, {"still_share", "0.5"}};
    default_settings(&settings, "./none", more, 3);
    struct vision_media media = mixed_media(shapes, STILLS);
    struct vision_trainer t = {
        .settings = &settings, .media = &media, .seed = 5, .still_steps = ALONE, .clip_steps = CLIPS};
    t.vision.config = (struct vision_config){.stride = 8, .bits = 16, .channels = {16, 24}, .blocks = {1, 1}};
    vision_add_shape(&t.vision.config, 1, 8, 32, 0, NULL, 0);
    vision_add_shape(&t.vision.config, 1, 16, 16, 0, NULL, 0);
    vision_add_shape(&t.vision.config, 5, 16, 16, 8, NULL, 0);
    i64 next[2] = {0, 0}, clips = 0, seen[2] = {0, 0};
    for (i64 step = 0; step < ALONE + CLIPS; step++) {
        struct vision_batch b = vision_step_batch(&t, step);
        if (b.clips) {
            assert_ptr_equal(b.shape, &t.vision.config.shapes[2]);
            assert_int_equal(b.draw.first, clips);
            clips += b.draw.n;
            continue;
        }
        assert_ptr_equal(b.shape, &t.vision.config.shapes[b.draw.shape ? 0 : 1]);
        assert_int_equal(b.draw.first, next[b.draw.shape]);
        next[b.draw.shape] += b.draw.n;
        seen[b.draw.shape]++;
        if (step < ALONE && (step + 1) % STILLS == 0)
            assert_true(seen[0] == (step + 1) / STILLS * 3 && seen[1] == (step + 1) / STILLS * 2);
    }
    assert_int_equal(clips, CLIPS / 2 * settings.clip_batch);
    assert_int_equal(next[0] + next[1], ALONE * 3 + CLIPS / 2 * 4);
    settings_release(&settings, vision_stage_table);
}

TEST(draws_of_a_shape_are_its_media)
{
    u8 shapes[3] = {0, 1, 1}, *stills[3], out[2][2 * 768];
    struct vision_media media = mixed_media(shapes, 3);
    for (int i = 0; i < 3; i++)
        stills[i] = toy_pixels(1 + i, 1, 16);
    media.stills = stills;
    struct vision_draw d = {.n = 2, .frames = 1, .shape = 1, .seed = 4};
    assert_int_equal(vision_media_draw(out[0], &media, &d), 0);
    bool swapped = memcmp(out[0], stills[1], 768) != 0;
    assert_memory_equal(out[0], stills[1 + swapped], 768);
    assert_memory_equal(out[0] + 768, stills[2 - swapped], 768);
    d.augment = 1; /* 8 rows of 32 keep their shape when augmented: the content stays inside */
    assert_int_equal(vision_media_draw(out[1], &media, &d), 0);
    assert_memory_not_equal(out[0], out[1], sizeof out[0]);
    d.shape = 0;
    assert_int_equal(vision_media_draw(out[0], &media, &d), 0);
    for (int i = 0; i < 3; i++)
        memory_free(stills[i]);
}

static void add_pictures(const char *data, i64 count, i64 height, i64 width)
{
    for (i64 i = 0; i < count; i++) {
        char *path = string_format("%s/%lldx%lld-%lld.png", data, (long long)width, (long long)height, (long long)i);
        u8 *pixels = toy_pixels(1 + i, 1, max_i64(height, width));
        assert_int_equal(image_write_png(path, pixels, height, width), 0);
        memory_free(pixels);
        memory_free(path);
    }
}

static struct json *report_of(const char *out, const char *name)
{
    char *path = path_join(out, name);
    struct json *j = json_load(path);
    if (!j)
        fail_msg("%s", error_text());
    memory_free(path);
    return j;
}

/* Long pictures are the most frequent, so theirs is the first shape; tall ones exist; none has a
 * ratio of 4, so there is no such shape. */
TEST(pictures_are_trained_on_in_their_shapes)
{
    char folder[64];
    make_vision_folder(folder);
    char *data = path_join(folder, "data"), *out[2] = {path_join(folder, "a"), path_join(folder, "b")};
    assert_int_equal(directory_make(data), 0);
    add_pictures(data, 4, 16, 64);
    add_pictures(data, 2, 16, 16);
    add_pictures(data, 1, 64, 2); /* longer than any shape: padded with white */
    struct setting_override more[] = {{"steps", "6"},        {"clip_steps", "0"},      {"checkpoint_steps", "2"},
                                      {"aspects.most", "4"}, {"aspects.crop", "0.25"}, {"validation", "0"}};
    for (int i = 0; i < 2; i++)
        if (run_stage(data, out[i], more, 6))
            fail_msg("%s", error_text());
    cut_short(out[1], "step-000006");
    assert_int_equal(run_stage(data, out[1], more, 6), 0);
    expect_same_file(out[0], out[1], "weights.safetensors");
    expect_same_file(out[0], out[1], "report.json");
    expect_same_file(out[0], out[1], "samples/stills_training-32x8.png");
    struct json *report = report_of(out[0], "report.json"), *config = report_of(out[0], "config.json");
    const struct json *shapes = json_get(json_get(report, "stills_training"), "shapes");
    static const char *const names[] = {"32x8", "16x16", "8x32"};
    static const i64 items[] = {4, 2, 1};
    assert_int_equal(json_count(shapes), 3);
    assert_int_equal(json_integer(json_get(json_get(report, "stills_training"), "items"), 0), 7);
    assert_int_equal(json_count(json_get(config, "shapes")), 3);
    for (i64 i = 0; i < 3; i++) {
        const struct json *shape = json_at(shapes, i), *table = json_at(json_get(config, "shapes"), i);
        assert_string_equal(json_string(json_get(shape, "shape"), ""), names[i]);
        assert_string_equal(json_string(json_get(table, "name"), ""), names[i]);
        assert_int_equal(json_integer(json_get(shape, "items"), 0), items[i]);
        assert_true(json_number(json_get(shape, "psnr_db"), 0) > 3);
        assert_float_equal(json_number(json_get(table, "crop"), 0), 0.25, 0);
    }
    json_free(report);
    json_free(config);
    memory_free(out[0]);
    memory_free(out[1]);
    memory_free(data);
    directory_remove(folder);
}

/* Square pictures alone give a tokenizer of one shape, whatever shapes are permitted. */
TEST(squares_are_all_of_one_shape)
{
    char folder[64];
    make_vision_folder(folder);
    char *data = make_corpus(folder), *out[2] = {path_join(folder, "a"), path_join(folder, "b")};
    struct setting_override more[] = {
        {"steps", "3"}, {"clip_steps", "3"}, {"aspects.most", "1"}, {"aspects.crop", "0"}};
    if (run_stage(data, out[0], more, 4) || (more[2].value = "4", run_stage(data, out[1], more, 3)))
        fail_msg("%s", error_text());
    expect_same_file(out[0], out[1], "weights.safetensors");
    expect_same_file(out[0], out[1], "config.json");
    expect_same_file(out[0], out[1], "report.json");
    memory_free(out[0]);
    memory_free(out[1]);
    memory_free(data);
    directory_remove(folder);
}

static int run(const char *name)
{
    return tests_run_as(name, NULL, NULL);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    return on_both_devices(&device, run);
}
