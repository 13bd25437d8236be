/* What a file is, read from its first bytes: what media.c, av_read.c and png.c tell each other. */
#ifndef WEFT_DATA_FORM_H
#define WEFT_DATA_FORM_H
#include "data/media.h"

enum form_class { FORM_PNG, FORM_STILL, FORM_CONTAINER, FORM_SOUND };
struct form {
    const char *name;      /* "a PNG picture" */
    enum form_class class; /* a container may hold video, sound or both */
    const char *reader;    /* libav's name: of the decoder for stills, else of the demuxer */
};
const struct form *form_of(const void *bytes, i64 count); /* NULL: none we know */

bool form_holds(const u8 *bytes, i64 count, i64 at, const char *wanted, i64 length);

/* whole.c: -1 and a message if what the file says of itself (lengths, counts, end markers) shows that its end is
 * missing. */
int form_check_whole(const struct form *form, const void *bytes, i64 count, const char *origin);

/* What the bytes are, for messages: a form's name, "an empty file", "text", "unknown bytes". */
const char *form_describe(const void *bytes, i64 count);

/* png.c */
int png_read(struct clip *out, const void *bytes, i64 count, const char *origin);
/* av_read.c */
int av_read_still(struct clip *out, const void *bytes, i64 count, const char *origin, const struct form *form);
enum media_kind av_container_kind(const void *bytes, i64 count, const char *origin, const struct form *form);

/* No picture or clip may take more: a damaged header must not ask for all memory. */
enum { PICTURE_PIXELS_MAX = 1 << 26 };
#define CLIP_BYTES_MAX ((i64)1 << 31)
#define SOUND_SAMPLES_MAX ((i64)1 << 28)

/* The largest size of a shape that fits into fit_height x fit_width; at least one pixel. */
void picture_fit(i64 *out_height, i64 *out_width, double height, double width, i64 fit_height, i64 fit_width);

/* resize.c: [height, width, 3] to [out_height, out_width, 3], whatever their shapes. */
void pixels_resize(u8 *out, i64 out_height, i64 out_width, const u8 *in, i64 height, i64 width);

/* libav writes no log; what it says of an error stands behind "CONTEXT: WHAT: " in the message. Returns -1. */
void av_keep_quiet(void); /* before any other call */
int av_problem(const char *context, const char *what, int code);

/* One row of pixels blended on white: RGBA -> RGB; the two may overlap if out <= rgba. */
void pixels_blend_white(u8 *out, const u8 *rgba, i64 pixels);
#endif
