/* Pictures as written by cameras, scanners, browsers and print software, against Pillow
 * (tests/media/pictures/make.py): rotated, with colour profiles, CMYK, other bit depths, animated,
 * large. */
#include "data/media/picture.h"
#include "tests/media_fixture.h"

#include <stdio.h>

static struct file_view map(const char *name)
{
    char path[256];
    struct file_view view;
    snprintf(path, sizeof path, SOURCE_TREE "/tests/media/pictures/%s", name);
    if (file_map(&view, path) < 0)
        fail_msg("%s", error_text());
    return view;
}

/* Compares frame by frame; the reference stacks its frames vertically. */
static void compare(const struct clip *clip, const char *name, const char *reference, double mean, double most)
{
    struct file_view file = map(reference);
    long long height, width;
    int begin = 0;
    assert_int_equal(sscanf((const char *)file.data, "P6 %lld %lld 255%n", &width, &height, &begin), 2);
    if (clip->height * clip->frames != height || clip->width != width)
        fail_msg("%s: %lld frames of %lldx%lld, not %lldx%lld", name, (long long)clip->frames, (long long)clip->height,
                 (long long)clip->width, height, width);
    double sum = 0, worst = 0;
    for (i64 i = 0; i < height * width * 3; i++) {
        double away = abs(clip->pixels[i] - file.data[begin + 1 + i]);
        sum += away / (double)(height * width * 3);
        worst = fmax(worst, away);
    }
    if (sum > mean || worst > most)
        fail_msg("%s: differs by %.3f in the mean, by %.0f at most", name, sum, worst);
    file_unmap(&file);
}

static void check_as(const char *name, const char *reference, const struct image_request *request, double mean,
                     double most)
{
    struct file_view file = map(name);
    struct clip clip;
    if (image_read_as(&clip, file.data, file.bytes, name, request) < 0)
        fail_msg("%s", error_text());
    compare(&clip, name, reference, mean, most);
    clip_release(&clip);
    file_unmap(&file);
}

static void check(const char *name, const char *reference, double mean, double most)
{
    check_as(name, reference, &(struct image_request){0}, mean, most);
}

TEST(pictures_are_turned_as_their_files_say)
{
    static const struct {
        const char *ending;
        u32 turns; /* bit n: a file with orientation n exists */
        double mean, most;
    } formats[] = {{"png", 0x1fe, 0, 0},
                   {"jpg", 0x1fe, 0.4, 3}, /* the loss of JPEG */
                   {"webp", 0x162, 0, 0},
                   {"tiff", 0x162, 0, 0},
                   {"avif", 0x162, 0.8, 3}};
    for (i64 f = 0; f < COUNT_OF(formats); f++)
        for (int n = 1; n <= 8; n++) {
            char name[32], reference[32];
            snprintf(name, sizeof name, "turned-%d.%s", n, formats[f].ending);
            snprintf(reference, sizeof reference, "turned-%d.ppm", n);
            if (formats[f].turns >> n & 1)
                check(name, reference, formats[f].mean, formats[f].most);
        }
}

/* Compares each file with Pillow's output. */
TEST(every_layout_and_profile_reads_as_in_pillow)
{
    static const struct {
        const char *name;
        double mean, most;
    } files[] = {
        {"adobe.png", 0.01, 1},  {"adobe-clear.png", 0.01, 1}, {"adobe.jpg", 0.01, 1}, {"adobe.webp", 0.01, 1},
        {"adobe.tiff", 0.01, 1}, {"grey.png", 0.01, 1},        {"inks.jpg", 0, 0},     {"inks-profile.jpg", 0.01, 1},
        {"inks.tiff", 1, 1},     {"clear.png", 0, 0},          {"clear.webp", 0, 0},   {"clear-lossy.webp", 0, 0},
        {"clear.tiff", 0, 0},    {"palette-clear.png", 0, 0},  {"palette.tiff", 0, 0}, {"grey16.png", 0, 0},
        {"grey16.tiff", 0.4, 1}, {"grey.tiff", 0, 0},          {"grey.jpg", 0, 0},     {"grey.pgm", 0, 0},
        {"lzw.tiff", 0, 0},      {"deflate.tiff", 0, 0},       {"bits.tiff", 0, 0},    {"still.heic", 0, 0},
        {"jpeg.tiff", 0.5, 2}};
    for (i64 i = 0; i < COUNT_OF(files); i++) {
        char reference[48];
        snprintf(reference, sizeof reference, "%s.ppm", files[i].name);
        check(files[i].name, reference, files[i].mean, files[i].most);
    }
}

TEST(a_profile_that_is_srgb_changes_no_bit)
{
    check("srgb.png", "turned-1.ppm", 0, 0);
}

TEST(transparency_shows_the_colour_that_was_chosen)
{
    struct picture_rules rules;
    const struct picture_settings blue = {"#002080", 1 << 26};
    assert_int_equal(picture_rules_read(&rules, &blue), 0);
    check_as("palette-clear.png", "palette-clear.png-on-blue.ppm", &(struct image_request){&rules}, 0, 0);
    const char *const none[] = {"white", "#12345", "#1234567", "#12345g", "##3456"};
    for (i64 i = 0; i < COUNT_OF(none); i++) {
        assert_int_equal(picture_rules_read(&rules, &(struct picture_settings){(char *)none[i], 1}), -1);
        assert_says("rrggbb");
    }
}

TEST(too_many_pixels_are_refused_by_name)
{
    static const char *const names[] = {"turned-1.png",  "turned-1.jpg", "turned-1.webp", "turned-1.tiff",
                                        "turned-1.avif", "still.heic",   "grey.pgm",      "moving.gif"};
    const struct picture_rules most = {{255, 255, 255}, 14 * 22}, fewer = {{255, 255, 255}, 14 * 22 - 1};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct file_view file = map(names[i]);
        struct clip clip;
        if (image_read_as(&clip, file.data, file.bytes, names[i], &(struct image_request){&most}) < 0)
            fail_msg("%s", error_text());
        clip_release(&clip);
        if (image_read_as(&clip, file.data, file.bytes, names[i], &(struct image_request){&fewer}) == 0)
            fail_msg("%s: 308 pixels were read where 307 are allowed", names[i]);
        assert_null(clip.pixels);
        assert_says(names[i]);
        file_unmap(&file);
    }
}

/* ---- Animated ---- */

TEST(animated_pictures_are_clips_where_clips_are_asked_for)
{
    static const char *const names[] = {"moving.png", "moving.webp"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct file_view file = map(names[i]);
        struct clip clip, first, timed;
        if (clip_read(&clip, file.data, file.bytes, names[i], &(struct clip_request){0}) < 0 ||
            image_read(&first, file.data, file.bytes, names[i]) < 0 ||
            clip_read(&timed, file.data, file.bytes, names[i], &(struct clip_request){.rate_hz = 25}) < 0)
            fail_msg("%s", error_text());
        compare(&clip, names[i], "moving.ppm", 0, 0);
        assert_int_equal(first.frames, 1);
        assert_memory_equal(first.pixels, clip.pixels, 14 * 22 * 3);
        /* every 40 ms; frames begin at 0, 80, 120, 320, 440 and end at 520: the nearest */
        static const int nearest[13] = {0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4};
        assert_int_equal(timed.frames, 13);
        for (i64 f = 0; f < 13; f++)
            if (memcmp(timed.pixels + f * 14 * 22 * 3, clip.pixels + nearest[f] * 14 * 22 * 3, 14 * 22 * 3) != 0)
                fail_msg("%s: frame %lld is not the %dth", names[i], (long long)f, nearest[f]);
        clip_release(&clip);
        clip_release(&first);
        clip_release(&timed);
        file_unmap(&file);
    }
}

TEST(a_still_is_no_clip)
{
    static const char *const names[] = {"turned-1.png", "turned-1.webp", "turned-1.jpg"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct file_view file = map(names[i]);
        struct clip clip;
        assert_int_equal(clip_read(&clip, file.data, file.bytes, names[i], &(struct clip_request){0}), -1);
        assert_says("expected a video");
        file_unmap(&file);
    }
}

/* ---- Large ---- */

TEST(a_large_jpeg_is_decoded_smaller)
{
    struct file_view file = map("large.jpg");
    struct clip whole, half, fitted;
    const struct image_request request = {.fit_height = 40, .fit_width = 40};
    assert_int_equal(image_read(&whole, file.data, file.bytes, "large.jpg"), 0);
    assert_int_equal(whole.height, 600);
    assert_int_equal(whole.stored_height, 0);
    assert_int_equal(image_read_as(&half, file.data, file.bytes, "large.jpg", &request), 0);
    assert_int_equal(half.height, 75);
    assert_int_equal(half.width, 100);
    assert_int_equal(half.stored_height, 600);
    assert_int_equal(half.stored_width, 800);
    clip_resize(&fitted, &half, 30, 40);
    compare(&fitted, "large.jpg", "large.jpg.ppm", 0.6, 4);
    clip_release(&whole);
    clip_release(&half);
    clip_release(&fitted);
    file_unmap(&file);
}

/* ---- Damage ---- */

/* Files truncated at many places, and with a bit flipped: no crash, no endless loop, and no half
 * picture if the format allows detection. */
TEST(damaged_pictures_never_crash)
{
    static const char *const names[] = {"turned-6.jpg", "inks-profile.jpg", "adobe.webp", "moving.webp", "moving.png"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        i64 step = i == 1 ? 512 : 7; /* building the table of a CMYK profile takes 50 ms */
        struct file_view file = map(names[i]);
        u8 *copy = memory_alloc(file.bytes);
        memcpy(copy, file.data, (size_t)file.bytes);
        for (i64 at = 0; at < file.bytes; at += step) {
            struct clip clip;
            copy[at] ^= (u8)(1 << at % 8);
            if (image_read(&clip, copy, file.bytes, names[i]) == 0)
                clip_release(&clip);
            copy[at] = file.data[at];
            if (image_read(&clip, file.data, at, names[i]) == 0)
                fail_msg("%s: %lld of its %lld bytes are read as a picture", names[i], (long long)at,
                         (long long)file.bytes);
        }
        memory_free(copy);
        file_unmap(&file);
    }
}

/* EXIF with offsets out of range or in cycles. */
TEST(odd_exif_is_none)
{
    static const struct {
        const char *bytes;
        i64 count;
        int wanted;
    } blocks[] = {
        {"", 0, 0},
        {"Exif\0\0", 6, 0},
        {"II*\0\x08\0\0\0", 8, 0},
        {"II*\0\xff\xff\xff\xff", 8, 0},
        {"MM\0*\0\0\0\x08\xff\xff", 10, 0},
        {"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", 22, 6},
        {"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", 28, 6},
        {"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x09\0\0", 22, 0}, /* 9 is not an orientation */
        {"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x04\0\0\0\x01\0\x06\0\0", 22, 0}, /* not a SHORT */
        {"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0", 21, 0},   /* truncated */
        {"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x08\0\0\0", 22, 8},
    };
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        assert_int_equal(exif_orientation((const u8 *)blocks[i].bytes, blocks[i].count), blocks[i].wanted);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
