/* Text tokenizers. Byte-level BPE is trained here; read are those of other models too: tokenizer.json (BPE, Unigram,
 * WordPiece, WordLevel, with their normalisers, pre-tokenisers, decoders and post-processors), SentencePiece .model
 * files, tiktoken files. Ids and texts are exactly those of HF tokenizers (0.23), SentencePiece (0.2) and tiktoken
 * (0.14). */
#ifndef WEFT_TOKENIZERS_TEXT_H
#define WEFT_TOKENIZERS_TEXT_H
#include "core/core.h"

struct text_tokenizer;
/* A file of any of these formats (its first bytes tell which), or a folder that holds one; NULL: message. A kind of
 * step that is not known is refused by name and place. tokenizer_config.json beside a .model or tiktoken file has its
 * added tokens (added_tokens_decoder), the expression of the latter (pattern, pat_str), and whether the former puts
 * tokens around a text (add_bos_token, add_eos_token). Ids of added tokens of a tokenizer.json are those HF gives: of
 * the vocabulary's token of the same content, else counting on after the vocabulary; a file that says otherwise gets a
 * warning. Truncation, padding and the model's dropout are not applied. */
struct text_tokenizer *text_tokenizer_load(const char *path);
struct text_tokenizer *text_tokenizer_parse(const char *json, i64 length, const char *origin);
/* Path of the tokenizer's file in a folder: tokenizer.json, tokenizer.model, tokenizer.tiktoken, ...; NULL: there is
 * none. memory_free. */
char *text_tokenizer_file(const char *folder);
void text_tokenizer_free(struct text_tokenizer *tokenizer);
/* Adds special tokens that it does not have yet (NULL-terminated), of whatever kind it is; ids count on after all
 * others.
 */
int text_tokenizer_add_special(struct text_tokenizer *tokenizer, const char *const *contents);
/* Writes tokenizer.json, or the file of another format as it was read, and tokenizer_config.json: as it was where the
 * tokenizer was read with one. */
int text_tokenizer_save(const struct text_tokenizer *tokenizer, const char *directory);

i64 text_vocabulary(const struct text_tokenizer *tokenizer); /* largest id + 1, added tokens included */
i32 text_token_id(const struct text_tokenizer *tokenizer, const char *content); /* -1 if there is none */
/* As in the file (byte characters), as long as the tokenizer lives; NULL if the id has no token. */
const char *text_token_content(const struct text_tokenizer *tokenizer, i32 id);
bool text_token_is_special(const struct text_tokenizer *tokenizer, i32 id);
/* For writers of other formats: merge i as two ids; returns the number of merges for any i. */
i64 text_merge(const struct text_tokenizer *tokenizer, i64 i, i32 *left, i32 *right);
const char *text_regex_family(const struct text_tokenizer *tokenizer); /* "qwen2", "gpt-2", "llama-bpe" or "other" */
bool text_normalizes_nfc(const struct text_tokenizer *tokenizer);
bool text_is_byte_level(const struct text_tokenizer *tokenizer);     /* BPE whose tokens are bytes, merges by rank */
const char *text_model_name(const struct text_tokenizer *tokenizer); /* "BPE", "Unigram", "WordPiece", ... */

struct id_list {
    i32 *ids;
    i64 count, capacity;
};
void id_list_push(struct id_list *list, i32 id);
void id_list_release(struct id_list *list);

struct encode_options {
    bool plain;         /* text that looks like an added token is text */
    bool begins_word;   /* a space is put before it, so that its first word is the token it is within a sentence */
    bool inside;        /* other ids stand before it: what a file puts at the beginning of a text alone is not put */
    bool add_template;  /* with what the file's post-processor puts around a text (Llama-3's begin of text) */
    double dropout;     /* probability to skip a merge (BPE-dropout, Provilkov et al. 2020); 0: none */
    struct rng_key key; /* of dropout: drawn by (document, merge considered) */
    u32 document;
};
/* Appends to `out`; on error `out` is as before. The text may hold 0 bytes; invalid UTF-8 is an error with the byte's
 * offset, and so is a byte that the vocabulary has no token for. options NULL: {0}. Thread-safe; the ids depend on the
 * arguments alone. */
int text_encode(const struct text_tokenizer *tokenizer, struct id_list *out, const char *text, i64 length,
                const struct encode_options *options);
/* Appends UTF-8; ill-formed parts become U+FFFD over the whole sequence. An unknown id is an error. */
int text_decode(const struct text_tokenizer *tokenizer, struct text *out, const i32 *ids, i64 count, bool skip_special);

/* Training, merge for merge that of HF's BpeTrainer(min_frequency 0, 256-byte alphabet) on the same texts. */
struct text_training {
    const char *family; /* "qwen2" (default when NULL), "gpt-2" or "llama-bpe" */
    bool nfc;
    i64 vocabulary; /* ids in all: special tokens, bytes, merges; fewer if the text gives no more merges */
    const char *const *special_tokens; /* NULL-terminated; may be NULL */
    bool specials_last;                /* else they take ids 0.. ; last: ids after the merges */
};
struct text_trainer;
struct text_trainer *text_trainer_open(const struct text_training *training);
int text_trainer_feed(struct text_trainer *trainer, const char *text, i64 length); /* one document, UTF-8 */
struct text_tokenizer *text_trainer_finish(struct text_trainer *trainer); /* closes the trainer; NULL: message */
void text_trainer_close(struct text_trainer *trainer);                    /* without a result */

i64 text_invalid_utf8(const char *text, i64 length); /* offset of the first ill-formed byte, -1 if there is none */
/* Text as its words are compared: NFC, without case; letters, marks, numbers and apostrophes stay, invisible characters
 * vanish, all else and ill-formed bytes become spaces. Replaces `out`. */
void text_fold(struct text *out, const char *text, i64 length);

/* ---- Conversations (text_chat.c): the layout that chat_template of the tokenizer_config.json beside the tokenizer
 * asks for (ChatML, Llama-3, Gemma, Phi-3, Phi-4, DeepSeek, ERNIE-4.5, Mistral V1, V2, V3, V7), ChatML where there is
 * none. Ids are those of the whole conversation as one text, but that an answer's text is encoded by itself, as it is
 * when it is generated. ---- */
struct chat_layout;
extern const char *const chat_template; /* ChatML's, Jinja, written to tokenizer_config.json */
const struct chat_layout *text_chat_layout(const struct text_tokenizer *tokenizer); /* NULL: message */
/* Jinja; NULL: the tokenizer has no layout. */
const char *text_chat_template(const struct text_tokenizer *tokenizer);
/* It has no role "system": such a message stands before the first question, or the last, an empty line between. */
enum chat_fold { CHAT_FOLD_NONE, CHAT_FOLD_FIRST, CHAT_FOLD_LAST };
enum chat_fold chat_folds_system(const struct chat_layout *layout);
/* Plain text that belongs to the end of a message of this role, and to the beginning of every answer; "": none. Who
 * encodes the last text of a message, or the first of an answer, puts it there, for it is one with it. */
const char *chat_ending(const struct chat_layout *layout, const char *role);
const char *chat_before_answer(const struct chat_layout *layout);
/* Some layouts drop spaces at the ends of a message: of its first and last text. */
void chat_trim(const struct chat_layout *layout, bool first, bool last, const char **text, i64 *length);
/* Append to `out`: what stands before the first message; before a message and with it its text; more text of a message,
 * or an answer's; what stands behind it, of which the first id ends an answer. Content is plain text whatever it looks
 * like. A role the layout does not have is an error. */
int text_chat_begin(struct id_list *out, const struct text_tokenizer *tokenizer, const struct chat_layout *layout);
int text_chat_head(struct id_list *out, const struct text_tokenizer *tokenizer, const struct chat_layout *layout,
                   const char *role, const char *text, i64 length);
int text_chat_tail(struct id_list *out, const struct text_tokenizer *tokenizer, const struct chat_layout *layout,
                   const char *role);
int text_chat_text(struct id_list *out, const struct text_tokenizer *tokenizer, const char *text, i64 length);
/* The id that begins a message, and that which ends an answer; without a layout they stay as they are. */
void text_chat_marks(i32 *begin, i32 *end, const struct text_tokenizer *tokenizer);
#endif
