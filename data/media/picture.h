/* A still as its decoder leaves it, and the steps that make it a clip of one frame: convert colours
 * to sRGB, blend transparency onto the background, turn it by its EXIF orientation. */
#ifndef WEFT_DATA_PICTURE_H
#define WEFT_DATA_PICTURE_H
#include "data/media/file_kind.h"

enum inks { INKS_RGB, INKS_RGBA, INKS_CMYK }; /* CMYK as in JPEG files: 255 is no ink */
struct picture {
    enum inks inks;
    i64 height, width;               /* decoded size */
    i64 stored_height, stored_width; /* size in the file, if decoded smaller; 0: the same */
    u8 *pixels;                      /* [height, width, 3 or 4] */
    u16 *deep;                       /* instead of pixels: 16 bits a channel, until colours are converted */
    bool lab;                        /* deep: L, a, b in place of R, G, B, encoded as in ICC.1:2010 */
    struct buffer profile;           /* ICC; empty: sRGB */
    int orientation;                 /* EXIF 2.32, tag 274: 1 to 8; 0: none */
};
void picture_release(struct picture *picture);
/* Rounds 16 bits a channel to 8, in place. */
void picture_narrow(struct picture *picture);
static inline u8 deep_to_byte(u16 value)
{
    return (u8)((value * 255u + 32767) / 65535);
}
/* Checks a header's size before anything is decoded. -1 with a message if it exceeds the request's
 * limit. */
int picture_check_size(i64 height, i64 width, const char *origin, const struct image_request *request);
/* Converts a picture into a clip of one frame. Moves the pixels out of the picture. */
void picture_finish(struct clip *out, struct picture *picture, const struct image_request *request);

/* Readers of png.c, jpeg.c, webp.c, heif.c, tiff.c, bmp.c and pnm.c. The caller releases what they fill, also
 * after -1. */
int png_read(struct picture *out, const void *bytes, i64 count, const char *origin,
             const struct image_request *request);
int jpeg_read(struct picture *out, const void *bytes, i64 count, const char *origin,
              const struct image_request *request);
int webp_read(struct picture *out, const void *bytes, i64 count, const char *origin,
              const struct image_request *request);
int heif_read(struct picture *out, const void *bytes, i64 count, const char *origin,
              const struct image_request *request);
int tiff_read(struct picture *out, const void *bytes, i64 count, const char *origin,
              const struct image_request *request);
int bmp_read(struct picture *out, const void *bytes, i64 count, const char *origin,
             const struct image_request *request);
int pnm_read(struct picture *out, const void *bytes, i64 count, const char *origin,
             const struct image_request *request);

/* exif.c: the orientation in a block of EXIF, which is a TIFF file; 0: none, or not EXIF. */
int exif_orientation(const u8 *bytes, i64 count);
struct orientation orientation_of_exif(int orientation);

/* webp.c: animations, for clip_read and clip_shown_size. */
int webp_clip_read(struct clip *out, const void *bytes, i64 count, const char *origin,
                   const struct clip_request *request);
int webp_shown_size(double *height, double *width, const void *bytes, i64 count, const char *origin);

/* colour.c: converts the pixels to sRGB by the ICC profile, in place; CMYK becomes RGB, and 16 bits
 * become 8. False if the profile is invalid or for other inks; then nothing changes. */
bool colours_to_srgb(struct picture *picture);
/* Fills a profile of a display. xy: white, red, green, blue (CIE 1931). gamma: its exponent; 0: the
 * curve of sRGB. */
void profile_of_display(struct buffer *out, const double xy[8], double gamma);
/* The same for numbers of ITU-T H.273; empty for sRGB and what is unspecified. -1 with a message if
 * such a picture cannot be shown, as in PQ and HLG. */
int profile_of_numbers(struct buffer *out, int primaries, int transfer, const char *origin);
#endif
