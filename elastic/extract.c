#include "elastic/elastic.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct model_config submodel_config(const struct submodel *sub, const struct model_config *config)
{
    struct model_config out = *config;
    out.layers = sub->layer_count;
    out.experts = sub->expert_count;
    out.topk = sub->topk;
    out.first_moe_layer = 0;
    out.reduced_bias &= sub->expert_count == config->experts;
    for (i64 i = 0; i < sub->layer_count; i++)
        out.first_moe_layer += sub->layer[i] < config->first_moe_layer;
    for (i64 level = 0; level < config->audio_layer_count; level++)
        for (i64 i = 0; i < sub->layer_count; i++)
            if (sub->layer[i] == config->audio_layer[level])
                out.audio_layer[level] = (i32)i;
    return out;
}

static i64 source_expert(const i32 *ids, i64 i)
{
    return ids ? ids[i] : i;
}

/* Copies the kept part of a weight: slices of stacked experts, rows or columns of the router, or
 * all. */
static void copy_weight(struct weights *weights, struct weight *to, const struct weights *source,
                        const struct weight *from, const i32 *experts, i64 count)
{
    i64 columns = from->columns, rows = from->matrices * from->rows;
    float *in = memory_alloc(rows * columns * 4), *out = memory_alloc(rows * columns * 4);
    weight_get(source, from, 0, rows, in);
    switch (from->spec.elastic) {
    case ELASTIC_EXPERT_MATRICES:
        for (i64 e = 0, block = from->rows * columns; e < count; e++)
            memcpy(out + e * block, in + source_expert(experts, e) * block, (size_t)block * 4);
        break;
    case ELASTIC_EXPERT_ROWS:
        for (i64 e = 0; e < count; e++)
            memcpy(out + e * columns, in + source_expert(experts, e) * columns, (size_t)columns * 4);
        break;
    case ELASTIC_EXPERT_COLUMNS:
        for (i64 e = 0; e < count; e++)
            out[e] = in[source_expert(experts, e)];
        break;
    case ELASTIC_NONE:
        memcpy(out, in, (size_t)(rows * columns) * 4);
        break;
    }
    weight_put(weights, to, 0, to->matrices * to->rows, out);
    memory_free(in);
    memory_free(out);
}

/* The source weight in `from` for a weight of `out`, and its layer there (*layer -1: in no
 * layer). */
static const struct weight *source_of(struct model *from, const struct weight *w, const struct submodel *sub,
                                      i64 *layer)
{
    char name[256];
    i64 kept;
    int used;
    *layer = -1;
    if (sscanf(w->spec.name, "layers.%" SCNd64 ".%n", &kept, &used) != 1)
        return weights_find(&from->weights, w->spec.name);
    *layer = sub->layer[kept];
    if (strcmp(w->spec.name + used, "bias") == 0 && from->config.reduced_bias &&
        sub->expert_count < from->config.experts) {
        snprintf(name, sizeof name, "layers.%lld.reduced_bias", (long long)*layer);
        return weights_find(&from->weights, name);
    }
    snprintf(name, sizeof name, "layers.%lld.%s", (long long)*layer, w->spec.name + used);
    return weights_find(&from->weights, name);
}

static void copy_weights(struct model *out, struct model *from, const struct submodel *sub)
{
    for (i64 i = 0; i < out->weights.count; i++) {
        struct weight *w = &out->weights.list[i];
        i64 layer;
        const struct weight *source = source_of(from, w, sub, &layer);
        copy_weight(&out->weights, w, &from->weights, source, layer < 0 ? NULL : sub->expert[layer],
                    out->config.experts);
    }
}

static void copy_use(struct model *out, const struct model *from, const struct submodel *sub)
{
    i64 experts = out->config.experts;
    double *in = memory_alloc(model_use_count(&from->config) * (i64)sizeof *in);
    double *use = memory_alloc(model_use_count(&out->config) * (i64)sizeof *use);
    model_use_get(in, from);
    for (i64 i = 0; i < sub->layer_count; i++)
        for (i64 e = 0; e < experts; e++)
            use[i * experts + e] =
                in[sub->layer[i] * from->config.experts + source_expert(sub->expert[sub->layer[i]], e)];
    model_use_put(out, use);
    memory_free(in);
    memory_free(use);
}

struct head_logits { /* host memory */
    void *data[TARGETS][LEVELS_MOST];
    i64 bytes[TARGETS][LEVELS_MOST];
};

static void get_logits(struct head_logits *out, struct model *model, const struct submodel *sub,
                       const struct batch *batch)
{
    struct tape tape;
    struct forward forward;
    tape_open(&tape, model->device, model->weights.dtype, (i64)64 << 30);
    tape_clear(&tape, false);
    model_forward(&forward, &tape, model, batch, sub, NULL);
    memset(out, 0, sizeof *out);
    for (int kind = 0; kind < TARGETS; kind++)
        for (int level = 0; level < LEVELS_MOST; level++) {
            const struct tensor *logits = forward.logits[kind][level];
            i64 bytes = logits ? logits->rows * logits->columns * dtype_bytes(logits->dtype) : 0;
            if (bytes == 0)
                continue;
            out->bytes[kind][level] = bytes;
            out->data[kind][level] = memory_alloc(bytes);
            device_get(model->device, out->data[kind][level], logits->data, bytes);
        }
    tape_close(&tape);
}

static void free_logits(struct head_logits *logits)
{
    for (int kind = 0; kind < TARGETS; kind++)
        for (int level = 0; level < LEVELS_MOST; level++)
            memory_free(logits->data[kind][level]);
}

static int compare_logits(unsigned *heads, const struct head_logits *a, const struct head_logits *b)
{
    for (int kind = 0; kind < TARGETS; kind++)
        for (int level = 0; level < LEVELS_MOST; level++) {
            i64 bytes = a->bytes[kind][level];
            if (bytes != b->bytes[kind][level] ||
                (bytes && memcmp(a->data[kind][level], b->data[kind][level], (size_t)bytes) != 0))
                return error_set(
                    "the extracted model's logits of %s, level %d, differ from the sub-model's: nothing was "
                    "written",
                    target_rows[kind].name, level);
            *heads |= bytes ? 1u << kind : 0;
        }
    return 0;
}

int elastic_compare(unsigned *heads, struct model *out, struct model *from, const struct submodel *sub,
                    const struct batch *batch)
{
    struct head_logits masked, extracted;
    struct submodel full;
    submodel_full(&full, &out->config);
    get_logits(&masked, from, sub, batch);
    get_logits(&extracted, out, &full, batch);
    int status = compare_logits(heads, &masked, &extracted);
    free_logits(&masked);
    free_logits(&extracted);
    return status;
}

static int check_equal(struct model *out, struct model *from, const struct submodel *sub)
{
    enum { ROWS = 2, LENGTH = 48 };
    i32 ids[ROWS * LENGTH];
    struct arena arena;
    struct batch batch;
    unsigned heads = 0;
    for (u32 i = 0; i < ROWS * LENGTH; i++)
        ids[i] = (i32)rng_below((struct rng_key){7, RNG_TEST}, from->config.vocabulary, i, 0, 0, 0);
    arena_open(&arena, 16 << 20);
    batch_of_ids(&batch, &arena, ids, ROWS, LENGTH, true);
    int status = elastic_compare(&heads, out, from, sub, &batch);
    arena_close(&arena);
    return status;
}

int elastic_extract(struct model *out, struct model *from, const struct submodel *sub)
{
    struct model_config config = submodel_config(sub, &from->config);
    if (model_open(out, from->device, &config, from->weights.dtype, false, NULL))
        return -1;
    copy_weights(out, from, sub);
    copy_use(out, from, sub);
    if (check_equal(out, from, sub) == 0)
        return 0;
    model_close(out);
    return -1;
}
