/* Shards: samples that prepare has encoded once, in the form the packer reads. This header covers
 * reading a folder of them (shards_open) and writing one (shard_writer_open). A folder holds
 *
 *   shards.json                 widths, shapes and amplitudes of the samples
 *   text/ vision/ audio/        copies of the tokenizers that encoded them
 *   train/ validation/ test/    each: index, 00000.shard, 00001.shard, ...
 *
 *   index   header | samples | parts | shards | names    little-endian, mapped; its header holds
 *                                                        an XXH3 of the whole index
 *   shard   header | payloads, 16-byte aligned           mapped; each part in the index holds an
 *                                                        XXH3 of its payload
 *
 * The index holds every length, so the packer plans rows without touching a shard. A shard is
 * mapped when one of its payloads is requested; a payload is verified when it is first read. A
 * mismatched, truncated or changed file is refused with its path and the byte offset.
 *
 * `data` names the input: a shard folder, a folder that contains shard folders (the parts that
 * mappers wrote), or several of either, one per line. They are read as one set: samples and parts
 * are numbered consecutively, in the order of the lines and, within a folder, sorted by name.
 *
 * Where is what: shard_layout.h gives the bytes; shard_write.c writes shards, sets marks and
 * resumes from them; append.c cuts the tail of a resumed file off (append_open); shard_tables.c
 * keeps the growing index; shard_read.c maps and verifies; shard_meta.c reads and writes
 * shards.json; shard_folders.c finds the folders that `data` names; shard_common.c finds held-out
 * samples that are trained on; shard_voices.c finds recordings of the same speaker. An open struct shards owns
 * its mappings, a writer its open files. */
#ifndef WEFT_DATA_SHARDS_H
#define WEFT_DATA_SHARDS_H
#include "core/json.h"
#include "core/settings.h"
#include "sequence/grammar.h"

/* A part's kind is an enum stream, or PART_NOTE: text kept for evaluation that takes no positions; or
 * PART_VOICE: the speaker vector of the sample's own sound. As a prompt a sample is shown that of another
 * recording of the same speaker (data/loader/conditions.c).
 * Payloads, by the form of the stream:
 *   FORM_IDS     i32 ids [count]
 *   FORM_CELLS   bf16 features [frames, height, width, D_cnn], then
 *                u8 pixels [1 + 4 (frames - 1), H, W, 3];
 *                height x width is the encoder's grid, H = height * stride
 *   FORM_SCALES  bf16 latents [frames, h, w, d], h x w of the shape
 *   FORM_CODES   u16 codes [count, levels]
 *   note         UTF-8
 *   voice        f32 [voice]; count 1, frames: the low half of a hash of the speaker's name */
enum { PART_NOTE = STREAMS, PART_VOICE };
struct shard_part {
    u8 kind, condition; /* condition: a prompt, without loss in chats and dropped for guidance elsewhere */
    u16 shape, height, width;
    u32 frames, count;
    u32 shard, reserved;
    u64 offset, bytes, hash; /* payload position, size and XXH3 */
};
struct shard_sample {
    u64 first_part;
    u16 parts;
    u8 direction;
    u8 goes_on; /* the text has no end here; the next sample continues it */
    u32 name;   /* offset of the source's name in the names table */
};

/* ---- The sizes of the samples (shards.json) -------------------------------------------------- */
struct shard_shape { /* one row of the vision tokenizer's shape table */
    struct shape shape;
    i64 h, w; /* grid of a latent frame */
    float amplitude[SCALES_MOST];
};
struct shard_meta {
    union { /* scales and patch_values are 0: they follow from the shapes and the stride */
        struct token_sizes sizes;
        struct {
            TOKEN_SIZES
        };
    };
    i64 shape_count;
    struct shard_shape shapes[SHAPES_MOST];
};
struct token_sizes shard_token_sizes(const struct shard_meta *meta);
/* Read and write `directory`/shards.json. Return -1 with a message on failure. */
int shard_meta_load(struct shard_meta *meta, const char *directory);
int shard_meta_save(const struct shard_meta *meta, const char *directory);
/* Describes the first difference between the tokenizers of a and b, e.g. "vision: bits 32 and 0".
 * Returns NULL if they are the same; the caller frees the string. */
char *shard_meta_difference(const struct shard_meta *a, const struct shard_meta *b);
/* Payload size of a part in bytes, for all kinds but notes. Returns -1 if meta does not allow such
 * a part. */
i64 shard_payload_bytes(const struct shard_meta *meta, const struct shard_part *part);

/* ---- Reading --------------------------------------------------------------------------------- */
struct shard_voice { /* a part with a speaker vector */
    u32 shard, speaker;
    i64 part; /* within the folder */
};
struct shard_folder {
    char *directory; /* folder of the split, e.g. DIR/train */
    struct file_view index;
    const struct shard_sample *samples; /* mapped index: first_part counts within this folder */
    const struct shard_part *parts;
    const u8 *sizes; /* shard sizes, u64 each, unaligned */
    const char *names;
    i64 sample_count, part_count, shard_count, names_bytes;
    i64 first_sample, first_part; /* offset of this folder in the numbering over all folders */
    i64 first_shard;              /* the number in its first shard's header */
    u64 hash;                     /* hash from the index header */
    struct file_view *files;      /* [shard_count]; data is NULL until mapped */
    u8 *verified;                 /* [part_count], 1: payload hash was checked */
    struct shard_voice *voices;   /* [voice_count] sorted by shard, speaker, part */
    i64 voice_count;
};
struct shards {
    struct shard_meta meta; /* the same in all folders */
    struct shard_folder *folders;
    i64 folder_count, sample_count, part_count, shard_count, bytes; /* bytes: total size of the shards */
};
/* Opens DATA/SPLIT in every folder of `data`. If split is NULL, `data` itself names one split. On
 * failure, returns -1 with a message and leaves nothing open. */
int shards_open(struct shards *shards, const char *data, const char *split);
void shards_close(struct shards *shards);
/* A changing set of folders, each with its own index (data/stream). shards_open_none starts empty
 * with the sizes in `directory`/shards.json; shards_add appends a folder; shards_drop removes the
 * folders whose samples all come before `sample`. Sample and part numbers stay the same. */
int shards_open_none(struct shards *shards, const char *directory);
int shards_add(struct shards *shards, const char *directory);
void shards_drop(struct shards *shards, i64 sample);
const struct shard_folder *shards_folder_of_sample(const struct shards *shards, i64 sample);
const struct shard_folder *shards_folder_of_part(const struct shards *shards, i64 part);
struct shard_sample shards_sample(const struct shards *shards, i64 sample); /* first_part: over all folders */
/* The parts of a sample are adjacent. */
const struct shard_part *shards_part(const struct shards *shards, i64 part);
const char *shards_name(const struct shards *shards, i64 sample);
/* Returns a pointer borrowed until shards_close or shards_drop, or NULL with a message if the shard
 * is missing or the payload has changed. Not thread-safe. */
const void *shards_payload(struct shards *shards, i64 part);
bool shards_is_verified(const struct shards *shards, i64 part);
/* Another part with a speaker vector of the same speaker in the same shard as part `part`, chosen by
 * `share` in [0, 1); -1: there is none. */
i64 shards_other_voice(const struct shards *shards, i64 part, double share);
void shards_prefetch(struct shards *shards, i64 part); /* asks the kernel to read ahead; does not block */
int shards_verify(struct shards *shards);              /* checks every payload's hash */

/* shard_folders.c: the shard folders that `data` names. An unfinished folder is an error. */
int shard_folders_list(struct string_list *out, const char *data);
char *shard_folders_first(const char *data); /* its tokenizers represent all; memory_free; NULL: message */
bool shard_folders_exist(const char *path);  /* true if `path` contains shard folders, even unfinished */
int shard_folders_check(const char *data);   /* checks that the text tokenizers are equal */
#define DATA_HELP "shards: a folder made by prepare, a folder of such folders, or a list of them, read as one"
/* The number of lines of `data`, and a copy of line `index`. */
i64 data_lines(const char *data);
char *data_line(const char *data, i64 index); /* free with memory_free */

/* shard_common.c: held-out samples of the directions (NULL: all) with the same content as a sample
 * in the training part of `train`, by the hashes in the indexes. A missing split has no samples. */
struct shards_common {
    i64 heldout, common;
};
int shards_in_common(struct shards_common *out, const char *train, const char *heldout, const char *split,
                     const bool directions[DIRECTIONS]);

/* ---- Writing: into a folder that the caller renames once it is complete ---------------------- */
struct shard_writer;
/* Makes `directory` and opens a writer. A shard ends at the first break after it has shard_bytes
 * bytes. */
struct shard_writer *shard_writer_open(const char *directory, const struct shard_meta *meta, i64 shard_bytes);
/* Appends a payload and sets shard, offset, bytes and hash of `part`. Several parts may share the
 * payload, up to the next break. */
void shard_write_payload(struct shard_writer *writer, struct shard_part *part, const void *payload, i64 bytes);
/* Appends a sample of 1 to 65535 parts whose payloads are already written. */
void shard_write_sample(struct shard_writer *writer, enum direction direction, const char *name,
                        const struct shard_part *parts, i64 count);
void shard_write_resume(struct shard_writer *writer); /* the last sample continues in the next */
/* Marks a point where samples share nothing. A shard that has reached its size ends here, so that
 * each shard holds whole samples. */
void shard_write_break(struct shard_writer *writer);
/* Writes the index last. Frees the writer even on failure. */
int shard_writer_close(struct shard_writer *writer);
/* Frees the writer without an index. If it has set a mark, its files stay for
 * shard_writer_resume. */
void shard_writer_abandon(struct shard_writer *writer);
/* A closed shard may be moved away before the folder is complete. shard_writer_index prints the
 * index of shard `number` as the only one of its folder. */
i64 shard_writer_closed(const struct shard_writer *writer); /* number of closed shards */
int shard_writer_end(struct shard_writer *writer);          /* closes the open shard */
int shard_writer_index(struct buffer *out, struct shard_writer *writer, i64 number);

/* A writer's progress, from which another process can resume. While the folder is incomplete its
 * files are 00000.shard.part (the shard being written) and samples.part, parts.part, shards.part
 * and names.part (the tables of the index). A mark records the length of each; shard_writer_resume
 * truncates everything behind it. */
enum { SHARD_TABLES = 4 };
struct shard_mark {
    i64 tables[SHARD_TABLES], shard; /* shard: bytes of the open shard; 0: none is open */
};
i64 shard_writer_bytes(const struct shard_writer *writer); /* payload bytes written since it was opened */
/* Fsyncs everything and sets the mark. Returns 0 once all is on disk. */
int shard_writer_mark(struct shard_writer *writer, struct shard_mark *out);
/* Reopens a writer at a mark. all: no closed shard was moved away, so each must still exist. */
struct shard_writer *shard_writer_resume(const char *directory, const struct shard_meta *meta, i64 shard_bytes,
                                         const struct shard_mark *mark, bool all);

/* True if shards are still being produced while a run reads them (data/stream/stream.h). */
#define SHARD_STREAM_FILE "stream.json"
bool shard_stream_is(const char *directory);

#endif
