/* samples: what a trained model makes of captions and media, and how good it is. The stage `generate`.
 *
 * In: a model directory (`from`) and a folder of captioned media. Out: samples.json and the media that
 * it names. The caller closes what it opens.
 *
 * Where is what:
 *   samples.c            the stage; samples_estimate.c: its memory before it begins
 *   descriptions.c       texts for media
 *   nearness.c           scores of media; original.c: what they are compared with
 *   caption_accuracy.c   scores of texts; caption_baseline.c: those of answers that need no model
 *   training_media.c     training media in small: whose caption is that of the nearest medium
 *   baseline_ridge.c     pictures and clips from the words of captions by ridge regression */
#ifndef WEFT_SAMPLES_H
#define WEFT_SAMPLES_H
#include "data/sources/sources.h"
#include "train/train.h"

/* The stage `generate`: pictures, clips and speech from captions, and text from pictures, clips and
 * speech, for captions of the parts train, validation and test.
 *
 * Retrieval scores of generated media: `pair` is the share of pairs (own, other) in which the
 * original of the same caption is nearer than another's, 0.5 at chance; `first` counts media whose
 * own original is the nearest of all. Distances: mean squared difference of pixels for pictures, of
 * all frames for clips, of log-mel spectra for speech, the shorter padded with silence. Scores of
 * generated text: exact matches, and the share of words right (caption_accuracy.h), as a whole and
 * by classes of words. Scores have 95 % intervals over media and stand beside those of answers that
 * need no model (nearness.c, caption_baseline.h, training_media.c, baseline_ridge.c). */
struct samples_settings {
    char *from, *data, *refine;
    i64 pictures, clips, sounds, show, texts;
    double train_share, temperature, sound_temperature, top_p, guidance;
    double validation, test; /* shares, drawn where data has no split */
    struct source_columns columns;
    struct string_list parts, prompts;
};
extern const struct setting samples_table[];
int samples_check_settings(const void *settings);                   /* of what a recipe says alone */
int samples_stage(const void *settings, const struct stage *stage); /* $OUT/samples.json and the media it names */
#endif
