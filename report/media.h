/* Cards of pictures, clips and sounds. */
#ifndef WEFT_REPORT_MEDIA_H
#define WEFT_REPORT_MEDIA_H
#include "report/page.h"

/* A sound with its spectrogram, drawn at `share` of the card's width, so that two sounds of
 * different length are drawn to the same scale. */
struct sound_card {
    const char *title, *sound, *picture; /* file names of the stage; may be NULL */
    double share;
};
void put_sound(struct page *page, const struct run_stage *stage, const struct sound_card *card, const char *about);
/* Duration of a WAV in seconds; 0 if unknown. */
double sound_seconds(const struct run_stage *stage, const char *file);
#endif
