/* Internal interface of the text tokenizer's files: characters (text_unicode.c), regular
 * expressions (text_regex.c), pre-tokenization (text_split.c), merges (text_bpe.c), the tokenizer
 * itself (text_table.c). Outside this folder only the tests include it, to compare the
 * hand-written splitters with the regular expressions they implement. */
#ifndef WEFT_TOKENIZERS_TEXT_INTERNAL_H
#define WEFT_TOKENIZERS_TEXT_INTERNAL_H
#include "tokenizers/text/regex.h"
#include "tokenizers/text/text.h"

struct json;

/* ---- Characters ---- */
enum {
    CHAR_LETTER = 1,   /* \p{L} of Unicode 16, as in HF's regular expressions */
    CHAR_NUMBER = 2,   /* \p{N} */
    CHAR_SPACE = 4,    /* White_Space, 25 characters */
    CHAR_NEWLINE = 8,  /* CR, LF */
    CHAR_WORD = 16,    /* \w of Rust's regex crate; matters around single_word tokens */
    CHAR_STARTER = 32, /* NFC leaves it unchanged and never joins it to the text before */
    CHAR_OPAQUE = 64,  /* newer than HF's NFC tables (Unicode 9): nothing moves across it or joins it */
};
#define CHAR_TABLE 0x32400 /* beyond: no letters, numbers or spaces, and no marks but variation selectors */

/* Characters that Unicode 15 and 16 added or moved, with their general category; common libraries
 * only guarantee Unicode 14. */
struct new_characters {
    u32 first, last;
    const char *category;
};
extern const struct new_characters NEW_CHARACTERS[];
extern const int NEW_CHARACTER_COUNT;

/* Symbols by category that are Alphabetic and so in \w: letters in circles and squares. */
struct char_range {
    u32 first, last;
};
extern const struct char_range ALPHABETIC_SYMBOLS[];
extern const int ALPHABETIC_SYMBOL_COUNT;

const u8 *unicode_classes(void); /* classes of characters below CHAR_TABLE; static lifetime */

static inline u8 char_class(const u8 *classes, u32 c)
{
    if (c < CHAR_TABLE)
        return classes[c];
    return c >= 0xe0100 && c <= 0xe01ef ? CHAR_STARTER | CHAR_WORD : CHAR_STARTER;
}

/* Decodes the character at `text`, which must be valid UTF-8. Returns its length in bytes. */
static inline int utf8_decode(u32 *c, const u8 *text)
{
    if (text[0] < 0x80)
        return *c = text[0], 1;
    if (text[0] < 0xe0)
        return *c = (u32)(text[0] & 31) << 6 | (text[1] & 63), 2;
    if (text[0] < 0xf0)
        return *c = (u32)(text[0] & 15) << 12 | (u32)(text[1] & 63) << 6 | (text[2] & 63), 3;
    *c = (u32)(text[0] & 7) << 18 | (u32)(text[1] & 63) << 12 | (u32)(text[2] & 63) << 6 | (text[3] & 63);
    return 4;
}
int utf8_encode(u8 out[4], u32 c);
/* Start of the character that ends at `end` (> 0). */
static inline i64 utf8_before(const u8 *text, i64 end)
{
    for (end--; end > 0 && (text[end] & 0xc0) == 0x80; end--)
        ;
    return end;
}
/* True if `text` begins with a complete character. `part` is its length, or that of the maximal
 * ill-formed part. */
bool utf8_sequence(i64 *part, const u8 *text, i64 length);
i64 utf8_invalid_at(const u8 *text, i64 length); /* offset of the first ill-formed byte, -1 if there is none */

/* Character properties of normalizers and pre-tokenizers (text_properties.c), as in the
 * reference's own tables. */
enum {
    PROPERTY_CONTROL = 1,     /* dropped by BERT's cleaning */
    PROPERTY_ACCENT = 2,      /* mark dropped by BERT's strip_accents: Mn of an old Unicode version */
    PROPERTY_MARK = 4,        /* mark dropped by StripAccents: M of Unicode 9 */
    PROPERTY_PUNCTUATION = 8, /* ASCII punctuation, and P of Unicode 8 */
    PROPERTY_NUMERIC = 16,    /* N of Unicode 17 */
    PROPERTY_UPPER = 32,      /* Lu, Lt of Unicode 16 */
    PROPERTY_LOWER = 64,      /* Ll */
    PROPERTY_CASELESS = 128,  /* Lm, Lo, M */
};
u8 char_properties(u32 c);
u32 char_lower(u32 c); /* lower case of Unicode 17; maps U+0130 to i, and the caller adds the dot above (U+0307) */

/* NFC with the tables of Unicode 9. Returns false if `text` is already in NFC, and leaves `out`
 * alone; else the result replaces `out`. */
bool unicode_nfc(struct buffer *out, const u8 *text, i64 length);
enum unicode_form { FORM_NFD, FORM_NFKD, FORM_NFKC };
/* The other normal forms (text_forms.c); always replaces `out`. */
void unicode_normalize(struct buffer *out, const u8 *text, i64 length, enum unicode_form form);
/* End of the extended grapheme cluster that begins at `at`; clusters of 6 bytes or more may be
 * split. */
i64 grapheme_end(const u8 *text, i64 at, i64 length);

/* ---- Parts of a file, with their place for messages ---- */
struct json_origin {
    const char *origin;
    char place[160]; /* "pre_tokenizer.pretokenizers[1]" */
};
const char *kind_of(const struct json *value); /* its "type"; "" if it has none */
/* Sets the error "FILE: PLACE is VALUE; expected WHAT." */
int refuse(const struct json_origin *source, const struct json *value, const char *expected);
/* Limit on what a text of `bytes` may become in the steps of a tokenizer.json, which may come from
 * anyone. Real ones make at most 12 times as many bytes (Unicode's compatibility forms, 6 of them
 * with a second encoding of bytes). */
static inline i64 most_grown(i64 bytes)
{
    return 64 * bytes + (1 << 16);
}
/* Sets the error that the part PLACE of FILE makes a text of `bytes` grow beyond that. Returns -1. */
int refuse_growth(const char *origin, const char *place, i64 bytes);
/* The source of a part: PLACE.key, or PLACE.key[index] if index >= 0. */
struct json_origin source_of(const struct json_origin *source, const char *key, i64 index);
/* Sets the error "FILE: PLACE: kind 'NAME' is not supported; expected one of ...". */
int refuse_kind(const struct json_origin *source, const char *name, const char *const *known);

/* Reads a part of the file into the tokenizer; null leaves it unset. */
typedef int part_fn(struct text_tokenizer *tokenizer, const struct json *value, const struct json_origin *source);
part_fn normalizers_read, splitters_read, decoders_read, template_read;
/* Reads the parts of a Sequence, listed under `key`, in order. */
int sequence_read(struct text_tokenizer *tokenizer, const struct json *sequence, const char *key, part_fn *read,
                  const struct json_origin *source);

/* Appends the expression with nested classes and && expanded. */
int regex_expand_classes(struct buffer *out, const char *pattern, const char *origin);

/* ---- Finding a string or an expression ---- */
struct finder {
    struct regex *regex; /* NULL: searches for the string */
    char *string;
    i64 length;
};
struct find_cursor { /* {0} before the first search */
    i64 from, begin, end;
    bool any;
};
int finder_init(struct finder *finder, const struct json *pattern, const struct json_origin *source);
void finder_release(struct finder *finder);
/* Finds the next match. Returns 1 with [cursor->begin, cursor->end), 0 for none, -1 with a
 * message. */
int finder_next(const struct finder *finder, struct find_cursor *cursor, struct regex_scratch *scratch, const u8 *text,
                i64 length);

/* ---- Normalisation: a chain of rewriters ---- */
struct trie;
struct charsmap; /* SentencePiece's compiled replacement table (text_charsmap.c) */
struct charsmap *charsmap_open(const u8 *bytes, i64 length, const char *origin); /* copies the bytes; NULL: message */
void charsmap_close(struct charsmap *map);
/* Replacement (0-terminated) of the shortest or longest key at text[0], with the key's length in
 * *taken. NULL if there is none. */
const char *charsmap_find(const struct charsmap *map, i64 *taken, const u8 *text, i64 length, bool longest);
bool base64_decode(struct buffer *out, const char *text, i64 length); /* appends; false: not base64 */

struct normalizer;
struct normalized_text {
    const u8 *text;
    i64 length;
    i64 origin; /* bytes at the beginning that stem from the first character of the whole text; used by Metaspace */
    i64 most;   /* limit on the length */
};
struct normalizers {
    struct normalizer *steps;
    i64 count;
};
struct sentencepiece_rules {   /* normalizer settings of a .model file */
    struct charsmap *charsmap; /* ownership passes to the chain; NULL: none */
    const struct trie *kept;   /* user-defined symbols, which stay unchanged; borrowed */
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_as_suffix;
};
void normalizers_add_sentencepiece(struct normalizers *chain, const struct sentencepiece_rules *rules);
void normalizers_release(struct normalizers *chain);
/* Normalizes `normal` in place of its text, which then points into one of the two buffers. */
int normalizers_apply(const struct normalizers *chain, struct normalized_text *normal, struct buffer buffers[2],
                      struct regex_scratch *scratch);
bool normalizers_are_nfc(const struct normalizers *chain); /* true if NFC is the only step */

/* ---- Pre-tokenization ----
 * A chain of splitters, each of which cuts or rewrites the pieces of the one before. */
extern const char *const REGEX_QWEN2, *const REGEX_LLAMA, *const REGEX_GPT2;
enum split_kind { SPLIT_QWEN2, SPLIT_LLAMA, SPLIT_GPT2, SPLIT_REGEX, SPLIT_OTHER };
enum split_behavior { BEHAVIOR_ISOLATED, BEHAVIOR_REMOVED, BEHAVIOR_CONTIGUOUS, BEHAVIOR_PREVIOUS, BEHAVIOR_NEXT };
enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct split_cursor { /* {0} before the first piece of a text */
    struct regex_scratch *scratch;
    struct find_cursor find;
    i64 span_end; /* end of the look-ahead span */
    bool found, exhausted, ahead, matched, ahead_matched;
};
struct splitter;
/* End of the span that begins at `at`: a match, or the gap before the next one (cursor->matched).
 * -1: message. */
typedef i64 span_fn(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at, i64 length);
/* True if the piece was changed; the new one is in `out`. */
typedef bool rewrite_fn(const struct splitter *splitter, struct buffer *out, const u8 *text, i64 length, bool first);
struct splitter {
    enum split_kind kind;
    span_fn *span;       /* for SPLIT_REGEX and SPLIT_OTHER */
    rewrite_fn *rewrite; /* for SPLIT_OTHER, instead of span */
    enum split_behavior behavior;
    bool invert;
    struct finder find;
    u8 property;   /* property whose characters form spans of one */
    u32 character; /* Metaspace and CharDelimiterSplit */
    i64 width;     /* FixedLength: characters per piece */
    char *place;   /* of a rewriter in the file, for messages */
    enum prepend_scheme prepend;
    const struct text_tokenizer *tokenizer; /* tokenizer whose merges or symbols decide the cuts; borrowed */
    const u8 *classes;
};
#define MAX_SPLITTERS 16
/* Uses the hand-written splitter of a known pattern unless `plain` is set, else compiles the
 * pattern. */
int splitter_init(struct splitter *splitter, const char *pattern, bool plain, const char *origin);
void splitter_use_known(struct splitter *splitter, const char *pattern); /* sets the kind if the pattern is known */
void splitter_release(struct splitter *splitter);
/* End of the piece that begins at `at` (< length), which must be 0 or the previous result; -1:
 * message. Regular expressions may return empty pieces. Only for splitters without a rewrite. */
i64 splitter_next(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at, i64 length);
/* Returns 1 with the next piece under any behavior, 0 at the end, -1 with a message. *at must be 0
 * at first. */
int splitter_piece(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 length, i64 *at,
                   i64 *begin, i64 *end);
struct splitters {
    struct splitter steps[MAX_SPLITTERS];
    int count;
};
struct splitter *splitters_push(struct splitters *chain, const struct json_origin *source); /* NULL: message */
bool splitter_is_byte_level(const struct splitter *splitter);
span_fn span_of_script, span_of_adjacent, span_of_kept;

/* ---- Merges ---- */
#define NO_RANK UINT32_MAX
struct pair_slot {
    i32 left, right, id; /* id: result of the merge */
    u32 rank;            /* NO_RANK: empty slot */
};
struct pair_table { /* open addressing, at most half full */
    struct pair_slot *slots;
    u64 mask;
    i64 count;
};
static inline const struct pair_slot *pair_find(const struct pair_table *table, i32 left, i32 right)
{
    u64 key = (u64)(u32)left << 32 | (u32)right;
    u64 i = (key * 0x9e3779b97f4a7c15u) >> 20;
    for (;; i++) {
        const struct pair_slot *slot = &table->slots[i & table->mask];
        if (slot->rank == NO_RANK || (slot->left == left && slot->right == right))
            return slot; /* an empty slot has NO_RANK and is never chosen */
    }
}
void pair_table_init(struct pair_table *table, i64 capacity);
void pair_table_set(struct pair_table *table, i32 left, i32 right, u32 rank, i32 id); /* inserts or replaces */

struct bpe_dropout {
    double probability;
    struct rng_key key;
    u32 document, draws; /* draws: merges considered so far in the document */
};
struct merge;
struct token;
struct bpe_token {
    i32 id;
    i64 start; /* its first symbol */
};
struct bpe_tokens {
    struct bpe_token *data;
    i64 count, capacity;
};
struct bpe_scratch {
    void *memory;
    i64 bytes;
    struct id_list symbols;                      /* of a long word: of the tail and the block behind it */
    struct bpe_tokens tail, block, window, pair; /* of a long word */
    const struct token *unused_types;            /* NULL: no piece is unused */
    struct merge *unused; /* SentencePiece's unused pieces that a text produced, with their latest parts */
    i64 unused_count, unused_capacity;
    bool unused_differ; /* one of them was produced from other parts before */
};
void bpe_scratch_release(struct bpe_scratch *scratch);
/* Applies merges to ids[0..count) in place, lowest rank first, leftmost among equals. Returns the
 * new count. */
i64 bpe_merge(const struct pair_table *table, struct bpe_scratch *scratch, i32 *ids, i64 count,
              struct bpe_dropout *dropout);
/* The symbols of a word, made in order. */
struct symbol_source {
    /* Appends at least `least` symbols, fewer at the end of the word. -1 with a message. */
    int (*more)(struct symbol_source *source, struct id_list *symbols, i64 least);
    const struct text_tokenizer *tokenizer;
    const u8 *piece;
    i64 length, at; /* at: bytes that became symbols */
    bool pending;   /* an unknown token is held back */
};
/* Appends the ids of a word of any length, in the memory of a block and in O(n log n) steps. */
int bpe_merge_long(const struct pair_table *table, struct bpe_scratch *scratch, struct symbol_source *source,
                   struct id_list *out, struct bpe_dropout *dropout);
enum { BPE_BLOCK = 1 << 16 }; /* symbols; words of up to twice as many bytes are not cut into blocks */

/* Bloom filter of neighbouring characters that some merge joins. A text may be cut between two
 * characters that are not in it, because no merge crosses them. A false positive only costs a
 * possible cut and never changes an id. */
struct adjacency {
    u64 *bits;
    u32 shift;
};
void adjacency_init(struct adjacency *adjacency, i64 pairs);
void adjacency_add(struct adjacency *adjacency, const u8 *text, i64 length); /* adds all neighbours within a token */
static inline u64 adjacency_bit(const struct adjacency *adjacency, u32 left, u32 right)
{
    return (((u64)left << 21 | right) * 0x9e3779b97f4a7c15u) >> adjacency->shift;
}

/* ---- A trie of byte strings: finds the prefixes of a text that are tokens ---- */
struct trie_edge {
    u32 key, node; /* key: node << 8 | byte; node 0: empty slot */
};
struct trie {
    struct trie_edge *edges; /* open addressing, at most half full */
    u64 mask;
    i32 *values; /* indexed by node; -1: no token ends there. Node 0 is unused, node 1 is the root */
    i64 nodes, capacity;
};
void trie_init(struct trie *trie);
void trie_release(struct trie *trie);
int trie_add(struct trie *trie, const u8 *key, i64 length, i32 value); /* inserts or replaces; -1: message, too large */
/* Value of the longest key at text[0], with its length in *taken; -1 if there is none. */
i32 trie_longest(const struct trie *trie, const u8 *text, i64 length, i64 *taken);
static inline u32 trie_step(const struct trie *trie, u32 node, u8 byte) /* 0: no such child */
{
    u32 key = node << 8 | byte;
    for (u64 i = (key * 0x9e3779b97f4a7c15u) >> 20;; i++) {
        const struct trie_edge *edge = &trie->edges[i & trie->mask];
        if (edge->key == key || edge->node == 0)
            return edge->node;
    }
}

/* ---- Decoding: a chain over the tokens' strings ---- */
struct text_decoder;
struct decoders {
    struct text_decoder *steps; /* without steps, spaces join the tokens */
    i64 count;
};
/* Adds SentencePiece's decoder. strip_first drops one space mark at the beginning, strip_all every
 * one there. `unknown` is the text of an unknown id. */
void decoders_add_sentencepiece(struct decoders *chain, bool strip_first, bool strip_all, const char *unknown);
void decoders_release(struct decoders *chain);
bool decoders_are_byte_level(const struct decoders *chain); /* true if ByteLevel is the only step */

struct token_strings { /* concatenated strings of one decoding */
    struct buffer bytes;
    i64 *ends; /* end offset of each */
    i32 *ids;  /* source id of each; -1 if several were joined */
    i64 count, capacity;
    i64 most; /* limit on the bytes */
};
void token_strings_push(struct token_strings *list, const char *string, i64 length, i32 id);
void token_strings_release(struct token_strings *list);
int decoders_apply(const struct decoders *chain, const struct text_tokenizer *tokenizer, struct token_strings *strings,
                   struct regex_scratch *scratch);
void append_lossy(struct buffer *out, const u8 *bytes, i64 length); /* replaces ill-formed parts by U+FFFD */

/* ---- The tokenizer ---- */
struct string_table { /* ids of tokens by content or bytes; open addressing */
    i32 *slots;       /* -1: empty */
    u64 mask;
    i64 count;
};
struct token {
    i64 content, content_length;            /* offset in .strings, 0-terminated; content -1: unused id */
    i64 bytes, bytes_length;                /* decoded bytes, in .strings */
    i64 shown, shown_length;                /* decoder input: the content, normalized where HF does so */
    float score;                            /* SentencePiece score */
    u8 type;                                /* SentencePiece enum piece_type */
    bool special, skipped, in_model, added; /* skipped: decoding with skip_special omits it */
};
enum piece_type { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER_DEFINED, PIECE_UNUSED, PIECE_BYTE };
struct added_token {
    i32 id;
    i64 match, match_length; /* search string in .strings, normalized if the flag is set */
    bool single_word, lstrip, rstrip, normalized;
};
struct merge {
    i32 left, right, id;
    u32 rank;
};
struct matcher { /* longest match among sorted strings, narrowed byte by byte */
    i32 *order;  /* indices of added tokens */
    i64 count;
    i64 first[257]; /* strings that begin with byte b: first[b] .. first[b + 1] */
};
/* ---- Models: pieces of text to ids ---- */
enum { MOST_TOKEN_BYTES = UINT16_MAX }; /* of any model */
struct model_scratch {
    struct bpe_scratch bpe;
    struct id_list symbols;
    u16 *steps; /* [bytes of the piece + 1] length of the last token of the best segmentation; 0: none yet */
    i64 step_capacity;
    double *scores; /* of the segmentations that a token may extend; a ring */
    i64 score_capacity;
};
struct text_tokenizer;
/* Appends the ids of a non-empty piece. */
typedef int model_fn(const struct text_tokenizer *tokenizer, struct model_scratch *scratch, struct id_list *out,
                     const u8 *piece, i64 length, struct bpe_dropout *dropout);
struct model_kind {
    const char *name;
    int (*read)(struct text_tokenizer *tokenizer, const struct json *model, const struct json_origin *source);
    int (*seal)(struct text_tokenizer *tokenizer); /* runs once all tokens are known */
    model_fn *encode;
};
extern const struct model_kind MODEL_BPE, MODEL_UNIGRAM, MODEL_WORDPIECE, MODEL_WORDLEVEL, MODEL_SENTENCEPIECE_UNIGRAM,
    MODEL_SENTENCEPIECE_WORD;
const struct model_kind *model_kind_find(const struct json *model,
                                         const struct json_origin *source); /* NULL: message */
int model_read_vocab(struct text_tokenizer *tokenizer, const struct json *vocab, const struct json_origin *source);
int unknown_piece(const struct text_tokenizer *tokenizer, const u8 *piece, i64 length); /* sets the message; -1 */
/* Builds the pairs from the tokens instead of a merge list (tiktoken, SentencePiece): every way to
 * cut a token into two tokens gets that token's rank. */
int bpe_pairs_from_tokens(struct text_tokenizer *tokenizer, const u32 *ranks, bool bytes);

struct encoder; /* caches and buffers of a text_encode call (text_encode.c) */
struct encoder_pool;

struct text_tokenizer {
    char *origin; /* name in messages */
    struct buffer strings;
    struct token *tokens; /* indexed by id */
    i64 vocabulary, token_capacity, model_tokens;
    struct string_table by_content;
    struct merge *merges;
    i64 merge_count, merge_capacity;
    struct added_token *added;
    i64 added_count, added_capacity, added_next; /* added_next: smallest id for a new added token */
    const struct model_kind *model;
    i32 unknown; /* id of unk_token, -1 for none */
    struct normalizers normalizers;
    struct splitters splitters;
    struct decoders decoders;
    i32 *template_before, *template_after; /* ids that the post-processor adds around a text */
    i64 before_count, after_count;
    struct json *settings; /* the file without its tokens: normalizer, pre_tokenizer, ..., model without its lists */
    struct json *config;   /* tokenizer_config.json as read, or NULL */
    struct json *chat_templates; /* the files that hold chat templates, by name; NULL: none */
    const char *chat_file;       /* its name, for messages */
    bool has_chat_time;          /* set by text_chat_set_day */
    i64 chat_time_s;
    struct buffer raw_file;        /* a .model or .tiktoken file as read, which saving writes back unchanged */
    const char *raw_name;          /* its file name in a folder; NULL: tokenizer.json */
    char *pattern;                 /* pattern of a tiktoken file */
    char *begin_token, *end_token; /* tokens around the text of a .model file */

    /* Fields of BPE. */
    bool ignore_merges, fuse_unknown, byte_fallback, byte_level; /* byte_level: lookup is by bytes */
    bool decodes_bytes;                                          /* ByteLevel is the only decoder */
    bool has_unused;                                             /* has SentencePiece pieces of type UNUSED */
    char *subword_prefix, *word_suffix;                          /* NULL: none */
    i32 byte_pieces[256];                                        /* ids of <0x00> .. <0xFF> */
    bool has_byte_pieces;                                        /* true if all exist */
    struct adjacency adjacency;
    /* Fields of Unigram and WordPiece. */
    i64 longest;                             /* bytes of the longest token in the trie */
    double *scores, least_score, most_score; /* scores indexed by id */
    struct trie trie, continuing;
    i64 most_characters;      /* limit of a WordPiece word */
    struct trie user_defined; /* SentencePiece's user-defined symbols */

    /* Fields computed by tokenizer_seal. */
    const u8 *classes;
    i32 byte_ids[256];
    i32 *bmp_ids; /* ids of one-character tokens below U+10000 */
    struct pair_table pairs;
    struct string_table by_bytes; /* model tokens by their bytes, with ignore_merges */
    struct matcher raw, normalized;
    struct encoder_pool *encoders;
};

struct text_tokenizer *tokenizer_new(const char *origin);
const char *tokenizer_string(const struct text_tokenizer *tokenizer, i64 offset);
i32 tokenizer_find(const struct text_tokenizer *tokenizer, const char *content, i64 length);  /* -1 if there is none */
int tokenizer_add(struct text_tokenizer *tokenizer, const char *content, i64 length, i64 id); /* a model token */
int tokenizer_add_merge(struct text_tokenizer *tokenizer, const char *left, i64 left_length, const char *right,
                        i64 right_length);
struct added_flags {
    bool special, single_word, lstrip, rstrip, normalized;
};
/* Adds an added token. Its id is that of the model's token with the same content, else the next
 * after all ids. Returns the id, or -1 with a message. */
i64 tokenizer_add_added(struct text_tokenizer *tokenizer, const char *content, i64 length, struct added_flags flags);
/* The same with an explicit id, for formats that state it. */
i64 tokenizer_add_added_at(struct text_tokenizer *tokenizer, const char *content, i64 length, struct added_flags flags,
                           i64 id);
int tokenizer_seal(struct text_tokenizer *tokenizer); /* no additions after this call */
/* Reads normalizer, pre_tokenizer, post_processor and decoder from `document`; a trained tokenizer
 * has them as JSON too. */
int tokenizer_configure(struct text_tokenizer *tokenizer, const struct json *document);
i64 tokenizer_keep_string(struct text_tokenizer *tokenizer, const char *bytes, i64 length); /* offset in .strings */

i32 string_table_find(const struct string_table *table, const struct text_tokenizer *tokenizer, bool bytes,
                      const void *key, i64 length);
void string_table_add(struct string_table *table, const struct text_tokenizer *tokenizer, bool bytes, i32 id);
/* The model's token with this content; -1 if there is none. Other added tokens do not count. */
i32 tokenizer_find_model(const struct text_tokenizer *tokenizer, const void *content, i64 length);

u32 byte_to_char(u8 byte);                       /* GPT-2's printable character for a byte */
int char_to_byte(u32 c);                         /* -1 if it represents no byte */
int byte_piece(const char *content, i64 length); /* byte value of "<0x41>"; -1 for other content */

/* ---- Added tokens in a text ---- */
void matcher_init(struct matcher *matcher, const struct text_tokenizer *tokenizer, bool normalized);
const struct added_token *matcher_longest(const struct text_tokenizer *tokenizer, const struct matcher *matcher,
                                          const u8 *text, i64 length); /* match at text[0], or NULL */
struct added_match {
    const struct added_token *token;
    i64 begin, end; /* includes the white space the token strips */
};
struct added_cursor { /* {0} before the first call, but for the offsets at which no match begins */
    i64 at, done;     /* done: end of the last match */
    bool plain;       /* special tokens are text */
    const i64 *barred;
    i64 barred_count;
};
bool added_next(struct added_match *out, struct added_cursor *cursor, const struct text_tokenizer *tokenizer,
                const struct matcher *matcher, const u8 *text, i64 length);

struct encoder_pool *encoder_pool_open(void);
void encoder_pool_close(struct encoder_pool *pool);
void id_list_reserve(struct id_list *list, i64 more);

/* ---- Training ---- */
struct counted_word {
    i64 bytes, length; /* offset in word_counts.bytes */
    i64 count;
};
struct word_counts {
    struct buffer bytes;
    struct counted_word *words;
    i64 word_count, word_capacity;
    i32 *slots; /* hash table of words by bytes; -1: empty */
    u64 mask;
};
/* Repeatedly merges the most frequent pair, until the model has `vocabulary` tokens or no pair is
 * left. byte_ids are the ids of the 256 bytes. */
int merges_learn(struct text_tokenizer *tokenizer, const struct word_counts *words, const i32 *byte_ids,
                 i64 vocabulary);

/* ---- Other formats ---- */
struct text_tokenizer *sentencepiece_parse(const void *bytes, i64 length, const char *origin);
bool sentencepiece_looks_like(const void *bytes, i64 length);
struct text_tokenizer *tiktoken_parse(const void *bytes, i64 length, const struct json *config, const char *origin);

#endif
