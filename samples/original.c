/* The original of a sample as a file that a browser shows: a copy if it is a small PNG, JPEG, MP4 or WAV,
 * whatever its name, and else decoded to PNG, MP4 or WAV. Photos and films are made smaller, since the
 * page carries them. */
#include "samples/samples_inside.h"

#include "data/media/media.h"

#include <math.h>
#include <string.h>

enum {
    COPIED_BYTES_MOST = 256 << 10,
    SIDE_MOST = 320,
    CLIP_FRAMES_MOST = 64,
    CLIP_RATE_HZ = 8,
};

static bool begins(const struct file_view *file, i64 at, const char *bytes)
{
    i64 length = (i64)strlen(bytes);
    return file->bytes >= at + length && memcmp(file->data + at, bytes, (size_t)length) == 0;
}

/* The ending of a file that browsers show as it stands; NULL: they may not. */
static const char *shown_ending(enum modality kind, const struct file_view *file)
{
    bool pcm = begins(file, 0, "RIFF") && begins(file, 8, "WAVEfmt ") && begins(file, 36, "data") &&
               file->data[20] == 1 && file->data[21] == 0;
    if (file->bytes > COPIED_BYTES_MOST)
        return NULL;
    switch (kind) {
    case MODALITY_IMAGE:
        return begins(file, 0, "\x89PNG\r\n") ? "png" : begins(file, 0, "\xff\xd8\xff") ? "jpg" : NULL;
    case MODALITY_VIDEO:
        return begins(file, 4, "ftypisom") || begins(file, 4, "ftypmp4") || begins(file, 4, "ftypavc1") ? "mp4" : NULL;
    case MODALITY_AUDIO:
        return pcm ? "wav" : NULL;
    default:
        return NULL;
    }
}

/* Even sides of at most SIDE_MOST pixels. */
static i64 shown_side(double side, double longest)
{
    return max_i64(2, llround(side * fmin(1, SIDE_MOST / longest) / 2) * 2);
}

static int write_picture(const char *path, const struct file_view *file, const char *origin)
{
    struct clip whole, small;
    if (image_read(&whole, file->data, file->bytes, origin))
        return -1;
    double longest = (double)max_i64(whole.height, whole.width);
    clip_resize(&small, &whole, shown_side((double)whole.height, longest), shown_side((double)whole.width, longest));
    int status = image_write_png(path, small.pixels, small.height, small.width);
    clip_release(&whole);
    clip_release(&small);
    return status;
}

static int write_clip(const char *path, const struct file_view *file, const char *origin)
{
    double height, width;
    struct clip clip;
    if (clip_shown_size(&height, &width, file->data, file->bytes, origin, NULL) < 0)
        return -1;
    const struct clip_request request = {.rate_hz = CLIP_RATE_HZ,
                                         .max_frames = CLIP_FRAMES_MOST,
                                         .height = shown_side(height, fmax(height, width)),
                                         .width = shown_side(width, fmax(height, width))};
    if (clip_read(&clip, file->data, file->bytes, origin, &request))
        return -1;
    int status = clip_write_mp4(path, &clip);
    clip_release(&clip);
    return status;
}

static int write_sound(const char *path, const struct file_view *file, const char *origin)
{
    struct sound sound;
    i64 most = (i64)ORIGINAL_SECONDS_MOST * AUDIO_RATE_HZ;
    if (sound_read_most(&sound, file->data, file->bytes, origin, AUDIO_RATE_HZ, most))
        return -1;
    sound.samples = min_i64(sound.samples, most);
    int status = sound_write_wav(path, &sound);
    sound_release(&sound);
    return status;
}

static int write_shown(const char *path, enum modality kind, const struct file_view *file, const char *origin)
{
    return kind == MODALITY_IMAGE   ? write_picture(path, file, origin)
           : kind == MODALITY_VIDEO ? write_clip(path, file, origin)
                                    : write_sound(path, file, origin);
}

int original_write(char **out, const char *path, enum modality kind, const char *from)
{
    struct file_view file;
    *out = NULL;
    if (file_map(&file, from))
        return -1;
    const char *ending = shown_ending(kind, &file);
    *out = string_format("%s.%s", path, ending ? ending : modality_rows[kind].ending);
    int status = ending ? file_copy(*out, from) : write_shown(*out, kind, &file, from);
    file_unmap(&file);
    return status;
}
