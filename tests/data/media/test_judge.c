/* What weft-corpus judge reads off pixels that were drawn by hand, and its answers as a program. */
#include "corpus/corpus.h"
#include "tests/scratch.h"

#include <math.h>

enum { SIDE = 64, FRAMES = 5 };

/* Draws an L: a tall blue bar and a red foot to its right, in a box of `size` whose corner is (y, x),
 * turned clockwise by `quarters`. */
static void draw_corner(struct clip *clip, i64 frame, i64 y, i64 x, i64 size, int quarters)
{
    for (i64 i = 0; i < size * size; i++) {
        i64 down = i / size, across = i % size, v = down, u = across;
        for (int q = 0; q < quarters; q++) { /* where this pixel was before the turn */
            i64 before = v;
            v = size - 1 - u;
            u = before;
        }
        bool bar = u < size / 3, foot = v >= size - size / 3;
        u8 *pixel = clip->pixels + ((frame * SIDE + y + down) * SIDE + x + across) * 3;
        if (bar || foot)
            memcpy(pixel, bar ? (const u8[]){30, 60, 220} : (const u8[]){220, 30, 30}, 3);
    }
}

static void open_white(struct clip *clip, i64 frames)
{
    clip_init(clip, frames, SIDE, SIDE, frames > 1 ? 8 : 0);
    memset(clip->pixels, 255, (size_t)(frames * SIDE * SIDE * 3));
}

static void expect_read(const struct clip *clip, const char *wanted)
{
    struct buffer read = {0};
    judge_read(&read, clip);
    assert_string_equal(read.data, wanted);
    buffer_release(&read);
}

/* A red ring around white: the white inside is a part of it. */
static void draw_ring(struct clip *clip)
{
    for (i64 i = 0; i < SIDE * SIDE; i++) {
        i64 y = i / SIDE - SIDE / 2, x = i % SIDE - SIDE / 2, radius = y * y + x * x;
        if (radius < 24 * 24 && radius > 16 * 16)
            memcpy(clip->pixels + 3 * i, (const u8[]){220, 30, 30}, 3);
    }
}

TEST(white_inside_of_a_thing_belongs_to_it)
{
    struct clip ring, empty;
    struct looks looks;
    u8 mask[SIDE * SIDE];
    open_white(&ring, 1);
    open_white(&empty, 1);
    draw_ring(&ring);
    expect_read(&ring, "round, red and white");
    expect_read(&empty, "");
    looks_read(&looks, mask, ring.pixels, SIDE, SIDE);
    assert_int_equal(mask[0], 0);
    assert_int_equal(mask[SIDE / 2 * SIDE + SIDE / 2], 1);
    assert_int_equal(looks.bottom - looks.top, looks.right - looks.left);
    clip_release(&ring);
    clip_release(&empty);
}

TEST(motions_are_told_by_place_size_and_turn)
{
    static const struct {
        i64 y[2], x[2], size[2];
        int quarters;
        const char *said;
    } clips[] = {
        {{20, 20}, {34, 4}, {24, 24}, 0, "moves to the left, blue and red"},
        {{20, 20}, {4, 34}, {24, 24}, 0, "moves to the right, blue and red"},
        {{36, 4}, {20, 20}, {24, 24}, 0, "moves up, blue and red"},
        {{4, 36}, {20, 20}, {24, 24}, 0, "moves down, blue and red"},
        {{22, 8}, {22, 8}, {18, 48}, 0, "grows, blue and red"},
        {{8, 22}, {8, 22}, {48, 18}, 0, "shrinks, blue and red"},
        {{14, 14}, {14, 14}, {36, 36}, 1, "turns clockwise, blue and red"},
        {{14, 14}, {14, 14}, {36, 36}, 3, "turns anticlockwise, blue and red"},
        {{14, 14}, {14, 14}, {36, 36}, 0, "blue and red"},
    };
    for (i64 i = 0; i < COUNT_OF(clips); i++) {
        struct clip clip;
        open_white(&clip, FRAMES);
        for (i64 f = 0; f < FRAMES; f++) {
            i64 n = FRAMES - 1;
            draw_corner(&clip, f, (clips[i].y[0] * (n - f) + clips[i].y[1] * f) / n,
                        (clips[i].x[0] * (n - f) + clips[i].x[1] * f) / n,
                        (clips[i].size[0] * (n - f) + clips[i].size[1] * f) / n, f == n ? clips[i].quarters : 0);
        }
        expect_read(&clip, clips[i].said);
        clip_release(&clip);
    }
}

TEST(only_the_words_behind_the_name_count)
{
    static const struct {
        const char *caption, *read;
        double score;
    } cases[] = {
        {"red apple, round, orange and red", "round, orange and red", 1},
        {"red apple, round, orange and red", "round, red", 0.8},
        {"red apple, round, orange and red", "", 0},
        {"the red bus moves up, wide, blue and gray", "moves up, wide, blue and gray", 1},
        {"the red bus moves up, wide, blue and gray", "moves down, wide, blue and red", 0.5},
        {"the bus turns anticlockwise, blue", "turns clockwise, blue", 0.5},
        {"shrimp, thin, red, orange and blue", "thin, red, blue and orange", 1},
        {"tall thin", "thin, red", 0.5},
        {"an apple that is red, round, orange", "round, orange", 1},
        {"red apple", "red", -1},
        {"", "red", -1},
    };
    for (i64 i = 0; i < COUNT_OF(cases); i++)
        if (fabs(judge_f1(cases[i].caption, cases[i].read) - cases[i].score) > 1e-12)
            fail_msg("%s | %s: %g", cases[i].caption, cases[i].read, judge_f1(cases[i].caption, cases[i].read));
}

static char wrote[1000]; /* by the last run */

/* Runs the program on `lines`; said: what it wrote, or the message. */
static int run_judge(struct buffer *said, const char *lines)
{
    char *text = NULL;
    size_t length = 0;
    FILE *in = fmemopen((void *)lines, strlen(lines), "r"), *out = open_memstream(&text, &length);
    int status = judge(in, out);
    fclose(in);
    fclose(out);
    snprintf(wrote, sizeof wrote, "%s", text);
    buffer_clear(said);
    buffer_append(said, status ? error_text() : text, status ? (i64)strlen(error_text()) : (i64)length);
    free(text);
    return status;
}

TEST(the_program_answers_each_line)
{
    struct clip ring;
    struct buffer said = {0};
    open_white(&ring, 1);
    draw_ring(&ring);
    assert_int_equal(image_write_png(path_of("ring.png"), ring.pixels, SIDE, SIDE), 0);
    clip_release(&ring);
    const char *path = path_of("ring.png");
    char *lines = string_format("{\"id\":7,\"image\":\"%s\",\"ground_truth\":\"ring, round, red\"}\n"
                                "{\"image\":\"%s\",\"ground_truth\":\"a thing\"}",
                                path, path);
    assert_int_equal(run_judge(&said, lines), 0);
    assert_string_equal(said.data, "{\"id\":7,\"score\":0.8,\"read\":\"round, red and white\"}\n"
                                   "{\"score\":0.0,\"read\":\"round, red and white\"}\n");
    memory_free(lines);
    buffer_release(&said);
}

TEST(bad_lines_are_refused_by_number)
{
    static const struct {
        const char *line, *message;
    } cases[] = {
        {"[", "judge: line 1"},
        {"{\"image\":\"x.png\"}", "judge: line 1: expected the key ground_truth with a caption"},
        {"{\"ground_truth\":\"red\"}", "judge: line 1: expected the key image or video with the path of a file"},
        {"{\"ground_truth\":\"red\",\"image\":\"/no/such.png\"}", "judge: line 1: /no/such.png"},
        {"{\"ground_truth\":\"red\",\"video\":\"/proc/self/cmdline\"}", "judge: line 1: /proc/self/cmdline"},
    };
    struct buffer said = {0};
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(run_judge(&said, cases[i].line), -1);
        if (strncmp(said.data, cases[i].message, strlen(cases[i].message)) != 0)
            fail_msg("%s: %s", cases[i].line, said.data);
    }
    char *line = string_format("{\"image\":\"%s\",\"ground_truth\":\"a thing\"}\n", path_of("ring.png"));
    assert_int_equal(run_judge(&said, line), -1);
    assert_string_equal(wrote, ""); /* a reply would be taken for a score */
    assert_non_null(strstr(said.data, "no caption names a form, a colour or a motion"));
    memory_free(line);
    buffer_release(&said);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
