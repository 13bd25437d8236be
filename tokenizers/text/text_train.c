/* Tokenizer training. Texts are split into pieces, equal pieces become one word with a count, and
 * text_merges.c learns merges from the words. */
#include "core/json.h"
#include "tokenizers/text/text_internal.h"

#include <string.h>

enum { TILE_BYTES = 1 << 20, TILES = 64 }; /* texts are buffered until all threads have work */
struct text_trainer {
    struct splitter splitter;
    bool nfc, specials_last;
    i64 vocabulary;
    char **specials;
    i64 special_count;
    struct word_counts counts;
    struct buffer pending; /* concatenated texts */
    i64 *ends;             /* end of each text; no piece crosses it */
    i64 end_count, end_capacity;
    i64 tile_ends[TILES]; /* indices into ends */
    struct word_counts tiles[TILES];
    struct buffer normal[TILES];
    i64 tile_count;
};

static const struct {
    const char *name;
    const char *const *pattern;
} FAMILIES[] = {{"qwen2", &REGEX_QWEN2}, {"gpt-2", &REGEX_GPT2}, {"llama-bpe", &REGEX_LLAMA}};

/* ---- Counting ---- */
static void counts_grow(struct word_counts *counts)
{
    i64 slots = counts->slots ? 2 * ((i64)counts->mask + 1) : 1 << 14;
    memory_free(counts->slots);
    counts->slots = memory_alloc(slots * (i64)sizeof(i32));
    counts->mask = (u64)slots - 1;
    memset(counts->slots, 0xff, (size_t)slots * sizeof(i32));
    for (i64 w = 0; w < counts->word_count; w++) {
        u64 i = hash_bytes(counts->bytes.data + counts->words[w].bytes, counts->words[w].length, 0);
        while (counts->slots[i & counts->mask] >= 0)
            i++;
        counts->slots[i & counts->mask] = (i32)w;
    }
}

static void counts_release(struct word_counts *counts)
{
    buffer_release(&counts->bytes);
    memory_free(counts->words);
    memory_free(counts->slots);
    *counts = (struct word_counts){0};
}

static void add_word(struct word_counts *counts, const u8 *piece, i64 length, i64 times, u64 slot)
{
    if (counts->word_count == counts->word_capacity) {
        i64 old = counts->word_capacity, size = (i64)sizeof *counts->words;
        counts->word_capacity = max_i64(1 << 12, 2 * old);
        counts->words = memory_resize(counts->words, old * size, counts->word_capacity * size);
    }
    require(counts->word_count < INT32_MAX, "more than 2^31 different words");
    counts->words[counts->word_count] = (struct counted_word){counts->bytes.length, length, times};
    counts->slots[slot] = (i32)counts->word_count++;
    buffer_append(&counts->bytes, piece, length);
    if (2 * counts->word_count > (i64)counts->mask)
        counts_grow(counts);
}

static void count_word(struct word_counts *counts, const u8 *piece, i64 length, i64 times)
{
    if (!counts->slots)
        counts_grow(counts);
    for (u64 i = hash_bytes(piece, length, 0);; i++) {
        i32 w = counts->slots[i & counts->mask];
        if (w < 0) {
            add_word(counts, piece, length, times, i & counts->mask);
            return;
        }
        struct counted_word *word = &counts->words[w];
        if (word->length == length && memcmp(counts->bytes.data + word->bytes, piece, (size_t)length) == 0) {
            word->count += times;
            return;
        }
    }
}

/* ---- Feeding: buffered texts are cut into tiles by size alone and counted on all threads ---- */
static void count_text(struct text_trainer *trainer, i64 tile, const u8 *bytes, i64 length)
{
    struct split_cursor cursor = {NULL};
    struct buffer *normal = &trainer->normal[tile];
    if (trainer->nfc && unicode_nfc(normal, bytes, length))
        bytes = (const u8 *)normal->data, length = normal->length;
    for (i64 at = 0; at < length;) {
        i64 end = splitter_next(&trainer->splitter, &cursor, bytes, at, length);
        count_word(&trainer->tiles[tile], bytes + at, end - at, 1);
        at = end;
    }
}

static void count_tile(void *context, i64 tile, int worker)
{
    struct text_trainer *trainer = context;
    i64 first = tile ? trainer->tile_ends[tile - 1] : 0;
    (void)worker;
    for (i64 t = first; t < trainer->tile_ends[tile]; t++) {
        i64 begin = t ? trainer->ends[t - 1] : 0;
        count_text(trainer, tile, (const u8 *)trainer->pending.data + begin, trainer->ends[t] - begin);
    }
}

/* Counts the buffered texts. Tiles are merged in order, so the order of words does not depend on
 * the number of threads. */
static void flush_pending(struct text_trainer *trainer)
{
    i64 tiles = 0;
    for (i64 t = 0, begin = 0; t < trainer->end_count; t++) {
        bool last = t + 1 == trainer->end_count;
        if (!last && (trainer->ends[t] - begin < TILE_BYTES || tiles == TILES - 1))
            continue;
        trainer->tile_ends[tiles++] = t + 1;
        begin = trainer->ends[t];
    }
    workers_run(tiles, count_tile, trainer);
    for (i64 tile = 0; tile < tiles; tile++) {
        struct word_counts *counts = &trainer->tiles[tile];
        for (i64 w = 0; w < counts->word_count; w++)
            count_word(&trainer->counts, (const u8 *)counts->bytes.data + counts->words[w].bytes,
                       counts->words[w].length, counts->words[w].count);
        counts_release(counts);
    }
    buffer_clear(&trainer->pending);
    trainer->end_count = 0;
}

static void push_end(struct text_trainer *trainer)
{
    if (trainer->end_count == trainer->end_capacity) {
        i64 old = trainer->end_capacity;
        trainer->end_capacity = max_i64(64, 2 * old);
        trainer->ends = memory_resize(trainer->ends, old * 8, trainer->end_capacity * 8);
    }
    trainer->ends[trainer->end_count++] = trainer->pending.length;
}

/* A cut after a line end that an ASCII letter follows. Pieces of the Qwen2 and Llama-3 expressions
 * always end there. */
static i64 safe_cut(const struct text_trainer *trainer, const char *text, i64 from, i64 length)
{
    bool lines = trainer->splitter.kind == SPLIT_QWEN2 || trainer->splitter.kind == SPLIT_LLAMA;
    for (i64 i = from; lines && i + 1 < length; i++)
        if (text[i] == '\n' && (u8)((text[i + 1] | 32) - 'a') < 26)
            return i + 1;
    return length;
}

int text_trainer_feed(struct text_trainer *trainer, const char *text, i64 length)
{
    i64 invalid = utf8_invalid_at((const u8 *)text, length);
    if (invalid >= 0)
        return error_set("text is not UTF-8 at byte %lld (0x%02x); convert it first", (long long)invalid,
                         (u8)text[invalid]);
    for (i64 at = 0, end; at < length; at = end) {
        end = safe_cut(trainer, text, min_i64(length, at + TILE_BYTES), length);
        buffer_append(&trainer->pending, text + at, end - at);
        push_end(trainer);
        if (trainer->pending.length >= (i64)TILES / 2 * TILE_BYTES)
            flush_pending(trainer);
    }
    return 0;
}

/* ---- Opening ---- */
struct text_trainer *text_trainer_open(const struct text_training *training)
{
    const char *family = training->family ? training->family : FAMILIES[0].name;
    i64 f = 0, specials = 0;
    while (f < COUNT_OF(FAMILIES) && strcmp(family, FAMILIES[f].name) != 0)
        f++;
    if (f == COUNT_OF(FAMILIES))
        return error_set("tokenizer family '%s' is unknown; use qwen2, gpt-2 or llama-bpe", family), NULL;
    while (training->special_tokens && training->special_tokens[specials])
        specials++;
    if (training->vocabulary < 256 + specials || training->vocabulary > 1 << 22)
        return error_usage(
                   "vocabulary %lld is out of range: 256 bytes and %lld special tokens need ids, %d is the most",
                   (long long)training->vocabulary, (long long)specials, 1 << 22),
               NULL;
    struct text_trainer *trainer = memory_alloc(sizeof *trainer);
    trainer->nfc = training->nfc;
    trainer->specials_last = training->specials_last;
    trainer->vocabulary = training->vocabulary;
    trainer->special_count = specials;
    trainer->specials = memory_alloc(specials * (i64)sizeof(char *));
    for (i64 i = 0; i < specials; i++)
        trainer->specials[i] = string_copy(training->special_tokens[i]);
    require(splitter_init(&trainer->splitter, *FAMILIES[f].pattern, false, family) == 0, "%s", error_text());
    return trainer;
}

void text_trainer_close(struct text_trainer *trainer)
{
    if (!trainer)
        return;
    splitter_release(&trainer->splitter);
    for (i64 i = 0; i < trainer->special_count; i++)
        memory_free(trainer->specials[i]);
    memory_free(trainer->specials);
    counts_release(&trainer->counts);
    for (i64 i = 0; i < TILES; i++)
        buffer_release(&trainer->normal[i]);
    buffer_release(&trainer->pending);
    memory_free(trainer->ends);
    memory_free(trainer);
}

/* ---- Finishing ---- */
/* Adds the first ids: special tokens unless they come last, then the bytes in the order of their
 * characters. */
static int add_first(struct text_tokenizer *tokenizer, const struct text_trainer *trainer, i32 *byte_ids)
{
    for (i64 i = 0; !trainer->specials_last && i < trainer->special_count; i++) {
        const char *special = trainer->specials[i];
        if (*special && text_token_id(tokenizer, special) < 0 &&
            tokenizer_add(tokenizer, special, (i64)strlen(special), tokenizer->model_tokens))
            return -1;
    }
    for (u32 c = 0; c < 0x100 + 68; c++) {
        u8 content[4];
        int byte = char_to_byte(c), length = utf8_encode(content, c);
        if (byte < 0)
            continue;
        byte_ids[byte] = tokenizer_find(tokenizer, (char *)content, length);
        if (byte_ids[byte] < 0) {
            byte_ids[byte] = (i32)tokenizer->model_tokens;
            if (tokenizer_add(tokenizer, (char *)content, length, byte_ids[byte]))
                return -1;
        }
    }
    return 0;
}

static struct json *trained_document(const struct text_trainer *trainer)
{
    static const char split[] =
        "{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\"},\"behavior\":\"Isolated\",\"invert\":false},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}";
    static const char byte_level[] =
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}";
    static const char rest[] =
        "{\"post_processor\":null,"
        "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
        "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
        "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false}}";
    bool gpt2 = trainer->splitter.kind == SPLIT_GPT2;
    const char *parts = gpt2 ? byte_level : split;
    struct json *document = json_parse(rest, (i64)strlen(rest), "settings");
    struct json *pieces = json_parse(parts, (i64)strlen(parts), "settings");
    const char *pattern = trainer->splitter.kind == SPLIT_LLAMA ? REGEX_LLAMA : REGEX_QWEN2;
    if (!gpt2)
        json_set(json_get(json_at(json_get(pieces, "pretokenizers"), 0), "pattern"), "Regex", json_of_string(pattern));
    json_set(document, "pre_tokenizer", pieces);
    json_set(document, "normalizer", trainer->nfc ? json_parse("{\"type\":\"NFC\"}", 14, "settings") : json_of_null());
    return document;
}

static int build(struct text_tokenizer *tokenizer, const struct text_trainer *trainer)
{
    i32 byte_ids[256];
    struct json *document = trained_document(trainer);
    tokenizer->model = &MODEL_BPE;
    int status = tokenizer_configure(tokenizer, document);
    json_free(document);
    i64 vocabulary = trainer->vocabulary - (trainer->specials_last ? trainer->special_count : 0);
    if (status || add_first(tokenizer, trainer, byte_ids) ||
        merges_learn(tokenizer, &trainer->counts, byte_ids, vocabulary))
        return -1;
    for (i64 i = 0; i < trainer->special_count; i++) {
        const char *special = trainer->specials[i];
        if (*special &&
            tokenizer_add_added(tokenizer, special, (i64)strlen(special), (struct added_flags){.special = true}) < 0)
            return -1;
    }
    return tokenizer_seal(tokenizer);
}

struct text_tokenizer *text_trainer_finish(struct text_trainer *trainer)
{
    flush_pending(trainer);
    buffer_release(&trainer->pending);
    struct text_tokenizer *tokenizer = tokenizer_new("the trained tokenizer");
    if (build(tokenizer, trainer)) {
        text_tokenizer_free(tokenizer);
        tokenizer = NULL;
    }
    text_trainer_close(trainer);
    return tokenizer;
}
