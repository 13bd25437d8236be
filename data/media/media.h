/* Media files to and from memory. A library is known to one file: libpng to png.c, libjpeg to jpeg.c, libwebp to
 * webp.c, libheif to heif.c, Little CMS to colour.c, libav to av_*.c. Readers take a file's bytes (a mapping, a member
 * of an archive); `origin` names it in messages. They never crash on foreign bytes: -1 and a message with origin, what
 * is wrong, what was expected. What a reader fills is the caller's to release; after -1 it holds nothing. A file that
 * is cut short is refused, not read in part, where anything in it tells (an MPEG transport stream, or MP3 and AAC
 * frames without a count, may end behind any frame); of a long stream a twentieth of the packets may be damaged.
 * Nothing is read but the bytes given: references to other files are not followed. */
#ifndef WEFT_DATA_MEDIA_H
#define WEFT_DATA_MEDIA_H
#include "core/settings.h"

struct clip { /* an image is a clip of one frame */
    i64 frames, height, width;
    double rate_hz;                  /* frames a second; 0 for a still */
    u8 *pixels;                      /* [frames, height, width, 3] RGB */
    i64 inner_height, inner_width;   /* of the picture, where it stands centred on white; 0: all of it */
    double cut;                      /* share of the picture that was cut off */
    i64 stored_height, stored_width; /* in the file, where the picture was read smaller; 0: the same */
    double seconds;                  /* from from_s until its last frame ends, as clip_read finds it; 0 for a still */
};
struct sound {
    i64 samples;
    i64 rate_hz;
    float *values; /* mono, -1..1 */
};
void clip_init(struct clip *clip, i64 frames, i64 height, i64 width, double rate_hz);
void clip_release(struct clip *clip);
void sound_init(struct sound *sound, i64 samples, i64 rate_hz);
void sound_release(struct sound *sound);

/* STILL: JPEG, WebP, HEIF, AVIF, BMP, TIFF, PPM. An animated PNG or WebP is a still here, and image_read gives what a
 * viewer without animation shows; clip_read reads all of it. */
enum media_kind { MEDIA_UNKNOWN, MEDIA_PNG, MEDIA_STILL, MEDIA_VIDEO, MEDIA_SOUND };
/* By content, never by the name alone; opens containers, which hold either. MEDIA_UNKNOWN: error_text() says why. */
enum media_kind media_kind(const void *bytes, i64 count, const char *origin);

/* What a recipe says of pictures. */
struct picture_rules {
    u8 background[3]; /* sRGB: shows where a picture is transparent */
    i64 most_pixels;  /* of a picture, or of a frame: a larger one is refused before it is decoded */
};
extern const struct picture_rules picture_rules_usual; /* white, 2^26 */
struct picture_settings {
    char *background;
    i64 most_pixels;
};
/* Rows for a settings table whose struct has `struct picture_settings pictures`. */
#define PICTURE_ROWS(type)                                                                                             \
    SETTING(type, pictures.background, "pictures.background", STRING, "ffffff", 0, 0, NULL,                            \
            "colour behind what is transparent, rrggbb in hexadecimal"),                                               \
        SETTING(type, pictures.most_pixels, "pictures.most_pixels", INTEGER, "67108864", 1, 1 << 30, NULL,             \
                "a picture of more pixels is refused before it is decoded")
/* -1: a usage error. What is not set is as usual. */
int picture_rules_read(struct picture_rules *out, const struct picture_settings *settings);

/* Stored in any depth, as palette, grey or CMYK: colours to sRGB by the file's ICC profile, turned as its EXIF says,
 * what is transparent blended on the background. */
struct image_request {
    const struct picture_rules *rules; /* NULL: the usual */
    i64 fit_height, fit_width; /* a JPEG may be decoded smaller, to twice what fits into these, or more; 0: never */
};
int image_read_as(struct clip *out, const void *bytes, i64 count, const char *origin,
                  const struct image_request *request);
int image_read(struct clip *out, const void *bytes, i64 count, const char *origin); /* as it is, by the usual rules */
int image_write_png(const char *path, const u8 *pixels, i64 height, i64 width);     /* RGB, atomic */
void image_encode_png(struct text *out, const u8 *pixels, i64 height, i64 width);

/* Frames at rate_hz from from_s on (nearest in time; 0: every frame), at most max_frames (0: all), scaled to fit
 * height x width (0: as they are): the picture keeps its shape, centred on white. A file without video is an error, and
 * so is one that ends before from_s. To begin late costs a seek: what is decoded begins at the key frame before. */
struct clip_request {
    double rate_hz;
    i64 max_frames, height, width;
    const struct picture_rules *rules; /* NULL: the usual */
    double from_s;
    i64 *decoded; /* NULL, or where to count the frames that were decoded for it */
    double crop;  /* as clip_fill has it */
};
int clip_read(struct clip *out, const void *bytes, i64 count, const char *origin, const struct clip_request *request);
/* The size at which a player shows the first frame: turned, and with square pixels. rules NULL: the usual. */
int clip_shown_size(double *height, double *width, const void *bytes, i64 count, const char *origin,
                    const struct picture_rules *rules);
/* How long its video is shown, or its sound if it has none, by what the file says; 0 if it does not. */
int media_seconds(double *out, const void *bytes, i64 count, const char *origin);
/* H.264, yuv420p; width and height even, rate_hz above 0. The same clip gives the same bytes. */
int clip_write_mp4(const char *path, const struct clip *clip); /* atomic */
int clip_encode_mp4(struct text *out, const struct clip *clip);

/* The mean of all channels, resampled to rate_hz (0: as it is). Of a video, its sound. No samples is an error. */
int sound_read(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz);
/* Stops behind most_samples (0: never): a longer sound comes back with more than that, and its end is not looked at. */
int sound_read_most(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz, i64 most_samples);
/* What sounds while the video of a film is shown from from_s on for so many seconds, by its own clock, whose nought is
 * the first frame of video, as clip_read's is. Where the sound begins later, silence stands in front; where it ends
 * earlier it is shorter. No samples, and no error: the film has no sound, or none in that time. Begins with a seek. */
int film_sound_read(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz, double from_s,
                    double seconds);
int film_has_sound(const void *bytes, i64 count, const char *origin); /* 1, 0; -1: it cannot be read */
/* What subtitles inside of a film say and when, by the same clock, as the text of a SubRip file: those in a language,
 * as the file calls it (NULL or "": in any), that a player would show first. Returns how many cues; 0: no text; -1. */
i64 film_subtitles(struct text *out, const void *bytes, i64 count, const char *origin, const char *language);
/* The same of any length, in as little memory as a few packets take. NULL: a message. */
struct sound_stream;
struct sound_stream *sound_stream_open(const void *bytes, i64 count, const char *origin, i64 rate_hz);
i64 sound_stream_read(struct sound_stream *stream, float *out, i64 most); /* samples; 0: its end; -1: a message */
void sound_stream_close(struct sound_stream *stream);
int sound_write_wav(const char *path, const struct sound *sound); /* 16-bit PCM, atomic */
void sound_encode_wav(struct text *out, const struct sound *sound);

/* Lanczos when shrinking or growing, centred on white where the shape differs. Pixels are resized here (resize.c) and,
 * straight from the decoder's planes, in clip_read; nowhere else. */
void clip_resize(struct clip *out, const struct clip *in, i64 height, i64 width);
/* The same, larger by as much as leaves no more than the share `crop` of a side cut off, half at each end: then there
 * is less white around it, or none. */
void clip_fill(struct clip *out, const struct clip *in, i64 height, i64 width, double crop);
#endif
