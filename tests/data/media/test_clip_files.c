/* Clips as written by cameras and recorders, against the output of FFmpeg's filters
 * (tests/media/clips/make.sh), and windows of long clips. */
#include "data/media/light.h"
#include "tests/media_fixture.h"

#include <sys/mman.h>
#include <stdio.h>

static struct file_view map(const char *name)
{
    char path[256];
    struct file_view view;
    snprintf(path, sizeof path, SOURCE_TREE "/tests/media/clips/%s", name);
    if (file_map(&view, path) < 0)
        fail_msg("%s", error_text());
    return view;
}

static void read_clip(struct clip *out, const struct file_view *file, const char *name, struct clip_request request)
{
    if (clip_read(out, file->data, file->bytes, name, &request) < 0)
        fail_msg("%s", error_text());
}

/* Compares the first `frames` frames; the reference stacks its frames vertically. */
static void compare(const char *name, i64 frames, double mean, double most)
{
    char reference[64];
    snprintf(reference, sizeof reference, "%s.ppm", name);
    struct file_view file = map(name), theirs = map(reference);
    struct clip clip;
    long long height, width;
    int begin = 0;
    read_clip(&clip, &file, name, (struct clip_request){0});
    assert_int_equal(sscanf((const char *)theirs.data, "P6 %lld %lld 255%n", &width, &height, &begin), 2);
    assert_true(clip.frames >= frames && clip.height * frames == height && clip.width == width);
    double sum = 0, worst = 0;
    for (i64 i = 0; i < height * width * 3; i++) {
        double away = abs(clip.pixels[i] - theirs.data[begin + 1 + i]);
        sum += away / (double)(height * width * 3);
        worst = fmax(worst, away);
    }
    if (sum > mean || worst > most)
        fail_msg("%s: differs by %.3f in the mean, by %.0f at most", name, sum, worst);
    clip_release(&clip);
    file_unmap(&file);
    file_unmap(&theirs);
}

/* zimg and swscale interpolate half-size chroma differently. */
TEST(interlaced_video_becomes_whole_frames)
{
    compare("interlaced.mp4", 4, 1.0, 16);
}

TEST(light_beyond_white_is_drawn_together)
{
    compare("bright.mp4", 1, 1.0, 12);
}

/* Grey of the frame shown at a time: frame n is 30 + 35 n,
 * from 0, 0.1, 0.3, 0.35, 0.8 and 1.0 s on. */
TEST(frames_of_any_distance_are_taken_by_their_times)
{
    static const int nearest[9] = {0, 1, 2, 3, 3, 4, 4, 4, 5}; /* every 1/8 s, up to 1.05 s */
    struct file_view file = map("varying.mp4");
    struct clip clip, all;
    read_clip(&all, &file, "varying.mp4", (struct clip_request){0});
    read_clip(&clip, &file, "varying.mp4", (struct clip_request){.rate_hz = 8});
    assert_int_equal(all.frames, 6);
    assert_int_equal(clip.frames, 9);
    i64 frame = clip.height * clip.width * 3;
    for (i64 f = 0; f < clip.frames; f++)
        if (memcmp(clip.pixels + f * frame, all.pixels + nearest[f] * frame, (size_t)frame) != 0)
            fail_msg("frame %lld is not the %dth", (long long)f, nearest[f]);
    clip_release(&clip);
    clip_release(&all);
    file_unmap(&file);
}

/* Values of BT.2100: black stays black, PQ reference white (58 % code) is below the brightest, and
 * HLG's 75 % is the same white. */
TEST(pq_and_hlg_agree_on_white)
{
    u8 pq[3], hlg[3], black[3], bright[3];
    const u16 none[3] = {0}, most[3] = {65535, 65535, 65535};
    const u16 pq_white[3] = {38050, 38050, 38050}, hlg_white[3] = {49151, 49151, 49151};
    light_to_srgb(black, none, 1, LIGHT_PQ, 1000);
    light_to_srgb(pq, pq_white, 1, LIGHT_PQ, 1000);
    light_to_srgb(hlg, hlg_white, 1, LIGHT_HLG, 0);
    light_to_srgb(bright, most, 1, LIGHT_HLG, 0);
    for (int c = 0; c < 3; c++) {
        assert_int_equal(black[c], 0);
        assert_in_range(bright[c], 254, 255);
        assert_true(pq[c] > 170 && pq[c] < 240);
        if (abs(pq[c] - hlg[c]) > 2)
            fail_msg("white is %d by PQ, %d by HLG", pq[c], hlg[c]);
    }
}

/* ---- Windows ---- */

/* GROUP: the longest distance of x264's key frames */
enum { LONG_FRAMES = 2400, RATE_HZ = 2, SIDE = 32, GROUP = 250 };

/* 20 minutes at 2 frames per second, each frame in another grey. */
static void make_long(struct buffer *mp4)
{
    struct clip clip;
    clip_init(&clip, LONG_FRAMES, SIDE, SIDE, RATE_HZ);
    for (i64 f = 0; f < LONG_FRAMES; f++)
        memset(clip.pixels + f * SIDE * SIDE * 3, (int)(20 + f * 37 % 200), SIDE * SIDE * 3);
    assert_int_equal(clip_encode_mp4(mp4, &clip), 0);
    clip_release(&clip);
}

TEST(a_window_of_a_long_file_costs_a_seek)
{
    struct buffer mp4 = {0};
    struct clip all, window;
    i64 decoded = 0, decoded_of_all = 0;
    double seconds;
    make_long(&mp4);
    struct file_view file = {(const u8 *)mp4.data, mp4.length};
    assert_int_equal(media_seconds(&seconds, file.data, file.bytes, "long.mp4"), 0);
    assert_true(fabs(seconds - 1200) < 1);
    read_clip(&all, &file, "long.mp4", (struct clip_request){.decoded = &decoded_of_all});
    assert_int_equal(decoded_of_all, LONG_FRAMES);
    static const double starts[] = {0, 0.5, 17, 599.5, 1100.25, 1198};
    for (i64 i = 0; i < COUNT_OF(starts); i++) {
        decoded = 0;
        read_clip(&window, &file, "long.mp4",
                  (struct clip_request){.rate_hz = RATE_HZ, .max_frames = 4, .from_s = starts[i], .decoded = &decoded});
        assert_int_equal(window.frames, 4);
        i64 first = (i64)ceil(starts[i] * RATE_HZ), frame = SIDE * SIDE * 3;
        if (memcmp(window.pixels, all.pixels + first * frame, (size_t)(4 * frame)) != 0)
            fail_msg("the window at %g s does not begin with frame %lld", starts[i], (long long)first);
        if (decoded > GROUP + 40)
            fail_msg("%lld frames were decoded for a window at %g s", (long long)decoded, starts[i]);
        clip_release(&window);
    }
    assert_int_equal(
        clip_read(&window, file.data, file.bytes, "long.mp4", &(struct clip_request){.rate_hz = 2, .from_s = 1300}),
        -1);
    assert_says("ends before 1300 s");
    clip_release(&all);
    buffer_release(&mp4);
}

/* swscale reads past the end of rows with some vectors. */
TEST(nothing_behind_a_clip_is_read)
{
    enum { WIDTH = 64, HEIGHT = 64, FRAMES = 2, BYTES = WIDTH * HEIGHT * 3 * FRAMES, PAGE = 4096 };
    struct buffer file = {0};
    u8 *pages = mmap(NULL, BYTES + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED && BYTES % PAGE == 0);
    assert_int_equal(mprotect(pages + BYTES, PAGE, PROT_NONE), 0);
    struct clip clip = {.pixels = pages, .frames = FRAMES, .height = HEIGHT, .width = WIDTH, .rate_hz = 4};
    assert_int_equal(clip_encode_mp4(&file, &clip), 0);
    buffer_release(&file);
    munmap(pages, BYTES + PAGE);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
