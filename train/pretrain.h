/* The stages `pretrain` and `sft`: train the backbone on shards. Writes a model directory with its
 * tokenizers, checkpoints, metrics.jsonl and heldout.json (losses before and after training). */
#ifndef WEFT_TRAIN_PRETRAIN_H
#define WEFT_TRAIN_PRETRAIN_H
#include "sites/sites.h"
#include "train/heldout.h"

enum { DEAL_EVEN, DEAL_SPEED };
struct pretrain_settings {
    struct source_list data;
    char *from, *continues;
    char *heldout; /* shards of the held-out part; empty: those of data */
    i64 steps, heldout_rows;
    int deal;                                                         /* DEAL_... */
    i64 routing_steps, heldout_steps, grid_steps, heldout_steps_rows; /* monitor.h */
    struct training_settings training;
    struct best_settings best;
    struct model_config model;        /* sizes; those of the tokenizers come from the shards */
    struct integer_list audio_layers; /* model.audio_layers */
    bool elastic_on, recompute, posterior;
    struct elastic_settings elastic;
    struct loader_settings loader;
    struct optimizer_settings optimizer;
    struct sites_settings sites;
    struct schedule bias_speed, mtp_weight;
    double loss_weight[TARGETS];
};
extern const struct setting pretrain_table[], sft_table[];
bool pretrain_distills(const struct pretrain_settings *settings); /* the full model teaches some sub-models */
/* pretrain_config: the configuration of a new model, from the settings and constants.
 * pretrain_sizes adds the sizes of the tokenizers of a shard folder; returns -1 and a message
 * if it cannot read them. */
struct model_config pretrain_config(const struct pretrain_settings *settings);
int pretrain_sizes(struct model_config *config, const char *data);
/* Whether expert ranks hold neighbouring experts, whatever their use: sub-models that draw equal shares of neighbours
 * rely on it. */
bool pretrain_experts_in_a_row(const struct pretrain_settings *settings);
/* Checks that the layout divides the micro-batches of every step from `first` on.
 * Returns -1 and a message. */
int pretrain_check_batches(const struct loader_settings *loader, const struct layout *layout, i64 first, i64 steps);
/* Check what a recipe alone shows to be wrong, before any stage runs. Return -1 and a message. */
int pretrain_check_settings(const void *settings);
int sft_check_settings(const void *settings);
/* Checks a stage that continues `other`, a stage of the same recipe called `name`: as many steps as
 * that, or other sizes of the model than it makes, are refused. Returns -1 and a message. */
int pretrain_check_continued(const struct pretrain_settings *settings, const struct pretrain_settings *other,
                             const char *name);
int pretrain_stage(const void *settings, const struct stage *stage);
int sft_stage(const void *settings, const struct stage *stage);
/* Why sft has nothing to do: its shards or those of a source hold no conversations (memory_free); NULL if they may. */
char *sft_stage_absent(const void *settings);

/* Copies the tokenizers of `from` (a shard folder or another model directory) into a model
 * directory: tokenizer.json next to the weights, the others into weft/. */
int copy_tokenizers(const char *directory, const char *from);
/* -1 and a message if a tokenizer that it would copy is damaged. */
int copy_tokenizers_check(const char *from);
#endif
