/* Settings of the stages pretrain and sft. */
#include "train/pretrain.h"

#define SOURCES_HELP                                                                                                   \
    DATA_HELP                                                                                                          \
    "; or sources by name, {NAME: {data: .., share: 3, epochs: 2}, ..}: rows of a step are dealt to them by "          \
    "`share`, or by `weight` times what an epoch of each has; both may change over steps"
#define ROW(member, ...) SETTING(struct pretrain_settings, member, __VA_ARGS__)
#define COMMON_ROWS(steps_default, elastic_default, rows_default, lr_default)                                          \
    ROW(data, "data", SOURCES, NULL, 0, 0, NULL, SOURCES_HELP),                                                        \
        ROW(continues, "continue", REFERENCE, "", 0, 0, NULL,                                                          \
            "stage to go on with as if both were one run: moments, draws, step and data too, up to `steps` in all"),   \
        ROW(steps, "steps", INTEGER, steps_default, 1, 1e9, NULL, "optimizer steps"),                                  \
        TRAINING_ROWS(struct pretrain_settings, "200"),                                                                \
        ROW(heldout, "heldout", REFERENCE, "", 0, 0, NULL,                                                             \
            "shards whose part validation held-out losses are of; none: those of `data`, where they all stand"),       \
        ROW(heldout_rows, "heldout_rows", INTEGER, "64", 0, 1e9, NULL, "rows of held-out measurements; 0: all"),       \
        ROW(grid_steps, "grid_steps", INTEGER, "0", 0, 1e9, NULL,                                                      \
            "steps between held-out losses of a grid of sub-models; 0: never"),                                        \
        ROW(recompute, "recompute", BOOL, "false", 0, 0, NULL, "keep only the layers' inputs for the backward"),       \
        ROW(elastic_on, "elastic.on", BOOL, elastic_default, 0, 0, NULL, "draw sub-models while training"),            \
        ELASTIC_ROWS(struct pretrain_settings), LOADER_ROWS(struct pretrain_settings, rows_default, "512"),            \
        OPTIMIZER_ROWS(struct pretrain_settings, lr_default, "0.95", "0.05"),                                          \
        ROW(bias_speed, "bias_speed", SCHEDULE, "1e-3", 0, 1, NULL, "step of the router's balancing bias"),            \
        ROW(text_weight, "loss.text", NUMBER, "1", 0, 1e6, NULL, "weight of next-id targets"),                         \
        ROW(mtp_weight, "loss.mtp", SCHEDULE, "0.3", 0, 1e6, NULL, "weight of multi-token prediction"),                \
        ROW(vision_weight, "loss.vision", NUMBER, "1", 0, 1e6, NULL, "weight of vision bits"),                         \
        ROW(audio_weight, "loss.audio", NUMBER, "1", 0, 1e6, NULL, "weight of audio codes"),                           \
        ROW(posterior, "loss.posterior", BOOL, "true", 0, 0, NULL,                                                     \
            "rescale target kinds by their running means to the interval of text's")

const struct setting pretrain_table[] = {
    COMMON_ROWS("1000", "true", "16", "2e-3"),
    ROW(from, "from", REFERENCE, "", 0, 0, NULL, "model to start from, with new moments and draws; its sizes hold"),
    ROW(model.width, "model.width", INTEGER, "192", 8, 1e6, NULL, "C"),
    ROW(model.layers, "model.layers", INTEGER, "8", 1, LAYERS_MOST, NULL, "L"),
    ROW(model.heads, "model.heads", INTEGER, "6", 1, 1024, NULL, "H"),
    ROW(model.kv_heads, "model.kv_heads", INTEGER, "2", 1, 1024, NULL, "G"),
    ROW(model.head_width, "model.head_width", INTEGER, "32", 2, 1024, NULL, "D"),
    ROW(model.first_moe_layer, "model.dense_layers", INTEGER, "0", 0, LAYERS_MOST, NULL,
        "layers without experts, at the bottom"),
    ROW(model.dense_width, "model.dense_width", INTEGER, "512", 1, 1e6, NULL, "feed-forward width of those"),
    ROW(model.experts, "model.experts", INTEGER, "16", 1, 65536, NULL, "E"),
    ROW(model.topk, "model.topk", INTEGER, "2", 1, 1024, NULL, "K"),
    ROW(model.expert_width, "model.expert_width", INTEGER, "128", 1, 1e6, NULL, "F"),
    ROW(model.shared_experts, "model.shared_experts", INTEGER, "0", 0, 64, NULL, "always active experts"),
    ROW(model.norm_min, "model.norm_min", NUMBER, "1e-12", 0, 1, NULL,
        "an expert weighs its probability over the chosen ones' sum, or over this if that is more; 1: the probability "
        "itself, by which a top-1 router learns (not in GGUF)"),
    ROW(model.tied, "model.tied", BOOL, "true", 0, 0, NULL, "one matrix for embedding and text head"),
    ROW(model.mtp, "model.mtp", BOOL, "true", 0, 0, NULL, "one multi-token-prediction block"),
    ROW(model.rope_theta, "model.rope_theta", NUMBER, "1000000", 1, 1e12, NULL, "base of rotary positions"),
    ROW(model.init_std, "model.init_std", NUMBER, "0.02", 0, 10, NULL, "standard deviation of initial weights"),
    ROW(model.zero_init, "model.zero_init", BOOL, "false", 0, 0, NULL,
        "what attention and feed-forwards add begins as zero, so each layer as the identity"),
    ROW(model.vit_layers, "model.vit_layers", INTEGER, "2", 0, VIT_LAYERS_MOST, NULL, "layers of the vision encoder"),
    ROW(model.vit_width, "model.vit_width", INTEGER, "96", 2, 1e5, NULL, "its width"),
    ROW(model.vit_heads, "model.vit_heads", INTEGER, "3", 1, 1024, NULL, "its heads"),
    {0}};

const struct setting sft_table[] = {
    COMMON_ROWS("200", "false", "16", "5e-4"),
    ROW(from, "from", REFERENCE, "", 0, 0, NULL, "model to start from, with new moments and draws; or see continue"),
    {0}};
