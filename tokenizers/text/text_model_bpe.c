/* The BPE model: turns a piece into symbols (bytes, or characters with byte fallback and unknowns)
 * and merges them. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- Reading ---- */
static int bad_merge(const struct json_origin *source, i64 i)
{
    return error_set("%s: %s.merges[%lld]: expected [\"LEFT\", \"RIGHT\"] or \"LEFT RIGHT\"", source->origin,
                     source->place, (long long)i);
}

static int read_merge(struct text_tokenizer *tokenizer, const struct json *merge, i64 i,
                      const struct json_origin *source)
{
    const struct json *left = json_at(merge, 0), *right = json_at(merge, 1);
    if (json_kind(merge) == JSON_ARRAY) {
        if (json_count(merge) != 2 || json_kind(left) != JSON_STRING || json_kind(right) != JSON_STRING)
            return bad_merge(source, i);
        return tokenizer_add_merge(tokenizer, json_string(left, ""), json_string_length(left), json_string(right, ""),
                                   json_string_length(right));
    }
    const char *line = json_string(merge, NULL), *space = line ? strchr(line, ' ') : NULL;
    if (line && strncmp(line, "#version", 8) == 0)
        return 0; /* first line of merges.txt, which old converters copied */
    if (!space || strchr(space + 1, ' '))
        return bad_merge(source, i);
    return tokenizer_add_merge(tokenizer, line, space - line, space + 1,
                               line + json_string_length(merge) - (space + 1));
}

static int read_merges(struct text_tokenizer *tokenizer, const struct json *merges, const struct json_origin *source)
{
    struct json_origin place = source_of(source, "merges", -1);
    if (json_kind(merges) != JSON_ARRAY)
        return refuse(&place, merges, "a list of pairs");
    for (i64 i = 0; i < json_count(merges); i++)
        if (read_merge(tokenizer, json_at(merges, i), i, source))
            return -1;
    return 0;
}

static char *affix(const struct json *model, const char *key) /* NULL if there is none */
{
    const struct json *value = json_get(model, key);
    return json_kind(value) == JSON_STRING && json_string_length(value) ? string_copy(json_string(value, "")) : NULL;
}

static int read_bpe(struct text_tokenizer *tokenizer, const struct json *model, const struct json_origin *source)
{
    const struct json *unknown = json_get(model, "unk_token");
    tokenizer->ignore_merges = json_bool(json_get(model, "ignore_merges"), false);
    tokenizer->fuse_unknown = json_bool(json_get(model, "fuse_unk"), false);
    tokenizer->byte_fallback = json_bool(json_get(model, "byte_fallback"), false);
    tokenizer->subword_prefix = affix(model, "continuing_subword_prefix");
    tokenizer->word_suffix = affix(model, "end_of_word_suffix");
    if (model_read_vocab(tokenizer, json_get(model, "vocab"), source) ||
        read_merges(tokenizer, json_get(model, "merges"), source))
        return -1;
    if (json_kind(unknown) == JSON_STRING)
        tokenizer->unknown = tokenizer_find(tokenizer, json_string(unknown, ""), json_string_length(unknown));
    return 0;
}

/* ---- Pairs from tokens ---- */
enum { MOST_CUT_BYTES = 1024 };

/* True for tokens that merges produce and consume. For untyped models these are all but the added
 * ones. */
static bool is_merged(const struct token *token)
{
    return token->content >= 0 && token->in_model &&
           (token->type == 0 || token->type == PIECE_NORMAL || token->type == PIECE_UNUSED);
}

static i32 find_part(const struct text_tokenizer *tokenizer, bool bytes, const char *part, i64 length)
{
    i32 id = string_table_find(bytes ? &tokenizer->by_bytes : &tokenizer->by_content, tokenizer, bytes, part, length);
    return id >= 0 && is_merged(&tokenizer->tokens[id]) ? id : -1;
}

static void push_merge(struct text_tokenizer *tokenizer, struct merge merge)
{
    if (tokenizer->merge_count == tokenizer->merge_capacity) {
        i64 old = tokenizer->merge_capacity, size = (i64)sizeof merge;
        tokenizer->merge_capacity = max_i64(1024, 2 * old);
        tokenizer->merges = memory_resize(tokenizer->merges, old * size, tokenizer->merge_capacity * size);
    }
    tokenizer->merges[tokenizer->merge_count++] = merge;
}

static int cut_token(struct text_tokenizer *tokenizer, i32 id, u32 rank, bool bytes)
{
    const struct token *token = &tokenizer->tokens[id];
    const char *string = tokenizer_string(tokenizer, bytes ? token->bytes : token->content);
    i64 length = bytes ? token->bytes_length : token->content_length;
    if (length > MOST_CUT_BYTES)
        return error_set("%s: token %d has %lld bytes; at most %d are taken", tokenizer->origin, (int)id,
                         (long long)length, MOST_CUT_BYTES);
    for (i64 cut = 1; cut < length; cut++) {
        if (!bytes && (string[cut] & 0xc0) == 0x80)
            continue;
        i32 left = find_part(tokenizer, bytes, string, cut);
        i32 right = left < 0 ? -1 : find_part(tokenizer, bytes, string + cut, length - cut);
        if (right >= 0)
            push_merge(tokenizer, (struct merge){left, right, id, rank});
    }
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->left != y->left ? (x->left < y->left ? -1 : 1) : (x->right > y->right) - (x->right < y->right);
}

int bpe_pairs_from_tokens(struct text_tokenizer *tokenizer, const u32 *ranks, bool bytes)
{
    for (i64 id = 0; id < tokenizer->vocabulary; id++) {
        if (is_merged(&tokenizer->tokens[id]) && cut_token(tokenizer, (i32)id, ranks[id], bytes))
            return -1;
    }
    if (tokenizer->merge_count)
        qsort(tokenizer->merges, (size_t)tokenizer->merge_count, sizeof *tokenizer->merges, by_rank);
    return 0;
}

/* ---- Sealing ---- */
static void find_byte_ids(struct text_tokenizer *tokenizer)
{
    for (int byte = 0; byte < 256; byte++) {
        u8 key[4];
        i32 id = tokenizer_find_model(tokenizer, key, utf8_encode(key, byte_to_char((u8)byte)));
        tokenizer->byte_ids[byte] = id >= 0 ? id : tokenizer->unknown;
    }
}

static void find_byte_pieces(struct text_tokenizer *tokenizer)
{
    tokenizer->has_byte_pieces = true;
    for (int byte = 0; byte < 256; byte++) {
        char *name = string_format("<0x%02X>", byte);
        tokenizer->byte_pieces[byte] = tokenizer_find_model(tokenizer, name, 6);
        tokenizer->has_byte_pieces &= tokenizer->byte_pieces[byte] >= 0;
        memory_free(name);
    }
}

/* Records all neighbours within the model's tokens, not only those of merges: with ignore_merges a
 * whole token is looked up, and a cut must not separate it either. */
static void find_adjacent(struct text_tokenizer *tokenizer)
{
    i64 bytes = 0;
    for (i64 id = 0; id < tokenizer->vocabulary; id++)
        bytes += tokenizer->tokens[id].content >= 0 ? tokenizer->tokens[id].content_length : 0;
    adjacency_init(&tokenizer->adjacency, bytes);
    for (i64 id = 0; id < tokenizer->vocabulary; id++) {
        const struct token *token = &tokenizer->tokens[id];
        if (token->content >= 0 && token->in_model)
            adjacency_add(&tokenizer->adjacency, (const u8 *)tokenizer_string(tokenizer, token->content),
                          token->content_length);
    }
}

static bool merges_by_content(const struct text_tokenizer *tokenizer)
{
    for (i64 i = 0; i < tokenizer->merge_count; i++) {
        i32 parts[] = {tokenizer->merges[i].left, tokenizer->merges[i].right};
        for (int k = 0; k < 2; k++) {
            const struct token *token = &tokenizer->tokens[parts[k]];
            if (parts[k] == tokenizer->unknown ||
                byte_piece(tokenizer_string(tokenizer, token->content), token->content_length) >= 0)
                return false; /* a symbol that is not its own text */
        }
    }
    return true;
}

/* Appends a splitter that cuts where no merge joins, if that is exact. It never cuts at unknown
 * characters, because they may be fused. */
static int add_cutter(struct text_tokenizer *tokenizer)
{
    bool safe =
        !tokenizer->subword_prefix && !tokenizer->word_suffix && !tokenizer->has_unused && merges_by_content(tokenizer);
    if (!safe || tokenizer->splitters.count == MAX_SPLITTERS)
        return 0;
    find_adjacent(tokenizer);
    struct json_origin source = {.origin = tokenizer->origin};
    struct splitter *step = splitters_push(&tokenizer->splitters, &source);
    if (!step)
        return -1;
    step->span = span_of_adjacent;
    step->tokenizer = tokenizer;
    return 0;
}

static void find_bmp_ids(struct text_tokenizer *tokenizer)
{
    tokenizer->bmp_ids = memory_alloc(0x10000 * 4);
    memset(tokenizer->bmp_ids, 0xff, 0x10000 * 4);
    for (i64 id = 0; id < tokenizer->vocabulary; id++) {
        const struct token *token = &tokenizer->tokens[id];
        u32 c;
        if (token->content < 0 || !token->in_model || token->content_length == 0 || token->content_length > 3)
            continue;
        const u8 *content = (const u8 *)tokenizer_string(tokenizer, token->content);
        if (utf8_decode(&c, content) == token->content_length)
            tokenizer->bmp_ids[c] = (i32)id;
    }
}

static bool all_bytes_known(const struct text_tokenizer *tokenizer)
{
    for (int byte = 0; byte < 256; byte++)
        if (tokenizer->byte_ids[byte] < 0 || tokenizer->byte_ids[byte] == tokenizer->unknown)
            return false;
    return true;
}

/* True if ByteLevel is the last step and its rewrite can be skipped, because tokens can be looked
 * up by the bytes they represent. False if a byte lacks a token and its fate depends on its
 * neighbours (fuse_unk or byte_fallback). */
static bool can_work_on_bytes(const struct text_tokenizer *tokenizer)
{
    const struct splitters *chain = &tokenizer->splitters;
    bool plain = !tokenizer->subword_prefix && !tokenizer->word_suffix;
    bool last = chain->count && splitter_is_byte_level(&chain->steps[chain->count - 1]);
    bool alone = !tokenizer->fuse_unknown && !tokenizer->byte_fallback;
    return plain && last && (all_bytes_known(tokenizer) || alone);
}

static int seal_bpe(struct text_tokenizer *tokenizer)
{
    find_byte_ids(tokenizer);
    find_byte_pieces(tokenizer);
    pair_table_init(&tokenizer->pairs, tokenizer->merge_count + 1);
    for (i64 i = 0; i < tokenizer->merge_count; i++) {
        const struct merge *merge = &tokenizer->merges[i];
        pair_table_set(&tokenizer->pairs, merge->left, merge->right, merge->rank, merge->id);
    }
    if (!tokenizer->byte_level && can_work_on_bytes(tokenizer)) {
        splitter_release(&tokenizer->splitters.steps[--tokenizer->splitters.count]);
        tokenizer->byte_level = true;
    }
    for (i64 id = 0; tokenizer->byte_level && tokenizer->ignore_merges && id < tokenizer->vocabulary; id++)
        if (tokenizer->tokens[id].in_model && tokenizer->tokens[id].bytes != tokenizer->tokens[id].content)
            string_table_add(&tokenizer->by_bytes, tokenizer, true, (i32)id);
    if (tokenizer->byte_level)
        return 0;
    find_bmp_ids(tokenizer);
    return add_cutter(tokenizer);
}

/* ---- Bytes ---- */
static int unknown_byte(const struct text_tokenizer *tokenizer, u8 byte)
{
    return error_set(
        "%s: the vocabulary has no token for byte 0x%02x, which the text holds; train it with all 256 bytes",
        tokenizer->origin, byte);
}

static int more_bytes(struct symbol_source *source, struct id_list *symbols, i64 least)
{
    const struct text_tokenizer *tokenizer = source->tokenizer;
    i64 end = min_i64(source->length, source->at + least);
    id_list_reserve(symbols, end - source->at);
    for (; source->at < end; source->at++) {
        i32 id = tokenizer->byte_ids[source->piece[source->at]];
        if (id < 0)
            return unknown_byte(tokenizer, source->piece[source->at]);
        symbols->ids[symbols->count++] = id;
    }
    return 0;
}

static int encode_bytes(const struct text_tokenizer *tokenizer, struct model_scratch *scratch, struct id_list *out,
                        const u8 *piece, i64 length, struct bpe_dropout *dropout)
{
    if (tokenizer->ignore_merges) {
        i32 whole = string_table_find(&tokenizer->by_bytes, tokenizer, true, piece, length);
        if (whole >= 0)
            return id_list_push(out, whole), 0;
    }
    if (length > 2 * BPE_BLOCK) {
        struct symbol_source source = {more_bytes, tokenizer, piece, length};
        return bpe_merge_long(&tokenizer->pairs, &scratch->bpe, &source, out, dropout);
    }
    id_list_reserve(out, length);
    i32 *ids = out->ids + out->count;
    for (i64 i = 0; i < length; i++) {
        ids[i] = tokenizer->byte_ids[piece[i]];
        if (ids[i] < 0)
            return unknown_byte(tokenizer, piece[i]);
    }
    out->count += bpe_merge(&tokenizer->pairs, &scratch->bpe, ids, length, dropout);
    return 0;
}

/* ---- Characters ---- */
static i32 character_id(const struct text_tokenizer *tokenizer, const u8 *at, int bytes, u32 c)
{
    return c < 0x10000 ? tokenizer->bmp_ids[c] : tokenizer_find_model(tokenizer, at, bytes);
}

/* Builds a character with the affixes of its place in the word in `symbol`, and returns its id. */
static i32 affixed_id(const struct text_tokenizer *tokenizer, struct buffer *symbol, const u8 *at, int bytes,
                      bool first, bool last)
{
    buffer_clear(symbol);
    if (!first && tokenizer->subword_prefix)
        buffer_append(symbol, tokenizer->subword_prefix, (i64)strlen(tokenizer->subword_prefix));
    buffer_append(symbol, at, bytes);
    if (last && tokenizer->word_suffix)
        buffer_append(symbol, tokenizer->word_suffix, (i64)strlen(tokenizer->word_suffix));
    return tokenizer_find_model(tokenizer, symbol->data, symbol->length);
}

static bool push_bytes(const struct text_tokenizer *tokenizer, struct id_list *ids, const u8 *bytes, i64 length)
{
    i64 before = ids->count;
    for (i64 i = 0; i < length; i++) {
        i32 id = tokenizer->byte_pieces[bytes[i]];
        if (id < 0)
            return ids->count = before, false;
        id_list_push(ids, id);
    }
    return true;
}

static void flush_unknown(const struct text_tokenizer *tokenizer, struct id_list *ids, bool *pending)
{
    if (*pending)
        id_list_push(ids, tokenizer->unknown);
    *pending = false;
}

/* HF's order: an unknown token is held until the next known character or unknown, so the bytes of
 * a fallback precede it. */
static int push_symbol(const struct text_tokenizer *tokenizer, struct id_list *ids, i32 id, const u8 *symbol,
                       i64 length, bool *pending)
{
    if (id >= 0) {
        flush_unknown(tokenizer, ids, pending);
        id_list_push(ids, id);
        return 0;
    }
    if (tokenizer->byte_fallback && push_bytes(tokenizer, ids, symbol, length))
        return 0;
    if (tokenizer->unknown < 0)
        return unknown_piece(tokenizer, symbol, length);
    if (!tokenizer->fuse_unknown)
        flush_unknown(tokenizer, ids, pending);
    *pending = true;
    return 0;
}

static int more_characters(struct symbol_source *source, struct id_list *ids, i64 least)
{
    const struct text_tokenizer *tokenizer = source->tokenizer;
    bool affixes = tokenizer->subword_prefix || tokenizer->word_suffix;
    struct buffer symbol = {0};
    int status = 0;
    i64 before = ids->count;
    while (source->at < source->length && status == 0 && ids->count - before < least) {
        u32 c;
        const u8 *at = source->piece + source->at;
        int bytes = utf8_decode(&c, at);
        if (affixes) {
            i32 id = affixed_id(tokenizer, &symbol, at, bytes, source->at == 0, source->at + bytes == source->length);
            status = push_symbol(tokenizer, ids, id, (const u8 *)symbol.data, symbol.length, &source->pending);
        } else {
            i32 id = character_id(tokenizer, at, bytes, c);
            status = push_symbol(tokenizer, ids, id, at, bytes, &source->pending);
        }
        source->at += bytes;
    }
    if (source->at == source->length)
        flush_unknown(tokenizer, ids, &source->pending);
    buffer_release(&symbol);
    return status;
}

/* Replaces an unused piece by its latest parts, recursively, as SentencePiece does. */
static void push_used(const struct text_tokenizer *tokenizer, const struct model_scratch *scratch, struct id_list *out,
                      i32 id, int depth)
{
    if (tokenizer->tokens[id].type == PIECE_UNUSED && depth < MOST_CUT_BYTES)
        for (i64 i = 0; i < scratch->bpe.unused_count; i++)
            if (scratch->bpe.unused[i].id == id) {
                push_used(tokenizer, scratch, out, scratch->bpe.unused[i].left, depth + 1);
                push_used(tokenizer, scratch, out, scratch->bpe.unused[i].right, depth + 1);
                return;
            }
    id_list_push(out, id);
}

static int encode_characters(const struct text_tokenizer *tokenizer, struct model_scratch *scratch, struct id_list *out,
                             const u8 *piece, i64 length, struct bpe_dropout *dropout)
{
    struct id_list *symbols = &scratch->symbols;
    symbols->count = 0;
    if (tokenizer->ignore_merges) {
        i32 whole = tokenizer_find_model(tokenizer, piece, length);
        if (whole >= 0)
            return id_list_push(out, whole), 0;
    }
    i32 symbol = tokenizer->user_defined.nodes ? trie_longest(&tokenizer->user_defined, piece, length, &(i64){0}) : -1;
    if (symbol >= 0)
        return id_list_push(out, symbol), 0; /* span_of_kept made it a piece */
    struct symbol_source source = {more_characters, tokenizer, piece, length};
    bool cut = length > 2 * BPE_BLOCK;
    scratch->bpe.unused_count = 0;
    scratch->bpe.unused_types = tokenizer->has_unused ? tokenizer->tokens : NULL;
    if (cut && !tokenizer->has_unused)
        return bpe_merge_long(&tokenizer->pairs, &scratch->bpe, &source, out, dropout);
    if (cut ? bpe_merge_long(&tokenizer->pairs, &scratch->bpe, &source, symbols, dropout)
            : more_characters(&source, symbols, INT64_MAX))
        return -1;
    if (!cut)
        symbols->count = bpe_merge(&tokenizer->pairs, &scratch->bpe, symbols->ids, symbols->count, dropout);
    if (!tokenizer->has_unused) {
        id_list_reserve(out, symbols->count);
        memcpy(out->ids + out->count, symbols->ids, (size_t)symbols->count * sizeof(i32));
        out->count += symbols->count;
        return 0;
    }
    for (i64 i = 0; i < symbols->count; i++)
        push_used(tokenizer, scratch, out, symbols->ids[i], 0);
    return 0;
}

static int encode_bpe(const struct text_tokenizer *tokenizer, struct model_scratch *scratch, struct id_list *out,
                      const u8 *piece, i64 length, struct bpe_dropout *dropout)
{
    return tokenizer->byte_level ? encode_bytes(tokenizer, scratch, out, piece, length, dropout)
                                 : encode_characters(tokenizer, scratch, out, piece, length, dropout);
}

/* ---- Cutting between characters that no merge joins ---- */
static bool is_unknown(const struct text_tokenizer *tokenizer, const u8 *at, int bytes, u32 c)
{
    bool always_bytes = tokenizer->byte_fallback && tokenizer->has_byte_pieces;
    return !always_bytes && character_id(tokenizer, at, bytes, c) < 0;
}

i64 span_of_adjacent(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at, i64 length)
{
    const struct text_tokenizer *tokenizer = splitter->tokenizer;
    const struct adjacency *adjacency = &tokenizer->adjacency;
    u32 left, right;
    cursor->matched = false;
    int bytes = utf8_decode(&left, text + at);
    for (i64 i = at + bytes; i < length; i += bytes, left = right) {
        int before = bytes;
        bytes = utf8_decode(&right, text + i);
        u64 bit = adjacency_bit(adjacency, left, right);
        if (adjacency->bits[bit >> 6] >> (bit & 63) & 1)
            continue;
        if (!is_unknown(tokenizer, text + i - before, before, left) && !is_unknown(tokenizer, text + i, bytes, right))
            return i;
    }
    return length;
}

/* Span of a user-defined SentencePiece symbol, or of the text before the next one. */
i64 span_of_kept(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at, i64 length)
{
    const struct trie *kept = &splitter->tokenizer->user_defined;
    i64 taken;
    cursor->matched = trie_longest(kept, text + at, length - at, &taken) >= 0;
    if (cursor->matched)
        return at + taken;
    for (at++; at < length; at++)
        if ((text[at] & 0xc0) != 0x80 && trie_step(kept, 1, text[at]) &&
            trie_longest(kept, text + at, length - at, &taken) >= 0)
            break;
    return at;
}

const struct model_kind MODEL_BPE = {"BPE", read_bpe, seal_bpe, encode_bpe};
