/* Decoded frames to RGB of a wanted size: what av_read.c asks av_scale.c for. */
#ifndef WEFT_DATA_AV_SCALE_H
#define WEFT_DATA_AV_SCALE_H
#include "data/media/picture.h"

struct AVFrame;
struct AVStream;
struct SwsContext;

struct orientation orientation_of(const struct AVFrame *frame, const struct AVStream *stream); /* stream: or NULL */
/* Display shape of a frame: turned, and with square pixels. */
void shown_shape(double *height, double *width, const struct AVFrame *frame, struct orientation turn);

/* What scaling depends on; the scaler is set up anew only where it changes. */
struct scale_key {
    int width, height, format, space, range, location, out_width, out_height;
    int light; /* enum light */
    int peak;  /* cd/m2, of light beyond white */
};

struct scaler {
    const struct picture_rules *rules; /* the caller's, set before the first frame */
    double crop;                       /* the same; as clip_fill has it */
    struct SwsContext *sws;
    struct scale_key key;
    struct AVFrame *even; /* the source with a row or column more, where its chroma has half as many, rounded up */
    struct AVFrame *rgb;  /* RGB24, or RGBA where the source has transparency: of the source's size if `resizes` */
    bool resizes;         /* resize.c does, behind the conversion */
    u8 *native, *scaled;  /* where it does: RGB of the source's size and of the wanted one */
};

void scaler_release(struct scaler *scaler); /* but for the rules it begins as zeros */
/* One frame into out [height, width, 3], keeping its shape, cut by `crop` and centred on white. chroma_location:
 * AVChromaLocation. A negative code is libav's. */
int scale_frame(u8 *out, i64 height, i64 width, struct scaler *scaler, const struct AVFrame *frame,
                struct orientation turn, int chroma_location);
/* A still as it is stored, transparency kept: fills inks, size and pixels. A negative code is libav's. */
int frame_unpack(struct picture *out, struct scaler *scaler, const struct AVFrame *frame);
#endif
