/* Shards: samples as the packer wants them, encoded once. A folder holds
 *
 *   shards.json                 what the samples are made of: widths, shapes, amplitudes; the tokenizers that made them
 *   text/ vision/ audio/        copies of those tokenizers
 *   train/ validation/ test/    each: index, 00000.shard, 00001.shard, ...
 *
 *   index   header | samples | parts | shards | names    little-endian, mapped; an XXH3 of all of it in the header
 *   shard   header | payloads, each on 16 bytes          mapped; an XXH3 of each payload stands with its part
 *
 * The index holds every length, so rows are planned without touching a shard: one is mapped when a payload of it is
 * wanted, and a payload is verified when first read. What does not fit, is cut short or has changed is refused with
 * file and offset.
 *
 * `data` names what is read: a shard folder, a folder with shard folders in it (the parts that mappers made), or
 * several of either, a line each. They count as one: samples and parts are numbered through, in the order of the lines
 * and, in a folder, of names. */
#ifndef WEFT_DATA_SHARDS_H
#define WEFT_DATA_SHARDS_H
#include "core/json.h"
#include "core/settings.h"
#include "sequence/grammar.h"

/* What a sample teaches: mixture weights are per direction. */
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
extern const char *const direction_names[DIRECTIONS];

/* A part's kind is an enum stream, or PART_NOTE: text kept for evaluation, no positions. Payloads:
 *   text                 i32 ids [count]
 *   image-in, video-in   bf16 features [frames, height, width, D_cnn], then u8 pixels [1 + 4 (frames - 1), H, W, 3];
 *                        height x width is the encoder's grid, H = height . stride
 *   image-out, video-out bf16 latents [frames, h, w, d], h x w of the shape
 *   audio                u16 codes [count, levels]
 *   note                 UTF-8 */
enum { PART_NOTE = STREAMS };
struct shard_part {
    u8 kind, condition; /* condition: a prompt: no loss in chats, dropped for guidance elsewhere */
    u16 shape, height, width;
    u32 frames, count;
    u32 shard, reserved;
    u64 offset, bytes, hash; /* of the payload */
};
struct shard_sample {
    u64 first_part;
    u16 parts;
    u8 direction;
    u8 goes_on; /* its text has no end here: the next sample goes on with it */
    u32 name;   /* where it came from: offset into names */
};

/* ---- What the samples are made of (shards.json) ------------------------------------------------------------------ */
struct shard_shape { /* a row of the vision tokenizer's table */
    struct shape shape;
    i64 h, w; /* grid of a latent frame */
    float amplitude[SCALES_MOST];
};
struct shard_meta {
    i64 vocabulary;                  /* text ids are below */
    i64 bits, cell_features, stride; /* vision: d, D_cnn, pixels a cell is wide; 0: none */
    i64 levels, codes;               /* audio; 0: none */
    i64 shape_count;
    struct shard_shape shapes[SHAPES_MOST];
};
struct token_sizes shard_token_sizes(const struct shard_meta *meta);
int shard_meta_load(struct shard_meta *meta, const char *directory);
int shard_meta_save(const struct shard_meta *meta, const char *directory);
/* What tells a from b, of whose tokenizers one is another or lacks: "vision: bits 32 and 0". NULL: the same. Caller
 * frees. */
char *shard_meta_difference(const struct shard_meta *a, const struct shard_meta *b);
/* Bytes of a part's payload, but for notes; -1 if meta has no such parts. */
i64 shard_payload_bytes(const struct shard_meta *meta, const struct shard_part *part);

/* ---- Reading ----------------------------------------------------------------------------------------------------- */
struct shard_folder {
    char *directory; /* of the part: DIR/train */
    struct file_view index;
    const struct shard_sample *samples; /* as they stand in the index: first_part counts within the folder */
    const struct shard_part *parts;
    const u8 *sizes; /* of the shards, u64 each, on any byte */
    const char *names;
    i64 sample_count, part_count, shard_count, names_bytes;
    i64 first_sample, first_part; /* of all folders' */
    i64 first_shard;              /* number in the header of its first shard */
    u64 hash;                     /* of the index */
    struct file_view *files;      /* [shard_count]; no data: not mapped yet */
    u8 *verified;                 /* [part_count] */
};
struct shards {
    struct shard_meta meta; /* the same in all */
    struct shard_folder *folders;
    i64 folder_count, sample_count, part_count, shard_count, bytes; /* bytes: of the shards */
};
/* DATA/PART; PART may be NULL where `data` names one part itself. */
int shards_open(struct shards *shards, const char *data, const char *part);
void shards_close(struct shards *shards);
/* Folders that come and go, each with an index of its own: none yet, of what `directory`/shards.json says; one more
 * behind the last; without those all of whose samples stand before `sample`. Numbers stay. */
int shards_open_none(struct shards *shards, const char *directory);
int shards_add(struct shards *shards, const char *directory);
void shards_drop(struct shards *shards, i64 sample);
const struct shard_folder *shards_folder_of_sample(const struct shards *shards, i64 sample);
const struct shard_folder *shards_folder_of_part(const struct shards *shards, i64 part);
struct shard_sample shards_sample(const struct shards *shards, i64 sample);  /* first_part: of all folders */
const struct shard_part *shards_part(const struct shards *shards, i64 part); /* those of a sample stand together */
const char *shards_name(const struct shards *shards, i64 sample);
/* Borrowed until shards_close; NULL and a message if the payload has changed. Not for several threads at once. */
const void *shards_payload(struct shards *shards, i64 part);
bool shards_is_verified(const struct shards *shards, i64 part);
void shards_prefetch(struct shards *shards, i64 part); /* asks the system to read ahead; returns at once */
int shards_verify(struct shards *shards);              /* every payload */

/* shard_folders.c: the shard folders that `data` names. What is not finished yet is refused. */
int shard_folders_list(struct string_list *out, const char *data);
char *shard_folders_first(const char *data); /* whose tokenizers stand for all; memory_free; NULL: message */
bool shard_folders_stand(const char *path);  /* in the folder `path`; also where one is not finished */
int shard_folders_check(const char *data);   /* all have the same tokenizers */
#define DATA_HELP                                                                                                      \
    "shards: a folder that prepare made, a folder with such folders in it, or a list of them, which count as one"
i64 data_lines(const char *data);
char *data_line(const char *data, i64 index); /* memory_free */

/* ---- Writing: into a folder that the caller renames when all is done --------------------------------------------- */
struct shard_writer;
/* The directory is made. */
struct shard_writer *shard_writer_open(const char *directory, const struct shard_meta *meta, i64 shard_bytes);
/* Sets shard, offset, bytes and hash of `part`; several parts may then share a payload, up to the next break. */
void shard_write_payload(struct shard_writer *writer, struct shard_part *part, const void *payload, i64 bytes);
void shard_write_sample(struct shard_writer *writer, enum direction direction, const char *name,
                        const struct shard_part *parts, i64 count);
void shard_write_on(struct shard_writer *writer); /* the sample written last goes on in the next */
/* Between samples that share nothing: a shard that has its bytes ends here, so that each holds whole samples. */
void shard_write_break(struct shard_writer *writer);
/* Frees the writer whatever happens; the index is written last. */
int shard_writer_close(struct shard_writer *writer);
void shard_writer_abandon(struct shard_writer *writer);
/* A closed shard may be taken away before the folder is done; the index that goes with it, as the only one of a folder.
 */
i64 shard_writer_closed(const struct shard_writer *writer); /* how many */
int shard_writer_end(struct shard_writer *writer);          /* closes the open one */
int shard_writer_index(struct text *out, struct shard_writer *writer, i64 number);

/* How far a writer came, so that another process may go on from there. Until the folder is done its files are
 * 00000.shard.part, the shard being written, and samples.part, parts.part, shards.part and names.part, the tables of
 * the index. A mark is bytes of each; what stands behind is cut off by shard_writer_resume. */
enum { SHARD_TABLES = 4 };
struct shard_mark {
    i64 tables[SHARD_TABLES], shard; /* shard: of the open one; 0: none is */
};
i64 shard_writer_bytes(const struct shard_writer *writer); /* of payloads so far, that is since it was opened */
/* Everything is on the disk when it returns 0. */
int shard_writer_mark(struct shard_writer *writer, struct shard_mark *out);
/* all: of the closed shards none was taken away. */
struct shard_writer *shard_writer_resume(const char *directory, const struct shard_meta *meta, i64 shard_bytes,
                                         const struct shard_mark *mark, bool all);

/* Whether shards are made while somebody reads them (data/stream/stream.h). */
#define SHARD_STREAM_FILE "stream.json"
bool shard_stream_is(const char *directory);

#endif
