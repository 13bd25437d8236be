/* Dispatches a file to its reader, and writes pictures, clips and sounds to files. */
#include "data/media/picture.h"
#include <stdlib.h>
#include <string.h>

enum media_kind media_kind(const void *bytes, i64 count, const char *origin)
{
    const struct file_kind *kind = file_kind_of(bytes, count);
    if (!kind) {
        error_set("%s: expected a picture, a video or a sound, found %s", origin, file_describe(bytes, count));
        return MEDIA_UNKNOWN;
    }
    switch (kind->class) {
    case FILE_PNG:
        return MEDIA_PNG;
    case FILE_STILL:
        return MEDIA_STILL;
    case FILE_SOUND:
        return MEDIA_SOUND;
    case FILE_CONTAINER:
        break;
    }
    return av_container_kind(bytes, count, origin, kind);
}

const struct picture_rules picture_rules_usual = {.background = {255, 255, 255}, .most_pixels = 1 << 26};

int picture_rules_read(struct picture_rules *out, const struct picture_settings *settings)
{
    *out = picture_rules_usual;
    if (settings->most_pixels)
        out->most_pixels = settings->most_pixels;
    const char *text = settings->background;
    if (!text || !*text)
        return 0;
    text += *text == '#';
    if (strlen(text) != 6 || strspn(text, "0123456789abcdefABCDEF") != 6)
        return error_usage("pictures.background: \"%s\" is no colour: expected rrggbb in hexadecimal, as ffffff",
                           settings->background);
    unsigned long colour = strtoul(text, NULL, 16);
    for (int c = 0; c < 3; c++)
        out->background[c] = (u8)(colour >> (16 - 8 * c));
    return 0;
}

static int read_first_frame(struct clip *out, const void *bytes, i64 count, const char *origin,
                            const struct picture_rules *rules)
{
    int status = clip_read(out, bytes, count, origin, &(struct clip_request){.max_frames = 1, .rules = rules});
    out->rate_hz = 0;
    return status;
}

static int read_picture(struct picture *out, const void *bytes, i64 count, const char *origin,
                        const struct image_request *request, const struct file_kind *kind)
{
    static const struct {
        const char *reader;
        int (*read)(struct picture *out, const void *bytes, i64 count, const char *origin,
                    const struct image_request *request);
    } readers[] = {{"png", png_read},   {"mjpeg", jpeg_read}, {"webp", webp_read}, {"heif", heif_read},
                   {"tiff", tiff_read}, {"bmp", bmp_read},    {"pnm", pnm_read}};
    i64 i = 0;
    while (i + 1 < COUNT_OF(readers) && strcmp(readers[i].reader, kind->reader) != 0)
        i++;
    return readers[i].read(out, bytes, count, origin, request);
}

int image_read_as(struct clip *out, const void *bytes, i64 count, const char *origin,
                  const struct image_request *request)
{
    *out = (struct clip){0};
    const struct file_kind *kind = file_kind_of(bytes, count);
    struct image_request asked = *request;
    asked.rules = asked.rules ? asked.rules : &picture_rules_usual;
    if (kind && kind->class == FILE_CONTAINER && strcmp(kind->reader, "gif") == 0)
        return read_first_frame(out, bytes, count, origin, asked.rules);
    if (!kind || (kind->class != FILE_PNG && kind->class != FILE_STILL))
        return error_set("%s: expected a picture (PNG, JPEG, WebP, HEIF, AVIF, BMP, TIFF, PPM, GIF), found %s", origin,
                         file_describe(bytes, count));
    if (file_check_whole(kind, bytes, count, origin) < 0)
        return -1;
    struct picture picture;
    int status = read_picture(&picture, bytes, count, origin, &asked, kind);
    if (status == 0)
        picture_finish(out, &picture, &asked);
    picture_release(&picture);
    return status;
}

int image_read(struct clip *out, const void *bytes, i64 count, const char *origin)
{
    return image_read_as(out, bytes, count, origin, &(struct image_request){0});
}

int image_write_png(const char *path, const u8 *pixels, i64 height, i64 width)
{
    struct buffer file = {0};
    image_encode_png(&file, pixels, height, width);
    int status = file_replace(path, file.data, file.length);
    buffer_release(&file);
    return status;
}

int clip_write_mp4(const char *path, const struct clip *clip)
{
    struct buffer file = {0};
    int status = clip_encode_mp4(&file, clip);
    if (status < 0)
        error_prefix("%s", path);
    else
        status = file_replace(path, file.data, file.length);
    buffer_release(&file);
    return status;
}

int sound_write_wav(const char *path, const struct sound *sound)
{
    struct buffer file = {0};
    sound_encode_wav(&file, sound);
    int status = file_replace(path, file.data, file.length);
    buffer_release(&file);
    return status;
}

static void append_u16(struct buffer *out, u32 value)
{
    u8 bytes[2] = {(u8)value, (u8)(value >> 8)};
    buffer_append(out, bytes, 2);
}

static void append_u32(struct buffer *out, u32 value)
{
    append_u16(out, value & 0xffff);
    append_u16(out, value >> 16);
}

static i32 pcm16(float value)
{
    float scaled = value * 32767.0f;
    if (!(scaled > -32768.0f)) /* also true for NaN */
        return scaled < 0 ? -32768 : 0;
    if (scaled > 32767.0f)
        return 32767;
    return (i32)(scaled + (scaled < 0 ? -0.5f : 0.5f));
}

/* Format: "Multimedia Programming Interface and Data Specifications 1.0" (1991): RIFF, WAVE,
 * 16-byte fmt, data. */
void sound_encode_wav(struct buffer *out, const struct sound *sound)
{
    require(sound->samples < (1 << 30), "a WAV file holds fewer than 2^30 samples, not %lld",
            (long long)sound->samples);
    u32 data_bytes = (u32)(sound->samples * 2), rate_hz = (u32)sound->rate_hz;
    buffer_append(out, "RIFF", 4);
    append_u32(out, 36 + data_bytes);
    buffer_append(out, "WAVEfmt ", 8);
    append_u32(out, 16);
    append_u16(out, 1); /* PCM */
    append_u16(out, 1); /* one channel */
    append_u32(out, rate_hz);
    append_u32(out, rate_hz * 2);
    append_u16(out, 2);
    append_u16(out, 16);
    buffer_append(out, "data", 4);
    append_u32(out, data_bytes);
    for (i64 i = 0; i < sound->samples; i++)
        append_u16(out, (u32)pcm16(sound->values[i]) & 0xffff);
}

int sound_resample(struct sound *out, const struct sound *in, i64 rate_hz)
{
    struct buffer file = {0};
    sound_encode_wav(&file, in);
    int status = sound_read(out, file.data, file.length, "a sound", rate_hz);
    buffer_release(&file);
    return status;
}
