/* A stream of a file in memory, demuxed and decoded by libav: what clips, stills and sounds are read from. */
#ifndef WEFT_DATA_AV_INPUT_H
#define WEFT_DATA_AV_INPUT_H
#include "data/media/file_kind.h"
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

struct av_input {
    const char *origin;
    const struct file_kind *kind;
    const u8 *bytes;
    i64 count, at; /* how far the demuxer has read */
    AVFormatContext *format;
    AVIOContext *io;
    AVStream *stream;
    AVCodecContext *codec;
    AVPacket *packet;
    AVFrame *frame;
    bool draining, end_damaged; /* end_damaged: the last packet is */
    i64 packets, damaged;
    struct deinterlacer *deinterlacer; /* NULL: no frame was interlaced so far */
    bool deinterlaced_all;             /* it has been given the last one */
    i64 most_pixels;                   /* of a frame; the usual, until another is set before input_open_decoder */
    bool strict;                       /* damage is an error, never half a picture */
};

/* Each but input_init returns -1 and a message; input_close goes with all of them. */
void input_init(struct av_input *input, const void *bytes, i64 count, const char *origin, const struct file_kind *kind);
int input_open(struct av_input *input, const void *bytes, i64 count, const char *origin, const struct file_kind *kind);
void input_close(struct av_input *input);
/* The stream of a type that a player would choose; a sound file's cover picture is no video. NULL: there is none. */
AVStream *input_best_stream(const struct av_input *input, enum AVMediaType type);
int input_select(struct av_input *input, enum AVMediaType type);
int input_open_decoder(struct av_input *input, const AVCodec *decoder);
/* 1: input->frame holds the next frame. 0: there are no more. */
int input_next(struct av_input *input);
/* Real files have a bad packet now and then, decoders step over it; a file full of them is not data. */
int input_check_damage(const struct av_input *input);
bool frame_is_damaged(const AVFrame *frame);
#endif
