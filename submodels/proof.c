#include "submodels/proof.h"

#include "submodels/record.h"
#include "train/heldout.h"
#include "train/synthetic_batches.h"

#include <string.h>

enum { ROWS = 8, SHARD_ROWS = 4, SHARD_ROWS_MOST = 32, LENGTH = 512, LONGEST = 8192 };

/* ---- Logits ---- */

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

/* ---- The model's shards ---- */

/* The folder itself, the first of a list, or the first of named sources. */
static const char *first_folder(const struct json *data)
{
    struct json_iterator at;
    if (json_kind(data) == JSON_OBJECT)
        return json_first(&at, data) ? first_folder(json_get(at.value, "data")) : NULL;
    return json_kind(data) == JSON_ARRAY ? first_folder(json_at(data, 0)) : json_string(data, NULL);
}

static bool has_shards(const char *folder)
{
    char *path = path_join(folder, "shards.json"), *train = path_join(folder, "train");
    bool has = file_exists(path) && file_exists(train);
    memory_free(path);
    memory_free(train);
    return has;
}

char *proof_shards(const char *directory)
{
    struct record record;
    char *found = NULL;
    record_open(&record, directory);
    do {
        const char *data = first_folder(json_get(record.settings, "data"));
        found = data ? record_paths(&record, data) : NULL;
        if (found && !has_shards(found)) {
            memory_free(found);
            found = NULL;
        }
    } while (!found && record_before(&record));
    record_close(&record);
    return found;
}

/* ---- Heads ---- */

struct proof {
    struct model *model;
    const struct submodel *sub;
    struct proof_logits *logits;
    bool compares;  /* with logits, in their order; false: adds to them */
    i64 at;         /* of logits, while comparing */
    unsigned heads; /* targets whose logits were seen, 1 << kind */
    i64 rows;
    int status;
};

void proof_logits_release(struct proof_logits *logits)
{
    memory_free(logits->list);
    *logits = (struct proof_logits){0};
}

static int see(struct proof *p, const struct batch *batch)
{
    struct proof_logits *l = p->logits;
    struct logits_hash own;
    submodel_logits(&own, p->model, p->sub, batch);
    if (!p->compares) {
        l->list = memory_resize(l->list, l->count * (i64)sizeof own, (l->count + 1) * (i64)sizeof own);
        l->list[l->count++] = own;
        return submodel_logits_equal(&p->heads, &own, &own);
    }
    if (p->at == l->count)
        return error_set("samples were added while the models were compared: nothing was written");
    return submodel_logits_equal(&p->heads, &l->list[p->at++], &own);
}

static bool has_head(const struct model_config *c, enum target_kind kind)
{
    switch (kind) {
    case TARGET_MTP:
        return c->mtp;
    case TARGET_VISION:
        return c->bits > 0;
    case TARGET_AUDIO:
        return c->levels > 0;
    default:
        return true;
    }
}

static bool lacks_heads(const struct proof *p)
{
    for (int kind = 0; kind < TARGETS; kind++)
        if (has_head(&p->model->config, (enum target_kind)kind) && !(p->heads >> kind & 1))
            return true;
    return false;
}

/* Samples of every kind, in rows as long as it takes to have a target of every head. One row at a
 * time, since the logits of a row of a large vocabulary may outweigh a layer. */
static int compare_random(struct proof *p)
{
    int status = 0;
    for (i64 length = LENGTH / 8; status == 0 && length <= LONGEST && lacks_heads(p); length *= 2) {
        struct synthetic_batches random;
        synthetic_batches_init(&random, &p->model->config, ROWS, 1, length, 7);
        struct batch_source source = synthetic_batches_source(&random);
        for (i64 row = 0; row < ROWS && status == 0; row++) {
            struct arena arena;
            struct batch batch;
            arena_open(&arena, (i64)16 << 30);
            status = source.fill(source.context, 0, row, &batch, &arena);
            if (status == 0)
                status = see(p, &batch);
            arena_close(&arena);
        }
        synthetic_batches_release(&random);
    }
    return status;
}

static bool has_new_target(const struct proof *p, const struct batch *batch)
{
    for (int kind = 0; kind < TARGETS; kind++)
        if (batch->targets[kind].n && !(p->heads >> kind & 1) && has_head(&p->model->config, (enum target_kind)kind))
            return true;
    return false;
}

static void compare_rows(void *context, const struct batch *batch, const struct forward *forward, const i32 *routes)
{
    struct proof *p = context;
    (void)forward;
    (void)routes;
    if (p->status || (p->rows >= SHARD_ROWS && !has_new_target(p, batch)))
        return;
    p->rows += batch->rows;
    p->status = see(p, batch);
}

static void name_heads(struct buffer *out, unsigned heads)
{
    const char *between = "";
    for (int kind = 0; kind < TARGETS; kind++)
        if (heads >> kind & 1) {
            buffer_printf(out, "%s%s", between, target_rows[kind].name);
            between = ", ";
        }
}

/* Goes on to more rows for a head without a target so far. Shards that cannot be read any more are
 * no fault of the model. */
static int compare_shards(struct buffer *on, struct proof *p, const char *shards)
{
    struct heldout_pass pass = {.directory = shards,
                                .split = "train",
                                .length = LENGTH,
                                .most_rows = SHARD_ROWS,
                                .visit = compare_rows,
                                .context = p};
    p->heads = 0;
    int read = heldout_walk(&pass, p->model, p->sub);
    pass.most_rows = SHARD_ROWS_MOST;
    if (read == 0 && p->status == 0 && lacks_heads(p))
        read = heldout_walk(&pass, p->model, p->sub);
    if (p->status)
        return -1;
    if (read && p->compares && !interrupted())
        log_info("logits are not compared on all rows of %s: %s", shards, error_text());
    if (p->rows) {
        buffer_printf(on, "; on %lld %s of %s: ", (long long)p->rows, plural(p->rows, "row", "rows"), shards);
        name_heads(on, p->heads);
    }
    return 0;
}

static int see_all(struct buffer *on, struct proof *p, const char *directory)
{
    char *shards = proof_shards(directory);
    int status = compare_random(p);
    buffer_printf(on, "on random samples: ");
    name_heads(on, p->heads);
    if (status == 0 && shards)
        status = compare_shards(on, p, shards);
    memory_free(shards);
    return status;
}

int proof_logits_take(struct proof_logits *out, struct model *from, const struct submodel *sub, const char *directory)
{
    struct proof p = {.model = from, .sub = sub, .logits = out};
    struct buffer ignored = {0};
    *out = (struct proof_logits){0};
    int status = see_all(&ignored, &p, directory);
    buffer_release(&ignored);
    return status;
}

int proof_dry_run(struct model *meta, const struct submodel_options *options, const char *directory)
{
    struct arena arena;
    struct submodel sub;
    struct proof_logits logits = {0};
    arena_open(&arena, 64 << 20);
    int status = submodel_parse(&sub, &arena, options, meta);
    if (status == 0)
        status = proof_logits_take(&logits, meta, &sub, directory);
    proof_logits_release(&logits);
    arena_close(&arena);
    return status;
}

int proof_logits_compare(struct buffer *on, struct proof_logits *logits, struct model *out, const char *directory)
{
    struct submodel full;
    struct proof p = {.model = out, .sub = &full, .logits = logits, .compares = true};
    submodel_full(&full, &out->config);
    int status = see_all(on, &p, directory);
    if (status == 0 && p.at < logits->count)
        status = error_set("samples were removed while the models were compared: nothing was written");
    return status;
}

int proof_extract(struct model *out, struct buffer *on, struct model *from, const struct submodel *sub,
                  const char *directory, const char *folder)
{
    struct device *device = from->device;
    enum dtype dtype = from->weights.dtype;
    struct proof_logits masked;
    int status = proof_logits_take(&masked, from, sub, directory);
    if (status == 0)
        status = submodel_save(folder, from, sub);
    model_close(from);
    if (status == 0)
        status = model_load(out, device, folder, dtype, false);
    if (status == 0) {
        status = proof_logits_compare(on, &masked, out, directory);
        if (status)
            model_close(out);
    }
    proof_logits_release(&masked);
    return status;
}

/* ---- Ids ---- */

struct proof_text {
    i32 *ids;
    i64 count, filled;
};

static void take_ids(void *context, const struct batch *batch, const struct forward *forward, const i32 *routes)
{
    struct proof_text *t = context;
    const struct input_list *in = &batch->inputs[INPUT_TEXT];
    (void)forward;
    (void)routes;
    for (i64 i = 0; i < in->n && t->filled < t->count; i++)
        if (in->ids[i] >= 0)
            t->ids[t->filled++] = in->ids[i];
}

bool proof_ids(i32 *ids, i64 count, struct model *model, const char *directory)
{
    struct proof_text t = {ids, count, 0};
    struct submodel full;
    char *shards = proof_shards(directory);
    const struct heldout_pass pass = {.directory = shards,
                                      .split = "train",
                                      .length = LENGTH,
                                      .most_rows = SHARD_ROWS,
                                      .visit = take_ids,
                                      .context = &t};
    submodel_full(&full, &model->config);
    bool filled = shards && heldout_walk(&pass, model, &full) == 0 && t.filled > 0;
    for (i64 i = t.filled; filled && i < count; i++)
        ids[i] = ids[i % t.filled];
    memory_free(shards);
    return filled;
}
