/* The stage `generate`: pictures, clips and speech from captions, words from pictures, clips and speech; for training
 * and held-out captions, with how often what was made is nearer to its own original than to another's.
 *
 * pair: share of (own, other) pairs in which the original of the same caption is nearer, chance 0.5; first: it is the
 * nearest of all. Pictures by pixels, clips by frames (squared difference), speech by log-mel, the shorter padded with
 * silence. */
#ifndef WEFT_STUDIO_SAMPLES_H
#define WEFT_STUDIO_SAMPLES_H
#include "studio/preview.h"
#include "train/train.h"

struct samples_settings {
    char *from, *data;
    i64 pictures, clips, sounds, show, texts;
    double temperature;
    struct string_list prompts;
};
extern const struct setting samples_table[];
int samples_stage(const void *settings, const struct stage *stage); /* $OUT/samples.json and the media it names */
#endif
