/* Shared by samples.c (media from captions, the stage `generate`) and descriptions.c (text from
 * media). Internal to this folder. */
#ifndef WEFT_INFERENCE_SAMPLES_INSIDE_H
#define WEFT_INFERENCE_SAMPLES_INSIDE_H
#include "inference/generator.h"
#include "inference/inference.h"

#include "core/json.h"
#include "data/media/spectrogram.h"

struct sample_item {
    char *text, *path,
        *description; /* text: caption; description: text generated from the medium, NULL if it could not be read */
    u8 *original, *generated;            /* pixels of the original and of the generated medium */
    float *original_mel, *generated_mel; /* their log-mel spectra [frames, 80] */
    i64 original_count, generated_count; /* bytes, or number of spectra */
    i64 shape;                           /* index of the original's shape, then of the generated one's */
};
struct sample_set { /* one modality and split */
    enum modality kind;
    const char *split;
    struct sample_item *items;
    i64 count, unreadable;
};
struct samples_run {
    const struct samples_settings *s;
    const struct stage *stage;
    struct generator generator;
    struct mel_distance mel;
    struct json *report;
};

/* Chooses distinct captions of media files of a split, in a random order drawn from the seed. Call
 * sample_set_release also after -1. */
int sample_set_choose(struct sample_set *set, const struct samples_run *r, enum modality kind, const char *split,
                      i64 most);
void sample_set_release(struct sample_set *set);
/* Returns e.g. $OUT/train-image-03-original.png; free with memory_free. */
char *sample_path(const struct samples_run *r, const struct sample_set *set, i64 i, const char *what, const char *end);
struct json *file_name(const char *path); /* without its folder */

/* Retrieval scores of the generated media against the originals of the set: { captions, unreadable,
 * pair: share of pairs (generated, another's original) whose own original is nearer; first and
 * first_five: number of media for which none, or fewer than five, of the other originals are as
 * near as their own }. Free with json_free. */
struct json *sample_nearness(const struct samples_run *r, const struct sample_set *set);

/* Memory check of the stage before it loads the model (samples_estimate.c): -1 and a message if the
 * GPU has too little memory left. */
int samples_check_memory(const struct samples_settings *settings, const struct device *device);

/* descriptions.c. describe_set: text generated from the media of a kind and split.
 * continue_prompts: continuations of the settings' prompts. Both add to r->report. */
int describe_set(struct samples_run *r, enum modality kind, const char *split);
int continue_prompts(struct samples_run *r);

#endif
