/* Model directories: the files that transformers, vLLM and others load, and the files
 * only this program reads. */
#include "core/inventory.h"
#include "core/json.h"
#include "dist/dist.h"
#include "kernels/device/dry_run.h"
#include "model/family.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

enum { SHARD_BYTES_LOG2 = 32 };

static void set_at(struct json *j, const char *key, struct json *value)
{
    char above[64];
    const char *dot = strchr(key, '.');
    snprintf(above, sizeof above, "%.*s", dot ? (int)(dot - key) : 0, key);
    if (dot && !json_get(j, above))
        json_set(j, above, json_object());
    json_set(dot ? json_get(j, above) : j, dot ? dot + 1 : key, value);
}

/* Sets the keys of a list up to that of `last`; returns the row behind it. */
static const struct family_key *set_keys(struct json *j, const struct model_config *c, const struct family_key *row,
                                         enum model_number last)
{
    for (bool more = true; more && row->holds; row++) {
        struct json *value = row->key ? family_value(row, c) : NULL;
        if (value)
            set_at(j, row->key, value);
        more = row->holds != last;
    }
    return row;
}

/* The sizes of the tokenizers first to last. */
static void set_token_sizes(struct json *j, const struct model_config *c, int first, int last)
{
    for (i64 i = 0; i < TOKEN_SIZE_ROWS; i++) {
        const struct token_size_row *row = &token_size_rows[i];
        bool stored = row->config_key && (!row->optional || token_size_of(&c->sizes, row));
        if (stored && (int)row->tokenizer >= first && (int)row->tokenizer <= last)
            json_set(json_get(j, "weft"), row->config_key, json_of_integer(token_size_of(&c->sizes, row)));
    }
}

static void set_weft(struct json *j, const struct model_config *c)
{
    json_set(j, "weft", json_object());
    set_token_sizes(j, c, TOKENIZER_VISION, TOKENIZER_VISION);
    const struct family_key *rest = set_keys(j, c, weft_keys, NUMBER_vit_heads);
    set_token_sizes(j, c, TOKENIZER_VISION + 1, TOKENIZERS - 1);
    struct json *layers = c->audio_layer_count ? json_array() : NULL;
    for (i64 i = 0; i < c->audio_layer_count; i++)
        json_push(layers, json_of_integer(c->audio_layer[i]));
    if (layers)
        set_at(j, "weft.audio_layers", layers);
    set_keys(j, c, rest, KEY_END);
}

static struct json *config_json(const struct model_config *c, enum dtype dtype, bool with_weft)
{
    struct json *j = json_object(), *names = json_array();
    const char *stored = dtype == DTYPE_BF16 ? "bfloat16" : "float32";
    json_push(names, json_of_string(model_family(c)->architecture));
    json_set(j, "architectures", names);
    json_set(j, "model_type", json_of_string(model_family(c)->model_type));
    set_keys(j, c, model_family(c)->keys, KEY_END);
    set_keys(j, c, shared_keys, KEY_END);
    json_set(j, "dtype", json_of_string(stored)); /* transformers 5 */
    json_set(j, "torch_dtype", json_of_string(stored));
    if (with_weft)
        set_weft(j, c);
    return j;
}

static int save_json(const char *directory, const char *name, struct json *j)
{
    char *path = path_join(directory, name);
    int status = json_save(path, j);
    json_free(j);
    memory_free(path);
    return status;
}

static struct json *generation_json(const struct model_config *c)
{
    struct json *j = json_object();
    json_set(j, "bos_token_id", json_of_integer(c->bos_id));
    json_set(j, "eos_token_id", model_number_json(c, NUMBER_eos_id));
    json_set(j, "pad_token_id", json_of_integer(c->pad_id));
    return j;
}

static int save_weights(const struct model *model, const char *directory, enum dtype dtype,
                        const struct weights_reader *reader)
{
    struct weight_list list;
    weights_list(&list, &model->weights, FILE_HF, dtype, reader);
    int status = safetensors_save_sharded(directory, "model", list.tensors, list.count, (i64)1 << SHARD_BYTES_LOG2);
    weight_list_release(&list);
    return status;
}

int model_save_hf(const struct model *model, const char *directory, enum dtype dtype)
{
    if (save_json(directory, "config.json", config_json(&model->config, dtype, false)) ||
        save_json(directory, "generation_config.json", generation_json(&model->config)))
        return -1;
    return save_weights(model, directory, dtype, NULL);
}

#define USE_NAME "weft.expert_use"
#define ORDER_NAME "weft.expert_order"
#define LAYERS_NAME "weft.layer_order"

/* Adds numbers of shape [rows] or [rows, columns], as F32. columns 0: [rows]. */
static void add_numbers(struct weight_list *list, const char *name, i64 rows, i64 columns, const double *numbers)
{
    i64 n = rows * max_i64(columns, 1);
    float *values = arena_alloc(&list->memory, n * 4);
    for (i64 i = 0; i < n; i++)
        values[i] = (float)numbers[i];
    if (list->count == list->capacity) {
        i64 size = (i64)sizeof *list->tensors;
        list->tensors = memory_resize(list->tensors, list->capacity * size, (list->capacity + 1) * size);
        list->capacity++;
    }
    list->tensors[list->count++] = (struct tensor_source){
        .name = name, .dtype = DTYPE_F32, .rank = columns ? 2 : 1, .shape = {rows, columns}, .data = values};
}

static int save_extra(const struct model *model, const char *directory, const struct weights_reader *reader,
                      const struct expert_numbers *numbers)
{
    struct weight_list list;
    char *folder = directory ? path_join(directory, "weft") : NULL;
    char *path = folder ? path_join(folder, "extra.safetensors") : NULL;
    weights_list(&list, &model->weights, FILE_EXTRA, model->weights.dtype, reader);
    const struct model_config *c = &model->config;
    add_numbers(&list, USE_NAME, c->layers, max_i64(c->experts, 1), numbers->use);
    if (numbers->order) {
        add_numbers(&list, ORDER_NAME, c->layers, max_i64(c->experts, 1), numbers->order);
        add_numbers(&list, LAYERS_NAME, c->layers, 0, model_order_layers(numbers->order, c));
    }
    int status = folder ? directory_make(folder) : 0;
    if (status == 0)
        status = safetensors_save(path, list.tensors, list.count, NULL);
    weight_list_release(&list);
    memory_free(path);
    memory_free(folder);
    return status;
}

int model_save_read(const struct model *model, const char *directory, const struct weights_reader *reader,
                    const struct expert_numbers *numbers)
{
    enum dtype dtype = model->weights.dtype;
    if (directory && (save_json(directory, "config.json", config_json(&model->config, dtype, true)) ||
                      save_json(directory, "generation_config.json", generation_json(&model->config))))
        return -1;
    return save_weights(model, directory, dtype, reader) || save_extra(model, directory, reader, numbers) ? -1 : 0;
}

int model_save(const struct model *model, const char *directory)
{
    struct weights_reader over = zero_reader(&model->weights, model->parallel);
    double *use = memory_alloc(model_use_count(&model->config) * (i64)sizeof *use);
    model_use_get(use, model);
    const struct expert_numbers numbers = {use, model->order};
    int status = model_save_read(model, directory, model->parallel->world->size > 1 ? &over : NULL, &numbers);
    memory_free(use);
    return status;
}

static enum dtype embed_dtype(const struct safetensors *set)
{
    const struct tensor_view *embed = NULL;
    for (i64 i = 0; model_families[i] && !embed; i++)
        embed = safetensors_find(set, model_families[i]->weights[ROLE_EMBED].disk);
    return embed && embed->dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32;
}

enum dtype model_stored_dtype(const char *directory)
{
    struct safetensors set;
    enum dtype dtype = DTYPE_F32;
    if (safetensors_open_model(&set, directory) == 0) {
        dtype = embed_dtype(&set);
        safetensors_close(&set);
    }
    return dtype;
}

/* Reads n numbers. False if there are none, or others than n, or, with *status -1, if they are damaged. */
static bool load_numbers(int *status, double *numbers, i64 n, const struct safetensors *extra, const char *name)
{
    const struct tensor_view *view = safetensors_find(extra, name);
    if (*status || !view || tensor_view_elements(view) != n)
        return false;
    float *values = memory_alloc(n * 4);
    *status = tensor_view_to_f32(values, view);
    for (i64 i = 0; i < n; i++)
        numbers[i] = (double)values[i];
    memory_free(values);
    return *status == 0;
}

static char *extra_path(const char *directory)
{
    return path_join(directory, "weft/extra.safetensors");
}

/* They say only which experts and layers matter: a model without them loads. */
static int load_expert_numbers(struct model *model, const char *directory)
{
    struct safetensors extra;
    char *path = extra_path(directory);
    bool there = file_exists(path);
    int opened = there ? safetensors_open(&extra, path) : 0;
    memory_free(path);
    if (!there || opened)
        return opened;
    i64 experts = model_use_count(&model->config), layers = model->config.layers;
    double *numbers = memory_alloc(model_order_count(&model->config) * (i64)sizeof *numbers);
    int status = 0;
    if (load_numbers(&status, numbers, experts, &extra, USE_NAME))
        model_use_put(model, numbers);
    if (load_numbers(&status, numbers, experts, &extra, ORDER_NAME) &&
        load_numbers(&status, numbers + experts, layers, &extra, LAYERS_NAME))
        model_set_order(model, numbers);
    memory_free(numbers);
    safetensors_close(&extra);
    return status;
}

int model_use_load(double *use, const struct model_config *c, const char *directory)
{
    char *folder = path_join(directory, "weft"), *path = path_join(folder, "extra.safetensors");
    struct safetensors extra;
    int status = 0;
    bool found = false;
    if (file_exists(path) && (status = safetensors_open(&extra, path)) == 0) {
        found = load_numbers(&status, use, c->layers * max_i64(c->experts, 1), &extra, USE_NAME);
        safetensors_close(&extra);
    }
    memory_free(path);
    memory_free(folder);
    return status ? -1 : found;
}

static const char *const harmless_extra[] = {USE_NAME, ORDER_NAME, LAYERS_NAME, NULL};

static int check_names(const struct model *model, const struct safetensors *set, const char *directory)
{
    /* Parts of the names of tensors that logits do not depend on. transformers leaves them out without a
     * warning: multi-token prediction of other software, and buffers that the configuration determines.
     * Where config.json ties it, an equal head is harmless too. model_config_load has compared them. */
    char head[128] = "=";
    strcat(head, model_family(&model->config)->weights[ROLE_HEAD].disk);
    const char *harmless[] = {"mtp", "rotary_emb.inv_freq", "position_ids", model->config.tied ? head : NULL, NULL};
    return weights_check_names(&model->weights, set, FILE_HF, harmless, directory);
}

/* Weights of a vision token's bits, of which a file has fewer; 0: it has all. */
static void set_stored_bits(struct model *model, i64 bits)
{
    if (!model->config.bits)
        return;
    model->vision_embed->spec.stored_columns = bits;
    model->vision_head->spec.stored_rows = bits;
}

static int load_extra(struct model *model, const char *directory)
{
    struct safetensors extra;
    char *path = extra_path(directory);
    bool wanted = model->config.mtp || model->config.reduced_bias;
    for (int kind = 0; kind < INPUTS; kind++)
        wanted |= kind != INPUT_TEXT && input_is_read(&model->config.sizes, (enum input_kind)kind);
    int status = 0;
    if (file_exists(path) || wanted) {
        status = safetensors_open(&extra, path);
        if (status == 0) {
            status = weights_check_names(&model->weights, &extra, FILE_EXTRA, harmless_extra, path);
            if (status == 0)
                status = weights_load(&model->weights, &extra, FILE_EXTRA, path);
            safetensors_close(&extra);
        }
    }
    memory_free(path);
    return status;
}

static bool is_model_file(const char *name)
{
    const char *end = strrchr(name, '.');
    return strncmp(name, "model", 5) == 0 && end && strcmp(end, ".safetensors") == 0;
}

/* Verifies the checksums in the files of a directory; those of other software have none. */
static int check_sums(const char *directory)
{
    char **names = NULL, *extra = extra_path(directory);
    i64 count = 0;
    int status = directory_list(&names, &count, directory);
    for (i64 i = 0; i < count && status == 0; i++) {
        char *path = path_join(directory, names[i]);
        status = is_model_file(names[i]) && safetensors_check(path) < 0 ? -1 : 0;
        memory_free(path);
    }
    if (status == 0 && file_exists(extra))
        status = safetensors_check(extra) < 0 ? -1 : 0;
    string_list_free(names, count);
    memory_free(extra);
    return status;
}

struct model_work {
    const struct model_config *config;
    struct model_source source;
    bool training;
    struct model_over over; /* zeros: of one rank */
};

static int open_model(struct model *model, struct device *device, const struct model_work *w,
                      const struct parallel *parallel)
{
    return w->source.bits ? model_open_quantized(model, device, w->config, w->source.dtype, w->source.bits)
                          : model_open(model, device, w->config, w->source.dtype, w->training, parallel);
}

static int open_on_meta(struct memory_estimate *out, struct device *meta, void *context)
{
    struct model model;
    (void)out;
    int status = open_model(&model, meta, context, NULL);
    if (status == 0)
        model_close(&model);
    return status;
}

static bool smaller_source(struct buffer *name, struct dry_run *d)
{
    struct model_work *w = d->context;
    return !w->training && model_source_smaller(name, &w->source);
}

/* Before any weight is read. */
static int check_memory(const struct model_work *work, const struct device *device)
{
    struct model_work w = *work;
    const struct dry_run check = {w.source.directory, open_on_meta, &w, .otherwise = SMALLER_MODEL,
                                  .smaller = smaller_source};
    return dry_run_check(&check, device);
}

static void warn_of_own_head(const struct model_config *config, const char *directory)
{
    char *path = path_join(directory, "config.json");
    struct json *j = config->tied ? NULL : json_load(path);
    if (json_bool(json_get(j, "tie_word_embeddings"), !config->tied && j))
        log_warn("%s: tie_word_embeddings is true, but %s has other values than the embeddings: it is used, "
                 "as transformers 5 does",
                 path, model_family(config)->weights[ROLE_HEAD].disk);
    json_free(j);
    memory_free(path);
}

static int load(struct model *model, struct device *device, struct model_work *w, const struct parallel *parallel)
{
    struct model_config config;
    struct safetensors set;
    const char *directory = w->source.directory;
    if (inventory_check(directory) || model_config_load(&config, directory) || safetensors_open_model(&set, directory))
        return -1;
    i64 bits = config.bits;
    bool grows = bits && w->over.bits > bits;
    config.bits = grows ? w->over.bits : bits;
    w->config = &config;
    if (w->source.dtype == DTYPE_OTHER)
        w->source.dtype = device->has_bf16 ? embed_dtype(&set) : DTYPE_F32;
    int status = parallel ? 0 : check_memory(w, device);
    bool alone = !parallel || parallel->world->size == 1; /* ranks read their own parts of the files only */
    if (status == 0 && device->backend != BACKEND_META)
        warn_of_own_head(&config, directory);
    if (status == 0 && alone && device->backend != BACKEND_META)
        status = check_sums(directory);
    if (status == 0)
        status = open_model(model, device, w, parallel);
    if (status == 0) {
        status = check_names(model, &set, directory) || load_expert_numbers(model, directory) ? -1 : 0;
        if (status == 0 && w->over.place)
            status = w->over.place(w->over.context);
        if (status == 0)
            status = weights_load(&model->weights, &set, FILE_HF, directory);
        if (status == 0) {
            set_stored_bits(model, grows ? bits : 0);
            status = load_extra(model, directory);
            set_stored_bits(model, 0);
        }
        if (status)
            model_close(model);
    }
    safetensors_close(&set);
    return status;
}

int model_load_over(const struct parallel *parallel, struct model *model, struct device *device, const char *directory,
                    const struct model_over *options)
{
    struct model_work w = {
        .source = {.directory = directory, .dtype = options->dtype}, .training = true, .over = *options};
    return load(model, device, &w, parallel);
}

int model_load(struct model *model, struct device *device, const char *directory, enum dtype dtype, bool training)
{
    struct model_work w = {.source = {.directory = directory, .dtype = dtype}, .training = training};
    return load(model, device, &w, NULL);
}

void model_source_take(struct model_source *source, int choice)
{
    static const struct {
        enum dtype dtype; /* DTYPE_OTHER: stays */
        int bits;
    } forms[] = {{DTYPE_OTHER, 0}, {DTYPE_F32, 0}, {DTYPE_BF16, 0}, {DTYPE_OTHER, 8}, {DTYPE_OTHER, 4}};
    source->dtype = forms[choice].dtype == DTYPE_OTHER ? source->dtype : forms[choice].dtype;
    source->bits = forms[choice].bits;
}

int model_load_source(struct model *model, struct device *device, const struct model_source *source)
{
    struct model_work w = {.source = *source};
    if (load(model, device, &w, NULL))
        return -1;
    i64 stored = 0;
    for (i64 i = 0; i < model->weights.count; i++) {
        const struct tensor *t = &model->weights.list[i].value;
        stored += t->rows * t->columns * dtype_bytes(t->dtype);
    }
    if (source->bits)
        log_info("weights of %d bits: %.1f MB, stored %.1f", source->bits,
                 1e-6 * (double)weights_bytes(&model->weights), 1e-6 * (double)stored);
    return 0;
}

bool model_source_smaller(struct buffer *name, struct model_source *source)
{
    if (source->fixed || source->bits == 4)
        return false;
    if (!source->reduced)
        source->asked = source->dtype;
    bool as_bf16 = source->bits == 0 && source->dtype != DTYPE_BF16;
    source->bits = as_bf16 ? 0 : source->bits == 8 ? 4 : 8;
    source->dtype = as_bf16 ? DTYPE_BF16 : source->asked;
    source->reduced = true;
    model_source_name(name, source);
    return true;
}

void model_source_name(struct buffer *name, const struct model_source *source)
{
    if (source->reduced)
        buffer_printf(name, "%s--weights %s", name->length ? " " : "",
                      source->bits == 0   ? "bf16"
                      : source->bits == 8 ? "int8"
                                          : "int4");
}
