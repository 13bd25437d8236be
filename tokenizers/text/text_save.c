/* Writes tokenizer.json and tokenizer_config.json in the form that HF tokenizers 0.23 and
 * transformers read. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <stdlib.h>
#include <string.h>

static struct json *content_of(const struct text_tokenizer *tokenizer, i32 id)
{
    const struct token *token = &tokenizer->tokens[id];
    return json_of_bytes(tokenizer_string(tokenizer, token->content), token->content_length);
}

static void set_flags(struct json *object, const struct text_tokenizer *tokenizer, const struct added_token *token)
{
    json_set(object, "content", content_of(tokenizer, token->id));
    json_set(object, "single_word", json_of_bool(token->single_word));
    json_set(object, "lstrip", json_of_bool(token->lstrip));
    json_set(object, "rstrip", json_of_bool(token->rstrip));
    json_set(object, "normalized", json_of_bool(token->normalized));
    json_set(object, "special", json_of_bool(tokenizer->tokens[token->id].special));
}

static int by_id(const void *a, const void *b)
{
    return ((const struct added_token *)a)->id - ((const struct added_token *)b)->id;
}

/* Added tokens sorted by id, so that a reader that renumbers them gets the same ids. The caller
 * frees the list with memory_free. */
static struct added_token *sorted_added(const struct text_tokenizer *tokenizer)
{
    i64 bytes = tokenizer->added_count * (i64)sizeof *tokenizer->added;
    struct added_token *added = memory_alloc(bytes);
    if (bytes)
        memcpy(added, tokenizer->added, (size_t)bytes);
    qsort(added, (size_t)tokenizer->added_count, sizeof *added, by_id);
    return added;
}

static struct json *added_tokens(const struct text_tokenizer *tokenizer)
{
    struct json *list = json_array();
    struct added_token *added = sorted_added(tokenizer);
    for (i64 i = 0; i < tokenizer->added_count; i++) {
        struct json *object = json_object();
        json_set(object, "id", json_of_integer(added[i].id));
        set_flags(object, tokenizer, &added[i]);
        json_push(list, object);
    }
    memory_free(added);
    return list;
}

static struct json *added_tokens_decoder(const struct text_tokenizer *tokenizer)
{
    struct json *decoder = json_object();
    struct added_token *added = sorted_added(tokenizer);
    for (i64 i = 0; i < tokenizer->added_count; i++) {
        char *id = string_format("%d", (int)added[i].id);
        struct json *object = json_object();
        set_flags(object, tokenizer, &added[i]);
        json_set(decoder, id, object);
        memory_free(id);
    }
    memory_free(added);
    return decoder;
}

static struct json *vocab_of(const struct text_tokenizer *tokenizer)
{
    struct json *vocab = json_object();
    for (i64 id = 0; id < tokenizer->vocabulary; id++)
        if (tokenizer->tokens[id].content >= 0 && tokenizer->tokens[id].in_model)
            json_set(vocab, tokenizer_string(tokenizer, tokenizer->tokens[id].content), json_of_integer(id));
    return vocab;
}

static struct json *scored_vocab_of(const struct text_tokenizer *tokenizer)
{
    struct json *vocab = json_array();
    for (i64 id = 0; id < tokenizer->model_tokens; id++) {
        struct json *pair = json_array();
        json_push(pair, content_of(tokenizer, (i32)id));
        json_push(pair, json_of_number(tokenizer->scores[id]));
        json_push(vocab, pair);
    }
    return vocab;
}

static struct json *merges_of(const struct text_tokenizer *tokenizer)
{
    struct json *merges = json_array();
    for (i64 i = 0; i < tokenizer->merge_count; i++) {
        struct json *pair = json_array();
        json_push(pair, content_of(tokenizer, tokenizer->merges[i].left));
        json_push(pair, content_of(tokenizer, tokenizer->merges[i].right));
        json_push(merges, pair);
    }
    return merges;
}

static struct json *model_of(const struct text_tokenizer *tokenizer)
{
    struct json *model = json_copy(json_get(tokenizer->settings, "model"));
    json_set(model, "vocab", tokenizer->model == &MODEL_UNIGRAM ? scored_vocab_of(tokenizer) : vocab_of(tokenizer));
    if (tokenizer->model == &MODEL_BPE)
        json_set(model, "merges", merges_of(tokenizer));
    return model;
}

static struct json *document_of(const struct text_tokenizer *tokenizer)
{
    static const char *const keys[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    struct json *document = json_object();
    json_set(document, "version", json_of_string("1.0"));
    json_set(document, "truncation", json_of_null());
    json_set(document, "padding", json_of_null());
    json_set(document, "added_tokens", added_tokens(tokenizer));
    for (i64 i = 0; i < COUNT_OF(keys); i++)
        json_set(document, keys[i], json_copy(json_get(tokenizer->settings, keys[i])));
    json_set(document, "model", model_of(tokenizer));
    return document;
}

/* The first of `names` that is in the vocabulary, or null. */
static struct json *first_known_token(const struct text_tokenizer *tokenizer, const char *const *names)
{
    for (; *names; names++)
        if (text_token_id(tokenizer, *names) >= 0)
            return json_of_string(*names);
    return json_of_null();
}

static struct json *config_of(const struct text_tokenizer *tokenizer)
{
    static const char *const begin[] = {"<|begin_of_text|>", "<|bos|>", "<s>", NULL};
    static const char *const end[] = {"<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "</s>", NULL};
    static const char *const pad[] = {"<|pad|>", "<pad>", "<|endoftext|>", "<|end_of_text|>", NULL};
    struct json *config = json_object();
    /* Without this class transformers 4 picks a different tokenizer for some models, and every id
     * is wrong. */
    json_set(config, "tokenizer_class", json_of_string("PreTrainedTokenizerFast"));
    json_set(config, "model_max_length", json_of_integer(131072));
    json_set(config, "bos_token", first_known_token(tokenizer, begin));
    json_set(config, "eos_token", first_known_token(tokenizer, end));
    json_set(config, "pad_token", first_known_token(tokenizer, pad));
    json_set(config, "unk_token", json_of_null());
    json_set(config, "clean_up_tokenization_spaces", json_of_bool(false));
    json_set(config, "added_tokens_decoder", added_tokens_decoder(tokenizer));
    return config;
}

/* Puts the chat templates into the config, whichever files they came from: one as a text, several as
 * a list. */
static void set_templates(struct json *config, const struct text_tokenizer *tokenizer)
{
    const char *name, *text = text_chat_template(tokenizer, 0, &name);
    struct json *list = json_array();
    bool alone = text && strcmp(name, "default") == 0 && !text_chat_template(tokenizer, 1, &name);
    for (i64 i = 0; (text = text_chat_template(tokenizer, i, &name)) != NULL; i++) {
        struct json *one = json_object();
        json_set(one, "name", json_of_string(name));
        json_set(one, "template", json_of_string(text));
        json_push(list, one);
    }
    if (alone)
        json_set(config, "chat_template", json_copy(json_get(json_at(list, 0), "template")));
    else if (json_count(list))
        json_set(config, "chat_template", json_copy(list));
    json_free(list);
}

/* A file of an earlier tokenizer in this folder would take the place of the config's templates. */
static int replace_template_file(const struct text_tokenizer *tokenizer, const char *directory)
{
    char *path = path_join(directory, "chat_template.jinja");
    const char *name, *text;
    int status = 0;
    for (i64 i = 0; file_exists(path) && status == 0 && (text = text_chat_template(tokenizer, i, &name)) != NULL; i++)
        if (strcmp(name, "default") == 0)
            status = file_replace(path, text, (i64)strlen(text));
    memory_free(path);
    return status;
}

static int save_json(const char *directory, const char *name, struct json *value)
{
    char *path = path_join(directory, name);
    int status = json_save(path, value);
    memory_free(path);
    json_free(value);
    return status;
}

/* Saves the original file of another format; tokenizer_config.json holds what that format lacks. */
static int save_raw(const struct text_tokenizer *tokenizer, struct json *config, const char *directory)
{
    char *path = path_join(directory, tokenizer->raw_name);
    json_set(config, "added_tokens_decoder", added_tokens_decoder(tokenizer));
    if (tokenizer->pattern)
        json_set(config, "pat_str", json_of_string(tokenizer->pattern));
    int status = file_replace(path, tokenizer->raw_file.data, tokenizer->raw_file.length);
    memory_free(path);
    return save_json(directory, "tokenizer_config.json", config) || status ? -1 : 0;
}

int text_tokenizer_save(const struct text_tokenizer *tokenizer, const char *directory)
{
    if (directory_make(directory))
        return -1;
    struct json *config = tokenizer->config ? json_copy(tokenizer->config) : config_of(tokenizer);
    set_templates(config, tokenizer);
    if (replace_template_file(tokenizer, directory)) {
        json_free(config);
        return -1;
    }
    if (tokenizer->raw_name)
        return save_raw(tokenizer, config, directory);
    int status = save_json(directory, "tokenizer_config.json", config);
    return status ? status : save_json(directory, "tokenizer.json", document_of(tokenizer));
}
