/* The metrics of a vision tokenizer step and its final
 * report, recomputed from pictures and bits. */
#include "core/json.h"
#include "tokenizer_training/code_use.h"
#include "tests/vision_fixture.h"

enum { PICTURES = 3, SIZE = 16, BYTES = SIZE * SIZE * 3, CLIP_FRAMES = 5 };

static struct vision_settings settings;
static struct vision_media media;
static struct vision_trainer trainer;
static u8 *pixels, *clip_pixels, *stills[PICTURES], *clips[1];
static i64 clip_frames[1] = {CLIP_FRAMES};
static struct content_size inner[PICTURES]; /* no margins */
static char folder[64];

static int setup(void **state)
{
    const struct setting_override all[] = {{"data", "./none"}, {"size", "16"},      {"stride", "8"},
                                           {"bits", "5"},      {"frames", "5"},     {"channels", "[6, 8]"},
                                           {"batch", "1"},     {"clip_batch", "1"}, {"still_batch", "1"},
                                           {"augment", "0"},   {"still_share", "0"}};
    struct vision_config config = toy_config(false);
    (void)state;
    log_set_level(LOG_QUIET);
    test_device_open(&device);
    make_vision_folder(folder);
    assert_int_equal(settings_read(&settings, vision_stage_table, NULL, NULL, all, COUNT_OF(all)), 0);
    settings.optimizer.warmup = 0;
    settings.optimizer.shape = LR_CONSTANT;
    settings.optimizer.lr = 1e-3;
    settings.clip_lr = 0.25;
    pixels = toy_pixels(PICTURES, 1, SIZE);
    clip_pixels = toy_pixels(1, CLIP_FRAMES, SIZE);
    clips[0] = clip_pixels;
    for (i64 i = 0; i < PICTURES; i++)
        stills[i] = pixels + i * BYTES;
    media = (struct vision_media){.request = {.shapes = SQUARE(SIZE)},
                                  .still_count = PICTURES,
                                  .stills = stills,
                                  .still_inner = inner,
                                  .clip_count = 1,
                                  .clips = clips,
                                  .clip_inner = inner,
                                  .clip_frames = clip_frames};
    trainer =
        (struct vision_trainer){.settings = &settings, .media = &media, .seed = 5, .still_steps = 2, .clip_steps = 2};
    vision_trainer_open(&trainer, &device, &config, DTYPE_F32);
    vision_init(&trainer.vision, 5);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    vision_trainer_close(&trainer);
    settings_release(&settings, vision_stage_table);
    memory_free(pixels);
    memory_free(clip_pixels);
    device_close(&device);
    return directory_remove(folder);
}

/* PSNR of a reconstructed picture from its pixel loss in -1..1; clipping to bytes brings it
 * slightly closer. */
TEST(a_step_says_the_psnr_of_its_pictures)
{
    struct vision_step_result result;
    u8 again[BYTES];
    media.still_count = 1;
    vision_reconstruct(&trainer.vision, again, NULL, pixels, 1, &trainer.vision.config.shapes[0]);
    assert_int_equal(vision_step(&result, &trainer, 0), 0);
    double bytes = 10 * log10(1 / vision_square_error(again, pixels, BYTES));
    assert_float_equal(result.psnr_db, 10 * log10(4 / result.losses.of[VISION_L2]), 1e-9);
    assert_true(result.psnr_db < bytes + 0.1 && result.psnr_db > bytes - 3);
    media.still_count = PICTURES;
}

TEST(clips_learn_at_their_share_of_the_rate)
{
    struct vision_step_result result;
    assert_int_equal(vision_step(&result, &trainer, 1), 0);
    assert_false(result.clips);
    assert_float_equal(result.optimizer.lr, 1e-3, 1e-12);
    assert_int_equal(vision_step(&result, &trainer, 2), 0);
    assert_true(result.clips);
    assert_float_equal(result.optimizer.lr, 0.25e-3, 1e-12);
}

/* Checks the entropy of each bit over all positions of a scale, and the number of bits that have
 * the same value in 99 % of cases. */
static void expect_scale(const struct json *j, const u8 *bits, i64 tokens, i64 first, i64 positions, i64 width)
{
    double entropy = 0, n = (double)(media.still_count * positions);
    i64 dead = 0;
    for (i64 b = 0; b < width; b++) {
        double ones = 0;
        for (i64 i = 0; i < media.still_count; i++)
            for (i64 at = first; at < first + positions; at++)
                ones += bits[(i * tokens + at) * width + b];
        double p = ones / n, q = 1 - p;
        entropy -= (p > 0 ? p * log2(p) : 0) + (q > 0 ? q * log2(q) : 0);
        dead += p < 0.01 || q < 0.01;
    }
    assert_float_equal(json_number(json_get(j, "entropy_bits"), -1), entropy / (double)width, 1e-9);
    assert_int_equal(json_integer(json_get(j, "dead_bits"), -1), dead);
}

/* Absolute differences to the pixel on the right and to the one below. */
static double edges_of(const u8 *pictures, i64 count)
{
    double sum = 0;
    for (i64 i = 0; i < count; i++)
        for (i64 y = 0; y < SIZE; y++)
            for (i64 x = 0; x < SIZE; x++)
                for (i64 c = 0; c < 3; c++) {
                    const u8 *at = pictures + i * BYTES + (y * SIZE + x) * 3 + c;
                    sum += x + 1 < SIZE ? fabs((double)at[3] - at[0]) : 0;
                    sum += y + 1 < SIZE ? fabs((double)at[3 * SIZE] - at[0]) : 0;
                }
    return sum;
}

static void expect_report(i64 count)
{
    const struct vision_shape *shape = &trainer.vision.config.shapes[0];
    i64 tokens = vision_tokens(shape), width = trainer.vision.config.bits, first = 0;
    u8 *again = memory_alloc(PICTURES * BYTES), *bits = memory_alloc(PICTURES * tokens * width);
    char *path = path_join(folder, "report.json");
    double error = 0, squares = 0, edges[2];
    media.still_count = count;
    vision_reconstruct(&trainer.vision, again, bits, pixels, count, shape);
    for (i64 i = 0; i < count; i++)
        error += vision_square_error(again + i * BYTES, pixels + i * BYTES, BYTES) / (double)count;
    for (i64 i = 0; i < count; i++) {
        double own = vision_square_error(again + i * BYTES, pixels + i * BYTES, BYTES);
        squares += (own - error) * (own - error);
    }
    edges[0] = edges_of(pixels, count);
    edges[1] = edges_of(again, count);
    assert_int_equal(vision_report(&trainer, &media, folder), 0);
    struct json *report = json_load(path);
    const struct json *kept = json_get(report, "stills_held_out");
    assert_float_equal(json_number(json_get(kept, "edges"), -1), edges[1] / edges[0], 1e-9);
    assert_null(json_get(report, "discriminator"));
    assert_int_equal(json_integer(json_get(kept, "items"), -1), count);
    assert_float_equal(json_number(json_get(kept, "psnr_db"), -1), 10 * log10(1 / error), 1e-6);
    if (count > 1) /* the derivative of 10 log10 at the mean, times its standard error */
        assert_float_equal(json_number(json_get(kept, "psnr_db_error"), -1),
                           10 / log(10) / error * sqrt(squares / (double)(count * (count - 1))), 1e-6);
    else
        assert_true(isnan(json_number(json_get(kept, "psnr_db_error"), NAN)));
    assert_int_equal(json_count(json_get(kept, "scales")), shape->scale_count);
    for (i64 k = 0; k < shape->scale_count; k++) {
        i64 positions = scale_positions(shape->scales[k]);
        expect_scale(json_at(json_get(kept, "scales"), k), bits, tokens, first, positions, width);
        first += positions;
    }
    json_free(report);
    memory_free(path);
    memory_free(again);
    memory_free(bits);
}

/* With one picture the bits of the first scale never vary:
 * all are dead, including those that are 0. */
TEST(the_report_counts_bits_and_errors)
{
    expect_report(PICTURES);
    expect_report(1);
}

static double value_of(const struct json *line, const char *kind, const char *set, i64 scale, const char *figure)
{
    char *key = string_format("use/%s/%s/%lld/%s", kind, set, (long long)scale, figure);
    double value = json_number(json_get(line, key), NAN);
    memory_free(key);
    return value;
}

/* The figures of a kind in a line of metrics, against counting the bits of `items` media. */
static void expect_use(const struct json *line, const char *kind, const char *set, const u8 *media_pixels, i64 items,
                       const struct vision_shape *shape)
{
    i64 width = trainer.vision.config.bits, tokens = vision_tokens(shape), frames = items * shape->latent_frames;
    u8 *again = memory_alloc(items * shape->frames * BYTES), *bits = memory_alloc(frames * tokens * width);
    vision_reconstruct(&trainer.vision, again, bits, media_pixels, items, shape);
    for (i64 k = 0, first = 0; k < shape->scale_count; first += scale_positions(shape->scales[k++])) {
        double entropy = 0, n = (double)(frames * scale_positions(shape->scales[k]));
        i64 dead = 0;
        for (i64 b = 0; b < width; b++) {
            double ones = 0;
            for (i64 f = 0; f < frames; f++)
                for (i64 at = first; at < first + scale_positions(shape->scales[k]); at++)
                    ones += bits[(f * tokens + at) * width + b];
            double p = ones / n, q = 1 - p;
            entropy -= (p > 0 ? p * log2(p) : 0) + (q > 0 ? q * log2(q) : 0);
            dead += p < 0.01 || q < 0.01;
        }
        assert_float_equal(value_of(line, kind, set, k + 1, "entropy"), entropy / (double)width, 1e-9);
        assert_true(value_of(line, kind, set, k + 1, "dead") == (double)dead);
    }
    memory_free(again);
    memory_free(bits);
}

/* Of training and held-out media apart; of clips once the tokenizer is inflated. */
TEST(bits_in_use_are_measured_during_training)
{
    struct vision_use use;
    struct vision_media other = media;
    struct vision *vision = &trainer.vision;
    bool inflated = vision->config.inflated;
    media.still_count = PICTURES;
    other.still_count = 1;
    struct metrics *metrics = metrics_open(folder, 0);
    assert_non_null(metrics);
    assert_int_equal(vision_use_open(&use, &trainer, &other), 0);
    for (int clips_too = 0; clips_too < 2; clips_too++) {
        vision->config.inflated = false;
        if (clips_too)
            vision_inflate(vision);
        metrics_begin(metrics, clips_too + 1);
        vision_use_measure(&use, metrics, vision, "vis", clips_too + 1);
        struct json *line = metrics_values(metrics);
        expect_use(line, "stills", "training", pixels, PICTURES, &vision->config.shapes[0]);
        expect_use(line, "stills", "heldout", stills[0], 1, &vision->config.shapes[0]);
        if (clips_too)
            expect_use(line, "clips", "training", clip_pixels, 1, &vision->config.shapes[1]);
        else
            assert_true(isnan(value_of(line, "clips", "training", 1, "entropy")));
        json_free(line);
        assert_int_equal(metrics_end(metrics), 0);
    }
    vision_use_close(&use);
    metrics_close(metrics);
    vision->config.inflated = inflated;
}

static double components_psnr(const struct vision_media *held_out)
{
    char *path = path_join(folder, "report.json");
    assert_int_equal(vision_report(&trainer, held_out, folder), 0);
    struct json *report = json_load(path);
    double psnr = json_number(json_get(json_get(report, "stills_held_out"), "psnr_db_components"), NAN);
    json_free(report);
    memory_free(path);
    return psnr;
}

/* Three pictures span two components, which give them back but for the rounding of their weights. A new
 * picture of one value beside is not among them; the training pictures themselves have no such figure. */
TEST(components_of_training_pictures_stand_beside)
{
    struct vision_media other = media;
    u8 *new_stills[1] = {memory_alloc(BYTES)};
    media.still_count = PICTURES;
    other.still_count = PICTURES;
    assert_true(components_psnr(&other) > 40);
    memset(new_stills[0], 255, BYTES);
    other.stills = new_stills;
    other.still_count = 1;
    double distance = 0;
    for (i64 i = 0; i < BYTES; i++) { /* at best the mean of the three, at worst none of them */
        double mean = ((double)pixels[i] + pixels[BYTES + i] + pixels[2 * BYTES + i]) / 3 - 255;
        distance += mean * mean / (255.0 * 255 * BYTES);
    }
    double psnr = components_psnr(&other);
    assert_true(psnr >= 10 * log10(1 / distance) - 0.01 && psnr < 40);
    assert_true(isnan(components_psnr(&media)));
    memory_free(new_stills[0]);
}

int main(void)
{
    return tests_run(setup, teardown);
}
