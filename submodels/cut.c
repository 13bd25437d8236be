/* Writes a sub-model as a model of its own. */
#include "submodels/submodels.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static i64 source_expert(const i32 *ids, i64 i)
{
    return ids ? ids[i] : i;
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

/* ---- Kept values ---- */

struct cut { /* context of a reader of the weights of a sub-model's own table */
    struct model *from;
    const struct submodel *sub;
};

/* Elements that are kept or dropped together: a matrix, a row or a column of an expert, or all. */
static i64 block_of(const struct weight_spec *spec)
{
    switch (spec->elastic) {
    case ELASTIC_EXPERT_MATRICES:
        return spec->rows * spec->columns;
    case ELASTIC_EXPERT_ROWS:
        return spec->columns;
    case ELASTIC_EXPERT_COLUMNS:
        return 1;
    default:
        return spec->matrices * spec->rows * spec->columns;
    }
}

static void read_kept(const struct weights_reader *reader, void *out, const struct weight *w, enum weight_state state,
                      i64 first, i64 count)
{
    const struct cut *cut = reader->context;
    i64 layer, block = block_of(&w->spec), bytes = dtype_bytes(w->value.dtype);
    const struct weight *source = source_of(cut->from, w, cut->sub, &layer);
    const i32 *experts = layer < 0 || w->spec.elastic == ELASTIC_NONE ? NULL : cut->sub->expert[layer];
    require(state == STATE_COPY && source->value.dtype == w->value.dtype, "%s: a cut copies what is stored",
            w->spec.name);
    for (i64 done = 0, n; done < count; done += n) {
        i64 at = first + done, skip = at % block;
        n = min_i64(count - done, block - skip);
        device_get(cut->from->device, (char *)out + done * bytes,
                   (const char *)source->value.data + (source_expert(experts, at / block) * block + skip) * bytes,
                   n * bytes);
    }
}

/* Those of the kept experts (memory_free), of [L, E] numbers of all. `layers`: and those of the kept
 * layers, of [L] behind them. */
static double *kept_numbers(const double *all, const struct model_config *whole, const struct submodel *sub,
                            bool layers)
{
    struct model_config c = submodel_config(sub, whole);
    i64 experts = model_use_count(&c), count = layers ? model_order_count(&c) : experts;
    double *kept = memory_alloc(count * (i64)sizeof *kept);
    memset(kept, 0, (size_t)count * sizeof *kept);
    for (i64 i = 0; i < sub->layer_count && layers; i++)
        kept[experts + i] = model_order_layers(all, whole)[sub->layer[i]];
    for (i64 i = 0; i < sub->layer_count; i++)
        for (i64 e = 0; e < c.experts; e++)
            kept[i * c.experts + e] =
                all[sub->layer[i] * whole->experts + source_expert(sub->expert[sub->layer[i]], e)];
    return kept;
}

int submodel_save(const char *directory, struct model *from, const struct submodel *sub)
{
    struct model_config config = submodel_config(sub, &from->config);
    struct cut cut = {from, sub};
    struct device meta;
    struct model table; /* names and shapes alone */
    device_open_meta(&meta);
    meta.has_bf16 = from->device->has_bf16;
    int status = model_open(&table, &meta, &config, from->weights.dtype, false, NULL);
    if (status == 0) {
        double *all = memory_alloc(model_use_count(&from->config) * (i64)sizeof *all);
        model_use_get(all, from);
        double *use = kept_numbers(all, &from->config, sub, false);
        double *order = from->order ? kept_numbers(from->order, &from->config, sub, true) : NULL;
        const struct expert_numbers numbers = {use, order};
        struct weights_reader reader = {read_kept, &table.weights, &cut};
        status = model_save_read(&table, directory, &reader, &numbers);
        memory_free(all);
        memory_free(use);
        memory_free(order);
        model_close(&table);
    }
    device_close(&meta);
    return status;
}
