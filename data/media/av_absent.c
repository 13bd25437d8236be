/* Replaces av_*.c in a build without libav (-DWEFT_MEDIA=OFF): refuses clips, sounds and all stills
 * but PNG, BMP and PNM. Training from shards needs none of them. */
#include "data/media/picture.h"

static int refuse(const char *origin, const char *what)
{
    return error_set("%s: this program was built without libav and cannot read or write %s. Install the packages of "
                     "scripts/setup and build again with -DWEFT_MEDIA=ON",
                     origin, what);
}

#define REFUSED(name, what)                                                                                            \
    int name(struct picture *out, const void *bytes, i64 count, const char *origin,                                    \
             const struct image_request *request)                                                                      \
    {                                                                                                                  \
        (void)bytes, (void)count, (void)request;                                                                       \
        *out = (struct picture){0};                                                                                    \
        return refuse(origin, what);                                                                                   \
    }
REFUSED(jpeg_read, "a JPEG picture")
REFUSED(webp_read, "a WebP picture")
REFUSED(heif_read, "a HEIF picture")
REFUSED(tiff_read, "a TIFF picture")

enum media_kind av_container_kind(const void *bytes, i64 count, const char *origin, const struct file_kind *kind)
{
    (void)bytes, (void)count;
    refuse(origin, kind->name);
    return MEDIA_UNKNOWN;
}

int clip_read(struct clip *out, const void *bytes, i64 count, const char *origin, const struct clip_request *request)
{
    (void)out, (void)bytes, (void)count, (void)request;
    return refuse(origin, "clips");
}

int clip_shown_size(double *height, double *width, const void *bytes, i64 count, const char *origin,
                    const struct picture_rules *rules)
{
    (void)rules, (void)height, (void)width, (void)bytes, (void)count;
    return refuse(origin, "clips");
}

int media_seconds(double *out, const void *bytes, i64 count, const char *origin)
{
    (void)out, (void)bytes, (void)count;
    return refuse(origin, "clips");
}

int clip_encode_mp4(struct buffer *out, const struct clip *clip)
{
    (void)out, (void)clip;
    return refuse("MP4", "clips");
}

int film_sound_read(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz, double from_s,
                    double seconds)
{
    (void)bytes, (void)count, (void)rate_hz, (void)from_s, (void)seconds;
    *out = (struct sound){0};
    return refuse(origin, "sounds");
}

int film_has_sound(const void *bytes, i64 count, const char *origin)
{
    (void)bytes, (void)count;
    return refuse(origin, "sounds");
}

i64 film_subtitles(struct buffer *out, const void *bytes, i64 count, const char *origin, const char *language)
{
    (void)out, (void)bytes, (void)count, (void)language;
    return refuse(origin, "subtitles of clips");
}

struct sound_stream *sound_stream_open(const void *bytes, i64 count, const char *origin, i64 rate_hz)
{
    (void)bytes, (void)count, (void)rate_hz;
    refuse(origin, "sounds");
    return NULL;
}

i64 sound_stream_read(struct sound_stream *stream, float *out, i64 most)
{
    (void)stream, (void)out, (void)most;
    panic("there is no stream without libav");
}

void sound_stream_close(struct sound_stream *stream)
{
    (void)stream;
}

int sound_read(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz)
{
    return sound_read_most(out, bytes, count, origin, rate_hz, 0);
}

int sound_read_most(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz, i64 most_samples)
{
    (void)out, (void)bytes, (void)count, (void)rate_hz, (void)most_samples;
    return refuse(origin, "sounds");
}

i64 image_encode_webp(struct buffer *out, const u8 *pixels, i64 height, i64 width, i64 quality)
{
    (void)out, (void)pixels, (void)height, (void)width, (void)quality;
    return refuse("WebP", "WebP pictures");
}

i64 image_encode_jpeg(struct buffer *out, const u8 *pixels, i64 height, i64 width, i64 quality)
{
    (void)out, (void)pixels, (void)height, (void)width, (void)quality;
    return refuse("JPEG", "JPEG pictures");
}

bool sound_codec_exists(const struct sound_codec *codec)
{
    (void)codec;
    return false;
}

int sound_recode(struct sound *out, i64 *bits, const struct sound *in, const struct sound_codec *codec, double tail_s)
{
    (void)in, (void)codec, (void)tail_s;
    *out = (struct sound){0};
    *bits = 0;
    return refuse("a codec", "sounds");
}
