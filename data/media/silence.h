/* A long sound as pieces: cut where it is quietest, none longer than what is asked for. Behind each other they are the
 * sound, but for pieces that are silent from end to end, which are left out. */
#ifndef WEFT_DATA_SILENCE_H
#define WEFT_DATA_SILENCE_H
#include "data/media/media.h"

struct silence_cutter {
    struct sound_stream *stream;
    struct sound left;    /* instead of a stream, of a sound in memory: what was not read yet; borrowed */
    i64 rate_hz, longest; /* samples of a piece */
    float *held;          /* [longest + 1] */
    i64 count, passed;    /* held; in front of these */
    bool ended;
};
/* -1: a message. Reads `bytes` until it is closed. */
int silence_cutter_open(struct silence_cutter *cutter, const void *bytes, i64 count, const char *origin, i64 rate_hz,
                        double longest_s);
void silence_cutter_open_sound(struct silence_cutter *cutter, const struct sound *sound, double longest_s);
/* 1: a piece, which is the caller's, and where it begins. 0: there are no more. -1: a message. */
int silence_cutter_next(struct silence_cutter *cutter, struct sound *piece, double *from_s);
void silence_cutter_close(struct silence_cutter *cutter);
#endif
