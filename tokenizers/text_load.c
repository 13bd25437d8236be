/* tokenizer.json read: what this tokenizer can do exactly as HF tokenizers does it is taken, everything else refused.
 */
#include "core/json.h"
#include "tokenizers/text_internal.h"

#include <stdlib.h>
#include <string.h>

static void keep_settings(struct text_tokenizer *tokenizer, const struct json *document)
{
    static const char *const keys[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    struct json *model = json_object();
    struct json_iterator at;
    tokenizer->settings = json_object();
    for (i64 i = 0; i < COUNT_OF(keys); i++) {
        const struct json *value = json_get(document, keys[i]);
        json_set(tokenizer->settings, keys[i], value ? json_copy(value) : json_of_null());
    }
    for (bool more = json_first(&at, json_get(document, "model")); more;
         more = json_next(&at, json_get(document, "model")))
        if (strcmp(at.key, "vocab") != 0 && strcmp(at.key, "merges") != 0)
            json_set(model, at.key, json_copy(at.value));
    json_set(tokenizer->settings, "model", model);
}

int tokenizer_configure(struct text_tokenizer *tokenizer, const struct json *document)
{
    struct source root = {.origin = tokenizer->origin};
    struct source normalizer = source_of(&root, "normalizer", -1), splitter = source_of(&root, "pre_tokenizer", -1);
    struct source decoder = source_of(&root, "decoder", -1), processor = source_of(&root, "post_processor", -1);
    if (normalizers_read(&tokenizer->normalizers, json_get(document, "normalizer"), &normalizer) ||
        splitters_read(&tokenizer->splitters, json_get(document, "pre_tokenizer"), &splitter) ||
        decoders_read(&tokenizer->decoders, json_get(document, "decoder"), &decoder) ||
        template_read(tokenizer, json_get(document, "post_processor"), &processor))
        return -1;
    keep_settings(tokenizer, document);
    return 0;
}

static int read_model(struct text_tokenizer *tokenizer, const struct json *model)
{
    struct source source = {.origin = tokenizer->origin, .place = "model"};
    if (json_kind(model) != JSON_OBJECT)
        return refuse(&source, model, "an object with a type and a vocabulary");
    tokenizer->model = model_kind_find(model, &source);
    return tokenizer->model ? tokenizer->model->read(tokenizer, model, &source) : -1;
}

/* ---- added tokens ---- */
static int read_added(struct text_tokenizer *tokenizer, const struct json *token, i64 i)
{
    const struct json *content = json_get(token, "content");
    i64 want = json_integer(json_get(token, "id"), -1);
    if (json_kind(content) != JSON_STRING || want < 0)
        return error_set("%s: added_tokens[%lld]: expected an object with content and id", tokenizer->origin,
                         (long long)i);
    if (json_string_length(content) == 0)
        return 0; /* HF drops it */
    struct added_flags flags = {
        json_bool(json_get(token, "special"), false),    json_bool(json_get(token, "single_word"), false),
        json_bool(json_get(token, "lstrip"), false),     json_bool(json_get(token, "rstrip"), false),
        json_bool(json_get(token, "normalized"), false),
    };
    i64 id = tokenizer_add_added(tokenizer, json_string(content, ""), json_string_length(content), flags);
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
    struct source file = {.origin = tokenizer->origin, .place = "the file"};
    struct source place = {.origin = tokenizer->origin, .place = "added_tokens"};
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

/* tokenizer_config.json beside the tokenizer is kept as it is, so that a copy has the same roles and chat layout. */
static int read_config(struct text_tokenizer *tokenizer, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *config = string_format("%.*stokenizer_config.json", slash ? (int)(slash + 1 - path) : 0, path);
    int status = 0;
    if (file_exists(config)) {
        tokenizer->config = json_load(config);
        status = tokenizer->config ? 0 : -1;
        if (tokenizer->config && json_kind(tokenizer->config) != JSON_OBJECT)
            status = error_set("%s: expected an object", config);
    }
    memory_free(config);
    return status;
}

struct text_tokenizer *text_tokenizer_load(const char *path)
{
    char *file = file_is_directory(path) ? path_join(path, "tokenizer.json") : string_copy(path);
    struct text json = {0};
    struct text_tokenizer *tokenizer = NULL;
    if (file_read(&json, file) == 0)
        tokenizer = text_tokenizer_parse(json.data, json.length, file);
    if (tokenizer && read_config(tokenizer, file)) {
        text_tokenizer_free(tokenizer);
        tokenizer = NULL;
    }
    text_release(&json);
    memory_free(file);
    return tokenizer;
}
