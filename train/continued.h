/* Source of the setting `continue:`: another stage's newest checkpoint, from
 * which a stage goes on. */
#ifndef WEFT_TRAIN_CONTINUED_H
#define WEFT_TRAIN_CONTINUED_H
#include "train/pretrain.h"

struct continued {
    /* checkpoints: folder of the other stage's checkpoints; folder: the newest intact
     * one, a model directory */
    char *checkpoints, *folder;
    i64 step; /* steps completed there */
    u64 seed; /* seed of the stage that began the run */
};
int continued_open(struct continued *continued, const char *stage_folder);
void continued_close(struct continued *continued);
/* Returns -1 and a message if model sizes, tokenizers or the number of steps do
 * not allow continuing. */
int continued_check(const struct continued *continued, const struct pretrain_settings *settings);

#endif
