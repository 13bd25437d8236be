/* weft inspect: models, checkpoints, tokenizers with weights, and safetensors files. */
#include "survey/inspect.h"
#include "model/model.h"
#include "train/train.h"
#include "core/safetensors.h"
#include "model/family.h"
#include "tokenizers/audio/audio.h"
#include "tokenizers/text/text.h"
#include "tokenizers/vision/vision.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Tensors ---- */

/* Number of NaN and infinite values; 0 for integers. */
static i64 not_finite(const struct tensor_view *view)
{
    i64 n = tensor_view_elements(view), bad = 0;
    bool floats =
        view->dtype == DTYPE_F32 || view->dtype == DTYPE_BF16 || view->dtype == DTYPE_F16 || view->dtype == DTYPE_F64;
    float *values = floats ? memory_alloc(n * 4) : NULL;
    if (values && tensor_view_to_f32(values, view) == 0)
        for (i64 i = 0; i < n; i++)
            bad += !isfinite(values[i]);
    memory_free(values);
    return bad;
}

static int check_finite(const struct safetensors *set, const char *origin)
{
    for (i64 i = 0; i < set->count; i++) {
        i64 bad = not_finite(&set->tensors[i]);
        if (bad)
            return error_set("%s: %lld of the %lld %s of %s are not finite: the training that made it broke down",
                             origin, (long long)bad, (long long)tensor_view_elements(&set->tensors[i]),
                             plural(tensor_view_elements(&set->tensors[i]), "number", "numbers"), set->tensors[i].name);
    }
    return 0;
}

struct inspect_model_sums {
    i64 files, stated;
};

static int check_sum(struct inspect_model_sums *sums, const char *path)
{
    int found = safetensors_check(path);
    sums->files++;
    sums->stated += found == 1;
    return found < 0 ? -1 : 0;
}

/* Verifies checksums of the safetensors files directly in a
 * folder. A missing folder is no error. */
static int check_folder_sums(struct inspect_model_sums *sums, const char *directory, const char *below)
{
    char *folder = *below ? path_join(directory, below) : string_copy(directory), **names = NULL;
    i64 count = 0;
    int status = file_is_directory(folder) ? directory_list(&names, &count, folder) : 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        char *path = path_join(folder, names[i]), *end = strrchr(names[i], '.');
        if (end && strcmp(end, ".safetensors") == 0)
            status = check_sum(sums, path);
        memory_free(path);
    }
    string_list_free(names, count);
    memory_free(folder);
    return status;
}

static void set_sums(struct json *j, const struct inspect_model_sums *sums)
{
    struct buffer text = {0};
    if (sums->stated == sums->files)
        buffer_printf(&text, "fit");
    else if (sums->stated)
        buffer_printf(&text, "fit in %lld of %lld %s, the others state none", (long long)sums->stated,
                      (long long)sums->files, plural(sums->files, "file", "files"));
    else
        buffer_printf(&text, "none are stated, as in files of other software: flipped bits cannot be seen");
    json_set(j, "checksums", json_of_string(text.data));
    buffer_release(&text);
}

/* Number of elements per dtype. */
static struct json *dtypes_json(const struct safetensors *set)
{
    struct json *j = json_object();
    for (int dtype = 0; dtype <= DTYPE_OTHER; dtype++) {
        i64 elements = 0;
        for (i64 i = 0; i < set->count; i++)
            elements += (int)set->tensors[i].dtype == dtype ? tensor_view_elements(&set->tensors[i]) : 0;
        if (elements)
            json_set(j, dtype_name(dtype), json_of_integer(elements));
    }
    return j;
}

static i64 elements_of(const struct safetensors *set)
{
    i64 sum = 0;
    for (i64 i = 0; i < set->count; i++)
        sum += tensor_view_elements(&set->tensors[i]);
    return sum;
}

static struct json *tensor_json(const struct tensor_view *view)
{
    struct json *j = json_object(), *shape = json_array();
    for (int i = 0; i < view->rank; i++)
        json_push(shape, json_of_integer(view->shape[i]));
    json_set(j, "name", json_of_string(view->name));
    json_set(j, "dtype", json_of_string(dtype_name(view->dtype)));
    json_set(j, "elements", json_of_integer(tensor_view_elements(view)));
    json_set(j, "shape", shape);
    return j;
}

static void set_tensors(struct json *j, const struct safetensors *set)
{
    json_set(j, "tensors", json_of_integer(set->count));
    json_set(j, "parameters", json_of_integer(elements_of(set)));
    json_set(j, "dtypes", dtypes_json(set));
}

struct json *inspect_safetensors(const char *path, bool verify)
{
    struct safetensors set;
    if (safetensors_open(&set, path))
        return NULL;
    struct json *j = NULL, *list = json_array();
    struct inspect_model_sums sums = {0};
    for (i64 i = 0; i < set.count; i++)
        json_push(list, tensor_json(&set.tensors[i]));
    if (!verify || (check_sum(&sums, path) == 0 && check_finite(&set, path) == 0)) {
        j = json_object();
        json_set(j, "kind", json_of_string("safetensors"));
        json_set(j, "bytes", json_of_integer(set.files[0].bytes));
        if (set.metadata)
            json_set(j, "metadata", json_copy(set.metadata));
        set_tensors(j, &set);
        json_set(j, "verified", json_of_bool(verify));
        if (verify)
            set_sums(j, &sums);
        json_set(j, "list", list);
    } else {
        json_free(list);
    }
    safetensors_close(&set);
    return j;
}

/* ---- Tokenizers ---- */

struct json *inspect_tokenizer(const char *path)
{
    struct text_tokenizer *t = text_tokenizer_load(path);
    if (!t)
        return NULL;
    struct json *j = json_object(), *special = json_array();
    i32 left, right;
    for (i64 id = 0; id < text_vocabulary(t); id++)
        if (text_token_is_special(t, (i32)id) && text_token_content(t, (i32)id))
            json_push(special, json_of_string(text_token_content(t, (i32)id)));
    json_set(j, "kind", json_of_string("tokenizer"));
    json_set(j, "vocabulary", json_of_integer(text_vocabulary(t)));
    json_set(j, "model", json_of_string(text_model_name(t)));
    json_set(j, "merges", json_of_integer(text_merge(t, 0, &left, &right)));
    json_set(j, "pattern", json_of_string(text_regex_family(t)));
    json_set(j, "nfc", json_of_bool(text_normalizes_nfc(t)));
    json_set(j, "special", special);
    text_tokenizer_free(t);
    return j;
}

/* Adds a scale as its side, or as WIDTHxHEIGHT if it is not square. */
static void push_scale(struct json *scales, struct scale scale)
{
    char *name = string_format("%lldx%lld", (long long)scale.w, (long long)scale.h);
    json_push(scales, scale.h == scale.w ? json_of_integer(scale.h) : json_of_string(name));
    memory_free(name);
}

static struct json *shapes_json(const struct vision_config *config)
{
    struct json *all = json_array();
    for (i64 i = 0; i < config->shape_count; i++) {
        const struct vision_shape *s = &config->shapes[i];
        struct json *j = json_object(), *scales = json_array();
        for (i64 k = 0; k < s->scale_count; k++)
            push_scale(scales, s->scales[k]);
        json_set(j, "name", json_of_string(s->name));
        json_set(j, "frames", json_of_integer(s->frames));
        json_set(j, "rate_hz", json_of_number(s->rate_hz));
        json_set(j, "tokens", json_of_integer(vision_tokens(s) * s->latent_frames));
        json_set(j, "scales", scales);
        json_push(all, j);
    }
    return all;
}

static struct json *vision_json(const char *directory, struct device *device)
{
    struct vision vision;
    if (vision_load(&vision, device, directory, DTYPE_F32, false))
        return NULL;
    struct json *j = json_object();
    json_set(j, "kind", json_of_string("vision tokenizer"));
    json_set(j, "parameters", json_of_integer(weights_parameters(&vision.weights)));
    json_set(j, "bits", json_of_integer(vision.config.bits));
    if (vision.config.kept_bits) /* those of the tokenizer that it grew from */
        json_set(j, "kept_bits", json_of_integer(vision.config.kept_bits));
    json_set(j, "stride", json_of_integer(vision.config.stride));
    json_set(j, "clips", json_of_bool(vision.config.inflated));
    json_set(j, "shapes", shapes_json(&vision.config));
    vision_close(&vision);
    return j;
}

static struct json *audio_json(const char *directory, struct device *device)
{
    struct audio_tokenizer audio;
    if (audio_load(&audio, device, directory))
        return NULL;
    struct json *j = json_object();
    json_set(j, "kind", json_of_string("audio tokenizer"));
    json_set(j, "parameters", json_of_integer(weights_parameters(&audio.weights)));
    json_set(j, "levels", json_of_integer(audio.config.levels));
    json_set(j, "codes", json_of_integer(audio.config.codes));
    json_set(j, "frames_per_s",
             json_of_number((double)audio.mel.rate_hz / (double)audio_frame_samples(audio.mel.rate_hz)));
    json_set(j, "rate_hz", json_of_integer(audio.mel.rate_hz));
    json_set(j, "decoder", json_of_string(audio.config.decoder == AUDIO_ISTFT ? "istft" : "griffin-lim"));
    audio_close(&audio);
    return j;
}

static bool is_audio(const char *directory)
{
    char *path = path_join(directory, "config.json");
    struct json *config = json_load(path);
    bool audio = strstr(json_string(json_get(config, "kind"), ""), "audio") != NULL;
    json_free(config);
    memory_free(path);
    return audio;
}

static struct json *media_json(const char *directory)
{
    struct device device;
    device_open_host(&device);
    struct json *j = is_audio(directory) ? audio_json(directory, &device) : vision_json(directory, &device);
    device_close(&device);
    return j;
}

struct json *inspect_media_tokenizer(const char *directory, bool verify)
{
    char *path = path_join(directory, "weights.safetensors");
    struct safetensors set;
    struct inspect_model_sums sums = {0};
    int status = safetensors_open(&set, path);
    if (status == 0) {
        status = verify && (check_sum(&sums, path) || check_finite(&set, path)) ? -1 : 0;
        safetensors_close(&set);
    }
    memory_free(path);
    if (status)
        return NULL;
    struct json *j = media_json(directory);
    if (j)
        json_set(j, "verified", json_of_bool(verify));
    if (j && verify)
        set_sums(j, &sums);
    return j;
}

/* ---- Models ---- */

/* Sizes of the backbone, of the tokenizers, then what it has or has not. */
static void set_sizes(struct json *j, const struct model_config *c)
{
    static const char *const tokens[] = {"vision_bits", "audio_levels", "audio_codes"};
    struct json *list = json_object();
    const i64 of_tokens[] = {c->bits, c->levels, c->codes};
    for (int n = NUMBER_vocabulary; n < MODEL_NUMBERS_END; n++)
        if (model_numbers[n].shown && model_numbers[n].type != NUMBER_IS_BOOL)
            json_set(list, model_numbers[n].name, model_number_json(c, n));
    for (i64 i = 0; i < COUNT_OF(tokens); i++)
        json_set(list, tokens[i], json_of_integer(of_tokens[i]));
    for (int n = NUMBER_vocabulary; n < MODEL_NUMBERS_END; n++)
        if (model_numbers[n].shown && model_numbers[n].type == NUMBER_IS_BOOL)
            json_set(list, model_numbers[n].name, model_number_json(c, n));
    json_set(j, "sizes", list);
}

static int add_extra(struct json *j, const char *directory, bool verify)
{
    char *path = string_format("%s/weft/extra.safetensors", directory);
    struct safetensors set;
    int status = 0;
    if (file_exists(path) && (status = safetensors_open(&set, path)) == 0) {
        struct json *extra = json_object();
        set_tensors(extra, &set);
        json_set(extra, "use_of_experts", json_of_bool(safetensors_find(&set, "weft.expert_use") != NULL));
        json_set(j, "extra", extra);
        status = verify ? check_finite(&set, path) : 0;
        safetensors_close(&set);
    }
    memory_free(path);
    return status;
}

static int add_weights(struct json *j, const char *directory, bool verify)
{
    struct safetensors set;
    if (safetensors_open_model(&set, directory))
        return -1;
    json_set(j, "files", json_of_integer(set.file_count));
    set_tensors(j, &set);
    int status = verify ? check_finite(&set, directory) : 0;
    safetensors_close(&set);
    return status;
}

/* Checks that the model loads; the message names the first missing or misshapen tensor. */
static int check_loads(const char *directory)
{
    struct device device;
    struct model model;
    device_open_host(&device);
    int status = model_load(&model, &device, directory, DTYPE_OTHER, false);
    if (status == 0)
        model_close(&model);
    device_close(&device);
    return status;
}

static int add_tokenizer(struct json *j, const char *directory, const char *below,
                         struct json *(*inspect)(const char *))
{
    char *path = path_join(directory, below);
    struct json *found = file_exists(path) ? inspect(path) : json_of_null();
    if (found)
        json_set(j, below, found);
    memory_free(path);
    return found ? 0 : -1;
}

/* Adds the tokenizer under its file name. */
static int add_text_tokenizer(struct json *j, const char *directory)
{
    char *file = text_tokenizer_file(directory);
    int status = add_tokenizer(j, directory, file ? strrchr(file, '/') + 1 : "tokenizer.json", inspect_tokenizer);
    memory_free(file);
    return status;
}

static int check_sums(struct inspect_model_sums *sums, const char *directory)
{
    static const char *const folders[] = {"", "weft", "weft/vision", "weft/audio"};
    int status = 0;
    for (i64 i = 0; i < COUNT_OF(folders) && status == 0; i++)
        status = check_folder_sums(sums, directory, folders[i]);
    return status;
}

struct json *inspect_model(const char *directory, bool verify)
{
    struct model_config config;
    struct inspect_model_sums sums = {0};
    if (model_config_load(&config, directory) || (verify && check_sums(&sums, directory)))
        return NULL;
    struct json *j = json_object();
    json_set(j, "kind", json_of_string("model"));
    set_sizes(j, &config);
    json_set(j, "active_parameters", json_of_integer(model_parameters_active(&config)));
    if (add_weights(j, directory, verify) || add_extra(j, directory, verify) || (verify && check_loads(directory)) ||
        add_text_tokenizer(j, directory) || add_tokenizer(j, directory, "weft/vision", media_json) ||
        add_tokenizer(j, directory, "weft/audio", media_json)) {
        json_free(j);
        return NULL;
    }
    json_set(j, "verified", json_of_bool(verify));
    if (verify)
        set_sums(j, &sums);
    return j;
}

/* ---- Checkpoints ---- */

/* Describes the contents of a checkpoint: a tokenizer, a model, or neither. */
static struct json *contents_of(const char *folder)
{
    char *path = path_join(folder, "config.json");
    struct json *config = file_exists(path) ? json_load(path) : json_of_null();
    memory_free(path);
    if (!config)
        return NULL;
    struct json *j = json_kind(json_get(config, "kind")) == JSON_STRING ? inspect_media_tokenizer(folder, true)
                     : json_kind(config) == JSON_OBJECT                 ? inspect_model(folder, true)
                                                                        : json_object();
    json_free(config);
    return j;
}

static struct json *describe_step(const char *folder)
{
    char *path = path_join(folder, "weft/state.json");
    struct json *state = json_load(path), *contents = state ? contents_of(folder) : NULL, *j = NULL;
    if (contents) {
        j = json_object();
        json_set(j, "kind", json_of_string("checkpoint"));
        json_set(j, "folder", json_of_string(folder));
        json_set(j, "step", json_of_integer(json_integer(json_get(state, "step"), -1)));
        json_set(j, "files_verified", json_of_integer(json_count(json_get(state, "files"))));
        json_set(j, "contents", contents);
    }
    json_free(state);
    memory_free(path);
    return j;
}

struct json *inspect_checkpoint(const char *directory)
{
    char *state = path_join(directory, "weft/state.json"), *newest = NULL;
    bool step = file_exists(state);
    int status = step ? checkpoint_check(directory) : checkpoint_verify(directory, &newest);
    struct json *j = status ? NULL : describe_step(step ? directory : newest);
    memory_free(state);
    memory_free(newest);
    return j;
}
