/* Settings of the stages pretrain and sft. */
#include "train/pretrain.h"

#define SOURCES_HELP                                                                                                   \
    DATA_HELP                                                                                                          \
    "; or named sources, {NAME: {data: .., share: 3, epochs: 2}, ..}: rows per step in proportion to `share`, or to "  \
    "`weight` * epoch size; both may be schedules"
#define ROW(member, ...) SETTING(struct pretrain_settings, member, __VA_ARGS__)
#define COMMON_ROWS(steps_default, elastic_default, rows_default, lr_default)                                          \
    ROW(data, "data", SOURCES, NULL, 0, 0, NULL, SOURCES_HELP),                                                        \
        ROW(continues, "continue", REFERENCE, "", 0, 0, NULL,                                                          \
            "stage to continue as one run, with its moments, random draws, step and data position, up to `steps` in "  \
            "total"),                                                                                                  \
        ROW(steps, "steps", INTEGER, steps_default, 1, 1e9, NULL, "optimizer steps"),                                  \
        TRAINING_ROWS(struct pretrain_settings, "200"),                                                                \
        BEST_ROWS(struct pretrain_settings, "heldout, or a held-out loss of metrics.jsonl such as heldout/chat/text"), \
        ROW(heldout, "heldout", REFERENCE, "", 0, 0, NULL,                                                             \
            "shards for held-out losses (validation split); none: those of `data`, unless streamed"),                  \
        ROW(heldout_rows, "heldout_rows", INTEGER, "64", 0, 1e9, NULL, "rows per held-out measurement; 0: all"),       \
        ROW(routing_steps, "routing_steps", INTEGER, "0", 0, 1e9, NULL,                                                \
            "steps between measurements of the router: load, unused experts and entropy by layer and stream, and the " \
            "overlap of streams; 0: never"),                                                                           \
        ROW(heldout_steps, "heldout_steps", INTEGER, "0", 0, 1e9, NULL,                                                \
            "steps between held-out losses of a few rows; 0: only before and after training"),                         \
        ROW(grid_steps, "grid_steps", INTEGER, "0", 0, 1e9, NULL,                                                      \
            "steps between held-out losses of a few sub-models; 0: never"),                                            \
        ROW(heldout_steps_rows, "heldout_steps_rows", INTEGER, "8", 1, 1e6, NULL,                                      \
            "rows of heldout_steps and grid_steps, shared out evenly among the kinds of samples, at least one of "     \
            "each"),                                                                                                   \
        ROW(recompute, "recompute", BOOL, "false", 0, 0, NULL, "activation checkpointing: keep only layer inputs"),    \
        ROW(elastic_on, "elastic.on", BOOL, elastic_default, 0, 0, NULL, "sample sub-models during training"),         \
        ELASTIC_ROWS(struct pretrain_settings), LOADER_ROWS(struct pretrain_settings, rows_default, "512"),            \
        OPTIMIZER_ROWS(struct pretrain_settings, lr_default, "0.95", "0.05"),                                          \
        ROW(bias_speed, "bias_speed", SCHEDULE, "1e-3", 0, 1, NULL, "update rate of the router's balancing bias"),     \
        LOSS_ROWS(struct pretrain_settings),                                                                           \
        ROW(posterior, "loss.posterior", BOOL, "true", 0, 0, NULL,                                                     \
            "rescale each loss kind to the running mean of the text loss")

const struct setting pretrain_table[] = {
    COMMON_ROWS("1000", "true", "16", "2e-3"),
    ROW(from, "from", REFERENCE, "", 0, 0, NULL,
        "initial model; optimizer moments and random draws start anew; its sizes override model.*"),
    ROW(model.width, "model.width", INTEGER, "192", 8, 1e6, NULL, "model width, C"),
    ROW(model.layers, "model.layers", INTEGER, "8", 1, LAYERS_MOST, NULL, "layers, L"),
    ROW(model.heads, "model.heads", INTEGER, "6", 1, 1024, NULL, "query heads, H"),
    ROW(model.kv_heads, "model.kv_heads", INTEGER, "2", 1, 1024, NULL, "key-value heads, G"),
    ROW(model.head_width, "model.head_width", INTEGER, "32", 2, 1024, NULL, "head width, D"),
    ROW(model.first_moe_layer, "model.dense_layers", INTEGER, "0", 0, LAYERS_MOST, NULL,
        "dense layers (without experts) at the bottom"),
    ROW(model.dense_width, "model.dense_width", INTEGER, "512", 1, 1e6, NULL, "feed-forward width of dense layers"),
    ROW(model.experts, "model.experts", INTEGER, "16", 1, 65536, NULL, "experts per layer, E"),
    ROW(model.topk, "model.topk", INTEGER, "2", 1, 1024, NULL, "experts per token, K"),
    ROW(model.expert_width, "model.expert_width", INTEGER, "128", 1, 1e6, NULL, "feed-forward width of an expert, F"),
    ROW(model.shared_experts, "model.shared_experts", INTEGER, "0", 0, 64, NULL, "always-active experts"),
    ROW(model.norm_min, "model.norm_min", NUMBER, "1e-12", 0, 1, NULL,
        "lower bound of the top-k probability sum that normalizes expert weights; 1: no normalization, which a top-1 "
        "router needs to learn (not in GGUF)"),
    ROW(model.tied, "model.tied", BOOL, "true", 0, 0, NULL, "tied embedding and text head"),
    ROW(model.mtp, "model.mtp", BOOL, "true", 0, 0, NULL, "one multi-token-prediction block"),
    ROW(model.rope_theta, "model.rope_theta", NUMBER, "1000000", 1, 1e12, NULL, "RoPE base"),
    ROW(model.init_std, "model.init_std", NUMBER, "0.02", 0, 10, NULL, "standard deviation of the initial weights"),
    ROW(model.zero_init, "model.zero_init", BOOL, "false", 0, 0, NULL,
        "zero-initialize attention and feed-forward output, so that layers start as identity"),
    ROW(audio_layers, "model.audio_layers", INTEGERS, "", 0, LAYERS_MOST - 1, NULL,
        "layer whose output predicts each level of audio codes, ascending, e.g. [3, 5, 7, 7]; none: the last ones"),
    ROW(model.vit_layers, "model.vit_layers", INTEGER, "2", 0, VIT_LAYERS_MOST, NULL, "vision encoder layers"),
    ROW(model.vit_width, "model.vit_width", INTEGER, "96", 2, 1e5, NULL, "vision encoder width"),
    ROW(model.vit_heads, "model.vit_heads", INTEGER, "3", 1, 1024, NULL, "vision encoder heads"),
    {0}};

const struct setting sft_table[] = {
    COMMON_ROWS("200", "false", "16", "5e-4"),
    ROW(from, "from", REFERENCE, "", 0, 0, NULL,
        "initial model; optimizer moments and random draws start anew; or use continue"),
    {0}};
