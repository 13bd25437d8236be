/* Reads tokenizer.json. Accepts what this tokenizer can do exactly as HF tokenizers does, and
 * refuses everything else. */
#include "core/inventory.h"
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *key;
    part_fn *read;
} PARTS[] = {{"normalizer", normalizers_read},
             {"pre_tokenizer", splitters_read},
             {"post_processor", template_read},
             {"decoder", decoders_read}};

static void keep_settings(struct text_tokenizer *tokenizer, const struct json *document)
{
    struct json *model = json_object();
    struct json_iterator at;
    tokenizer->settings = json_object();
    for (i64 i = 0; i < COUNT_OF(PARTS); i++) {
        const struct json *value = json_get(document, PARTS[i].key);
        json_set(tokenizer->settings, PARTS[i].key, value ? json_copy(value) : json_of_null());
    }
    for (bool more = json_first(&at, json_get(document, "model")); more;
         more = json_next(&at, json_get(document, "model")))
        if (strcmp(at.key, "vocab") != 0 && strcmp(at.key, "merges") != 0)
            json_set(model, at.key, json_copy(at.value));
    json_set(tokenizer->settings, "model", model);
}

int tokenizer_configure(struct text_tokenizer *tokenizer, const struct json *document)
{
    struct json_origin root = {.origin = tokenizer->origin};
    for (i64 i = 0; i < COUNT_OF(PARTS); i++) {
        struct json_origin part = source_of(&root, PARTS[i].key, -1);
        if (PARTS[i].read(tokenizer, json_get(document, PARTS[i].key), &part))
            return -1;
    }
    keep_settings(tokenizer, document);
    return 0;
}

static int read_model(struct text_tokenizer *tokenizer, const struct json *model)
{
    struct json_origin source = {.origin = tokenizer->origin, .place = "model"};
    if (json_kind(model) != JSON_OBJECT)
        return refuse(&source, model, "an object with a type and a vocabulary");
    tokenizer->model = model_kind_find(model, &source);
    return tokenizer->model ? tokenizer->model->read(tokenizer, model, &source) : -1;
}

/* ---- added tokens ---- */
static struct added_flags read_flags(const struct json *token)
{
    return (struct added_flags){
        json_bool(json_get(token, "special"), false),    json_bool(json_get(token, "single_word"), false),
        json_bool(json_get(token, "lstrip"), false),     json_bool(json_get(token, "rstrip"), false),
        json_bool(json_get(token, "normalized"), false),
    };
}

static int read_added(struct text_tokenizer *tokenizer, const struct json *token, i64 i)
{
    const struct json *content = json_get(token, "content");
    i64 want = json_integer(json_get(token, "id"), -1);
    if (json_kind(content) != JSON_STRING || want < 0)
        return error_set("%s: added_tokens[%lld]: expected an object with content and id", tokenizer->origin,
                         (long long)i);
    if (json_string_length(content) == 0)
        return 0; /* HF drops it too */
    i64 id = tokenizer_add_added(tokenizer, json_string(content, ""), json_string_length(content), read_flags(token));
    if (id >= 0 && id != want)
        log_warn(
            "%s: added token '%s' has id %lld in the file; HF tokenizers counts on after the vocabulary and gives it "
            "%lld, and so does weft",
            tokenizer->origin, json_string(content, ""), (long long)want, (long long)id);
    return id < 0 ? -1 : 0;
}

static int read_document(struct text_tokenizer *tokenizer, const struct json *document)
{
    const struct json *added = json_get(document, "added_tokens");
    struct json_origin file = {.origin = tokenizer->origin, .place = "the file"};
    struct json_origin place = {.origin = tokenizer->origin, .place = "added_tokens"};
    if (json_kind(document) != JSON_OBJECT)
        return refuse(&file, document, "an object with the keys added_tokens, pre_tokenizer, model");
    if (read_model(tokenizer, json_get(document, "model")) || tokenizer_configure(tokenizer, document))
        return -1;
    if (json_kind(added) != JSON_NULL && json_kind(added) != JSON_ARRAY)
        return refuse(&place, added, "a list");
    for (i64 i = 0; i < json_count(added); i++)
        if (read_added(tokenizer, json_at(added, i), i))
            return -1;
    return tokenizer_seal(tokenizer);
}

struct text_tokenizer *text_tokenizer_parse(const char *json, i64 length, const char *origin)
{
    struct json *document = json_parse(json, length, origin);
    if (!document)
        return NULL;
    struct text_tokenizer *tokenizer = tokenizer_new(origin);
    if (read_document(tokenizer, document)) {
        text_tokenizer_free(tokenizer);
        tokenizer = NULL;
    }
    json_free(document);
    return tokenizer;
}

/* ---- Files ---- */
#define CHAT_TEMPLATE_BYTES_MAX ((i64)1 << 24)

/* Loads tokenizer_config.json from the tokenizer's folder. It is kept unchanged, so that a copy
 * has the same roles and chat template. *config is NULL if there is no such file. */
static int read_config(struct json **config, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = string_format("%.*stokenizer_config.json", slash ? (int)(slash + 1 - path) : 0, path);
    int status = 0;
    *config = NULL;
    if (file_exists(name)) {
        *config = json_load(name);
        status = *config ? 0 : -1;
        if (*config && json_kind(*config) != JSON_OBJECT)
            status = error_set("%s: expected an object", name);
    }
    memory_free(name);
    return status;
}

/* Takes the roles of special tokens (bos_token, ..) from special_tokens_map.json, as transformers
 * does where the config does not list its tokens. */
static int read_roles(struct json **config, const char *folder)
{
    char *name = path_join(folder, "special_tokens_map.json");
    struct json *roles = NULL;
    int status = 0;
    if (!json_get(*config, "added_tokens_decoder") && file_exists(name)) {
        roles = json_load(name);
        status = roles ? 0 : -1;
    }
    struct json_iterator at;
    if (json_kind(roles) == JSON_OBJECT && json_count(roles) && !*config)
        *config = json_object();
    for (bool more = json_first(&at, roles); more; more = json_next(&at, roles))
        json_set(*config, at.key, json_copy(at.value));
    json_free(roles);
    memory_free(name);
    return status;
}

static int read_template_file(struct json **templates, const char *folder, const char *file, const char *name)
{
    char *path = path_join(folder, file);
    struct buffer text = {0};
    int status = 0;
    if (file_exists(path) && !file_is_directory(path)) {
        status = file_read_most(&text, path, CHAT_TEMPLATE_BYTES_MAX);
        if (status == 0 && utf8_invalid_at((const u8 *)text.data, text.length) >= 0)
            status = error_set("%s: it is not UTF-8", path);
        if (status == 0 && !*templates)
            *templates = json_object();
        if (status == 0)
            json_set(*templates, name, json_of_utf8(text.data ? text.data : "", text.length));
    }
    buffer_release(&text);
    memory_free(path);
    return status;
}

/* The files of a folder additional_chat_templates, by their names without .jinja. */
static int read_more_templates(struct json **templates, const char *folder)
{
    static const char below[] = "additional_chat_templates";
    char *more = path_join(folder, below), **names = NULL;
    i64 count = 0;
    int status = file_is_directory(more) ? directory_list(&names, &count, more) : 0;
    for (i64 i = 0; i < count && status == 0; i++) {
        i64 length = (i64)strlen(names[i]) - 6;
        if (length < 1 || strcmp(names[i] + length, ".jinja") != 0)
            continue;
        char *file = path_join(below, names[i]), *name = string_format("%.*s", (int)length, names[i]);
        status = read_template_file(templates, folder, file, name);
        memory_free(file);
        memory_free(name);
    }
    if (names)
        string_list_free(names, count);
    memory_free(more);
    return status;
}

/* `chat_template` of a config: a text, a list of {"name", "template"}, or an object of texts by name.
 * NULL: none of these. */
static struct json *templates_of_config(const struct json *value)
{
    struct json *out = json_object();
    struct json_iterator at;
    if (json_kind(value) == JSON_STRING)
        json_set(out, "default", json_copy(value));
    for (i64 i = 0; json_kind(value) == JSON_ARRAY && i < json_count(value); i++) {
        const struct json *name = json_get(json_at(value, i), "name"), *text = json_get(json_at(value, i), "template");
        if (json_kind(name) == JSON_STRING && json_kind(text) == JSON_STRING)
            json_set(out, json_string(name, ""), json_copy(text));
    }
    for (bool more = json_first(&at, value); more; more = json_next(&at, value))
        if (json_kind(at.value) == JSON_STRING)
            json_set(out, at.key, json_copy(at.value));
    if (json_count(out))
        return out;
    json_free(out);
    return NULL;
}

/* Reads the files that hold chat templates. As in transformers, they take the place of those of
 * tokenizer_config.json, and the chat_template.json of a processor counts where nothing else is. */
static int read_templates(struct text_tokenizer *tokenizer, const char *folder)
{
    char *path = path_join(folder, "chat_template.json");
    struct json **templates = &tokenizer->chat_templates, *value = json_get(tokenizer->config, "chat_template");
    int status = read_template_file(templates, folder, "chat_template.jinja", "default");
    if (status == 0)
        status = read_more_templates(templates, folder);
    tokenizer->chat_file = *templates ? "chat_template.jinja" : "tokenizer_config.json";
    if (status == 0 && !*templates && json_kind(value) == JSON_NULL && file_exists(path)) {
        struct json *file = json_load(path);
        if (file && json_kind(json_get(file, "chat_template")) == JSON_STRING) {
            *templates = json_object();
            json_set(*templates, "default", json_copy(json_get(file, "chat_template")));
            tokenizer->chat_file = "chat_template.json";
        }
        status = file ? 0 : -1;
        json_free(file);
    }
    if (status == 0 && !*templates)
        *templates = templates_of_config(value);
    memory_free(path);
    return status;
}

static int read_beside(struct text_tokenizer *tokenizer, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? string_format("%.*s", (int)(slash + 1 - path), path) : string_copy(".");
    int status = read_roles(&tokenizer->config, folder) || read_templates(tokenizer, folder) ? -1 : 0;
    memory_free(folder);
    return status;
}

/* Adds the tokens listed by id in tokenizer_config.json, for formats that hold no added tokens. */
static int add_listed(struct text_tokenizer *tokenizer, const struct json *config)
{
    struct json_iterator at;
    const struct json *list = json_get(config, "added_tokens_decoder");
    for (bool more = json_first(&at, list); more; more = json_next(&at, list)) {
        char *end;
        i64 id = strtoll(at.key, &end, 10);
        const struct json *content = json_get(at.value, "content");
        if (*end || end == at.key || json_kind(content) != JSON_STRING || json_string_length(content) == 0)
            return error_set("%s: tokenizer_config.json: added_tokens_decoder: '%s': expected an id and an object with "
                             "content",
                             tokenizer->origin, at.key);
        if (tokenizer_add_added_at(tokenizer, json_string(content, ""), json_string_length(content),
                                   read_flags(at.value), id) < 0)
            return -1;
    }
    return 0;
}

/* Adds the begin and end tokens that transformers puts around a text of a .model file, if the
 * config enables them. */
static int add_ends(struct text_tokenizer *tokenizer, const struct json *config)
{
    static const char *const keys[2][2] = {{"add_bos_token", "bos_token"}, {"add_eos_token", "eos_token"}};
    const char *fallback[] = {tokenizer->begin_token, tokenizer->end_token};
    for (int end = 0; end < 2; end++) {
        if (!json_bool(json_get(config, keys[end][0]), false))
            continue;
        const struct json *role = json_get(config, keys[end][1]);
        const char *name =
            json_string(json_kind(role) == JSON_OBJECT ? json_get(role, "content") : role, fallback[end]);
        i32 id = name ? text_token_id(tokenizer, name) : -1;
        if (id < 0)
            return error_set("%s: tokenizer_config.json: %s, but the vocabulary has no token '%s'", tokenizer->origin,
                             keys[end][0], name ? name : "");
        i32 **ids = end ? &tokenizer->template_after : &tokenizer->template_before;
        *ids = memory_alloc(sizeof(i32));
        **ids = id;
        *(end ? &tokenizer->after_count : &tokenizer->before_count) = 1;
    }
    return 0;
}

static bool is_named_json(const char *path)
{
    size_t length = strlen(path);
    return length >= 5 && strcmp(path + length - 5, ".json") == 0;
}

/* Parses a file of any format, detected by its name or its first bytes. */
static struct text_tokenizer *parse_any(const struct buffer *file, const struct json *config, const char *path)
{
    i64 at = 0;
    while (at < file->length && strchr(" \t\r\n", file->data[at]) && file->data[at])
        at++;
    if (is_named_json(path))
        return text_tokenizer_parse(file->data ? file->data : "", file->length, path);
    bool model = sentencepiece_looks_like(file->data, file->length);
    if (!model && (at == file->length || file->data[at] == '{' || file->data[at] == '[' || file->data[at] == 'n'))
        return text_tokenizer_parse(file->data ? file->data : "", file->length, path);
    struct text_tokenizer *tokenizer = model ? sentencepiece_parse(file->data, file->length, path)
                                             : tiktoken_parse(file->data, file->length, config, path);
    if (tokenizer && (add_listed(tokenizer, config) || add_ends(tokenizer, config) || tokenizer_seal(tokenizer))) {
        text_tokenizer_free(tokenizer);
        return NULL;
    }
    return tokenizer;
}

char *text_tokenizer_file(const char *folder)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tokenizer.tiktoken", "tiktoken.model",
                                        "qwen.tiktoken"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        char *path = path_join(folder, names[i]);
        if (file_exists(path))
            return path;
        memory_free(path);
    }
    return NULL;
}

/* Vocabularies of this day have up to 40 MB. */
#define TOKENIZER_BYTES_MAX ((i64)1 << 30)

struct text_tokenizer *text_tokenizer_load(const char *path)
{
    char *name = file_is_directory(path) ? text_tokenizer_file(path) : string_copy(path);
    if (!name) /* reading this path reports the missing file */
        name = path_join(path, "tokenizer.json");
    struct buffer file = {0};
    struct json *config = NULL;
    struct text_tokenizer *tokenizer = NULL;
    if (inventory_check(path) == 0 && file_read_most(&file, name, TOKENIZER_BYTES_MAX) == 0 &&
        read_config(&config, name) == 0)
        tokenizer = parse_any(&file, config, name);
    if (tokenizer)
        tokenizer->config = config;
    else
        json_free(config);
    if (tokenizer && read_beside(tokenizer, name)) {
        text_tokenizer_free(tokenizer);
        tokenizer = NULL;
    }
    buffer_release(&file);
    memory_free(name);
    return tokenizer;
}
