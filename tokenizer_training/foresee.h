/* Memory and compute estimate of a tokenizer's training, made before it runs and without its media:
 * a dry run of its steps on the meta backend. Memory is that of a step (train/plan.h) on square
 * pictures of the setting `size`; the final report is not included. */
#ifndef WEFT_TOKENIZER_TRAINING_FORESEE_H
#define WEFT_TOKENIZER_TRAINING_FORESEE_H
#include "tokenizer_training/tokenizer_training.h"
#include "train/plan.h"

struct codec_needs {
    struct step_memory memory;
    i64 media_bytes; /* additional host memory: upper bound for the media kept */
    i64 parameters, steps;
    double flops; /* total over all steps */
};
/* Returns -1 and a message if the settings do not fit together. */
int vision_foresee(struct codec_needs *needs, const struct vision_settings *settings, struct device *meta,
                   enum dtype dtype);
int audio_foresee(struct codec_needs *needs, const struct audio_settings *settings, struct device *meta,
                  enum dtype dtype);
/* Call before reading the media and opening the tokenizer; results as
 * memory_check (train/fits.h). */
int vision_check_memory(const struct vision_settings *settings, const struct stage *stage);
int audio_check_memory(const struct audio_settings *settings, const struct stage *stage);

#endif
