/* Unigram language models (Kudo 2018, "Subword Regularization"): a Viterbi search finds the
 * segmentation of a piece with the largest sum of scores. Sums have the reference's precision,
 * double (HF) or float (SentencePiece), and the first of equal candidates wins, so that ties break
 * the same way. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double UNKNOWN_PENALTY = 10;

/* ---- Reading ---- */
static int read_piece(struct text_tokenizer *tokenizer, const struct json *pair, i64 id,
                      const struct json_origin *source)
{
    struct json_origin place = source_of(source, "vocab", id);
    const struct json *content = json_at(pair, 0), *score = json_at(pair, 1);
    bool number = json_kind(score) == JSON_INTEGER || json_kind(score) == JSON_REAL;
    if (json_kind(pair) != JSON_ARRAY || json_count(pair) != 2 || json_kind(content) != JSON_STRING || !number)
        return refuse(&place, pair, "[\"TOKEN\", SCORE]");
    if (tokenizer_add(tokenizer, json_string(content, ""), json_string_length(content), id))
        return -1;
    tokenizer->scores[id] = json_number(score, 0);
    tokenizer->least_score = fmin(tokenizer->least_score, tokenizer->scores[id]);
    return 0;
}

static int read_unigram(struct text_tokenizer *tokenizer, const struct json *model, const struct json_origin *source)
{
    const struct json *vocab = json_get(model, "vocab"), *unknown = json_get(model, "unk_id");
    struct json_origin place = source_of(source, "vocab", -1), id_place = source_of(source, "unk_id", -1);
    i64 count = json_count(vocab), id = json_integer(unknown, -1);
    if (json_kind(vocab) != JSON_ARRAY)
        return refuse(&place, vocab, "a list of tokens and their scores");
    if (json_kind(unknown) != JSON_NULL && (id < 0 || id >= count))
        return refuse(&id_place, unknown, "null or an id of the vocabulary");
    tokenizer->byte_fallback = json_bool(json_get(model, "byte_fallback"), false);
    tokenizer->scores = memory_alloc(max_i64(1, count) * 8);
    tokenizer->least_score = INFINITY;
    for (i64 i = 0; i < count; i++)
        if (read_piece(tokenizer, json_at(vocab, i), i, source))
            return -1;
    tokenizer->unknown = (i32)id;
    return 0;
}

static int seal_unigram(struct text_tokenizer *tokenizer)
{
    trie_release(&tokenizer->trie);
    trie_init(&tokenizer->trie);
    tokenizer->longest = 0;
    for (i64 id = 0; id < tokenizer->vocabulary; id++) {
        const struct token *token = &tokenizer->tokens[id];
        if (token->content < 0 || !token->in_model || token->content_length == 0)
            continue;
        if (token->type == PIECE_UNKNOWN || token->type == PIECE_CONTROL || token->type == PIECE_BYTE ||
            token->type == PIECE_UNUSED)
            continue; /* such types never match a text */
        const u8 *content = (const u8 *)tokenizer_string(tokenizer, token->content);
        if (trie_add(&tokenizer->trie, content, token->content_length, (i32)id))
            return error_prefix("%s", tokenizer->origin);
        tokenizer->longest = max_i64(tokenizer->longest, token->content_length);
    }
    for (int byte = 0; byte < 256; byte++) {
        char *name = string_format("<0x%02X>", byte);
        tokenizer->byte_pieces[byte] = tokenizer_find_model(tokenizer, name, 6);
        memory_free(name);
    }
    return 0;
}

/* ---- The best segmentation ----
 *
 * Of each prefix only the length of its last token is kept, which is enough to find the token
 * again. Scores are kept as far as the longest token reaches. */
struct viterbi {
    u16 *steps;
    double *scores;
    i64 mask; /* of the ring of scores */
};

static struct viterbi viterbi_open(const struct text_tokenizer *tokenizer, struct model_scratch *scratch, i64 length)
{
    i64 ring = 64;
    while (ring <= max_i64(4, tokenizer->longest))
        ring *= 2;
    if (ring > scratch->score_capacity) {
        memory_free(scratch->scores);
        scratch->scores = memory_alloc(ring * (i64)sizeof *scratch->scores);
        scratch->score_capacity = ring;
    }
    if (length + 1 > scratch->step_capacity) {
        memory_free(scratch->steps);
        scratch->step_capacity = grown_capacity(length + 1, 256, sizeof *scratch->steps);
        scratch->steps = memory_alloc(scratch->step_capacity * (i64)sizeof *scratch->steps);
    } else {
        memset(scratch->steps, 0, (size_t)(length + 1) * sizeof *scratch->steps);
    }
    scratch->scores[0] = 0;
    return (struct viterbi){scratch->steps, scratch->scores, ring - 1};
}

static inline void relax(struct viterbi *v, i64 end, double score, i64 length)
{
    if (v->steps[end] && !(score > v->scores[end & v->mask]))
        return;
    v->steps[end] = (u16)length;
    v->scores[end & v->mask] = score;
}

static int find_path(const struct text_tokenizer *tokenizer, struct viterbi *v, const u8 *piece, i64 length)
{
    double unknown = tokenizer->least_score - UNKNOWN_PENALTY;
    int bytes;
    for (i64 at = 0; at < length; at += bytes) {
        u32 c, node = 1;
        double here = v->scores[at & v->mask];
        bool single = false;
        bytes = utf8_decode(&c, piece + at);
        for (i64 i = at; i < length && (node = trie_step(&tokenizer->trie, node, piece[i])); i++) {
            i32 id = tokenizer->trie.values[node];
            if (id < 0)
                continue;
            relax(v, i + 1, tokenizer->scores[id] + here, i + 1 - at);
            single |= i + 1 == at + bytes;
        }
        if (!single && tokenizer->unknown < 0)
            return unknown_piece(tokenizer, piece + at, bytes);
        if (!single)
            relax(v, at + bytes, unknown + here, bytes);
    }
    return 0;
}

/* Score of a token in SentencePiece's float arithmetic. A user-defined symbol gets a score that
 * always wins. */
static float score_of(const struct text_tokenizer *tokenizer, i32 id, i64 length)
{
    if (tokenizer->tokens[id].type == PIECE_USER_DEFINED)
        return (float)((float)length * (float)tokenizer->most_score - 0.1);
    return tokenizer->tokens[id].score;
}

static void find_path_float(const struct text_tokenizer *tokenizer, struct viterbi *v, const u8 *piece, i64 length)
{
    float unknown = (float)tokenizer->least_score - (float)UNKNOWN_PENALTY;
    int bytes;
    for (i64 at = 0; at < length; at += bytes) {
        u32 c, node = 1;
        float here = (float)v->scores[at & v->mask];
        bool single = false;
        bytes = utf8_decode(&c, piece + at);
        for (i64 i = at; i < length && (node = trie_step(&tokenizer->trie, node, piece[i])); i++) {
            i32 id = tokenizer->trie.values[node];
            if (id < 0)
                continue;
            relax(v, i + 1, score_of(tokenizer, id, i + 1 - at) + here, i + 1 - at);
            single |= i + 1 == at + bytes;
        }
        if (!single)
            relax(v, at + bytes, unknown + here, bytes);
    }
}

/* Reverses the steps of the best path: each then has the length of the token that begins there. */
static void turn_forward(u16 *steps, i64 length)
{
    u16 next = 0;
    for (i64 at = length; at > 0;) {
        u16 step = steps[at];
        steps[at] = next;
        next = step;
        at -= step;
    }
    steps[0] = next;
}

/* The token that is this text; the unknown one if none is. */
static i32 token_of(const struct text_tokenizer *tokenizer, const u8 *text, i64 length)
{
    u32 node = 1;
    for (i64 i = 0; i < length && node; i++)
        node = trie_step(&tokenizer->trie, node, text[i]);
    i32 id = node ? tokenizer->trie.values[node] : -1;
    return id >= 0 ? id : tokenizer->unknown;
}

/* ---- Ids ---- */
static bool push_bytes(const struct text_tokenizer *tokenizer, struct id_list *out, const u8 *bytes, i64 length)
{
    i64 before = out->count;
    for (i64 i = 0; i < length; i++) {
        i32 id = tokenizer->byte_pieces[bytes[i]];
        if (id < 0)
            return out->count = before, false;
        id_list_push(out, id);
    }
    return true;
}

/* Encodes unknown text. HF first looks it up once more as a whole. */
static void push_unknown(const struct text_tokenizer *tokenizer, struct id_list *out, const u8 *text, i64 length)
{
    i32 id = tokenizer_find_model(tokenizer, text, length);
    if (id >= 0 && tokenizer->model == &MODEL_UNIGRAM)
        id_list_push(out, id);
    else if (!tokenizer->byte_fallback || !push_bytes(tokenizer, out, text, length))
        id_list_push(out, tokenizer->unknown);
}

static void push_best_path(const struct text_tokenizer *tokenizer, u16 *steps, struct id_list *out, const u8 *piece,
                           i64 length)
{
    turn_forward(steps, length);
    for (i64 at = 0; at < length;) {
        i32 id = token_of(tokenizer, piece + at, steps[at]);
        if (id != tokenizer->unknown) {
            id_list_push(out, id);
            at += steps[at];
            continue;
        }
        i64 next = at + steps[at];
        while (next < length && token_of(tokenizer, piece + next, steps[next]) == tokenizer->unknown)
            next += steps[next];
        push_unknown(tokenizer, out, piece + at, next - at);
        at = next;
    }
}

static int encode_unigram(const struct text_tokenizer *tokenizer, struct model_scratch *scratch, struct id_list *out,
                          const u8 *piece, i64 length, struct bpe_dropout *dropout)
{
    (void)dropout;
    struct viterbi v = viterbi_open(tokenizer, scratch, length);
    if (find_path(tokenizer, &v, piece, length))
        return -1;
    push_best_path(tokenizer, v.steps, out, piece, length);
    return 0;
}

static int encode_float(const struct text_tokenizer *tokenizer, struct model_scratch *scratch, struct id_list *out,
                        const u8 *piece, i64 length, struct bpe_dropout *dropout)
{
    (void)dropout;
    struct viterbi v = viterbi_open(tokenizer, scratch, length);
    find_path_float(tokenizer, &v, piece, length);
    push_best_path(tokenizer, v.steps, out, piece, length);
    return 0;
}

/* ---- SentencePiece's words: each from a space mark to the next ---- */
static i64 word_length(const u8 *text, i64 length)
{
    static const u8 mark[] = {0xe2, 0x96, 0x81};
    for (i64 i = 1; i + (i64)sizeof mark <= length; i++)
        if (memcmp(text + i, mark, sizeof mark) == 0)
            return i;
    return length;
}

/* Encodes words; consecutive unknown ones become one token. */
static int encode_words(const struct text_tokenizer *tokenizer, struct model_scratch *scratch, struct id_list *out,
                        const u8 *piece, i64 length, struct bpe_dropout *dropout)
{
    (void)scratch, (void)dropout;
    bool was_known = true;
    for (i64 at = 0, bytes; at < length; at += bytes) {
        bytes = word_length(piece + at, length - at);
        i32 id = tokenizer_find_model(tokenizer, piece + at, bytes);
        bool known = id >= 0 && id != tokenizer->unknown && tokenizer->tokens[id].type != PIECE_CONTROL;
        if (known)
            id_list_push(out, id);
        else if (was_known || tokenizer->byte_fallback)
            push_unknown(tokenizer, out, piece + at, bytes);
        was_known = known;
    }
    return 0;
}

const struct model_kind MODEL_UNIGRAM = {"Unigram", read_unigram, seal_unigram, encode_unigram};
const struct model_kind MODEL_SENTENCEPIECE_UNIGRAM = {"SentencePiece unigram", NULL, seal_unigram, encode_float};
const struct model_kind MODEL_SENTENCEPIECE_WORD = {"SentencePiece word", NULL, seal_unigram, encode_words};
