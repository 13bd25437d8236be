#include "submodels/submodels.h"

#include "submodels/proof.h"
#include "kernels/device/dry_run.h"
#include "tokenizers/text/text.h"

#include <math.h>
#include <string.h>

const struct setting export_table[] = {
    SETTING(struct export_settings, from, "from", REFERENCE, NULL, 0, 0, NULL, "model to export"),
    SETTING(struct export_settings, to, "to", CHOICE, "both", 0, 0, "hf|gguf|both", "output format"),
    SETTING(struct export_settings, dtype, "dtype", CHOICE, "stored", 0, 0, "stored|f32|bf16",
            "data type of the weights"),
    {0}};

enum dtype export_dtype(int choice)
{
    static const enum dtype dtypes[] = {DTYPE_OTHER, DTYPE_F32, DTYPE_BF16};
    return dtypes[choice];
}

enum { PROBE_ROWS = 2, PROBE_LENGTH = 32, PROBE = PROBE_ROWS * PROBE_LENGTH };

/* Ids, and their logits by the model before the export: random ids, then text of the model's shards. */
struct probe {
    i32 ids[2][PROBE];
    float *logits[2];
    int count;
    double most, off; /* largest logit, and difference of the export's */
};
struct probe_run {
    struct probe *probe;
    struct device *device;
    float *logits; /* the next of `probe` */
};

static void take_logits(void *context, enum target_kind kind, i64 level, const struct tensor *logits)
{
    struct probe_run *r = context;
    i64 count = logits->rows * logits->columns;
    (void)level;
    if (kind != TARGET_TEXT)
        return;
    device_get(r->device, r->logits, logits->data, count * 4);
    r->logits += count;
}

static void compare_logits(void *context, enum target_kind kind, i64 level, const struct tensor *logits)
{
    enum { PIECE = 1 << 16 };
    struct probe_run *r = context;
    i64 all = kind == TARGET_TEXT ? logits->rows * logits->columns : 0;
    float *piece = memory_alloc(PIECE * 4);
    (void)level;
    for (i64 at = 0; at < all; at += PIECE) {
        i64 count = min_i64(PIECE, all - at);
        device_get(r->device, piece, (const float *)logits->data + at, count * 4);
        for (i64 i = 0; i < count; i++) {
            double a = *r->logits++, difference = fabs(a - piece[i]);
            r->probe->most = fmax(r->probe->most, fabs(a));
            r->probe->off = isnan(difference) ? INFINITY : fmax(r->probe->off, difference);
        }
    }
    memory_free(piece);
}

static void run_probe(struct probe *p, int k, struct model *model, bool compares)
{
    struct arena arena;
    struct tape tape;
    struct batch batch;
    struct submodel full;
    struct forward out;
    struct probe_run run = {p, model->device, p->logits[k]};
    const struct forward_options options = {.see_logits = compares ? compare_logits : take_logits,
                                            .logits_context = &run};
    arena_open(&arena, 16 << 20);
    tape_open(&tape, model->device, model->weights.dtype, (i64)4 << 30);
    tape_clear(&tape, false);
    batch_of_ids(&batch, &arena, p->ids[k], PROBE_ROWS, PROBE_LENGTH, true);
    submodel_full(&full, &model->config);
    model_forward(&out, &tape, model, &batch, &full, &options);
    tape_close(&tape);
    arena_close(&arena);
}

static void probe_open(struct probe *p, struct model *model, const char *from)
{
    *p = (struct probe){.count = 1};
    for (u32 i = 0; i < PROBE; i++)
        p->ids[0][i] = (i32)rng_below((struct rng_key){11, RNG_TEST}, model->config.vocabulary, i, 0, 0, 0);
    p->count += proof_ids(p->ids[1], PROBE, model, from);
    for (int k = 0; k < p->count; k++) {
        p->logits[k] = memory_alloc(PROBE * model->config.vocabulary * 4);
        run_probe(p, k, model, false);
    }
}

static void probe_close(struct probe *p)
{
    for (int i = 0; i < p->count; i++)
        memory_free(p->logits[i]);
}

/* Compares with the logits of the export, which has the head of text alone. With the same dtype they
 * must be bitwise equal; for a narrower one the difference is logged. */
static int compare_reloaded(struct probe *p, struct device *device, const char *folder, enum dtype dtype, bool exact)
{
    struct model again;
    if (model_load(&again, device, folder, dtype, false))
        return -1;
    for (int k = 0; k < p->count; k++)
        run_probe(p, k, &again, true);
    double most = p->most, off = p->off;
    log_info("reloaded: logits differ by %.1e of the largest, on random ids%s", most > 0 ? off / most : 0,
             p->count > 1 ? " and on text of the model's shards" : "");
    model_close(&again);
    return (exact && off > 0) || !isfinite(off) ? error_set("%s: logits after reloading differ", folder) : 0;
}

static int copy_tokenizer(const char *from, const char *to)
{
    char *path = text_tokenizer_file(from);
    int status = 0;
    if (path) {
        struct text_tokenizer *t = text_tokenizer_load(from);
        status = t ? text_tokenizer_save(t, to) : -1;
        if (t)
            text_tokenizer_free(t);
    }
    memory_free(path);
    return status;
}

/* The sub-model in a folder beside `beside`, until it is loaded. Closes `whole`. */
static int cut_out(struct model *out, struct model *whole, const struct submodel *sub, const char *directory,
                   const char *beside)
{
    struct buffer on = {0};
    char *folder = directory_make_temporary(beside), *message = NULL;
    int status = -1;
    if (folder)
        status = proof_extract(out, &on, whole, sub, directory, folder);
    else
        model_close(whole);
    if (status)
        message = string_copy(error_text());
    if (folder && directory_remove(folder) && status == 0) {
        model_close(out);
        status = -1;
    }
    if (message)
        error_set("%s", message);
    memory_free(message);
    memory_free(folder);
    buffer_release(&on);
    return status;
}

static bool selects(const struct submodel_options *options)
{
    return options && (options->layers || options->experts || options->topk);
}

/* The model, or the sub-model that the options select as one of its own. */
static int load_cut(struct model *out, const char *directory, const struct submodel_options *options, enum dtype dtype,
                    struct device *device, const char *beside)
{
    struct model whole;
    struct submodel sub;
    struct arena arena;
    if (!selects(options))
        return model_load(out, device, directory, dtype, false);
    if (model_load(&whole, device, directory, dtype, false))
        return -1;
    arena_open(&arena, 64 << 20);
    int status = submodel_parse(&sub, &arena, options, &whole);
    if (status)
        model_close(&whole);
    else
        status = cut_out(out, &whole, &sub, directory, beside);
    arena_close(&arena);
    return status;
}

/* ---- Memory estimate ---- */

struct export_work {
    const char *directory;
    const struct submodel_options *options; /* NULL: the model as a whole */
    enum dtype dtype;
    bool probes; /* logits are compared before and after */
};

static int run(struct memory_estimate *out, struct device *meta, void *context)
{
    const struct export_work *w = context;
    struct model model;
    struct probe probe;
    (void)out;
    if (model_load(&model, meta, w->directory, w->dtype, false))
        return -1;
    int status = w->options ? proof_dry_run(&model, w->options, w->directory) : 0;
    if (status == 0 && w->probes) {
        probe_open(&probe, &model, w->directory);
        probe_close(&probe);
    }
    model_close(&model);
    return status;
}

static int check_memory(const char *directory, const struct submodel_options *options, enum dtype dtype, bool probes,
                        const struct device *device)
{
    struct export_work w = {directory, selects(options) ? options : NULL, dtype, probes};
    const struct dry_run check = {directory, run, &w, .otherwise = SMALLER_MODEL};
    return dry_run_check(&check, device);
}

/* The model is closed before its export is opened. Both compute in f32 unless both are stored in bf16:
 * then as stored, which takes half the memory. */
static int load_and_write_hf(const char *directory, const struct submodel_options *options, const char *folder,
                             enum dtype dtype, struct device *device)
{
    struct model model;
    struct probe probe = {.count = 0};
    enum dtype stored = model_stored_dtype(directory);
    dtype = dtype == DTYPE_OTHER ? stored : dtype;
    enum dtype computed = dtype == DTYPE_BF16 && stored == DTYPE_BF16 ? DTYPE_OTHER : DTYPE_F32;
    if (check_memory(directory, options, computed, true, device) ||
        load_cut(&model, directory, options, computed, device, folder))
        return -1;
    probe_open(&probe, &model, directory);
    bool folds = model.config.routed_scale > 0;
    model_fold_scale(&model);
    int status =
        directory_make(folder) || model_save_hf(&model, folder, dtype) || copy_tokenizer(directory, folder) ? -1 : 0;
    model_close(&model);
    if (status == 0)
        status =
            compare_reloaded(&probe, device, folder, computed, !folds && (dtype == DTYPE_F32 || stored == DTYPE_BF16));
    probe_close(&probe);
    return status;
}

int export_hf(const char *directory, const struct submodel_options *options, const char *out, enum dtype dtype,
              struct device *device)
{
    char *temporary = file_check_new(out) ? NULL : directory_make_beside(out);
    if (!temporary)
        return -1;
    int status = load_and_write_hf(directory, options, temporary, dtype, device);
    if (status == 0)
        status = directory_rename_new(temporary, out);
    if (status) {
        char *message = string_copy(error_text());
        directory_remove(temporary);
        error_set("%s", message);
        memory_free(message);
    }
    memory_free(temporary);
    return status;
}

/* model_save_gguf reads the file back and compares every value. */
static int write_gguf(const struct model *model, const char *from, const char *out, enum dtype dtype)
{
    struct text_tokenizer *tokenizer = NULL;
    char *path = text_tokenizer_file(from);
    int status = 0;
    if (!path)
        log_warn("%s has no tokenizer.json: the file will hold ids without a vocabulary", from);
    else if (!(tokenizer = text_tokenizer_load(from)))
        status = -1;
    bool vocabulary = tokenizer && text_is_byte_level(tokenizer);
    if (tokenizer && !vocabulary)
        log_warn("%s: GGUF holds byte-level BPE, not this tokenizer: the file will hold ids without a vocabulary",
                 path);
    if (status == 0)
        status = model_save_gguf(model, vocabulary ? tokenizer : NULL, out, dtype);
    if (status == 0)
        log_info("verified: all weights read back equal");
    if (tokenizer)
        text_tokenizer_free(tokenizer);
    memory_free(path);
    return status;
}

int export_gguf(const char *directory, const struct submodel_options *options, const char *out, enum dtype dtype,
                struct device *device)
{
    struct model model;
    if (file_check_new(out) || check_memory(directory, options, DTYPE_OTHER, false, device) ||
        load_cut(&model, directory, options, DTYPE_OTHER, device, out))
        return -1;
    model_fold_scale(&model);
    int status = write_gguf(&model, directory, out, dtype == DTYPE_OTHER ? model_stored_dtype(directory) : dtype);
    model_close(&model);
    return status;
}

int export_stage(const void *settings, const struct stage *stage)
{
    const struct export_settings *s = settings;
    enum dtype dtype = export_dtype(s->dtype);
    char *hf = path_join(stage->out, "hf"), *gguf = path_join(stage->out, "model.gguf");
    int status = directory_remove(hf); /* left by an interrupted earlier call */
    if (status == 0 && s->to != 1)
        status = export_hf(s->from, NULL, hf, dtype, stage->device);
    if (status == 0 && file_exists(gguf))
        status = directory_remove(gguf);
    if (status == 0 && s->to != 0)
        status = export_gguf(s->from, NULL, gguf, dtype, stage->device);
    memory_free(hf);
    memory_free(gguf);
    return status;
}
