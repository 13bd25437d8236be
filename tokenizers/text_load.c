/* tokenizer.json read: what this tokenizer can do exactly as HF tokenizers does it is taken, everything else refused.
 */
#include "core/json.h"
#include "tokenizers/text_internal.h"

#include <stdlib.h>
#include <string.h>

static const char *type_of(const struct json *value)
{
    return json_string(json_get(value, "type"), "");
}

static bool is_empty(const struct json *value) /* null, absent, "" */
{
    return json_kind(value) == JSON_NULL || (json_kind(value) == JSON_STRING && json_string_length(value) == 0);
}

static int refuse(const struct text_tokenizer *tokenizer, const char *key, const struct json *value,
                  const char *expected)
{
    struct text shown = {0};
    if (value)
        json_print(&shown, value, 0);
    error_set("%s: %s is %.200s; expected %s", tokenizer->origin, key, shown.length ? shown.data : "missing", expected);
    text_release(&shown);
    return -1;
}

/* ---- normalizer, pre_tokenizer, decoder, post_processor ---- */
static int configure_normalizer(struct text_tokenizer *tokenizer, const struct json *value)
{
    const struct json *parts = json_get(value, "normalizers");
    if (json_kind(value) == JSON_NULL)
        return 0;
    if (strcmp(type_of(value), "Sequence") == 0 && json_kind(parts) == JSON_ARRAY) {
        for (i64 i = 0; i < json_count(parts); i++)
            if (strcmp(type_of(json_at(parts, i)), "NFC") != 0)
                return refuse(tokenizer, "normalizer", json_at(parts, i), "null or NFC");
        tokenizer->nfc = json_count(parts) > 0;
        return 0;
    }
    if (strcmp(type_of(value), "NFC") != 0)
        return refuse(tokenizer, "normalizer", value, "null or NFC");
    tokenizer->nfc = true;
    return 0;
}

static struct splitter *next_splitter(struct text_tokenizer *tokenizer)
{
    if (tokenizer->splitter_count == MAX_SPLITTERS) {
        error_set("%s: pre_tokenizer has more than %d parts", tokenizer->origin, MAX_SPLITTERS);
        return NULL;
    }
    return &tokenizer->splitters[tokenizer->splitter_count];
}

static int add_pattern(struct text_tokenizer *tokenizer, const char *pattern)
{
    struct splitter *splitter = next_splitter(tokenizer);
    if (!splitter || splitter_init(splitter, pattern, false, tokenizer->origin))
        return -1;
    tokenizer->splitter_count++;
    return 0;
}

static int configure_split(struct text_tokenizer *tokenizer, const struct json *value)
{
    const struct json *pattern = json_get(json_get(value, "pattern"), "Regex");
    if (strcmp(json_string(json_get(value, "behavior"), ""), "Isolated") != 0 ||
        json_bool(json_get(value, "invert"), false))
        return refuse(tokenizer, "pre_tokenizer", value, "Split with behavior Isolated and invert false");
    if (json_kind(pattern) != JSON_STRING || strlen(json_string(pattern, "")) != (size_t)json_string_length(pattern))
        return refuse(tokenizer, "pre_tokenizer", value, "Split with a pattern of kind Regex");
    return add_pattern(tokenizer, json_string(pattern, ""));
}

static int configure_byte_level(struct text_tokenizer *tokenizer, const struct json *value)
{
    struct splitter *splitter = next_splitter(tokenizer);
    if (!splitter)
        return -1;
    if (json_bool(json_get(value, "add_prefix_space"), true)) {
        *splitter = (struct splitter){SPLIT_PREFIX_SPACE};
        tokenizer->splitter_count++;
    }
    return json_bool(json_get(value, "use_regex"), true) ? add_pattern(tokenizer, REGEX_GPT2) : 0;
}

/* One part; *done once ByteLevel was seen, which has to be the last. */
static int configure_part(struct text_tokenizer *tokenizer, const struct json *value, bool *done)
{
    const char *type = type_of(value);
    if (*done)
        return refuse(tokenizer, "pre_tokenizer", value, "nothing after ByteLevel");
    if (strcmp(type, "Split") == 0)
        return configure_split(tokenizer, value);
    if (strcmp(type, "Digits") == 0)
        return add_pattern(tokenizer, json_bool(json_get(value, "individual_digits"), false) ? "\\p{N}" : "\\p{N}+");
    if (strcmp(type, "ByteLevel") != 0)
        return refuse(tokenizer, "pre_tokenizer", value, "Split, Digits or ByteLevel");
    *done = true;
    return configure_byte_level(tokenizer, value);
}

static int configure_pre_tokenizer(struct text_tokenizer *tokenizer, const struct json *value)
{
    bool done = false;
    const struct json *parts = json_get(value, "pretokenizers");
    if (strcmp(type_of(value), "Sequence") != 0) {
        if (strcmp(type_of(value), "ByteLevel") != 0)
            return refuse(tokenizer, "pre_tokenizer", value, "ByteLevel, or a Sequence that ends with it");
        return configure_part(tokenizer, value, &done);
    }
    for (i64 i = 0; i < json_count(parts); i++)
        if (configure_part(tokenizer, json_at(parts, i), &done))
            return -1;
    return done ? 0 : refuse(tokenizer, "pre_tokenizer", value, "a Sequence that ends with ByteLevel");
}

/* null is read as ByteLevel: nothing else gives text back. */
static int configure_decoder(struct text_tokenizer *tokenizer, const struct json *value)
{
    const struct json *parts = json_get(value, "decoders");
    bool wrapped = strcmp(type_of(value), "Sequence") == 0 && json_count(parts) == 1;
    const char *type = wrapped ? type_of(json_at(parts, 0)) : type_of(value);
    if (json_kind(value) == JSON_NULL || strcmp(type, "ByteLevel") == 0)
        return 0;
    return refuse(tokenizer, "decoder", value, "ByteLevel");
}

static void push_template(i32 **ids, i64 *count, i64 id)
{
    *ids = memory_resize(*ids, *count * (i64)sizeof(i32), (*count + 1) * (i64)sizeof(i32));
    (*ids)[(*count)++] = (i32)id;
}

static int configure_template(struct text_tokenizer *tokenizer, const struct json *value)
{
    const struct json *single = json_get(value, "single");
    bool after = false;
    for (i64 i = 0; i < json_count(single); i++) {
        const struct json *item = json_get(json_at(single, i), "SpecialToken");
        if (!item) {
            after = true;
            continue;
        }
        const char *name = json_string(json_get(item, "id"), "");
        const struct json *ids = json_get(json_get(json_get(value, "special_tokens"), name), "ids");
        if (json_kind(ids) != JSON_ARRAY)
            return refuse(tokenizer, "post_processor", item, "a token that stands in special_tokens");
        for (i64 k = 0; k < json_count(ids); k++) {
            i64 id = json_integer(json_at(ids, k), -1);
            if (id < 0 || id > INT32_MAX)
                return refuse(tokenizer, "post_processor", ids, "ids");
            if (after)
                push_template(&tokenizer->template_after, &tokenizer->after_count, id);
            else
                push_template(&tokenizer->template_before, &tokenizer->before_count, id);
        }
    }
    return 0;
}

static int configure_post_processor(struct text_tokenizer *tokenizer, const struct json *value)
{
    const char *type = type_of(value);
    if (json_kind(value) == JSON_NULL || strcmp(type, "ByteLevel") == 0) /* ByteLevel moves offsets only */
        return 0;
    if (strcmp(type, "TemplateProcessing") == 0)
        return configure_template(tokenizer, value);
    const struct json *parts = json_get(value, "processors");
    if (strcmp(type, "Sequence") != 0 || json_kind(parts) != JSON_ARRAY)
        return refuse(tokenizer, "post_processor", value, "null, ByteLevel, TemplateProcessing or a Sequence of these");
    for (i64 i = 0; i < json_count(parts); i++)
        if (strcmp(type_of(json_at(parts, i)), "Sequence") == 0 ||
            configure_post_processor(tokenizer, json_at(parts, i)))
            return refuse(tokenizer, "post_processor", value, "a flat Sequence of ByteLevel and TemplateProcessing");
    return 0;
}

static void keep_settings(struct text_tokenizer *tokenizer, const struct json *document)
{
    static const char *const keys[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    static const char *const model_keys[] = {
        "type",     "dropout",       "unk_token",    "continuing_subword_prefix", "end_of_word_suffix",
        "fuse_unk", "byte_fallback", "ignore_merges"};
    tokenizer->settings = json_object();
    for (i64 i = 0; i < COUNT_OF(keys); i++) {
        const struct json *value = json_get(document, keys[i]);
        json_set(tokenizer->settings, keys[i], value ? json_copy(value) : json_of_null());
    }
    struct json *model = json_object();
    for (i64 i = 0; i < COUNT_OF(model_keys); i++) {
        const struct json *value = json_get(json_get(document, "model"), model_keys[i]);
        if (value)
            json_set(model, model_keys[i], json_copy(value));
    }
    json_set(tokenizer->settings, "model", model);
}

int tokenizer_configure(struct text_tokenizer *tokenizer, const struct json *document)
{
    if (configure_normalizer(tokenizer, json_get(document, "normalizer")) ||
        configure_pre_tokenizer(tokenizer, json_get(document, "pre_tokenizer")) ||
        configure_decoder(tokenizer, json_get(document, "decoder")) ||
        configure_post_processor(tokenizer, json_get(document, "post_processor")))
        return -1;
    keep_settings(tokenizer, document);
    return 0;
}

/* ---- model ---- */
static int read_vocab(struct text_tokenizer *tokenizer, const struct json *vocab)
{
    struct json_iterator at;
    if (json_kind(vocab) != JSON_OBJECT)
        return refuse(tokenizer, "model.vocab", vocab, "an object of tokens and their ids");
    for (bool more = json_first(&at, vocab); more; more = json_next(&at, vocab)) {
        if (json_kind(at.value) != JSON_INTEGER)
            return error_set("%s: model.vocab: token '%s' has no integer id", tokenizer->origin, at.key);
        if (tokenizer_add(tokenizer, at.key, (i64)strlen(at.key), json_integer(at.value, -1)))
            return -1;
    }
    return 0;
}

static int bad_merge(const struct text_tokenizer *tokenizer, i64 i)
{
    return error_set("%s: model.merges[%lld]: expected [\"LEFT\", \"RIGHT\"] or \"LEFT RIGHT\"", tokenizer->origin,
                     (long long)i);
}

static int read_merge(struct text_tokenizer *tokenizer, const struct json *merge, i64 i)
{
    const struct json *left = json_at(merge, 0), *right = json_at(merge, 1);
    if (json_kind(merge) == JSON_ARRAY) {
        if (json_count(merge) != 2 || json_kind(left) != JSON_STRING || json_kind(right) != JSON_STRING)
            return bad_merge(tokenizer, i);
        return tokenizer_add_merge(tokenizer, json_string(left, ""), json_string_length(left), json_string(right, ""),
                                   json_string_length(right));
    }
    const char *line = json_string(merge, NULL), *space = line ? strchr(line, ' ') : NULL;
    if (line && strncmp(line, "#version", 8) == 0)
        return 0; /* first line of merges.txt, carried along by old converters */
    if (!space || strchr(space + 1, ' '))
        return bad_merge(tokenizer, i);
    return tokenizer_add_merge(tokenizer, line, space - line, space + 1,
                               line + json_string_length(merge) - (space + 1));
}

static int read_merges(struct text_tokenizer *tokenizer, const struct json *merges)
{
    if (json_kind(merges) != JSON_ARRAY)
        return refuse(tokenizer, "model.merges", merges, "a list of pairs");
    for (i64 i = 0; i < json_count(merges); i++)
        if (read_merge(tokenizer, json_at(merges, i), i))
            return -1;
    return 0;
}

/* Bytes without a token of their own become unk_token, each by itself; what HF does otherwise (fuse_unk, byte_fallback)
 * is not done here, then such a byte is an error when it comes. */
static void read_unknown(struct text_tokenizer *tokenizer, const struct json *model)
{
    const struct json *unknown = json_get(model, "unk_token");
    bool other = json_bool(json_get(model, "fuse_unk"), false) || json_bool(json_get(model, "byte_fallback"), false);
    if (json_kind(unknown) == JSON_STRING && !other)
        tokenizer->unknown = tokenizer_find(tokenizer, json_string(unknown, ""), json_string_length(unknown));
}

static int read_model(struct text_tokenizer *tokenizer, const struct json *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    if (json_kind(model) != JSON_OBJECT)
        return refuse(tokenizer, "model", model, "an object with vocab and merges");
    if (json_get(model, "type") && strcmp(type_of(model), "BPE") != 0)
        return refuse(tokenizer, "model.type", json_get(model, "type"), "BPE");
    for (i64 i = 0; i < COUNT_OF(affixes); i++)
        if (!is_empty(json_get(model, affixes[i])))
            return refuse(tokenizer, affixes[i], json_get(model, affixes[i]), "null");
    tokenizer->ignore_merges = json_bool(json_get(model, "ignore_merges"), false);
    if (read_vocab(tokenizer, json_get(model, "vocab")) || read_merges(tokenizer, json_get(model, "merges")))
        return -1;
    read_unknown(tokenizer, model);
    return 0;
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
    if (json_kind(document) != JSON_OBJECT)
        return refuse(tokenizer, "the file", document, "an object with the keys added_tokens, pre_tokenizer, model");
    if (read_model(tokenizer, json_get(document, "model")) || tokenizer_configure(tokenizer, document))
        return -1;
    if (json_kind(added) != JSON_NULL && json_kind(added) != JSON_ARRAY)
        return refuse(tokenizer, "added_tokens", added, "a list");
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
