/* Config of the quickstart's backbone, for benchmarks and tests of its size. */
#ifndef WEFT_BENCH_QUICKSTART_H
#define WEFT_BENCH_QUICKSTART_H
#include "model/model.h"

/* Stage `base` of recipes/quickstart.yaml with its tokenizers'
 * sizes, plus multi-token prediction. */
static const struct model_config quickstart = {.vocabulary = 4096,
                                               .width = 192,
                                               .layers = 8,
                                               .heads = 6,
                                               .kv_heads = 2,
                                               .head_width = 32,
                                               .dense_width = 512,
                                               .experts = 16,
                                               .topk = 2,
                                               .expert_width = 160,
                                               .tied = true,
                                               .mtp = true,
                                               .rope_theta = 1e4,
                                               .norm_eps = 1e-5,
                                               .norm_min = 1e-12,
                                               .init_std = 0.06,
                                               .max_positions = 131072,
                                               .t_pairs = 5,
                                               .zero_init = true,
                                               .bits = 32,
                                               .scales = 5,
                                               .cell_features = 128,
                                               .patch_values = 3072,
                                               .vit_layers = 2,
                                               .vit_width = 96,
                                               .vit_heads = 3,
                                               .levels = 4,
                                               .codes = 256};

#endif
