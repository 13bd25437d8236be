/* WordPiece takes the longest token, then repeatedly the longest one that continues the word; a
 * word that cannot be completed is unknown as a whole. WordLevel looks up whole words. This file
 * also holds helpers that all models share. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

int unknown_piece(const struct text_tokenizer *tokenizer, const u8 *piece, i64 length)
{
    return error_set("%s: the vocabulary has no token for '%.*s', which the text holds, and the model no unknown token",
                     tokenizer->origin, (int)min_i64(length, 100), (const char *)piece);
}

int model_read_vocab(struct text_tokenizer *tokenizer, const struct json *vocab, const struct json_origin *source)
{
    struct json_iterator at;
    struct json_origin place = source_of(source, "vocab", -1);
    if (json_kind(vocab) != JSON_OBJECT)
        return refuse(&place, vocab, "an object of tokens and their ids");
    for (bool more = json_first(&at, vocab); more; more = json_next(&at, vocab)) {
        if (json_kind(at.value) != JSON_INTEGER)
            return error_set("%s: %s: token '%s' has no integer id", source->origin, place.place, at.key);
        if (tokenizer_add(tokenizer, at.key, (i64)strlen(at.key), json_integer(at.value, -1)))
            return -1;
    }
    return 0;
}

static int read_words(struct text_tokenizer *tokenizer, const struct json *model, const struct json_origin *source,
                      const char *unknown_default)
{
    const char *unknown = json_string(json_get(model, "unk_token"), unknown_default);
    if (model_read_vocab(tokenizer, json_get(model, "vocab"), source))
        return -1;
    tokenizer->unknown = tokenizer_find(tokenizer, unknown, (i64)strlen(unknown));
    return 0;
}

static int read_wordlevel(struct text_tokenizer *tokenizer, const struct json *model, const struct json_origin *source)
{
    return read_words(tokenizer, model, source, "<unk>");
}

static int read_wordpiece(struct text_tokenizer *tokenizer, const struct json *model, const struct json_origin *source)
{
    tokenizer->subword_prefix = string_copy(json_string(json_get(model, "continuing_subword_prefix"), "##"));
    tokenizer->most_characters = json_integer(json_get(model, "max_input_chars_per_word"), 100);
    return read_words(tokenizer, model, source, "[UNK]");
}

static int seal_wordpiece(struct text_tokenizer *tokenizer)
{
    const char *prefix = tokenizer->subword_prefix;
    i64 prefix_length = (i64)strlen(prefix);
    trie_release(&tokenizer->trie);
    trie_release(&tokenizer->continuing);
    trie_init(&tokenizer->trie);
    trie_init(&tokenizer->continuing);
    for (i64 id = 0; id < tokenizer->vocabulary; id++) {
        const struct token *token = &tokenizer->tokens[id];
        if (token->content < 0 || !token->in_model || token->content_length == 0)
            continue;
        const char *content = tokenizer_string(tokenizer, token->content);
        bool continues = token->content_length > prefix_length && strncmp(content, prefix, (size_t)prefix_length) == 0;
        if (trie_add(&tokenizer->trie, (const u8 *)content, token->content_length, (i32)id) ||
            (continues && trie_add(&tokenizer->continuing, (const u8 *)content + prefix_length,
                                   token->content_length - prefix_length, (i32)id)))
            return error_prefix("%s", tokenizer->origin);
    }
    return 0;
}

static i64 count_characters(const u8 *text, i64 length)
{
    i64 count = 0;
    for (i64 i = 0; i < length; i++)
        count += (text[i] & 0xc0) != 0x80;
    return count;
}

static int push_unknown(const struct text_tokenizer *tokenizer, struct id_list *out, const u8 *piece, i64 length)
{
    if (tokenizer->unknown < 0)
        return unknown_piece(tokenizer, piece, length);
    id_list_push(out, tokenizer->unknown);
    return 0;
}

static int encode_wordpiece(const struct text_tokenizer *tokenizer, struct model_scratch *scratch, struct id_list *out,
                            const u8 *piece, i64 length, struct bpe_dropout *dropout)
{
    (void)scratch, (void)dropout;
    i64 before = out->count, taken;
    if (count_characters(piece, length) > tokenizer->most_characters)
        return push_unknown(tokenizer, out, piece, length);
    for (i64 at = 0; at < length; at += taken) {
        const struct trie *trie = at ? &tokenizer->continuing : &tokenizer->trie;
        i32 id = trie_longest(trie, piece + at, length - at, &taken);
        if (id < 0) {
            out->count = before;
            return push_unknown(tokenizer, out, piece, length);
        }
        id_list_push(out, id);
    }
    return 0;
}

static int encode_wordlevel(const struct text_tokenizer *tokenizer, struct model_scratch *scratch, struct id_list *out,
                            const u8 *piece, i64 length, struct bpe_dropout *dropout)
{
    (void)scratch, (void)dropout;
    i32 id = tokenizer_find_model(tokenizer, piece, length);
    if (id < 0)
        return push_unknown(tokenizer, out, piece, length);
    id_list_push(out, id);
    return 0;
}

const struct model_kind MODEL_WORDPIECE = {"WordPiece", read_wordpiece, seal_wordpiece, encode_wordpiece};
const struct model_kind MODEL_WORDLEVEL = {"WordLevel", read_wordlevel, NULL, encode_wordlevel};

const struct model_kind *model_kind_find(const struct json *model, const struct json_origin *source)
{
    static const struct model_kind *const kinds[] = {&MODEL_BPE, &MODEL_UNIGRAM, &MODEL_WORDPIECE, &MODEL_WORDLEVEL};
    const char *known[COUNT_OF(kinds) + 1], *name = kind_of(model);
    if (json_kind(model) == JSON_OBJECT && !json_get(model, "type") && json_get(model, "merges"))
        return &MODEL_BPE; /* older files lack the type */
    for (i64 i = 0; i < COUNT_OF(kinds); i++)
        if (strcmp(name, kinds[i]->name) == 0)
            return kinds[i];
    for (i64 i = 0; i < COUNT_OF(kinds); i++)
        known[i] = kinds[i]->name;
    known[COUNT_OF(kinds)] = NULL;
    refuse_kind(source, name, known);
    return NULL;
}
