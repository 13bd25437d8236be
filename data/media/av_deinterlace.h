/* Interlaced video as whole frames. */
#ifndef WEFT_DATA_AV_DEINTERLACE_H
#define WEFT_DATA_AV_DEINTERLACE_H
#include "data/media/av_input.h"

bool frame_is_interlaced(const AVFrame *frame);
/* NULL and a message: this libavfilter cannot. */
struct deinterlacer *deinterlacer_open(const struct av_input *input, const AVFrame *like);
void deinterlacer_close(struct deinterlacer *deinterlacer);
/* frame NULL: there are no more. Takes the frame's data. -1: a message. */
int deinterlacer_give(struct deinterlacer *deinterlacer, AVFrame *frame);
/* 1: `frame` holds the next one; 0: another one must be given first. */
int deinterlacer_take(struct deinterlacer *deinterlacer, AVFrame *frame);
#endif
