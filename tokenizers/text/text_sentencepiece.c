/* SentencePiece .model files (Kudo and Richardson 2018): a protobuf of pieces with scores and
 * types, normalizer rules and the model type. They become the same chain as a tokenizer.json, with
 * some steps of their own. */
#include "sentencepiece.pb-c.h"
#include "tokenizers/text/text_internal.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_TYPE_UNIGRAM = 1, MODEL_TYPE_BPE = 2, MODEL_TYPE_WORD = 3, MODEL_TYPE_CHAR = 4 };

bool sentencepiece_looks_like(const void *bytes, i64 length)
{
    return length > 2 && *(const u8 *)bytes == 0x0a && ((const u8 *)bytes)[2] == 0x0a; /* piece and string tags */
}

/* ---- Pieces ---- */
static int bad_piece(const struct text_tokenizer *tokenizer, i64 id, const char *what)
{
    return error_set("%s: piece %lld %s; the file is damaged or no SentencePiece model", tokenizer->origin,
                     (long long)id, what);
}

static int read_piece(struct text_tokenizer *tokenizer, const Sentencepiece__Piece *piece, i64 id)
{
    if (piece->piece.len == 0)
        return bad_piece(tokenizer, id, "is empty");
    if (piece->type < PIECE_NORMAL || piece->type > PIECE_BYTE)
        return bad_piece(tokenizer, id, "is of no known type");
    if (!(piece->score == piece->score))
        return bad_piece(tokenizer, id, "has no number for a score");
    char *content = memory_alloc((i64)piece->piece.len + 1);
    memcpy(content, piece->piece.data, piece->piece.len);
    int status = tokenizer_add(tokenizer, content, (i64)piece->piece.len, id);
    bool byte = byte_piece(content, (i64)piece->piece.len) >= 0;
    memory_free(content);
    if (status)
        return -1;
    if (piece->type == PIECE_BYTE && !byte)
        return bad_piece(tokenizer, id, "is of type BYTE but not <0x00> to <0xFF>");
    struct token *token = &tokenizer->tokens[id];
    token->score = piece->score;
    token->type = (u8)piece->type;
    token->special = token->skipped = piece->type == PIECE_CONTROL || piece->type == PIECE_UNKNOWN;
    if (piece->type == PIECE_UNKNOWN && tokenizer->unknown >= 0)
        return bad_piece(tokenizer, id, "is a second one of type UNKNOWN");
    if (piece->type == PIECE_UNKNOWN)
        tokenizer->unknown = (i32)id;
    return 0;
}

static int read_pieces(struct text_tokenizer *tokenizer, const Sentencepiece__Model *model)
{
    trie_init(&tokenizer->user_defined);
    for (i64 id = 0; id < (i64)model->n_pieces; id++) {
        const Sentencepiece__Piece *piece = model->pieces[id];
        if (read_piece(tokenizer, piece, id))
            return -1;
        if (piece->type == PIECE_USER_DEFINED &&
            trie_add(&tokenizer->user_defined, piece->piece.data, (i64)piece->piece.len, (i32)id))
            return error_prefix("%s", tokenizer->origin);
    }
    return tokenizer->unknown >= 0
               ? 0
               : error_set("%s: no piece is of type UNKNOWN; the file is damaged or no SentencePiece model",
                           tokenizer->origin);
}

/* Checks that all 256 byte pieces exist with byte_fallback, and none without. */
static int check_bytes(const struct text_tokenizer *tokenizer)
{
    bool found[256] = {false};
    i64 count = 0;
    for (i64 id = 0; id < tokenizer->vocabulary; id++) {
        const struct token *token = &tokenizer->tokens[id];
        if (token->type == PIECE_BYTE)
            found[byte_piece(tokenizer_string(tokenizer, token->content), token->content_length)] = true;
    }
    for (int byte = 0; byte < 256; byte++)
        count += found[byte];
    if (count == (tokenizer->byte_fallback ? 256 : 0))
        return 0;
    return error_set("%s: byte_fallback is %s, but %lld of 256 byte pieces are there", tokenizer->origin,
                     tokenizer->byte_fallback ? "true" : "false", (long long)count);
}

/* ---- Models ---- */
static bool is_merged(const struct token *token)
{
    return token->type == PIECE_NORMAL || token->type == PIECE_UNUSED;
}

/* Refuses a piece with a character that is not a piece itself: SentencePiece could merge it, but
 * it has no id here. */
static int check_characters(const struct text_tokenizer *tokenizer)
{
    for (i64 id = 0; id < tokenizer->vocabulary; id++) {
        const struct token *token = &tokenizer->tokens[id];
        const char *content = tokenizer_string(tokenizer, token->content);
        i64 bytes;
        for (i64 i = 0; is_merged(token) && i < token->content_length; i += bytes) {
            u32 c;
            bytes = utf8_decode(&c, (const u8 *)content + i);
            if (bytes < token->content_length && tokenizer_find_model(tokenizer, content + i, bytes) < 0)
                return error_set("%s: piece %lld '%s' holds '%.*s', which is no piece itself; this is not supported",
                                 tokenizer->origin, (long long)id, content, (int)bytes, content + i);
        }
    }
    return 0;
}

struct scored_piece {
    float score;
    i32 id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored_piece *x = a, *y = b;
    return x->score != y->score ? (x->score > y->score ? -1 : 1) : x->id - y->id;
}

/* Rank of each piece: the number of distinct better scores. */
static u32 *ranks_of(const struct text_tokenizer *tokenizer)
{
    i64 count = tokenizer->vocabulary;
    struct scored_piece *order = memory_alloc(count * (i64)sizeof *order);
    u32 *ranks = memory_alloc(count * 4), rank = 0;
    for (i64 id = 0; id < count; id++)
        order[id] = (struct scored_piece){tokenizer->tokens[id].score, (i32)id};
    qsort(order, (size_t)count, sizeof *order, by_score);
    for (i64 i = 0; i < count; i++) {
        rank += i && order[i].score != order[i - 1].score;
        ranks[order[i].id] = rank;
    }
    memory_free(order);
    return ranks;
}

static int make_bpe(struct text_tokenizer *tokenizer, bool merges)
{
    tokenizer->model = &MODEL_BPE;
    tokenizer->fuse_unknown = true;
    if (tokenizer->user_defined.nodes > 2) {
        struct json_origin source = {.origin = tokenizer->origin};
        struct splitter *step = splitters_push(&tokenizer->splitters, &source);
        step->span = span_of_kept;
        step->tokenizer = tokenizer;
    }
    for (i64 id = 0; merges && id < tokenizer->vocabulary; id++)
        tokenizer->has_unused |= tokenizer->tokens[id].type == PIECE_UNUSED;
    if (!merges)
        return 0;
    if (check_characters(tokenizer))
        return -1;
    u32 *ranks = ranks_of(tokenizer);
    int status = bpe_pairs_from_tokens(tokenizer, ranks, false);
    memory_free(ranks);
    return status;
}

static int make_unigram(struct text_tokenizer *tokenizer)
{
    tokenizer->model = &MODEL_SENTENCEPIECE_UNIGRAM;
    float least = FLT_MAX, most = FLT_MIN; /* smallest positive number, SentencePiece's initial value */
    for (i64 id = 0; id < tokenizer->vocabulary; id++) {
        const struct token *token = &tokenizer->tokens[id];
        if (token->type == PIECE_NORMAL && token->score < least)
            least = token->score;
        if (token->type == PIECE_NORMAL && token->score > most)
            most = token->score;
    }
    tokenizer->least_score = least;
    tokenizer->most_score = most;
    return 0;
}

static int make_model(struct text_tokenizer *tokenizer, int type)
{
    if (type == MODEL_TYPE_UNIGRAM)
        return make_unigram(tokenizer);
    if (type == MODEL_TYPE_BPE || type == MODEL_TYPE_CHAR)
        return make_bpe(tokenizer, type == MODEL_TYPE_BPE);
    if (type == MODEL_TYPE_WORD) {
        tokenizer->model = &MODEL_SENTENCEPIECE_WORD;
        return 0;
    }
    return error_set("%s: trainer_spec.model_type is %d; expected 1 (unigram), 2 (bpe), 3 (word) or 4 (char)",
                     tokenizer->origin, type);
}

/* ---- Rules ---- */
static int read_rules(struct text_tokenizer *tokenizer, const Sentencepiece__Normalizer *normalizer,
                      const Sentencepiece__Trainer *trainer)
{
    struct sentencepiece_rules rules = {
        .kept = tokenizer->user_defined.nodes > 2 ? &tokenizer->user_defined : NULL,
        .add_dummy_prefix = normalizer->add_dummy_prefix,
        .remove_extra_whitespaces = normalizer->remove_extra_whitespaces,
        .escape_whitespaces = normalizer->escape_whitespaces,
        .whitespace_as_suffix = trainer->treat_whitespace_as_suffix,
    };
    if (normalizer->precompiled_charsmap.len) {
        rules.charsmap = charsmap_open(normalizer->precompiled_charsmap.data, (i64)normalizer->precompiled_charsmap.len,
                                       tokenizer->origin);
        if (!rules.charsmap)
            return -1;
    }
    normalizers_add_sentencepiece(&tokenizer->normalizers, &rules);
    return 0;
}

static void add_decoder(struct text_tokenizer *tokenizer, const Sentencepiece__Normalizer *normalizer,
                        const Sentencepiece__Trainer *trainer)
{
    bool given = trainer->has_unk_surface;
    char *unknown = given ? string_format("%.*s", (int)trainer->unk_surface.len, (char *)trainer->unk_surface.data)
                          : string_copy(" \xe2\x81\x87 ");
    bool first = normalizer->add_dummy_prefix || normalizer->remove_extra_whitespaces;
    decoders_add_sentencepiece(&tokenizer->decoders, first, normalizer->remove_extra_whitespaces, unknown);
    memory_free(unknown);
}

static int build(struct text_tokenizer *tokenizer, const Sentencepiece__Model *model)
{
    static const Sentencepiece__Trainer no_trainer = SENTENCEPIECE__TRAINER__INIT;
    static const Sentencepiece__Normalizer no_normalizer = SENTENCEPIECE__NORMALIZER__INIT;
    const Sentencepiece__Trainer *trainer = model->trainer_spec ? model->trainer_spec : &no_trainer;
    const Sentencepiece__Normalizer *normalizer = model->normalizer_spec ? model->normalizer_spec : &no_normalizer;
    if (model->denormalizer_spec && model->denormalizer_spec->precompiled_charsmap.len)
        return error_set("%s: denormalizer_spec is not supported; expected none", tokenizer->origin);
    tokenizer->byte_fallback = trainer->byte_fallback;
    if (read_pieces(tokenizer, model) || check_bytes(tokenizer) || make_model(tokenizer, trainer->model_type) ||
        read_rules(tokenizer, normalizer, trainer))
        return -1;
    add_decoder(tokenizer, normalizer, trainer);
    tokenizer->begin_token = string_copy(trainer->bos_piece);
    tokenizer->end_token = string_copy(trainer->eos_piece);
    return 0;
}

struct text_tokenizer *sentencepiece_parse(const void *bytes, i64 length, const char *origin)
{
    Sentencepiece__Model *model = sentencepiece__model__unpack(NULL, (size_t)length, bytes);
    if (!model) {
        error_set("%s: not a SentencePiece model: the protobuf ends early or is damaged", origin);
        return NULL;
    }
    struct text_tokenizer *tokenizer = tokenizer_new(origin);
    int status = build(tokenizer, model);
    sentencepiece__model__free_unpacked(model, NULL);
    if (status) {
        text_tokenizer_free(tokenizer);
        return NULL;
    }
    buffer_append(&tokenizer->raw_file, bytes, length);
    tokenizer->raw_name = "tokenizer.model";
    return tokenizer;
}
