/* Cards of pictures, clips and sounds. */
#ifndef WEFT_REPORT_MEDIA_H
#define WEFT_REPORT_MEDIA_H
#include "report/page.h"

/* A sound with its spectrogram, whose width is `share` of the card's: the longer of two that are compared fills it. */
struct sound_card {
    const char *title, *sound, *picture; /* file names of the stage; may be NULL */
    double share;
};
void put_sound(struct page *page, const struct run_stage *stage, const struct sound_card *card, const char *about);
/* Length of a WAV; 0: none. */
double sound_seconds(const struct run_stage *stage, const char *file);
#endif
