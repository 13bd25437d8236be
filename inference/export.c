#include "inference/inference.h"

#include "inference/proof.h"
#include "tokenizers/text/text.h"

#include <math.h>
#include <string.h>

const struct setting export_table[] = {
    SETTING(struct export_settings, from, "from", REFERENCE, NULL, 0, 0, NULL, "model to export"),
    SETTING(struct export_settings, to, "to", CHOICE, "both", 0, 0, "hf|gguf|both", "output format"),
    SETTING(struct export_settings, dtype, "dtype", CHOICE, "stored", 0, 0, "stored|f32|bf16",
            "data type of the weights"),
    {0}};

enum { PROBE_ROWS = 2, PROBE_LENGTH = 32, PROBE = PROBE_ROWS * PROBE_LENGTH };

/* Logits of the ids. Free with memory_free. */
static float *probe_logits(struct model *model, const i32 *ids, i64 *count)
{
    struct arena arena;
    struct tape tape;
    struct batch batch;
    struct submodel full;
    struct forward out;
    arena_open(&arena, 16 << 20);
    tape_open(&tape, model->device, model->weights.dtype, (i64)4 << 30);
    tape_clear(&tape, false);
    batch_of_ids(&batch, &arena, ids, PROBE_ROWS, PROBE_LENGTH, true);
    submodel_full(&full, &model->config);
    model_forward(&out, &tape, model, &batch, &full, NULL);
    *count = batch.n * model->config.vocabulary;
    float *logits = memory_alloc(*count * 4);
    device_get(model->device, logits, out.logits[TARGET_TEXT][0]->data, *count * 4);
    tape_close(&tape);
    arena_close(&arena);
    return logits;
}

/* Ids, and the logits of the model before the export: random ids, then text of the model's shards. */
struct probe {
    i32 ids[2][PROBE];
    float *logits[2];
    i64 values;
    int count;
};

static void probe_open(struct probe *p, struct model *model, const char *from)
{
    for (u32 i = 0; i < PROBE; i++)
        p->ids[0][i] = (i32)rng_below((struct rng_key){11, RNG_TEST}, model->config.vocabulary, i, 0, 0, 0);
    p->count = proof_ids(p->ids[1], PROBE, model, from) ? 2 : 1;
    for (int i = 0; i < p->count; i++)
        p->logits[i] = probe_logits(model, p->ids[i], &p->values);
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
    double most = 0, off = 0;
    if (model_load(&again, device, folder, dtype, false))
        return -1;
    for (int k = 0; k < p->count; k++) {
        float *b = probe_logits(&again, p->ids[k], &p->values);
        for (i64 i = 0; i < p->values; i++) {
            double a = p->logits[k][i], difference = fabs(a - b[i]);
            most = fmax(most, fabs(a));
            off = isnan(difference) ? INFINITY : fmax(off, difference);
        }
        memory_free(b);
    }
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

static enum dtype stored_dtype(const char *directory)
{
    struct safetensors set;
    enum dtype dtype = DTYPE_F32;
    if (safetensors_open_model(&set, directory) == 0) {
        const struct tensor_view *embed = safetensors_find(&set, "model.embed_tokens.weight");
        dtype = embed && embed->dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32;
        safetensors_close(&set);
    }
    return dtype;
}

/* The model, or the sub-model that the options select as one of its own. */
static int load_cut(struct model *out, const char *directory, const struct submodel_options *options, enum dtype dtype,
                    struct device *device)
{
    struct model whole;
    struct submodel sub;
    struct arena arena;
    if (!options || (!options->layers && !options->experts && !options->topk))
        return model_load(out, device, directory, dtype, false);
    if (model_load(&whole, device, directory, dtype, false))
        return -1;
    arena_open(&arena, 64 << 20);
    int status = submodel_parse(&sub, &arena, options, &whole);
    if (status == 0)
        status = elastic_extract(out, &whole, &sub);
    arena_close(&arena);
    model_close(&whole);
    return status;
}

/* The model is closed before its export is opened. Both compute in f32 unless both are stored in bf16:
 * then as stored, which takes half the memory. */
static int load_and_write_hf(const char *directory, const struct submodel_options *options, const char *folder,
                             enum dtype dtype, struct device *device)
{
    struct model model;
    struct probe probe = {.count = 0};
    enum dtype stored = stored_dtype(directory);
    dtype = dtype == DTYPE_OTHER ? stored : dtype;
    enum dtype computed = dtype == DTYPE_BF16 && stored == DTYPE_BF16 ? DTYPE_OTHER : DTYPE_F32;
    if (load_cut(&model, directory, options, computed, device))
        return -1;
    probe_open(&probe, &model, directory);
    int status =
        directory_make(folder) || model_save_hf(&model, folder, dtype) || copy_tokenizer(directory, folder) ? -1 : 0;
    model_close(&model);
    if (status == 0)
        status = compare_reloaded(&probe, device, folder, computed, dtype == DTYPE_F32 || stored == DTYPE_BF16);
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
    if (file_check_new(out) || load_cut(&model, directory, options, DTYPE_OTHER, device))
        return -1;
    int status = write_gguf(&model, directory, out, dtype == DTYPE_OTHER ? stored_dtype(directory) : dtype);
    model_close(&model);
    return status;
}

int export_stage(const void *settings, const struct stage *stage)
{
    const struct export_settings *s = settings;
    enum dtype dtype = s->dtype == 0 ? DTYPE_OTHER : s->dtype == 1 ? DTYPE_F32 : DTYPE_BF16;
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
