/* The modalities, as tables. modalities.c has one row for each: its name, its files, its positions
 * and lists of a batch, the weights of its losses, and the sizes that its tokenizer fixes. The
 * enums below number the rows. Code that treats all modalities alike walks a table; only code that
 * differs names a row.
 *
 *   token_size_rows  what the tokenizers fix for shards, batches and models
 *   modality_rows    what files hold and answers are: an image, its files, keys and words
 *   direction_rows   what a sample trains: a caption from an image, or an image from its caption
 *   input_rows       lists of a batch that the model reads, and the widths of their entries
 *   target_rows      lists of a batch that the model predicts, and their losses
 *   stream_rows      what a position shows: its form, its lists, its brackets
 *
 * Shards store streams and directions as the numbers of their rows, so rows are only appended.
 * tests/sequence/test_modalities.c checks that the tables fit each other. */
#ifndef WEFT_SEQUENCE_MODALITIES_H
#define WEFT_SEQUENCE_MODALITIES_H
#include "core/settings.h"

/* ---- Tokenizers and their sizes ---- */

enum tokenizer_kind { TOKENIZER_TEXT, TOKENIZER_VISION, TOKENIZER_AUDIO, TOKENIZERS };
/* The name is the folder of the tokenizer in shards and, below weft/, in a model directory; and the
 * key of a stage that reads it. */
extern const char *const tokenizer_names[TOKENIZERS];

/* Members of struct token_sizes, which shard and model configurations contain too. 0 means the
 * modality is absent. */
#define TOKEN_SIZES                                                                                                    \
    i64 vocabulary;    /* text ids are below it */                                                                     \
    i64 bits;          /* bits per vision token */                                                                     \
    i64 scales;        /* scales of the largest shape */                                                               \
    i64 cell_features; /* vision-in: encoder features per cell */                                                      \
    i64 stride;        /* pixels per side of a cell; 0 in a model, which only has patch_values */                      \
    i64 patch_values;  /* vision-in: pixel values per cell: frames * stride * stride * 3 */                            \
    i64 levels, codes; /* audio: codebook levels; codes per codebook */                                                \
    i64 voice;         /* values of a speaker vector */
struct token_sizes {
    TOKEN_SIZES
};
struct token_size_row {
    size_t member; /* offset in struct token_sizes */
    enum tokenizer_kind tokenizer;
    const char *what;                   /* for messages: "bits of a vision token"; NULL: not compared */
    const char *shard_key, *config_key; /* keys of shards.json and of "weft" in config.json; NULL: not stored */
    i64 most;
    bool may_be_smaller; /* a model also reads data with less of it */
    bool optional;       /* not stored where it is 0 */
};
enum { TOKEN_SIZE_ROWS = 9 };
extern const struct token_size_row token_size_rows[TOKEN_SIZE_ROWS];
static inline i64 *token_size(struct token_sizes *sizes, const struct token_size_row *row)
{
    return (i64 *)(void *)((char *)sizes + row->member);
}
static inline i64 token_size_of(const struct token_sizes *sizes, const struct token_size_row *row)
{
    return *(const i64 *)(const void *)((const char *)sizes + row->member);
}
/* Checks that a model can read data of the given sizes; `holder` is the folder of that data, for
 * messages. Returns -1 with a message on a mismatch: data of other tokenizers is meaningless and
 * would be read out of bounds. */
int token_sizes_check(const struct token_sizes *model, const struct token_sizes *given, const char *holder);

/* ---- What files hold and answers are ---- */

enum modality { MODALITY_TEXT, MODALITY_IMAGE, MODALITY_VIDEO, MODALITY_AUDIO, MODALITIES };
struct modality_row {
    const char *name;       /* "image": key of a record, an option of `weft generate`, a key of samples.json */
    const char *one, *many; /* "picture", "pictures", for messages */
    const char *suffixes;   /* file name suffixes of its media, or of captions */
    const char *unread;     /* of its files in formats that are not read */
    const char *members;    /* those that may be names of columns or members which hold such a file */
    const char *ending;     /* suffix of the file of an answer */
    const char *prompt;     /* help of its option of `weft generate`; NULL: no file in a prompt */
    enum tokenizer_kind tokenizer;
    bool lasts; /* it may have subtitles */
    /* Records only (data/sources). */
    const char *list_key;  /* key of a list of files */
    const char *url_key;   /* key of an address in a message's part */
    const char *mark;      /* stands for a file in a message's text */
    const char *captioned; /* a sample of one medium and its caption, for `weft inspect` */
    i64 leads;             /* order in which a medium is chosen among files of the same name; 0: never */
};
extern const struct modality_row modality_rows[MODALITIES];
/* The modality of a name such as "image"; MODALITIES if there is none. */
enum modality modality_named(const char *name);
/* Appends the names of all, with `between` between two and `last` before the last. */
void modality_names(struct buffer *out, const char *between, const char *last);

/* ---- What a sample trains; mixture weights are by direction ---- */

enum direction {
    DIRECTION_TEXT,
    DIRECTION_IMAGE_IN,
    DIRECTION_IMAGE_OUT,
    DIRECTION_VIDEO_IN,
    DIRECTION_VIDEO_OUT,
    DIRECTION_AUDIO_IN,
    DIRECTION_AUDIO_OUT,
    DIRECTION_CHAT,
    DIRECTIONS
};
struct direction_row {
    const char *name;
    enum modality modality; /* MODALITIES: of several */
    bool makes;             /* the medium is predicted from its caption, not the caption from it */
};
extern const struct direction_row direction_rows[DIRECTIONS];
/* The direction of a medium and its caption; DIRECTIONS if there is none. */
enum direction direction_of(enum modality modality, bool makes);

/* ---- Lists of a batch ---- */

/* Values per entry of a list: `times` the token size at `member`; at WIDTH_FIXED: `times`. */
struct list_width {
    i64 times;
    size_t member;
};
#define WIDTH_FIXED ((size_t)-1)
i64 list_width(struct list_width width, const struct token_sizes *sizes);

/* INPUT_VOICE is of no stream: one position that shows the speaker vector of a reference sound. */
enum input_kind { INPUT_TEXT, INPUT_VISION_IN, INPUT_VISION_OUT, INPUT_AUDIO, INPUT_VOICE, INPUTS };
struct input_row {
    struct list_width ids, features, pixels;
    bool by_level; /* ids are read level by level, each with an embedding of its own */
    bool scaled;   /* a position also has a scale */
};
extern const struct input_row input_rows[INPUTS];
/* False if a tokenizer that the list needs is absent. */
bool input_is_read(const struct token_sizes *sizes, enum input_kind kind);

enum target_kind { TARGET_TEXT, TARGET_MTP, TARGET_VISION, TARGET_AUDIO, TARGETS };
struct target_row {
    const char *name;
    struct list_width ids, bits;
    struct list_width classes; /* ids: values that an id may have, besides `ends` */
    i64 ends;                  /* further values of an id that end a medium */
    bool by_level;             /* each of the ids has a head of its own; their losses are averaged */
    /* Helps another target: its weight follows a schedule, it is not balanced, and models are not
     * compared by it. */
    bool helps;
    enum target_kind counted; /* the target whose frequencies of values it shares */
};
extern const struct target_row target_rows[TARGETS];
i64 target_levels(enum target_kind kind, const struct token_sizes *sizes); /* heads of a target */

/* Rows for a settings table whose struct has `double loss_weight[TARGETS]` and `struct schedule
 * mtp_weight`. */
#define LOSS_ROWS(type)                                                                                                \
    SETTING(type, loss_weight[TARGET_TEXT], "loss.text", NUMBER, "1", 0, 1e6, NULL, "weight of the next-token loss"),  \
        SETTING(type, mtp_weight, "loss.mtp", SCHEDULE, "0.3", 0, 1e6, NULL,                                           \
                "weight of the multi-token-prediction loss"),                                                          \
        SETTING(type, loss_weight[TARGET_VISION], "loss.vision", NUMBER, "1", 0, 1e6, NULL,                            \
                "weight of the vision bit loss"),                                                                      \
        SETTING(type, loss_weight[TARGET_AUDIO], "loss.audio", NUMBER, "1", 0, 1e6, NULL,                              \
                "weight of the audio code loss")

/* ---- Streams: what a position shows ---- */

/* Text ids that stand around media; NEXT is between the frames of a clip. */
enum bracket { BRACKET_BOI, BRACKET_EOI, BRACKET_BOV, BRACKET_EOV, BRACKET_NEXT, BRACKET_BOA, BRACKETS };
extern const char *const bracket_tokens[BRACKETS];

enum stream {
    STREAM_TEXT,
    STREAM_IMAGE_IN,
    STREAM_VIDEO_IN,
    STREAM_IMAGE_OUT,
    STREAM_VIDEO_OUT,
    STREAM_AUDIO,
    STREAMS
};
/* The form of a stream decides its positions (grammar.h) and its payloads (data/shards). */
enum stream_form {
    FORM_IDS,    /* text ids */
    FORM_CELLS,  /* frames of encoder cells, which see each other; only given */
    FORM_SCALES, /* frames of bits, scale after scale */
    FORM_CODES   /* frames of codes, level after level, and an end */
};
struct stream_row {
    const char *name;
    enum modality modality;
    enum stream_form form;
    bool gives;              /* may be a prompt before text that describes it */
    bool moves;              /* a clip */
    enum bracket begin, end; /* BRACKETS: none */
    enum input_kind input;
    enum target_kind target; /* TARGETS: never predicted */
    u32 colour;              /* 0xrrggbb, in pictures */
};
extern const struct stream_row stream_rows[STREAMS];
/* The first stream of a form that moves or not; STREAMS if there is none. */
enum stream stream_of_form(enum stream_form form, bool moves);
/* True if an answer of the modality is of the form. */
bool modality_has_form(enum modality modality, enum stream_form form);

/* The numbers of these rows stand in shards, and that of a part's notes follows the streams. A row
 * that changes a number of another one raises the version. */
enum { SHARD_VERSION = 1 };

/* ---- Settings by direction, by modality and by column ---- */

/* Rows for a settings table whose struct has `struct loader_settings loader`. */
#define MIXTURE_ROW(type, direction, key, help)                                                                        \
    SETTING(type, loader.mixture[direction], "mixture." key, NUMBER, "1", 0, 1000, NULL, "showings per epoch" help)
#define MIXTURE_ROWS(type)                                                                                             \
    MIXTURE_ROW(type, DIRECTION_TEXT, "text", " of each plain text"),                                                  \
        MIXTURE_ROW(type, DIRECTION_IMAGE_IN, "image_in", ", image to caption"),                                       \
        MIXTURE_ROW(type, DIRECTION_IMAGE_OUT, "image_out", ", caption to image"),                                     \
        MIXTURE_ROW(type, DIRECTION_VIDEO_IN, "video_in", ", clip to caption"),                                        \
        MIXTURE_ROW(type, DIRECTION_VIDEO_OUT, "video_out", ", caption to clip"),                                      \
        MIXTURE_ROW(type, DIRECTION_AUDIO_IN, "audio_in", ", speech to text"),                                         \
        MIXTURE_ROW(type, DIRECTION_AUDIO_OUT, "audio_out", ", text to speech"),                                       \
        MIXTURE_ROW(type, DIRECTION_CHAT, "chat", ", conversations")
#define CONDITION_ROWS(type)                                                                                           \
    SETTING(type, loader.condition[MODALITY_TEXT], "pack.text_condition", NUMBER, "1", 0, 1000, NULL,                  \
            "loss weight of captions used as prompts"),                                                                \
        SETTING(type, loader.condition[MODALITY_AUDIO], "pack.audio_condition", NUMBER, "0", 0, 1000, NULL,            \
                "loss weight of sounds used as prompts")

/* Names of the table columns or record keys that hold a modality: rows for a struct that has
 * `struct source_columns columns`. */
#define COLUMN_ROW(type, member, key, what)                                                                            \
    SETTING(type, columns.member, "columns." key, STRING, "", 0, 0, NULL, "table column or JSONL key of the " what)
#define MODALITY_COLUMN_ROWS(type)                                                                                     \
    COLUMN_ROW(type, modality[MODALITY_TEXT], "text", "text or caption"),                                              \
        COLUMN_ROW(type, modality[MODALITY_IMAGE], "image", "image"),                                                  \
        COLUMN_ROW(type, modality[MODALITY_VIDEO], "video", "clip"),                                                   \
        COLUMN_ROW(type, modality[MODALITY_AUDIO], "audio", "sound")

/* Tokenizers of a stage: rows for a struct that has `char *tokenizer[TOKENIZERS]`, folders. */
#define TOKENIZER_ROWS(type)                                                                                           \
    SETTING(type, tokenizer[TOKENIZER_TEXT], "text", REFERENCE, NULL, 0, 0, NULL, "text tokenizer"),                   \
        SETTING(type, tokenizer[TOKENIZER_VISION], "vision", REFERENCE, "", 0, 0, NULL,                                \
                "vision tokenizer; none: skip images and clips"),                                                      \
        SETTING(type, tokenizer[TOKENIZER_AUDIO], "audio", REFERENCE, "", 0, 0, NULL,                                  \
                "audio tokenizer; none: skip sounds")

#endif
