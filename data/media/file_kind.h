/* What a file is, read from its first bytes, and what media.c's readers and writers share. */
#ifndef WEFT_DATA_FILE_KIND_H
#define WEFT_DATA_FILE_KIND_H
#include "data/media/media.h"

enum file_class { FILE_PNG, FILE_STILL, FILE_CONTAINER, FILE_SOUND };
struct file_kind {
    const char *name;      /* "a PNG picture" */
    enum file_class class; /* a container may hold video, sound or both */
    const char *reader;    /* libav's name: of the decoder for stills, else of the demuxer */
};
const struct file_kind *file_kind_of(const void *bytes, i64 count); /* NULL: none we know */

/* The same of a file that is asked for as a clip: an animated PNG is a container, an animated WebP says "webp". NULL:
 * it has no frames that follow each other. */
const struct file_kind *clip_kind_of(const void *bytes, i64 count);

bool bytes_match(const u8 *bytes, i64 count, i64 at, const char *wanted, i64 length);

/* whole.c: -1 and a message if what the file says of itself (lengths, counts, end markers) shows that its end is
 * missing. */
int file_check_whole(const struct file_kind *kind, const void *bytes, i64 count, const char *origin);

/* What the bytes are, for messages: a kind's name, "an empty file", "text", "unknown bytes". */
const char *file_describe(const void *bytes, i64 count);

/* av_read.c */
enum media_kind av_container_kind(const void *bytes, i64 count, const char *origin, const struct file_kind *kind);

/* No clip may take more: a damaged header must not ask for all memory. */
#define CLIP_BYTES_MAX ((i64)1 << 31)
#define SOUND_SAMPLES_MAX ((i64)1 << 28)

/* The largest size of a shape that fits into fit_height x fit_width; at least one pixel. */
void picture_fit(i64 *out_height, i64 *out_width, double height, double width, i64 fit_height, i64 fit_width);
/* The size a picture is scaled to by clip_fill: what is beyond fit_height x fit_width is cut off. */
void picture_fill(i64 *out_height, i64 *out_width, double height, double width, i64 fit_height, i64 fit_width,
                  double crop);

/* pixels.c: [height, width, 3] to [out_height, out_width, 3], whatever their shapes. */
void pixels_resize(u8 *out, i64 out_height, i64 out_width, const u8 *in, i64 height, i64 width);

/* av_problem.c: libav writes no log; what it says of an error stands behind "CONTEXT: WHAT: " in the message. Returns
 * -1. */
void av_keep_quiet(void); /* before any other call */
int av_problem(const char *context, const char *what, int code);
const char *av_complaint(void); /* what it said last since av_keep_quiet; "": nothing */

/* Pixels blended on a colour: RGBA -> RGB; the two may overlap if out <= rgba. */
void pixels_blend(u8 *out, const u8 *rgba, i64 pixels, const u8 background[3]);

/* How the stored picture is to be shown: dest x runs along source x, or, transposed, along source y. */
struct orientation {
    bool transposed, mirror_x, mirror_y;
};
/* RGB [height, width], rows row_bytes apart, turned, to a window of out [.., stride pixels, 3]. */
void pixels_place(u8 *out, i64 stride, const u8 *pixels, i64 row_bytes, i64 height, i64 width, struct orientation turn);
#endif
