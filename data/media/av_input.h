/* One stream of a file in memory, demuxed and decoded by libav. The clip, still, sound and subtitle
 * readers all read through it. */
#ifndef WEFT_DATA_AV_INPUT_H
#define WEFT_DATA_AV_INPUT_H
#include "data/media/whole.h"
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>

/* Times of the selected stream, in its unit: what is added to them, and when the next packet begins
 * if the stream goes on. */
struct av_clock {
    i64 offset, expected, jumps;
    bool any; /* `expected` is known */
};

struct av_input {
    const char *origin;
    const struct file_kind *kind;
    const u8 *bytes;
    i64 count, at; /* count: bytes in the file; at: the demuxer's position */
    struct ogg_mark mark;
    AVFormatContext *format;
    AVIOContext *io;
    AVStream *stream;
    AVCodecContext *codec;
    AVPacket *packet;
    AVFrame *frame;
    bool draining, end_damaged; /* end_damaged: the last packet was damaged */
    i64 packets, damaged;
    struct deinterlacer *deinterlacer; /* NULL while no frame was interlaced */
    bool deinterlaced_all;             /* the deinterlacer has received the end */
    i64 most_pixels;                   /* per frame; change the default before input_open_decoder */
    struct av_clock clock;
    i64 jumps; /* of the whole file, once it is scanned */
    bool scanned;
};

/* All but input_init return -1 with a message on failure. Call input_close after any of them,
 * failed or not. */
void input_init(struct av_input *input, const void *bytes, i64 count, const char *origin, const struct file_kind *kind);
int input_open(struct av_input *input, const void *bytes, i64 count, const char *origin, const struct file_kind *kind);
void input_close(struct av_input *input);
/* The stream of a type that a player would choose, NULL if there is none. A sound file's cover
 * picture is not video. */
AVStream *input_best_stream(const struct av_input *input, enum AVMediaType type);
int input_select(struct av_input *input, enum AVMediaType type);
int input_open_decoder(struct av_input *input, const AVCodec *decoder);
/* Decodes the next frame into input->frame. 1: a frame; 0: the end; -1: a message. */
int input_next(struct av_input *input);
/* av_times.c. Times that begin anew or jump go on in the packets that input_next decodes.
 * input_join_times: changes those of the packet that was read. input_jumps: true if times of stream
 * `index` do so; reads all packets. *seconds (may be NULL) is then the length of all. input_seek:
 * like av_seek_frame; fails if times jump, because no index tells where. */
void input_join_times(struct av_input *input);
bool input_jumps(struct av_input *input, int index, double *seconds);
int input_seek(struct av_input *input, int index, i64 stamp);
/* Fails if more than 1/20 of the packets were damaged. Real files have a bad packet now and then,
 * and decoders step over it. */
int input_check_damage(const struct av_input *input);
bool frame_is_damaged(const AVFrame *frame);
#endif
