/* Pictures survive a round trip through files; invalid ones are refused with a message that gives
 * the reason. The PNG and BMP files are assembled byte by byte, so that the readers are not tested
 * against the writer of the same library. */
#include "data/shapes/shaped.h"
#include "tests/media_fixture.h"

static struct rng_key key(void)
{
    return (struct rng_key){7, RNG_TEST};
}

/* ---- A PNG writer of its own ---- */

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

static void append_chunk(struct buffer *png, const char *type, const void *data, i64 bytes)
{
    append_be32(png, (u32)bytes);
    i64 begin = png->length;
    buffer_append(png, type, 4);
    buffer_append(png, data, bytes);
    append_be32(png, png_crc((u8 *)png->data + begin, bytes + 4));
}

/* Appends an IDAT chunk: zlib with one stored block, no compression. */
static void append_idat(struct buffer *png, const u8 *raw, i64 bytes)
{
    struct buffer z = {0};
    u32 a = 1, b = 0;
    for (i64 i = 0; i < bytes; i++) {
        a = (a + raw[i]) % 65521;
        b = (b + a) % 65521;
    }
    buffer_append(&z, "\x78\x01\x01", 3);
    append_le(&z, (u32)bytes, 2);
    append_le(&z, ~(u32)bytes, 2);
    buffer_append(&z, raw, bytes);
    append_be32(&z, b << 16 | a);
    append_chunk(png, "IDAT", z.data, z.length);
    buffer_release(&z);
}

enum { PNG_HEIGHT = 11, PNG_WIDTH = 13 };

/* A PNG pixel layout: samples [height, width, channels] of `depth` bits. */
struct pictures_layout {
    const char *name;
    int type, depth, channels;
    bool keyed; /* a tRNS chunk: one colour, or the first palette entries, are transparent */
    bool interlaced;
};

static u32 sample(const struct pictures_layout *layout, int y, int x, int c)
{
    u32 bits = rng_u32(key(), (u32)y, (u32)x, (u32)c, (u32)(layout->type * 100 + layout->depth));
    if (layout->keyed && layout->type != 3 && (x + y) % 3 == 0)
        bits = 0; /* the transparent colour */
    if (layout->type == 3)
        return bits % (1u << min_i64(layout->depth, 4));
    return bits & ((1u << layout->depth) - 1);
}

/* Appends the rows of one pass (without interlacing: offset
 * 0, step 1), each after its filter byte 0. */
static void append_pass(struct buffer *raw, const struct pictures_layout *layout, int y0, int x0, int dy, int dx)
{
    for (int y = y0; y < PNG_HEIGHT && x0 < PNG_WIDTH; y += dy) {
        buffer_append(raw, "", 1);
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

static void append_extras(struct buffer *png, const struct pictures_layout *layout)
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

static void make_png(struct buffer *png, const struct pictures_layout *layout)
{
    static const int adam7[7][4] = {{0, 0, 8, 8}, {0, 4, 8, 8}, {4, 0, 8, 4}, {0, 2, 4, 4},
                                    {2, 0, 4, 2}, {0, 1, 2, 2}, {1, 0, 2, 1}};
    struct buffer header = {0}, raw = {0};
    append_be32(&header, PNG_WIDTH);
    append_be32(&header, PNG_HEIGHT);
    u8 rest[5] = {(u8)layout->depth, (u8)layout->type, 0, 0, layout->interlaced};
    buffer_append(&header, rest, 5);
    buffer_append(png, "\x89PNG\r\n\x1a\n", 8);
    append_chunk(png, "IHDR", header.data, header.length);
    append_extras(png, layout);
    for (int pass = 0; pass < (layout->interlaced ? 7 : 0); pass++)
        append_pass(&raw, layout, adam7[pass][0], adam7[pass][1], adam7[pass][2], adam7[pass][3]);
    if (!layout->interlaced)
        append_pass(&raw, layout, 0, 0, 1, 1);
    append_idat(png, (u8 *)raw.data, raw.length);
    append_chunk(png, "IEND", "", 0);
    buffer_release(&header);
    buffer_release(&raw);
}

/* Expected pixel in double: RGB on white, 0..255. */
static void expected_pixel(double out[3], const struct pictures_layout *layout, int y, int x)
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

static void check_layout(const struct pictures_layout *layout)
{
    struct buffer png = {0};
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
            if (fabs(clip.pixels[i * 3 + c] - wanted[c]) > 1.6) /* 16 bits and alpha are rounded separately */
                fail_msg("%s: pixel %d channel %d is %d, not %.2f", layout->name, i, c, clip.pixels[i * 3 + c],
                         wanted[c]);
    }
    clip_release(&clip);
    buffer_release(&png);
}

static const struct pictures_layout layouts[] = {
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

TEST(every_png_layout_reads_as_its_pixels)
{
    for (i64 i = 0; i < COUNT_OF(layouts); i++)
        check_layout(&layouts[i]);
}

/* ---- PNG ---- */

static void fill_noise(struct clip *clip)
{
    for (i64 i = 0; i < clip->frames * clip->height * clip->width * 3; i++)
        clip->pixels[i] = (u8)rng_u32(key(), (u32)i, 1, 0, 0);
}

TEST(png_round_trip_keeps_every_byte)
{
    struct clip in, out;
    struct buffer png = {0};
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
    buffer_release(&png);
}

static void refuse_image(const void *bytes, i64 count, const char *wanted)
{
    struct clip clip;
    assert_int_equal(image_read(&clip, bytes, count, "bad.png"), -1);
    assert_null(clip.pixels);
    assert_says("bad.png");
    assert_says(wanted);
}

TEST(bad_pictures_are_refused)
{
    struct buffer png = {0};
    make_png(&png, &layouts[6]);
    refuse_image("", 0, "an empty file");
    refuse_image("hello, I am text\n", 17, "found text");
    refuse_image("\x01\x02\x03\x04garbage", 11, "unknown bytes");
    for (i64 cut = 8; cut < png.length; cut += 7)
        refuse_image(png.data, cut, "cut short");
    png.data[png.length / 2] ^= 1;
    refuse_image(png.data, png.length, "incorrect data check");
    buffer_release(&png);
}

TEST(a_header_cannot_ask_for_all_memory)
{
    const struct {
        u32 side;
        const char *wanted;
    } cases[] = {{1 << 16, "67108864 pixels"}, {8000, "fewer bytes"}, {0, "PNG picture"}, {0x7fffffff, "PNG picture"}};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        struct buffer png = {0}, header = {0};
        append_be32(&header, cases[i].side);
        append_be32(&header, cases[i].side);
        buffer_append(&header, "\x08\x02\0\0\0", 5);
        buffer_append(&png, "\x89PNG\r\n\x1a\n", 8);
        append_chunk(&png, "IHDR", header.data, header.length);
        append_idat(&png, (const u8 *)"xyz", 3);
        append_chunk(&png, "IEND", "", 0);
        refuse_image(png.data, png.length, cases[i].wanted);
        buffer_release(&header);
        buffer_release(&png);
    }
}

/* A 24-bit BMP: rows bottom-up, blue first, padded to 4 bytes. */
static void make_bmp(struct buffer *bmp, int height, int width)
{
    int row_bytes = (width * 3 + 3) / 4 * 4;
    buffer_append(bmp, "BM", 2);
    u32 fields[] = {(u32)(54 + row_bytes * height), 0, 54, 40, (u32)width, (u32)height, 24 << 16 | 1, 0, 0, 0, 0, 0, 0};
    for (i64 i = 0; i < COUNT_OF(fields); i++)
        append_le(bmp, fields[i], 4);
    for (int y = height - 1; y >= 0; y--)
        for (int x = 0; x < row_bytes; x++)
            append_le(bmp, x < width * 3 ? (u32)(y * 40 + x / 3 * 5 + (2 - x % 3) * 20) : 0, 1);
}

TEST(other_stills_read_through_libav)
{
    struct buffer bmp = {0};
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
    buffer_release(&bmp);
}

/* ---- Resizing ---- */

static double lanczos(double x)
{
    return fabs(x) < 1e-12 ? 1 : fabs(x) >= 3 ? 0 : 3 * sin(M_PI * x) * sin(M_PI * x / 3) / (M_PI * M_PI * x * x);
}

/* The definition of the resize, in double and in both dimensions at once. */
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
        for (i64 c = 0; c < 3; c++) /* away from 0 and 255, so that the first of the two passes does not clip */
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

TEST(resizing_is_lanczos)
{
    check_resize(40, 60, 10, 15);
    check_resize(16, 24, 40, 60);
    check_resize(9, 9, 9, 9);
    check_resize(2, 2, 5, 5);
}

TEST(resizing_keeps_the_shape_on_white)
{
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

/* 20 rows of 40 in a square of 40; errors in the white border do not count. */
TEST(errors_count_within_the_picture)
{
    struct clip in, out;
    clip_init(&in, 1, 20, 40, 0);
    memset(in.pixels, 100, 20 * 40 * 3);
    clip_resize(&out, &in, 40, 40);
    assert_int_equal(out.inner_height, 20);
    assert_int_equal(out.inner_width, 40);
    u8 *other = memory_alloc(40 * 40 * 3);
    memcpy(other, out.pixels, 40 * 40 * 3);
    assert_true(shaped_square_error(&out, other) == 0);
    memset(other, 0, 10 * 40 * 3);
    assert_true(shaped_square_error(&out, other) == 0);
    memset(other + 10 * 40 * 3, 110, 20 * 40 * 3);
    assert_true(fabs(shaped_square_error(&out, other) - pow(10.0 / 255, 2)) < 1e-9);
    out.inner_height = out.inner_width = 0; /* the whole square */
    assert_true(shaped_square_error(&out, other) > 0.2);
    memory_free(other);
    clip_release(&in);
    clip_release(&out);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
