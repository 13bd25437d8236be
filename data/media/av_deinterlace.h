/* Deinterlaces video: turns interlaced frames into whole ones. */
#ifndef WEFT_DATA_AV_DEINTERLACE_H
#define WEFT_DATA_AV_DEINTERLACE_H
#include "data/media/av_input.h"

bool frame_is_interlaced(const AVFrame *frame);
/* Opens a deinterlacer for frames shaped `like` this one. NULL with a message if this libavfilter
 * lacks bwdif. */
struct deinterlacer *deinterlacer_open(const struct av_input *input, const AVFrame *like);
void deinterlacer_close(struct deinterlacer *deinterlacer);
/* Feeds one frame and takes its data; NULL marks the end. -1 with a message. */
int deinterlacer_give(struct deinterlacer *deinterlacer, AVFrame *frame);
/* 1: `frame` holds the next frame. 0: feed another one first. -1 with a message. */
int deinterlacer_take(struct deinterlacer *deinterlacer, AVFrame *frame);
#endif
