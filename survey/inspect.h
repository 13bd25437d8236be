/* survey: what files hold. This door describes them (weft inspect); init.h chooses a recipe for them.
 *
 * Where is what: inspect.c chooses by what a path holds: inspect_model.c, inspect_gguf.c, inspect_data.c
 * (shards, recipes, runs, media; inspect_folders.c: folders of shards) or inspect_sources.c (raw data;
 * inspect_captions.c: their captions). inspect_show.c prints.
 *
 * Each function describes a file or folder of each kind as a JSON object, which the caller frees
 * with json_free; NULL and a message if the file is damaged. inspect_show formats the object for
 * people: objects as lines, lists of objects as tables. */
#ifndef WEFT_SURVEY_INSPECT_H
#define WEFT_SURVEY_INSPECT_H
#include "core/json.h"
#include "data/sources/sources.h"

/* Describes whatever a path or an address holds, as one of the functions below does. */
struct inspect_options {
    bool verify, files;            /* verify: every byte, also of more than 1 GiB; files: list each */
    struct source_columns columns; /* column names of data tables */
};
struct json *inspect_path(const char *path, const struct inspect_options *options);
/* Takes the files of a finished stage as they are. 0, or -1 and a message. */
int inspect_accept(const char *path);

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

/* What captions by name would give the media of a source that have none, once it was read
 * (inspect_captions.c).
 * root: what it was opened with. */
enum { CAPTIONS_SHOWN = 4 };
struct caption_offer {
    i64 media, distinct; /* captioned, by how many captions */
    i64 words;           /* captioned by more than numbers and words of cameras */
    struct caption_shown {
        char *caption, *path;
        i64 media;
    } first[CAPTIONS_SHOWN];
    i64 count;
    char *without; /* the first medium that gets none */
};
struct captions_found {
    i64 media; /* without a caption */
    struct caption_offer folder, name;
};
struct hash_set;
void captions_count(struct caption_offer *offer, struct hash_set *known, const char *caption, const char *path);
void caption_offer_release(struct caption_offer *offer);
void captions_find(struct captions_found *out, const struct source *source, const char *root);
void captions_release(struct captions_found *found);
/* True if the names of folders look like classes: several, of words, with several media each, and hardly
 * one of all `media` without. */
bool captions_have_classes(const struct caption_offer *folders, i64 media);
void captions_advise(struct buffer *out, const struct captions_found *found); /* the choices, with examples */
void captions_list(struct buffer *out, const struct caption_offer *offer);
int captions_named(const char *word); /* enum source_captions; -1 and a message */
const char *captions_word(enum source_captions captions);

void inspect_show(struct buffer *out, const struct json *value);
#endif
