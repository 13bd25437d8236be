/* What the training media alone tell: the nearest one's caption, and a weighted sum of them. Pictures of
 * one grey, on numbers small enough for a pencil. */
#include "samples/samples_inside.h"

#include "data/media/media.h"
#include "tests/scratch.h"

#include <math.h>
#include <string.h>

enum { SIZE = 16, BYTES = SIZE * SIZE * 3, GRID_FEATURES = 8 * 8 * 3 };

static struct samples_run run;
static const struct stage stage = {.seed = 1};

/* Writes pictures of these greys and lists them as the captioned ones of a part. */
static void list_greys(enum split split, char *const *captions, const int *greys, i64 count)
{
    struct captioned_media *m = &run.media[MODALITY_IMAGE][split];
    *m = (struct captioned_media){.captions = memory_alloc(max_i64(count, 1) * (i64)sizeof *m->captions),
                                  .paths = memory_alloc(max_i64(count, 1) * (i64)sizeof *m->paths),
                                  .count = count,
                                  .listed = true};
    for (i64 i = 0; i < count; i++) {
        struct buffer png = {0};
        u8 pixels[BYTES];
        memset(pixels, greys[i], BYTES);
        image_encode_png(&png, pixels, SIZE, SIZE);
        char *name = string_format("%s-%lld.png", split_names[split], (long long)i);
        m->captions[i] = captions[i];
        m->paths[i] = string_copy(path_of(name));
        assert_int_equal(file_replace(m->paths[i], png.data, png.length), 0);
        buffer_release(&png);
        memory_free(name);
    }
}

static void begin(void)
{
    memset(&run, 0, sizeof run);
    run.stage = &stage;
    run.generator.vision.config = (struct vision_config){.stride = 8, .bits = 6};
    assert_int_equal(vision_add_shape(&run.generator.vision.config, 1, SIZE, SIZE, 0, NULL, 0), 0);
}

static void end(void)
{
    for (enum split split = 0; split < SPLITS; split++) {
        struct captioned_media *m = &run.media[MODALITY_IMAGE][split];
        for (i64 i = 0; i < m->count; i++)
            memory_free(m->paths[i]);
        memory_free(m->captions);
        memory_free(m->paths);
    }
    training_media_release(&run.training[MODALITY_IMAGE]);
}

TEST(the_nearest_picture_is_another_file)
{
    char *captions[] = {"a", "b", "c"};
    float features[GRID_FEATURES];
    begin();
    list_greys(SPLIT_TRAIN, captions, (const int[]){10, 100, 104}, 3);
    assert_int_equal(training_media_read(&run, MODALITY_IMAGE), 0);
    const struct training_media *t = &run.training[MODALITY_IMAGE];
    struct sample_item item = {.path = string_copy(run.media[MODALITY_IMAGE][SPLIT_TRAIN].paths[1])};
    assert_int_equal(t->count, 3);
    assert_int_equal(feature_width(MODALITY_IMAGE), GRID_FEATURES);
    assert_int_equal(sample_load_original(&run, MODALITY_IMAGE, &item), 0);
    medium_features(features, &run, MODALITY_IMAGE, &item);
    for (i64 i = 0; i < GRID_FEATURES; i++)
        assert_float_equal(features[i], 100, 1e-4);
    assert_string_equal(t->items[training_media_nearest(t, features, "elsewhere.png")].text, "b");
    assert_string_equal(t->items[training_media_nearest(t, features, item.path)].text, "c");
    sample_item_release(&item);
    end();
}

/* Cells are means: the left half of a picture is black, the right one white and the first row grey. */
TEST(cells_are_means_of_their_pixels)
{
    u8 pixels[BYTES];
    float features[GRID_FEATURES];
    begin();
    for (i64 i = 0; i < BYTES; i++)
        pixels[i] = i / (SIZE * 3) == 0 ? 100 : i / 3 % SIZE < SIZE / 2 ? 0 : 200;
    struct sample_item item = {.original = pixels, .original_count = BYTES};
    medium_features(features, &run, MODALITY_IMAGE, &item);
    assert_float_equal(features[0], 50, 1e-4);      /* two rows: 100 and 0 */
    assert_float_equal(features[7 * 3], 150, 1e-4); /* 100 and 200 */
    assert_float_equal(features[8 * 3], 0, 1e-4);   /* the next row of cells */
    assert_float_equal(features[15 * 3 + 2], 200, 1e-4);
}

static void expect_grey(const char *caption, int grey)
{
    struct sample_item item = {.text = (char *)caption};
    struct sample_set set = {.kind = MODALITY_IMAGE, .split = SPLIT_TEST, .items = &item, .count = 1};
    assert_int_equal(ridge_predict(&run, &set), 0);
    assert_int_equal(item.generated_count, BYTES);
    for (i64 i = 0; i < BYTES; i++)
        assert_int_equal(item.generated[i], grey);
    memory_free(item.generated);
}

/* Captions of one word: the kernel is 1 + 1 for the same word and 1 for another. With lambda 10 the
 * weights of "red" are (2 1) (12 1; 1 12)^-1 = (23 10) / 143, and half of what they lack of 1. */
TEST(ridge_predicts_by_words)
{
    char *captions[] = {"red", "Blue,"};
    begin();
    list_greys(SPLIT_TRAIN, captions, (const int[]){100, 200}, 2);
    list_greys(SPLIT_VALIDATION, NULL, NULL, 0);
    expect_grey("red", 145);
    expect_grey("blue", 155);
    expect_grey("green", 150);
    end();
}

/* A validation part that is as the training part says asks for the least lambda, 0.3: the weights of "red"
 * are (2 1) (2.3 1; 1 2.3)^-1 = (3.6 0.3) / 4.29. One that is not asks for the most, 10, as above. */
TEST(validation_chooses_lambda)
{
    char *captions[] = {"red", "blue"}, *others[] = {"blue", "red"};
    begin();
    list_greys(SPLIT_TRAIN, captions, (const int[]){100, 200}, 2);
    list_greys(SPLIT_VALIDATION, captions, (const int[]){100, 200}, 2);
    expect_grey("red", 112);
    assert_true(run.ridge[MODALITY_IMAGE].lambda == 0.3 && !run.ridge[MODALITY_IMAGE].pairs);
    end();
    begin();
    list_greys(SPLIT_TRAIN, captions, (const int[]){100, 200}, 2);
    list_greys(SPLIT_VALIDATION, others, (const int[]){100, 200}, 2);
    expect_grey("red", 145);
    end();
}

/* Pairs of words: "red ball" and "blue cube" are dark, "red cube" and "blue ball" bright. Words alone know
 * nothing of it; with their pairs a kernel of two common words is 4. */
TEST(validation_chooses_pairs_of_words)
{
    char *captions[] = {"red ball", "blue cube", "red cube", "blue ball"};
    static const int greys[] = {50, 50, 150, 150};
    begin();
    list_greys(SPLIT_TRAIN, captions, greys, 4);
    list_greys(SPLIT_VALIDATION, captions, greys, 4);
    struct sample_item item = {.text = (char *)"red ball"};
    struct sample_set set = {.kind = MODALITY_IMAGE, .split = SPLIT_TEST, .items = &item, .count = 1};
    assert_int_equal(ridge_predict(&run, &set), 0);
    assert_true(run.ridge[MODALITY_IMAGE].pairs);
    assert_in_range(item.generated[0], 51, 75);
    memory_free(item.generated);
    end();
}

/* A sound of one band: 24 points from its first to its last loud spectrum, less 0.7 of the mean. */
TEST(sounds_are_compared_where_they_sound)
{
    enum { FRAMES = 10 };
    float mel[FRAMES * AUDIO_BANDS], features[1024];
    begin();
    run.mel.mel.hop = AUDIO_RATE_HZ / 100;
    for (i64 i = 0; i < FRAMES * AUDIO_BANDS; i++) {
        bool sounds = i / AUDIO_BANDS >= 2 && i / AUDIO_BANDS <= 5;
        mel[i] = sounds ? (float)(i / AUDIO_BANDS) : logf(0.01f);
    }
    struct sample_item item = {.original_mel = mel, .original_count = FRAMES};
    i64 width = feature_width(MODALITY_AUDIO), bands = (width - 1) / 24;
    assert_in_range(width, 25, COUNT_OF(features));
    medium_features(features, &run, MODALITY_AUDIO, &item);
    assert_float_equal(features[0], 2 - 0.7 * 3.5, 1e-4);
    assert_float_equal(features[23 * bands + bands - 1], 5 - 0.7 * 3.5, 1e-4);
    assert_float_equal(features[width - 1], 4 * 0.01 * 30, 1e-4);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
