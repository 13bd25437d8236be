/* Aspects: the list of shapes, the shape that a picture gets, and the crop to it. */
#include "data/shapes/aspects.h"
#include "data/media/media.h"
#include "data/shapes/shaped.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct aspect_list make(double most, i64 count, i64 size, i64 stride)
{
    struct aspect_list list;
    const struct aspect_settings settings = {.most = most, .count = count};
    assert_int_equal(aspects_make(&list, &settings, size, stride), 0);
    return list;
}

TEST(shapes_are_spread_up_to_the_most)
{
    static const struct aspect wanted[] = {{64, 64}, {56, 72}, {72, 56}, {48, 80}, {80, 48}};
    struct aspect_list list = make(2, 7, 64, 8);
    assert_int_equal(list.count, 5);
    assert_memory_equal(list.items, wanted, sizeof wanted);
    list = make(4, 5, 256, 16);
    assert_int_equal(list.count, 5);
    assert_int_equal(list.items[1].height, 8 * 16 + 48); /* 11 rows of 23: ratio 2 */
    assert_int_equal(list.items[3].height, 8 * 16);      /* 8 rows of 32: ratio 4 */
    assert_int_equal(list.items[3].width, 32 * 16);
    assert_int_equal(make(1, 7, 64, 16).count, 1);
    assert_int_equal(make(2, 1, 64, 16).count, 1);
    assert_int_equal(make(64, 8, 16, 16).count, 1); /* a single cell has no other proportions */
}

TEST(shapes_have_no_more_cells_than_the_square)
{
    for (i64 side = 1; side <= 40; side++)
        for (i64 count = 1; count <= ASPECTS_MOST; count++) {
            struct aspect_list list = make(3, count, side * 8, 8);
            assert_true(list.count >= 1 && list.count <= count && list.items[0].height == side * 8);
            for (i64 i = 0; i < list.count; i++) {
                const struct aspect *a = &list.items[i];
                double proportions = (double)max_i64(a->height, a->width) / (double)min_i64(a->height, a->width);
                assert_true(a->height % 8 == 0 && a->width % 8 == 0 && a->height * a->width <= side * side * 64);
                assert_true(proportions <= 3 && a->height * a->width * 3 >= side * side * 64 * 2);
                if (i % 2)
                    assert_true(list.items[i + 1].height == a->width && list.items[i + 1].width == a->height);
            }
        }
}

TEST(the_nearest_proportions_win)
{
    struct aspect_list list = make(2, 7, 64, 8);
    static const struct {
        double height, width;
        i64 nearest;
    } cases[] = {{500, 500, 0}, {9, 10, 0},      {600, 800, 1}, {800, 600, 2},
                 {2, 3, 3},     {1080, 1920, 3}, {1, 100, 3},   {3000, 10, 4}};
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(aspect_nearest(&list, cases[i].height, cases[i].width), cases[i].nearest);
}

static void refuse(const char *shape, const char *why)
{
    char *shapes[] = {(char *)"64x64", (char *)shape};
    const struct aspect_settings settings = {.shapes = {.values = shapes, .count = 2}};
    struct aspect_list list;
    assert_int_equal(aspects_make(&list, &settings, 64, 16), -1);
    if (!strstr(error_text(), why))
        fail_msg("\"%s\" does not say \"%s\"", error_text(), why);
}

TEST(listed_shapes_are_taken_or_refused)
{
    char *shapes[] = {(char *)"96x48", (char *)"64x64"};
    const struct aspect_settings settings = {.shapes = {.values = shapes, .count = 2}};
    struct aspect_list list;
    assert_int_equal(aspects_make(&list, &settings, 64, 16), 0);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.items[0].width, 96);
    assert_int_equal(list.items[0].height, 48);
    refuse("wide", "expected WIDTHxHEIGHT");
    refuse("96x", "expected WIDTHxHEIGHT");
    refuse("0x64", "expected WIDTHxHEIGHT");
    refuse("96x48x9", "expected WIDTHxHEIGHT");
    refuse("90x48", "the nearest is 96x48");
    refuse("128x128", "4 times as many pixels");
    refuse("32x32", "0.25 times as many pixels");
    refuse("64x64", "twice");
}

/* Of 4 x 4 cells: from 8 to 32 cells, and of those with nearly the same loss the nearest to 16. */
TEST(proportions_get_the_best_shape)
{
    static const struct {
        double width, height;
        i64 size, stride, shape_width, shape_height;
    } cases[] = {{1, 1, 64, 16, 64, 64},    {4, 3, 64, 16, 64, 48},    {3, 4, 64, 16, 48, 64},
                 {3, 2, 64, 16, 96, 64},    {5, 4, 64, 16, 80, 64},    {16, 9, 64, 16, 80, 48},
                 {2, 1, 64, 16, 96, 48},    {3, 1, 64, 16, 96, 32},    {1, 3, 64, 16, 32, 96},
                 {4, 3, 32, 16, 48, 32},    {4, 3, 16, 16, 16, 16},    {64, 1, 16, 16, 16, 16},
                 {64, 1, 64, 16, 512, 16},  {4, 3, 64, 8, 64, 48},     {4, 3, 256, 16, 320, 240},
                 {21, 9, 128, 16, 224, 96}, {1.0, 1.01, 64, 8, 64, 64}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct aspect a = aspect_of(cases[i].width / cases[i].height, cases[i].size, cases[i].stride);
        if (a.width != cases[i].shape_width || a.height != cases[i].shape_height)
            fail_msg("%g:%g of %lld: %lldx%lld", cases[i].width, cases[i].height, (long long)cases[i].size,
                     (long long)a.width, (long long)a.height);
        struct vision_config config = {.stride = cases[i].stride, .bits = 1};
        i64 sides[VISION_SCALES_MOST], count = vision_usual_sides(sides, cases[i].size / cases[i].stride);
        assert_int_equal(vision_add_shape(&config, 1, a.height, a.width, 0, sides, count), 0);
    }
    char *shapes[] = {(char *)"4:3", (char *)"1.33:1", (char *)"96x48", (char *)"3:4"};
    const struct aspect_settings settings = {.shapes = {.values = shapes, .count = 4}};
    struct aspect_list list;
    assert_int_equal(aspects_make(&list, &settings, 64, 16), 0);
    assert_int_equal(list.count, 3); /* 1.33:1 has the shape of 4:3 */
    assert_int_equal(list.items[2].height, 64);
    refuse("4:0", "or WIDTH:HEIGHT, as 4:3");
    refuse("4:3:2", "or WIDTH:HEIGHT");
    refuse("-4:3", "or WIDTH:HEIGHT");
    refuse("nan:1", "or WIDTH:HEIGHT");
    refuse("65:1", "or WIDTH:HEIGHT");
}

/* ---- Fitting ---- */

static struct clip gradient(i64 height, i64 width)
{
    struct clip clip;
    clip_init(&clip, 1, height, width, 0);
    for (i64 i = 0; i < height * width * 3; i++)
        clip.pixels[i] = (u8)(20 + 200 * (i / 3 % width) / width + 30 * (i / 3 / width) / height + i % 3);
    return clip;
}

static bool is_white(const struct clip *clip, i64 y, i64 x)
{
    const u8 *pixel = clip->pixels + (y * clip->width + x) * 3;
    return pixel[0] == 255 && pixel[1] == 255 && pixel[2] == 255;
}

/* What is foretold by the proportions alone is what fitting does, but for rounding. */
TEST(the_loss_is_foretold)
{
    static const struct {
        i64 height, width, shape_height, shape_width;
        double crop;
    } cases[] = {{480, 640, 48, 80, 0.1}, {480, 640, 48, 64, 0},   {480, 640, 64, 64, 0},
                 {200, 600, 48, 80, 0.1}, {600, 200, 48, 80, 0.1}, {360, 640, 48, 80, 0.1}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct clip in = gradient(cases[i].height, cases[i].width), out;
        double cut, white;
        clip_fill(&out, &in, cases[i].shape_height, cases[i].shape_width, cases[i].crop);
        aspect_loss(&cut, &white, (struct aspect){cases[i].shape_height, cases[i].shape_width},
                    (double)cases[i].width / (double)cases[i].height, cases[i].crop);
        assert_float_equal(cut, out.cut, 0.02);
        assert_float_equal(white, shaped_margin(&out), 0.02);
        clip_release(&out);
        clip_release(&in);
    }
}

TEST(little_is_cut_and_nothing_is_white)
{
    struct clip in = gradient(60, 100), out, whole;
    clip_fill(&out, &in, 30, 45, 0.1); /* 50 columns would keep all rows: 10 % is cut off */
    assert_int_equal(out.inner_height, 30);
    assert_int_equal(out.inner_width, 45);
    assert_float_equal(out.cut, 0.1, 1e-9);
    assert_float_equal(shaped_margin(&out), 0, 0);
    clip_resize(&whole, &in, 30, 50);
    for (i64 y = 0; y < 30; y++) /* center crop of the whole */
        assert_memory_equal(out.pixels + y * 45 * 3, whole.pixels + (y * 50 + 2) * 3, 45 * 3);
    clip_release(&whole);
    clip_release(&out);
    clip_release(&in);
}

TEST(much_is_cut_as_far_as_allowed_and_the_rest_is_white)
{
    struct clip in = gradient(50, 200), out;
    clip_fill(&out, &in, 40, 40, 0.2);
    assert_int_equal(out.inner_width, 40);
    assert_int_equal(out.inner_height, 13); /* 12.5: 40 of its 50 columns are visible */
    assert_float_equal(out.cut, 0.2, 1e-9);
    assert_float_equal(shaped_margin(&out), 1 - 13.0 / 40, 1e-9);
    assert_true(is_white(&out, 12, 20) && !is_white(&out, 13, 20) && !is_white(&out, 25, 20) && is_white(&out, 26, 20));
    clip_release(&out);
    clip_release(&in);
}

TEST(nothing_is_cut_of_what_fits)
{
    struct clip in = gradient(50, 100), a, b;
    clip_fill(&a, &in, 20, 40, 0.3);
    clip_resize(&b, &in, 20, 40);
    assert_true(a.cut == 0 && b.cut == 0);
    assert_memory_equal(a.pixels, b.pixels, 20 * 40 * 3);
    clip_release(&a);
    clip_fill(&a, &in, 40, 40, 0); /* no cut: letterboxed */
    clip_release(&b);
    clip_resize(&b, &in, 40, 40);
    assert_int_equal(a.inner_height, 20);
    assert_memory_equal(a.pixels, b.pixels, 40 * 40 * 3);
    clip_release(&a);
    clip_release(&b);
    clip_release(&in);
}

/* Every frame of a clip is cropped like a still. */
TEST(clips_are_cut_alike)
{
    enum { FRAMES = 3 };
    struct clip in, one = gradient(48, 80), still, clip;
    struct buffer mp4 = {0};
    clip_init(&in, FRAMES, 48, 80, 8);
    for (i64 i = 0; i < FRAMES; i++)
        memcpy(in.pixels + i * 48 * 80 * 3, one.pixels, 48 * 80 * 3);
    assert_int_equal(clip_encode_mp4(&mp4, &in), 0);
    clip_fill(&still, &one, 32, 48, 0.1);
    const struct clip_request request = {.rate_hz = 8, .height = 32, .width = 48, .crop = 0.1};
    if (clip_read(&clip, mp4.data, mp4.length, "a.mp4", &request))
        fail_msg("%s", error_text());
    assert_int_equal(clip.frames, FRAMES);
    assert_int_equal(clip.inner_height, 32);
    assert_int_equal(clip.inner_width, 48);
    assert_float_equal(clip.cut, still.cut, 1e-9);
    for (i64 i = 0; i < FRAMES; i++) {
        double error = shaped_square_error(&still, clip.pixels + i * 32 * 48 * 3);
        if (error > 4e-4) /* an offset of 1 column adds 1.6e-4 in red, green and blue; H.264 loses the rest */
            fail_msg("frame %lld: mean square error %g", (long long)i, error);
    }
    clip_release(&clip);
    clip_release(&still);
    clip_release(&one);
    clip_release(&in);
    buffer_release(&mp4);
}

/* ---- The tokenizer's table of shapes ---- */

TEST(tables_give_the_nearest_shape_of_a_kind)
{
    struct vision_config config = {.stride = 8, .bits = 4, .channels = {6, 8}, .blocks = {1, 1}};
    assert_int_equal(shaped_nearest(&config, false, 10, 10), -1);
    vision_add_shape(&config, 1, 32, 32, 0, NULL, 0);
    vision_add_shape(&config, 1, 24, 40, 0, NULL, 0);
    vision_add_shape(&config, 9, 40, 24, 8, NULL, 0);
    assert_int_equal(shaped_count(&config, false), 2);
    assert_int_equal(shaped_nearest(&config, false, 10, 10), 0);
    assert_int_equal(shaped_nearest(&config, false, 10, 19), 1);
    assert_int_equal(shaped_nearest(&config, false, 19, 10), 0);
    assert_int_equal(shaped_nearest(&config, true, 10, 19), 2);
    struct clip in = gradient(60, 100), out;
    struct buffer png = {0};
    i64 shape;
    image_encode_png(&png, in.pixels, 60, 100);
    assert_int_equal(shaped_read(&out, &shape, NULL, &config, false, -1, png.data, png.length, "a.png"), 0);
    assert_int_equal(shape, 1);
    assert_int_equal(out.height, 24);
    assert_int_equal(out.width, 40);
    clip_release(&out);
    clip_release(&in);
    buffer_release(&png);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    return tests_run(NULL, NULL);
}
