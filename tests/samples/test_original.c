/* Originals on the page: each is a file that browsers show, with the ending of what it holds. */
#include "samples/samples_inside.h"
#include "tests/media_fixture.h"

#include <unistd.h>

static char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = string_format("/tmp/weft-original.%d", (int)getpid());
    return directory_make(folder);
}

static int clear_folder(void **state)
{
    (void)state;
    directory_remove(folder);
    memory_free(folder);
    return 0;
}

/* Writes the original of a file. Returns its name. */
static char *write_original(enum modality kind, const char *from)
{
    char *stem = path_join(folder, "shown"), *out;
    if (original_write(&out, stem, kind, from))
        fail_msg("%s: %s", from, error_text());
    memory_free(stem);
    return out;
}

static void expect_ending(const char *path, const char *ending)
{
    const char *dot = strrchr(path, '.');
    assert_string_equal(dot ? dot + 1 : "", ending);
}

static void read_file(struct file_view *view, const char *path)
{
    if (file_map(view, path))
        fail_msg("%s", error_text());
}

static void expect_copy(enum modality kind, const char *from, const char *ending)
{
    char *out = write_original(kind, from);
    struct file_view a, b;
    expect_ending(out, ending);
    read_file(&a, from);
    read_file(&b, out);
    assert_int_equal(a.bytes, b.bytes);
    assert_memory_equal(a.data, b.data, (size_t)a.bytes);
    file_unmap(&a);
    file_unmap(&b);
    memory_free(out);
}

/* The samples that the reference decoders give, as 16 bits. */
TEST(sounds_are_played_as_wav)
{
    static const char *const names[] = {"two.mp3",    "two.ogg",  "two.opus",    "two.flac", "bare.mp3",
                                        "short.rf64", "short.au", "no-mark.oga", "two.m4a",  "two.webm"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *from = path_join(SOURCE_TREE "/tests/media", names[i]), *out = write_original(MODALITY_AUDIO, from);
        struct file_view a, b;
        struct sound before, after;
        expect_ending(out, "wav");
        read_file(&a, from);
        read_file(&b, out);
        assert_memory_equal(b.data, "RIFF", 4);
        assert_memory_equal(b.data + 36, "data", 4); /* where the page reads the length */
        assert_int_equal(sound_read(&before, a.data, a.bytes, from, AUDIO_RATE_HZ), 0);
        assert_int_equal(sound_read(&after, b.data, b.bytes, out, AUDIO_RATE_HZ), 0);
        assert_int_equal(before.samples, after.samples);
        for (i64 k = 0; k < before.samples; k++)
            assert_float_equal(fmin(fmax(before.values[k], -1), 1), after.values[k], 1.0 / 16000);
        sound_release(&before);
        sound_release(&after);
        file_unmap(&a);
        file_unmap(&b);
        memory_free(from);
        memory_free(out);
    }
    struct buffer wav = {0};
    u16 quiet[800] = {0};
    char *named = path_join(folder, "plain.mp3"); /* a WAV, whatever its name */
    make_wav(&wav, 1, 1, 16, 8000, quiet, sizeof quiet);
    assert_int_equal(file_replace(named, wav.data, wav.length), 0);
    expect_copy(MODALITY_AUDIO, named, "wav");
    buffer_clear(&wav);
    float loud[800] = {0};
    make_wav(&wav, 3, 1, 32, 8000, loud, sizeof loud);
    assert_int_equal(file_replace(named, wav.data, wav.length), 0);
    char *out = write_original(MODALITY_AUDIO, named);
    struct file_view view;
    read_file(&view, out);
    assert_int_equal(view.data[20], 1); /* PCM */
    file_unmap(&view);
    memory_free(out);
    buffer_release(&wav);
    memory_free(named);
}

TEST(long_sounds_are_cut)
{
    struct sound sound;
    struct file_view view;
    char *from = path_join(folder, "long.wav");
    sound_init(&sound, 8000 * 40, 8000);
    assert_int_equal(sound_write_wav(from, &sound), 0);
    sound_release(&sound);
    char *out = write_original(MODALITY_AUDIO, from);
    read_file(&view, out);
    assert_int_equal(sound_read(&sound, view.data, view.bytes, out, 0), 0);
    assert_int_equal(sound.samples, 30 * AUDIO_RATE_HZ);
    sound_release(&sound);
    file_unmap(&view);
    memory_free(out);
    memory_free(from);
}

TEST(pictures_are_shown_as_png_or_jpeg)
{
    static const char *const names[] = {"raw.tiff", "lossy.webp", "five.gif", "lossless.ppm"};
    struct clip clip, shown;
    struct file_view view, original;
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *from = path_join(SOURCE_TREE "/tests/media", names[i]), *out = write_original(MODALITY_IMAGE, from);
        expect_ending(out, "png");
        read_file(&original, from);
        read_file(&view, out);
        assert_int_equal(image_read(&clip, original.data, original.bytes, from), 0);
        assert_int_equal(image_read(&shown, view.data, view.bytes, out), 0);
        assert_true(labs(clip.height - shown.height) <= 1 && labs(clip.width - shown.width) <= 1);
        if (clip.height == shown.height && clip.width == shown.width)
            assert_memory_equal(clip.pixels, shown.pixels, (size_t)(clip.height * clip.width * 3));
        clip_release(&clip);
        clip_release(&shown);
        file_unmap(&view);
        file_unmap(&original);
        memory_free(from);
        memory_free(out);
    }
    char *jpeg = path_join(folder, "photo.png"); /* a JPEG, whatever its name */
    assert_int_equal(file_copy(jpeg, SOURCE_TREE "/tests/media/full-chroma.jpg"), 0);
    expect_copy(MODALITY_IMAGE, jpeg, "jpg");
    char *large = path_join(folder, "large.png");
    enum { HEIGHT = 600, WIDTH = 800 };
    u8 *noise = memory_alloc(HEIGHT * WIDTH * 3);
    u32 random = 1;
    for (i64 i = 0; i < HEIGHT * WIDTH * 3; i++)
        noise[i] = (u8)((random = random * 1664525 + 1013904223) >> 24);
    assert_int_equal(image_write_png(large, noise, HEIGHT, WIDTH), 0);
    char *out = write_original(MODALITY_IMAGE, large);
    read_file(&view, out);
    assert_int_equal(image_read(&clip, view.data, view.bytes, out), 0);
    assert_int_equal(clip.width, 320);
    assert_int_equal(clip.height, 240);
    clip_release(&clip);
    file_unmap(&view);
    memory_free(noise);
    memory_free(jpeg);
    memory_free(large);
    memory_free(out);
}

TEST(clips_are_shown_as_mp4)
{
    static const char *const names[] = {"five.gif", "vp9.webm", "short.avi", "no-mark.ogv"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *from = path_join(SOURCE_TREE "/tests/media", names[i]), *out = write_original(MODALITY_VIDEO, from);
        struct file_view view;
        double seconds;
        expect_ending(out, "mp4");
        read_file(&view, out);
        assert_memory_equal(view.data + 4, "ftyp", 4);
        assert_int_equal(media_seconds(&seconds, view.data, view.bytes, out), 0);
        assert_true(seconds > 0);
        file_unmap(&view);
        memory_free(from);
        memory_free(out);
    }
    expect_copy(MODALITY_VIDEO, SOURCE_TREE "/tests/media/bt601-full.mp4", "mp4");
}

TEST(what_cannot_be_read_is_named)
{
    char *from = path_join(folder, "broken.mp3"), *stem = path_join(folder, "none"), *out;
    assert_int_equal(file_replace(from, "no sound", 8), 0);
    assert_int_equal(original_write(&out, stem, MODALITY_AUDIO, from), -1);
    assert_says("broken.mp3");
    memory_free(out);
    memory_free(from);
    assert_int_equal(original_write(&out, stem, MODALITY_AUDIO, "/nowhere.mp3"), -1);
    assert_null(out);
    memory_free(stem);
}

int main(void)
{
    return tests_run(make_folder, clear_folder);
}
