/* Codecs beside tokenizers: the best picture of a codec against all sizes and qualities, and distances of sounds that
 * are late, soft or without high bands. */
#include "tokenizer_training/audio_codecs.h"
#include "tokenizer_training/vision_codecs.h"
#include "tests/vision_fixture.h"

enum { SIDE = 64, BYTES = SIDE * SIDE * 3, STILLS = 2 };

static char folder[64];

static int setup(void **state)
{
    (void)state;
    log_set_level(LOG_QUIET);
    test_device_open(&device);
    make_vision_folder(folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    device_close(&device);
    return directory_remove(folder);
}

/* ---- pictures ---- */

/* Its square error after the best size and quality of all. */
static double best_of_all(const u8 *pixels, bool jpeg, bool file, i64 limit)
{
    double best = INFINITY;
    u8 *small = memory_alloc(BYTES), *again = memory_alloc(BYTES);
    for (i64 side = 8; side <= SIDE; side += SIDE / 16)
        for (i64 quality = 0; quality <= 100; quality++) {
            struct buffer out = {0};
            struct clip clip;
            pixels_resize(small, side, side, pixels, SIDE, SIDE);
            i64 code = (jpeg ? image_encode_jpeg : image_encode_webp)(&out, small, side, side, quality);
            if ((file ? out.length : code) <= limit) {
                assert_int_equal(image_read(&clip, out.data, out.length, "made"), 0);
                pixels_resize(again, SIDE, SIDE, clip.pixels, side, side);
                best = fmin(best, vision_square_error(pixels, again, BYTES));
                clip_release(&clip);
            }
            buffer_release(&out);
        }
    memory_free(small);
    memory_free(again);
    return best;
}

static struct vision_trainer trainer_of(i64 bits)
{
    struct vision_config config = {.stride = 8, .bits = bits, .channels = {6, 8}, .blocks = {1, 1}};
    struct vision_trainer out = {0};
    assert_int_equal(vision_add_shape(&config, 1, SIDE, SIDE, 0, NULL, 0), 0);
    assert_int_equal(vision_config_check(&config), 0);
    vision_open(&out.vision, &device, &config, DTYPE_F32, true);
    vision_init(&out.vision, 3);
    return out;
}

TEST(codecs_have_the_bytes_of_the_code)
{
    static const struct {
        int row;
        bool jpeg, file;
    } rows[] = {{VISION_WEBP, false, false}, {VISION_WEBP_FILE, false, true}, {VISION_JPEG, true, false}};
    u8 *pixels = toy_pixels(STILLS, 1, SIDE), *stills[STILLS] = {pixels, pixels + BYTES};
    struct content_size inner[STILLS] = {0};
    struct vision_media held_out = {
        .request = {.shapes = SQUARE(SIDE)}, .still_count = STILLS, .stills = stills, .still_inner = inner};
    struct vision_trainer trainer = trainer_of(16);
    const struct vision_shape *shape = &trainer.vision.config.shapes[0];
    struct vision_codecs codecs = {0};
    i64 limit = vision_tokens(shape) * 16 / 8;
    assert_int_equal(vision_codecs_add(&codecs, &trainer, &held_out, (const i32[]){1, 0}, STILLS, shape, folder), 0);
    assert_int_equal(codecs.items, STILLS);
    assert_int_equal(codecs.rows[VISION_TOKENS].bytes, STILLS * limit);
    for (i64 i = 0; i < COUNT_OF(rows); i++) {
        double best = 0;
        for (i64 k = 0; k < STILLS; k++)
            best += best_of_all(stills[k], rows[i].jpeg, rows[i].file, limit);
        assert_false(codecs.rows[rows[i].row].absent);
        assert_in_range(codecs.rows[rows[i].row].bytes, STILLS * limit / 2, STILLS * limit);
        double error = codecs.rows[rows[i].row].square_error;
        if (error < best - 1e-12 || error > 1.02 * best) /* a lower quality may be nearer by chance */
            fail_msg("row %d: a mean square error of %g, of all sizes and qualities %g", rows[i].row, error, best);
    }
    assert_true(codecs.rows[VISION_WEBP].square_error <= codecs.rows[VISION_WEBP_FILE].square_error);
    struct json *j = vision_codecs_json(&codecs);
    const struct json *sheet = json_get(j, "sheet");
    assert_int_equal(json_count(json_get(j, "rows")), VISION_CODECS);
    assert_int_equal(json_integer(json_get(sheet, "parts"), 0), json_count(json_get(sheet, "views")));
    assert_int_equal(json_integer(json_get(sheet, "pairs"), 0), STILLS);
    json_free(j);
    vision_close(&trainer.vision);
    memory_free(pixels);
}

/* No picture of a codec has ten bytes: the row is left out. */
TEST(codecs_that_have_none_so_small_are_left_out)
{
    u8 *pixels = toy_pixels(1, 1, SIDE), *stills[1] = {pixels};
    struct content_size inner[1] = {0};
    struct vision_media held_out = {
        .request = {.shapes = SQUARE(SIDE)}, .still_count = 1, .stills = stills, .still_inner = inner};
    struct vision_trainer trainer = trainer_of(1);
    struct vision_codecs codecs = {0};
    assert_int_equal(
        vision_codecs_add(&codecs, &trainer, &held_out, (const i32[]){0}, 1, &trainer.vision.config.shapes[0], folder),
        0);
    assert_true(codecs.rows[VISION_WEBP].absent && codecs.rows[VISION_WEBP_FILE].absent);
    struct json *j = vision_codecs_json(&codecs);
    assert_true(json_count(json_get(j, "rows")) < VISION_CODECS);
    json_free(j);
    vision_close(&trainer.vision);
    memory_free(pixels);
}

/* ---- sounds ---- */

enum { COUNT = 16000, LATE = 192 /* three quarters of a hop of 256 */ };

static const struct audio_config config = {.levels = 4, .codes = 256};

static void fill_sound(float *out, double high)
{
    for (i64 i = 0; i < COUNT; i++) {
        double t = (double)i / AUDIO_RATE_HZ, rise = 1 + sin(20 * t);
        out[i] = (float)(0.1 * rise *
                         (sin(2 * M_PI * 300 * t) + sin(2 * M_PI * 1100 * t + 3 * sin(9 * t)) +
                          high * sin(2 * M_PI * 6000 * t)));
    }
}

static const struct json *row_named(const struct json *j, const char *name)
{
    const struct json *rows = json_get(j, "rows");
    for (i64 i = 0; i < json_count(rows); i++)
        if (strcmp(json_string(json_get(json_at(rows, i), "name"), ""), name) == 0)
            return json_at(rows, i);
    fail_msg("no row %s", name);
    return NULL;
}

/* What is late, and half as loud, is as near as the original itself. */
TEST(delay_and_loudness_cost_nothing)
{
    float *sound = memory_alloc(COUNT * 4), *late = memory_alloc(COUNT * 4);
    struct mel_distance mel;
    struct audio_codecs codecs;
    fill_sound(sound, 1);
    memset(sound + COUNT - 2048, 0, 2048 * 4);
    for (i64 i = LATE; i < COUNT; i++)
        late[i] = 0.5f * sound[i - LATE];
    mel_distance_open(&mel, &device, AUDIO_RATE_HZ);
    audio_codecs_init(&codecs, &mel, &config);
    assert_int_equal(audio_codecs_add(&codecs, sound, late, COUNT), 0);
    struct json *j = audio_codecs_json(&codecs);
    const struct json *tokens = row_named(j, "tokens");
    assert_float_equal(json_number(json_get(tokens, "bits_per_s"), 0), 400, 1e-9);
    assert_float_equal(json_number(json_get(tokens, "delay_ms"), 0), 12, 1e-9);
    assert_true(json_number(json_get(tokens, "log_mel"), 1) < 2e-3);
    assert_true(json_number(json_get(tokens, "log_mel_low"), 1) < 2e-3);
    json_free(j);
    mel_distance_close(&mel);
    memory_free(sound);
    memory_free(late);
}

/* Distances of two sounds without a delay, from spectra of both behind silence, in f64. */
TEST(distances_are_those_of_spectra)
{
    enum { LEAD = 1024, SPECTRA = 63, ALL = LEAD + (SPECTRA + 8) * 256 };
    float *sounds[2] = {memory_alloc(ALL * 4), memory_alloc(ALL * 4)}, *m[2];
    double energy[2] = {0}, sum[2] = {0};
    struct mel_distance mel;
    struct audio_codecs codecs;
    i64 spectra, bands = 0;
    fill_sound(sounds[0] + LEAD, 1);
    fill_sound(sounds[1] + LEAD, 0);
    for (i64 i = 0; i < COUNT; i++)
        sounds[1][LEAD + i] *= 3 + 0.3f * (float)sin(0.001 * (double)i);
    mel_distance_open(&mel, &device, AUDIO_RATE_HZ);
    while (700 * (pow(1 + 8000.0 / 700, (double)(bands + 2) / 81) - 1) <= 3600)
        bands++;
    audio_codecs_init(&codecs, &mel, &config);
    assert_int_equal(audio_codecs_add(&codecs, sounds[0] + LEAD, sounds[1] + LEAD, COUNT), 0);
    for (int pass = 0; pass < 2; pass++)
        for (int s = 0; s < 2; s++) {
            for (i64 i = 0; i < ALL && pass && s; i++)
                sounds[1][i] *= (float)sqrt(energy[0] / energy[1]);
            const float *found = mel_distance_spectra(&mel, &spectra, sounds[s], ALL);
            if (pass)
                memory_free(m[s]);
            m[s] = memory_alloc(spectra * AUDIO_BANDS * 4);
            memcpy(m[s], found, (size_t)(spectra * AUDIO_BANDS) * 4);
            for (i64 i = 0; i < spectra * AUDIO_BANDS && !pass; i++)
                energy[s] += i % AUDIO_BANDS < bands ? exp(2 * (double)m[s][i]) : 0;
        }
    for (i64 f = 4; f < 4 + SPECTRA; f++)
        for (i64 b = 0; b < AUDIO_BANDS; b++) {
            double d = fabs((double)m[0][f * AUDIO_BANDS + b] - (double)m[1][f * AUDIO_BANDS + b]);
            sum[0] += d / AUDIO_BANDS / SPECTRA;
            sum[1] += b < bands ? d / (double)bands / SPECTRA : 0;
        }
    struct json *j = audio_codecs_json(&codecs);
    const struct json *tokens = row_named(j, "tokens"), *narrow = row_named(j, "8 kHz, not coded");
    assert_float_equal(json_number(json_get(tokens, "delay_ms"), 1), 0, 1e-9);
    assert_float_equal(json_number(json_get(tokens, "log_mel"), 1), sum[0], 1e-5);
    assert_float_equal(json_number(json_get(tokens, "log_mel_low"), 1), sum[1], 1e-5);
    assert_true(sum[0] > 2 * sum[1]);
    /* Without its high bands it is the same below them. */
    assert_true(json_number(json_get(narrow, "log_mel_low"), 1) < 0.02);
    assert_true(json_number(json_get(narrow, "log_mel"), 0) > 0.1);
    json_free(j);
    mel_distance_close(&mel);
    for (int s = 0; s < 2; s++) {
        memory_free(sounds[s]);
        memory_free(m[s]);
    }
}

int main(void)
{
    return tests_run(setup, teardown);
}
