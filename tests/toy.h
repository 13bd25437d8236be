/* The toy: a backbone small enough for plain loops and finite differences, with the mechanisms that
 * a test asks for, and helpers that read and write device memory. */
#ifndef WEFT_TESTS_TOY_H
#define WEFT_TESTS_TOY_H
#include "model/model.h"

#include <string.h>

/* Widths of media match tests/shard_fixture.h, so that its shards fit the toy. */
enum { TOY_VOCABULARY = 64, TOY_BITS = 6, TOY_FEATURES = 5, TOY_PATCH = 4 * 8 * 8 * 3, TOY_LEVELS = 2, TOY_CODES = 16 };
enum toy_part {
    TOY_DENSE = 1, /* first layer is dense, without experts */
    TOY_SHARED = 2,
    TOY_TIED = 4,
    TOY_MTP = 8,
    TOY_MADE = 16, /* image and video generation */
    TOY_SEEN = 32, /* image and video input */
    TOY_AUDIO = 64,
    TOY_MEDIA = TOY_MADE | TOY_SEEN | TOY_AUDIO,
    TOY_ALL = 127
};

/* Base configuration; tests override single fields (init_std, experts, ...). */
static inline struct model_config toy_config(i64 layers, unsigned parts)
{
    return (struct model_config){.vocabulary = TOY_VOCABULARY,
                                 .width = 32,
                                 .layers = layers,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_width = 8,
                                 .dense_width = 48,
                                 .experts = 8,
                                 .topk = 2,
                                 .expert_width = 16,
                                 .shared_experts = parts & TOY_SHARED ? 1 : 0,
                                 .first_moe_layer = parts & TOY_DENSE ? 1 : 0,
                                 .tied = parts & TOY_TIED,
                                 .rope_theta = 1e4,
                                 .norm_eps = 1e-5,
                                 .norm_min = 1e-12,
                                 .init_std = 0.3,
                                 .max_positions = 4096,
                                 .bits = parts & TOY_MADE ? TOY_BITS : 0,
                                 .scales = parts & TOY_MADE ? 5 : 0,
                                 .cell_features = parts & TOY_SEEN ? TOY_FEATURES : 0,
                                 .patch_values = parts & TOY_SEEN ? TOY_PATCH : 0,
                                 .vit_layers = parts & TOY_SEEN ? 1 : 0,
                                 .vit_width = parts & TOY_SEEN ? 16 : 0,
                                 .vit_heads = parts & TOY_SEEN ? 2 : 0,
                                 .levels = parts & TOY_AUDIO ? TOY_LEVELS : 0,
                                 .codes = parts & TOY_AUDIO ? TOY_CODES : 0,
                                 .mtp = parts & TOY_MTP,
                                 .t_pairs = 1};
}

/* Draws all weights. Norm weights, initialized to 1, are
 * redrawn in [0.5, 1.5], so that no two are equal. */
static inline void toy_init(struct model *model)
{
    weights_init(&model->weights, 3);
    for (i64 i = 0; i < model->weights.count; i++) {
        struct weight *w = &model->weights.list[i];
        if (w->spec.init != INIT_ONES)
            continue;
        float *values = memory_alloc(w->columns * 4);
        for (i64 c = 0; c < w->columns; c++)
            values[c] = 0.5f + (float)rng_uniform((struct rng_key){3, RNG_TEST}, (u32)i, (u32)c, 0, 0);
        weight_put(&model->weights, w, 0, 1, values);
        memory_free(values);
    }
}

/* Opens an f32 model on 1 rank. */
static inline void toy_open(struct model *model, struct device *device, const struct model_config *config,
                            bool training)
{
    require(model_open(model, device, config, DTYPE_F32, training, NULL) == 0, "%s", error_text());
    toy_init(model);
}

/* ---- The device's memory ---- */

static inline float *toy_floats(struct device *device, const float *data, i64 n) /* memory_free */
{
    float *out = memory_alloc(n * 4);
    device_get(device, out, data, n * 4);
    return out;
}

static inline float *toy_tensor(struct device *device, const struct tensor *t) /* [rows, columns], memory_free */
{
    require(t->dtype == DTYPE_F32, "a tensor of %s", dtype_name(t->dtype));
    return toy_floats(device, t->data, t->rows * t->columns);
}

static inline i64 weight_elements(const struct weight *w)
{
    return w->parts * w->rows * w->columns;
}

static inline float *toy_weight(struct device *device, const struct weight *w)
{
    return toy_tensor(device, &w->value);
}

static inline void toy_set_weight(struct weights *weights, struct weight *w, const float *values)
{
    weight_put(weights, w, 0, w->parts * w->rows, values);
}

/* True if the last backward wrote a gradient; `part` is the expert, 0 for other weights. */
static inline bool toy_has_gradient(struct device *device, const struct weight *w, i64 part)
{
    u8 written = 0;
    if (w->value.parts_written)
        device_get(device, &written, w->value.parts_written + part, 1);
    return w->value.grad_written || written;
}

/* memory_free; zeros if none was written */
static inline float *toy_gradient(struct device *device, const struct weight *w)
{
    i64 n = w->rows * w->columns;
    float *out = memory_alloc(w->parts * n * 4);
    for (i64 p = 0; p < w->parts; p++)
        if (toy_has_gradient(device, w, p))
            device_get(device, out + p * n, (const float *)w->value.grad + p * n, n * 4);
    return out;
}

static inline void toy_set_gradient(struct device *device, struct weight *w, const float *values)
{
    device_put(device, w->value.grad, values, weight_elements(w) * 4);
    w->value.grad_written = true;
}

#endif
