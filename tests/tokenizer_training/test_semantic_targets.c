/* What the head of semantics is to tell, from captions and from files of a teacher, bad ones, and the probe of
 * words. */
#include <math.h>

#include "core/safetensors.h"
#include "tests/features_fixture.h"
#include "tests/scratch.h"
#include "tokenizer_training/semantics.h"
#include "tokenizer_training/tokenizer_training.h"

static double draw(u32 a, u32 b)
{
    return rng_uniform((struct rng_key){11, RNG_TEST}, a, b, 0, 0);
}

/* ---- words ---- */

TEST(words_are_counted_by_media)
{
    const struct semantic_medium media[] = {
        {"a", "A red, red dog"}, {"b", "the DOG; blue"}, {"c", "a red cat"}, {"d", ""}, {"e", "Blue dog it's"}};
    struct semantic_words words;
    u8 occurs[4];
    semantic_words_count(&words, media, COUNT_OF(media), 10, 2, 3);
    assert_int_equal(words.count, 4);
    static const char *const expected[] = {"dog", "a", "blue", "red"}; /* 3, then 2 each by their bytes */
    for (i64 i = 0; i < 4; i++) {
        assert_string_equal(words.list[i], expected[i]);
        assert_int_equal(words.media[i], i == 0 ? 3 : 2);
    }
    semantic_words_mark(occurs, &words, "Red, a redder DOG");
    assert_memory_equal(occurs, ((u8[]){1, 1, 0, 1}), 4);
    semantic_words_release(&words);
    semantic_words_count(&words, media, COUNT_OF(media), 1, 1, 2);
    assert_int_equal(words.count, 1); /* dog is in 3 */
    assert_string_equal(words.list[0], "a");
    semantic_words_release(&words);
}

/* ---- targets ---- */

TEST(features_are_directions_pooled_in_time)
{
    char *folder = path_join(directory, "pooled"), *below = path_join(folder, "x");
    const struct semantic_medium two[] = {{"/data/set/x/a.wav", ""}, {"/elsewhere/b.wav", ""}};
    const struct semantic_settings own = {.target = folder};
    struct semantic_targets t;
    succeed(directory_make(below));
    put_features(folder, "x/a.wav", "features", 2, (i64[]){2, 2}, (float[]){1, 5, 5, 3});
    put_features(folder, "b.wav", "other", 1, (i64[]){2}, (float[]){0, -2});
    succeed(semantic_targets_open(&t, &own, two, 2, "/data/set/"));
    assert_int_equal(t.width, 2);
    double root = sqrt((9 + 16) / 2.0);
    assert_float_equal(t.features[0], 3 / root, 1e-6);
    assert_float_equal(t.features[1], 4 / root, 1e-6);
    assert_float_equal(t.features[2], 0, 0);
    assert_float_equal(t.features[3], -sqrt(2), 1e-6);
    semantic_targets_release(&t);
    memory_free(folder);
    memory_free(below);
}

TEST(bad_features_are_refused)
{
    char *folder = path_join(directory, "bad");
    const struct semantic_medium two[] = {{"/data/a.wav", ""}, {"/data/b.wav", ""}};
    const struct semantic_settings own = {.target = folder}, none = {.target = (char *)"/none/here"};
    struct semantic_targets t;
    struct {
        int rank;
        i64 shape[3];
        float values[4];
        const char *says;
    } cases[] = {{1, {3}, {1, 2, 3}, "bad/b.wav.safetensors: features of length 3, and those of"},
                 {1, {2}, {1, NAN}, "b.wav.safetensors: features that are not finite, in column 1"},
                 {2, {2, 2}, {1, INFINITY, 1, 1}, "features that are not finite, in column 1"},
                 {1, {2}, {0, 0}, "features that are all 0 have no direction"},
                 {1, {0}, {0}, "features without values"},
                 {2, {0, 2}, {0}, "features without values"},
                 {3, {1, 1, 2}, {1, 2}, "features of rank 3: expected [D], or [T, D]"}};
    assert_int_equal(semantic_targets_open(&t, &none, two, 2, "/data"), -1);
    assert_says("semantic: /none/here is no folder: expected `words`, or a folder");
    succeed(directory_make(folder));
    put_features(folder, "a.wav", "features", 1, (i64[]){2}, (float[]){1, 2});
    assert_int_equal(semantic_targets_open(&t, &own, two, 2, "/data"), -1);
    assert_says("bad/b.wav.safetensors is missing, the features of /data/b.wav");
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        put_features(folder, "b.wav", "features", cases[i].rank, cases[i].shape, cases[i].values);
        assert_int_equal(semantic_targets_open(&t, &own, two, 2, "/data"), -1);
        assert_says(cases[i].says);
    }
    memory_free(put_text("bad/b.wav.safetensors", ""));
    assert_int_equal(semantic_targets_open(&t, &own, two, 2, "/data"), -1);
    assert_says("b.wav.safetensors");
    char *path = path_join(folder, "b.wav.safetensors");
    const float value[] = {1, 2};
    const struct tensor_source both[] = {{.name = "x", .dtype = DTYPE_F32, .rank = 1, .shape = {2}, .data = value},
                                         {.name = "y", .dtype = DTYPE_F32, .rank = 1, .shape = {2}, .data = value}};
    succeed(safetensors_save(path, both, 2, NULL));
    assert_int_equal(semantic_targets_open(&t, &own, two, 2, "/data"), -1);
    assert_says("holds 2 tensors and none named features");
    memory_free(path);
    memory_free(folder);
}

TEST(captions_without_words_are_refused)
{
    const struct semantic_medium few[] = {{"a", "one"}, {"b", "one"}, {"c", "two, two"}, {"d", "..."}};
    const struct semantic_settings own = {.target = (char *)"words", .words = 8};
    struct semantic_targets t;
    assert_int_equal(semantic_targets_open(&t, &own, few, COUNT_OF(few), "photos"), -1);
    assert_says("photos: no word stands in the captions of 3 of the 4 training media: semantic: words needs");
    assert_int_equal(semantic_check(&own, TRAIN_DECODER), -1);
    assert_says("semantic: words with train: decoder, which leaves the codes as they are");
    succeed(semantic_check(&own, TRAIN_ALL));
    const struct semantic_settings off = {.target = (char *)""};
    succeed(semantic_check(&off, TRAIN_DECODER));
}

/* ---- the probe ---- */

TEST(average_precision_is_that_of_a_ranking)
{
    assert_float_equal(semantic_precision((double[]){4, 3, 2, 1}, (u8[]){1, 0, 1, 0}, 4), (1 + 2 / 3.0) / 2, 1e-12);
    assert_float_equal(semantic_precision((double[]){1, 1, 1, 1}, (u8[]){1, 0, 0, 0}, 4), 0.25, 1e-12);
    assert_float_equal(semantic_precision((double[]){1, 2, 3}, (u8[]){1, 1, 1}, 3), 1, 1e-12);
}

enum { PROBED = 120, COLUMNS = 5 };

/* Media of three words, whose features are the word's direction and noise. */
static struct semantic_set make_set(i64 count, double noise, u32 seed)
{
    static const char *const texts[] = {"the red", "a green", "any blue"};
    struct semantic_set set = {memory_alloc(count * COLUMNS * 4), memory_alloc(count * (i64)sizeof *set.media), count};
    for (i64 i = 0; i < count; i++) {
        set.media[i] = (struct semantic_medium){"", texts[i % 3]};
        for (i64 c = 0; c < COLUMNS; c++)
            set.features[i * COLUMNS + c] =
                (float)(noise * (draw(seed, (u32)(i * COLUMNS + c)) - 0.5) + (noise < 1 && c == i % 3) + 7);
    }
    return set;
}

TEST(the_probe_tells_words_that_are_there)
{
    struct semantic_told told;
    struct semantic_set train = make_set(PROBED, 0.5, 1), other = make_set(PROBED / 2, 0.5, 2);
    assert_true(semantic_probe(&told, &train, &other, COLUMNS));
    assert_int_equal(told.words, 6);
    assert_int_equal(told.media, PROBED / 2);
    assert_float_equal(told.right, 1, 0);
    assert_float_equal(told.precision, 1, 1e-9);
    assert_float_equal(told.chance[0], 1 / 3.0, 1e-9);
    assert_float_equal(told.chance[1], 1 / 3.0, 1e-9);
    other.media[0].text = "nothing"; /* has none of the words, so it is not asked for its own */
    assert_true(semantic_probe(&told, &train, &other, COLUMNS));
    assert_int_equal(told.media, PROBED / 2 - 1);
    assert_float_equal(told.right, 1, 0);
    other.media[1].text = "any blue"; /* looks as green does: one of 59 is told wrong */
    assert_true(semantic_probe(&told, &train, &other, COLUMNS));
    assert_float_equal(told.right, 1 - 1.0 / (PROBED / 2 - 1), 1e-9);
    assert_float_equal(told.error, sqrt(told.right * (1 - told.right) / (PROBED / 2 - 2)), 1e-9);
    assert_true(told.precision < 1);
    semantic_set_release(&other);
    other = make_set(PROBED / 2, 2, 3);
    assert_true(semantic_probe(&told, &train, &other, COLUMNS));
    assert_true(told.right < 0.6 && told.precision < 0.6);
    train.count = 19;
    assert_false(semantic_probe(&told, &train, &other, COLUMNS));
    semantic_set_release(&train);
    semantic_set_release(&other);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    return tests_run(make_directory, remove_directory);
}
