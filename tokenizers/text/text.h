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
 *   text_normalize.c    rewriting before the cut; text_unicode.c, text_forms.c: NFC and others;
 *                       text_charsmap.c: SentencePiece's table; text_properties.c: characters
 *   text_pretokenize.c  which splitter a file asks for; text_split.c: the hand-written splitters,
 *                       text_regex.c, text_regex_class.c: all other patterns; text_scripts.c: cuts
 *                       between scripts
 *   text_model_bpe.c    a piece to symbols, text_bpe.c: merges; text_unigram.c, text_wordpiece.c
 *   text_added.c        added and special tokens; text_template.c: ids around a text
 *   text_train.c        training: words and counts, text_merges.c: the merges
 *   text_chat.c         conversations; chat_spelled.c, chat_learned.c: what of them is text, is learned;
 *                       chat_day.c: the day that a template writes; chat_template.c: the template of
 *                       tokenizers made here
 *   text_table.c        tokens by id and content; text_save.c
 *   text_find.c         helpers of readers; text_trie.c: longest match */
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
 * stays as read if the tokenizer was loaded with one, but holds the chat templates, whichever files
 * they came from. */
int text_tokenizer_save(const struct text_tokenizer *tokenizer, const char *directory);

i64 text_vocabulary(const struct text_tokenizer *tokenizer); /* largest id + 1, added tokens included */
i32 text_token_id(const struct text_tokenizer *tokenizer, const char *content); /* -1 if there is none */
/* A token's content as in the file (byte characters); valid while the tokenizer lives. NULL if the
 * id has no token. */
const char *text_token_content(const struct text_tokenizer *tokenizer, i32 id);
bool text_token_is_special(const struct text_tokenizer *tokenizer, i32 id);
bool text_token_is_added(const struct text_tokenizer *tokenizer, i32 id); /* found in texts before they are cut */
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

/* A place in a text whose ids are encoded. Of a token that spans it, both ends are known: it begins
 * before the place and ends behind it. */
struct text_border {
    i64 at;           /* bytes before it */
    i64 begun, ended; /* ids, of those appended, that begin before it, and that end at or before it */
};
struct encode_options {
    bool plain; /* text that looks like a special token is text, as with encode_special_tokens of tokenizers */
    /* Prepends a space unless the text has one, so that the first word gets its mid-sentence
     * token. */
    bool begins_word;
    bool inside;       /* other ids precede the text: omits the prefix a file adds only at the beginning of a text */
    bool add_template; /* adds the post-processor's tokens around the text (Llama-3's begin of text) */
    /* Byte offsets in ascending order at which no added token begins: the text there is plain. */
    const i64 *barred;
    i64 barred_count;
    struct text_border *borders; /* in ascending order; their ids are set */
    i64 border_count;
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
 * A conversation is laid out by the tokenizer's chat template. The ids are those of transformers'
 * apply_chat_template: the rendered text, encoded as one, with the template's marks as tokens. Two
 * things differ, both on purpose:
 *
 *   - A mark that a message spells stays text, so that no message forges a turn. Marks are the
 *     special tokens, and the added tokens that the template writes around plain texts
 *     (chat_spelled.c). Other added tokens, such as <think>, are tokens wherever they stand.
 *   - What is learned (chat_learned.c) follows from {% generation %} or, without these marks, from
 *     the difference of renderings: an answer begins where the rendering of the messages before it,
 *     with the generation prompt, ends, and ends with its end token. An id is learned if it begins
 *     inside of that; inside of {% generation %}, if it overlaps it, as in transformers.
 *
 * Templates come from chat_template.jinja and additional_chat_templates/ beside the tokenizer, else
 * from `chat_template` in its tokenizer_config.json, else from chat_template.json. Of several, the
 * one named tool_use lays out conversations with tools, and the one named default all others. Without
 * any it is ChatML, if the vocabulary has its tokens. */
struct chat;
struct json;
extern const char *const chat_template;                              /* the one of ChatML */
struct chat *text_chat_open(const struct text_tokenizer *tokenizer); /* borrows it; NULL: message */
void text_chat_close(struct chat *chat);
/* The day, YYYY-MM-DD, that strftime_now gives in chats that are opened from now on (chat_day.c); "" or
 * NULL: that of the clock. -1 and a message: it is no day. */
enum { CHAT_DAY = 11 };
int text_chat_set_day(struct text_tokenizer *tokenizer, const char *day);
int chat_check_day(const char *day);
void chat_today(char day[CHAT_DAY]); /* local */
bool text_chat_reads_clock(const struct chat *chat);
/* Template number `index` and its name; NULL: there are fewer. */
const char *text_chat_template(const struct text_tokenizer *tokenizer, i64 index, const char **name);

/* A medium in a content: this character, with the number of the medium added. */
enum { CHAT_MEDIUM = 0x10f000, CHAT_MEDIA_MOST = 0x1000 };
void chat_put_medium(struct buffer *content, i64 medium);
/* True if a content must be a list of texts, or, for one of several parts, may be one. */
bool chat_lists_texts(const struct chat *chat, const struct json *variables, bool several);

struct chat_request {
    const struct json *messages;  /* a list of {"role", "content", ..} as apply_chat_template takes it */
    const struct json *variables; /* tools, documents and others of the template; NULL: none */
    i64 media;                    /* number of its media, each in one content */
    bool prompt;                  /* ends with the generation prompt */
    const bool *learned;          /* [messages] the answers to learn; NULL: none */
    bool trims;                   /* leaves out white space behind the last mark */
};
struct chat_run { /* ids of one kind, then perhaps a medium */
    i64 end;      /* in the list of ids */
    i32 medium;   /* its number; -1: none */
    bool learned; /* the ids */
};
struct chat_ids {
    struct id_list ids;
    struct chat_run *runs;
    i64 run_count, run_capacity;
};
void chat_ids_release(struct chat_ids *ids);
/* Lays a conversation out. Replaces `out`. -1 and a message: the template refuses it, or something
 * that it would have to write is not supported. Thread-safe. */
int text_chat_encode(struct chat_ids *out, const struct chat *chat, const struct chat_request *request);
/* The text of a conversation as its template writes it. Replaces `out`. */
int text_chat_text(struct buffer *out, const struct chat *chat, const struct chat_request *request);
/* Ids between an answer that has ended and the next one, to this user message. Appends to `out`. */
int text_chat_after_answer(struct id_list *out, const struct chat *chat, const char *text);
/* Text that the template writes between the generation prompt and an answer. */
const char *text_chat_lead(const struct chat *chat);
/* Ids that begin a message and end an answer; unchanged where a template has none. */
void text_chat_marks(i32 *begin, i32 *end, const struct text_tokenizer *tokenizer);
#endif
