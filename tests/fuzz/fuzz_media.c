/* Fuzz target: stills, clips and sounds; no bytes may crash the readers or make them hang. */
#include "data/media/media.h"
#include "data/media/subtitles.h"
#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count);

/* Small limits, so that time goes to parsing and not to pixels that a header promises. */
static const struct picture_rules rules = {.background = {255, 255, 255}, .most_pixels = 1 << 17};
enum { MOST_SAMPLES = 1 << 15 };

static void read_clip(const u8 *bytes, i64 count, double rate_hz, i64 side)
{
    struct clip clip;
    struct clip_request request = {.rate_hz = rate_hz, .max_frames = 5, .height = side, .width = side, .rules = &rules};
    if (clip_read(&clip, bytes, count, "fuzz.mp4", &request) == 0) {
        require(clip.frames > 0 && clip.frames <= 5 && clip.height > 0 && clip.width > 0, "a clip without size");
        clip_release(&clip);
    }
}

static void read_film_sound(const u8 *bytes, i64 count, double from_s)
{
    struct sound sound;
    if (film_sound_read(&sound, bytes, count, "fuzz.mkv", 16000, from_s, 1) < 0)
        return;
    require(sound.samples <= 16000, "a second of %lld samples", (long long)sound.samples);
    for (i64 i = 0; i < sound.samples; i++)
        require(sound.values[i] >= -1 && sound.values[i] <= 1, "a sample beyond 1");
    sound_release(&sound);
}

static void read_subtitles(const u8 *bytes, i64 count)
{
    struct buffer cues = {0}, words = {0};
    i64 said = film_subtitles(&cues, bytes, count, "fuzz.mkv", NULL);
    i64 read = said > 0 ? subtitles_words(&words, cues.data, cues.length, 0, INFINITY) : 0;
    require(said <= 0 || read >= said, "%lld cues, %lld of them read", (long long)said, (long long)read);
    buffer_release(&cues);
    buffer_release(&words);
}

static void read_sound(const u8 *bytes, i64 count, i64 rate_hz)
{
    struct sound sound;
    if (sound_read_most(&sound, bytes, count, "fuzz.wav", rate_hz, MOST_SAMPLES) == 0) {
        for (i64 i = 0; i < sound.samples; i++)
            require(sound.values[i] >= -1 && sound.values[i] <= 1, "a sample beyond 1");
        sound_release(&sound);
    }
}

/* Each of these opens a decoder of its own, so an input runs only one of them. */
static void read_film(const u8 *bytes, i64 count)
{
    switch (hash_bytes(bytes, count, 0) % 5) {
    case 0:
        read_clip(bytes, count, 0, 0);
        break;
    case 1:
        read_clip(bytes, count, 8, 32);
        break;
    case 2:
        read_film_sound(bytes, count, 0);
        break;
    case 3:
        read_film_sound(bytes, count, 1.5);
        break;
    case 4:
        read_subtitles(bytes, count);
        break;
    }
}

int LLVMFuzzerTestOneInput(const u8 *bytes, size_t count)
{
    struct clip picture;
    switch (media_kind(bytes, (i64)count, "fuzz")) {
    case MEDIA_PNG:
    case MEDIA_STILL:
        if (image_read_as(&picture, bytes, (i64)count, "fuzz.jpg", &(struct image_request){.rules = &rules}) == 0)
            clip_release(&picture);
        break;
    case MEDIA_VIDEO:
        read_film(bytes, (i64)count);
        break;
    case MEDIA_SOUND:
        read_sound(bytes, (i64)count, 16000);
        break;
    case MEDIA_UNKNOWN:
        break;
    }
    return 0;
}
