/* What the training of a media tokenizer starts from: new weights, a tokenizer (`from`), or the newest
 * checkpoint of another stage (`continue`). The settings are START_ROWS of tokenizer_training.h.
 *
 * A tokenizer's sizes and shapes stay. A size that is left at its default takes the tokenizer's value;
 * any other must equal it. The settings of shapes (size, frames, scales, rate_hz, aspects) are not read,
 * unless a tokenizer of stills is to learn clips. A tokenizer of pictures may get more bits (vision_take). */
#ifndef WEFT_TOKENIZER_TRAINING_TOKENIZER_START_H
#define WEFT_TOKENIZER_TRAINING_TOKENIZER_START_H
#include "tokenizer_training/audio_step.h"
#include "tokenizer_training/vision_step.h"
#include "train/base_checkpoint.h"

struct tokenizer_start {
    const char *folder;          /* config.json and weights; NULL: new weights */
    struct base_checkpoint base; /* of `continue` */
    struct vision_config vision; /* of the folder, as is: */
    struct audio_config audio;
    i64 sides[VISION_SCALES_MOST];
};
/* Reads the configuration of the tokenizer that a stage starts from, checks `own` against it, and gives
 * `own` its sizes, which it borrows from `start`. Returns -1 and a message; nothing stays open then. */
int vision_start_open(struct tokenizer_start *start, struct vision_settings *own);
/* dtype: of this run. With train: decoder it must be that of the tokenizer, whose codes depend on it. */
int audio_start_open(struct tokenizer_start *start, struct audio_settings *own, enum dtype dtype);
void tokenizer_start_close(struct tokenizer_start *start);
u64 tokenizer_start_seed(const struct tokenizer_start *start, u64 seed); /* of draws: that of a continued run */
void tokenizer_put_seed(struct json *state, u64 seed);                   /* into a checkpoint, for `continue` */
/* Copies the weights of the start, if any; those that it lacks stay. -1 and a message. */
int vision_start_load(struct vision *vision, const struct tokenizer_start *start);
int audio_start_load(struct audio_tokenizer *audio, const struct tokenizer_start *start);

#endif
