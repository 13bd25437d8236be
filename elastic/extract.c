#include "elastic/elastic.h"

#include <string.h>

struct model_config submodel_config(const struct submodel *sub, const struct model_config *config)
{
    struct model_config out = *config;
    out.layers = sub->layer_count;
    out.experts = sub->expert_count;
    out.topk = sub->topk;
    out.first_moe_layer = 0;
    for (i64 i = 0; i < sub->layer_count; i++)
        out.first_moe_layer += sub->layer[i] < config->first_moe_layer;
    return out;
}

static i64 source_part(const i32 *ids, i64 i)
{
    return ids ? ids[i] : i;
}

/* Copies the masters of one weight, keeping what the elastic axis keeps. */
static void copy_weight(struct weight *to, const struct weight *from, const i32 *experts, i64 count)
{
    i64 columns = from->columns, block = from->rows * columns;
    switch (from->spec.elastic) {
    case ELASTIC_EXPERT_PARTS:
        for (i64 e = 0; e < count; e++)
            memcpy(to->master + e * block, from->master + source_part(experts, e) * block, (size_t)block * 4);
        break;
    case ELASTIC_EXPERT_ROWS:
        for (i64 e = 0; e < count; e++)
            memcpy(to->master + e * columns, from->master + source_part(experts, e) * columns, (size_t)columns * 4);
        break;
    case ELASTIC_EXPERT_COLUMNS:
        for (i64 e = 0; e < count; e++)
            to->master[e] = from->master[source_part(experts, e)];
        break;
    case ELASTIC_NONE:
        memcpy(to->master, from->master, (size_t)(from->parts * block) * 4);
        break;
    }
}

static void copy_layer(struct layer_weights *to, const struct layer_weights *from, const i32 *experts, i64 count)
{
    struct weight **out = (struct weight **)to;
    struct weight *const *in = (struct weight *const *)from;
    for (size_t i = 0; i < sizeof *to / sizeof *out; i++)
        if (in[i])
            copy_weight(out[i], in[i], experts, count);
}

/* Rows that belong to no layer keep their names. */
static void copy_others(struct model *out, struct model *from)
{
    for (i64 i = 0; i < from->weights.count; i++) {
        struct weight *w = &from->weights.list[i];
        if (strncmp(w->spec.name, "layers.", 7) != 0)
            copy_weight(weights_find(&out->weights, w->spec.name), w, NULL, 0);
    }
}

static void copy_use(struct model *out, const struct model *from, const struct submodel *sub)
{
    for (i64 i = 0; i < sub->layer_count; i++)
        for (i64 e = 0; e < out->config.experts; e++)
            out->use[i * out->config.experts + e] =
                from->use[sub->layer[i] * from->config.experts + source_part(sub->expert[sub->layer[i]], e)];
}

static void logits_of(float *out, struct model *model, const struct submodel *sub, const struct batch *batch)
{
    struct tape tape;
    struct forward forward;
    tape_open(&tape, model->device, model->weights.dtype, (i64)8 << 30);
    tape_clear(&tape, false);
    model_forward(&forward, &tape, model, batch, sub, NULL);
    memcpy(out, forward.logits[TARGET_TEXT][0]->data, (size_t)(batch->n * model->config.vocabulary) * 4);
    tape_close(&tape);
}

static int prove_equal(struct model *out, struct model *from, const struct submodel *sub)
{
    enum { ROWS = 2, LENGTH = 48 };
    i32 ids[ROWS * LENGTH];
    struct arena arena;
    struct batch batch;
    struct submodel full;
    i64 n = ROWS * LENGTH * from->config.vocabulary;
    float *masked = memory_alloc(n * 4), *extracted = memory_alloc(n * 4);
    for (u32 i = 0; i < ROWS * LENGTH; i++)
        ids[i] = (i32)rng_below((struct rng_key){7, RNG_TEST}, from->config.vocabulary, i, 0, 0, 0);
    arena_open(&arena, 16 << 20, false);
    batch_of_ids(&batch, &arena, ids, ROWS, LENGTH, true);
    submodel_full(&full, &out->config);
    logits_of(masked, from, sub, &batch);
    logits_of(extracted, out, &full, &batch);
    int status = memcmp(masked, extracted, (size_t)n * 4) == 0
                     ? 0
                     : error_set("the extracted model's logits differ from the sub-model's: nothing was kept");
    arena_close(&arena);
    memory_free(masked);
    memory_free(extracted);
    return status;
}

int elastic_extract(struct model *out, struct model *from, const struct submodel *sub)
{
    struct model_config config = submodel_config(sub, &from->config);
    if (model_open(out, from->device, &config, from->weights.dtype, false, NULL))
        return -1;
    for (i64 i = 0; i < sub->layer_count; i++)
        copy_layer(&out->layer[i], &from->layer[sub->layer[i]], sub->expert[sub->layer[i]], config.experts);
    copy_others(out, from);
    copy_use(out, from, sub);
    weights_refresh(&out->weights);
    if (prove_equal(out, from, sub) == 0)
        return 0;
    model_close(out);
    return -1;
}
