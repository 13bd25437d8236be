/* Detects a file's kind from its first bytes, and declares the helpers that media.c's readers and
 * writers share. */
#ifndef WEFT_DATA_FILE_KIND_H
#define WEFT_DATA_FILE_KIND_H
#include "data/media/media.h"

enum file_class { FILE_PNG, FILE_STILL, FILE_CONTAINER, FILE_SOUND };
struct file_kind {
    const char *name;      /* "a PNG picture" */
    enum file_class class; /* a container may hold video, sound or both */
    const char *reader;    /* libav's name: a decoder for stills, else a demuxer */
};
const struct file_kind *file_kind_of(const void *bytes, i64 count); /* NULL if unknown */

/* The kind of a file that is to be read as a clip: an animated PNG is a container, an animated WebP
 * has the reader "webp". NULL if the file has no sequence of frames. */
const struct file_kind *clip_kind_of(const void *bytes, i64 count);

bool bytes_match(const u8 *bytes, i64 count, i64 at, const char *wanted, i64 length);

/* whole.c: -1 with a message if the file's own lengths, counts or end markers show that its end is
 * missing. */
int file_check_whole(const struct file_kind *kind, const void *bytes, i64 count, const char *origin);

/* Describes the bytes for messages: a kind's name, "an empty file", "text" or "unknown bytes". */
const char *file_describe(const void *bytes, i64 count);

/* av_input.c: opens the container and tells video from sound. MEDIA_UNKNOWN with a message if it
 * holds neither. */
enum media_kind av_container_kind(const void *bytes, i64 count, const char *origin, const struct file_kind *kind);

/* Limits on a clip and a sound, so that a damaged header cannot ask for all memory. */
#define CLIP_BYTES_MAX ((i64)1 << 31)
#define SOUND_SAMPLES_MAX ((i64)1 << 28)

/* The largest size with the given proportions that fits into fit_height x fit_width; at least one
 * pixel a side. */
void picture_fit(i64 *out_height, i64 *out_width, double height, double width, i64 fit_height, i64 fit_width);
/* The size that clip_fill scales a picture to; the part beyond fit_height x fit_width is cut
 * off. */
void picture_fill(i64 *out_height, i64 *out_width, double height, double width, i64 fit_height, i64 fit_width,
                  double crop);

/* av_problem.c: libav writes no log. av_problem sets the message "CONTEXT: WHAT: reason: libav's
 * last complaint" and returns -1. */
void av_capture_log(void); /* call before any other libav call */
int av_problem(const char *context, const char *what, int code);
const char *av_last_error(void); /* the last complaint since av_capture_log, or "" */

/* Blends RGBA pixels onto a background colour: RGBA -> RGB. In-place is allowed: the buffers may
 * overlap if out <= rgba. */
void pixels_blend(u8 *out, const u8 *rgba, i64 pixels, const u8 background[3]);

/* The turn from the stored picture to the shown one: its x axis runs along the stored x axis or, if
 * transposed, along the stored y axis. */
struct orientation {
    bool transposed, mirror_x, mirror_y;
};
/* Copies RGB pixels [height, width], whose rows are row_bytes apart, turned, into a window of out
 * [.., stride pixels, 3]. */
void pixels_place(u8 *out, i64 stride, const u8 *pixels, i64 row_bytes, i64 height, i64 width, struct orientation turn);
#endif
