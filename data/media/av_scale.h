/* Converts decoded frames to RGB of a wanted size. */
#ifndef WEFT_DATA_AV_SCALE_H
#define WEFT_DATA_AV_SCALE_H
#include "data/media/picture.h"

struct AVFrame;
struct AVStream;
struct SwsContext;

/* Reads the turn from the frame's or the stream's display matrix; stream may be NULL. */
struct orientation orientation_of(const struct AVFrame *frame, const struct AVStream *stream);
/* Display shape of a frame: after its turn, in square pixels. */
void shown_shape(double *height, double *width, const struct AVFrame *frame, struct orientation turn);

/* The parameters of a scaler; it is set up anew only when one of them changes. */
struct scale_key {
    int width, height, format, space, range, location, out_width, out_height;
    int light; /* enum light */
    int peak;  /* cd/m2, for HDR */
};

struct scaler {
    const struct picture_rules *rules; /* borrowed; set before the first frame */
    double crop;                       /* set like `rules`; see clip_fill */
    struct SwsContext *sws;
    struct scale_key key;
    struct AVFrame *even; /* the source padded to an even size, for subsampled chroma */
    /* Conversion result: RGB24, RGBA (transparency) or RGB48 (HDR); source-sized if `resizes`. */
    struct AVFrame *rgb;
    bool resizes;        /* pixels_resize scales after the conversion */
    u8 *native, *scaled; /* RGB buffers: source-sized and output-sized */
};

/* Releases the buffers. A scaler begins as zeros, except for `rules` and `crop`. */
void scaler_release(struct scaler *scaler);
/* Converts one frame into out [height, width, 3]. The picture keeps its shape, is cut by `crop` and
 * centred on white. chroma_location is an AVChromaLocation. Returns 0 or a negative libav code. */
int scale_frame(u8 *out, i64 height, i64 width, struct scaler *scaler, const struct AVFrame *frame,
                struct orientation turn, int chroma_location);
#endif
