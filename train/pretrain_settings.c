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
        ROW(deal, "deal", CHOICE, "even", 0, 0, "even|speed",                                                          \
            "micro-batches of a step that each data rank takes: as many as the others, or by its measured speed; "     \
            "may change while the stage trains"),                                                                      \
        SITES_ROWS(struct pretrain_settings),                                                                          \
        ROW(recompute, "recompute", BOOL, "false", 0, 0, NULL, "activation checkpointing: keep only layer inputs"),    \
        ROW(elastic_on, "elastic.on", BOOL, elastic_default, 0, 0, NULL, "sample sub-models during training"),         \
        ELASTIC_ROWS(struct pretrain_settings), LOADER_ROWS(struct pretrain_settings, rows_default, "512"),            \
        OPTIMIZER_ROWS(struct pretrain_settings, lr_default, "0.95", "0.05"),                                          \
        ROW(bias_speed, "bias_speed", SCHEDULE, "1e-3", 0, 1, NULL, "update rate of the router's balancing bias"),     \
        LOSS_ROWS(struct pretrain_settings),                                                                           \
        ROW(posterior, "loss.posterior", BOOL, "true", 0, 0, NULL,                                                     \
            "rescale each loss kind to the running mean of the text loss")

#define MODEL_ROW(type, member, least, most, shown, name, fallback, low, high, help)                                   \
    ROW(model.member, "model." name, type, fallback, low, high, NULL, help),

const struct setting pretrain_table[] = {
    COMMON_ROWS("1000", "true", "16", "2e-3"),
    ROW(from, "from", REFERENCE, "", 0, 0, NULL,
        "initial model; optimizer moments and random draws start anew; its sizes override model.*"),
    MODEL_BACKBONE_NUMBERS(MODEL_ROW)
        ROW(audio_layers, "model.audio_layers", INTEGERS, "", 0, LAYERS_MOST - 1, NULL,
            "layer whose output predicts each level of audio codes, ascending, e.g. [3, 5, 7, 7]; none: the last ones"),
    MODEL_VISION_NUMBERS(MODEL_ROW){0}};

const struct setting sft_table[] = {
    COMMON_ROWS("200", "false", "16", "5e-4"),
    ROW(from, "from", REFERENCE, "", 0, 0, NULL,
        "initial model; optimizer moments and random draws start anew; or use continue"),
    {0}};
