/* Nearness of generated media to their own originals, against hand-computed values: pictures of one
 * grey, sounds of one loudness. */
#include "inference/samples_inside.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 8, SIZE = 16, BYTES = SIZE * SIZE * 3, FRAMES = 4 };

static struct samples_run run;
static struct sample_item items[MOST];

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

static void expect(const struct sample_set *set, double pair, i64 first, i64 five)
{
    struct json *j = sample_nearness(&run, set);
    assert_int_equal(json_integer(json_get(j, "captions"), -1), set->count);
    assert_int_equal(json_integer(json_get(j, "unreadable"), -1), set->unreadable);
    assert_float_equal(json_number(json_get(j, "pair"), -1), pair, 1e-12);
    assert_int_equal(json_integer(json_get(j, "first"), -1), first);
    assert_int_equal(json_integer(json_get(j, "first_five"), -1), five);
    json_free(j);
    for (i64 i = 0; i < set->count; i++) {
        void *blocks[] = {items[i].original, items[i].generated, items[i].original_mel, items[i].generated_mel};
        for (i64 b = 0; b < COUNT_OF(blocks); b++)
            memory_free(blocks[b]);
    }
}

/* The first is 40 from its own original, and the second's is 10 away; the others are nearest to
 * their own. */
static void each_is_compared_with_the_others_originals(void **state)
{
    (void)state;
    struct sample_set set = pictures_of((const int[]){0, 50, 200}, (const int[]){40, 45, 210}, 3);
    expect(&set, 5.0 / 6, 2, 3);
}

/* All outputs are equal: the one whose original is k-th
 * nearest to 0 has k - 1 originals before it. */
static void five_others_may_be_nearer_but_one(void **state)
{
    (void)state;
    struct sample_set set =
        pictures_of((const int[]){10, 20, 30, 40, 50, 60, 70}, (const int[]){0, 0, 0, 0, 0, 0, 0}, 7);
    expect(&set, 21.0 / 42, 1, 5);
}

static void as_near_is_not_nearer(void **state)
{
    (void)state;
    struct sample_set set = pictures_of((const int[]){30, 30}, (const int[]){30, 30}, 2);
    expect(&set, 0, 0, 2);
}

static void alone_there_is_no_pair(void **state)
{
    (void)state;
    struct sample_set set = pictures_of((const int[]){30}, (const int[]){90}, 1);
    expect(&set, -1, 1, 1); /* null */
}

/* The first picture is twice as wide, 80 between white sides, and was reproduced. Cropped to a
 * square it equals the second's output of 80, which is 10 from its own original. */
static void another_shape_is_cut_to_what_was_made(void **state)
{
    struct vision_config *c = &run.generator.vision.config;
    (void)state;
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
static void what_is_missing_is_silence(void **state)
{
    const double silence = log(0.01);
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_compared_with_the_others_originals),
        cmocka_unit_test(five_others_may_be_nearer_but_one),
        cmocka_unit_test(as_near_is_not_nearer),
        cmocka_unit_test(alone_there_is_no_pair),
        cmocka_unit_test(another_shape_is_cut_to_what_was_made),
        cmocka_unit_test(what_is_missing_is_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
