/* The pipe protocol between weft-corpus and its speech processes (speaker.c). */
#ifndef WEFT_CORPUS_SPEAKER_H
#define WEFT_CORPUS_SPEAKER_H

enum { VOICE_BYTES = 64, SAID_BYTES = 1024 };

struct speaker_request {
    int speed, pitch;
    char voice[VOICE_BYTES], said[SAID_BYTES];
};
struct speaker_reply {
    int samples, rate_hz; /* followed by that many 16-bit samples; -1: no such voice */
};

#endif
