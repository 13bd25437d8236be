/* What the training of a tokenizer will need, known before it runs and without its media: its steps on the meta
 * backend. Memory is that of a step (train/plan.h) on square pictures of the setting `size`; what the report makes at
 * the end is not in it. */
#ifndef WEFT_CODECS_FORESEE_H
#define WEFT_CODECS_FORESEE_H
#include "tokenizer_training/tokenizer_training.h"
#include "train/plan.h"

struct codec_needs {
    struct step_memory memory;
    i64 media_bytes; /* beside it: most that is kept of media */
    i64 parameters, steps;
    double flops; /* of all steps */
};
/* -1 with a message: settings that do not go together. */
int vision_foresee(struct codec_needs *needs, const struct vision_settings *settings, struct device *meta,
                   enum dtype dtype);
int audio_foresee(struct codec_needs *needs, const struct audio_settings *settings, struct device *meta,
                  enum dtype dtype);
/* Before media are read and the tokenizer is opened; as memory_check (train/fits.h). */
int vision_check_memory(const struct vision_settings *settings, const struct stage *stage);
int audio_check_memory(const struct audio_settings *settings, const struct stage *stage);

#endif
