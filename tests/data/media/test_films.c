/* Picture and sound of a film's window match: in second n the films of tests/media/films show grey
 * 20 + 3 n and play 300 + 50 n Hz, wherever streams and window begin. */
#include "data/shapes/shaped.h"
#include "tests/media_fixture.h"

enum { RATE_HZ = 16000 };

static void map(struct file_view *file, const char *name)
{
    char *path = path_join(SOURCE_TREE "/tests/media/films", name);
    if (file_map(file, path) < 0)
        fail_msg("%s", error_text());
    memory_free(path);
}

/* Returns n of the loudest tone, 300 + 50 n Hz, in 0.1 s around a time (Goertzel); -1: silence. */
static int tone_at(const struct sound *sound, double at_s)
{
    i64 first = llrint((at_s - 0.05) * RATE_HZ), n = RATE_HZ / 10;
    double most = 1e-3;
    int best = -1;
    assert_in_range(first, 0, sound->samples - n);
    for (int tone = 0; tone < 45; tone++) {
        double w = 2 * M_PI * (300 + 50 * tone) / RATE_HZ, re = 0, im = 0;
        for (i64 i = 0; i < n; i++) {
            re += sound->values[first + i] * cos(w * (double)i) / (double)n;
            im += sound->values[first + i] * sin(w * (double)i) / (double)n;
        }
        if (hypot(re, im) > most) {
            most = hypot(re, im);
            best = tone;
        }
    }
    return best;
}

static int second_shown(const struct clip *clip, i64 frame)
{
    int grey = clip->pixels[(frame * clip->height * clip->width + clip->width * clip->height / 2) * 3];
    return (int)lrint((grey - 20) / 3.0);
}

static void read_both(struct clip *clip, struct sound *sound, const char *name, double from_s, double seconds)
{
    struct file_view file;
    struct clip_request request = {.rate_hz = 8, .max_frames = llrint(seconds * 8), .from_s = from_s};
    map(&file, name);
    if (clip_read(clip, file.data, file.bytes, name, &request) < 0 ||
        film_sound_read(sound, file.data, file.bytes, name, RATE_HZ, from_s, seconds) < 0)
        fail_msg("%s", error_text());
    file_unmap(&file);
}

/* Checks every quarter second that is not near a change. silent_s: time in the film before which it
 * has no sound. */
static void assert_together(const char *name, double from_s, double seconds, double silent_s)
{
    struct clip clip;
    struct sound sound;
    read_both(&clip, &sound, name, from_s, seconds);
    assert_int_equal(sound.rate_hz, RATE_HZ);
    assert_int_equal(sound.samples, llrint(seconds * RATE_HZ));
    for (double at_s = 0.125; at_s < seconds; at_s += 0.25) {
        double film_s = from_s + at_s;
        if (fabs(film_s - round(film_s)) < 0.1 || fabs(film_s - silent_s) < 0.1)
            continue;
        assert_int_equal(second_shown(&clip, llrint(floor(at_s * 8))), (int)floor(film_s));
        assert_int_equal(tone_at(&sound, at_s), film_s < silent_s ? -1 : (int)floor(film_s));
    }
    clip_release(&clip);
    sound_release(&sound);
}

TEST(windows_of_a_long_film_belong_together)
{
    assert_together("long.mkv", 0, 3, 0);
    assert_together("long.mkv", 0.75, 2.5, 0);
    for (double from_s = 3.25; from_s < 37; from_s += 6.375)
        assert_together("long.mkv", from_s, 2, 0);
}

TEST(a_sound_that_begins_later_has_silence_in_front)
{
    static const char *const names[] = {"later.mp4", "later.mkv"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        assert_together(names[i], 0, 5, 2.25);
        assert_together(names[i], 1.5, 2, 2.25);
        assert_together(names[i], 3, 2, 2.25);
    }
    assert_together("earlier.mkv", 0, 3, 0);
    assert_together("earlier.mkv", 1.25, 2, 0);
}

/* Relative energy of the difference between a window, from 0.1 to 1 s, and the whole sound shifted
 * by `shift` samples. */
static double difference(const struct sound *whole, const struct sound *window, i64 from, i64 shift)
{
    double error = 0, energy = 0;
    for (i64 i = RATE_HZ / 10; i < RATE_HZ; i++) {
        double away = whole->values[from + i + shift] - window->values[i];
        error += away * away;
        energy += window->values[i] * window->values[i];
    }
    assert_true(energy > 100);
    return error / energy;
}

/* Accurate to 2 ms, the resolution of Matroska's timestamps. */
TEST(a_window_is_the_sound_from_there_on)
{
    static const char *const names[] = {"long.mkv", "later.mp4", "later.mkv", "earlier.mkv"};
    for (i64 k = 0; k < COUNT_OF(names); k++) {
        struct file_view file;
        struct sound whole, window;
        double least = 1;
        map(&file, names[k]);
        assert_int_equal(film_sound_read(&whole, file.data, file.bytes, names[k], RATE_HZ, 0, 4), 0);
        assert_int_equal(film_sound_read(&window, file.data, file.bytes, names[k], RATE_HZ, 2.5, 1.25), 0);
        for (i64 shift = -RATE_HZ / 500; shift <= RATE_HZ / 500; shift++)
            least = fmin(least, difference(&whole, &window, RATE_HZ * 5 / 2, shift));
        assert_true(least < 0.01);
        sound_release(&whole);
        sound_release(&window);
        file_unmap(&file);
    }
}

TEST(frames_at_varying_distance_have_their_sound)
{
    struct clip clip;
    struct sound sound;
    read_both(&clip, &sound, "varying.mp4", 0.5, 2);
    for (i64 i = 0; i < 4; i++) /* frames at 1, 1.2, 2 s: the nearest ones */
        assert_int_equal(tone_at(&sound, 0.25 + 0.5 * (double)i), (int)floor(0.75 + 0.5 * (double)i));
    clip_release(&clip);
    sound_release(&sound);
    read_both(&clip, &sound, "varying.mp4", 2, 3); /* the film ends at 3 s */
    assert_in_range(sound.samples, RATE_HZ - 1100, RATE_HZ + 1100);
    assert_int_equal(tone_at(&sound, 0.5), 2);
    clip_release(&clip);
    sound_release(&sound);
}

/* All frames of the file, 0.04 to 0.9 s apart: the last frame ends where the next would begin. */
TEST(a_clip_of_every_frame_is_as_long_as_it_is_shown)
{
    struct file_view file;
    struct clip clip;
    bool longer;
    const struct vision_shape every = {.frames = 9, .height = 16, .width = 16};
    map(&file, "varying.mp4");
    assert_int_equal(shaped_clip_read(&clip, &longer, &every, &(struct clip_request){.max_frames = 9}, file.data,
                                      file.bytes, "varying.mp4"),
                     0);
    assert_true(longer);
    assert_true(fabs(clip.seconds - 2) < 1e-3); /* the tenth frame */
    clip_release(&clip);
    file_unmap(&file);
}

TEST(a_film_without_sound_has_none)
{
    struct file_view file;
    struct sound sound;
    map(&file, "mute.mp4");
    assert_int_equal(film_sound_read(&sound, file.data, file.bytes, "mute.mp4", RATE_HZ, 0, 2), 0);
    assert_true(sound.samples == 0 && !sound.values);
    file_unmap(&file);
    map(&file, "later.mp4"); /* no sound before its stream begins */
    assert_int_equal(film_sound_read(&sound, file.data, file.bytes, "later.mp4", RATE_HZ, 0, 2), 0);
    assert_int_equal(sound.samples, 0);
    file_unmap(&file);
    map(&file, "varying.mp4"); /* no sound after its end */
    assert_int_equal(film_sound_read(&sound, file.data, file.bytes, "varying.mp4", RATE_HZ, 3.5, 1), 0);
    assert_int_equal(sound.samples, 0);
    file_unmap(&file);
    map(&file, "sound.mp4");
    assert_int_equal(film_sound_read(&sound, file.data, file.bytes, "sound.mp4", RATE_HZ, 1, 1), 0);
    assert_int_equal(tone_at(&sound, 0.5), 1);
    sound_release(&sound);
    file_unmap(&file);
}

TEST(a_damaged_sound_is_named)
{
    struct file_view file;
    struct sound sound;
    map(&file, "damaged.mp4");
    assert_int_equal(film_sound_read(&sound, file.data, file.bytes, "damaged.mp4", RATE_HZ, 0, 2), -1);
    assert_says("damaged.mp4: damaged: ");
    assert_null(sound.values);
    file_unmap(&file);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
