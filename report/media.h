/* Cards of pictures, clips and sounds. */
#ifndef WEFT_REPORT_MEDIA_H
#define WEFT_REPORT_MEDIA_H
#include "report/page.h"

/* A sound with its spectrogram: its width is the sound's share of the longest one's length. */
struct sound_card {
    const char *title, *sound, *picture; /* file names of the stage; may be NULL */
    double share;
};
void put_sound(struct page *page, const struct run_stage *stage, const struct sound_card *card, const char *about);
/* Width of a PNG in pixels; 0: none. */
i64 picture_width(const struct run_stage *stage, const char *file);
#endif
