/* Reads and writes media files in memory: pictures, clips, sounds and subtitles.
 *
 * Readers take a file's bytes (a mapping, a member of an archive); `origin` names the file in
 * messages. They never crash on foreign bytes: they return -1 with a message that says what is
 * wrong and what was expected. The caller releases what a reader fills; after -1 it holds nothing.
 *
 * A file that is cut short is refused, not read in part, if anything in it shows the loss. An MPEG
 * transport stream may end after any packet, and a longer run of MP3 or AAC frames after any frame
 * (sound_ends_early). Up to 1/20 of the packets of a long stream may be damaged. Readers do not
 * follow references to other files.
 *
 * Each library is used in one file: libpng in png.c, libjpeg in jpeg.c, libwebp in webp.c, libheif
 * in heif.c, libtiff in tiff.c, libsndfile in wave.c, Little CMS in colour.c, libav in av_*.c.
 *
 * Where is what:
 *   file_kind.c, media.c   what kind a file is, and which reader it gets; whole.c: is its end there
 *                          (boxes.c: MP4 and its like, ogg.c, frames.c: MP3 and AAC)
 *   bmp.c, pnm.c           pictures without a library
 *   picture.c              colours and transparency of a still, exif.c: its turn; pixels.c: resizing
 *   av_input.c             demuxing and decoding for av_clip.c (frames), av_sound.c, av_subtitles.c;
 *                          av_times.c: times that jump, av_problem.c: libav's messages
 *   wave.c                 samples of WAV, AIFF, AU, CAF and Ogg for av_sound.c
 *   av_scale.c, light.c    decoded frames to RGB, HDR to sRGB; av_deinterlace.c
 *   silence.c              where a long sound is cut; subtitles.c: .srt and .vtt
 *   av_write.c, png.c      MP4 and PNG files; media.c writes WAV; spectrogram.c draws a sound
 *   av_recode.c            a sound through a codec and back; jpeg.c and webp.c write pictures too
 *   clip.c                 memory of clips and sounds; av_absent.c: a build without libav */
#ifndef WEFT_DATA_MEDIA_H
#define WEFT_DATA_MEDIA_H
#include "core/settings.h"

struct clip { /* an image is a clip of one frame */
    i64 frames, height, width;
    double rate_hz;                  /* frames per second; 0 for a still */
    u8 *pixels;                      /* [frames, height, width, 3] RGB */
    i64 inner_height, inner_width;   /* the picture inside its white margins; 0: no margins */
    double cut;                      /* share of the picture that was cut off */
    i64 stored_height, stored_width; /* size in the file, if decoded smaller; 0: the same */
    double seconds;                  /* from from_s to the end of the last frame, set by clip_read; 0 for a still */
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

/* STILL: JPEG, WebP, HEIF, AVIF, BMP, TIFF, PPM. Animated PNG and WebP count as stills here:
 * image_read gives what a viewer without animation shows, clip_read reads all frames. */
enum media_kind { MEDIA_UNKNOWN, MEDIA_PNG, MEDIA_STILL, MEDIA_VIDEO, MEDIA_SOUND };
/* Detects the kind by content, never by name alone; opens containers to tell video from sound.
 * MEDIA_UNKNOWN: error_text() has the reason. */
enum media_kind media_kind(const void *bytes, i64 count, const char *origin);

/* Rules for decoding pictures, from the recipe. */
struct picture_rules {
    u8 background[3]; /* sRGB colour behind transparent pixels */
    i64 most_pixels;  /* per picture or frame; larger ones are refused before decoding */
};
extern const struct picture_rules picture_rules_usual; /* white, 2^26 pixels */
struct picture_settings {
    char *background;
    i64 most_pixels;
};
/* Rows for a settings table whose struct has `struct picture_settings pictures`. */
#define PICTURE_ROWS(type)                                                                                             \
    SETTING(type, pictures.background, "pictures.background", STRING, "ffffff", 0, 0, NULL,                            \
            "colour behind transparent pixels, hexadecimal rrggbb"),                                                   \
        SETTING(type, pictures.most_pixels, "pictures.most_pixels", INTEGER, "67108864", 1, 1 << 30, NULL,             \
                "maximum pixels per image or frame; larger ones are refused before decoding")
/* Fills the rules from the settings; unset ones keep their defaults. -1: usage error. */
int picture_rules_read(struct picture_rules *out, const struct picture_settings *settings);

/* Parameters of image_read_as. It reads any bit depth, palette, grey or CMYK, converts colours to
 * sRGB by the file's ICC profile, turns the picture as its EXIF says, and blends transparent pixels
 * onto the background. */
struct image_request {
    const struct picture_rules *rules; /* NULL: the defaults */
    /* Lets a JPEG be decoded smaller, down to twice the size that fits into these; 0: never. */
    i64 fit_height, fit_width;
};
int image_read_as(struct clip *out, const void *bytes, i64 count, const char *origin,
                  const struct image_request *request);
/* Reads at full size with the default rules. */
int image_read(struct clip *out, const void *bytes, i64 count, const char *origin);
int image_write_png(const char *path, const u8 *pixels, i64 height, i64 width); /* RGB, atomic */
void image_encode_png(struct buffer *out, const u8 *pixels, i64 height, i64 width);

/* Parameters of clip_read: frames at rate_hz (nearest in time; 0: every frame) from from_s on, at
 * most max_frames (0: all), scaled to fit height x width (0: unscaled). The picture keeps its
 * shape, centred on white. A file without video, or one that ends before from_s, is an error. A
 * late start costs a seek: decoding begins at the key frame before it. */
struct clip_request {
    double rate_hz;
    i64 max_frames, height, width;
    const struct picture_rules *rules; /* NULL: the defaults */
    double from_s;
    i64 *decoded; /* if not NULL, the number of decoded frames is added to it */
    double crop;  /* see clip_fill */
};
int clip_read(struct clip *out, const void *bytes, i64 count, const char *origin, const struct clip_request *request);
/* The display size of the first frame: after its turn, in square pixels. rules NULL: the
 * defaults. */
int clip_shown_size(double *height, double *width, const void *bytes, i64 count, const char *origin,
                    const struct picture_rules *rules);
/* Seconds of video, or of sound if there is no video, as stated in the file; 0 if it states
 * none. */
int media_seconds(double *out, const void *bytes, i64 count, const char *origin);
/* Writes H.264, yuv420p; width and height must be even, rate_hz above 0. Deterministic: the same
 * clip gives the same bytes. */
int clip_write_mp4(const char *path, const struct clip *clip); /* atomic */
int clip_encode_mp4(struct buffer *out, const struct clip *clip);

/* Reads a sound as the mean of its channels, resampled to rate_hz (0: not resampled). A video gives
 * its sound track. A file without samples is an error. */
int sound_read(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz);
/* Stops once more than most_samples are read (0: never). The result then has more than
 * most_samples, and the end of the file is not checked. */
int sound_read_most(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz, i64 most_samples);
/* True if an MP3 states more frames than it holds: it was cut after it was written, and is read up to
 * there. */
bool sound_ends_early(const void *bytes, i64 count);
/* The sound during `seconds` of a film's video from from_s on. Times count from the first frame of
 * video, as in clip_read. If the sound begins later, silence is put in front; if it ends earlier,
 * the result is shorter. No samples and no error: the film has no sound, or none in that window.
 * Begins with a seek. */
int film_sound_read(struct sound *out, const void *bytes, i64 count, const char *origin, i64 rate_hz, double from_s,
                    double seconds);
/* 1 if the film has a sound track, 0 if not, -1 if it is unreadable. */
int film_has_sound(const void *bytes, i64 count, const char *origin);
/* Extracts a film's subtitles as SubRip text, on the clock of film_sound_read: the track in
 * `language`, as tagged in the file (NULL or "": any language), that a player would show first.
 * Returns the number of cues, 0 if there are no text subtitles, -1 on error. */
i64 film_subtitles(struct buffer *out, const void *bytes, i64 count, const char *origin, const char *language);
/* Reads a sound of any length in the memory of a few packets. `bytes` are borrowed until it is
 * closed. NULL: a message. */
struct sound_stream;
struct sound_stream *sound_stream_open(const void *bytes, i64 count, const char *origin, i64 rate_hz);
/* Returns the samples read, 0 at the end, -1 with a message. */
i64 sound_stream_read(struct sound_stream *stream, float *out, i64 most);
void sound_stream_close(struct sound_stream *stream);
int sound_write_wav(const char *path, const struct sound *sound); /* 16-bit PCM, atomic */
void sound_encode_wav(struct buffer *out, const struct sound *sound);

/* Draws a sound as a picture, time to the right, mel bands from low to high upwards, one pixel each: mel [spectra,
 * AUDIO_BANDS], natural logarithms. Dark is silent, bright is loud, on one scale for all sounds. */
int spectrogram_write_png(const char *path, const float *mel, i64 spectra);

/* ---- Codecs, as baselines of tokenizers ---- */
/* Appends a lossy file of RGB pixels [height, width, 3], of quality 1 to 100, with the encoder's defaults at its most
 * thorough. Returns the bytes of its code alone: of WebP the VP8 frame without the container (RFC 6386), of JPEG the
 * scan without headers and tables. -1: a message. */
i64 image_encode_webp(struct buffer *out, const u8 *pixels, i64 height, i64 width, i64 quality);
i64 image_encode_jpeg(struct buffer *out, const u8 *pixels, i64 height, i64 width, i64 quality);
/* An encoder of libavcodec. `decoder` reads what it writes. */
struct sound_codec {
    const char *encoder, *decoder; /* "libopus", "opus" */
    i64 bit_rate;                  /* asked for, a second; 0: its own */
    const char *option, *value;    /* one setting of the encoder: "mode", "700C" */
};
bool sound_codec_exists(const struct sound_codec *codec); /* in the libavcodec of this program */
/* Encodes a sound, `tail_s` seconds of silence behind it, and decodes it at the decoder's rate, with the codec's delay
 * in front. *bits: of the packets that hold the sound, not of those of the silence. -1: a message. */
int sound_recode(struct sound *out, i64 *bits, const struct sound *in, const struct sound_codec *codec, double tail_s);
/* Resamples as sound_read does, rounded to 16 bits. */
int sound_resample(struct sound *out, const struct sound *in, i64 rate_hz);

/* Lanczos from [height, width, 3] to [out_height, out_width, 3]; the shapes are independent. */
void pixels_resize(u8 *out, i64 out_height, i64 out_width, const u8 *in, i64 height, i64 width);
/* Resizes with Lanczos, larger or smaller, centred on white if the proportions differ. Pixels are
 * resized only here (pixels.c) and, straight from the decoder's planes, in clip_read. */
void clip_resize(struct clip *out, const struct clip *in, i64 height, i64 width);
/* Like clip_resize, but scales the picture up until at most the share `crop` of a side is cut off,
 * half at each end. This leaves narrower white margins, or none. */
void clip_fill(struct clip *out, const struct clip *in, i64 height, i64 width, double crop);
#endif
