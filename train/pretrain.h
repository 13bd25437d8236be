/* The stages `pretrain` and `sft`: the backbone on shards. Leaves a model directory with the tokenizers inside it, its
 * checkpoints, metrics.jsonl and heldout.json (losses before and after). */
#ifndef WEFT_TRAIN_PRETRAIN_H
#define WEFT_TRAIN_PRETRAIN_H
#include "train/heldout.h"

struct pretrain_settings {
    struct source_list data;
    char *from, *continues;
    char *heldout; /* shards; empty: those of data */
    i64 steps, grid_steps, heldout_rows;
    struct training_settings training;
    struct model_config model; /* sizes; the tokenizers' come from the shards */
    bool elastic_on, recompute, posterior;
    struct elastic_settings elastic;
    struct loader_settings loader;
    struct optimizer_settings optimizer;
    struct schedule bias_speed, mtp_weight;
    double text_weight, vision_weight, audio_weight;
};
extern const struct setting pretrain_table[], sft_table[];
/* What a new model has beside the settings: constants, and what a shard folder's tokenizers give. */
struct model_config pretrain_config(const struct pretrain_settings *settings);
int pretrain_sizes(struct model_config *config, const char *data);
/* Every step's micro-batches come out even over the layout: looked at before the first of them. */
int pretrain_check_batches(const struct loader_settings *loader, const struct layout *layout, i64 first, i64 steps);
int pretrain_stage(const void *settings, const struct stage *stage);
int sft_stage(const void *settings, const struct stage *stage);

/* Copies the tokenizers of a shard folder into a model directory: tokenizer.json beside the weights, the others in
 * weft/. */
int install_tokenizers(const char *directory, const char *from); /* from: shards, or another model directory */
#endif
