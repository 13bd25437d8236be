/* What `continue:` goes on from. */
#ifndef WEFT_TRAIN_CONTINUED_H
#define WEFT_TRAIN_CONTINUED_H
#include "train/pretrain.h"

struct continued {
    char *checkpoints, *folder; /* of the other stage; its newest whole one, a model directory */
    i64 step;                   /* steps done there */
    u64 seed;                   /* of the stage in which it began */
};
int continued_open(struct continued *continued, const char *stage_folder);
void continued_close(struct continued *continued);
/* Sizes, tokenizers and number of steps must allow to go on. */
int continued_check(const struct continued *continued, const struct pretrain_settings *settings);

#endif
