/* What the files of the text tokenizer share: characters (text_unicode.c), regular expressions (text_regex.c),
 * pre-tokenisation (text_split.c), merges (text_bpe.c), the tokenizer itself (text_table.c). Tests use it to set the
 * hand-made splitters beside the regular expressions they stand for; nobody else includes it. */
#ifndef WEFT_TOKENIZERS_TEXT_INTERNAL_H
#define WEFT_TOKENIZERS_TEXT_INTERNAL_H
#include "tokenizers/regex.h"
#include "tokenizers/text.h"

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

/* NFC with the tables of Unicode 9. False: `text` is in NFC already and `out` untouched; else the result replaces
 * `out`. */
bool unicode_nfc(struct text *out, const u8 *text, i64 length);

/* ---- Pre-tokenisation: a chain of splitters, each cutting the pieces of the one before ---- */
extern const char *const REGEX_QWEN2, *const REGEX_LLAMA, *const REGEX_GPT2;
enum split_kind { SPLIT_QWEN2, SPLIT_LLAMA, SPLIT_GPT2, SPLIT_REGEX, SPLIT_PREFIX_SPACE };
struct splitter {
    enum split_kind kind;
    struct regex *regex; /* of SPLIT_REGEX */
    const u8 *classes;
};
#define MAX_SPLITTERS 16
/* A known pattern gets its hand-made splitter, unless `plain`; any other is compiled. */
int splitter_init(struct splitter *splitter, const char *pattern, bool plain, const char *origin);
void splitter_release(struct splitter *splitter);

struct split_cursor { /* {0} before the first piece of a text */
    struct regex_scratch *scratch;
    i64 search_from, match_begin, match_end;
    bool found, exhausted, any;
};
/* End of the piece that begins at `at` (< length), which is 0 or what the last call returned; -1: message. Regular
 * expressions may return empty pieces. Never called for SPLIT_PREFIX_SPACE. */
i64 splitter_next(const struct splitter *splitter, struct split_cursor *cursor, const u8 *text, i64 at, i64 length);

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
struct bpe_scratch {
    void *memory;
    i64 bytes;
};
/* Merges ids[0..count) in place, lowest rank first, of equals the leftmost; returns the new count. */
i64 bpe_merge(const struct pair_table *table, struct bpe_scratch *scratch, i32 *ids, i64 count,
              struct bpe_dropout *dropout);

/* ---- The tokenizer ---- */
struct string_table { /* open addressing: the ids of tokens by their content (or bytes) */
    i32 *slots;       /* -1: empty */
    u64 mask;
    i64 count;
};
struct token {
    i64 content, content_length;            /* in .strings, 0-terminated; content -1: the id is not used */
    i64 bytes, bytes_length;                /* in .strings: what it decodes to */
    bool special, skipped, in_model, added; /* skipped: where decoding leaves special tokens out */
};
struct added_token {
    i32 id;
    i64 match, match_length; /* in .strings: what is looked for (normalised where the token is) */
    bool single_word, lstrip, rstrip, normalized;
};
struct merge {
    i32 left, right, id;
};
struct matcher { /* finds the longest of some strings: sorted by bytes, narrowed byte by byte */
    i32 *order;  /* indices of added tokens */
    i64 count;
    i64 first[257]; /* those that begin with byte b: first[b] .. first[b + 1] */
};
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
    bool nfc, ignore_merges;
    i32 unknown; /* id of unk_token, -1 for none */
    struct splitter splitters[MAX_SPLITTERS];
    int splitter_count;
    i32 *template_before, *template_after; /* ids the post-processor puts around a text */
    i64 before_count, after_count;
    struct json
        *settings; /* normalizer, pre_tokenizer, post_processor, decoder, model without vocab and merges: as read */
    struct json *config; /* tokenizer_config.json as read; NULL */

    /* Made by tokenizer_seal. */
    const u8 *classes;
    i32 byte_ids[256];
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
int tokenizer_seal(struct text_tokenizer *tokenizer); /* nothing is added after it */
/* normalizer, pre_tokenizer, post_processor and decoder from `document`; a trained tokenizer has them as JSON too. */
int tokenizer_configure(struct text_tokenizer *tokenizer, const struct json *document);

i32 string_table_find(const struct string_table *table, const struct text_tokenizer *tokenizer, bool bytes,
                      const void *key, i64 length);

u32 byte_to_char(u8 byte); /* GPT-2's printable character for a byte */
int char_to_byte(u32 c);   /* -1 if it stands for no byte */

struct encoder_pool *encoder_pool_open(void);
void encoder_pool_close(struct encoder_pool *pool);

#endif
