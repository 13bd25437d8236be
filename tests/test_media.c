/* Pictures, clips and sounds survive the way to a file and back; bad files are refused with a message that says why.
 * The PNG, BMP and WAV files here are put together byte by byte, so that readers are not tested against their own
 * library's writer. */
#define _GNU_SOURCE /* memmem */
#include "data/media.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct rng_key key(void)
{
    return (struct rng_key){7, RNG_TEST};
}

static void assert_says(const char *wanted)
{
    if (!strstr(error_text(), wanted))
        fail_msg("the message \"%s\" does not contain \"%s\"", error_text(), wanted);
}

/* ---- A PNG writer of its own ---- */

static void append_be32(struct text *out, u32 value)
{
    u8 bytes[4] = {(u8)(value >> 24), (u8)(value >> 16), (u8)(value >> 8), (u8)value};
    text_append(out, bytes, 4);
}

static void append_le(struct text *out, u32 value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        u8 byte = (u8)(value >> (8 * i));
        text_append(out, &byte, 1);
    }
}

static u32 png_crc(const u8 *bytes, i64 count)
{
    u32 crc = ~0u;
    for (i64 i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void append_chunk(struct text *png, const char *type, const void *data, i64 bytes)
{
    append_be32(png, (u32)bytes);
    i64 begin = png->length;
    text_append(png, type, 4);
    text_append(png, data, bytes);
    append_be32(png, png_crc((u8 *)png->data + begin, bytes + 4));
}

/* zlib with one stored block: no compression to get wrong */
static void append_idat(struct text *png, const u8 *raw, i64 bytes)
{
    struct text z = {0};
    u32 a = 1, b = 0;
    for (i64 i = 0; i < bytes; i++) {
        a = (a + raw[i]) % 65521;
        b = (b + a) % 65521;
    }
    text_append(&z, "\x78\x01\x01", 3);
    append_le(&z, (u32)bytes, 2);
    append_le(&z, ~(u32)bytes, 2);
    text_append(&z, raw, bytes);
    append_be32(&z, b << 16 | a);
    append_chunk(png, "IDAT", z.data, z.length);
    text_release(&z);
}

enum { PNG_HEIGHT = 11, PNG_WIDTH = 13 };

/* One way of storing a picture: samples [height, width, channels] of `depth` bits. */
struct layout {
    const char *name;
    int type, depth, channels;
    bool keyed; /* a tRNS chunk: one colour, or the palette's first entries, are transparent */
    bool interlaced;
};

static u32 sample(const struct layout *layout, int y, int x, int c)
{
    u32 bits = rng_u32(key(), (u32)y, (u32)x, (u32)c, (u32)(layout->type * 100 + layout->depth));
    if (layout->keyed && layout->type != 3 && (x + y) % 3 == 0)
        bits = 0; /* the transparent colour */
    if (layout->type == 3)
        return bits % (1u << min_i64(layout->depth, 4));
    return bits & ((1u << layout->depth) - 1);
}

/* Rows of one pass (offset and step 0, 1 without interlacing), each behind its filter byte 0. */
static void append_pass(struct text *raw, const struct layout *layout, int y0, int x0, int dy, int dx)
{
    for (int y = y0; y < PNG_HEIGHT && x0 < PNG_WIDTH; y += dy) {
        text_append(raw, "", 1);
        u32 byte = 0, filled = 0;
        for (int x = x0; x < PNG_WIDTH; x += dx)
            for (int c = 0; c < layout->channels; c++) {
                u32 value = sample(layout, y, x, c);
                for (int bit = layout->depth - 1; bit >= 0; bit--) {
                    byte = byte << 1 | ((value >> bit) & 1);
                    if (++filled == 8) {
                        append_le(raw, byte, 1);
                        byte = filled = 0;
                    }
                }
            }
        if (filled)
            append_le(raw, byte << (8 - filled), 1);
    }
}

static void palette_entry(u8 out[3], u32 index)
{
    for (u32 c = 0; c < 3; c++)
        out[c] = (u8)(index * (37 + 20 * c) + 50 * c);
}

static void append_extras(struct text *png, const struct layout *layout)
{
    u8 palette[16][3], alphas[4] = {0, 80, 160, 255}, colour[6] = {0};
    for (u32 i = 0; i < 16; i++)
        palette_entry(palette[i], i);
    i64 entries = 1 << min_i64(layout->depth, 4);
    if (layout->type == 3)
        append_chunk(png, "PLTE", palette, entries * 3);
    if (layout->keyed && layout->type == 3)
        append_chunk(png, "tRNS", alphas, min_i64(entries, 4));
    else if (layout->keyed)
        append_chunk(png, "tRNS", colour, layout->type == 0 ? 2 : 6);
}

static void make_png(struct text *png, const struct layout *layout)
{
    static const int adam7[7][4] = {{0, 0, 8, 8}, {0, 4, 8, 8}, {4, 0, 8, 4}, {0, 2, 4, 4},
                                    {2, 0, 4, 2}, {0, 1, 2, 2}, {1, 0, 2, 1}};
    struct text header = {0}, raw = {0};
    append_be32(&header, PNG_WIDTH);
    append_be32(&header, PNG_HEIGHT);
    u8 rest[5] = {(u8)layout->depth, (u8)layout->type, 0, 0, layout->interlaced};
    text_append(&header, rest, 5);
    text_append(png, "\x89PNG\r\n\x1a\n", 8);
    append_chunk(png, "IHDR", header.data, header.length);
    append_extras(png, layout);
    for (int pass = 0; pass < (layout->interlaced ? 7 : 0); pass++)
        append_pass(&raw, layout, adam7[pass][0], adam7[pass][1], adam7[pass][2], adam7[pass][3]);
    if (!layout->interlaced)
        append_pass(&raw, layout, 0, 0, 1, 1);
    append_idat(png, (u8 *)raw.data, raw.length);
    append_chunk(png, "IEND", "", 0);
    text_release(&header);
    text_release(&raw);
}

/* What the pixel must read as, in doubles: RGB on white, 0..255. */
static void expected_pixel(double out[3], const struct layout *layout, int y, int x)
{
    double top = (double)((1u << layout->depth) - 1), alpha = 1;
    u32 s[4];
    for (int c = 0; c < layout->channels; c++)
        s[c] = sample(layout, y, x, c);
    for (int c = 0; c < 3; c++)
        out[c] = s[layout->channels >= 3 ? c : 0] / top * 255;
    if (layout->type == 3) {
        u8 entry[3];
        palette_entry(entry, s[0]);
        for (int c = 0; c < 3; c++)
            out[c] = entry[c];
        alpha = layout->keyed && s[0] < 4 ? (const double[]){0, 80, 160, 255}[s[0]] / 255 : 1;
    } else if (layout->keyed) {
        alpha = s[0] == 0 && (layout->channels < 3 || (s[1] == 0 && s[2] == 0)) ? 0 : 1;
    } else if (layout->type & 4) {
        alpha = s[layout->channels - 1] / top;
    }
    for (int c = 0; c < 3; c++)
        out[c] = out[c] * alpha + 255 * (1 - alpha);
}

static void check_layout(const struct layout *layout)
{
    struct text png = {0};
    struct clip clip;
    make_png(&png, layout);
    if (image_read(&clip, png.data, png.length, layout->name) < 0)
        fail_msg("%s", error_text());
    assert_int_equal(clip.frames, 1);
    assert_int_equal(clip.height, PNG_HEIGHT);
    assert_int_equal(clip.width, PNG_WIDTH);
    for (int i = 0; i < PNG_HEIGHT * PNG_WIDTH; i++) {
        double wanted[3];
        expected_pixel(wanted, layout, i / PNG_WIDTH, i % PNG_WIDTH);
        for (int c = 0; c < 3; c++)
            if (fabs(clip.pixels[i * 3 + c] - wanted[c]) > 1.6) /* 16 bits and alpha are rounded one after the other */
                fail_msg("%s: pixel %d channel %d is %d, not %.2f", layout->name, i, c, clip.pixels[i * 3 + c],
                         wanted[c]);
    }
    clip_release(&clip);
    text_release(&png);
}

static const struct layout layouts[] = {
    {"grey 1", 0, 1, 1, false, false},
    {"grey 2", 0, 2, 1, false, false},
    {"grey 4", 0, 4, 1, false, false},
    {"grey 8", 0, 8, 1, false, false},
    {"grey 16", 0, 16, 1, false, false},
    {"grey 8, one transparent", 0, 8, 1, true, false},
    {"RGB 8", 2, 8, 3, false, false},
    {"RGB 16", 2, 16, 3, false, false},
    {"RGB 8, one transparent", 2, 8, 3, true, false},
    {"palette 1", 3, 1, 1, false, false},
    {"palette 2, transparent", 3, 2, 1, true, false},
    {"palette 4", 3, 4, 1, false, false},
    {"palette 8, transparent", 3, 8, 1, true, false},
    {"grey alpha 8", 4, 8, 2, false, false},
    {"grey alpha 16", 4, 16, 2, false, false},
    {"RGBA 8", 6, 8, 4, false, false},
    {"RGBA 16", 6, 16, 4, false, false},
    {"RGBA 8, interlaced", 6, 8, 4, false, true},
    {"palette 2, interlaced", 3, 2, 1, true, true},
    {"grey 1, interlaced", 0, 1, 1, false, true},
};

static void every_png_layout_reads_as_its_pixels(void **state)
{
    (void)state;
    for (i64 i = 0; i < COUNT_OF(layouts); i++)
        check_layout(&layouts[i]);
}

/* ---- PNG ---- */

static void fill_noise(struct clip *clip)
{
    for (i64 i = 0; i < clip->frames * clip->height * clip->width * 3; i++)
        clip->pixels[i] = (u8)rng_u32(key(), (u32)i, 1, 0, 0);
}

static void png_round_trip_keeps_every_byte(void **state)
{
    (void)state;
    struct clip in, out;
    struct text png = {0};
    clip_init(&in, 1, 31, 17, 0);
    fill_noise(&in);
    image_encode_png(&png, in.pixels, in.height, in.width);
    assert_int_equal(media_kind(png.data, png.length, "noise"), MEDIA_PNG);
    assert_int_equal(image_read(&out, png.data, png.length, "noise"), 0);
    assert_int_equal(out.height, 31);
    assert_int_equal(out.width, 17);
    assert_memory_equal(out.pixels, in.pixels, 31 * 17 * 3);
    clip_release(&in);
    clip_release(&out);
    text_release(&png);
}

static void refuse_image(const void *bytes, i64 count, const char *wanted)
{
    struct clip clip;
    assert_int_equal(image_read(&clip, bytes, count, "bad.png"), -1);
    assert_null(clip.pixels);
    assert_says("bad.png");
    assert_says(wanted);
}

static void bad_pictures_are_refused(void **state)
{
    (void)state;
    struct text png = {0};
    make_png(&png, &layouts[6]);
    refuse_image("", 0, "an empty file");
    refuse_image("hello, I am text\n", 17, "found text");
    refuse_image("\x01\x02\x03\x04garbage", 11, "unknown bytes");
    for (i64 cut = 8; cut < png.length; cut += 7)
        refuse_image(png.data, cut, "cut short");
    png.data[png.length / 2] ^= 1;
    refuse_image(png.data, png.length, "incorrect data check");
    text_release(&png);
}

static void a_header_cannot_ask_for_all_memory(void **state)
{
    (void)state;
    const struct {
        u32 side;
        const char *wanted;
    } cases[] = {{1 << 16, "megapixels"}, {8000, "fewer bytes"}, {0, "PNG picture"}, {0x7fffffff, "PNG picture"}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct text png = {0}, header = {0};
        append_be32(&header, cases[i].side);
        append_be32(&header, cases[i].side);
        text_append(&header, "\x08\x02\0\0\0", 5);
        text_append(&png, "\x89PNG\r\n\x1a\n", 8);
        append_chunk(&png, "IHDR", header.data, header.length);
        append_idat(&png, (const u8 *)"xyz", 3);
        append_chunk(&png, "IEND", "", 0);
        refuse_image(png.data, png.length, cases[i].wanted);
        text_release(&header);
        text_release(&png);
    }
}

/* A 24-bit BMP: rows from the bottom up, blue first, padded to four bytes. */
static void make_bmp(struct text *bmp, int height, int width)
{
    int row_bytes = (width * 3 + 3) / 4 * 4;
    text_append(bmp, "BM", 2);
    u32 fields[] = {(u32)(54 + row_bytes * height), 0, 54, 40, (u32)width, (u32)height, 24 << 16 | 1, 0, 0, 0, 0, 0, 0};
    for (i64 i = 0; i < COUNT_OF(fields); i++)
        append_le(bmp, fields[i], 4);
    for (int y = height - 1; y >= 0; y--)
        for (int x = 0; x < row_bytes; x++)
            append_le(bmp, x < width * 3 ? (u32)(y * 40 + x / 3 * 5 + (2 - x % 3) * 20) : 0, 1);
}

static void other_stills_read_through_libav(void **state)
{
    (void)state;
    struct text bmp = {0};
    struct clip clip;
    make_bmp(&bmp, 5, 7);
    assert_int_equal(media_kind(bmp.data, bmp.length, "a.bmp"), MEDIA_STILL);
    assert_int_equal(image_read(&clip, bmp.data, bmp.length, "a.bmp"), 0);
    assert_int_equal(clip.height, 5);
    assert_int_equal(clip.width, 7);
    for (int i = 0; i < 5 * 7 * 3; i++)
        assert_true(abs(clip.pixels[i] - (i / 21 * 40 + i % 21 / 3 * 5 + i % 3 * 20)) <= 1);
    clip_release(&clip);
    refuse_image(bmp.data, 60, "a BMP picture");
    refuse_image("\xff\xd8\xff\xe0 nothing more of a JPEG", 27, "cut short");
    text_release(&bmp);
}

/* ---- Resizing ---- */

static double lanczos(double x)
{
    return fabs(x) < 1e-12 ? 1 : fabs(x) >= 3 ? 0 : 3 * sin(M_PI * x) * sin(M_PI * x / 3) / (M_PI * M_PI * x * x);
}

/* The definition, in doubles and in two dimensions at once. */
static double resized_value(const struct clip *in, i64 height, i64 width, i64 y, i64 x, i64 c)
{
    double sy = (double)in->height / (double)height, sx = (double)in->width / (double)width, sum = 0, weights = 0;
    for (i64 v = 0; v < in->height; v++)
        for (i64 u = 0; u < in->width; u++) {
            double w = lanczos(((double)v + 0.5 - ((double)y + 0.5) * sy) / fmax(sy, 1)) *
                       lanczos(((double)u + 0.5 - ((double)x + 0.5) * sx) / fmax(sx, 1));
            sum += w * in->pixels[(v * in->width + u) * 3 + c];
            weights += w;
        }
    return sum / weights;
}

static void check_resize(i64 from_height, i64 from_width, i64 height, i64 width)
{
    struct clip in, out;
    clip_init(&in, 1, from_height, from_width, 0);
    for (i64 i = 0; i < from_height * from_width; i++)
        for (i64 c = 0; c < 3; c++) /* away from the ends, so that the first pass of two does not clip */
            in.pixels[i * 3 + c] =
                (u8)(128 + 60 * sin((double)(i % from_width) * 0.3 + (double)(i / from_width * (c + 1)) * 0.2));
    clip_resize(&out, &in, height, width);
    for (i64 i = 0; i < height * width * 3; i++) {
        double wanted = resized_value(&in, height, width, i / 3 / width, i / 3 % width, i % 3);
        if (fabs(out.pixels[i] - wanted) > 1.6) /* rounded twice */
            fail_msg("%lldx%lld: %d, not %.2f", (long long)height, (long long)width, out.pixels[i], wanted);
    }
    clip_release(&in);
    clip_release(&out);
}

static void resizing_is_lanczos(void **state)
{
    (void)state;
    check_resize(40, 60, 10, 15);
    check_resize(16, 24, 40, 60);
    check_resize(9, 9, 9, 9);
    check_resize(2, 2, 5, 5);
}

static void resizing_keeps_the_shape_on_white(void **state)
{
    (void)state;
    struct clip in, out;
    clip_init(&in, 2, 50, 100, 8);
    memset(in.pixels, 77, 2 * 50 * 100 * 3);
    clip_resize(&out, &in, 32, 32);
    assert_int_equal(out.frames, 2);
    assert_true(out.rate_hz == 8);
    for (i64 i = 0; i < 2 * 32 * 32 * 3; i++) {
        i64 y = i / 3 / 32 % 32;
        assert_int_equal(out.pixels[i], y < 8 || y >= 24 ? 255 : 77);
    }
    clip_release(&out);
    clip_resize(&out, &in, 1, 1);
    assert_int_equal(out.pixels[0], 77);
    clip_release(&in);
    clip_release(&out);
}

/* ---- Clips ---- */

enum { CLIP_FRAMES = 9, CLIP_SIDE = 48 };

/* Frame f is grey 20 f + 40 with a smooth coloured shade, so that frames tell themselves apart. */
static void make_clip(struct clip *clip)
{
    clip_init(clip, CLIP_FRAMES, CLIP_SIDE, CLIP_SIDE, 8);
    for (i64 f = 0; f < CLIP_FRAMES; f++)
        for (i64 i = 0; i < CLIP_SIDE * CLIP_SIDE; i++)
            for (i64 c = 0; c < 3; c++)
                clip->pixels[(f * CLIP_SIDE * CLIP_SIDE + i) * 3 + c] =
                    (u8)(20 * f + 40 + i % CLIP_SIDE / 4 * (c == 0) + i / CLIP_SIDE / 4 * (c == 2));
}

static void make_mp4(struct text *mp4)
{
    struct clip clip;
    make_clip(&clip);
    if (clip_encode_mp4(mp4, &clip) < 0)
        fail_msg("%s", error_text());
    clip_release(&clip);
}

/* A square that turns, on white; with a macroblock tree this clip's bytes depend on the heap's. */
static void make_turning_clip(struct clip *clip)
{
    enum { SIDE = 64 };
    clip_init(clip, CLIP_FRAMES, SIDE, SIDE, 8);
    for (i64 i = 0; i < CLIP_FRAMES * SIDE * SIDE; i++) {
        double turn = (double)(i / SIDE / SIDE) / (CLIP_FRAMES - 1) * M_PI / 2;
        double x = (double)(i % SIDE) - 30, y = (double)(i / SIDE % SIDE) - 33;
        double u = x * cos(turn) + y * sin(turn), v = y * cos(turn) - x * sin(turn);
        bool inside = fabs(u) < 20 && fabs(v) < 20;
        for (i64 c = 0; c < 3; c++)
            clip->pixels[i * 3 + c] =
                inside ? (u8)((int)(100 + 5 * u * (c == 0) - 4 * v * (c == 1) + 30 * sin(u * v / 20)) & 255) : 255;
    }
}

static void the_same_clip_gives_the_same_bytes(void **state)
{
    (void)state;
    struct clip clip;
    struct text first = {0};
    make_turning_clip(&clip);
    assert_int_equal(clip_encode_mp4(&first, &clip), 0);
    for (int round = 1; round < 40; round++) {
        struct text again = {0};
        size_t bytes = (size_t)round % 37 * 1000 + 1;
        void *dirt = memset(malloc(bytes), round * 91, bytes), *more = memset(malloc(200000), round * 7, 200000);
        free(more); /* the encoder's memory is not the same twice */
        assert_int_equal(clip_encode_mp4(&again, &clip), 0);
        free(dirt);
        assert_int_equal(again.length, first.length);
        assert_memory_equal(again.data, first.data, (size_t)first.length);
        text_release(&again);
    }
    text_release(&first);
    clip_release(&clip);
}

static void mp4_round_trip_keeps_frames_and_times(void **state)
{
    (void)state;
    struct clip in, out;
    struct text mp4 = {0};
    make_clip(&in);
    make_mp4(&mp4);
    assert_int_equal(media_kind(mp4.data, mp4.length, "a.mp4"), MEDIA_VIDEO);
    assert_int_equal(clip_read(&out, mp4.data, mp4.length, "a.mp4", &(struct clip_request){0}), 0);
    assert_int_equal(out.frames, CLIP_FRAMES);
    assert_int_equal(out.height, CLIP_SIDE);
    assert_true(fabs(out.rate_hz - 8) < 1e-9);
    double error = 0;
    i64 values = CLIP_FRAMES * CLIP_SIDE * CLIP_SIDE * 3;
    for (i64 i = 0; i < values; i++)
        error += pow(in.pixels[i] - out.pixels[i], 2);
    assert_true(10 * log10(255 * 255 / (error / (double)values)) > 36);
    clip_release(&in);
    clip_release(&out);
    text_release(&mp4);
}

/* Reads at a rate and compares which source frame each frame shows, by its grey. */
static void check_times(const struct text *mp4, double rate_hz, i64 max_frames, const int *wanted, i64 count)
{
    struct clip clip;
    struct clip_request request = {.rate_hz = rate_hz, .max_frames = max_frames};
    assert_int_equal(clip_read(&clip, mp4->data, mp4->length, "a.mp4", &request), 0);
    assert_int_equal(clip.frames, count);
    assert_true(clip.rate_hz == rate_hz);
    for (i64 f = 0; f < count; f++) {
        int green = clip.pixels[(f * CLIP_SIDE * CLIP_SIDE + CLIP_SIDE / 2) * 3 + 1];
        assert_int_equal((green - 40 + 10) / 20, wanted[f]);
    }
    clip_release(&clip);
}

static void frames_are_the_nearest_in_time(void **state)
{
    (void)state;
    struct text mp4 = {0};
    make_mp4(&mp4);
    check_times(&mp4, 8, 0, (const int[]){0, 1, 2, 3, 4, 5, 6, 7, 8}, 9);
    check_times(&mp4, 8, 4, (const int[]){0, 1, 2, 3}, 4);
    check_times(&mp4, 4, 0, (const int[]){0, 2, 4, 6, 8}, 5);
    check_times(&mp4, 1, 0, (const int[]){0, 8}, 2);
    check_times(&mp4, 16, 7, (const int[]){0, 1, 1, 2, 2, 3, 3}, 7);
    check_times(&mp4, 24, 6, (const int[]){0, 0, 1, 1, 1, 2}, 6);
    text_release(&mp4);
}

static void clips_fit_on_white(void **state)
{
    (void)state;
    struct text mp4 = {0};
    struct clip clip;
    make_mp4(&mp4);
    struct clip_request request = {.rate_hz = 8, .max_frames = 2, .height = 20, .width = 40};
    assert_int_equal(clip_read(&clip, mp4.data, mp4.length, "a.mp4", &request), 0);
    for (i64 i = 0; i < 2 * 20 * 40; i++) {
        i64 x = i % 40;
        bool white = clip.pixels[i * 3] == 255 && clip.pixels[i * 3 + 1] == 255 && clip.pixels[i * 3 + 2] == 255;
        assert_int_equal(white, x < 10 || x >= 30);
    }
    clip_release(&clip);
    text_release(&mp4);
}

/* The matrix in the track header of an MP4: 44 bytes from the box's type (ISO/IEC 14496-12, 8.3.2). */
static void set_matrix(struct text *mp4, const i32 matrix[9])
{
    char *type = memmem(mp4->data, (size_t)mp4->length, "tkhd", 4);
    assert_non_null(type);
    for (int i = 0; i < 9; i++)
        for (int byte = 0; byte < 4; byte++)
            type[44 + i * 4 + byte] = (char)((u32)matrix[i] >> (24 - 8 * byte));
}

/* Four grey quarters, top left 40, top right 100, bottom left 160, bottom right 220, come out in another order. */
static void check_orientation(const i32 matrix[9], i64 height, i64 width, const int quarters[4])
{
    struct clip in, out;
    struct text mp4 = {0};
    clip_init(&in, 2, 32, 64, 8);
    for (i64 i = 0; i < 2 * 32 * 64 * 3; i++)
        in.pixels[i] = (u8)(40 + 60 * (i / 3 % 64 / 32) + 120 * (i / 3 / 64 % 32 / 16));
    assert_int_equal(clip_encode_mp4(&mp4, &in), 0);
    set_matrix(&mp4, matrix);
    assert_int_equal(clip_read(&out, mp4.data, mp4.length, "turned.mp4", &(struct clip_request){0}), 0);
    assert_int_equal(out.height, height);
    assert_int_equal(out.width, width);
    for (i64 quarter = 0; quarter < 4; quarter++) {
        i64 y = height / 4 + quarter / 2 * height / 2, x = width / 4 + quarter % 2 * width / 2;
        assert_true(abs(out.pixels[(y * width + x) * 3] - quarters[quarter]) < 8);
    }
    clip_release(&in);
    clip_release(&out);
    text_release(&mp4);
}

static void clips_are_turned_as_their_matrix_says(void **state)
{
    (void)state;
    enum { ONE = 1 << 16, W = 1 << 30 };
    check_orientation((const i32[]){ONE, 0, 0, 0, ONE, 0, 0, 0, W}, 32, 64, (const int[]){40, 100, 160, 220});
    check_orientation((const i32[]){0, ONE, 0, -ONE, 0, 0, 0, 0, W}, 64, 32, (const int[]){160, 40, 220, 100});
    check_orientation((const i32[]){-ONE, 0, 0, 0, -ONE, 0, 0, 0, W}, 32, 64, (const int[]){220, 160, 100, 40});
    check_orientation((const i32[]){0, -ONE, 0, ONE, 0, 0, 0, 0, W}, 64, 32, (const int[]){100, 220, 40, 160});
    check_orientation((const i32[]){-ONE, 0, 0, 0, ONE, 0, 0, 0, W}, 32, 64, (const int[]){100, 40, 220, 160});
}

static void make_wav(struct text *wav, int format, int channels, int bits, u32 rate_hz, const void *data, i64 bytes)
{
    u32 frame_bytes = (u32)(channels * bits / 8);
    text_append(wav, "RIFF", 4);
    append_le(wav, (u32)(36 + bytes), 4);
    text_append(wav, "WAVEfmt ", 8);
    append_le(wav, 16, 4);
    append_le(wav, (u32)format, 2);
    append_le(wav, (u32)channels, 2);
    append_le(wav, rate_hz, 4);
    append_le(wav, rate_hz * frame_bytes, 4);
    append_le(wav, frame_bytes, 2);
    append_le(wav, (u32)bits, 2);
    text_append(wav, "data", 4);
    append_le(wav, (u32)bytes, 4);
    text_append(wav, data, bytes);
}

static void grow_box(struct text *mp4, const char *name, u32 more)
{
    char *type = memmem(mp4->data, (size_t)mp4->length, name, 4);
    for (char *next; (next = memmem(type + 4, (size_t)(mp4->data + mp4->length - type - 4), name, 4));)
        type = next; /* avc1 stands in the first box too */
    u32 bytes = 0;
    for (int i = -4; i < 0; i++)
        bytes = bytes << 8 | (u8)type[i];
    for (int i = 0; i < 4; i++)
        type[i - 4] = (char)((bytes + more) >> (24 - 8 * i));
}

/* A box pasp at the end of the description of the only track (ISO/IEC 14496-12, 12.1.4). */
static void set_pixel_shape(struct text *mp4, u32 across, u32 down)
{
    static const char *const around[] = {"moov", "trak", "mdia", "minf", "stbl", "stsd", "avc1"};
    struct text out = {0};
    const char *stts = memmem(mp4->data, (size_t)mp4->length, "stts", 4); /* the box behind the description */
    assert_non_null(stts);
    for (i64 i = 0; i < COUNT_OF(around); i++)
        grow_box(mp4, around[i], 16);
    i64 at = stts - 4 - mp4->data;
    text_append(&out, mp4->data, at);
    append_be32(&out, 16);
    text_append(&out, "pasp", 4);
    append_be32(&out, across);
    append_be32(&out, down);
    text_append(&out, mp4->data + at, mp4->length - at);
    text_release(mp4);
    *mp4 = out;
}

static void assert_shown(const struct text *mp4, double height, double width)
{
    double shown_height, shown_width;
    if (clip_shown_size(&shown_height, &shown_width, mp4->data, mp4->length, "shown.mp4") < 0)
        fail_msg("%s", error_text());
    assert_true(fabs(shown_height - height) < 1e-9 && fabs(shown_width - width) < 1e-9);
}

static void clips_are_shown_with_square_pixels(void **state)
{
    (void)state;
    enum { ONE = 1 << 16, W = 1 << 30 };
    struct text mp4 = {0};
    struct clip clip;
    double height, width;
    make_mp4(&mp4);
    assert_shown(&mp4, CLIP_SIDE, CLIP_SIDE);
    set_pixel_shape(&mp4, 2, 1);
    assert_shown(&mp4, CLIP_SIDE, 2 * CLIP_SIDE);
    struct clip_request request = {.rate_hz = 8, .max_frames = 1, .height = 24, .width = 48};
    assert_int_equal(clip_read(&clip, mp4.data, mp4.length, "wide.mp4", &request), 0);
    for (i64 i = 0; i < 24 * 48; i++) /* nothing is left white */
        assert_true(clip.pixels[i * 3] < 200);
    clip_release(&clip);
    set_matrix(&mp4, (const i32[]){0, ONE, 0, -ONE, 0, 0, 0, 0, W});
    assert_shown(&mp4, 2 * CLIP_SIDE, CLIP_SIDE);
    assert_int_equal(clip_shown_size(&height, &width, "words", 5, "text.mp4"), -1);
    assert_says("text.mp4");
    assert_int_equal(clip_shown_size(&height, &width, mp4.data, mp4.length - 1, "cut.mp4"), -1);
    assert_says("cut short");
    text_release(&mp4);
}

static void refuse_clip(const void *bytes, i64 count, const char *wanted)
{
    struct clip clip;
    assert_int_equal(clip_read(&clip, bytes, count, "bad.mp4", &(struct clip_request){.rate_hz = 8}), -1);
    assert_null(clip.pixels);
    assert_says("bad.mp4");
    assert_says(wanted);
}

static void bad_clips_are_refused(void **state)
{
    (void)state;
    struct text mp4 = {0}, png = {0}, wav = {0};
    make_mp4(&mp4);
    make_png(&png, &layouts[0]);
    make_wav(&wav, 1, 1, 16, 8000, "abcd", 4);
    refuse_clip("", 0, "an empty file");
    refuse_clip("no video at all, only words", 27, "found text");
    refuse_clip(png.data, png.length, "found a PNG picture");
    refuse_clip(wav.data, wav.length, "found a WAV sound");
    for (i64 cut = 8; cut < mp4.length; cut += 97)
        refuse_clip(mp4.data, cut, "");
    refuse_clip(mp4.data, mp4.length - 1, "cut short");
    refuse_clip("\x1a\x45\xdf\xa3\x01\0\0", 7, "cut short");
    refuse_clip("\0\0\0\x08"
                "ftyp",
                8, "an MP4 file");
    text_release(&mp4);
    text_release(&png);
    text_release(&wav);
}

static void damaged_clips_never_crash(void **state)
{
    (void)state;
    struct text mp4 = {0};
    make_mp4(&mp4);
    for (u32 round = 0; round < 200; round++) {
        i64 at = rng_below(key(), mp4.length, round, 0, 1, 0);
        char before = mp4.data[at];
        mp4.data[at] = (char)rng_u32(key(), round, 0, 2, 0);
        struct clip clip;
        if (clip_read(&clip, mp4.data, mp4.length, "damaged.mp4", &(struct clip_request){.max_frames = 32}) == 0)
            clip_release(&clip);
        mp4.data[at] = before;
    }
    text_release(&mp4);
}

/* An MP4 whose only track says it is subtitles. */
static void a_container_without_video_is_refused(void **state)
{
    (void)state;
    struct text mp4 = {0};
    make_mp4(&mp4);
    for (i64 i = 0; i + 4 < mp4.length; i++) {
        if (memcmp(mp4.data + i, "vide", 4) == 0)
            memcpy(mp4.data + i, "text", 4);
        if (memcmp(mp4.data + i, "avc1", 4) == 0)
            memcpy(mp4.data + i, "tx3g", 4);
    }
    refuse_clip(mp4.data, mp4.length, "without video");
    struct sound sound;
    assert_int_equal(sound_read(&sound, mp4.data, mp4.length, "mute.mp4", 16000), -1);
    assert_says("without sound");
    assert_int_equal(media_kind(mp4.data, mp4.length, "nothing.mp4"), MEDIA_UNKNOWN);
    assert_says("nothing.mp4");
    text_release(&mp4);
}

static void clips_h264_cannot_hold_are_refused(void **state)
{
    (void)state;
    struct clip odd, still;
    struct text mp4 = {0};
    clip_init(&odd, 1, 15, 16, 8);
    clip_init(&still, 1, 16, 16, 0);
    assert_int_equal(clip_encode_mp4(&mp4, &odd), -1);
    assert_says("even");
    assert_int_equal(clip_encode_mp4(&mp4, &still), -1);
    assert_says("frames a second");
    assert_int_equal(mp4.length, 0);
    clip_release(&odd);
    clip_release(&still);
}

/* ---- Sound ---- */

static void make_tone(struct sound *sound, i64 samples, i64 rate_hz, double tone_hz)
{
    sound_init(sound, samples, rate_hz);
    for (i64 i = 0; i < samples; i++)
        sound->values[i] = (float)(0.5 * sin(2 * M_PI * tone_hz * (double)i / (double)rate_hz));
}

static void wav_round_trip_is_exact_to_16_bits(void **state)
{
    (void)state;
    struct sound in, out;
    struct text wav = {0};
    make_tone(&in, 4000, 16000, 440);
    in.values[10] = 2;
    in.values[11] = -2;
    in.values[12] = NAN;
    sound_encode_wav(&wav, &in);
    assert_int_equal(media_kind(wav.data, wav.length, "a.wav"), MEDIA_SOUND);
    assert_int_equal(sound_read(&out, wav.data, wav.length, "a.wav", 16000), 0);
    assert_int_equal(out.samples, 4000);
    assert_int_equal(out.rate_hz, 16000);
    assert_true(out.values[10] > 0.999 && out.values[11] < -0.999 && out.values[12] == 0);
    for (i64 i = 13; i < 4000; i++)
        assert_true(fabsf(out.values[i] - in.values[i]) < 1.0f / 30000);
    sound_release(&in);
    sound_release(&out);
    text_release(&wav);
}

static void resampling_keeps_tone_and_length(void **state)
{
    (void)state;
    struct sound in, out, wanted;
    struct text wav = {0};
    make_tone(&in, 22050, 22050, 440);
    make_tone(&wanted, 16000, 16000, 440);
    sound_encode_wav(&wav, &in);
    assert_int_equal(sound_read(&out, wav.data, wav.length, "a.wav", 16000), 0);
    assert_true(llabs(out.samples - 16000) <= 1);
    for (i64 i = 100; i < 15900; i++) /* the ends see silence beside them */
        assert_true(fabsf(out.values[i] - wanted.values[i]) < 0.002f);
    sound_release(&in);
    sound_release(&out);
    sound_release(&wanted);
    text_release(&wav);
}

static void check_wav(int format, int bits, const void *data, i64 bytes, float wanted)
{
    struct text wav = {0};
    struct sound sound;
    make_wav(&wav, format, 2, bits, 8000, data, bytes);
    if (sound_read(&sound, wav.data, wav.length, "stereo.wav", 0) < 0)
        fail_msg("%s", error_text());
    assert_int_equal(sound.samples, 1);
    assert_int_equal(sound.rate_hz, 8000);
    assert_true(fabsf(sound.values[0] - wanted) < 1e-4f);
    sound_release(&sound);
    text_release(&wav);
}

static void channels_are_averaged_in_every_format(void **state)
{
    (void)state;
    const float floats[2] = {0.75f, -0.25f}, broken[2] = {NAN, 0.5f};
    check_wav(1, 8, "\xe0\x60", 2, 0.25f);
    check_wav(1, 16, "\0\x60\0\xe0", 4, 0.25f);
    check_wav(1, 24, "\0\0\x60\0\0\xe0", 6, 0.25f);
    check_wav(1, 32, "\0\0\0\x60\0\0\0\xe0", 8, 0.25f);
    check_wav(3, 32, floats, 8, 0.25f);
    check_wav(3, 32, broken, 8, 0);
}

static void refuse_sound(const void *bytes, i64 count, const char *wanted)
{
    struct sound sound;
    assert_int_equal(sound_read(&sound, bytes, count, "bad.wav", 16000), -1);
    assert_null(sound.values);
    assert_says("bad.wav");
    assert_says(wanted);
}

static void bad_sounds_are_refused(void **state)
{
    (void)state;
    struct text wav = {0}, nothing = {0}, png = {0};
    struct sound tone;
    make_tone(&tone, 1000, 8000, 100);
    sound_encode_wav(&wav, &tone);
    make_wav(&nothing, 1, 1, 16, 8000, "", 0);
    make_png(&png, &layouts[0]);
    refuse_sound("", 0, "an empty file");
    refuse_sound("RIFF", 4, "found text");
    refuse_sound(png.data, png.length, "found a PNG picture");
    refuse_sound(nothing.data, nothing.length, "no samples");
    for (i64 cut = 45; cut < wav.length; cut += 111)
        refuse_sound(wav.data, cut, "cut short");
    for (i64 cut = 12; cut < 45; cut++)
        refuse_sound(wav.data, cut, "");
    sound_release(&tone);
    text_release(&wav);
    text_release(&nothing);
    text_release(&png);
}

/* An ID3v1 tag: 128 bytes that begin with TAG. */
static void what_stands_behind_a_wav_is_not_read(void **state)
{
    (void)state;
    struct text wav = {0};
    struct sound sound;
    char tag[128] = "TAG a title";
    memset(tag + 20, 0x7e, 100);
    make_wav(&wav, 1, 1, 16, 8000, "aabbccddee", 10);
    text_append(&wav, tag, sizeof tag);
    if (sound_read(&sound, wav.data, wav.length, "tagged.wav", 8000) < 0)
        fail_msg("%s", error_text());
    assert_int_equal(sound.samples, 5);
    sound_release(&sound);
    memset(wav.data + 4, 0, 4); /* of open length: these bytes would be a chunk of the sound's file */
    refuse_sound(wav.data, wav.length, "cut short");
    text_release(&wav);
}

/* A long AVI file goes on in further RIFF chunks, which may be cut short as well. */
static void further_riff_chunks_are_checked(void **state)
{
    (void)state;
    struct text wav = {0};
    make_wav(&wav, 1, 1, 16, 8000, "aabbccddee", 10);
    text_append(&wav, "RIFF\x08\0\0\0AVIXmore", 16);
    struct sound sound;
    assert_int_equal(sound_read(&sound, wav.data, wav.length, "two.wav", 8000), 0);
    sound_release(&sound);
    refuse_sound(wav.data, wav.length - 1, "cut short");
    text_release(&wav);
}

/* Programs that write to a pipe cannot go back to fill in the length. */
static void a_wav_of_open_length_is_read_to_its_end(void **state)
{
    (void)state;
    struct text wav = {0};
    struct sound sound;
    make_wav(&wav, 1, 1, 16, 8000, "aabbccddee", 10);
    memset(wav.data + 40, 0xff, 4);
    assert_int_equal(sound_read(&sound, wav.data, wav.length, "pipe.wav", 8000), 0);
    assert_int_equal(sound.samples, 5);
    sound_release(&sound);
    text_release(&wav);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_png_layout_reads_as_its_pixels),
        cmocka_unit_test(png_round_trip_keeps_every_byte),
        cmocka_unit_test(bad_pictures_are_refused),
        cmocka_unit_test(a_header_cannot_ask_for_all_memory),
        cmocka_unit_test(other_stills_read_through_libav),
        cmocka_unit_test(resizing_is_lanczos),
        cmocka_unit_test(resizing_keeps_the_shape_on_white),
        cmocka_unit_test(the_same_clip_gives_the_same_bytes),
        cmocka_unit_test(mp4_round_trip_keeps_frames_and_times),
        cmocka_unit_test(frames_are_the_nearest_in_time),
        cmocka_unit_test(clips_fit_on_white),
        cmocka_unit_test(clips_are_turned_as_their_matrix_says),
        cmocka_unit_test(clips_are_shown_with_square_pixels),
        cmocka_unit_test(bad_clips_are_refused),
        cmocka_unit_test(damaged_clips_never_crash),
        cmocka_unit_test(a_container_without_video_is_refused),
        cmocka_unit_test(clips_h264_cannot_hold_are_refused),
        cmocka_unit_test(wav_round_trip_is_exact_to_16_bits),
        cmocka_unit_test(resampling_keeps_tone_and_length),
        cmocka_unit_test(channels_are_averaged_in_every_format),
        cmocka_unit_test(bad_sounds_are_refused),
        cmocka_unit_test(what_stands_behind_a_wav_is_not_read),
        cmocka_unit_test(further_riff_chunks_are_checked),
        cmocka_unit_test(a_wav_of_open_length_is_read_to_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
