/* Text to ids: added tokens on the raw text, NFC, added tokens that ask for normalised text, pieces, merges.
 *
 * Words come back: an encoder remembers the ids of short ones. Encoders are lent to calls and kept by the tokenizer, so
 * short texts find a warm one; what they remember never changes a result. */
#include "tokenizers/text_internal.h"

#include <pthread.h>
#include <string.h>

enum { WORD_BITS = 16, WORD_BYTES = 15, WORD_IDS = 4, MAX_PIECE_BYTES = 1 << 29 };

/* Up to 15 bytes of text, then their number in the low half of the last byte; its high half is the number of ids.
 * Empty: all 0. */
struct word {
    u64 low, high;
    i32 ids[WORD_IDS];
};
static const u64 COUNT_BITS = (u64)0xf0 << 56;

struct encoder {
    struct encoder *next;
    struct word *words;
    i32 *ids; /* of the piece being merged */
    i64 id_capacity;
    struct bpe_scratch bpe;
    struct text normal, prefixed;
    struct regex_scratch *regex;
};
struct encoder_pool {
    pthread_mutex_t lock;
    struct encoder *free;
};

struct encode_call {
    const struct text_tokenizer *tokenizer;
    struct encoder *encoder;
    struct id_list *out;
    struct bpe_dropout drop, *dropout; /* NULL: none */
};

/* ---- Lists and encoders ---- */
static void id_list_reserve(struct id_list *list, i64 more)
{
    if (list->count + more <= list->capacity)
        return;
    i64 capacity = max_i64(list->count + more, max_i64(64, 2 * list->capacity));
    list->ids = memory_resize(list->ids, list->count * (i64)sizeof(i32), capacity * (i64)sizeof(i32));
    list->capacity = capacity;
}

void id_list_push(struct id_list *list, i32 id)
{
    id_list_reserve(list, 1);
    list->ids[list->count++] = id;
}

void id_list_release(struct id_list *list)
{
    memory_free(list->ids);
    *list = (struct id_list){0};
}

struct encoder_pool *encoder_pool_open(void)
{
    struct encoder_pool *pool = memory_alloc(sizeof *pool);
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

static void encoder_close(struct encoder *encoder)
{
    memory_free(encoder->words);
    memory_free(encoder->ids);
    memory_free(encoder->bpe.memory);
    text_release(&encoder->normal);
    text_release(&encoder->prefixed);
    regex_scratch_close(encoder->regex);
    memory_free(encoder);
}

void encoder_pool_close(struct encoder_pool *pool)
{
    for (struct encoder *encoder = pool->free, *next; encoder; encoder = next) {
        next = encoder->next;
        encoder_close(encoder);
    }
    pthread_mutex_destroy(&pool->lock);
    memory_free(pool);
}

static struct encoder *encoder_take(struct encoder_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    struct encoder *encoder = pool->free;
    if (encoder)
        pool->free = encoder->next;
    pthread_mutex_unlock(&pool->lock);
    if (encoder)
        return encoder;
    encoder = memory_alloc(sizeof *encoder);
    encoder->words = memory_alloc(((i64)1 << WORD_BITS) * (i64)sizeof(struct word));
    encoder->regex = regex_scratch_open();
    return encoder;
}

static void encoder_give_back(struct encoder_pool *pool, struct encoder *encoder)
{
    pthread_mutex_lock(&pool->lock);
    encoder->next = pool->free;
    pool->free = encoder;
    pthread_mutex_unlock(&pool->lock);
}

/* ---- Words ---- */
static int unknown_byte(const struct text_tokenizer *tokenizer, u8 byte)
{
    return error_set(
        "%s: the vocabulary has no token for byte 0x%02x, which the text holds; train it with all 256 bytes",
        tokenizer->origin, byte);
}

/* The piece's ids, left in encoder->ids; their number, or -1. */
static i64 merge_piece(struct encode_call *call, const u8 *piece, i64 length)
{
    const struct text_tokenizer *tokenizer = call->tokenizer;
    struct encoder *encoder = call->encoder;
    if (length > MAX_PIECE_BYTES)
        return error_set("a piece of the text has %lld bytes without a place to cut; at most %d are taken",
                         (long long)length, MAX_PIECE_BYTES);
    if (length > encoder->id_capacity) {
        memory_free(encoder->ids);
        encoder->id_capacity = max_i64(256, 2 * length);
        encoder->ids = memory_alloc(encoder->id_capacity * (i64)sizeof(i32));
    }
    if (tokenizer->ignore_merges) {
        encoder->ids[0] = string_table_find(&tokenizer->by_bytes, tokenizer, true, piece, length);
        if (encoder->ids[0] >= 0)
            return 1;
    }
    for (i64 i = 0; i < length; i++) {
        encoder->ids[i] = tokenizer->byte_ids[piece[i]];
        if (encoder->ids[i] < 0)
            return unknown_byte(tokenizer, piece[i]);
    }
    return bpe_merge(&tokenizer->pairs, &encoder->bpe, encoder->ids, length, call->dropout);
}

/* The first 15 bytes at `piece`, those past `length` 0, and the length. `readable` bytes may be read. */
static inline void word_key(u64 *low, u64 *high, const u8 *piece, i64 length, i64 readable)
{
    u64 key[2] = {0, 0};
    memcpy(key, piece, readable >= 16 ? 16 : (size_t)length);
    if (length < 8) {
        key[0] &= ((u64)1 << 8 * length) - 1;
        key[1] = 0;
    } else {
        key[1] &= ((u64)1 << 8 * (length - 8)) - 1;
    }
    *low = key[0];
    *high = key[1] | (u64)length << 56;
}

static inline struct word *word_slot(struct encoder *encoder, u64 low, u64 high)
{
    u64 hash = (low ^ (high * 0x9e3779b97f4a7c15u)) * 0xd6e8feb86659fd93u;
    hash ^= hash >> 32;
    return &encoder->words[(hash * 0x9e3779b97f4a7c15u) >> (64 - WORD_BITS)];
}

static int encode_new_piece(struct encode_call *call, const u8 *piece, i64 length, struct word *slot, u64 low, u64 high)
{
    i64 count = merge_piece(call, piece, length);
    if (count < 0)
        return -1;
    id_list_reserve(call->out, count);
    memcpy(call->out->ids + call->out->count, call->encoder->ids, (size_t)count * sizeof(i32));
    call->out->count += count;
    if (!slot || count > WORD_IDS)
        return 0;
    *slot = (struct word){low, high | (u64)count << 60};
    memcpy(slot->ids, call->encoder->ids, (size_t)count * sizeof(i32));
    return 0;
}

static inline int encode_piece(struct encode_call *call, const u8 *piece, i64 length, i64 readable)
{
    if (length > WORD_BYTES || call->dropout)
        return encode_new_piece(call, piece, length, NULL, 0, 0);
    u64 low, high;
    word_key(&low, &high, piece, length, readable);
    struct word *slot = word_slot(call->encoder, low, high);
    struct id_list *out = call->out;
    if (slot->low != low || (slot->high & ~COUNT_BITS) != high)
        return encode_new_piece(call, piece, length, slot, low, high);
    id_list_reserve(out, WORD_IDS);
    memcpy(out->ids + out->count, slot->ids, sizeof slot->ids);
    out->count += (i64)(slot->high >> 60);
    return 0;
}

/* ---- Pieces ---- */
static int encode_split(struct encode_call *call, int step, const u8 *text, i64 length);

static int encode_prefixed(struct encode_call *call, int step, const u8 *text, i64 length)
{
    struct text *prefixed = &call->encoder->prefixed;
    if (text[0] == ' ')
        return encode_split(call, step + 1, text, length);
    text_clear(prefixed);
    text_append(prefixed, " ", 1);
    text_append(prefixed, text, length);
    return encode_split(call, step + 1, (const u8 *)prefixed->data, prefixed->length);
}

static int encode_split(struct encode_call *call, int step, const u8 *text, i64 length)
{
    const struct text_tokenizer *tokenizer = call->tokenizer;
    if (step == tokenizer->splitter_count)
        return encode_piece(call, text, length, length);
    const struct splitter *splitter = &tokenizer->splitters[step];
    if (splitter->kind == SPLIT_PREFIX_SPACE)
        return encode_prefixed(call, step, text, length);
    struct split_cursor cursor = {call->encoder->regex};
    bool last = step + 1 == tokenizer->splitter_count;
    int status = 0;
    for (i64 at = 0; at < length && status == 0;) {
        i64 end = splitter_next(splitter, &cursor, text, at, length);
        if (end < 0)
            return -1;
        if (end > at)
            status = last ? encode_piece(call, text + at, end - at, length - at)
                          : encode_split(call, step + 1, text + at, end - at);
        at = end;
    }
    return status;
}

/* ---- Added tokens ---- */
/* First of order[low..high) whose byte at `depth` is `byte` or more. */
static i64 narrow(const struct text_tokenizer *tokenizer, const struct matcher *matcher, i64 low, i64 high, i64 depth,
                  int byte)
{
    while (low < high) {
        i64 middle = low + (high - low) / 2;
        const struct added_token *token = &tokenizer->added[matcher->order[middle]];
        if ((u8)tokenizer_string(tokenizer, token->match)[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest added token at text[0], NULL if there is none. */
static const struct added_token *longest_at(const struct text_tokenizer *tokenizer, const struct matcher *matcher,
                                            const u8 *text, i64 length)
{
    const struct added_token *best = NULL;
    i64 low = matcher->first[text[0]], high = matcher->first[text[0] + 1];
    for (i64 depth = 1; low < high; depth++) {
        const struct added_token *token = &tokenizer->added[matcher->order[low]];
        if (token->match_length == depth)
            best = token;
        while (low < high && tokenizer->added[matcher->order[low]].match_length == depth)
            low++;
        if (depth == length)
            break;
        low = narrow(tokenizer, matcher, low, high, depth, text[depth]);
        high = narrow(tokenizer, matcher, low, high, depth, text[depth] + 1);
    }
    return best;
}

static const struct added_token *next_added(i64 *at, const struct text_tokenizer *tokenizer,
                                            const struct matcher *matcher, const u8 *text, i64 length)
{
    for (i64 i = *at; i < length; i++) {
        if (matcher->first[text[i]] == matcher->first[text[i] + 1])
            continue;
        const struct added_token *token = longest_at(tokenizer, matcher, text + i, length - i);
        if (token)
            return *at = i, token;
    }
    return NULL;
}

static bool class_before(const u8 *text, i64 at, u8 class)
{
    u32 c;
    return at > 0 && (utf8_decode(&c, text + utf8_before(text, at)), char_class(unicode_classes(), c) & class);
}

static bool class_after(const u8 *text, i64 at, i64 length, u8 class)
{
    u32 c;
    return at < length && (utf8_decode(&c, text + at), char_class(unicode_classes(), c) & class);
}

typedef int segment_fn(struct encode_call *call, const u8 *text, i64 length);

/* Ids for the matcher's tokens, `segment` for what is between them. */
static int encode_around(struct encode_call *call, const struct matcher *matcher, segment_fn *segment, const u8 *text,
                         i64 length)
{
    i64 done = 0, at = 0;
    const struct added_token *token;
    while (matcher->count && (token = next_added(&at, call->tokenizer, matcher, text, length))) {
        i64 begin = at, end = at + token->match_length;
        at = end;
        if (token->single_word && (class_before(text, begin, CHAR_WORD) || class_after(text, end, length, CHAR_WORD)))
            continue;
        while (token->lstrip && begin > done && class_before(text, begin, CHAR_SPACE))
            begin = utf8_before(text, begin);
        while (token->rstrip && class_after(text, end, length, CHAR_SPACE)) {
            u32 c;
            end += utf8_decode(&c, text + end);
        }
        if (done < begin && segment(call, text + done, begin - done))
            return -1;
        id_list_push(call->out, token->id);
        done = end;
    }
    return done < length ? segment(call, text + done, length - done) : 0;
}

static int encode_normal(struct encode_call *call, const u8 *text, i64 length)
{
    return encode_split(call, 0, text, length);
}

static int encode_raw(struct encode_call *call, const u8 *text, i64 length)
{
    struct text *normal = &call->encoder->normal;
    if (call->tokenizer->nfc && unicode_nfc(normal, text, length))
        text = (const u8 *)normal->data, length = normal->length;
    return encode_around(call, &call->tokenizer->normalized, encode_normal, text, length);
}

static int encode_plain(struct encode_call *call, const u8 *text, i64 length)
{
    struct text *normal = &call->encoder->normal;
    if (call->tokenizer->nfc && unicode_nfc(normal, text, length))
        text = (const u8 *)normal->data, length = normal->length;
    return length ? encode_normal(call, text, length) : 0;
}

static int encode(struct encode_call *call, const struct encode_options *o, const u8 *text, i64 length)
{
    return o->plain ? encode_plain(call, text, length)
                    : encode_around(call, &call->tokenizer->raw, encode_raw, text, length);
}

static int encode_after_space(struct encode_call *call, const struct encode_options *o, const u8 *text, i64 length)
{
    struct text spaced = {0};
    text_append(&spaced, " ", 1);
    text_append(&spaced, (const char *)text, length);
    int status = encode(call, o, (const u8 *)spaced.data, spaced.length);
    text_release(&spaced);
    return status;
}

static void push_all(struct id_list *out, const i32 *ids, i64 count)
{
    for (i64 i = 0; i < count; i++)
        id_list_push(out, ids[i]);
}

int text_encode(const struct text_tokenizer *tokenizer, struct id_list *out, const char *text, i64 length,
                const struct encode_options *options)
{
    static const struct encode_options defaults = {0};
    const struct encode_options *o = options ? options : &defaults;
    const u8 *bytes = (const u8 *)text;
    i64 before = out->count, invalid = utf8_invalid_at(bytes, length);
    if (invalid >= 0)
        return error_set("text is not UTF-8 at byte %lld (0x%02x); convert it first", (long long)invalid,
                         bytes[invalid]);
    struct encode_call call = {
        tokenizer, encoder_take(tokenizer->encoders), out, {o->dropout, o->key, o->document, 0}, NULL};
    if (o->dropout > 0)
        call.dropout = &call.drop;
    if (o->add_template)
        push_all(out, tokenizer->template_before, tokenizer->before_count);
    bool spaced = o->begins_word && length && *bytes != ' ' && *bytes != '\n' && *bytes != '\t';
    int status = spaced ? encode_after_space(&call, o, bytes, length) : encode(&call, o, bytes, length);
    if (o->add_template)
        push_all(out, tokenizer->template_after, tokenizer->after_count);
    encoder_give_back(tokenizer->encoders, call.encoder);
    if (status)
        out->count = before;
    return status;
}
