/* Nearness of generated media to their own originals, against hand-computed values: pictures of one
 * grey, sounds of one loudness. */
#include "samples/samples_inside.h"

#include "data/media/media.h"
#include "tests/scratch.h"

#include <math.h>
#include <string.h>

enum { MOST = 8, SIZE = 16, BYTES = SIZE * SIZE * 3, FRAMES = 4 };

static struct samples_run run;
static struct sample_item items[MOST];
static const struct stage stage = {.seed = 1};

static u8 *grey(int value, i64 bytes)
{
    u8 *pixels = memory_alloc(bytes);
    memset(pixels, value, (size_t)bytes);
    return pixels;
}

static struct sample_set pictures_of(const int *original, const int *generated, i64 count)
{
    memset(items, 0, sizeof items);
    for (i64 i = 0; i < count; i++)
        items[i] = (struct sample_item){.original = grey(original[i], BYTES),
                                        .generated = grey(generated[i], BYTES),
                                        .original_count = BYTES,
                                        .generated_count = BYTES};
    return (struct sample_set){.kind = MODALITY_IMAGE, .items = items, .count = count, .unreadable = 2};
}

static float *even(double loudness, i64 frames)
{
    float *mel = memory_alloc(frames * AUDIO_BANDS * 4);
    for (i64 i = 0; i < frames * AUDIO_BANDS; i++)
        mel[i] = (float)loudness;
    return mel;
}

static void release_items(const struct sample_set *set)
{
    for (i64 i = 0; i < set->count; i++) {
        void *blocks[] = {items[i].original, items[i].generated, items[i].original_mel, items[i].generated_mel};
        for (i64 b = 0; b < COUNT_OF(blocks); b++)
            memory_free(blocks[b]);
    }
}

static void expect(const struct sample_set *set, double pair, i64 first, i64 five)
{
    struct json *j = sample_nearness(&run, set);
    assert_int_equal(json_integer(json_get(j, "captions"), -1), set->count);
    assert_int_equal(json_integer(json_get(j, "unreadable"), -1), set->unreadable);
    assert_float_equal(json_number(json_get(j, "pair"), -1), pair, 1e-12);
    assert_int_equal(json_integer(json_get(j, "first"), -1), first);
    assert_int_equal(json_integer(json_get(j, "first_five"), -1), five);
    json_free(j);
    release_items(set);
}

/* The first is 40 from its own original, and the second's is 10 away; the others are nearest to
 * their own. */
TEST(each_is_compared_with_the_others_originals)
{
    struct sample_set set = pictures_of((const int[]){0, 50, 200}, (const int[]){40, 45, 210}, 3);
    expect(&set, 5.0 / 6, 2, 3);
}

/* All outputs are equal: the one whose original is k-th
 * nearest to 0 has k - 1 originals before it. */
TEST(five_others_may_be_nearer_but_one)
{
    struct sample_set set =
        pictures_of((const int[]){10, 20, 30, 40, 50, 60, 70}, (const int[]){0, 0, 0, 0, 0, 0, 0}, 7);
    expect(&set, 21.0 / 42, 1, 5);
}

TEST(as_near_is_not_nearer)
{
    struct sample_set set = pictures_of((const int[]){30, 30}, (const int[]){30, 30}, 2);
    expect(&set, 0, 0, 2);
}

TEST(alone_there_is_no_pair)
{
    struct sample_set set = pictures_of((const int[]){30}, (const int[]){90}, 1);
    expect(&set, -1, 1, 1); /* null */
}

/* The first picture is twice as wide, 80 between white sides, and was reproduced. Cropped to a
 * square it equals the second's output of 80, which is 10 from its own original. */
TEST(another_shape_is_cut_to_what_was_made)
{
    struct vision_config *c = &run.generator.vision.config;
    *c = (struct vision_config){.stride = 8, .bits = 6};
    assert_int_equal(vision_add_shape(c, 1, SIZE, SIZE, 0, NULL, 0), 0);
    assert_int_equal(vision_add_shape(c, 1, SIZE, 2 * SIZE, 0, NULL, 0), 0);
    struct sample_set set = pictures_of((const int[]){0, 90}, (const int[]){0, 80}, 2);
    u8 **wide[] = {&items[0].original, &items[0].generated};
    for (i64 k = 0; k < 2; k++) {
        memory_free(*wide[k]);
        *wide[k] = grey(255, 2 * BYTES);
        for (i64 y = 0; y < SIZE; y++)
            memset(*wide[k] + (y * 2 * SIZE + SIZE / 2) * 3, 80, SIZE * 3);
    }
    items[0].original_count = items[0].generated_count = 2 * BYTES;
    items[0].shape = 1;
    expect(&set, 0.5, 1, 2);
}

/* The first's original has the same loudness for 1 of its 4 frames and continues, unlike the
 * output; the other's is almost as loud, and as short. */
TEST(what_is_missing_is_silence)
{
    const double silence = log(0.01);
    memset(items, 0, sizeof items);
    items[0] = (struct sample_item){.original_mel = even(silence + 4, FRAMES),
                                    .original_count = FRAMES,
                                    .generated_mel = even(silence + 4, 1),
                                    .generated_count = 1};
    items[1] = (struct sample_item){.original_mel = even(silence + 3, 1), .original_count = 1}; /* no output */
    struct sample_set set = {.kind = MODALITY_AUDIO, .items = items, .count = 2};
    expect(&set, 0, 0, 2);
    items[0] = (struct sample_item){.original_mel = even(silence + 4, FRAMES),
                                    .original_count = FRAMES,
                                    .generated_mel = even(silence + 4, 3),
                                    .generated_count = 3};
    items[1] = (struct sample_item){.original_mel = even(silence + 2, 1),
                                    .original_count = 1,
                                    .generated_mel = even(silence + 1, 1),
                                    .generated_count = 1};
    expect(&set, 1, 2, 2); /* 1 against 10 / 3; 1 against (3 + 12) / 4 */
}

static double number(const struct json *j, const char *key)
{
    return json_number(json_get(j, key), -1);
}

/* Without the first or the second medium all pairs are won, without the third one of two: the
 * standard error is sqrt(2/3 (1/36 + 1/36 + 1/9)) = 1/3. */
TEST(the_error_is_that_of_media_left_out)
{
    struct sample_set set = pictures_of((const int[]){0, 50, 200}, (const int[]){40, 45, 210}, 3);
    struct json *j = sample_nearness(&run, &set);
    assert_float_equal(number(j, "pair_low"), 5.0 / 6 - 1.96 / 3, 1e-6);
    assert_float_equal(number(j, "pair_high"), 1, 1e-12);
    json_free(j);
    set.count = 2; /* without one of two there is no pair */
    j = sample_nearness(&run, &set);
    assert_float_equal(number(j, "pair_low"), -1, 1e-12);
    json_free(j);
    set.count = 3;
    release_items(&set);
}

static float *ramp(double from, double to, i64 frames) /* at the middle of each frame */
{
    float *mel = memory_alloc(frames * AUDIO_BANDS * 4);
    for (i64 i = 0; i < frames * AUDIO_BANDS; i++)
        mel[i] = (float)(from + (to - from) * ((double)(i / AUDIO_BANDS) + 0.5) / (double)frames);
    return mel;
}

/* The first two are 8 and 10 frames long, the others 20 and 24. Outputs have the originals' courses
 * at another length. The first output is the second's course. */
TEST(speech_is_compared_at_one_length_with_like_lengths)
{
    static const i64 frames[] = {8, 10, 20, 24};
    static const double from[] = {0, 1, 0, 1}, to[] = {1, 0, 1, 0}, made_from[] = {1, 1, 0, 1},
                        made_to[] = {0, 0, 1, 0};
    memset(items, 0, sizeof items);
    for (i64 i = 0; i < 4; i++)
        items[i] = (struct sample_item){.original_mel = ramp(from[i], to[i], frames[i]),
                                        .original_count = frames[i],
                                        .generated_mel = ramp(made_from[i], made_to[i], 3 * frames[3 - i]),
                                        .generated_count = 3 * frames[3 - i]};
    struct sample_set set = {.kind = MODALITY_AUDIO, .items = items, .count = 4};
    struct json *j = sample_nearness(&run, &set), *aligned = json_get(j, "aligned");
    assert_float_equal(number(aligned, "pairs"), 4, 0);
    assert_float_equal(number(aligned, "pair"), 0.75, 1e-12);
    json_free(j);
    release_items(&set);
}

static void write_grey(const char *name, int value)
{
    struct buffer png = {0};
    u8 *pixels = grey(value, BYTES);
    image_encode_png(&png, pixels, SIZE, SIZE);
    assert_int_equal(file_replace(path_of(name), png.data, png.length), 0);
    memory_free(pixels);
    buffer_release(&png);
}

/* "a red apple" is answered by the first of two training pictures with two of its words, 40 from its
 * own original and 60 from the other's, "a blue car" by one that is 5 away; of their own captions
 * the training pictures know none. */
TEST(the_nearest_caption_stands_for_an_answer)
{
    char *captions[] = {"a car", "red apple tree", "a red ball", "blue car"}, *paths[COUNT_OF(captions)];
    static const int greys[] = {150, 40, 99, 105};
    run.stage = &stage;
    run.media[MODALITY_IMAGE][SPLIT_VALIDATION].listed = true;
    run.generator.vision.config = (struct vision_config){.stride = 8, .bits = 6};
    assert_int_equal(vision_add_shape(&run.generator.vision.config, 1, SIZE, SIZE, 0, NULL, 0), 0);
    for (i64 i = 0; i < COUNT_OF(captions); i++) {
        char name[16];
        snprintf(name, sizeof name, "%lld.png", (long long)i);
        write_grey(name, greys[i]);
        paths[i] = string_copy(path_of(name));
    }
    run.media[MODALITY_IMAGE][SPLIT_TRAIN] = (struct captioned_media){captions, paths, COUNT_OF(captions), true};
    struct sample_set set = pictures_of((const int[]){0, 100}, (const int[]){0, 100}, 2);
    set.split = SPLIT_TEST;
    items[0].text = "a red apple";
    items[1].text = "a blue car";
    struct json *j = sample_nearness(&run, &set);
    assert_int_equal(sample_baselines(j, &run, &set), 0);
    assert_float_equal(number(j, "pair"), 1, 1e-12);
    assert_float_equal(number(j, "retrieval"), 1, 1e-12);
    assert_float_equal(number(j, "ridge"), 0.5, 1e-12); /* both answers are near the mean, 98: the second's */
    json_free(j);
    items[0].original[0] = 0; /* now the first is answered by grey 99 */
    items[0].text = "a red";
    j = sample_nearness(&run, &set);
    assert_int_equal(sample_baselines(j, &run, &set), 0);
    assert_float_equal(number(j, "retrieval"), 0.5, 1e-12);
    json_free(j);
    items[0].text = "red apple tree"; /* by grey 40 on a new part, by another caption's on its own */
    for (set.split = SPLIT_TRAIN; set.split <= SPLIT_TEST; set.split++) {
        j = sample_nearness(&run, &set);
        assert_int_equal(sample_baselines(j, &run, &set), 0);
        assert_float_equal(number(j, "retrieval"), set.split == SPLIT_TRAIN ? 0.5 : 1, 1e-12);
        json_free(j);
    }
    for (i64 i = 0; i < COUNT_OF(paths); i++)
        memory_free(paths[i]);
    training_media_release(&run.training[MODALITY_IMAGE]);
    run.training[MODALITY_IMAGE] = (struct training_media){0};
    release_items(&set);
}

/* A flat spectrum of 5 frames and 3 for each letter has the length of its own original, and at equal
 * length it wins one pair of two. */
TEST(the_length_alone_is_a_baseline)
{
    char *captions[] = {"x"}, *paths[] = {"/nowhere/x.wav"};
    memset(items, 0, sizeof items);
    run.media[MODALITY_AUDIO][SPLIT_TRAIN] = (struct captioned_media){captions, paths, 1, true};
    run.lengths = (struct sound_lengths){.base = 5, .slope = 3, .known = true};
    for (i64 k = 0; k < AUDIO_BANDS; k++)
        run.lengths.mean[k] = 1;
    for (i64 i = 0; i < 2; i++)
        items[i] = (struct sample_item){.text = i ? "no ew" : "no \u00fc",
                                        .original_mel = even(i ? 1.4 : 1.5, i ? 17 : 14),
                                        .original_count = i ? 17 : 14};
    struct sample_set set = {.kind = MODALITY_AUDIO, .split = SPLIT_TEST, .items = items, .count = 2};
    struct json *j = sample_nearness(&run, &set);
    assert_int_equal(sample_baselines(j, &run, &set), 0);
    assert_float_equal(number(j, "length"), 1, 1e-12);
    assert_float_equal(number(json_get(j, "aligned"), "length"), 0.5, 1e-12);
    assert_float_equal(number(j, "retrieval"), 0, 1e-12); /* its file is missing */
    json_free(j);
    release_items(&set);
}

/* Of four held-out files one is a training file, one has only its length, one cannot be read. */
TEST(files_that_are_trained_on_are_counted)
{
    static const char *const texts[] = {"same", "diff", "another length", "same"};
    char *captions[] = {"x", "y"}, *paths[2], *held[4];
    for (i64 i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "held%d", (int)i);
        held[i] = path_join(directory, name);
        assert_int_equal(file_replace(held[i], texts[i], (i64)strlen(texts[i])), 0);
        memset(&items[i], 0, sizeof items[i]);
        items[i].path = held[i];
    }
    assert_int_equal(remove(held[3]), 0);
    for (i64 i = 0; i < 2; i++)
        paths[i] = path_join(directory, i ? "missing" : "trained");
    assert_int_equal(file_replace(paths[0], "same", 4), 0);
    run.media[MODALITY_IMAGE][SPLIT_TRAIN] = (struct captioned_media){captions, paths, 2, true};
    struct sample_set set = {.kind = MODALITY_IMAGE, .split = SPLIT_TEST, .items = items, .count = 4};
    assert_int_equal(samples_in_common(&run, &set), 1);
    for (i64 i = 0; i < 4; i++)
        memory_free(held[i]);
    memory_free(paths[0]);
    memory_free(paths[1]);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
