/* What prepare.c (which samples, into which part), prepare_read.c (files to pixels, sound and ids), prepare_encode.c
 * (tokenizers) and prepare_write.c (records) tell each other. */
#ifndef WEFT_DATA_PREPARE_FORM_H
#define WEFT_DATA_PREPARE_FORM_H
#include "data/media.h"
#include "data/prepare.h"
#include "data/sources.h"
#include "tokenizers/audio.h"
#include "tokenizers/vision.h"

/* One part of a sample as it is made. */
struct made {
    struct id_list ids, head; /* text; head: what stands before it in a chat and is a prompt even of an answer */
    bool in, out;             /* media: as the model reads them, as it makes them */
    struct clip clip;         /* of the shape's size, 1 + 4 k frames */
    i64 shape, frames;        /* latent frames */
    float *latent, *features;
    struct sound sound;
    i32 *codes;
    i64 code_frames;
};
struct item {
    struct sample sample;
    u32 number;        /* of the sample, for draws */
    bool left_out;     /* nothing of it is wanted, or no tokenizer for it was given */
    bool too_long;     /* a sound of it is longer than audio_seconds */
    char *problem;     /* why it could not be made */
    struct made *made; /* [sample.count] */
};
struct prepare {
    const struct prepare_settings *settings;
    u64 seed;
    bool wanted[DIRECTIONS];
    struct text_tokenizer *text;
    struct vision vision;
    struct audio_tokenizer audio;
    bool has_vision, has_audio;
    struct vocabulary vocabulary;
    struct shard_meta meta;
    struct shard_writer *writers[SPLITS];
    i64 samples[SPLITS], records[SPLITS][DIRECTIONS], read, bad, left_out, too_long;
};
void prepare_read(struct prepare *prepare, struct item *items, i64 count);   /* on all workers */
void prepare_encode(struct prepare *prepare, struct item *items, i64 count); /* one kind of medium after another */
void prepare_write(struct prepare *prepare, const struct item *item);
void item_release(struct item *item);

/* prepare_chat.c: the one chat layout. `ids`, `head` and what ends the message, of part i of a chat. */
int chat_encode(const struct prepare *prepare, struct item *item, i64 part);
bool chat_answers(const struct sample *sample, i64 part); /* the part is an assistant's */
const char *chat_role(const struct sample *sample, i64 part);

#endif
