/* Text tokenizers: text to ids and back. This code trains byte-level BPE and reads the tokenizers
 * of other models: tokenizer.json (BPE, Unigram, WordPiece and WordLevel, with their normalizers,
 * pre-tokenizers, decoders and post-processors), SentencePiece .model files and tiktoken files.
 * Ids and texts equal those of HF tokenizers (0.23), SentencePiece (0.2) and tiktoken (0.14)
 * exactly. The caller frees a tokenizer with text_tokenizer_free; strings it returns belong to it
 * unless stated otherwise.
 *
 * Where is what:
 *   text_load.c         tokenizer.json; text_sentencepiece.c, text_tiktoken.c: the other formats
 *   text_encode.c       the order of the stages; text_decode.c and text_decoders.c: back to text
 *   text_normalize.c    rewriting before the cut; text_unicode.c, text_forms.c: NFC and others
 *   text_pretokenize.c  which splitter a file asks for; text_split.c: the hand-written splitters,
 *                       text_regex.c: all other patterns
 *   text_model_bpe.c    a piece to symbols, text_bpe.c: merges; text_unigram.c, text_wordpiece.c
 *   text_added.c        added and special tokens; text_template.c: ids around a text
 *   text_train.c        training: words and counts, text_merges.c: the merges
 *   text_chat.c         conversations; text_table.c: tokens by id and content; text_save.c */
#ifndef WEFT_TOKENIZERS_TEXT_H
#define WEFT_TOKENIZERS_TEXT_H
#include "core/core.h"

struct text_tokenizer;
/* Loads a file of any of these formats, detected by its first bytes, or a folder that holds one.
 * Returns NULL with a message on failure; an unsupported kind of step is an error that names the
 * kind and its place.
 *
 * Beside a .model or tiktoken file, tokenizer_config.json supplies the added tokens
 * (added_tokens_decoder). It also supplies the pattern of a tiktoken file (pattern, pat_str) and
 * tells if a .model file adds tokens around a text (add_bos_token, add_eos_token).
 *
 * Added tokens of a tokenizer.json get the ids HF gives them: that of the vocabulary's token with
 * the same content, else the next after the vocabulary. A file that states other ids causes a
 * warning. Truncation, padding and the model's dropout are not applied. */
struct text_tokenizer *text_tokenizer_load(const char *path);
struct text_tokenizer *text_tokenizer_parse(const char *json, i64 length, const char *origin);
/* Path of the tokenizer's file in a folder: tokenizer.json, tokenizer.model, tokenizer.tiktoken,
 * ... NULL if there is none. The caller frees it with memory_free. */
char *text_tokenizer_file(const char *folder);
void text_tokenizer_free(struct text_tokenizer *tokenizer);
/* Adds the special tokens (NULL-terminated) that a tokenizer of any kind lacks. Their ids follow
 * all others. */
int text_tokenizer_add_special(struct text_tokenizer *tokenizer, const char *const *contents);
/* Writes tokenizer.json, or the original file of another format, and tokenizer_config.json, which
 * stays as read if the tokenizer was loaded with one. */
int text_tokenizer_save(const struct text_tokenizer *tokenizer, const char *directory);

i64 text_vocabulary(const struct text_tokenizer *tokenizer); /* largest id + 1, added tokens included */
i32 text_token_id(const struct text_tokenizer *tokenizer, const char *content); /* -1 if there is none */
/* A token's content as in the file (byte characters); valid while the tokenizer lives. NULL if the
 * id has no token. */
const char *text_token_content(const struct text_tokenizer *tokenizer, i32 id);
bool text_token_is_special(const struct text_tokenizer *tokenizer, i32 id);
/* Merge i as two ids, for writers of other formats. Returns the number of merges, for any i. */
i64 text_merge(const struct text_tokenizer *tokenizer, i64 i, i32 *left, i32 *right);
const char *text_regex_family(const struct text_tokenizer *tokenizer); /* "qwen2", "gpt-2", "llama-bpe" or "other" */
bool text_normalizes_nfc(const struct text_tokenizer *tokenizer);
bool text_is_byte_level(const struct text_tokenizer *tokenizer);     /* true for BPE over bytes with merges by rank */
const char *text_model_name(const struct text_tokenizer *tokenizer); /* "BPE", "Unigram", "WordPiece", ... */

struct id_list {
    i32 *ids;
    i64 count, capacity;
};
void id_list_push(struct id_list *list, i32 id);
void id_list_release(struct id_list *list);

struct encode_options {
    bool plain; /* treats text that looks like an added token as text */
    /* Prepends a space unless the text has one, so that the first word gets its mid-sentence
     * token. */
    bool begins_word;
    bool inside;        /* other ids precede the text: omits the prefix a file adds only at the beginning of a text */
    bool add_template;  /* adds the post-processor's tokens around the text (Llama-3's begin of text) */
    double dropout;     /* probability of skipping a merge (BPE-dropout, Provilkov et al. 2020); 0: none */
    struct rng_key key; /* dropout key, drawn by (document, merge considered) */
    u32 document;
};
/* Encodes a text and appends its ids to `out`, which an error leaves unchanged. The text may hold
 * 0 bytes. Invalid UTF-8 is an error that names the byte's offset; a byte without a token in the
 * vocabulary is an error too. options NULL means {0}. Thread-safe; the ids depend on the arguments
 * only. */
int text_encode(const struct text_tokenizer *tokenizer, struct id_list *out, const char *text, i64 length,
                const struct encode_options *options);
/* Decodes ids and appends UTF-8. Ill-formed parts of the whole sequence become U+FFFD. An unknown
 * id is an error. */
int text_decode(const struct text_tokenizer *tokenizer, struct buffer *out, const i32 *ids, i64 count,
                bool skip_special);
/* Bytes of the text that the ids decode to, without special tokens. An ill-formed part counts as
 * one byte, an id without a token as none. -1 and a message if they cannot be decoded. */
i64 text_decoded_bytes(const struct text_tokenizer *tokenizer, const i32 *ids, i64 count);

/* Options of BPE training. The merges equal those of HF's BpeTrainer (min_frequency 0, 256-byte
 * alphabet) on the same texts. */
struct text_training {
    const char *family; /* "qwen2" (default when NULL), "gpt-2" or "llama-bpe" */
    bool nfc;
    i64 vocabulary; /* total ids: special tokens, bytes, merges; fewer if the text yields too few merges */
    const char *const *special_tokens; /* NULL-terminated; may be NULL */
    bool specials_last;                /* true: ids after the merges; false: ids from 0 on */
};
struct text_trainer;
struct text_trainer *text_trainer_open(const struct text_training *training);
int text_trainer_feed(struct text_trainer *trainer, const char *text, i64 length); /* one document, UTF-8 */
struct text_tokenizer *text_trainer_finish(struct text_trainer *trainer); /* closes the trainer; NULL: message */
void text_trainer_close(struct text_trainer *trainer);                    /* discards the training */

i64 text_invalid_utf8(const char *text, i64 length); /* offset of the first ill-formed byte, -1 if there is none */
/* Folds a text for the comparison of words: NFC, lower case. Letters, marks, numbers and
 * apostrophes stay, invisible characters vanish, everything else and ill-formed bytes become
 * spaces. Replaces `out`. */
void text_fold(struct buffer *out, const char *text, i64 length);

/* ---- Conversations (text_chat.c) ----
 * The layout is the one that chat_template in the tokenizer_config.json beside the tokenizer
 * describes (ChatML, Llama-3, Gemma, Phi-3, Phi-4, DeepSeek, ERNIE-4.5, Mistral V1, V2, V3, V7),
 * and ChatML without a chat_template. The ids equal those of the whole conversation encoded as one
 * text, except that the text of an answer is encoded by itself, as in generation. */
struct chat_layout;
extern const char *const chat_template; /* ChatML's Jinja template, written to tokenizer_config.json */
const struct chat_layout *text_chat_layout(const struct text_tokenizer *tokenizer); /* NULL: message */
/* The Jinja template; NULL if the tokenizer has no layout. */
const char *text_chat_template(const struct text_tokenizer *tokenizer);
/* Treatment of the role "system": CHAT_FOLD_NONE keeps it. A layout without this role puts the
 * message before the first or the last question, separated by an empty line. */
enum chat_fold { CHAT_FOLD_NONE, CHAT_FOLD_FIRST, CHAT_FOLD_LAST };
enum chat_fold chat_folds_system(const struct chat_layout *layout);
/* Plain text that ends every message of this role, or begins every answer; "" for none. It
 * tokenizes together with the message, so the caller appends it to the message's last text or
 * prepends it to the answer's first text. */
const char *chat_ending(const struct chat_layout *layout, const char *role);
const char *chat_before_answer(const struct chat_layout *layout);
/* Trims spaces at the start of a message's first text and the end of its last one, if the layout
 * does so. */
void chat_trim(const struct chat_layout *layout, bool first, bool last, const char **text, i64 *length);
/* These functions append ids to `out`. text_chat_begin: tokens before the first message.
 * text_chat_head: tokens before a message, and its text. text_chat_text: more text of a message,
 * or an answer's text. text_chat_tail: tokens after a message; the first of them ends an answer.
 * Content is always encoded as plain text. A role that the layout lacks is an error. */
int text_chat_begin(struct id_list *out, const struct text_tokenizer *tokenizer, const struct chat_layout *layout);
int text_chat_head(struct id_list *out, const struct text_tokenizer *tokenizer, const struct chat_layout *layout,
                   const char *role, const char *text, i64 length);
int text_chat_tail(struct id_list *out, const struct text_tokenizer *tokenizer, const struct chat_layout *layout,
                   const char *role);
int text_chat_text(struct id_list *out, const struct text_tokenizer *tokenizer, const char *text, i64 length);
/* Ids that begin a message and end an answer; unchanged if there is no layout. */
void text_chat_marks(i32 *begin, i32 *end, const struct text_tokenizer *tokenizer);
#endif
