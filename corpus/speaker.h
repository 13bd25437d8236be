/* What weft-corpus and the processes that speak for it (speaker.c) say to each other, through pipes. */
#ifndef WEFT_CORPUS_SPEAKER_H
#define WEFT_CORPUS_SPEAKER_H

enum { VOICE_BYTES = 64, SAID_BYTES = 1024 };

struct speaker_request {
    int speed, pitch;
    char voice[VOICE_BYTES], said[SAID_BYTES];
};
struct speaker_reply {
    int samples, rate_hz; /* samples of 16 bits follow; -1: none, for there is no such voice */
};

#endif
