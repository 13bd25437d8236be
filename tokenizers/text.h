/* Byte-level BPE in the HF tokenizer.json format: trained here, or read from files of the GPT-2, Llama-3 and Qwen2
 * families. Encoding is exactly that of HF tokenizers (0.23): added tokens leftmost-longest on the raw text, NFC where the
 * file asks for it, the file's regex (PCRE2, with the Unicode corner cases of Oniguruma), merges by rank. */
#ifndef WEFT_TOKENIZERS_TEXT_H
#define WEFT_TOKENIZERS_TEXT_H
#include "core/core.h"

struct text_tokenizer;
struct text_tokenizer *text_tokenizer_load(const char *path); /* a tokenizer.json, or a folder that holds one; NULL: message */
struct text_tokenizer *text_tokenizer_parse(const char *json, i64 length, const char *origin);
void text_tokenizer_free(struct text_tokenizer *tokenizer);
int text_tokenizer_save(const struct text_tokenizer *tokenizer, const char *directory); /* tokenizer.json, tokenizer_config.json */

i64 text_vocabulary(const struct text_tokenizer *tokenizer); /* largest id + 1, added tokens included */
i32 text_token_id(const struct text_tokenizer *tokenizer, const char *content); /* -1 if there is none */
const char *text_token_content(const struct text_tokenizer *tokenizer, i32 id); /* as in the file (byte characters); NULL if none */
bool text_token_is_special(const struct text_tokenizer *tokenizer, i32 id);
/* For writers of other formats: merge i as two ids; returns the number of merges for i < 0. */
i64 text_merge(const struct text_tokenizer *tokenizer, i64 i, i32 *left, i32 *right);
const char *text_regex_family(const struct text_tokenizer *tokenizer); /* "qwen2", "gpt-2", "llama-bpe" or "other" */
bool text_normalizes_nfc(const struct text_tokenizer *tokenizer);

struct id_list { i32 *ids; i64 count, capacity; };
void id_list_push(struct id_list *list, i32 id);
void id_list_release(struct id_list *list);

/* Appends to `out`. The text may hold 0 bytes; invalid UTF-8 is an error with the byte's offset. Added tokens in the text
 * become their ids unless `plain`. add_template: with the ids that the file's post-processor puts around a text (Llama-3's
 * begin of text), as HF's encode() does. dropout: probability to skip a merge (BPE-dropout, Provilkov et al. 2020), drawn by key
 * and (document, merge number); 0 for none. Thread-safe. */
struct encode_options { bool plain, add_template; double dropout; struct rng_key key; u32 document; };
int text_encode(const struct text_tokenizer *tokenizer, struct id_list *out, const char *text, i64 length, const struct encode_options *options /* may be NULL */);
/* Appends UTF-8; ill-formed parts become U+FFFD over the whole sequence. An unknown id is an error. */
int text_decode(const struct text_tokenizer *tokenizer, struct text *out, const i32 *ids, i64 count, bool skip_special);

/* Training, merge for merge that of HF's BpeTrainer(min_frequency 0, 256-byte alphabet) on the same texts. */
struct text_training {
    const char *family; /* "qwen2" (default when NULL) or "gpt-2" */
    bool nfc;
    i64 vocabulary; /* ids in all: special tokens, bytes, merges */
    const char *const *special_tokens; /* NULL-terminated; may be NULL */
    bool specials_last; /* else they take ids 0.. ; last: ids after the merges */
};
struct text_trainer;
struct text_trainer *text_trainer_open(const struct text_training *training);
int text_trainer_feed(struct text_trainer *trainer, const char *text, i64 length); /* one document */
struct text_tokenizer *text_trainer_finish(struct text_trainer *trainer);          /* closes the trainer */

/* The one chat layout, used by sft, rl and generate: "<|im_start|>ROLE\nCONTENT<|im_end|>\n". */
extern const char *const chat_template; /* Jinja, written to tokenizer_config.json */
#endif
