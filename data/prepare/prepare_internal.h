/* Internals of prepare. The files, in the order in which a sample passes them:
 *
 *   prepare.c            the stage: the loop over batches, what is saved when, finishing
 *   prepare_open.c       tokenizers and their dry run, vocabulary, copies of the tokenizers
 *   prepare_progress.c   the shard writers; saving, resuming, delivering shards to a consumer
 *   prepare_decode.c     the use of each part; text to ids, on all workers
 *     prepare_chat.c       a conversation in the chat template of the text tokenizer
 *   prepare_media.c      media: files to pixels and samples, those to tokens, and tokens to payloads
 *     prepare_film.c       the soundtrack of a clip
 *   prepare_write.c      an encoded sample to records of a shard
 *   prepare_pieces.c     the rest of a long file: windows of a clip, pieces of a sound
 *   prepare_report.c     the closing messages and curation.json
 *
 * Beside this journey: prepare_settings.c (the table of settings), prepare_recipe.c (stream.json)
 * and prepare_estimate.c (bytes that a run would write). */
#ifndef WEFT_DATA_PREPARE_INTERNAL_H
#define WEFT_DATA_PREPARE_INTERNAL_H
#include "data/media/media.h"
#include "data/prepare/chat.h"
#include "data/prepare/prepare.h"
#include "data/shapes/shaped.h"
#include "data/sources/sources.h"
#include "tokenizers/audio/audio.h"
#include "tokenizers/vision/vision.h"

enum { BATCH_ITEMS = 256 }; /* most samples of a batch */

/* A sound and its codes: an audio part, or one piece of a clip's soundtrack. */
struct encoded_sound {
    struct sound sound;
    i32 *codes;
    i64 code_frames;
};
/* One part of a sample while it is being encoded. It owns its lists, pixels and values. */
struct encoded_part {
    struct id_list ids; /* text, but of a conversation */
    bool in, out;       /* media: encoded as model input, as model output */
    struct clip clip;   /* at the shape's size, 1 + 4 k frames */
    i64 shape, frames;  /* latent frames */
    float *latent, *features;
    struct encoded_sound *sounds;
    i64 sound_count;
    float *voice; /* [VOICE_VALUES] speaker vector; NULL: none */
};
/* A sample of a batch, from its source to its records. */
struct item {
    struct sample sample;
    bool left_out;       /* not wanted, or no tokenizer for it */
    bool too_long;       /* has a sound longer than audio_seconds */
    bool clip_cut;       /* a clip is longer than its shape; only its beginning is used */
    bool sound_early;    /* a sound ends before its header says */
    double margin;       /* largest share of white margin over its media; 0: a shape fits */
    bool dropped;        /* a rule removes the sample */
    bool window_dropped; /* a rule removes only this window of a long file */
    bool silent;         /* film_sound is set and a clip has no readable sound */
    char *sound_problem; /* reason why a clip's unreadable sound is left out */
    struct curate_item curate;
    char *problem;                /* error message if it failed */
    double from_s;                /* start of this window of a long clip, seconds */
    struct sound piece;           /* decoded piece of a long sound */
    struct encoded_part *encoded; /* [sample.count] */
    struct chat_ids chat;         /* of a conversation */
};
/* Reasons why a batch ended early. */
enum { INTERRUPTED = 1, INTERRUPTED_WITHIN }; /* WITHIN: part of the batch is written */

struct prepare_counts {
    i64 samples[SPLITS], records[SPLITS][DIRECTIONS], read, bad, left_out, too_long;
    i64 clips_cut, margins, silent_clips, bad_sounds, unanswered;
    double margin_sum; /* over the samples in `margins` */
    i64 early_sounds;  /* samples with a sound that ends before its header says */
};
struct prepare {
    const struct prepare_settings *settings;
    const char *out;
    u64 seed;
    i64 job, jobs; /* reads every jobs-th file; jobs 0: all files */
    enum dtype dtype;
    bool wanted[DIRECTIONS];
    struct picture_rules rules;
    struct text_tokenizer *text;
    struct chat *chat;  /* NULL: the tokenizer has no chat template, or one that is refused */
    char day[CHAT_DAY]; /* that a chat template writes */
    struct vision vision;
    struct audio_tokenizer audio;
    struct mel_distance mel; /* of speaker vectors; opened with the setting `voices` */
    bool has[TOKENIZERS];    /* media tokenizers only */
    struct vocabulary vocabulary;
    struct shard_meta meta;
    struct shard_writer *writers[SPLITS];
    struct curation *curation; /* NULL: no rule is set */
    struct prepare_counts counts;
    bool started_over;                     /* the writers began empty, not from a saved progress */
    const struct shard_consumer *consumer; /* NULL: shards stay in the folder */
    i64 delivered;                         /* number of closed shards that the consumer has taken */
    struct json *position;                 /* state of the source after the last written batch */
    i64 prompts;                           /* for reinforcement learning, among the data */
    double saved_s;                        /* time of the last save */
    i64 saved_bytes, batch_bytes;          /* payload bytes at the last save, and of the largest batch */
};

/* prepare_open.c: opens all that the settings name; closes it again. */
int prepare_open(struct prepare *prepare, struct device *device);
void prepare_close(struct prepare *prepare);
int prepare_copy_tokenizers(const struct prepare *prepare); /* into the shard folder */

/* prepare_progress.c: OUT/progress.json holds the source position, the counts and the marks of the
 * shards. A process with the same settings resumes behind the last batch recorded there. */
void progress_day(char day[CHAT_DAY], const struct prepare *prepare); /* of an earlier call, or today */
int progress_open(struct prepare *prepare);                           /* opens the writers, resumes if it can */
int progress_save(struct prepare *prepare);                           /* call between batches */
i64 progress_bytes(const struct prepare *prepare);                    /* payload bytes written by this call */
bool progress_is_due(const struct prepare *prepare);
/* After progress_save, delivers closed shards to the consumer: 0, -1 or INTERRUPTED. */
int progress_deliver(struct prepare *prepare);
void progress_discard(const struct prepare *prepare);  /* after a failure: what cannot be resumed */
int progress_keep_keys(const struct prepare *prepare); /* publishes the key file for filter.seen */
int progress_remove(const struct prepare *prepare);    /* removes the progress files at the end */

/* prepare_decode.c */
/* Samples of a batch: at most `most`, fewer if clips take much memory. */
i64 prepare_batch_items(const struct prepare *prepare, i64 most);
void prepare_decode(struct prepare *prepare, struct item *items, i64 count); /* on all workers */
void item_release(struct item *item);
/* Warns of a sample with a problem and counts it. */
void item_skip(struct prepare *prepare, const struct item *item);
void encoded_part_release(struct encoded_part *part);
/* Takes ownership of the sound's values. */
static inline i64 prepare_rate_hz(const struct prepare *p) /* of sounds */
{
    return p->audio.config.rate_hz ? p->audio.config.rate_hz : AUDIO_RATE_HZ;
}
void encoded_part_add_sound(struct encoded_part *part, const struct sound *sound);

/* prepare_film.c: film_sound_decode adds the soundtrack of a clip to its part, as the settings
 * request; film_sound_count counts and warns for an item that was decoded. */
int film_sound_decode(const struct prepare *prepare, struct item *item, struct encoded_part *part, const void *bytes,
                      i64 count, const char *origin);
void film_sound_count(struct prepare *prepare, const struct item *item);

/* prepare_media.c: the tokenizers of media, what they read and what they make. media_open opens
 * those that the settings name; media_describe adds their sizes; media_copy_tokenizers copies them
 * into the shard folder. */
int media_open(struct prepare *prepare, struct device *device, enum dtype dtype);
void media_close(struct prepare *prepare);
void media_describe(struct shard_meta *meta, const struct prepare *prepare);
int media_copy_tokenizers(const struct prepare *prepare);
bool media_can_encode(const struct prepare *prepare, enum modality kind);
/* Decodes the file of a part. Returns -1 with a message. */
int media_decode(const struct prepare *prepare, struct item *item, i64 part);
/* Encodes the items that will be written, one kind of medium after another. */
void media_encode(struct prepare *prepare, struct item *items, i64 count);
/* Encodes blank media for the memory estimate: up to `most` pictures of each shape, as many as one
 * call takes, and one sound of 1 sample. */
void media_encode_blanks(struct prepare *prepare, i64 most);
/* Writes the payload of a medium's pixels. False: it has none. */
bool media_write_pixels(struct shard_part *part, struct prepare *prepare, struct shard_writer *writer,
                        const struct encoded_part *medium, bool out);
/* Writes the payload of a medium's speaker vector. False: it has none. */
bool media_write_voice(struct shard_part *part, struct shard_writer *writer, const struct encoded_part *medium,
                       const char *speaker);
/* The sound parts of a medium (for a film, those behind its clip), once they are written. They are
 * the same as input and as output, so they are written once. The caller frees `parts`. */
struct written_sounds {
    struct shard_part *parts;
    i64 count;
};
void media_write_sounds(struct written_sounds *out, struct prepare *prepare, struct shard_writer *writer,
                        const struct encoded_part *medium);

/* prepare_write.c: writes and counts the records of an item. */
void prepare_write(struct prepare *prepare, const struct item *item);

/* prepare_pieces.c: the rest of a long file behind the item made from its beginning, i.e. further
 * windows of a clip or pieces of a sound, as the settings request. Returns 0 or INTERRUPTED_WITHIN;
 * unreadable pieces are counted. */
int prepare_write_pieces(struct prepare *prepare, const struct item *item);
bool prepare_has_pieces(const struct prepare *prepare, const struct item *item);
/* True for a sound to be cut: it is written in pieces alone. */
bool prepare_is_cut_sound(const struct prepare *prepare, const struct item *item);
bool prepare_wants_windows(const struct prepare *prepare); /* true if its settings cut long clips into windows */

/* prepare_report.c */
void prepare_report(const struct prepare *prepare); /* logs what was written and left out */
/* Warns of held-out samples that are training samples too, from the finished indexes. */
int prepare_report_common(const struct prepare *prepare);
int prepare_save_curation(const struct prepare *prepare);

#endif
