/* Clips survive a round trip through files, rotated and shaped as the file says; invalid ones are
 * refused with a message that gives the reason. */
#define _GNU_SOURCE /* memmem */
#include "data/shapes/shaped.h"
#include "tests/media_fixture.h"

static struct rng_key key(void)
{
    return (struct rng_key){7, RNG_TEST};
}

enum { CLIP_FRAMES = 9, CLIP_SIDE = 48 };

/* Frame f has grey 20 f + 40 and a smooth colour gradient, so that frames can be told apart. */
static void make_clip(struct clip *clip)
{
    clip_init(clip, CLIP_FRAMES, CLIP_SIDE, CLIP_SIDE, 8);
    for (i64 f = 0; f < CLIP_FRAMES; f++)
        for (i64 i = 0; i < CLIP_SIDE * CLIP_SIDE; i++)
            for (i64 c = 0; c < 3; c++)
                clip->pixels[(f * CLIP_SIDE * CLIP_SIDE + i) * 3 + c] =
                    (u8)(20 * f + 40 + i % CLIP_SIDE / 4 * (c == 0) + i / CLIP_SIDE / 4 * (c == 2));
}

static void make_mp4(struct buffer *mp4)
{
    struct clip clip;
    make_clip(&clip);
    if (clip_encode_mp4(mp4, &clip) < 0)
        fail_msg("%s", error_text());
    clip_release(&clip);
}

/* A rotating square on white; with a macroblock tree, the encoding of this clip would depend on
 * uninitialized heap memory. */
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

TEST(the_same_clip_gives_the_same_bytes)
{
    struct clip clip;
    struct buffer first = {0};
    make_turning_clip(&clip);
    assert_int_equal(clip_encode_mp4(&first, &clip), 0);
    for (int round = 1; round < 40; round++) {
        struct buffer again = {0};
        size_t bytes = (size_t)round % 37 * 1000 + 1;
        void *dirt = memset(malloc(bytes), round * 91, bytes), *more = memset(malloc(200000), round * 7, 200000);
        free(more); /* give the encoder different heap contents each time */
        assert_int_equal(clip_encode_mp4(&again, &clip), 0);
        free(dirt);
        assert_int_equal(again.length, first.length);
        assert_memory_equal(again.data, first.data, (size_t)first.length);
        buffer_release(&again);
    }
    buffer_release(&first);
    clip_release(&clip);
}

TEST(mp4_round_trip_keeps_frames_and_times)
{
    struct clip in, out;
    struct buffer mp4 = {0};
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
    buffer_release(&mp4);
}

/* Reads at a rate and compares the source frame that each frame shows, by its grey. */
static void check_times(const struct buffer *mp4, double rate_hz, i64 max_frames, const int *wanted, i64 count)
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

TEST(frames_are_the_nearest_in_time)
{
    struct buffer mp4 = {0};
    make_mp4(&mp4);
    check_times(&mp4, 8, 0, (const int[]){0, 1, 2, 3, 4, 5, 6, 7, 8}, 9);
    check_times(&mp4, 8, 4, (const int[]){0, 1, 2, 3}, 4);
    check_times(&mp4, 4, 0, (const int[]){0, 2, 4, 6, 8}, 5);
    check_times(&mp4, 1, 0, (const int[]){0, 8}, 2);
    check_times(&mp4, 16, 7, (const int[]){0, 1, 1, 2, 2, 3, 3}, 7);
    check_times(&mp4, 24, 6, (const int[]){0, 0, 1, 1, 1, 2}, 6);
    buffer_release(&mp4);
}

TEST(clips_fit_on_white)
{
    struct buffer mp4 = {0};
    struct clip clip;
    make_mp4(&mp4);
    struct clip_request request = {.rate_hz = 8, .max_frames = 2, .height = 20, .width = 40};
    assert_int_equal(clip_read(&clip, mp4.data, mp4.length, "a.mp4", &request), 0);
    assert_int_equal(clip.inner_height, 20);
    assert_int_equal(clip.inner_width, 20);
    for (i64 i = 0; i < 2 * 20 * 40; i++) {
        i64 x = i % 40;
        bool white = clip.pixels[i * 3] == 255 && clip.pixels[i * 3 + 1] == 255 && clip.pixels[i * 3 + 2] == 255;
        assert_int_equal(white, x < 10 || x >= 30);
    }
    clip_release(&clip);
    buffer_release(&mp4);
}

/* Sets the matrix in the track header of an MP4: 44 bytes
 * after the box type (ISO/IEC 14496-12, 8.3.2). */
static void set_matrix(struct buffer *mp4, const i32 matrix[9])
{
    char *type = memmem(mp4->data, (size_t)mp4->length, "tkhd", 4);
    assert_non_null(type);
    for (int i = 0; i < 9; i++)
        for (int byte = 0; byte < 4; byte++)
            type[44 + i * 4 + byte] = (char)((u32)matrix[i] >> (24 - 8 * byte));
}

/* Four grey quarters (top left 40, top right 100, bottom left 160, bottom right 220) must come out
 * in this order. */
static void check_orientation(const i32 matrix[9], i64 height, i64 width, const int quarters[4])
{
    struct clip in, out;
    struct buffer mp4 = {0};
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
    buffer_release(&mp4);
}

TEST(clips_are_turned_as_their_matrix_says)
{
    enum { ONE = 1 << 16, W = 1 << 30 };
    check_orientation((const i32[]){ONE, 0, 0, 0, ONE, 0, 0, 0, W}, 32, 64, (const int[]){40, 100, 160, 220});
    check_orientation((const i32[]){0, ONE, 0, -ONE, 0, 0, 0, 0, W}, 64, 32, (const int[]){160, 40, 220, 100});
    check_orientation((const i32[]){-ONE, 0, 0, 0, -ONE, 0, 0, 0, W}, 32, 64, (const int[]){220, 160, 100, 40});
    check_orientation((const i32[]){0, -ONE, 0, ONE, 0, 0, 0, 0, W}, 64, 32, (const int[]){100, 220, 40, 160});
    check_orientation((const i32[]){-ONE, 0, 0, 0, ONE, 0, 0, 0, W}, 32, 64, (const int[]){100, 40, 220, 160});
}

static void grow_box(struct buffer *mp4, const char *name, u32 more)
{
    char *type = memmem(mp4->data, (size_t)mp4->length, name, 4);
    for (char *next; (next = memmem(type + 4, (size_t)(mp4->data + mp4->length - type - 4), name, 4));)
        type = next; /* avc1 also occurs in the first box */
    u32 bytes = 0;
    for (int i = -4; i < 0; i++)
        bytes = bytes << 8 | (u8)type[i];
    for (int i = 0; i < 4; i++)
        type[i - 4] = (char)((bytes + more) >> (24 - 8 * i));
}

/* Appends a pasp box to the sample description of the only track (ISO/IEC 14496-12, 12.1.4). */
static void set_pixel_shape(struct buffer *mp4, u32 across, u32 down)
{
    static const char *const around[] = {"moov", "trak", "mdia", "minf", "stbl", "stsd", "avc1"};
    struct buffer out = {0};
    const char *stts = memmem(mp4->data, (size_t)mp4->length, "stts", 4); /* the box after the description */
    assert_non_null(stts);
    for (i64 i = 0; i < COUNT_OF(around); i++)
        grow_box(mp4, around[i], 16);
    i64 at = stts - 4 - mp4->data;
    buffer_append(&out, mp4->data, at);
    append_be32(&out, 16);
    buffer_append(&out, "pasp", 4);
    append_be32(&out, across);
    append_be32(&out, down);
    buffer_append(&out, mp4->data + at, mp4->length - at);
    buffer_release(mp4);
    *mp4 = out;
}

static void assert_shown(const struct buffer *mp4, double height, double width)
{
    double shown_height, shown_width;
    if (clip_shown_size(&shown_height, &shown_width, mp4->data, mp4->length, "shown.mp4", NULL) < 0)
        fail_msg("%s", error_text());
    assert_true(fabs(shown_height - height) < 1e-9 && fabs(shown_width - width) < 1e-9);
}

TEST(clips_are_shown_with_square_pixels)
{
    enum { ONE = 1 << 16, W = 1 << 30 };
    struct buffer mp4 = {0};
    struct clip clip;
    double height, width;
    make_mp4(&mp4);
    assert_shown(&mp4, CLIP_SIDE, CLIP_SIDE);
    set_pixel_shape(&mp4, 2, 1);
    assert_shown(&mp4, CLIP_SIDE, 2 * CLIP_SIDE);
    struct clip_request request = {.rate_hz = 8, .max_frames = 1, .height = 24, .width = 48};
    assert_int_equal(clip_read(&clip, mp4.data, mp4.length, "wide.mp4", &request), 0);
    for (i64 i = 0; i < 24 * 48; i++) /* no white border remains */
        assert_true(clip.pixels[i * 3] < 200);
    clip_release(&clip);
    set_matrix(&mp4, (const i32[]){0, ONE, 0, -ONE, 0, 0, 0, 0, W});
    assert_shown(&mp4, 2 * CLIP_SIDE, CLIP_SIDE);
    assert_int_equal(clip_shown_size(&height, &width, "words", 5, "text.mp4", NULL), -1);
    assert_says("text.mp4");
    assert_int_equal(clip_shown_size(&height, &width, mp4.data, mp4.length - 1, "cut.mp4", NULL), -1);
    assert_says("cut short");
    buffer_release(&mp4);
}

static void refuse_clip(const void *bytes, i64 count, const char *wanted)
{
    struct clip clip;
    assert_int_equal(clip_read(&clip, bytes, count, "bad.mp4", &(struct clip_request){.rate_hz = 8}), -1);
    assert_null(clip.pixels);
    assert_says("bad.mp4");
    assert_says(wanted);
}

TEST(bad_clips_are_refused)
{
    struct buffer mp4 = {0}, png = {0}, wav = {0};
    make_mp4(&mp4);
    make_small_png(&png);
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
    buffer_release(&mp4);
    buffer_release(&png);
    buffer_release(&wav);
}

TEST(damaged_clips_never_crash)
{
    struct buffer mp4 = {0};
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
    buffer_release(&mp4);
}

/* An MP4 whose only track has the type of subtitles. */
TEST(a_container_without_video_is_refused)
{
    struct buffer mp4 = {0};
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
    buffer_release(&mp4);
}

TEST(clips_h264_cannot_hold_are_refused)
{
    struct clip odd, still;
    struct buffer mp4 = {0};
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

static i64 shaped_frames(const struct buffer *mp4, i64 frames, double rate_hz, bool *longer)
{
    struct vision_shape shape = {.frames = frames, .height = 16, .width = 16, .rate_hz = rate_hz};
    struct clip clip;
    if (shaped_clip_read(&clip, longer, &shape, &(struct clip_request){.max_frames = shape.frames}, mp4->data,
                         mp4->length, "a.mp4") < 0)
        fail_msg("%s", error_text());
    i64 read = clip.frames, frame = 16 * 16 * 3;
    for (i64 f = 10; f < read; f++) /* after the last frame of the file */
        assert_memory_equal(clip.pixels + f * frame, clip.pixels + 9 * frame, frame);
    clip_release(&clip);
    return read;
}

/* The clip has 9 frames in 9/8 s. */
TEST(a_shape_takes_its_frames_and_says_if_there_are_more)
{
    struct buffer mp4 = {0};
    bool longer;
    make_mp4(&mp4);
    assert_int_equal(shaped_frames(&mp4, 9, 8, &longer), 9);
    assert_false(longer);
    assert_int_equal(shaped_frames(&mp4, 5, 8, &longer), 5);
    assert_true(longer);
    assert_int_equal(shaped_frames(&mp4, 9, 4, &longer), 5);
    assert_false(longer);
    assert_int_equal(shaped_frames(&mp4, 17, 9, &longer), 13); /* 10 frames and 3 repeats */
    assert_false(longer);
    assert_int_equal(shaped_frames(&mp4, 17, 0, &longer), 9);
    assert_false(longer);
    assert_int_equal(shaped_frames(&mp4, 5, 0, &longer), 5);
    assert_true(longer);
    buffer_release(&mp4);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
