/* config.json: the keys of HF's Ernie4_5_Moe, and an object "weft" that other software ignores. */
#include "core/json.h"
#include "core/safetensors.h"
#include "model/model.h"

#include <math.h>
#include <string.h>

/* Allowed ranges in config.json; products of these values stay far below 2^63. */
static const struct config_bound {
    const char *key;
    size_t member;
    i64 least, most;
} bounds[] = {
#define BOUND(key, member, least, most)                                                                                \
    {                                                                                                                  \
        key, offsetof(struct model_config, member), least, most                                                        \
    }
    BOUND("vocab_size", vocabulary, 1, 1 << 24),
    BOUND("hidden_size", width, 1, 1 << 20),
    BOUND("num_hidden_layers", layers, 1, LAYERS_MOST),
    BOUND("num_attention_heads", heads, 1, 1 << 16),
    BOUND("num_key_value_heads", kv_heads, 1, 1 << 16),
    BOUND("head_dim", head_width, 1, 1 << 16),
    BOUND("intermediate_size", dense_width, 0, 1 << 20),
    BOUND("moe_num_experts", experts, 0, 1 << 16),
    BOUND("moe_k", topk, 0, 1 << 16),
    BOUND("moe_intermediate_size", expert_width, 0, 1 << 20),
    BOUND("moe_num_shared_experts", shared_experts, 0, 1 << 10),
    BOUND("moe_layer_start_index", first_moe_layer, 0, LAYERS_MOST),
    BOUND("weft.vit_layers", vit_layers, 0, VIT_LAYERS_MOST),
    BOUND("weft.vit_width", vit_width, 0, 1 << 20),
    BOUND("weft.vit_heads", vit_heads, 0, 1 << 16),
    BOUND("weft.mtp_width", mtp_width, 0, 1 << 20),
    BOUND("weft.time_pairs", t_pairs, 0, 1 << 16),
    BOUND("weft.video_window", window, 0, 1 << 20),
#undef BOUND
};
/* Limit on the number of weights: with the training state they must fit into the address space. */
static const double parameters_most = 5e12;

static int check_positive(i64 value, const char *key)
{
    return value > 0 ? 0 : error_set("%s is %lld, expected a positive number", key, (long long)value);
}

static int check_bounds(const struct model_config *c)
{
    for (i64 i = 0; i < COUNT_OF(bounds); i++) {
        i64 value = *(const i64 *)((const char *)c + bounds[i].member);
        if (value < bounds[i].least || value > bounds[i].most)
            return error_set("%s is %lld, expected %lld to %lld", bounds[i].key, (long long)value,
                             (long long)bounds[i].least, (long long)bounds[i].most);
    }
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
        return error_set("num_attention_heads %lld is no multiple of num_key_value_heads %lld (a recipe's model.heads "
                         "and model.kv_heads)",
                         (long long)c->heads, (long long)c->kv_heads);
    if (c->head_width % 2)
        return error_set("head_dim %lld (a recipe's model.head_width) is odd: rotary positions turn pairs",
                         (long long)c->head_width);
    if (!(c->rope_theta > 0))
        return error_set("rope_theta is %g, expected a number above 0", c->rope_theta);
    if (c->t_pairs > c->head_width / 2)
        return error_set("weft.time_pairs is %lld of the %lld pairs of a head", (long long)c->t_pairs,
                         (long long)c->head_width / 2);
    if (c->first_moe_layer > c->layers)
        return error_set("moe_layer_start_index is %lld of %lld %s (a recipe's model.dense_layers and model.layers)",
                         (long long)c->first_moe_layer, (long long)c->layers, plural(c->layers, "layer", "layers"));
    if (c->first_moe_layer > 0 && check_positive(c->dense_width, "intermediate_size"))
        return -1;
    return 0;
}

static int check_experts(const struct model_config *c)
{
    if (c->first_moe_layer == c->layers)
        return 0;
    if (check_positive(c->experts, "moe_num_experts") || check_positive(c->topk, "moe_k") ||
        check_positive(c->expert_width, "moe_intermediate_size"))
        return -1;
    if (c->topk > c->experts)
        return error_set("moe_k is %lld, more than moe_num_experts %lld (a recipe's model.topk and model.experts)",
                         (long long)c->topk, (long long)c->experts);
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

enum key_type { INTEGER, NUMBER, FLAG, WORD, ID };
static const char *const key_types[] = {"a whole number", "a number from 0", "true or false", "a string",
                                        "an id or a list of ids"};

struct config_key {
    const char *name;
    enum key_type type;
    size_t member;
};

static bool read_integer_value(i64 *out, const struct json *value)
{
    double real = json_number(value, 0.5);
    if (json_kind(value) != JSON_INTEGER &&
        (json_kind(value) != JSON_REAL || fabs(real) > 0x1p53 || real != rint(real)))
        return false;
    *out = json_integer(value, (i64)real);
    return true;
}

static bool read_number(double *out, const struct json *value)
{
    *out = json_number(value, -1);
    return *out >= 0;
}

static bool read_value(void *out, enum key_type type, const struct json *value)
{
    switch (type) {
    case INTEGER:
        return read_integer_value(out, value);
    case NUMBER:
        return read_number(out, value);
    case FLAG:
        *(bool *)out = json_bool(value, false);
        return json_kind(value) == JSON_BOOL;
    case WORD:
        *(const char **)out = json_string(value, "");
        return json_kind(value) == JSON_STRING;
    case ID: /* a list: take the first */
        return read_integer_value(out, json_kind(value) == JSON_ARRAY ? json_at(value, 0) : value);
    }
    return false;
}

static int ill_typed(const struct json *value, const char *origin, const char *above, const char *name,
                     const char *expected)
{
    struct buffer found = {0};
    json_print(&found, value, 0);
    error_set("%s: key %s%s: expected %s, found %.80s", origin, above, name, expected, found.data);
    buffer_release(&found);
    return -1;
}

static int read_keys(void *out, const struct json *j, const struct config_key *keys, i64 count, const char *origin,
                     const char *above)
{
    for (i64 i = 0; i < count; i++) {
        const struct json *value = json_get(j, keys[i].name);
        if (json_kind(value) != JSON_NULL && !read_value((char *)out + keys[i].member, keys[i].type, value))
            return ill_typed(value, origin, above, keys[i].name, key_types[keys[i].type]);
    }
    return 0;
}
#define READ(out, j, keys, origin, above) read_keys(out, j, keys, COUNT_OF(keys), origin, above)

/* *out = the object, or NULL if the key is absent or null. */
static int read_object(const struct json **out, const struct json *j, const char *name, const char *origin)
{
    *out = json_get(j, name);
    if (json_kind(*out) == JSON_NULL)
        *out = NULL;
    return !*out || json_kind(*out) == JSON_OBJECT ? 0 : ill_typed(*out, origin, "", name, "an object");
}

/* Keys that this program does not implement. A checkpoint that needs them is refused, because its
 * results would be wrong. */
struct unsupported_config {
    bool use_bias;
    const char *act, *rope_type;
    i64 interval, last_moe_layer;
};

static int refuse_unsupported(const struct json *j, const struct model_config *c, const char *origin)
{
    static const struct config_key keys[] = {
        {"use_bias", FLAG, offsetof(struct unsupported_config, use_bias)},
        {"hidden_act", WORD, offsetof(struct unsupported_config, act)},
        {"moe_layer_interval", INTEGER, offsetof(struct unsupported_config, interval)},
        {"moe_layer_end_index", INTEGER, offsetof(struct unsupported_config, last_moe_layer)},
    };
    static const struct config_key rope_keys[] = {{"rope_type", WORD, offsetof(struct unsupported_config, rope_type)}};
    struct unsupported_config o = {false, "silu", "default", 1, -1};
    if (READ(&o, j, keys, origin, "") ||
        READ(&o, json_get(j, "rope_parameters"), rope_keys, origin, "rope_parameters."))
        return -1;
    if (o.use_bias)
        return error_set("%s: use_bias is true: biases are not supported", origin);
    if (strcmp(o.act, "silu") != 0)
        return error_set("%s: hidden_act is \"%s\", expected \"silu\"", origin, o.act);
    if (strcmp(o.rope_type, "default") != 0 || json_kind(json_get(j, "rope_scaling")) != JSON_NULL)
        return error_set("%s: scaled rotary positions (\"%s\") are not supported", origin, o.rope_type);
    if (o.interval != 1 || (o.last_moe_layer != -1 && o.last_moe_layer != c->layers - 1))
        return error_set("%s: every layer from moe_layer_start_index to the last must have experts", origin);
    return 0;
}

#define KEY(name, type, member)                                                                                        \
    {                                                                                                                  \
        name, type, offsetof(struct model_config, member)                                                              \
    }
static const struct config_key rope_keys[] = {KEY("rope_theta", NUMBER, rope_theta)};
static const struct config_key keys[] = {
    KEY("num_key_value_heads", INTEGER, kv_heads),
    KEY("head_dim", INTEGER, head_width),
    KEY("intermediate_size", INTEGER, dense_width),
    KEY("num_experts", INTEGER, experts), /* alternative name; the next key overrides it */
    KEY("moe_num_experts", INTEGER, experts),
    KEY("num_experts_per_tok", INTEGER, topk),
    KEY("moe_k", INTEGER, topk),
    KEY("moe_intermediate_size", INTEGER, expert_width),
    KEY("moe_num_shared_experts", INTEGER, shared_experts),
    KEY("moe_layer_start_index", INTEGER, first_moe_layer),
    KEY("tie_word_embeddings", FLAG, tied),
    KEY("rope_theta", NUMBER, rope_theta),
    KEY("rms_norm_eps", NUMBER, norm_eps),
    KEY("moe_norm_min", NUMBER, norm_min),
    KEY("initializer_range", NUMBER, init_std),
    KEY("max_position_embeddings", INTEGER, max_positions),
    KEY("pad_token_id", INTEGER, pad_id),
    KEY("bos_token_id", INTEGER, bos_id),
    KEY("eos_token_id", ID, eos_id),
};
static const struct config_key weft_keys[] = {
    KEY("vit_layers", INTEGER, vit_layers),  KEY("vit_width", INTEGER, vit_width),
    KEY("vit_heads", INTEGER, vit_heads),    KEY("mtp", FLAG, mtp),
    KEY("mtp_width", INTEGER, mtp_width),    KEY("video_window", INTEGER, window),
    KEY("time_pairs", INTEGER, t_pairs),     KEY("zero_init", FLAG, zero_init),
    KEY("reduced_bias", FLAG, reduced_bias),
};
#undef KEY

/* Defaults of HF's Ernie4_5_MoeConfig. */
static void set_defaults(struct model_config *c)
{
    c->kv_heads = c->heads;
    c->head_width = c->heads > 0 ? c->width / c->heads : 0;
    c->experts = 64;
    c->topk = 6;
    c->expert_width = 1536;
    c->shared_experts = 2;
    c->first_moe_layer = 1;
    c->tied = true;
    c->rope_theta = 500000;
    c->norm_eps = 1e-5;
    c->norm_min = 1e-12;
    c->init_std = 0.02;
    c->max_positions = 131072;
    c->bos_id = 1;
    c->eos_id = 2;
}

static int read_audio_layers(struct model_config *c, const struct json *weft, const char *origin)
{
    const struct json *list = json_get(weft, "audio_layers");
    i64 count = json_count(list);
    bool valid = json_kind(list) == JSON_NULL || (json_kind(list) == JSON_ARRAY && count <= LEVELS_MOST);
    for (i64 i = 0; i < count && valid; i++) {
        i64 layer;
        valid = read_integer_value(&layer, json_at(list, i)) && layer >= 0 && layer < LAYERS_MOST;
        c->audio_layer[i] = valid ? (i32)layer : 0;
    }
    c->audio_layer_count = count;
    return valid ? 0 : ill_typed(list, origin, "weft.", "audio_layers", "a list of layers, one for each audio level");
}

static int read_config(struct model_config *c, const struct json *j, const char *origin)
{
    const struct json *rope, *weft;
    const char *type = json_string(json_get(j, "model_type"), "");
    if (strcmp(type, "ernie4_5_moe") != 0)
        return error_set("%s: model_type is \"%s\", expected \"ernie4_5_moe\": another architecture cannot be read",
                         origin, type);
    if (json_need_integer(&c->vocabulary, j, "vocab_size", origin) ||
        json_need_integer(&c->width, j, "hidden_size", origin) ||
        json_need_integer(&c->layers, j, "num_hidden_layers", origin) ||
        json_need_integer(&c->heads, j, "num_attention_heads", origin))
        return -1;
    set_defaults(c);
    if (READ(c, j, keys, origin, "") || read_object(&rope, j, "rope_parameters", origin) ||
        READ(c, rope, rope_keys, origin, "rope_parameters.") || read_object(&weft, j, "weft", origin))
        return -1;
    c->t_pairs = c->head_width / 2 * 20 / 64;
    for (i64 i = 0; i < TOKEN_SIZE_ROWS; i++) {
        const struct config_key key = {token_size_rows[i].config_key, INTEGER, token_size_rows[i].member};
        if (key.name && read_keys(&c->sizes, weft, &key, 1, origin, "weft."))
            return -1;
    }
    if (read_audio_layers(c, weft, origin))
        return -1;
    const struct json *ends = json_get(j, "eos_token_id");
    for (i64 i = 1; i < json_count(ends); i++)
        model_config_add_end(c, json_integer(json_at(ends, i), -1));
    return READ(c, weft, weft_keys, origin, "weft.");
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
static bool has_own_head(const char *directory)
{
    struct safetensors set;
    char *one = path_join(directory, "model.safetensors"), *many = path_join(directory, "model.safetensors.index.json");
    bool own = false;
    if ((file_exists(one) || file_exists(many)) && safetensors_open_model(&set, directory) == 0) {
        const struct tensor_view *head = safetensors_find(&set, "lm_head.weight");
        const struct tensor_view *embed = safetensors_find(&set, "model.embed_tokens.weight");
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
    else if (j && read_config(config, j, path) == 0 && refuse_unsupported(j, config, path) == 0)
        status = model_config_check(config) ? error_prefix("%s", path) : 0;
    config->tied &= status == 0 && !has_own_head(directory);
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
