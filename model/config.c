/* Reads and checks config.json: the keys of a family (family.h), those that all families share, and an
 * object "weft" that other software ignores. */
#include "core/json.h"
#include "core/safetensors.h"
#include "model/family.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Limit on the number of weights: with the training state they must fit into the address space. */
static const double parameters_most = 5e12;

static int check_positive(i64 value, const char *key)
{
    return value > 0 ? 0 : error_set("%s is %lld, expected a positive number", key, (long long)value);
}

/* The family's name of a number, for messages. */
static const char *key_of(const struct model_config *c, enum model_number number)
{
    const struct family_key *row = model_family(c)->keys;
    while (row->holds && row->holds != number)
        row++;
    return row->key ? row->key : model_numbers[number].name;
}

/* What config.json has no key for must be as every reader of the family takes it. */
static int check_constant(const struct model_config *c, const struct family_key *row)
{
    struct json *value = model_number_json(c, row->holds);
    double is = json_kind(value) == JSON_BOOL ? json_bool(value, false) : json_number(value, row->absent);
    json_free(value);
    return is == row->absent ? 0
                             : error_set("%s is %g: the config.json of %s has no key for it, and means %g",
                                         model_numbers[row->holds].name, is, model_family(c)->model_type, row->absent);
}

static int check_number(const struct model_config *c, const struct family_key *row)
{
    const struct number_row *number = &model_numbers[row->holds];
    if (!row->key)
        return check_constant(c, row);
    if (!number->most)
        return 0;
    i64 value = *(const i64 *)model_number(c, row->holds);
    return value >= number->least && value <= number->most
               ? 0
               : error_set("%s is %lld, expected %lld to %lld", row->key, (long long)value, (long long)number->least,
                           (long long)number->most);
}

static int check_keys(const struct model_config *c, const struct family_key *row)
{
    int status = 0;
    for (; row->holds && status == 0; row++)
        status = row->holds < MODEL_NUMBERS_END ? check_number(c, row) : 0;
    return status;
}

static int check_bounds(const struct model_config *c)
{
    if (check_keys(c, model_family(c)->keys) || check_keys(c, weft_keys))
        return -1;
    for (i64 i = 0; i < TOKEN_SIZE_ROWS; i++) {
        const struct token_size_row *row = &token_size_rows[i];
        i64 value = token_size_of(&c->sizes, row);
        if (row->config_key && (value < 0 || value > row->most))
            return error_set("weft.%s is %lld, expected 0 to %lld", row->config_key, (long long)value,
                             (long long)row->most);
    }
    double width = (double)c->width, experts = (double)(c->experts + c->shared_experts);
    double layer = 2 * width * (double)((c->heads + c->kv_heads) * c->head_width) + 3 * width * (double)c->dense_width +
                   (3 * (double)c->expert_width + 1) * width * experts;
    double all = (double)c->layers * layer + 2 * width * (double)c->vocabulary;
    return all <= parameters_most ? 0 : error_set("%.3g parameters, at most %g are possible", all, parameters_most);
}

static int check_backbone(const struct model_config *c)
{
    if (c->heads % c->kv_heads)
        return error_set("%s %lld is no multiple of %s %lld (a recipe's model.heads and model.kv_heads)",
                         key_of(c, NUMBER_heads), (long long)c->heads, key_of(c, NUMBER_kv_heads),
                         (long long)c->kv_heads);
    if (c->head_width % 2)
        return error_set("%s %lld (a recipe's model.head_width) is odd: rotary positions turn pairs",
                         key_of(c, NUMBER_head_width), (long long)c->head_width);
    if (!(c->rope_theta > 0))
        return error_set("rope_theta is %g, expected a number above 0", c->rope_theta);
    if (c->t_pairs > c->head_width / 2)
        return error_set("weft.time_pairs is %lld of the %lld pairs of a head", (long long)c->t_pairs,
                         (long long)c->head_width / 2);
    if (c->first_moe_layer > c->layers)
        return error_set("%s is %lld of %lld %s (a recipe's model.dense_layers and model.layers)",
                         key_of(c, NUMBER_first_moe_layer), (long long)c->first_moe_layer, (long long)c->layers,
                         plural(c->layers, "layer", "layers"));
    if (c->first_moe_layer > 0 && check_positive(c->dense_width, key_of(c, NUMBER_dense_width)))
        return -1;
    return 0;
}

static int check_experts(const struct model_config *c)
{
    if (c->first_moe_layer == c->layers)
        return 0;
    const char *experts = key_of(c, NUMBER_experts), *topk = key_of(c, NUMBER_topk);
    if (check_positive(c->experts, experts) || check_positive(c->topk, topk) ||
        check_positive(c->expert_width, key_of(c, NUMBER_expert_width)))
        return -1;
    if (c->topk > c->experts)
        return error_set("%s is %lld, more than %s %lld (a recipe's model.topk and model.experts)", topk,
                         (long long)c->topk, experts, (long long)c->experts);
    return 0;
}

struct token_sizes model_token_sizes(const struct model_config *c)
{
    struct token_sizes sizes = c->sizes;
    sizes.scales = max_i64(c->scales - 1, 0);
    return sizes;
}

void model_config_set_tokens(struct model_config *c, const struct token_sizes *sizes)
{
    c->sizes = *sizes;
    c->vocabulary = round_up(sizes->vocabulary, 16);
    c->scales = sizes->bits ? sizes->scales + 1 : 0;
    c->stride = 0;
}

static int check_audio_layers(const struct model_config *c)
{
    i64 count = c->audio_layer_count;
    if (count == 0 && c->levels > c->layers)
        return error_set("%lld %s heads on as many of the top layers, there are %lld", (long long)c->levels,
                         plural(c->levels, "audio level needs", "audio levels need"), (long long)c->layers);
    if (count && c->levels && count != c->levels)
        return error_set("audio_layers has %lld %s, expected %lld, one for each audio level", (long long)count,
                         plural(count, "entry", "entries"), (long long)c->levels);
    for (i64 i = 0; i < count; i++)
        if (c->audio_layer[i] < (i ? c->audio_layer[i - 1] : 0) || c->audio_layer[i] >= c->layers)
            return error_set("audio_layers: entry %lld is %lld: expected ascending or equal layers below %lld",
                             (long long)i, (long long)c->audio_layer[i], (long long)c->layers);
    return 0;
}

double model_routed_scale(const struct model_config *c, i64 topk)
{
    double own = c->routed_scale > 0 ? c->routed_scale : 1;
    return c->topk_power > 0 && topk > 0 ? own * pow((double)topk / (double)c->topk, c->topk_power) : own;
}

int model_config_check(const struct model_config *c)
{
    if (check_bounds(c) || check_backbone(c) || check_experts(c))
        return -1;
    if (check_audio_layers(c))
        return -1;
    if (c->levels && check_positive(c->codes, "audio codes"))
        return -1;
    if (c->cell_features && (c->vit_heads < 1 || c->vit_width % (2 * c->vit_heads)))
        return error_set("vision encoder: width %lld, %lld heads, %lld %s do not fit (at most %d %s)",
                         (long long)c->vit_width, (long long)c->vit_heads, (long long)c->vit_layers,
                         plural(c->vit_layers, "layer", "layers"), VIT_LAYERS_MOST,
                         plural(VIT_LAYERS_MOST, "layer", "layers"));
    return 0;
}

/* ---- Reading: a present key must have its type; an absent or null key leaves
 * the struct as it is ---- */

static const char *const number_types[] = {"a whole number", "a number from 0", "true or false",
                                           "an id or a list of ids"};

static bool read_integer_value(i64 *out, const struct json *value)
{
    double real = json_number(value, 0.5);
    if (json_kind(value) != JSON_INTEGER &&
        (json_kind(value) != JSON_REAL || fabs(real) > 0x1p53 || real != rint(real)))
        return false;
    *out = json_kind(value) == JSON_INTEGER ? json_integer(value, 0) : (i64)real;
    return true;
}

static bool read_number(double *out, const struct json *value)
{
    *out = json_number(value, -1);
    return *out >= 0;
}

static bool read_value(void *out, enum number_type type, const struct json *value)
{
    switch (type) {
    case NUMBER_IS_INTEGER:
        return read_integer_value(out, value);
    case NUMBER_IS_NUMBER:
        return read_number(out, value);
    case NUMBER_IS_BOOL:
        *(bool *)out = json_bool(value, false);
        return json_kind(value) == JSON_BOOL;
    case NUMBER_IS_IDS: /* a list: take the first */
        return read_integer_value(out, json_kind(value) == JSON_ARRAY ? json_at(value, 0) : value);
    }
    return false;
}

static const struct json *value_at(const struct json *j, const char *key)
{
    char above[64];
    const char *dot = strchr(key, '.');
    snprintf(above, sizeof above, "%.*s", dot ? (int)(dot - key) : 0, key);
    return dot ? json_get(json_get(j, above), dot + 1) : json_get(j, key);
}

static int ill_typed(const struct json *value, const char *origin, const char *key, const char *expected)
{
    struct buffer found = {0};
    json_print(&found, value, 0);
    error_set("%s: key %s: expected %s, found %.80s", origin, key, expected, found.data);
    buffer_release(&found);
    return -1;
}

static int read_key(struct model_config *c, enum model_number number, const struct json *j, const char *key,
                    const char *origin)
{
    const struct json *value = key ? value_at(j, key) : NULL;
    enum number_type type = model_numbers[number].type;
    return json_kind(value) == JSON_NULL || read_value(model_number(c, number), type, value)
               ? 0
               : ill_typed(value, origin, key, number_types[type]);
}

/* DERIVED values of absent keys. */
static i64 derived_number(const struct model_config *c, enum model_number number)
{
    if (number == NUMBER_kv_heads)
        return c->heads;
    if (number == NUMBER_head_width)
        return c->heads > 0 ? c->width / c->heads : 0;
    bool sane = c->head_width > 0 && c->head_width <= model_numbers[NUMBER_head_width].most; /* or refused later */
    return sane ? c->head_width / 2 * 20 / 64 : 0;                                           /* NUMBER_t_pairs */
}

static void set_absent(struct model_config *c, const struct family_key *row)
{
    void *out = model_number(c, row->holds);
    if (row->absent == AS_ABOVE)
        return;
    if (model_numbers[row->holds].type == NUMBER_IS_NUMBER)
        *(double *)out = row->absent;
    else if (model_numbers[row->holds].type == NUMBER_IS_BOOL)
        *(bool *)out = row->absent != 0;
    else
        *(i64 *)out = row->absent == DERIVED ? derived_number(c, row->holds) : (i64)row->absent;
}

/* Reads numbers; those that must be there come first, because others derive from them. */
static int read_keys(struct model_config *c, const struct json *j, const struct family_key *keys, const char *origin)
{
    for (const struct family_key *row = keys; row->holds; row++)
        if (row->absent == REQUIRED && json_need_integer(model_number(c, row->holds), j, row->key, origin))
            return -1;
    for (const struct family_key *row = keys; row->holds; row++) {
        if (row->holds >= MODEL_NUMBERS_END || row->absent == REQUIRED)
            continue;
        set_absent(c, row);
        if (read_key(c, row->holds, j, row->also, origin) || read_key(c, row->holds, j, row->key, origin))
            return -1;
    }
    return 0;
}

static bool same_value(const struct json *a, const struct json *b)
{
    return json_kind(a) == JSON_STRING ? strcmp(json_string(a, ""), json_string(b, "")) == 0
           : json_kind(a) == JSON_BOOL ? json_kind(b) == JSON_BOOL && json_bool(a, false) == json_bool(b, false)
                                       : json_number(a, NAN) == json_number(b, NAN);
}

/* A checkpoint that needs another value of a fixed key is refused, because its results would be wrong. */
static int refuse_others(const struct json *j, const struct model_config *c, const struct family_key *row,
                         const char *origin)
{
    int status = 0;
    for (; row->holds && status == 0; row++) {
        const struct json *found = row->why ? value_at(j, row->key) : NULL;
        struct json *want = json_kind(found) == JSON_NULL ? NULL : family_value(row, c);
        bool fits = json_kind(found) == JSON_NULL || (want && same_value(want, found)) ||
                    (row->holds == KEY_LAST_LAYER && json_number(found, 0) == -1);
        struct buffer is = {0}, expected = {0};
        json_print(&is, found, 0);
        json_print(&expected, want, 0);
        if (!fits)
            status = error_set("%s: %s is %.80s, expected %s: %s", origin, row->key, is.data, expected.data, row->why);
        buffer_release(&is);
        buffer_release(&expected);
        json_free(want);
    }
    return status;
}

static int read_audio_layers(struct model_config *c, const struct json *j, const char *origin)
{
    const struct json *list = value_at(j, "weft.audio_layers");
    i64 count = json_count(list);
    bool valid = json_kind(list) == JSON_NULL || (json_kind(list) == JSON_ARRAY && count <= LEVELS_MOST);
    for (i64 i = 0; i < count && valid; i++) {
        i64 layer;
        valid = read_integer_value(&layer, json_at(list, i)) && layer >= 0 && layer < LAYERS_MOST;
        c->audio_layer[i] = valid ? (i32)layer : 0;
    }
    c->audio_layer_count = count;
    return valid ? 0 : ill_typed(list, origin, "weft.audio_layers", "a list of layers, one for each audio level");
}

static int read_token_sizes(struct model_config *c, const struct json *j, const char *origin)
{
    for (i64 i = 0; i < TOKEN_SIZE_ROWS; i++) {
        const struct token_size_row *row = &token_size_rows[i];
        char key[64];
        snprintf(key, sizeof key, "weft.%s", row->config_key ? row->config_key : "");
        const struct json *value = row->config_key ? value_at(j, key) : NULL;
        if (json_kind(value) != JSON_NULL && !read_integer_value(token_size(&c->sizes, row), value))
            return ill_typed(value, origin, key, number_types[NUMBER_IS_INTEGER]);
    }
    return 0;
}

static int read_config(struct model_config *c, const struct json *j, const char *origin)
{
    static const char *const objects[] = {"rope_parameters", "weft"};
    if (model_family_choose(c, json_string(json_get(j, "model_type"), ""), origin))
        return -1;
    for (i64 i = 0; i < COUNT_OF(objects); i++) {
        const struct json *object = json_get(j, objects[i]);
        if (json_kind(object) != JSON_NULL && json_kind(object) != JSON_OBJECT)
            return ill_typed(object, origin, objects[i], "an object");
    }
    const struct family_key *keys = model_family(c)->keys;
    if (read_keys(c, j, keys, origin) || read_keys(c, j, shared_keys, origin) || read_keys(c, j, weft_keys, origin) ||
        read_token_sizes(c, j, origin) || read_audio_layers(c, j, origin))
        return -1;
    const struct json *ends = json_get(j, "eos_token_id");
    for (i64 i = 1; i < json_count(ends); i++)
        model_config_add_end(c, json_integer(json_at(ends, i), -1));
    return refuse_others(j, c, keys, origin) || refuse_others(j, c, shared_keys, origin) ? -1 : 0;
}

void model_config_add_end(struct model_config *config, i64 id)
{
    bool known = id < 0 || id == config->eos_id || config->more_end_count == MORE_ENDS_MOST;
    for (i64 i = 0; i < config->more_end_count; i++)
        known |= config->more_ends[i] == id;
    if (!known)
        config->more_ends[config->more_end_count++] = id;
}

static bool same_values(const struct tensor_view *a, const struct tensor_view *b)
{
    i64 n = tensor_view_elements(a);
    if (tensor_view_elements(b) != n || a->rank != b->rank || memcmp(a->shape, b->shape, sizeof a->shape) != 0)
        return false;
    enum { PIECE = 1 << 18 };
    float *x = memory_alloc(PIECE * 4), *y = memory_alloc(PIECE * 4);
    bool same = true;
    for (i64 first = 0; first < n && same; first += PIECE) {
        i64 count = min_i64(PIECE, n - first);
        struct tensor_view u = tensor_view_part(a, first, count), v = tensor_view_part(b, first, count);
        same = u.dtype == v.dtype ? memcmp(u.data, v.data, (size_t)u.bytes) == 0
                                  : tensor_view_to_f32(x, &u) == 0 && tensor_view_to_f32(y, &v) == 0 &&
                                        memcmp(x, y, (size_t)count * 4) == 0;
        file_pass(u.data, u.bytes);
        file_pass(v.data, v.bytes);
    }
    memory_free(x);
    memory_free(y);
    return same;
}

/* True if the weights have a head of other values than the embeddings. transformers 5 then does not
 * tie them, whatever config.json says. Weights that cannot be read are reported where they are needed. */
static bool has_own_head(const struct model_config *c, const char *directory)
{
    const struct family_weight *names = model_family(c)->weights;
    struct safetensors set;
    char *one = path_join(directory, "model.safetensors"), *many = path_join(directory, "model.safetensors.index.json");
    bool own = false;
    if ((file_exists(one) || file_exists(many)) && safetensors_open_model(&set, directory) == 0) {
        const struct tensor_view *head = safetensors_find(&set, names[ROLE_HEAD].disk);
        const struct tensor_view *embed = safetensors_find(&set, names[ROLE_EMBED].disk);
        own = head && embed && !same_values(head, embed);
        safetensors_close(&set);
    }
    memory_free(one);
    memory_free(many);
    return own;
}

int model_config_load(struct model_config *config, const char *directory)
{
    char *path = path_join(directory, "config.json"), *run = path_join(directory, "run.json");
    struct json *j = file_exists(path) ? json_load(path) : NULL;
    int status = -1;
    *config = (struct model_config){0};
    if (!file_exists(path))
        error_set("%s: no config.json there: expected a model directory%s", directory,
                  file_exists(run) ? ", and this is a run: its models are in the folders of its stages" : "");
    else if (j && read_config(config, j, path) == 0)
        status = model_config_check(config) ? error_prefix("%s", path) : 0;
    config->tied &= status == 0 && !has_own_head(config, directory);
    json_free(j);
    memory_free(run);
    memory_free(path);
    return status;
}

static i64 active_per_layer(const struct model_config *c, i64 layer)
{
    i64 q = c->heads * c->head_width, kv = c->kv_heads * c->head_width;
    i64 attention = c->width * (2 * q + 2 * kv);
    if (layer < c->first_moe_layer)
        return attention + 3 * c->width * c->dense_width;
    return attention + c->width * c->experts + 3 * c->width * c->expert_width * (c->topk + c->shared_experts);
}

i64 model_parameters_active(const struct model_config *config)
{
    i64 total = 0;
    for (i64 layer = 0; layer < config->layers; layer++)
        total += active_per_layer(config, layer);
    return total;
}

/* Gemms only: 2 per parameter and position, 4 H D per visible query-key pair, and the
 * text head at its targets. */
double model_flops_forward(const struct model_config *c, i64 positions, double keys_per_query, i64 text_targets)
{
    double n = (double)positions;
    double attention = 4 * (double)(c->heads * c->head_width) * keys_per_query * (double)c->layers;
    return n * (2 * (double)model_parameters_active(c) + attention) +
           2 * (double)text_targets * (double)c->vocabulary * (double)c->width;
}
