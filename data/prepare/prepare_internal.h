/* Internals shared by prepare.c (sample selection and splits), prepare_progress.c (saving and
 * resuming), prepare_read.c (texts, and the use of each part), prepare_encode.c (media: tokenizers,
 * files, tokens, payloads), prepare_film.c (soundtracks of clips) and prepare_write.c (records). */
#ifndef WEFT_DATA_PREPARE_INTERNAL_H
#define WEFT_DATA_PREPARE_INTERNAL_H
#include "data/media/media.h"
#include "data/prepare/prepare.h"
#include "data/media/shaped.h"
#include "data/sources/sources.h"
#include "tokenizers/audio/audio.h"
#include "tokenizers/vision/vision.h"

/* A sound and its codes: an audio part, or one piece of a clip's soundtrack. */
struct made_sound {
    struct sound sound;
    i32 *codes;
    i64 code_frames;
};
/* One part of a sample while it is being encoded. */
struct made {
    struct id_list ids, head; /* text; head: chat text before it that is a prompt even in an answer */
    bool in, out;             /* media: encoded as model input, as model output */
    struct clip clip;         /* at the shape's size, 1 + 4 k frames */
    i64 shape, frames;        /* latent frames */
    float *latent, *features;
    struct made_sound *sounds;
    i64 sound_count;
};
struct item {
    struct sample sample;
    bool left_out; /* not wanted, or no tokenizer for it */
    bool too_long; /* has a sound longer than audio_seconds */
    bool clip_cut; /* a clip is longer than its shape; only its beginning is used */
    double white;  /* largest share of white margin over its media, where no shape fits their proportions */
    bool curated;  /* a rule removes the sample */
    bool unshown;  /* a rule removes only this window of a long file */
    bool mute;     /* film_sound is set and a clip has no readable sound */
    char *damage;  /* reason why a clip's unreadable sound is left out */
    struct curate_item curate;
    char *problem;      /* error message if it failed */
    double from_s;      /* start of this window of a long clip, seconds */
    struct sound piece; /* decoded piece of a long sound */
    struct made *made;  /* [sample.count] */
};
/* Reasons why a batch ended early. */
enum { INTERRUPTED = 1, INTERRUPTED_WITHIN }; /* WITHIN: part of the batch is written */

struct prepare_counts {
    i64 samples[SPLITS], records[SPLITS][DIRECTIONS], read, bad, left_out, too_long;
    i64 clips_cut, margins, mute, damaged_sounds;
    double white; /* sum over the samples in `margins` */
};
struct prepare {
    const struct prepare_settings *settings;
    const char *out;
    u64 seed;
    i64 part, parts; /* parts 0: all files */
    enum dtype dtype;
    bool wanted[DIRECTIONS];
    struct picture_rules rules;
    struct text_tokenizer *text;
    const struct chat_layout *chat; /* NULL: no known chat layout */
    struct vision vision;
    struct audio_tokenizer audio;
    bool has[TOKENIZERS];
    struct vocabulary vocabulary;
    struct shard_meta meta;
    struct shard_writer *writers[SPLITS];
    struct curation *curation; /* NULL: no rule is set */
    struct prepare_counts counts;
    bool begun;                        /* started from scratch, not resumed */
    const struct prepare_taker *taker; /* NULL: shards stay in the folder */
    i64 taken;                         /* number of closed shards already taken */
    struct json *reached;              /* source state after the last written batch */
    double saved_s;                    /* time of the last save */
    i64 saved_bytes, batch_bytes;      /* payload bytes at the last save; largest batch so far */
};
int prepare_open(struct prepare *prepare, struct device *device); /* opens all that the settings name */
void prepare_close(struct prepare *prepare);
void prepare_read(struct prepare *prepare, struct item *items, i64 count); /* on all workers */

/* prepare_encode.c: tokenizers of media and what they read and make. coders_open opens those that the
 * settings name; coders_describe adds their sizes; coders_save copies them into the shard folder. */
int coders_open(struct prepare *prepare, struct device *device, enum dtype dtype);
void coders_close(struct prepare *prepare);
void coders_describe(struct shard_meta *meta, const struct prepare *prepare);
int coders_save(const struct prepare *prepare, const char *out);
bool can_encode(const struct prepare *prepare, enum modality kind);
/* Decodes a part's file. Returns -1 with a message. */
int read_medium(const struct prepare *prepare, struct item *item, i64 part);
/* The parts of a sample that a medium was made into; released with memory_free. Sounds have the same
 * payload as input and as output, so they are written once. */
struct written {
    struct shard_part *sounds;
    i64 count;
};
/* Writes the payload of the medium's pixels, if it has any. */
bool write_pixels(struct shard_part *part, struct prepare *prepare, struct shard_writer *writer,
                  const struct made *made, bool out);
void write_sounds(struct written *written, struct prepare *prepare, struct shard_writer *writer,
                  const struct made *made);
/* One kind of medium after another. */
void prepare_encode(struct prepare *prepare, struct item *items, i64 count);
/* Encodes blank media for the memory estimate: up to `most` pictures of each shape, as many as one
 * call takes, and one sound of 1 sample. */
void prepare_encode_blanks(struct prepare *prepare, i64 most);
void prepare_write(struct prepare *prepare, const struct item *item);
void item_release(struct item *item);
/* Takes ownership of its values. */
struct made_sound *made_add_sound(struct made *made, const struct sound *sound);
void made_release(struct made *made);
/* Samples per batch: at most `most`, fewer if clips take much memory. */
i64 prepare_batch_items(const struct prepare *prepare, i64 most);

/* prepare_pieces.c: the rest of a long file behind the item made from its beginning, i.e. further
 * windows of a clip or pieces of a sound, as the settings request. Returns 0 or INTERRUPTED_WITHIN;
 * unreadable pieces are counted. */
int prepare_further(struct prepare *prepare, const struct item *item);
bool prepare_has_windows(const struct prepare *prepare); /* true if the settings request more windows */
bool prepare_has_further(const struct prepare *prepare, const struct item *item);
bool prepare_cuts(const struct prepare *prepare, const struct item *item); /* true for a sound to be cut */

/* prepare_progress.c: OUT/progress.json holds the source position, the counts and the marks of the
 * shards. A process with the same settings resumes behind the last batch recorded there. */
int progress_save(struct prepare *prepare);        /* call between batches */
i64 progress_bytes(const struct prepare *prepare); /* payload bytes written by this call */
bool progress_is_due(const struct prepare *prepare);
/* After progress_save, hands closed shards to the taker: 0, -1 or INTERRUPTED. */
int progress_hand_on(struct prepare *prepare);
int progress_open(struct prepare *prepare);            /* opens the writers and restores the counts, if resumable */
void progress_discard(const struct prepare *prepare);  /* after a failure: removes what cannot be resumed */
int progress_keep_keys(const struct prepare *prepare); /* publishes the key file for filter.seen */
int progress_remove(const struct prepare *prepare);    /* removes the progress files at the end */

/* prepare_film.c: film_sound_take reads the soundtrack of a clip behind it, as the settings
 * request; film_sound_tell counts and warns for an item that was read. */
void film_sound_tell(struct prepare *prepare, const struct item *item);
int film_sound_take(const struct prepare *prepare, struct item *item, struct made *made, const void *bytes, i64 count,
                    const char *origin);

/* prepare_chat.c: chat_fold merges a system message without a role of its own into the question.
 * chat_encode fills `ids` and `head` of a chat's part; chat_end returns the tokens that end its
 * message. */
void chat_fold(const struct prepare *prepare, struct sample *sample);
int chat_encode(const struct prepare *prepare, struct item *item, i64 part);
void chat_end(struct id_list *out, const struct prepare *prepare, const struct sample *sample, i64 part);
bool chat_answers(const struct sample *sample, i64 part); /* true if the part is an assistant's */
const char *chat_role(const struct sample *sample, i64 part);

#endif
