/* Encoding: text to ids. The stages are added tokens in the raw text, normalization, added tokens
 * in the normalized text, pieces, merges.
 *
 * Words repeat, so an encoder caches the ids of short words. The tokenizer owns a pool of encoders
 * and lends one to each call, so that short texts find a warm cache. The cache never changes a
 * result. */
#include "tokenizers/text/text_internal.h"

#include <pthread.h>
#include <string.h>

enum { WORD_BITS = 16, WORD_BYTES = 15, WORD_IDS = 4, MAX_PIECE_BYTES = 1 << 29, LONG_TEXT_BYTES = 1 << 22 };

/* Cache entry. The key is up to 15 bytes of text; the last byte holds their number in its low half
 * and the number of ids in its high half. An empty entry is all 0. */
struct text_encode_word {
    u64 low, high;
    i32 ids[WORD_IDS];
};
static const u64 COUNT_BITS = (u64)0xf0 << 56;

struct encoder {
    struct encoder *next;
    struct text_encode_word *words;
    struct model_scratch model;
    struct buffer normal[2], rewritten[MAX_SPLITTERS];
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
    const struct encode_options *options;
    const i64 *barred; /* those of the options not passed yet */
    i64 barred_count, borders_done;
    struct bpe_dropout drop, *dropout;    /* NULL: none */
    i64 length, rewritten[MAX_SPLITTERS]; /* bytes of the text, and of what each step has rewritten */
};

/* ---- Lists and encoders ---- */
void id_list_reserve(struct id_list *list, i64 more)
{
    if (list->count + more <= list->capacity)
        return;
    i64 capacity = grown_capacity(list->capacity, max_i64(list->count + more, 64), sizeof(i32));
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

static void encoder_release_buffers(struct encoder *encoder)
{
    bpe_scratch_release(&encoder->model.bpe);
    memory_free(encoder->model.steps);
    memory_free(encoder->model.scores);
    id_list_release(&encoder->model.symbols);
    encoder->model = (struct model_scratch){0};
    buffer_release(&encoder->normal[0]);
    buffer_release(&encoder->normal[1]);
    for (int i = 0; i < MAX_SPLITTERS; i++)
        buffer_release(&encoder->rewritten[i]);
}

static void encoder_close(struct encoder *encoder)
{
    memory_free(encoder->words);
    encoder_release_buffers(encoder);
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

static struct encoder *encoder_acquire(struct encoder_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    struct encoder *encoder = pool->free;
    if (encoder)
        pool->free = encoder->next;
    pthread_mutex_unlock(&pool->lock);
    if (encoder)
        return encoder;
    encoder = memory_alloc(sizeof *encoder);
    encoder->words = memory_alloc(((i64)1 << WORD_BITS) * (i64)sizeof(struct text_encode_word));
    encoder->regex = regex_scratch_open();
    return encoder;
}

static void encoder_return(struct encoder_pool *pool, struct encoder *encoder)
{
    pthread_mutex_lock(&pool->lock);
    encoder->next = pool->free;
    pool->free = encoder;
    pthread_mutex_unlock(&pool->lock);
}

/* ---- Words ---- */
static int merge_piece(struct encode_call *call, const u8 *piece, i64 length)
{
    const struct text_tokenizer *tokenizer = call->tokenizer;
    if (length > MAX_PIECE_BYTES)
        return error_set("a piece of the text has %lld bytes without a place to cut; at most %d are taken",
                         (long long)length, MAX_PIECE_BYTES);
    return tokenizer->model->encode(tokenizer, &call->encoder->model, call->out, piece, length, call->dropout);
}

/* Packs the first 15 bytes of `piece`, zero past `length`, and the length into a key. `readable`
 * bytes may be read. */
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

static inline struct text_encode_word *word_slot(struct encoder *encoder, u64 low, u64 high)
{
    u64 hash = (low ^ (high * 0x9e3779b97f4a7c15u)) * 0xd6e8feb86659fd93u;
    hash ^= hash >> 32;
    return &encoder->words[(hash * 0x9e3779b97f4a7c15u) >> (64 - WORD_BITS)];
}

static int encode_new_piece(struct encode_call *call, const u8 *piece, i64 length, struct text_encode_word *slot,
                            u64 low, u64 high)
{
    struct id_list *out = call->out;
    i64 before = out->count;
    if (merge_piece(call, piece, length))
        return -1;
    i64 count = out->count - before;
    if (!slot || count > WORD_IDS)
        return 0;
    *slot = (struct text_encode_word){low, high | (u64)count << 60};
    memcpy(slot->ids, out->ids + before, (size_t)count * sizeof(i32));
    return 0;
}

static inline int encode_piece(struct encode_call *call, const u8 *piece, i64 length, i64 readable)
{
    if (length > WORD_BYTES || call->dropout)
        return encode_new_piece(call, piece, length, NULL, 0, 0);
    u64 low, high;
    word_key(&low, &high, piece, length, readable);
    struct text_encode_word *slot = word_slot(call->encoder, low, high);
    struct id_list *out = call->out;
    if (slot->low != low || (slot->high & ~COUNT_BITS) != high)
        return encode_new_piece(call, piece, length, slot, low, high);
    id_list_reserve(out, WORD_IDS);
    memcpy(out->ids + out->count, slot->ids, sizeof slot->ids);
    out->count += (i64)(slot->high >> 60);
    return 0;
}

/* ---- Pieces ---- */
static int encode_split(struct encode_call *call, int step, const u8 *text, i64 length, bool first);

static int encode_rewritten(struct encode_call *call, int step, const u8 *text, i64 length, bool first)
{
    const struct splitter *splitter = &call->tokenizer->splitters.steps[step];
    struct buffer *out = &call->encoder->rewritten[step];
    buffer_clear(out);
    if (splitter->rewrite(splitter, out, text, length, first))
        text = (const u8 *)out->data, length = out->length;
    call->rewritten[step] += length;
    if (call->rewritten[step] > most_grown(call->length))
        return refuse_growth(call->tokenizer->origin, splitter->place ? splitter->place : "pre_tokenizer",
                             call->length);
    return encode_split(call, step + 1, text, length, first);
}

/* Encodes each piece as the splitter returns it; joins and drops none. */
static int encode_isolated(struct encode_call *call, int step, const u8 *text, i64 length, bool first)
{
    const struct splitter *splitter = &call->tokenizer->splitters.steps[step];
    struct split_cursor cursor = {call->encoder->regex};
    bool last = step + 1 == call->tokenizer->splitters.count;
    int status = 0;
    for (i64 at = 0; at < length && status == 0;) {
        i64 end = splitter_next(splitter, &cursor, text, at, length);
        if (end < 0)
            return -1;
        if (end > at)
            status = last ? encode_piece(call, text + at, end - at, length - at)
                          : encode_split(call, step + 1, text + at, end - at, first && at == 0);
        at = end;
    }
    return status;
}

static int encode_joined(struct encode_call *call, int step, const u8 *text, i64 length, bool first)
{
    const struct splitter *splitter = &call->tokenizer->splitters.steps[step];
    struct split_cursor cursor = {call->encoder->regex};
    i64 at = 0, begin, end;
    int found;
    while ((found = splitter_piece(splitter, &cursor, text, length, &at, &begin, &end)) > 0)
        if (encode_split(call, step + 1, text + begin, end - begin, first && begin == 0))
            return -1;
    return found;
}

static int encode_split(struct encode_call *call, int step, const u8 *text, i64 length, bool first)
{
    const struct splitters *chain = &call->tokenizer->splitters;
    if (step == chain->count)
        return encode_piece(call, text, length, length);
    if (chain->steps[step].rewrite)
        return encode_rewritten(call, step, text, length, first);
    return chain->steps[step].behavior == BEHAVIOR_ISOLATED ? encode_isolated(call, step, text, length, first)
                                                            : encode_joined(call, step, text, length, first);
}

/* ---- Text between added tokens ---- */
static void push_token(struct encode_call *call, const struct added_match *match)
{
    id_list_push(call->out, match->token->id);
}

/* Encodes normalized text that contains no added token. */
static int encode_range(struct encode_call *call, const struct normalized_text *normal, i64 begin, i64 end)
{
    bool first = normal->origin > 0 && begin == 0;
    return begin < end ? encode_split(call, 0, normal->text + begin, end - begin, first) : 0;
}

static int encode_normal(struct encode_call *call, const struct normalized_text *normal, bool plain)
{
    const struct matcher *matcher = &call->tokenizer->normalized;
    struct added_cursor cursor = {.plain = plain};
    struct added_match match;
    i64 done = 0;
    while (added_next(&match, &cursor, call->tokenizer, matcher, normal->text, normal->length)) {
        if (encode_range(call, normal, done, match.begin))
            return -1;
        push_token(call, &match);
        done = match.end;
    }
    return encode_range(call, normal, done, normal->length);
}

static int encode_unbarred(struct encode_call *call, const u8 *text, i64 length, bool first)
{
    struct normalized_text normal = {text, length, 0};
    u32 c;
    if (length == 0)
        return 0;
    if (first)
        normal.origin = utf8_decode(&c, text);
    if (normalizers_apply(&call->tokenizer->normalizers, &normal, call->encoder->normal, call->encoder->regex))
        return -1;
    return encode_normal(call, &normal, call->options->plain);
}

/* Encodes text without raw added tokens. Where a token that is found after normalization may not
 * begin, the text is cut behind the first character, so that no such token is found. */
static int encode_stretch(struct encode_call *call, const u8 *text, i64 begin, i64 end, bool first)
{
    for (; call->barred_count && *call->barred < end; call->barred++, call->barred_count--) {
        u32 c;
        if (*call->barred < begin || !call->tokenizer->normalized.count)
            continue;
        i64 cut = *call->barred + utf8_decode(&c, text + *call->barred);
        if (encode_unbarred(call, text + begin, cut - begin, first))
            return -1;
        begin = cut;
        first = false;
    }
    return encode_unbarred(call, text + begin, end - begin, first);
}

/* ---- Borders ---- */

/* Sets the ids of a border inside of the stretch from `begin`, whose ids are out[from ..]. The text
 * before the border is encoded by itself. Where that gives other ids, a token spans the border, and
 * the bytes that the ids decode to tell which. */
static int find_border(struct text_border *border, struct encode_call *call, const u8 *text, i64 begin, i64 from,
                       bool first)
{
    struct id_list *all = call->out, before = {0};
    struct encode_call inner = *call;
    inner.out = &before;
    inner.barred = call->options->barred;
    inner.barred_count = call->options->barred_count;
    int status = encode_stretch(&inner, text, begin, border->at, first);
    const i32 *ids = all->ids + from;
    i64 count = all->count - from, same = 0;
    while (same < before.count && same < count && ids[same] == before.ids[same])
        same++;
    border->begun = border->ended = from + same;
    if (status == 0 && same < before.count) {
        i64 bytes = text_decoded_bytes(call->tokenizer, before.ids, before.count), decoded = -1;
        while (same < count && (decoded = text_decoded_bytes(call->tokenizer, ids, same)) < bytes) {
            border->ended = from + same;
            border->begun = from + ++same;
        }
        if (same == count)
            decoded = text_decoded_bytes(call->tokenizer, ids, count);
        if (decoded == bytes)
            border->ended = border->begun;
    }
    id_list_release(&before);
    return status;
}

/* Sets the borders before `end`, behind the stretch from `begin` whose ids are out[from ..]. */
static int find_borders(struct encode_call *call, const u8 *text, i64 begin, i64 end, i64 from, bool first)
{
    const struct encode_options *o = call->options;
    for (; call->borders_done < o->border_count && o->borders[call->borders_done].at < end; call->borders_done++) {
        struct text_border *border = &o->borders[call->borders_done];
        border->begun = border->ended = from;
        if (border->at > begin && find_border(border, call, text, begin, from, first))
            return -1;
    }
    return 0;
}

/* Sets the borders inside of an added token, whose id is the last one. */
static void pass_token(struct encode_call *call, i64 begin, i64 end)
{
    const struct encode_options *o = call->options;
    for (; call->borders_done < o->border_count && o->borders[call->borders_done].at < end; call->borders_done++) {
        struct text_border *border = &o->borders[call->borders_done];
        border->ended = call->out->count - 1;
        border->begun = border->at > begin ? call->out->count : call->out->count - 1;
    }
}

static int encode(struct encode_call *call, const struct encode_options *o, const u8 *text, i64 length)
{
    struct added_cursor cursor = {.plain = o->plain, .barred = o->barred, .barred_count = o->barred_count};
    struct added_match match;
    i64 done = 0, from = call->out->count;
    bool first = !o->inside;
    while (added_next(&match, &cursor, call->tokenizer, &call->tokenizer->raw, text, length)) {
        if (encode_stretch(call, text, done, match.begin, first) ||
            find_borders(call, text, done, match.begin, from, first))
            return -1;
        push_token(call, &match);
        pass_token(call, match.begin, match.end);
        done = match.end;
        from = call->out->count;
        first = false;
    }
    return encode_stretch(call, text, done, length, first) || find_borders(call, text, done, length + 1, from, first)
               ? -1
               : 0;
}

static int encode_after_space(struct encode_call *call, const struct encode_options *o, const u8 *text, i64 length)
{
    struct buffer spaced = {0};
    buffer_append(&spaced, " ", 1);
    buffer_append(&spaced, (const char *)text, length);
    int status = encode(call, o, (const u8 *)spaced.data, spaced.length);
    buffer_release(&spaced);
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
    struct encode_call call = {.tokenizer = tokenizer,
                               .encoder = encoder_acquire(tokenizer->encoders),
                               .out = out,
                               .options = o,
                               .barred = o->barred,
                               .barred_count = o->barred_count,
                               .drop = {o->dropout, o->key, o->document, 0},
                               .length = length};
    if (o->dropout > 0)
        call.dropout = &call.drop;
    if (o->add_template)
        push_all(out, tokenizer->template_before, tokenizer->before_count);
    bool spaced = o->begins_word && length && *bytes != ' ' && *bytes != '\n' && *bytes != '\t';
    int status = spaced ? encode_after_space(&call, o, bytes, length) : encode(&call, o, bytes, length);
    if (o->add_template)
        push_all(out, tokenizer->template_after, tokenizer->after_count);
    for (i64 i = 0; i < o->border_count; i++)
        o->borders[i].begun -= before, o->borders[i].ended -= before;
    if (length > LONG_TEXT_BYTES)
        encoder_release_buffers(call.encoder);
    encoder_return(tokenizer->encoders, call.encoder);
    if (status)
        out->count = before;
    return status;
}
