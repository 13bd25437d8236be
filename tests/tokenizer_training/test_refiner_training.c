/* Training of the refiner: its pictures, its stage, its report. */
#define _GNU_SOURCE
#include "core/json.h"
#include "tests/files.h"
#include "tests/vision_stage_fixture.h"
#include "tokenizer_training/picture_report.h"
#include "tokenizer_training/refiner_step.h"

enum { LOW = 16, SIZE = 2 * LOW, BYTES = SIZE * SIZE * 3, FRAMES = 5 };

/* ---- pictures ---- */

static struct refiner_settings settings_of(const struct setting_override *more, i64 count)
{
    struct refiner_settings s = {0};
    struct setting_override all[24] = {
        {"data", "./none"}, {"vision", "./none"}, {"channels", "[6, 8, 10]"}, {"batch", "4"}, {"steps", "4"}};
    i64 n = 5;
    for (i64 i = 0; i < count; i++)
        all[n++] = more[i];
    succeed(settings_read(&s, refiner_stage_table, NULL, NULL, all, n));
    return s;
}

static struct refiner_config config_of(const struct refiner_settings *s)
{
    return (struct refiner_config){.channels = {6, 8, 10},
                                   .blocks = 1,
                                   .noise = s->noise,
                                   .temperature = s->temperature,
                                   .steps = s->sampling_steps,
                                   .size_count = 1,
                                   .sizes = {{LOW, LOW}}};
}

/* A trainer over three stills and two clips of twice the toy tokenizer's size. */
struct toy {
    struct refiner_settings settings;
    struct vision vision;
    struct vision_media media;
    struct refiner_trainer trainer;
    u8 *pixels, *clip_pixels, *stills[3], *clips[2];
    i64 clip_frames[2];
};

static void toy_open(struct toy *t, const struct setting_override *more, i64 count, enum dtype dtype)
{
    memset(t, 0, sizeof *t);
    t->settings = settings_of(more, count);
    t->pixels = toy_pixels(3, 1, SIZE);
    t->clip_pixels = toy_pixels(2, FRAMES + 2, SIZE);
    open_toy(&t->vision, true, dtype);
    for (int i = 0; i < 3; i++)
        t->stills[i] = t->pixels + i * BYTES;
    for (int i = 0; i < 2; i++) {
        t->clips[i] = t->clip_pixels + i * (FRAMES + 2) * BYTES;
        t->clip_frames[i] = FRAMES + 2;
    }
    t->media = (struct vision_media){.request = {.shapes = SQUARE(SIZE), .frames = FRAMES},
                                     .still_count = 3,
                                     .stills = t->stills,
                                     .clip_count = 2,
                                     .clips = t->clips,
                                     .clip_frames = t->clip_frames};
    t->trainer =
        (struct refiner_trainer){.settings = &t->settings, .media = &t->media, .vision = &t->vision, .seed = 5};
    struct refiner_config config = config_of(&t->settings);
    refiner_trainer_open(&t->trainer, &config, dtype);
    weights_init(&t->trainer.refiner.weights, 5);
}

static void toy_close(struct toy *t)
{
    refiner_trainer_close(&t->trainer);
    vision_close(&t->vision);
    memory_free(t->pixels);
    memory_free(t->clip_pixels);
    settings_release(&t->settings, refiner_stage_table);
}

static double distance_to(const u8 *a, const u8 *b)
{
    return vision_square_error(a, b, BYTES);
}

TEST(steps_take_stills_and_frames_of_clips)
{
    const struct setting_override more[] = {{"clip_share", "0.5"}, {"augment", "0"}, {"degraded", "0.5"}};
    struct toy t;
    i64 clips = 0, degraded = 0, all = 0;
    double strengths = 0;
    toy_open(&t, more, COUNT_OF(more), DTYPE_F32);
    for (i64 step = 0; step < 20; step++) {
        struct refiner_pictures p;
        succeed(refiner_pictures_draw(&p, &t.trainer, step));
        i64 others = 0; /* items that are not the first one's picture */
        clips += p.clips;
        assert_int_equal(p.n, 4);
        for (i64 i = 0; i < p.n; i++) {
            const u8 *original = p.original + i * BYTES;
            if (p.clips)
                assert_non_null(memmem(t.clip_pixels, (size_t)(2 * (FRAMES + 2) * BYTES), original, BYTES));
            else
                assert_non_null(memmem(t.pixels, 3 * BYTES, original, BYTES));
            others += memcmp(original, p.original, BYTES) != 0;
            assert_true(p.t[i] >= 0.25 * (double)i && p.t[i] < 0.25 * (double)(i + 1));
            assert_true(p.strength[i] >= 0 && p.strength[i] < 1);
            degraded += p.strength[i] > 0;
            strengths += p.strength[i];
            all++;
        }
        assert_true(others > 0 || p.clips);
        refiner_pictures_release(&p);
    }
    assert_int_equal(clips, 10);
    assert_true(degraded > 0.3 * (double)all && degraded < 0.7 * (double)all);
    assert_float_equal(strengths / (double)degraded, 0.5, 0.15);
    toy_close(&t);
}

/* Of the tokenizer's own decoding, enlarged. */
TEST(what_is_refined_was_encoded_and_decoded)
{
    const struct setting_override more[] = {{"clip_share", "0"}, {"augment", "0"}, {"degraded", "0"}};
    static u8 decoded[LOW * LOW * 3], enlarged[BYTES];
    struct toy t;
    struct refiner_pictures p;
    toy_open(&t, more, COUNT_OF(more), DTYPE_F32);
    succeed(refiner_pictures_draw(&p, &t.trainer, 0));
    for (i64 i = 0; i < p.n; i++) {
        struct clip large = {1, SIZE, SIZE, 0, p.original + i * BYTES}, small;
        clip_resize(&small, &large, LOW, LOW);
        vision_reconstruct(&t.vision, decoded, NULL, small.pixels, 1, &t.vision.config.shapes[0]);
        refiner_enlarge(enlarged, decoded, LOW, LOW);
        assert_memory_equal(enlarged, p.enlarged + i * BYTES, BYTES);
        assert_true(p.strength[i] == 0);
        clip_release(&small);
    }
    refiner_pictures_release(&p);
    toy_close(&t);
}

TEST(degrading_adds_noise_and_blurs)
{
    enum { N = 64, COUNT = N * N * 3 };
    static u8 grey[COUNT], edge[COUNT], kept[COUNT];
    double mean = 0, square = 0;
    memset(grey, 128, COUNT);
    refiner_degrade(grey, N, N, 1, (struct rng_key){3, RNG_AUGMENT}, 1, 2);
    for (i64 i = 0; i < COUNT; i++) {
        mean += (double)grey[i] / COUNT;
        square += ((double)grey[i] - 128) * ((double)grey[i] - 128) / COUNT;
    }
    assert_float_equal(mean, 128, 0.5);
    assert_float_equal(sqrt(square), 24 * 6.0 / 16, 0.5); /* the blur's weights have a square sum of (6 / 16)^2 */
    for (i64 i = 0; i < COUNT; i++)
        edge[i] = kept[i] = i / 3 % N < N / 2 ? 0 : 255;
    refiner_degrade(edge, N, N, 0, (struct rng_key){3, RNG_AUGMENT}, 1, 2);
    assert_memory_equal(edge, kept, COUNT);
    refiner_degrade(edge, N, N, 0.5, (struct rng_key){3, RNG_AUGMENT}, 1, 2);
    double sides[2] = {0};
    for (i64 y = 0; y < N; y++)
        for (int k = 0; k < 2; k++)
            sides[k] += (double)edge[(y * N + N / 2 - 1 + k) * 3] / N;
    assert_true(sides[0] > 20 && sides[0] < 50 && sides[1] > 205 && sides[1] < 235);
}

/* Flipped or not, shifted by whole pixels: each pixel inside is one of the source. */
TEST(whole_pixels_stay_what_they_are)
{
    u8 *still = toy_pixels(1, 1, SIZE), out[BYTES];
    struct vision_media media = {.request = {.shapes = SQUARE(SIZE)}, .still_count = 1, .stills = &still};
    i64 moved = 0, flipped = 0;
    for (i64 step = 0; step < 30; step++) {
        const struct vision_draw d = {.n = 1, .frames = 1, .step = step, .augment = 1, .whole = true, .seed = 4};
        bool found = false;
        succeed(vision_media_draw(out, &media, &d));
        for (i64 dy = -3; dy <= 3 && !found; dy++)
            for (i64 dx = -3; dx <= 3 && !found; dx++)
                for (int flip = 0; flip < 2 && !found; flip++) {
                    bool same = true;
                    for (i64 y = 4; y < SIZE - 4; y++)
                        for (i64 x = 4; x < SIZE - 4; x++) {
                            i64 from = flip ? SIZE - 1 - (x + dx) : x + dx;
                            same &= memcmp(out + (y * SIZE + x) * 3, still + ((y + dy) * SIZE + from) * 3, 3) == 0;
                        }
                    found = same;
                    moved += same && (dx || dy);
                    flipped += same && flip;
                }
        assert_true(found);
    }
    assert_true(moved > 20 && flipped > 5 && flipped < 25);
    memory_free(still);
}

/* ---- measures ---- */

/* One window at a time, in two dimensions. */
static double plain_similarity(const struct clip *a, const u8 *b)
{
    double sum = 0, grey[2][SIZE * SIZE];
    i64 count = 0;
    for (i64 i = 0; i < SIZE * SIZE; i++)
        for (int k = 0; k < 2; k++) {
            const u8 *p = (k ? b : a->pixels) + i * 3;
            grey[k][i] = 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2];
        }
    for (i64 y = 5; y < SIZE - 5; y++)
        for (i64 x = 5; x < SIZE - 5; x++, count++) {
            double total = 0, m[2] = {0}, v[3] = {0};
            for (int pass = 0; pass < 3; pass++)
                for (i64 dy = -5; dy <= 5; dy++)
                    for (i64 dx = -5; dx <= 5; dx++) {
                        double w = exp(-(double)(dx * dx + dy * dy) / 4.5), at[2];
                        for (int k = 0; k < 2; k++)
                            at[k] = grey[k][(y + dy) * SIZE + x + dx];
                        if (pass == 0)
                            total += w;
                        for (int k = 0; k < 2 && pass == 1; k++)
                            m[k] += w / total * at[k];
                        for (int k = 0; k < 3 && pass == 2; k++)
                            v[k] += w / total * (at[k == 1] - m[k == 1]) * (at[k > 0] - m[k > 0]);
                    }
            sum += (2 * m[0] * m[1] + 6.5025) * (2 * v[2] + 58.5225) /
                   ((m[0] * m[0] + m[1] * m[1] + 6.5025) * (v[0] + v[1] + 58.5225));
        }
    return sum / (double)count;
}

TEST(similarity_is_that_of_plain_windows)
{
    u8 *a = toy_pixels(2, 1, SIZE), *b = a + BYTES;
    const struct clip item = {1, SIZE, SIZE, 0, a};
    assert_float_equal(picture_similarity(&item, a), 1, 1e-12);
    assert_float_equal(picture_similarity(&item, b), plain_similarity(&item, b), 1e-9);
    memory_free(a);
}

/* ---- learning ---- */

/* A picture that is learnt is refined towards its original. */
TEST(one_picture_is_learnt)
{
    const struct setting_override more[] = {
        {"clip_share", "0"}, {"augment", "0"}, {"degraded", "0"}, {"steps", "250"}, {"temperature", "0"}};
    struct toy t;
    struct refiner_step_result y;
    static u8 decoded[LOW * LOW * 3], out[BYTES], enlarged[BYTES];
    double first = 0;
    on_one_device(&device, false);
    toy_open(&t, more, COUNT_OF(more), DTYPE_BF16);
    t.media.still_count = 1;
    for (i64 step = 0; step < 250; step++) {
        succeed(refiner_step(&y, &t.trainer, step));
        first = step ? first : y.loss;
    }
    refiner_decoded(decoded, &t.vision, t.pixels, 1, &t.vision.config.shapes[0]);
    refiner_sample(&t.trainer.refiner, out, decoded, 1, LOW, LOW, &(struct refiner_draw){.seed = 1});
    refiner_enlarge(enlarged, decoded, LOW, LOW);
    double before = vision_psnr(distance_to(enlarged, t.pixels)), after = vision_psnr(distance_to(out, t.pixels));
    if (after < before + 6 || y.loss > 0.5 * first)
        fail_msg("%.2f dB, bicubic %.2f; loss %.4f, at first %.4f", after, before, y.loss, first);
    toy_close(&t);
}

static u64 hash_of_steps(int threads)
{
    const struct setting_override more[] = {{"clip_share", "0.5"}};
    struct toy t;
    struct refiner_step_result y;
    u64 hash = 0;
    workers_start(threads);
    toy_open(&t, more, COUNT_OF(more), DTYPE_BF16);
    for (i64 step = 0; step < 4; step++)
        succeed(refiner_step(&y, &t.trainer, step));
    for (i64 i = 0; i < t.trainer.refiner.weights.count; i++) {
        struct weight *w = &t.trainer.refiner.weights.list[i];
        float *values = weight_values(&t.trainer.refiner.weights, w);
        hash = hash_bytes(values, w->rows * w->columns * 4, hash);
        memory_free(values);
    }
    toy_close(&t);
    workers_start(2);
    return hash;
}

TEST(bits_do_not_depend_on_threads)
{
    u64 one = hash_of_steps(1);
    assert_int_equal(one, hash_of_steps(2));
    assert_int_equal(one, hash_of_steps(3));
}

/* ---- the stage ---- */

static void write_media(const char *name)
{
    char *stills = path_join(path_of(name), "train"), *held = path_join(path_of(name), "validation");
    char *folders[2] = {stills, held};
    for (int k = 0; k < 2; k++) {
        succeed(directory_make(folders[k]));
        u8 *pixels = toy_pixels(3 + k, FRAMES, SIZE);
        for (i64 i = 0; i < 3; i++) {
            char *picture = string_format("%s/p%lld.png", folders[k], (long long)i);
            succeed(image_write_png(picture, pixels + (i + k) * FRAMES * BYTES, SIZE, SIZE));
            memory_free(picture);
        }
        char *film = string_format("%s/film.mp4", folders[k]);
        struct clip clip = {FRAMES, SIZE, SIZE, 8, pixels};
        succeed(clip_write_mp4(film, &clip));
        memory_free(film);
        memory_free(pixels);
        memory_free(folders[k]);
    }
}

static int run_refiner(const char *name, const struct setting_override *more, i64 count)
{
    char *data = string_copy(path_of("media")), *vision = string_copy(path_of("vis"));
    struct setting_override all[24] = {{"data", data}, {"vision", vision}, {"checkpoint_steps", "2"}, {"keep", "9"}};
    i64 n = 4;
    for (i64 i = 0; i < count; i++)
        all[n++] = more[i];
    struct refiner_settings s = settings_of(all, n);
    struct stage stage = {.name = "refiner",
                          .out = path_of(name),
                          .seed = 9,
                          .recipe_seed = 9,
                          .device = &device,
                          .dtype = DTYPE_BF16,
                          .ranks = parallel_alone()};
    succeed(directory_make(stage.out));
    int status = refiner_stage(&s, &stage);
    settings_release(&s, refiner_stage_table);
    memory_free(data);
    memory_free(vision);
    return status;
}

static void expect_same(const char *file)
{
    char *one = string_format("a/%s", file), *two = string_format("b/%s", file);
    if (!same_files(path_of(one), path_of(two)))
        fail_msg("%s and %s differ", one, two);
    memory_free(one);
    memory_free(two);
}

/* Of the held-out pictures, by the saved refiner. */
static void expect_report(void)
{
    struct refiner r;
    struct vision vision;
    struct vision_media media;
    struct vision_media_request request = {SQUARE(SIZE), FRAMES, 8, 0, picture_rules_usual};
    struct media_request from = {.data = path_of("media"), .split = SPLIT_VALIDATION};
    request.memory_mb = 64;
    struct json *report = json_load(path_of("a/report.json"));
    const struct json *kind = json_get(report, "refined_stills_held_out");
    static u8 decoded[LOW * LOW * 3], made[2][BYTES];
    double error[2] = {0}, similarity[2] = {0}, edges[3] = {0};
    succeed(refiner_load(&r, &device, path_of("a"), DTYPE_BF16));
    succeed(vision_load(&vision, &device, path_of("vis"), DTYPE_BF16, false));
    succeed(vision_media_load(&media, &from, &request));
    assert_int_equal(media.still_count, 3);
    assert_int_equal(media.small_count, 0);
    for (i64 i = 0; i < 3; i++) {
        const struct clip item = {1, SIZE, SIZE, 0, media.stills[i]};
        refiner_decoded(decoded, &vision, media.stills[i], 1, &vision.config.shapes[0]);
        refiner_enlarge(made[0], decoded, LOW, LOW);
        refiner_sample(&r, made[1], decoded, 1, LOW, LOW, &(struct refiner_draw){.seed = 9, .identity = (u32)i});
        edges[2] += picture_edges(&item, media.stills[i]);
        for (int k = 0; k < 2; k++) {
            error[k] += distance_to(made[k], media.stills[i]) / 3;
            similarity[k] += plain_similarity(&item, made[k]) / 3;
            edges[k] += picture_edges(&item, made[k]);
        }
    }
    for (int k = 0; k < 2; k++) {
        const struct json *of = json_get(kind, k ? "refined" : "bicubic");
        assert_float_equal(json_number(json_get(of, "psnr_db"), 0), -10 * log10(error[k]), 1e-6);
        assert_float_equal(json_number(json_get(of, "ssim"), 0), similarity[k], 1e-9);
        assert_float_equal(json_number(json_get(of, "edges"), 0), edges[k] / edges[2], 1e-9);
    }
    assert_int_equal(json_integer(json_get(kind, "items"), 0), 3);
    assert_int_equal(json_integer(json_get(json_get(kind, "sheet"), "parts"), 0), 3);
    assert_int_equal(json_integer(json_get(json_get(report, "refined_clips_held_out"), "items"), 0), 1);
    vision_media_release(&media);
    request.shapes[0].items[0] = (struct aspect){2 * SIZE, 2 * SIZE};
    succeed(vision_media_load(&media, &from, &request));
    assert_int_equal(media.small_count, 3);
    vision_media_release(&media);
    vision_close(&vision);
    refiner_close(&r);
    json_free(report);
}

TEST(a_stage_that_was_killed_goes_on_to_the_same_bits)
{
    write_media("media");
    succeed(run_vision("vis", path_of("media"), NULL, 0));
    succeed(run_refiner("a", NULL, 0));
    succeed(run_refiner("b", NULL, 0));
    succeed(directory_remove(path_of("b/checkpoints/step-000004")));
    succeed(unlink(path_of("b/weights.safetensors")));
    succeed(run_refiner("b", NULL, 0));
    static const char *const files[] = {"weights.safetensors",
                                        "config.json",
                                        "report.json",
                                        "samples/refined_stills_held_out.png",
                                        "samples/refined_clips_held_out.png",
                                        "samples/refined_stills_training.png"};
    for (i64 i = 0; i < COUNT_OF(files); i++)
        expect_same(files[i]);
    expect_report();
}

/* Runs behind the one before, whose folders it takes. */
TEST(what_does_not_fit_is_refused)
{
    static const struct {
        struct setting_override more;
        const char *says;
    } rows[] = {{{"channels", "[6, 8]"}, "channels is a list of 3"},
                {{"data", "/nowhere"}, "/nowhere"},
                {{"vision", "/nowhere"}, "/nowhere"}};
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        assert_int_equal(run_refiner("refused", &rows[i].more, 1), -1);
        assert_says(rows[i].says);
    }
    char *folder = string_copy(path_of("a"));
    const struct setting_override refiner = {"vision", folder};
    assert_int_equal(run_refiner("refused", &refiner, 1), -1);
    assert_says("this is no vision tokenizer but a \"refiner\"");
    memory_free(folder);
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
