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

/* A medium under its title, or "no output". about: what those who do not see it are told. */
void put_titled_medium(struct page *page, const struct run_stage *stage, const char *title, const char *file,
                       const char *about);

/* Media of one kind: as many as fit a row of a desk's screen, then all others, folded. class: of the
 * grid. Nothing is appended if no set has an item. */
struct media_set {
    const char *title; /* "From captions it was trained on" */
    const struct json *list;
};
void put_media_sets(struct page *page, const struct run_stage *stage, const struct media_set *sets, i64 count,
                    const char *class, i64 row, int kind,
                    void (*put)(struct page *page, const struct run_stage *stage, const struct json *item, int kind));
#endif
