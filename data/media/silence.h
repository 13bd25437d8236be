/* Cuts a long sound into pieces of bounded length at its quietest points. The concatenated pieces
 * are the sound, except that entirely silent pieces are left out. */
#ifndef WEFT_DATA_SILENCE_H
#define WEFT_DATA_SILENCE_H
#include "data/media/media.h"

struct silence_cutter {
    struct sound_stream *stream;
    struct sound left;    /* instead of a stream, the unread rest of a sound in memory; borrowed */
    i64 rate_hz, longest; /* longest: samples per piece */
    float *held;          /* [longest + 1] */
    i64 count, passed;    /* samples held; samples already passed */
    bool ended;
};
/* Borrows `bytes` until closed. -1 with a message. */
int silence_cutter_open(struct silence_cutter *cutter, const void *bytes, i64 count, const char *origin, i64 rate_hz,
                        double longest_s);
void silence_cutter_open_sound(struct silence_cutter *cutter, const struct sound *sound, double longest_s);
/* 1: a piece, owned by the caller, and its begin. 0: the end. -1: a message. */
int silence_cutter_next(struct silence_cutter *cutter, struct sound *piece, double *from_s);
void silence_cutter_close(struct silence_cutter *cutter);
#endif
