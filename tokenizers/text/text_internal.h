/* What the files of the text tokenizer share: characters (text_unicode.c), regular expressions (text_regex.c),
 * pre-tokenisation (text_split.c), merges (text_bpe.c), the tokenizer itself (text_table.c). Tests use it to set the
 * hand-made splitters beside the regular expressions they stand for; nobody else includes it. */
#ifndef WEFT_TOKENIZERS_TEXT_INTERNAL_H
#define WEFT_TOKENIZERS_TEXT_INTERNAL_H
#include "tokenizers/text/regex.h"
#include "tokenizers/text/text.h"

struct json;

/* ---- Characters ---- */
enum {
    CHAR_LETTER = 1,   /* \p{L} of Unicode 16, as HF's regular expressions see it */
    CHAR_NUMBER = 2,   /* \p{N} */
    CHAR_SPACE = 4,    /* White_Space: the 25 of them */
    CHAR_NEWLINE = 8,  /* CR, LF */
    CHAR_WORD = 16,    /* \w of Rust's regex crate: around single_word tokens */
    CHAR_STARTER = 32, /* NFC leaves it alone and never joins it to what stands before */
    CHAR_OPAQUE = 64,  /* younger than HF's NFC tables (Unicode 9): nothing moves across it or joins it */
};
#define CHAR_TABLE 0x32400 /* beyond it: no letters, numbers, spaces; variation selectors are the only marks */

/* Characters that Unicode 15 and 16 added or moved, with their general category: libraries at hand know 14 or later. */
struct new_characters {
    u32 first, last;
    const char *category;
};
extern const struct new_characters NEW_CHARACTERS[];
extern const int NEW_CHARACTER_COUNT;

/* Alphabetic (so in \w) though symbols by category: letters in circles and squares. */
struct range {
    u32 first, last;
};
extern const struct range ALPHABETIC_SYMBOLS[];
extern const int ALPHABETIC_SYMBOL_COUNT;

const u8 *unicode_classes(void); /* classes of the characters below CHAR_TABLE; lives as long as the process */

static inline u8 char_class(const u8 *classes, u32 c)
{
    if (c < CHAR_TABLE)
        return classes[c];
    return c >= 0xe0100 && c <= 0xe01ef ? CHAR_STARTER | CHAR_WORD : CHAR_STARTER;
}

/* The character at `text`, which is valid UTF-8; returns its length in bytes. */
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
/* Where the character that ends at `end` (> 0) begins. */
static inline i64 utf8_before(const u8 *text, i64 end)
{
    for (end--; end > 0 && (text[end] & 0xc0) == 0x80; end--)
        ;
    return end;
}
/* True if a whole character stands at `text`; `part` is its length, or that of the maximal ill-formed part. */
bool utf8_sequence(i64 *part, const u8 *text, i64 length);
i64 utf8_invalid_at(const u8 *text, i64 length); /* offset of the first ill-formed byte, -1 if there is none */

/* What normalisers and pre-tokenisers ask of a character (text_properties.c), as the reference's own tables have it. */
enum {
    PROPERTY_CONTROL = 1,     /* BERT's cleaning drops it */
    PROPERTY_ACCENT = 2,      /* a mark that BERT's strip_accents drops: Mn of an old Unicode */
    PROPERTY_MARK = 4,        /* a mark that StripAccents drops: M of Unicode 9 */
    PROPERTY_PUNCTUATION = 8, /* ASCII's, and P of Unicode 8 */
    PROPERTY_NUMERIC = 16,    /* N of Unicode 17 */
    PROPERTY_UPPER = 32,      /* Lu, Lt of Unicode 16 */
    PROPERTY_LOWER = 64,      /* Ll */
    PROPERTY_CASELESS = 128,  /* Lm, Lo, M */
};
u8 char_properties(u32 c);
u32 char_lower(u32 c); /* of Unicode 17; U+0130 becomes i, the dot above it (U+0307) is the caller's */

/* NFC with the tables of Unicode 9. False: `text` is in NFC already and `out` untouched; else the result replaces
 * `out`. */
bool unicode_nfc(struct text *out, const u8 *text, i64 length);
enum unicode_form { FORM_NFD, FORM_NFKD, FORM_NFKC };
/* The same for the others (text_forms.c); always replaces `out`. */
void unicode_normalize(struct text *out, const u8 *text, i64 length, enum unicode_form form);
/* End of the extended grapheme cluster that begins at `at`; clusters of 6 bytes and more may come in parts. */
i64 grapheme_end(const u8 *text, i64 at, i64 length);

/* ---- What is read of a file: messages name it and the place in it ---- */
struct json_origin {
    const char *origin;
    char place[160]; /* "pre_tokenizer.pretokenizers[1]" */
};
const char *kind_of(const struct json *value); /* its "type", "" if it has none */
/* FILE: PLACE is VALUE; expected WHAT. */
int refuse(const struct json_origin *source, const struct json *value, const char *expected);
/* The source of a part: PLACE.key or, where index >= 0, PLACE.key[index]. */
struct json_origin source_of(const struct json_origin *source, const char *key, i64 index);
/* FILE: PLACE: kind 'NAME' is not supported; expected one of ... */
int refuse_kind(const struct json_origin *source, const char *name, const char *const *known);

/* Reads a part of the file, of which null says nothing, into the tokenizer. */
typedef int part_fn(struct text_tokenizer *tokenizer, const struct json *value, const struct json_origin *source);
part_fn normalizers_read, splitters_read, decoders_read, template_read;
/* The parts of a Sequence, listed as `key`, in their order. */
int sequence_read(struct text_tokenizer *tokenizer, const struct json *sequence, const char *key, part_fn *read,
                  const struct json_origin *source);

/* The expression without classes within classes and &&; appended. */
int regex_expand_classes(struct text *out, const char *pattern, const char *origin);

/* ---- Finding a string or an expression ---- */
struct finder {
    struct regex *regex; /* NULL: the string */
    char *string;
    i64 length;
};
struct find_cursor { /* {0} before the first search */
    i64 from, begin, end;
    bool any;
};
int finder_init(struct finder *finder, const struct json *pattern, const struct json_origin *source);
void finder_release(struct finder *finder);
/* 1: the next match is cursor->begin .. end; 0: there is none; -1: message. */
int finder_next(const struct finder *finder, struct find_cursor *cursor, struct regex_scratch *scratch, const u8 *text,
                i64 length);

/* ---- Normalisation: a chain of rewriters ---- */
struct trie;
struct charsmap; /* SentencePiece's compiled table of replacements; text_charsmap.c */
struct charsmap *charsmap_open(const u8 *bytes, i64 length, const char *origin); /* copies; NULL: message */
void charsmap_close(struct charsmap *map);
/* The replacement (0-terminated) of the shortest or longest key that begins at text[0]; *taken is the key's length.
 * NULL: there is none. */
const char *charsmap_find(const struct charsmap *map, i64 *taken, const u8 *text, i64 length, bool longest);
bool base64_decode(struct text *out, const char *text, i64 length); /* appends; false: it is not base64 */

struct normalizer;
struct normal {
    const u8 *text;
    i64 length;
    i64 origin; /* how much of its beginning comes from the first character of the whole text: Metaspace asks */
};
struct normalizers {
    struct normalizer *steps;
    i64 count;
};
struct sentencepiece_rules {   /* of a .model file's normalizer */
    struct charsmap *charsmap; /* taken; NULL: none */
    const struct trie *kept;   /* user-defined symbols, left as they are; borrowed */
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_as_suffix;
};
void normalizers_add_sentencepiece(struct normalizers *chain, const struct sentencepiece_rules *rules);
void normalizers_release(struct normalizers *chain);
/* Replaces what `normal` points to; it then lies in one of the two buffers. */
int normalizers_apply(const struct normalizers *chain, struct normal *normal, struct text buffers[2],
                      struct regex_scratch *scratch);
bool normalizers_are_nfc(const struct normalizers *chain); /* nothing but NFC */

/* ---- Pre-tokenisation: a chain of splitters, each cutting (or rewriting) the pieces of the one before ---- */
extern const char *const REGEX_QWEN2, *const REGEX_LLAMA, *const REGEX_GPT2;
enum split_kind { SPLIT_QWEN2, SPLIT_LLAMA, SPLIT_GPT2, SPLIT_REGEX, SPLIT_OTHER };
enum split_behavior { BEHAVIOR_ISOLATED, BEHAVIOR_REMOVED, BEHAVIOR_CONTIGUOUS, BEHAVIOR_PREVIOUS, BEHAVIOR_NEXT };
enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct split_cursor { /* {0} before the first piece of a text */
    struct regex_scratch *scratch;
    struct find_cursor find;
    i64 span_end; /* of the span looked at ahead */
    bool found, exhausted, ahead, matched, ahead_matched;
};
struct splitter;
/* End of the span that begins at `at`, which is a match or the gap before the next one (cursor->matched); -1: message.
 */
typedef i64 span_fn(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at, i64 length);
/* True if the piece was changed: `out` holds it. */
typedef bool rewrite_fn(const struct splitter *splitter, struct text *out, const u8 *text, i64 length, bool first);
struct splitter {
    enum split_kind kind;
    span_fn *span;       /* of SPLIT_REGEX and SPLIT_OTHER */
    rewrite_fn *rewrite; /* SPLIT_OTHER: instead of span */
    enum split_behavior behavior;
    bool invert;
    struct finder find;
    u8 property;   /* spans of one character with it */
    u32 character; /* of Metaspace, of CharDelimiterSplit */
    i64 width;     /* of FixedLength, in characters */
    enum prepend_scheme prepend;
    const struct text_tokenizer *tokenizer; /* whose merges or symbols tell where to cut; borrowed */
    const u8 *classes;
};
#define MAX_SPLITTERS 16
/* A known pattern gets its hand-made splitter, unless `plain`; any other is compiled. */
int splitter_init(struct splitter *splitter, const char *pattern, bool plain, const char *origin);
void splitter_use_known(struct splitter *splitter, const char *pattern); /* sets the kind, if there is one */
void splitter_release(struct splitter *splitter);
/* End of the piece that begins at `at` (< length), which is 0 or what the last call returned; -1: message. Regular
 * expressions may return empty pieces. Of splitters without a rewrite alone. */
i64 splitter_next(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at, i64 length);
/* The same with any behavior: 1 and the piece, 0 at the end, -1: message. *at is 0 at first. */
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
    i32 left, right, id; /* id: what the two become */
    u32 rank;            /* NO_RANK: an empty slot */
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
            return slot; /* an empty slot has NO_RANK: never chosen */
    }
}
void pair_table_init(struct pair_table *table, i64 capacity);
void pair_table_set(struct pair_table *table, i32 left, i32 right, u32 rank, i32 id); /* replaces */

struct bpe_dropout {
    double probability;
    struct rng_key key;
    u32 document, draws; /* draws: merges considered so far in the document */
};
struct merge;
struct token;
struct bpe_scratch {
    void *memory;
    i64 bytes;
    const struct token *unused_types; /* NULL: no piece is unused */
    struct merge *unused;             /* SentencePiece's unused pieces that a text made, with the parts seen last; */
    i64 unused_count, unused_capacity;
};
/* Merges ids[0..count) in place, lowest rank first, of equals the leftmost; returns the new count. */
i64 bpe_merge(const struct pair_table *table, struct bpe_scratch *scratch, i32 *ids, i64 count,
              struct bpe_dropout *dropout);

/* Pairs of neighbouring characters that some merge joins, as bits by hash: where a pair is not among them, the merges
 * on both sides do not know of each other, and a text may be cut. A false member costs a cut, never an id. */
struct adjacency {
    u64 *bits;
    u32 shift;
};
void adjacency_init(struct adjacency *adjacency, i64 pairs);
void adjacency_add(struct adjacency *adjacency, const u8 *text, i64 length); /* all neighbours of a token */
static inline u64 adjacency_bit(const struct adjacency *adjacency, u32 left, u32 right)
{
    return (((u64)left << 21 | right) * 0x9e3779b97f4a7c15u) >> adjacency->shift;
}

/* ---- A trie of byte strings: the prefixes of a text that are tokens ---- */
struct trie_edge {
    u32 key, node; /* key: node << 8 | byte; node 0: an empty slot */
};
struct trie {
    struct trie_edge *edges; /* open addressing, at most half full */
    u64 mask;
    i32 *values; /* by node; -1: no token ends there. Node 0 is not used, node 1 the root */
    i64 nodes, capacity;
};
void trie_init(struct trie *trie);
void trie_release(struct trie *trie);
int trie_add(struct trie *trie, const u8 *key, i64 length, i32 value); /* replaces; -1: message, too large */
/* The value of the longest key at text[0], its length in *taken; -1: there is none. */
i32 trie_longest(const struct trie *trie, const u8 *text, i64 length, i64 *taken);
static inline u32 trie_step(const struct trie *trie, u32 node, u8 byte) /* 0: nowhere */
{
    u32 key = node << 8 | byte;
    for (u64 i = (key * 0x9e3779b97f4a7c15u) >> 20;; i++) {
        const struct trie_edge *edge = &trie->edges[i & trie->mask];
        if (edge->key == key || edge->node == 0)
            return edge->node;
    }
}

/* ---- Decoding: a chain over the strings of tokens ---- */
struct text_decoder;
struct decoders {
    struct text_decoder *steps; /* none: tokens are joined by spaces */
    i64 count;
};
/* strip_first: a space mark at the beginning is left out; strip_all: every one there. unknown: what an unknown id
 * becomes. */
void decoders_add_sentencepiece(struct decoders *chain, bool strip_first, bool strip_all, const char *unknown);
void decoders_release(struct decoders *chain);
bool decoders_are_byte_level(const struct decoders *chain); /* nothing but ByteLevel */

struct token_strings { /* of one decoding: strings one after another */
    struct text bytes;
    i64 *ends; /* of each */
    i32 *ids;  /* whose they are; -1 where several became one */
    i64 count, capacity;
};
void token_strings_push(struct token_strings *list, const char *string, i64 length, i32 id);
void token_strings_release(struct token_strings *list);
int decoders_apply(const struct decoders *chain, const struct text_tokenizer *tokenizer, struct token_strings *strings,
                   struct regex_scratch *scratch);
void append_lossy(struct text *out, const u8 *bytes, i64 length); /* ill-formed parts as U+FFFD */

/* ---- The tokenizer ---- */
struct string_table { /* open addressing: the ids of tokens by their content (or bytes) */
    i32 *slots;       /* -1: empty */
    u64 mask;
    i64 count;
};
struct token {
    i64 content, content_length;            /* in .strings, 0-terminated; content -1: the id is not used */
    i64 bytes, bytes_length;                /* in .strings: what it decodes to */
    i64 shown, shown_length;                /* what the decoders are given: the content, normalised where HF does */
    float score;                            /* of SentencePiece */
    u8 type;                                /* of SentencePiece: enum piece_type */
    bool special, skipped, in_model, added; /* skipped: where decoding leaves special tokens out */
};
enum piece_type { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER_DEFINED, PIECE_UNUSED, PIECE_BYTE };
struct added_token {
    i32 id;
    i64 match, match_length; /* in .strings: what is looked for (normalised where the token is) */
    bool single_word, lstrip, rstrip, normalized;
};
struct merge {
    i32 left, right, id;
    u32 rank;
};
struct matcher { /* finds the longest of some strings: sorted by bytes, narrowed byte by byte */
    i32 *order;  /* indices of added tokens */
    i64 count;
    i64 first[257]; /* those that begin with byte b: first[b] .. first[b + 1] */
};
/* ---- Models: pieces of text to ids ---- */
struct viterbi_cell { /* the best way to the end of a prefix */
    double score;
    i64 begin; /* of its last token; -1: none yet */
    i32 id;
};
struct model_scratch {
    struct bpe_scratch bpe;
    struct id_list symbols;
    struct viterbi_cell *cells;
    i64 cell_capacity;
};
struct text_tokenizer;
/* Appends the ids of a piece that is not empty. */
typedef int model_fn(const struct text_tokenizer *tokenizer, struct model_scratch *scratch, struct id_list *out,
                     const u8 *piece, i64 length, struct bpe_dropout *dropout);
struct model_kind {
    const char *name;
    int (*read)(struct text_tokenizer *tokenizer, const struct json *model, const struct json_origin *source);
    int (*seal)(struct text_tokenizer *tokenizer); /* when all tokens are known */
    model_fn *encode;
};
extern const struct model_kind MODEL_BPE, MODEL_UNIGRAM, MODEL_WORDPIECE, MODEL_WORDLEVEL, MODEL_SENTENCEPIECE_UNIGRAM,
    MODEL_SENTENCEPIECE_WORD;
const struct model_kind *model_kind_find(const struct json *model,
                                         const struct json_origin *source); /* NULL: message */
int model_read_vocab(struct text_tokenizer *tokenizer, const struct json *vocab, const struct json_origin *source);
int unknown_piece(const struct text_tokenizer *tokenizer, const u8 *piece, i64 length); /* the message; -1 */
/* Pairs by what they make instead of by a list of merges (tiktoken, SentencePiece): of all ways to cut a token in two
 * tokens, each with the token's rank. */
int bpe_pairs_from_tokens(struct text_tokenizer *tokenizer, const u32 *ranks, bool bytes);

struct encoder; /* caches and buffers of a text_encode call; text_encode.c */
struct encoder_pool;

struct text_tokenizer {
    char *origin; /* what messages call it */
    struct text strings;
    struct token *tokens; /* by id */
    i64 vocabulary, token_capacity, model_tokens;
    struct string_table by_content;
    struct merge *merges;
    i64 merge_count, merge_capacity;
    struct added_token *added;
    i64 added_count, added_capacity, added_next; /* added_next: smallest id that a new added token may get */
    const struct model_kind *model;
    i32 unknown; /* id of unk_token, -1 for none */
    struct normalizers normalizers;
    struct splitters splitters;
    struct decoders decoders;
    i32 *template_before, *template_after; /* ids the post-processor puts around a text */
    i64 before_count, after_count;
    struct json *settings; /* the file but for tokens: normalizer, pre_tokenizer, ..., model without its lists */
    struct json *config;   /* tokenizer_config.json as read; NULL */
    struct text raw_file;  /* a .model or .tiktoken file as read: it is saved as it was */
    const char *raw_name;  /* its name in a folder; NULL: tokenizer.json */
    char *pattern;         /* of a tiktoken file: its expression */
    char *begin_token, *end_token; /* of a .model file */

    /* Of BPE. */
    bool ignore_merges, fuse_unknown, byte_fallback, byte_level; /* byte_level: tokens are looked up by their bytes */
    bool decodes_bytes;                                          /* its decoder is ByteLevel alone */
    bool has_unused;                                             /* SentencePiece's pieces that are made but not used */
    char *subword_prefix, *word_suffix;                          /* NULL: none */
    i32 byte_pieces[256];                                        /* ids of <0x00> .. <0xFF> */
    bool has_byte_pieces;                                        /* all of them */
    struct adjacency adjacency;
    /* Of Unigram and WordPiece. */
    double *scores, least_score, most_score; /* by id */
    struct trie trie, continuing;
    i64 most_characters;      /* of a WordPiece word */
    struct trie user_defined; /* SentencePiece's symbols that stand for themselves */

    /* Made by tokenizer_seal. */
    const u8 *classes;
    i32 byte_ids[256];
    i32 *bmp_ids; /* tokens of one character below U+10000 */
    struct pair_table pairs;
    struct string_table by_bytes; /* with ignore_merges: model tokens by their bytes */
    struct matcher raw, normalized;
    struct encoder_pool *encoders;
};

struct text_tokenizer *tokenizer_new(const char *origin);
const char *tokenizer_string(const struct text_tokenizer *tokenizer, i64 offset);
i32 tokenizer_find(const struct text_tokenizer *tokenizer, const char *content, i64 length);  /* -1 */
int tokenizer_add(struct text_tokenizer *tokenizer, const char *content, i64 length, i64 id); /* a token of the model */
int tokenizer_add_merge(struct text_tokenizer *tokenizer, const char *left, i64 left_length, const char *right,
                        i64 right_length);
struct added_flags {
    bool special, single_word, lstrip, rstrip, normalized;
};
/* Returns its id: that of the model's token of this content, else the next after all ids; -1: message. */
i64 tokenizer_add_added(struct text_tokenizer *tokenizer, const char *content, i64 length, struct added_flags flags);
/* The same with an id of its own, where the file's format gives it. */
i64 tokenizer_add_added_at(struct text_tokenizer *tokenizer, const char *content, i64 length, struct added_flags flags,
                           i64 id);
int tokenizer_seal(struct text_tokenizer *tokenizer); /* nothing is added after it */
/* normalizer, pre_tokenizer, post_processor and decoder from `document`; a trained tokenizer has them as JSON too. */
int tokenizer_configure(struct text_tokenizer *tokenizer, const struct json *document);
i64 tokenizer_keep_string(struct text_tokenizer *tokenizer, const char *bytes, i64 length); /* offset in .strings */

i32 string_table_find(const struct string_table *table, const struct text_tokenizer *tokenizer, bool bytes,
                      const void *key, i64 length);
void string_table_add(struct string_table *table, const struct text_tokenizer *tokenizer, bool bytes, i32 id);
/* The model's token of this content, -1; added ones that are not the model's do not count. */
i32 tokenizer_find_model(const struct text_tokenizer *tokenizer, const void *content, i64 length);

u32 byte_to_char(u8 byte);                       /* GPT-2's printable character for a byte */
int char_to_byte(u32 c);                         /* -1 if it stands for no byte */
int byte_piece(const char *content, i64 length); /* the byte of "<0x41>", -1 */

/* ---- Added tokens in a text ---- */
void matcher_init(struct matcher *matcher, const struct text_tokenizer *tokenizer, bool normalized);
const struct added_token *matcher_longest(const struct text_tokenizer *tokenizer, const struct matcher *matcher,
                                          const u8 *text, i64 length); /* at text[0]; NULL */
struct added_match {
    const struct added_token *token;
    i64 begin, end; /* with the white space it takes */
};
struct added_cursor { /* {0} at first */
    i64 at, done;     /* done: end of the last match */
};
bool added_next(struct added_match *out, struct added_cursor *cursor, const struct text_tokenizer *tokenizer,
                const struct matcher *matcher, const u8 *text, i64 length);

struct encoder_pool *encoder_pool_open(void);
void encoder_pool_close(struct encoder_pool *pool);
void id_list_reserve(struct id_list *list, i64 more);

/* ---- Training ---- */
struct counted_word {
    i64 bytes, length; /* in word_counts.bytes */
    i64 count;
};
struct word_counts {
    struct text bytes;
    struct counted_word *words;
    i64 word_count, word_capacity;
    i32 *slots; /* words by their bytes; -1: empty */
    u64 mask;
};
/* Merges the pair seen most, again and again, until the model has so many tokens or no pair is left. byte_ids: of the
 * 256 bytes. */
int merges_learn(struct text_tokenizer *tokenizer, const struct word_counts *words, const i32 *byte_ids,
                 i64 vocabulary);

/* ---- Other formats ---- */
struct text_tokenizer *sentencepiece_parse(const void *bytes, i64 length, const char *origin);
bool sentencepiece_looks_like(const void *bytes, i64 length);
struct text_tokenizer *tiktoken_parse(const void *bytes, i64 length, const struct json *config, const char *origin);

#endif
