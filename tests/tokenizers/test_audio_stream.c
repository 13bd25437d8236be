/* Causal audio tokenizers: sounds in chunks. */
#include "core/json.h"
#include "tests/scratch.h"
#include "tokenizer_training/audio_step.h"

#include <math.h>
#include <string.h>

static const struct rng_key test_key = {7, RNG_TEST};
static const struct audio_config toy = {16, 8, 2, 16, AUDIO_ISTFT, .causal = true};
enum { FRAME = 1280, LEVELS = 2 };
static struct device device;

static int make(void **state)
{
    device_open_cpu(&device);
    log_set_level(LOG_QUIET);
    return make_directory(state);
}

static int clear(void **state)
{
    device_close(&device);
    return remove_directory(state);
}

static void open_filled(struct audio_tokenizer *audio, enum dtype dtype)
{
    audio_open(audio, &device, &toy, dtype, false);
    for (i64 i = 0; i < audio->weights.count; i++) {
        struct weight *w = &audio->weights.list[i];
        i64 n = w->rows * w->columns;
        float scale = 0.7f / sqrtf((float)w->columns), *values = memory_alloc(n * 4);
        for (i64 j = 0; j < n; j++)
            values[j] = scale * (float)rng_normal(test_key, 20, (u32)i, (u32)j, 0);
        weight_put(&audio->weights, w, 0, w->rows, values);
        memory_free(values);
    }
}

static float *noisy_sound(i64 samples, u32 seed)
{
    float *out = memory_alloc(samples * 4);
    for (i64 i = 0; i < samples; i++) {
        double t = (double)i, loud = i / 5000 % 3 ? 0.3 : 0.02;
        out[i] = (float)(loud * (sin(0.04 * t + 3e-7 * t * t) + 0.5 * rng_normal(test_key, seed, (u32)i, 0, 0)));
    }
    return out;
}

/* A sound of these samples, heard and said in chunks of `chunk` samples. */
static void check_chunks(struct audio_tokenizer *audio, i64 count, i64 chunk)
{
    i64 frames = audio_frames(AUDIO_RATE_HZ, count), done = 0;
    float *sound = noisy_sound(count, 1), *whole = memory_alloc(frames * FRAME * 4),
          *parts = memory_alloc(frames * FRAME * 4);
    i32 *codes = memory_alloc(frames * LEVELS * 4), *fresh = memory_alloc((frames + 1) * LEVELS * 4);
    struct audio_stream in, out;
    audio_encode(audio, &(struct audio_item){sound, count, codes}, 1);
    audio_decode(audio, whole, codes, frames, NULL);
    audio_stream_open(&in, audio);
    audio_stream_open(&out, audio);
    for (i64 at = 0; at < count; at += chunk) {
        i64 length = min_i64(chunk, count - at);
        i64 n = audio_stream_encode(&in, fresh, sound + at, length, at + length == count);
        assert_true(done + n <= frames);
        assert_memory_equal(fresh, codes + done * LEVELS, (size_t)(n * LEVELS) * 4);
        audio_stream_decode(&out, parts + done * FRAME, fresh, n);
        done += n;
        assert_true(in.samples.length <= (11 * FRAME + length) * 4); /* it forgets the rest */
        assert_true(out.codes.length <= 12 * LEVELS * 4);
    }
    assert_int_equal(done, frames);
    assert_memory_equal(parts, whole, (size_t)(frames * FRAME) * 4);
    audio_stream_close(&in);
    audio_stream_close(&out);
    void *blocks[] = {sound, whole, parts, codes, fresh};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
}

TEST(chunks_of_any_length_are_the_whole)
{
    static const i64 chunks[] = {1, 159, 1280, 1281, 5000, 19 * FRAME + 3};
    struct audio_tokenizer audio;
    open_filled(&audio, DTYPE_F32);
    for (i64 i = 0; i < COUNT_OF(chunks); i++)
        check_chunks(&audio, 30 * FRAME + 77, chunks[i]);
    check_chunks(&audio, 1, 1);
    check_chunks(&audio, 300 * FRAME, 7 * FRAME); /* longer than a pass */
    check_chunks(&audio, 300 * FRAME + 5, 270 * FRAME);
    audio_close(&audio);
    open_filled(&audio, DTYPE_BF16);
    check_chunks(&audio, 30 * FRAME + 77, 2000);
    audio_close(&audio);
}

/* Codes and samples before a frame do not depend on it; those of the frame do. */
TEST(nothing_depends_on_what_comes_after)
{
    enum { FRAMES = 40, CHANGED = 25 };
    struct audio_tokenizer audio;
    float *sound = noisy_sound(FRAMES * FRAME, 1), *samples = memory_alloc(FRAMES * FRAME * 4),
          *others = memory_alloc(FRAMES * FRAME * 4);
    i32 codes[FRAMES * LEVELS], other_codes[FRAMES * LEVELS];
    open_filled(&audio, DTYPE_F32);
    audio_encode(&audio, &(struct audio_item){sound, FRAMES * FRAME, codes}, 1);
    for (i64 i = CHANGED * FRAME; i < FRAMES * FRAME; i++)
        sound[i] = (float)rng_normal(test_key, 3, (u32)i, 0, 0);
    audio_encode(&audio, &(struct audio_item){sound, FRAMES * FRAME, other_codes}, 1);
    assert_memory_equal(codes, other_codes, CHANGED * LEVELS * 4);
    assert_memory_not_equal(codes + CHANGED * LEVELS, other_codes + CHANGED * LEVELS, (FRAMES - CHANGED) * LEVELS * 4);
    memcpy(other_codes, codes, sizeof codes);
    other_codes[CHANGED * LEVELS] = (codes[CHANGED * LEVELS] + 1) % 16;
    audio_decode(&audio, samples, codes, FRAMES, NULL);
    audio_decode(&audio, others, other_codes, FRAMES, NULL);
    assert_memory_equal(samples, others, CHANGED * FRAME * 4);
    assert_memory_not_equal(samples + CHANGED * FRAME, others + CHANGED * FRAME, FRAME * 4);
    audio_close(&audio);
    memory_free(sound);
    memory_free(samples);
    memory_free(others);
}

/* Spectra of crops in training are those of encoding: of each row alone, with windows that end with their hop. */
TEST(causal_spectra_of_rows_are_those_of_each)
{
    enum { N = 4 * FRAME, BYTES = N / 160 * 80 * 4 };
    struct mel mel;
    struct arena arena;
    float *x = noisy_sound(2 * N, 5), *two[2];
    mel_init(&mel, &device, AUDIO_RATE_HZ, 640, 160, 80);
    device_arena_open(&device, &arena, (i64)1 << 30);
    float *in = arena_alloc(&arena, 2 * N * 4), *both = arena_alloc(&arena, 2 * BYTES),
          *one = arena_alloc(&arena, BYTES), *plain = arena_alloc(&arena, BYTES);
    device_put(&device, in, x, 2 * N * 4);
    mel_spectra_causal(both, &mel, matrix_of(in, DTYPE_F32, 2, N), NULL, &arena);
    mel_spectra_causal(one, &mel, matrix_of(in + N, DTYPE_F32, 1, N), NULL, &arena);
    mel_spectra(plain, &mel, matrix_of(in + N, DTYPE_F32, 1, N), NULL, &arena);
    for (int i = 0; i < 2; i++)
        two[i] = memory_alloc(BYTES);
    device_get(&device, two[0], both + BYTES / 4, BYTES);
    device_get(&device, two[1], one, BYTES);
    assert_memory_equal(two[0], two[1], BYTES);
    device_get(&device, two[0], plain, BYTES); /* spectrum f of one is f - 1 of the other, away from the ends */
    for (i64 i = 4 * 80; i < BYTES / 4; i++)
        assert_float_equal(two[1][i], two[0][i - 80], 1e-5);
    device_arena_close(&device, &arena);
    mel_release(&mel);
    memory_free(two[0]);
    memory_free(two[1]);
    memory_free(x);
}

TEST(a_directory_says_that_it_is_causal)
{
    struct audio_tokenizer audio;
    struct audio_config config, old = toy;
    enum dtype dtype;
    open_filled(&audio, DTYPE_F32);
    succeed(audio_save(&audio, directory));
    audio_close(&audio);
    succeed(audio_config_load(&config, &dtype, directory));
    assert_true(config.causal && config.decoder == AUDIO_ISTFT);
    old.decoder = AUDIO_GRIFFIN_LIM;
    assert_int_equal(audio_config_check(&old), -1);
    assert_non_null(strstr(error_text(), "expected decoder: istft"));
    struct audio_settings s = {0};
    const struct setting_override rows[] = {{"data", "./none"}, {"causal", "true"}};
    succeed(settings_read(&s, audio_stage_table, NULL, NULL, rows, COUNT_OF(rows)));
    assert_int_equal(audio_check_settings(&s), -1);
    settings_release(&s, audio_stage_table);
}

int main(void)
{
    return tests_run(make, clear);
}
