/* Writes a sub-model as a model of its own, and compares the logits of both. */
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

static double *kept_use(const struct model *from, const struct submodel *sub)
{
    struct model_config c = submodel_config(sub, &from->config);
    double *in = memory_alloc(model_use_count(&from->config) * (i64)sizeof *in);
    double *use = memory_alloc(model_use_count(&c) * (i64)sizeof *use);
    memset(use, 0, (size_t)model_use_count(&c) * sizeof *use);
    model_use_get(in, from);
    for (i64 i = 0; i < sub->layer_count; i++)
        for (i64 e = 0; e < c.experts; e++)
            use[i * c.experts + e] =
                in[sub->layer[i] * from->config.experts + source_expert(sub->expert[sub->layer[i]], e)];
    memory_free(in);
    return use;
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
        double *use = kept_use(from, sub);
        struct weights_reader reader = {read_kept, &table.weights, &cut};
        status = model_save_read(&table, directory, &reader, use);
        memory_free(use);
        model_close(&table);
    }
    device_close(&meta);
    return status;
}

/* ---- Proof ---- */

static u64 hash_device(struct device *device, const void *data, i64 bytes, u64 hash)
{
    enum { PIECE_BYTES = 1 << 20 };
    char *piece = memory_alloc(PIECE_BYTES);
    for (i64 at = 0; at < bytes; at += PIECE_BYTES) {
        i64 n = min_i64(PIECE_BYTES, bytes - at);
        device_get(device, piece, (const char *)data + at, n);
        hash = hash_bytes(piece, n, hash);
    }
    memory_free(piece);
    return hash;
}

struct seen_logits {
    struct logits_hash *out;
    struct device *device;
};

static void see_logits(void *context, enum target_kind kind, i64 level, const struct tensor *logits)
{
    struct seen_logits *s = context;
    i64 bytes = logits->rows * logits->columns * dtype_bytes(logits->dtype);
    u64 *hash = &s->out->hash[kind][level];
    *hash = hash_device(s->device, logits->data, bytes, *hash);
    s->out->bytes[kind][level] += bytes;
}

void submodel_logits(struct logits_hash *out, struct model *model, const struct submodel *sub,
                     const struct batch *batch)
{
    struct tape tape;
    struct forward forward;
    struct seen_logits seen = {out, model->device};
    const struct forward_options options = {.see_logits = see_logits, .logits_context = &seen};
    tape_open(&tape, model->device, model->weights.dtype, (i64)64 << 30);
    tape_clear(&tape, false);
    memset(out, 0, sizeof *out);
    model_forward(&forward, &tape, model, batch, sub, &options);
    tape_close(&tape);
}

int submodel_logits_equal(unsigned *heads, const struct logits_hash *a, const struct logits_hash *b)
{
    for (int kind = 0; kind < TARGETS; kind++)
        for (int level = 0; level < LEVELS_MOST; level++) {
            i64 bytes = a->bytes[kind][level];
            if (bytes != b->bytes[kind][level] || a->hash[kind][level] != b->hash[kind][level])
                return error_set(
                    "the extracted model's logits of %s, level %d, differ from the sub-model's: nothing was "
                    "written",
                    target_rows[kind].name, level);
            *heads |= bytes ? 1u << kind : 0;
        }
    return 0;
}

int submodel_compare(unsigned *heads, struct model *out, struct model *from, const struct submodel *sub,
                     const struct batch *batch)
{
    struct logits_hash masked, extracted;
    struct submodel full;
    submodel_full(&full, &out->config);
    submodel_logits(&masked, from, sub, batch);
    submodel_logits(&extracted, out, &full, batch);
    return submodel_logits_equal(heads, &masked, &extracted);
}
