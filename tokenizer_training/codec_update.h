/* The update of a tokenizer and of what learns beside it, as one. */
#ifndef WEFT_TOKENIZER_TRAINING_CODEC_UPDATE_H
#define WEFT_TOKENIZER_TRAINING_CODEC_UPDATE_H

#include "tokenizer_training/discriminator.h"
#include "tokenizer_training/semantics.h"

/* Updates the tokenizer (`update`), the discriminator and the head of words or features, or none of them: a
 * gradient of one that is not finite suppresses all updates. discriminator, semantic: NULL if there is none, or
 * it has not begun. tape: the tokenizer's. */
void codec_update(const struct discriminator_update *update, struct tape *tape, struct discriminator *discriminator,
                  struct semantic *semantic);
#endif
