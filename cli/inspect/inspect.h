/* `weft inspect`: describes a file or folder of each kind as a JSON object, which the caller frees
 * with json_free; NULL and a message if the file is damaged. inspect_show formats the object for
 * people: objects as lines, lists of objects as tables. */
#ifndef WEFT_CLI_INSPECT_H
#define WEFT_CLI_INSPECT_H
#include "core/json.h"
#include "data/sources/sources.h"

/* verify: reads every byte and checks it as far as the format allows (checksums, missing tensors,
 * values that are not finite). */
struct json *inspect_model(const char *directory, bool verify);
/* A step's folder, or the folder of all steps, of which the newest complete one is shown. */
struct json *inspect_checkpoint(const char *directory);
struct json *inspect_media_tokenizer(const char *directory, bool verify); /* a vision or audio tokenizer */
struct json *inspect_safetensors(const char *path, bool verify);
struct json *inspect_shards(const char *directory, bool verify);
struct json *inspect_shard_folders(const char *path, bool verify);
struct json *inspect_tokenizer(const char *path);
struct json *inspect_recipe(const char *path);
struct json *inspect_media(const char *path);
struct json *inspect_gguf(const char *path);
struct json *inspect_run(const char *directory, bool verify);
/* What `weft inspect` takes a path for: "data", "model", "shards", ..; NULL: a file of no kind that
 * holds samples. */
const char *inspect_kind(const char *path);

/* The form that `prepare` gives a sample: a text, ids, a captioned medium of a modality (numbered
 * from BECOMES_IDS on), a conversation or a document. */
enum outcome { BECOMES_TEXT, BECOMES_IDS, BECOMES_CHAT = BECOMES_IDS + MODALITIES, BECOMES_MIXED, OUTCOMES };
enum outcome sample_outcome(const struct sample *sample);
const char *outcome_name(int outcome);
/* Passes every sample of a source to `see`, and to `bad` why an entry is none or names a medium that
 * does not exist. file: of source_files; -1: unknown. Returns -1 and a message if the source cannot
 * be read now. */
struct sample_visitor {
    void *context;
    void (*see)(void *context, const struct source *source, const struct sample *sample, i64 file);
    void (*bad)(void *context, const char *why);
};
int source_visit(struct source *source, const struct sample_visitor *visitor);
/* Raw data: text, JSON lines, tables, archives and media.
 * Shows the samples they become. files: also per file. */
struct json *inspect_sources(const char *path, bool files, const struct source_columns *columns);

void inspect_show(struct buffer *out, const struct json *value);

/* ---- `weft init`: what data hold, counted in one pass (count.c) ---- */
enum { INIT_SEED = 1, INIT_SHARES = 11, INIT_PROMPTS = 3 };
extern const double init_shares[INIT_SHARES]; /* shares that may be drawn for validation, ascending */

enum { INIT_LONG_BYTES = 1000, INIT_LENGTH = 512, INIT_LENGTHS = 4 };
/* Estimates for the usual tokenizers, in positions: text; pictures of 64 x 64 pixels with a stride of
 * 16; clips of 9 frames; sounds, of which at most init_sound_most_s are read. */
extern const double init_bytes_per_token, init_picture_in, init_clip_in, init_sound_per_s, init_sound_most_s;
struct init_kind { /* samples of one outcome */
    i64 samples, text_bytes, media_bytes;
    i64 named[SPLITS];         /* by the names of folders and files, if these name splits */
    i64 held_out[INIT_SHARES]; /* that INIT_SEED draws for validation at each share */
    i64 long_texts;            /* with a text of more than INIT_LONG_BYTES that is not cut to windows */
    i64 subtitled;             /* their text is subtitles */
    double media_positions;    /* estimate of all media that they read */
    i64 longer[INIT_LENGTHS];  /* not cut, and by an estimate longer than INIT_LENGTH << i positions */
};
struct init_probe { /* media of a modality that were opened: some of them, if there are many */
    i64 opened, unreadable, with_sound;
    i64 long_ones; /* clips of more than a minute, sounds of more than 30 s */
    double seconds;
    char *first_unreadable;
};
struct init_data { /* what a folder, file or address holds */
    char *path;    /* as a recipe names it: begins with / ./ or ../, or is an address */
    bool names_splits;
    i64 files, bytes, bad;
    char *first_bad;
    struct init_kind kinds[OUTCOMES];
    struct init_probe probes[MODALITIES];
    i64 alone[MODALITIES];  /* media without a caption */
    i64 inside[MODALITIES]; /* in conversations and documents, each file once; of no caption so far */
    char *first_alone[MODALITIES];
    char *prompts[INIT_PROMPTS]; /* beginnings of texts, or NULL */
    double validation;           /* share to draw; 0: none, or names decide */
};
/* Reads all samples and opens some of the media. -1 and a message if nothing can be trained on. */
int init_look(struct init_data *out, const char *path);
void init_data_release(struct init_data *data);
i64 init_held_out(const struct init_data *data, enum outcome outcome); /* samples for validation */
double init_mean_seconds(const struct init_data *data, enum modality kind);
void init_log(const struct init_data *data); /* what was found, and what is too little */
#endif
