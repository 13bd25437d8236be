/* Source of the setting `continue:`: another stage's newest checkpoint, from
 * which a stage goes on. */
#ifndef WEFT_TRAIN_BASE_CHECKPOINT_H
#define WEFT_TRAIN_BASE_CHECKPOINT_H
#include "train/pretrain.h"

struct base_checkpoint {
    /* checkpoints: folder of the other stage's checkpoints; folder: the newest intact
     * one, a model directory */
    char *checkpoints, *folder;
    i64 step; /* steps completed there */
    u64 seed; /* seed of the stage that began the run */
};
int base_checkpoint_open(struct base_checkpoint *base_checkpoint, const char *stage_folder);
void base_checkpoint_close(struct base_checkpoint *base_checkpoint);
/* Returns -1 and a message if model sizes, tokenizers or the number of steps do
 * not allow continuing. */
int base_checkpoint_check(const struct base_checkpoint *base_checkpoint, const struct pretrain_settings *settings);

/* Tokenizers of a model directory whose vision tokens get more bits, beside those of a shard folder. Returns -1
 * and a message if the others differ. Warns if the first bits are not those of the model's tokenizer. */
int base_tokenizers_grow(const char *model, const char *shards);

#endif
