/* What prepare.c (which samples, into which part), prepare_progress.c (how far it came), prepare_read.c (files to
 * pixels, sound and ids), prepare_film.c (sounds of clips), prepare_encode.c (tokenizers) and prepare_write.c (records)
 * tell each other. */
#ifndef WEFT_DATA_PREPARE_INTERNAL_H
#define WEFT_DATA_PREPARE_INTERNAL_H
#include "data/media/media.h"
#include "data/prepare/prepare.h"
#include "data/media/shaped.h"
#include "data/sources/sources.h"
#include "tokenizers/audio/audio.h"
#include "tokenizers/vision/vision.h"

/* A sound and its codes: of an audio part, or of a film one of those behind its clip. */
struct made_sound {
    struct sound sound;
    i32 *codes;
    i64 code_frames;
};
/* One part of a sample as it is made. */
struct made {
    struct id_list ids, head; /* text; head: what stands before it in a chat and is a prompt even of an answer */
    bool in, out;             /* media: as the model reads them, as it makes them */
    struct clip clip;         /* of the shape's size, 1 + 4 k frames */
    i64 shape, frames;        /* latent frames */
    float *latent, *features;
    struct made_sound *sounds;
    i64 sound_count;
};
struct item {
    struct sample sample;
    bool left_out; /* nothing of it is wanted, or no tokenizer for it was given */
    bool too_long; /* a sound of it is longer than audio_seconds */
    bool clip_cut; /* a clip of it is longer than its shape; the beginning is used */
    double white;  /* the largest share of white margin of its media: no shape has their proportions */
    bool curated;  /* a rule leaves it out, */
    bool unshown;  /* or of a long file this window alone */
    bool mute;     /* films are to have their sound, and a clip of it has none, or none that can be read */
    char *damage;  /* of a film's sound that cannot be read and is left out: why */
    struct curate_item curate;
    char *problem;      /* why it could not be made */
    double from_s;      /* where a window of a long clip begins */
    struct sound piece; /* of a long sound, read already */
    struct made *made;  /* [sample.count] */
};
/* Why a batch ended early. */
enum { INTERRUPTED = 1, INTERRUPTED_WITHIN }; /* WITHIN: some of it has been written */

struct prepare_counts {
    i64 samples[SPLITS], records[SPLITS][DIRECTIONS], read, bad, left_out, too_long;
    i64 clips_cut, margins, mute, damaged_sounds;
    double white; /* sum over samples in margins */
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
    const struct chat_layout *chat; /* NULL: it has none that is known */
    struct vision vision;
    struct audio_tokenizer audio;
    bool has_vision, has_audio;
    struct vocabulary vocabulary;
    struct shard_meta meta;
    struct shard_writer *writers[SPLITS];
    struct curation *curation; /* NULL: no rule is asked for */
    struct prepare_counts counts;
    bool begun;                        /* anew */
    const struct prepare_taker *taker; /* NULL: shards stay */
    i64 taken;                         /* of those closed by this call */
    struct json *reached;              /* state of the source behind the last batch that was written */
    double saved_s;                    /* when, and with how many bytes of payloads, progress was saved */
    i64 saved_bytes, batch_bytes;      /* batch_bytes: of the largest batch yet */
};
int prepare_open(struct prepare *prepare, struct device *device); /* what the settings name */
void prepare_close(struct prepare *prepare);
void prepare_read(struct prepare *prepare, struct item *items, i64 count);   /* on all workers */
void prepare_encode(struct prepare *prepare, struct item *items, i64 count); /* one kind of medium after another */
/* White pictures of each shape, as many as go through together of `most`, and a sound of a frame. */
void prepare_encode_blanks(struct prepare *prepare, i64 most);
void prepare_write(struct prepare *prepare, const struct item *item);
void item_release(struct item *item);
struct made_sound *made_add_sound(struct made *made, const struct sound *sound); /* takes its values */
void made_release(struct made *made);
/* Samples made at a time: fewer than `most` where a clip takes much memory. */
i64 prepare_batch_items(const struct prepare *prepare, i64 most);

/* prepare_pieces.c: what a long file has behind the item that was made of its beginning, as settings ask for it:
 * further windows of a clip, pieces of a sound. 0 or INTERRUPTED_WITHIN; what cannot be read is counted. */
int prepare_further(struct prepare *prepare, const struct item *item);
bool prepare_has_windows(const struct prepare *prepare); /* settings ask for further ones */
bool prepare_has_further(const struct prepare *prepare, const struct item *item);
bool prepare_cuts(const struct prepare *prepare, const struct item *item); /* a sound too long for one sample */

/* prepare_progress.c: OUT/progress.json, with what was read so far and marks of the shards. A process that finds it
 * goes on behind the last batch that it tells of, if the settings are the same. */
int progress_save(struct prepare *prepare);        /* between two batches */
i64 progress_bytes(const struct prepare *prepare); /* of payloads, by this call */
bool progress_is_due(const struct prepare *prepare);
int progress_hand_on(struct prepare *prepare); /* closed shards, behind progress_save: 0, -1 or INTERRUPTED */
int progress_open(struct prepare *prepare);    /* the writers, and the counts where there is something to go on from */
void progress_discard(const struct prepare *prepare);  /* after a failure: what nobody can go on from */
int progress_keep_keys(const struct prepare *prepare); /* for those to whom this is filter.seen */
int progress_remove(const struct prepare *prepare);    /* all is done */

/* prepare_film.c: the sound of a film behind the clip that was read of it, as settings ask for it; then, of an item
 * that was read, counts and warnings of it. */
void film_sound_tell(struct prepare *prepare, const struct item *item);
int film_sound_take(const struct prepare *prepare, struct item *item, struct made *made, const void *bytes, i64 count,
                    const char *origin);

/* prepare_chat.c: a system message without a role of its own goes into the question; `ids` and `head` of part i of a
 * chat; what ends its message. */
void chat_fold(const struct prepare *prepare, struct sample *sample);
int chat_encode(const struct prepare *prepare, struct item *item, i64 part);
void chat_end(struct id_list *out, const struct prepare *prepare, const struct sample *sample, i64 part);
bool chat_answers(const struct sample *sample, i64 part); /* the part is an assistant's */
const char *chat_role(const struct sample *sample, i64 part);

#endif
