/* The numbers of a model, one row each. The rows become members of struct model_config (model.h), the
 * table model_numbers (family.h), settings of a recipe (train/pretrain_settings.c) and what
 * `weft inspect` shows. Their keys in config.json and GGUF are a family's (families/).
 *
 * ROW(type, member, least, most, shown, name, default, low, high, help)
 *   type               INTEGER, NUMBER (not below 0), BOOL, or IDS: the first of several ids
 *   least, most        bounds in a config.json; both 0: none. Products of sizes stay far below 2^63
 *   shown              by `weft inspect`
 *   name               of the setting "model.NAME", and in `weft inspect`; NULL: no setting
 *   default, .., help  of the setting (core/settings.h) */
#ifndef WEFT_MODEL_NUMBERS_H
#define WEFT_MODEL_NUMBERS_H

enum { LAYERS_MOST = 256, LEVELS_MOST = 32, VIT_LAYERS_MOST = 8, MORE_ENDS_MOST = 7 };

/* clang-format off */
#define MODEL_BACKBONE_NUMBERS(ROW) \
    ROW(INTEGER, width, 1, 1 << 20, true, "width", "192", 8, 1e6, "model width, C") \
    ROW(INTEGER, layers, 1, LAYERS_MOST, true, "layers", "8", 1, LAYERS_MOST, "layers, L") \
    ROW(INTEGER, heads, 1, 1 << 16, true, "heads", "6", 1, 1024, "query heads, H") \
    ROW(INTEGER, kv_heads, 1, 1 << 16, true, "kv_heads", "2", 1, 1024, "key-value heads, G") \
    ROW(INTEGER, head_width, 1, 1 << 16, true, "head_width", "32", 2, 1024, "head width, D") \
    ROW(INTEGER, first_moe_layer, 0, LAYERS_MOST, true, "dense_layers", "0", 0, LAYERS_MOST, \
        "dense layers (without experts) at the bottom") \
    ROW(INTEGER, dense_width, 0, 1 << 20, false, "dense_width", "512", 1, 1e6, "feed-forward width of dense layers") \
    ROW(INTEGER, experts, 0, 1 << 16, true, "experts", "16", 1, 65536, "experts per layer, E") \
    ROW(INTEGER, topk, 0, 1 << 16, true, "topk", "2", 1, 1024, "experts per token, K") \
    ROW(INTEGER, expert_width, 0, 1 << 20, true, "expert_width", "128", 1, 1e6, "feed-forward width of an expert, F") \
    ROW(INTEGER, shared_experts, 0, 1 << 10, true, "shared_experts", "0", 0, 64, "always-active experts") \
    ROW(NUMBER, norm_min, 0, 0, false, "norm_min", "1e-12", 0, 1, \
        "lower bound of the top-k probability sum that normalizes expert weights; 1: no normalization, which a " \
        "top-1 router needs to learn (not in GGUF)") \
    ROW(NUMBER, topk_power, 0, 0, false, "topk_power", "0", 0, 8, \
        "a token with k of the K experts of top-k weighs their sum by (k/K)^topk_power; 0: by 1 (not in GGUF)") \
    ROW(BOOL, tied, 0, 0, true, "tied", "true", 0, 0, "tied embedding and text head") \
    ROW(BOOL, mtp, 0, 0, true, "mtp", "true", 0, 0, "one multi-token-prediction block") \
    ROW(NUMBER, rope_theta, 0, 0, false, "rope_theta", "1000000", 1, 1e12, "RoPE base") \
    ROW(NUMBER, init_std, 0, 0, false, "init_std", "0.02", 0, 10, "standard deviation of the initial weights") \
    ROW(BOOL, zero_init, 0, 0, false, "zero_init", "false", 0, 0, \
        "zero-initialize attention and feed-forward output, so that layers start as identity")
#define MODEL_VISION_NUMBERS(ROW) \
    ROW(INTEGER, vit_layers, 0, VIT_LAYERS_MOST, false, "vit_layers", "2", 0, VIT_LAYERS_MOST, "vision encoder layers") \
    ROW(INTEGER, vit_width, 0, 1 << 20, false, "vit_width", "96", 2, 1e5, "vision encoder width") \
    ROW(INTEGER, vit_heads, 0, 1 << 16, false, "vit_heads", "3", 1, 1024, "vision encoder heads")
#define MODEL_NUMBERS_WITHOUT_SETTING(ROW) \
    ROW(NUMBER, norm_eps, 0, 0, false, NULL) \
    ROW(INTEGER, max_positions, 0, 0, false, NULL) \
    ROW(INTEGER, pad_id, 0, 0, false, NULL) \
    ROW(INTEGER, bos_id, 0, 0, false, NULL) \
    ROW(IDS, eos_id, 0, 0, false, NULL) \
    /* feed-forward width of the MTP block; 0 until a model is opened, which sets dense_width or, if \
     * that is 0, topk * expert_width */ \
    ROW(INTEGER, mtp_width, 0, 1 << 20, false, NULL) \
    /* a second selection bias, for subsets of experts (setting balance: width) */ \
    ROW(BOOL, reduced_bias, 0, 0, false, NULL) \
    /* factor of the sum of the experts at the model's own top-k; 0: 1. A model that is cut out of one with a
     * topk_power keeps what its top-k had there */ \
    ROW(NUMBER, routed_scale, 0, 0, false, NULL) \
    /* number of earlier latent frames that a frame of a clip attends to; 0: all */ \
    ROW(INTEGER, window, 0, 1 << 20, false, NULL) \
    /* rotary pairs per head that encode time: floor(D/2 * 20/64) */ \
    ROW(INTEGER, t_pairs, 0, 1 << 16, false, NULL)
#define MODEL_NUMBERS(ROW) MODEL_BACKBONE_NUMBERS(ROW) MODEL_VISION_NUMBERS(ROW) MODEL_NUMBERS_WITHOUT_SETTING(ROW)
/* clang-format on */

#define MODEL_TYPE_INTEGER i64
#define MODEL_TYPE_NUMBER double
#define MODEL_TYPE_BOOL bool
#define MODEL_TYPE_IDS i64

#endif
