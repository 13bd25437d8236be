/* How evenly a media tokenizer uses its code: entropy of bits, perplexity of codes, and what is dead.
 *
 *   a bit is dead   if more than 99 % of the positions counted have the same value of it
 *   a code is dead  if no frame counted has it; frames in silence do not count
 *
 * The final reports and the measurements during training share these definitions. Few positions make
 * more bits and codes look dead than there are. */
#ifndef WEFT_TOKENIZER_TRAINING_CODE_USE_H
#define WEFT_TOKENIZER_TRAINING_CODE_USE_H
#include "tokenizer_training/audio_step.h"
#include "tokenizer_training/vision_step.h"

/* Counts by group: a scale of bits, or a level of codes. */
struct code_use {
    bool bits;
    i64 groups, width; /* width: bits of a position, or codes of a level */
    i64 *uses;         /* [groups, width] positions in which the bit is 1, or which have the code */
    i64 *seen;         /* [groups] positions */
};
void code_use_init(struct code_use *use, bool bits, i64 groups, i64 width);
void code_use_release(struct code_use *use);
void code_use_join(struct code_use *use, const struct code_use *other); /* adds its counts */
/* Counts bits [latent_frames, tokens, width] of a shape. */
void code_use_add_bits(struct code_use *use, const u8 *bits, i64 latent_frames, const struct vision_shape *shape);
/* Counts codes [frames, groups] of the frames that are not silent. */
void code_use_add_codes(struct code_use *use, const i32 *codes, const u8 *sounds, i64 frames);
bool code_use_is_dead(const struct code_use *use, i64 group, i64 at);
i64 code_use_dead(const struct code_use *use, i64 group);
/* Of bits: the mean entropy of one, in bits: 1 if all are 1 half of the time, 0 if none ever changes. */
double code_use_entropy(const struct code_use *use, i64 group);
/* Of codes: as many, all used equally often, have the same entropy. */
double code_use_perplexity(const struct code_use *use, i64 group);

/* ---- Measurements during training, each `use_steps` ---- */
/* On the same media each time, of training and held out, into the step's line of metrics.jsonl:
 * use/KIND/training/GROUP/entropy (perplexity of codes), /dead, and the same of use/KIND/heldout. KIND is
 * stills, clips or codes. Scales count from 1, levels from 0. Weights do not change by it. */
static inline bool use_is_due(i64 use_steps, i64 done)
{
    return use_steps && done % use_steps == 0;
}
enum { USE_TRAINING, USE_HELD_OUT, USE_SETS };
enum { USE_LOOKS = 3 }; /* looks in a row after which what is dead in training media stays dead */
struct use_watch {
    const char *kind;
    i64 *dead; /* [groups, width] looks in a row */
    i64 told;  /* the most that a warning said to stay dead */
};
void use_watch_open(struct use_watch *watch, const char *kind, i64 groups, i64 width);
void use_watch_close(struct use_watch *watch);
/* Puts the figures of a set. metrics may be NULL. */
void use_watch_put(struct metrics *metrics, const struct use_watch *watch, int set, const struct code_use *use);
/* Takes note of what is dead in training media. Returns a warning for the stage to log if more than
 * before stays dead (memory_free), else NULL. */
char *use_watch_look(struct use_watch *watch, const struct code_use *use);

struct vision_use_items {
    const struct vision_shape *shape;
    int set;
    i64 count;
    u8 *pixels; /* [count, frames, height, width, 3] */
};
struct vision_use {
    struct vision_use_items items[USE_SETS * VISION_SHAPES_MOST];
    i64 count;
    struct use_watch watches[2]; /* of stills, of clips */
};
/* Copies up to 64 stills and 24 clips of each set, those of the report. Returns -1 and a message if one
 * can no longer be read; close it then, too. */
int vision_use_open(struct vision_use *use, const struct vision_trainer *trainer, const struct vision_media *held_out);
void vision_use_close(struct vision_use *use);
/* After step `done` of the stage `name`. Clips are measured once they are trained on. */
void vision_use_measure(struct vision_use *use, struct metrics *metrics, struct vision *vision, const char *name,
                        i64 done);

struct audio_use_sound {
    float *samples;
    u8 *sounds; /* [frames] not silent */
    i64 frames;
    int set;
};
struct audio_use {
    struct audio_use_sound *sounds;
    i64 count;
    struct use_watch watch;
};
/* Copies up to 200 s of recordings of each set, of each at most 20 s. Likewise. */
int audio_use_open(struct audio_use *use, struct audio_trainer *trainer, const struct audio_media *held_out);
void audio_use_close(struct audio_use *use);
void audio_use_measure(struct audio_use *use, struct metrics *metrics, struct audio_tokenizer *audio, const char *name,
                       i64 done);

#endif
