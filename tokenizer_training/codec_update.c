#include "tokenizer_training/codec_update.h"

void codec_update(const struct discriminator_update *u, struct tape *tape, struct discriminator *discriminator,
                  struct semantic *semantic)
{
    if (semantic)
        semantic_guard(semantic, tape, u->squares);
    if (discriminator)
        discriminator_update(discriminator, u);
    else
        optimizer_step_over(parallel_alone(), u->weights, u->optimizer, u->lr, u->step, u->squares);
    if (semantic)
        semantic_update(semantic, tape, u->optimizer, u->lr, u->step, u->squares);
}
