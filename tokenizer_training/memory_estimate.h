/* Memory and compute estimate of the training of a tokenizer or refiner, made before it runs and without its media:
 * a dry run of its steps on the meta backend. Memory is that of a step (train/step_memory.h) on
 * square pictures of the setting `size`; the final report is not included. */
#ifndef WEFT_TOKENIZER_TRAINING_MEMORY_ESTIMATE_H
#define WEFT_TOKENIZER_TRAINING_MEMORY_ESTIMATE_H
#include "tokenizer_training/tokenizer_training.h"
#include "train/step_memory.h"

struct tokenizer_needs {
    struct step_memory memory;
    i64 media_bytes; /* additional host memory: upper bound for the media kept */
    i64 parameters, steps;
    double flops; /* total over all steps */
};
/* table: vision_stage_table, audio_stage_table or refiner_stage_table, with settings of that stage. Returns -1
 * and a message if the settings do not fit together, or if the tokenizer of a refiner cannot be read. */
int tokenizer_estimate(struct tokenizer_needs *needs, const struct setting *table, const void *settings,
                       struct device *meta, enum dtype dtype);
/* Call before reading the media and opening the tokenizer (dry_run_check). Weights, moments and
 * gradients have to fit. */
int codec_check_memory(const struct setting *table, const void *settings, const struct stage *stage);

#endif
