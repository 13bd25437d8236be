/* A still as its decoder leaves it, and what is done with it before it is a clip of one frame: its colours to sRGB,
 * what shines through behind it, turned as its file says. */
#ifndef WEFT_DATA_PICTURE_H
#define WEFT_DATA_PICTURE_H
#include "data/media/file_kind.h"

enum inks { INKS_RGB, INKS_RGBA, INKS_CMYK }; /* CMYK as JPEG files have it: 255 is no ink */
struct picture {
    enum inks inks;
    i64 height, width;               /* as decoded */
    i64 stored_height, stored_width; /* in the file, where it was decoded smaller; 0: the same */
    u8 *pixels;                      /* [height, width, 3 or 4] */
    struct text profile;             /* ICC; empty: sRGB */
    int orientation;                 /* of EXIF 2.32, tag 274, 1 to 8; 0: as it is stored */
};
void picture_release(struct picture *picture);
/* -1 and a message where a header asks for more than the request allows: before anything of it is decoded. */
int picture_check_size(i64 height, i64 width, const char *origin, const struct image_request *request);
/* Moves the pixels. */
void picture_finish(struct clip *out, struct picture *picture, const struct image_request *request);

/* png.c, jpeg.c, webp.c, heif.c, av_still.c: what they fill is the caller's to release, also after -1. */
int png_read(struct picture *out, const void *bytes, i64 count, const char *origin,
             const struct image_request *request);
int jpeg_read(struct picture *out, const void *bytes, i64 count, const char *origin,
              const struct image_request *request);
int webp_read(struct picture *out, const void *bytes, i64 count, const char *origin,
              const struct image_request *request);
int heif_read(struct picture *out, const void *bytes, i64 count, const char *origin,
              const struct image_request *request);
int av_read_still(struct picture *out, const void *bytes, i64 count, const char *origin,
                  const struct image_request *request, const struct file_kind *kind);

/* exif.c: the orientation in a block of EXIF, which is a TIFF file; 0: none, or no such block. */
/* The first directory's value of a tag of type SHORT in a TIFF file, which EXIF is; 0: none. */
int tiff_number(const u8 *bytes, i64 count, int tag);
int exif_orientation(const u8 *bytes, i64 count);
struct orientation orientation_of_exif(int orientation);

/* webp.c: animations, as clip_read and clip_shown_size have them. */
int webp_clip_read(struct clip *out, const void *bytes, i64 count, const char *origin,
                   const struct clip_request *request);
int webp_shown_size(double *height, double *width, const void *bytes, i64 count, const char *origin);

/* colour.c: the pixels' colours, by the profile, to sRGB; CMYK becomes RGB in place. False: the profile is none, or not
 * of such pixels; nothing is changed. */
bool colours_to_srgb(struct picture *picture);
#endif
