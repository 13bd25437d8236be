/* Codecs as baselines: what is written can be read, the bytes of the code alone are those between the headers, and a
 * sound comes back with its pitch, at the bits of its packets. */
#include "data/media/media.h"
#include "tests/media_fixture.h"

#include <math.h>

enum { HEIGHT = 40, WIDTH = 56, BYTES = HEIGHT * WIDTH * 3, SECONDS = 1 };

static void fill(u8 *pixels)
{
    for (i64 i = 0; i < BYTES; i++)
        pixels[i] = (u8)(128 + 90 * sin(0.11 * (double)(i / 3 % WIDTH) + (double)(i % 3)) *
                                   cos(0.13 * (double)(i / 3 / WIDTH)));
}

static double distance(const u8 *a, const u8 *b)
{
    double sum = 0;
    for (i64 i = 0; i < BYTES; i++)
        sum += fabs((double)a[i] - (double)b[i]) / BYTES;
    return sum;
}

typedef i64 encode_fn(struct buffer *out, const u8 *pixels, i64 height, i64 width, i64 quality);

/* Encodes, decodes, and returns the distance; *code and *file: bytes. */
static double again(i64 *code, struct buffer *file, encode_fn *encode, const u8 *pixels, i64 quality)
{
    struct clip clip;
    *code = encode(file, pixels, HEIGHT, WIDTH, quality);
    if (*code < 0 || image_read(&clip, file->data, file->length, "made") < 0)
        fail_msg("%s", error_text());
    assert_true(clip.height == HEIGHT && clip.width == WIDTH);
    double out = distance(clip.pixels, pixels);
    clip_release(&clip);
    return out;
}

TEST(webp_is_written_at_a_quality)
{
    u8 pixels[BYTES];
    struct buffer good = {0}, poor = {0};
    i64 good_code, poor_code;
    fill(pixels);
    double near = again(&good_code, &good, image_encode_webp, pixels, 95);
    double far = again(&poor_code, &poor, image_encode_webp, pixels, 5);
    assert_true(near < 4 && far > near && poor_code < good_code);
    /* "RIFF", size, "WEBP", "VP8 ", size; an odd code is followed by a byte */
    assert_int_equal(good.length, 20 + good_code + good_code % 2);
    assert_int_equal(poor.length, 20 + poor_code + poor_code % 2);
    buffer_release(&good);
    buffer_release(&poor);
}

/* Bytes from behind the header of the scan, the only one, to the end marker: found from the end, where a marker
 * cannot be within the scan, whose 0xff are followed by 0. */
static i64 scan_of(const struct buffer *file)
{
    const u8 *bytes = (const u8 *)file->data;
    i64 begin = file->length - 2;
    assert_true(bytes[begin] == 0xff && bytes[begin + 1] == 0xd9);
    while (!(bytes[begin] == 0xff && bytes[begin + 1] == 0xda))
        begin--;
    return file->length - 2 - (begin + 2 + (bytes[begin + 2] << 8 | bytes[begin + 3]));
}

TEST(jpeg_is_written_at_a_quality)
{
    u8 pixels[BYTES];
    struct buffer good = {0}, poor = {0};
    i64 good_code, poor_code;
    fill(pixels);
    double near = again(&good_code, &good, image_encode_jpeg, pixels, 95);
    double far = again(&poor_code, &poor, image_encode_jpeg, pixels, 5);
    assert_true(near < 4 && far > near && poor_code < good_code);
    assert_int_equal(good_code, scan_of(&good));
    assert_int_equal(poor_code, scan_of(&poor));
    buffer_release(&good);
    buffer_release(&poor);
}

TEST(pictures_beyond_the_format_are_refused)
{
    struct buffer file = {0};
    u8 *row = memory_alloc(70000 * 3);
    assert_true(image_encode_webp(&file, row, 1, 70000, 50) < 0);
    assert_non_null(strstr(error_text(), "a WebP picture of 1x70000"));
    assert_true(image_encode_jpeg(&file, row, 1, 70000, 50) < 0);
    assert_non_null(strstr(error_text(), "a JPEG picture of 1x70000"));
    memory_free(row);
    buffer_release(&file);
}

/* The share of a sound's energy at a frequency, over a second that begins at `from`. */
static double share_at(const struct sound *sound, i64 from, double hz)
{
    double re = 0, im = 0, all = 0;
    i64 n = min_i64(sound->samples - from, sound->rate_hz / 2);
    for (i64 i = 0; i < n; i++) {
        double x = sound->values[from + i], a = 2 * M_PI * hz * (double)i / (double)sound->rate_hz;
        re += x * cos(a);
        im += x * sin(a);
        all += x * x;
    }
    return all > 0 ? 2 * (re * re + im * im) / ((double)n * all) : 0;
}

static struct sound tone(i64 rate_hz, double hz)
{
    struct sound out;
    sound_init(&out, rate_hz * SECONDS, rate_hz);
    for (i64 i = 0; i < out.samples; i++)
        out.values[i] = 0.3f * (float)sin(2 * M_PI * hz * (double)i / (double)rate_hz);
    return out;
}

TEST(opus_gives_a_tone_back)
{
    struct sound_codec codec = {"libopus", "opus", 16000, "frame_duration", "20"};
    struct sound in = tone(16000, 500), out;
    i64 bits, more;
    if (sound_codec_exists(&codec)) {
        assert_int_equal(sound_recode(&out, &bits, &in, &codec, 0.2), 0);
        assert_true(out.samples >= out.rate_hz * SECONDS);
        assert_true(share_at(&out, out.rate_hz / 4, 500) > 0.9 && share_at(&out, out.rate_hz / 4, 900) < 0.1);
        assert_true(bits > 4000 && bits < 32000);
        sound_release(&out);
        assert_int_equal(sound_recode(&out, &more, &in, &codec, 2), 0); /* silence behind it costs nothing here */
        assert_int_equal(more, bits);
        sound_release(&out);
    }
    sound_release(&in);
}

/* Mode 2400: 48 bits for each 20 ms. */
TEST(codec2_has_the_bits_of_its_mode)
{
    struct sound_codec codec = {"libcodec2", "libcodec2", 0, "mode", "2400"};
    struct sound in = tone(8000, 200), out;
    i64 bits;
    if (sound_codec_exists(&codec)) {
        assert_int_equal(sound_recode(&out, &bits, &in, &codec, 0.1), 0);
        assert_int_equal(out.rate_hz, 8000);
        assert_int_equal(bits, 50 * 48);
        sound_release(&out);
    }
    sound_release(&in);
}

TEST(codecs_that_are_not_there_are_named)
{
    struct sound_codec codec = {"libnone", "opus"}, odd = {"libopus", "opus", 6000, "colour", "red"};
    struct sound in = tone(16000, 500), out;
    i64 bits;
    assert_false(sound_codec_exists(&codec));
    assert_int_equal(sound_recode(&out, &bits, &in, &codec, 0), -1);
    assert_non_null(strstr(error_text(), "libnone: this libavcodec has no such encoder"));
    if (sound_codec_exists(&odd)) {
        assert_int_equal(sound_recode(&out, &bits, &in, &odd, 0), -1);
        assert_non_null(strstr(error_text(), "no setting \"colour\""));
    }
    sound_release(&in);
}

TEST(a_sound_is_resampled)
{
    struct sound in = tone(16000, 500), out;
    assert_int_equal(sound_resample(&out, &in, 8000), 0);
    assert_true(labs(out.samples - 8000 * SECONDS) < 8 && out.rate_hz == 8000);
    assert_true(share_at(&out, 1000, 500) > 0.99);
    sound_release(&out);
    sound_release(&in);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
