/* The tokenizer as tables: tokens by id and by content, merges, added tokens. text_load.c or
 * text_train.c fills and seals it once; afterwards it is read-only. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ID = 1 << 22 }; /* a larger id means a corrupt file */

/* ---- Bytes as printable characters (GPT-2) ---- */
static bool byte_is_printable(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

u32 byte_to_char(u8 byte)
{
    if (byte_is_printable(byte))
        return byte;
    u32 c = 0x100; /* the others, in order */
    for (int b = 0; b < byte; b++)
        c += !byte_is_printable(b);
    return c;
}

int char_to_byte(u32 c)
{
    if (c < 0x100)
        return byte_is_printable((int)c) ? (int)c : -1;
    u32 next = 0x100;
    for (int b = 0; b < 256 && c < 0x100 + 68; b++)
        if (!byte_is_printable(b) && next++ == c)
            return b;
    return -1;
}

/* ---- Strings to ids ---- */
static const char *token_key(const struct text_tokenizer *tokenizer, i32 id, bool bytes, i64 *length)
{
    const struct token *token = &tokenizer->tokens[id];
    *length = bytes ? token->bytes_length : token->content_length;
    return tokenizer->strings.data + (bytes ? token->bytes : token->content);
}

static u64 string_slot(const struct string_table *table, const struct text_tokenizer *tokenizer, bool bytes,
                       const void *key, i64 length)
{
    u64 i = hash_bytes(key, length, 0);
    for (;; i++) {
        i32 id = table->slots[i & table->mask];
        i64 found_length;
        if (id < 0)
            return i & table->mask;
        const char *found = token_key(tokenizer, id, bytes, &found_length);
        if (found_length == length && memcmp(found, key, (size_t)length) == 0)
            return i & table->mask;
    }
}

i32 string_table_find(const struct string_table *table, const struct text_tokenizer *tokenizer, bool bytes,
                      const void *key, i64 length)
{
    return table->slots ? table->slots[string_slot(table, tokenizer, bytes, key, length)] : -1;
}

static void string_table_grow(struct string_table *table, const struct text_tokenizer *tokenizer, bool bytes)
{
    struct string_table old = *table;
    i64 slots = old.slots ? 2 * ((i64)old.mask + 1) : 1024;
    *table = (struct string_table){memory_alloc(slots * (i64)sizeof(i32)), (u64)slots - 1, old.count};
    memset(table->slots, 0xff, (size_t)slots * sizeof(i32));
    for (u64 i = 0; old.slots && i <= old.mask; i++) {
        i64 length;
        if (old.slots[i] < 0)
            continue;
        const char *key = token_key(tokenizer, old.slots[i], bytes, &length);
        table->slots[string_slot(table, tokenizer, bytes, key, length)] = old.slots[i];
    }
    memory_free(old.slots);
}

/* Adds a token; an existing token with the same content stays. */
void string_table_add(struct string_table *table, const struct text_tokenizer *tokenizer, bool bytes, i32 id)
{
    if (!table->slots || 2 * (table->count + 1) > (i64)table->mask + 1)
        string_table_grow(table, tokenizer, bytes);
    i64 length;
    const char *key = token_key(tokenizer, id, bytes, &length);
    u64 slot = string_slot(table, tokenizer, bytes, key, length);
    table->count += table->slots[slot] < 0;
    if (table->slots[slot] < 0)
        table->slots[slot] = id;
}

/* ---- Filling ---- */
struct text_tokenizer *tokenizer_new(const char *origin)
{
    struct text_tokenizer *tokenizer = memory_alloc(sizeof *tokenizer);
    tokenizer->origin = string_copy(origin);
    tokenizer->classes = unicode_classes();
    tokenizer->unknown = -1;
    tokenizer->encoders = encoder_pool_open();
    return tokenizer;
}

void text_tokenizer_free(struct text_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    for (int i = 0; i < tokenizer->splitters.count; i++)
        splitter_release(&tokenizer->splitters.steps[i]);
    normalizers_release(&tokenizer->normalizers);
    decoders_release(&tokenizer->decoders);
    trie_release(&tokenizer->trie);
    trie_release(&tokenizer->continuing);
    trie_release(&tokenizer->user_defined);
    encoder_pool_close(tokenizer->encoders);
    json_free(tokenizer->settings);
    json_free(tokenizer->config);
    json_free(tokenizer->chat_templates);
    buffer_release(&tokenizer->strings);
    buffer_release(&tokenizer->raw_file);
    void *blocks[] = {
        tokenizer->tokens,          tokenizer->by_content.slots, tokenizer->by_bytes.slots, tokenizer->merges,
        tokenizer->added,           tokenizer->pairs.slots,      tokenizer->raw.order,      tokenizer->normalized.order,
        tokenizer->template_before, tokenizer->template_after,   tokenizer->origin,         tokenizer->adjacency.bits,
        tokenizer->scores,          tokenizer->bmp_ids,          tokenizer->subword_prefix, tokenizer->word_suffix,
        tokenizer->pattern,         tokenizer->begin_token,      tokenizer->end_token};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
    memory_free(tokenizer);
}

const char *tokenizer_string(const struct text_tokenizer *tokenizer, i64 offset)
{
    return tokenizer->strings.data + offset;
}

i64 tokenizer_keep_string(struct text_tokenizer *tokenizer, const char *bytes, i64 length)
{
    i64 offset = tokenizer->strings.length;
    buffer_append(&tokenizer->strings, bytes, length);
    buffer_append(&tokenizer->strings, "", 1);
    return offset;
}

i32 tokenizer_find(const struct text_tokenizer *tokenizer, const char *content, i64 length)
{
    return string_table_find(&tokenizer->by_content, tokenizer, false, content, length);
}

i32 tokenizer_find_model(const struct text_tokenizer *tokenizer, const void *content, i64 length)
{
    i32 id = tokenizer_find(tokenizer, content, length);
    return id >= 0 && tokenizer->tokens[id].in_model ? id : -1;
}

/* Sets the bytes a token decodes to: its characters as bytes, or the string itself if a character
 * represents no byte. */
static void token_decode(struct text_tokenizer *tokenizer, struct token *token, i64 string, i64 length)
{
    struct buffer bytes = {0};
    const u8 *content = (const u8 *)tokenizer_string(tokenizer, string);
    for (i64 i = 0; i < length;) {
        u32 c;
        i += utf8_decode(&c, content + i);
        int byte = char_to_byte(c);
        if (byte < 0) {
            token->bytes = string, token->bytes_length = length;
            buffer_release(&bytes);
            return;
        }
        buffer_append(&bytes, &(char){(char)byte}, 1);
    }
    token->bytes_length = bytes.length;
    token->bytes = tokenizer_keep_string(tokenizer, bytes.length ? bytes.data : "", bytes.length);
    buffer_release(&bytes);
}

static void reserve_ids(struct text_tokenizer *tokenizer, i64 vocabulary)
{
    i64 old = tokenizer->token_capacity;
    if (vocabulary > old) {
        i64 capacity = max_i64(vocabulary, 2 * old);
        i64 size = (i64)sizeof *tokenizer->tokens;
        tokenizer->tokens = memory_resize(tokenizer->tokens, old * size, capacity * size);
        for (i64 i = old; i < capacity; i++)
            tokenizer->tokens[i].content = -1;
        tokenizer->token_capacity = capacity;
    }
    tokenizer->vocabulary = max_i64(tokenizer->vocabulary, vocabulary);
}

static int put_token(struct text_tokenizer *tokenizer, const char *content, i64 length, i64 id)
{
    if (id < 0 || id >= MAX_ID)
        return error_set("%s: token '%s' has id %lld; ids go from 0 to %d", tokenizer->origin, content, (long long)id,
                         MAX_ID - 1);
    if (length > MOST_TOKEN_BYTES)
        return error_set("%s: token %lld has %lld bytes; at most %d are taken", tokenizer->origin, (long long)id,
                         (long long)length, MOST_TOKEN_BYTES);
    if (memchr(content, 0, (size_t)length) || utf8_invalid_at((const u8 *)content, length) >= 0)
        return error_set("%s: token %lld holds a 0 byte or is not UTF-8", tokenizer->origin, (long long)id);
    reserve_ids(tokenizer, id + 1);
    struct token *token = &tokenizer->tokens[id];
    if (token->content >= 0)
        return error_set("%s: id %lld is given to '%s' and to '%s'; every token needs its own", tokenizer->origin,
                         (long long)id, tokenizer_string(tokenizer, token->content), content);
    token->content = tokenizer_keep_string(tokenizer, content, length);
    token->content_length = length;
    token->shown = token->content, token->shown_length = length;
    token_decode(tokenizer, token, token->content, length);
    string_table_add(&tokenizer->by_content, tokenizer, false, (i32)id);
    return 0;
}

int tokenizer_add(struct text_tokenizer *tokenizer, const char *content, i64 length, i64 id)
{
    if (tokenizer_find(tokenizer, content, length) >= 0)
        return error_set("%s: duplicate token '%s' in the vocabulary", tokenizer->origin, content);
    if (put_token(tokenizer, content, length, id))
        return -1;
    tokenizer->tokens[id].in_model = true;
    tokenizer->model_tokens++;
    tokenizer->added_next = tokenizer->model_tokens;
    return 0;
}

static int unknown_in_merge(const struct text_tokenizer *tokenizer, const char *part, i64 length)
{
    return error_set("%s: model.merges[%lld]: '%.*s' is not in model.vocab; the file is damaged or of another version",
                     tokenizer->origin, (long long)tokenizer->merge_count, (int)min_i64(length, 200), part);
}

int tokenizer_add_merge(struct text_tokenizer *tokenizer, const char *left, i64 left_length, const char *right,
                        i64 right_length)
{
    struct merge merge = {tokenizer_find_model(tokenizer, left, left_length),
                          tokenizer_find_model(tokenizer, right, right_length), -1, (u32)tokenizer->merge_count};
    i64 prefix = tokenizer->subword_prefix ? (i64)strlen(tokenizer->subword_prefix) : 0;
    if (merge.left < 0)
        return unknown_in_merge(tokenizer, left, left_length);
    if (merge.right < 0)
        return unknown_in_merge(tokenizer, right, right_length);
    if (right_length < prefix)
        return error_set("%s: model.merges[%lld]: '%.*s' is shorter than continuing_subword_prefix", tokenizer->origin,
                         (long long)tokenizer->merge_count, (int)right_length, right);
    struct buffer both = {0};
    buffer_append(&both, left, left_length);
    buffer_append(&both, right + prefix, right_length - prefix);
    merge.id = tokenizer_find_model(tokenizer, both.data, both.length);
    int status = merge.id < 0 ? unknown_in_merge(tokenizer, both.data, both.length) : 0;
    buffer_release(&both);
    if (status)
        return -1;
    if (tokenizer->merge_count == tokenizer->merge_capacity) {
        i64 old = tokenizer->merge_capacity, size = (i64)sizeof merge;
        tokenizer->merge_capacity = max_i64(1024, 2 * old);
        tokenizer->merges = memory_resize(tokenizer->merges, old * size, tokenizer->merge_capacity * size);
    }
    tokenizer->merges[tokenizer->merge_count++] = merge;
    return 0;
}

static void push_added(struct text_tokenizer *tokenizer, struct added_token token)
{
    if (tokenizer->added_count == tokenizer->added_capacity) {
        i64 old = tokenizer->added_capacity, size = (i64)sizeof token;
        tokenizer->added_capacity = max_i64(16, 2 * old);
        tokenizer->added = memory_resize(tokenizer->added, old * size, tokenizer->added_capacity * size);
    }
    tokenizer->added[tokenizer->added_count++] = token;
}

/* Sets the search string of an added token, which is normalized if the token's flag is set. If
 * normalization changes it, the token also decodes to the changed string and is no longer skipped
 * as special, as in HF. */
static int set_match(struct text_tokenizer *tokenizer, struct added_token *added)
{
    struct token *token = &tokenizer->tokens[added->id];
    struct buffer content = {0}, buffers[2] = {{0}};
    struct regex_scratch *scratch = regex_scratch_open();
    buffer_append(&content, tokenizer_string(tokenizer, token->content), token->content_length);
    struct normalized_text normal = {(const u8 *)content.data, content.length, 0};
    int status = added->normalized ? normalizers_apply(&tokenizer->normalizers, &normal, buffers, scratch) : 0;
    bool differs = normal.length != content.length || memcmp(normal.text, content.data, (size_t)normal.length) != 0;
    added->match = token->content, added->match_length = token->content_length;
    if (status == 0 && differs) {
        added->match = tokenizer_keep_string(tokenizer, (const char *)normal.text, normal.length);
        added->match_length = normal.length;
        token->shown = added->match, token->shown_length = added->match_length;
        token_decode(tokenizer, token, added->match, normal.length);
    }
    token->skipped = token->special && !differs;
    buffer_release(&content);
    buffer_release(&buffers[0]);
    buffer_release(&buffers[1]);
    regex_scratch_close(scratch);
    return status;
}

static int note_added(struct text_tokenizer *tokenizer, i64 id, struct added_flags flags)
{
    tokenizer->tokens[id].special |= flags.special;
    if (tokenizer->tokens[id].added)
        return 0;
    tokenizer->tokens[id].added = true;
    struct added_token token = {(i32)id, 0, 0, flags.single_word, flags.lstrip, flags.rstrip, flags.normalized};
    if (set_match(tokenizer, &token))
        return -1;
    push_added(tokenizer, token);
    if (id >= tokenizer->model_tokens)
        tokenizer->added_next = max_i64(tokenizer->added_next, id + 1);
    return 0;
}

i64 tokenizer_add_added_at(struct text_tokenizer *tokenizer, const char *content, i64 length, struct added_flags flags,
                           i64 id)
{
    i32 known = tokenizer_find(tokenizer, content, length);
    if (known >= 0 && known != id)
        return error_set("%s: added token '%s' has id %lld, but the vocabulary gives it %d", tokenizer->origin, content,
                         (long long)id, (int)known);
    if (known < 0 && put_token(tokenizer, content, length, id))
        return -1;
    return note_added(tokenizer, id, flags) ? -1 : id;
}

i64 tokenizer_add_added(struct text_tokenizer *tokenizer, const char *content, i64 length, struct added_flags flags)
{
    i64 id = tokenizer_find(tokenizer, content, length);
    if (id < 0) {
        id = tokenizer->added_next;
        while (id < tokenizer->vocabulary && tokenizer->tokens[id].content >= 0)
            id++; /* model.vocab has holes */
    }
    return tokenizer_add_added_at(tokenizer, content, length, flags, id);
}

/* ---- Sealing ---- */
static int check_template(const struct text_tokenizer *tokenizer, const i32 *ids, i64 count)
{
    for (i64 i = 0; i < count; i++)
        if (!text_token_content(tokenizer, ids[i]))
            return error_set("%s: post_processor: id %d belongs to no token", tokenizer->origin, (int)ids[i]);
    return 0;
}

int tokenizer_seal(struct text_tokenizer *tokenizer)
{
    if (check_template(tokenizer, tokenizer->template_before, tokenizer->before_count) ||
        check_template(tokenizer, tokenizer->template_after, tokenizer->after_count))
        return -1;
    if (tokenizer->model_tokens == 0)
        return error_set("%s: model.vocab is empty; expected tokens with their ids", tokenizer->origin);
    if (tokenizer->model->seal && tokenizer->model->seal(tokenizer))
        return -1;
    tokenizer->decodes_bytes =
        decoders_are_byte_level(&tokenizer->decoders) || (tokenizer->decoders.count == 0 && tokenizer->byte_level);
    matcher_init(&tokenizer->raw, tokenizer, false);
    matcher_init(&tokenizer->normalized, tokenizer, true);
    return 0;
}

int text_tokenizer_add_special(struct text_tokenizer *tokenizer, const char *const *contents)
{
    struct added_flags flags = {.special = true};
    for (; *contents; contents++)
        if (**contents && tokenizer_add_added(tokenizer, *contents, (i64)strlen(*contents), flags) < 0)
            return -1;
    matcher_init(&tokenizer->raw, tokenizer, false);
    matcher_init(&tokenizer->normalized, tokenizer, true);
    return 0;
}

/* ---- Queries ---- */
i64 text_vocabulary(const struct text_tokenizer *tokenizer)
{
    return tokenizer->vocabulary;
}

i32 text_token_id(const struct text_tokenizer *tokenizer, const char *content)
{
    return tokenizer_find(tokenizer, content, (i64)strlen(content));
}

static const struct token *token_at(const struct text_tokenizer *tokenizer, i32 id)
{
    bool known = id >= 0 && id < tokenizer->vocabulary && tokenizer->tokens[id].content >= 0;
    return known ? &tokenizer->tokens[id] : NULL;
}

const char *text_token_content(const struct text_tokenizer *tokenizer, i32 id)
{
    const struct token *token = token_at(tokenizer, id);
    return token ? tokenizer_string(tokenizer, token->content) : NULL;
}

bool text_token_is_special(const struct text_tokenizer *tokenizer, i32 id)
{
    const struct token *token = token_at(tokenizer, id);
    return token && token->special;
}

bool text_token_is_added(const struct text_tokenizer *tokenizer, i32 id)
{
    const struct token *token = token_at(tokenizer, id);
    return token && token->added;
}

i64 text_merge(const struct text_tokenizer *tokenizer, i64 i, i32 *left, i32 *right)
{
    if (i >= 0 && i < tokenizer->merge_count) {
        *left = tokenizer->merges[i].left;
        *right = tokenizer->merges[i].right;
    }
    return tokenizer->merge_count;
}

const char *text_regex_family(const struct text_tokenizer *tokenizer)
{
    static const char *const names[] = {"qwen2", "llama-bpe", "gpt-2"};
    const struct splitters *chain = &tokenizer->splitters;
    bool known = tokenizer->byte_level && chain->count == 1 && chain->steps[0].kind <= SPLIT_GPT2;
    return known ? names[chain->steps[0].kind] : "other";
}

bool text_is_byte_level(const struct text_tokenizer *tokenizer)
{
    return tokenizer->byte_level;
}

const char *text_model_name(const struct text_tokenizer *tokenizer)
{
    return tokenizer->model->name;
}

bool text_normalizes_nfc(const struct text_tokenizer *tokenizer)
{
    return normalizers_are_nfc(&tokenizer->normalizers);
}
