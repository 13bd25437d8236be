/* Media beyond the memory limit of a stage are read again when drawn, from files or from a tar,
 * with the same content; media that can be read only once stay in memory. */
#include "tokenizer_training/audio_step.h"
#include "tokenizer_training/vision_step.h"
#include "data/media/media.h"
#include "tests/scratch.h"
#include "tests/tar_text.h"

enum { SIZE = 16, STILLS = 5, CLIPS = 2, SOUNDS = 3 };

static void add_file(struct buffer *tar, const char *name)
{
    struct buffer bytes = {0};
    assert_int_equal(file_read(&bytes, path_of("one")), 0);
    tar_member_of(tar, name, bytes.data, bytes.length);
    buffer_release(&bytes);
}

static void add_pictures(struct buffer *tar)
{
    u8 pixels[9 * SIZE * SIZE * 3];
    for (int i = 0; i < STILLS + CLIPS; i++) {
        char name[32];
        struct clip clip = {5 + i % 2, SIZE, SIZE, 8, pixels};
        for (i64 k = 0; k < (i64)sizeof pixels; k++)
            pixels[k] = (u8)(k / 300 * (i + 3) + k % 7);
        succeed(i < STILLS ? image_write_png(path_of("one"), pixels, SIZE, SIZE)
                           : clip_write_mp4(path_of("one"), &clip));
        snprintf(name, sizeof name, "%03d.%s", i, i < STILLS ? "png" : "mp4");
        add_file(tar, name);
    }
}

static void add_sounds(struct buffer *tar)
{
    for (int i = 0; i < SOUNDS; i++) {
        struct sound sound;
        char name[32];
        sound_init(&sound, 8000 + 100 * i, 16000);
        for (i64 k = 0; k < sound.samples; k++)
            sound.values[k] = 0.01f * (float)(k * (i + 2) % 61);
        succeed(sound_write_wav(path_of("one"), &sound));
        snprintf(name, sizeof name, "%03d.wav", 100 + i);
        add_file(tar, name);
        sound_release(&sound);
    }
}

static int make(void **state)
{
    struct buffer tar = {0};
    if (make_directory(state) < 0)
        return -1;
    workers_start(2);
    add_pictures(&tar);
    add_sounds(&tar);
    tar_end(&tar);
    succeed(file_replace(path_of("all.tar"), tar.data, tar.length));
    buffer_release(&tar);
    char *command = string_format("gzip -c %s > %s", path_of("all.tar"), path_of("packed.tar.gz"));
    int status = system(command);
    memory_free(command);
    return status;
}

static void load_vision(struct vision_media *media, const char *name, i64 memory_mb)
{
    struct media_request from = {.data = path_of(name)};
    struct vision_media_request request = {
        {{1, {{SIZE, SIZE}}}, {1, {{SIZE, SIZE}}}}, 5, 8, 0, picture_rules_usual, memory_mb};
    succeed(vision_media_load(media, &from, &request));
    assert_int_equal(media->still_count, STILLS);
    assert_int_equal(media->clip_count, CLIPS);
}

TEST(pictures_are_the_same_when_they_are_read_again)
{
    struct vision_media kept, again, packed;
    u8 out[2][4 * 5 * SIZE * SIZE * 3];
    load_vision(&kept, "all.tar", 100);
    load_vision(&again, "all.tar", 0);
    load_vision(&packed, "packed.tar.gz", 0);
    assert_non_null(kept.stills[0]);
    assert_null(again.stills[0]);
    assert_null(again.clips[1]);
    assert_int_equal(again.bytes, 0);
    assert_non_null(packed.stills[0]); /* it can be read only once */
    for (i64 step = 0; step < 4; step++) {
        struct vision_draw d = {.n = 4, .frames = step % 2 ? 5 : 1, .first = 4 * step, .step = step, .augment = 0.5};
        succeed(vision_media_draw(out[0], &kept, &d));
        succeed(vision_media_draw(out[1], &again, &d));
        assert_memory_equal(out[0], out[1], (size_t)(4 * d.frames * SIZE * SIZE * 3));
    }
    assert_int_equal(kept.clip_frames[1], again.clip_frames[1]);
    vision_media_release(&kept);
    vision_media_release(&packed);
    succeed(file_replace(path_of("all2.tar"), "gone", 4));
    memory_free(again.still_places[0].path);
    again.still_places[0].path = string_copy(path_of("all2.tar"));
    assert_int_equal(vision_media_copy(out[0], &again, false, 0, 1), -1);
    assert_says("all2.tar: byte 4: the file ends");
    struct vision_draw d = {.n = STILLS, .frames = 1};
    u8 *all = memory_alloc(STILLS * SIZE * SIZE * 3);
    assert_int_equal(vision_media_draw(all, &again, &d), -1);
    assert_says("all2.tar: byte 4: the file ends");
    memory_free(all);
    vision_media_release(&again);
}

/* A frame of the code has 1280 samples. */
TEST(sounds_shorter_than_a_frame_are_counted)
{
    static const i64 samples[] = {1, 1279, 1280, 2000};
    struct audio_media media;
    char *folder = string_copy(path_of("brief"));
    succeed(directory_make(folder));
    for (i64 i = 0; i < COUNT_OF(samples); i++) {
        float values[2000] = {0.1f, 0.2f};
        struct sound sound = {.rate_hz = AUDIO_RATE_HZ, .samples = samples[i], .values = values};
        char *file = string_format("%s/%lld.wav", folder, (long long)i);
        succeed(sound_write_wav(file, &sound));
        memory_free(file);
    }
    succeed(audio_media_load(&media, &(struct media_request){.data = folder}, &(struct audio_media_request){0, 100}));
    assert_int_equal(media.count, 4);
    assert_int_equal(media.brief, 2);
    audio_media_release(&media);
    memory_free(folder);
}

TEST(sounds_are_the_same_when_they_are_read_again)
{
    struct audio_media kept, again, packed;
    struct media_request from = {.data = path_of("all.tar")}, gz = {.data = path_of("packed.tar.gz")};
    succeed(audio_media_load(&kept, &from, &(struct audio_media_request){0, 100}));
    succeed(audio_media_load(&again, &from, &(struct audio_media_request){0, 0}));
    succeed(audio_media_load(&packed, &gz, &(struct audio_media_request){0, 0}));
    assert_int_equal(kept.count, SOUNDS);
    assert_int_equal(again.bytes, 0);
    assert_int_equal(packed.bytes, kept.bytes);
    for (i64 i = 0; i < SOUNDS; i++) {
        i64 frames[2];
        assert_null(again.clips[i].values);
        float *one = audio_clip_samples(&kept.clips[i], &frames[0]),
              *other = audio_clip_samples(&again.clips[i], &frames[1]);
        assert_int_equal(frames[0], frames[1]);
        assert_non_null(other);
        assert_memory_equal(one, other, (size_t)(kept.clips[i].samples * 4));
        memory_free(one);
        memory_free(other);
    }
    audio_media_release(&kept);
    audio_media_release(&again);
    audio_media_release(&packed);
}

int main(void)
{
    return tests_run(make, remove_directory);
}
