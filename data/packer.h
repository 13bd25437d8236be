/* The packer: samples of a shard folder to rows of T positions, rows to batches.
 *
 *   samples -- mixture, shuffled anew each epoch --> windows -- best-fit packing --> rows -- dealt to steps --> batches
 *
 * Everything is a function of (shards, settings, seed, step, micro-batch): rows are planned from the index alone, so
 * any rank knows all rows and the totals, resuming reads nothing, and a rank builds only the micro-batches it asks for.
 * Texts longer than a row are cut into several; other samples longer than a row are left out and counted. */
#ifndef WEFT_DATA_PACKER_H
#define WEFT_DATA_PACKER_H
#include "core/settings.h"
#include "data/shards.h"

struct loader_settings {
    struct schedule rows, length;  /* of the global batch; T: over steps */
    i64 micro_rows, slice_rows;    /* a micro-batch never crosses a slice */
    double mixture[DIRECTIONS];    /* how often a sample is seen in an epoch; 1.5: once, half of them twice */
    double condition_drop;         /* share of samples that make media and lose their prompt, for guidance */
    double text_condition, audio_condition; /* loss weight of prompts of that kind, chats apart */
    double flip_most, flip_drift;  /* largest share of a scale's bits flipped; what each latent frame adds */
    bool reweight;                 /* vision targets by 1 / s_k */
    i64 window;                    /* frames a frame of a clip looks back; 0: all */
    double frame_mask;             /* share of frames hidden from later ones */
    bool in_order;                 /* evaluation: one pass in order, nothing dropped, flipped or masked */
};
/* Rows for a settings table whose struct has a `struct loader_settings loader`. */
#define LOADER_ROWS(type, rows_default, length_default)                                                                \
    {"batch.rows", SETTING_SCHEDULE, offsetof(type, loader.rows), rows_default, 1, 1e6, NULL,                          \
     "rows of a step's global batch"},                                                                                 \
    {"batch.length", SETTING_SCHEDULE, offsetof(type, loader.length), length_default, 8, 1 << 20, NULL,                \
     "positions of a row"},                                                                                            \
    {"batch.micro_rows", SETTING_INTEGER, offsetof(type, loader.micro_rows), "1", 1, 1e6, NULL,                        \
     "rows that go through the model together"},                                                                       \
    {"mixture.text", SETTING_NUMBER, offsetof(type, loader.mixture[DIRECTION_TEXT]), "1", 0, 1000, NULL,               \
     "how often an epoch has each text"},                                                                              \
    {"mixture.image_in", SETTING_NUMBER, offsetof(type, loader.mixture[DIRECTION_IMAGE_IN]), "1", 0, 1000, NULL,       \
     "the same of picture to caption"},                                                                                \
    {"mixture.image_out", SETTING_NUMBER, offsetof(type, loader.mixture[DIRECTION_IMAGE_OUT]), "1", 0, 1000, NULL,     \
     "the same of caption to picture"},                                                                                \
    {"mixture.video_in", SETTING_NUMBER, offsetof(type, loader.mixture[DIRECTION_VIDEO_IN]), "1", 0, 1000, NULL,       \
     "the same of clip to caption"},                                                                                   \
    {"mixture.video_out", SETTING_NUMBER, offsetof(type, loader.mixture[DIRECTION_VIDEO_OUT]), "1", 0, 1000, NULL,     \
     "the same of caption to clip"},                                                                                   \
    {"mixture.audio_in", SETTING_NUMBER, offsetof(type, loader.mixture[DIRECTION_AUDIO_IN]), "1", 0, 1000, NULL,       \
     "the same of speech to words"},                                                                                   \
    {"mixture.audio_out", SETTING_NUMBER, offsetof(type, loader.mixture[DIRECTION_AUDIO_OUT]), "1", 0, 1000, NULL,     \
     "the same of words to speech"},                                                                                   \
    {"mixture.chat", SETTING_NUMBER, offsetof(type, loader.mixture[DIRECTION_CHAT]), "1", 0, 1000, NULL,               \
     "the same of conversations"},                                                                                     \
    {"pack.condition_drop", SETTING_NUMBER, offsetof(type, loader.condition_drop), "0.1", 0, 1, NULL,                  \
     "share of prompts of media left out, for guidance"},                                                              \
    {"pack.text_condition", SETTING_NUMBER, offsetof(type, loader.text_condition), "1", 0, 1000, NULL,                 \
     "loss weight of captions that are prompts"},                                                                      \
    {"pack.audio_condition", SETTING_NUMBER, offsetof(type, loader.audio_condition), "0", 0, 1000, NULL,               \
     "loss weight of sounds that are prompts"},                                                                        \
    {"pack.flip_most", SETTING_NUMBER, offsetof(type, loader.flip_most), "0.2", 0, 0.5, NULL,                          \
     "largest share of a scale's bits flipped, later scales correcting them"},                                         \
    {"pack.flip_drift", SETTING_NUMBER, offsetof(type, loader.flip_drift), "0.01", 0, 0.5, NULL,                       \
     "by how much that share grows with each latent frame of a clip"},                                                 \
    {"pack.reweight", SETTING_BOOL, offsetof(type, loader.reweight), "true", 0, 0, NULL,                               \
     "coarse scales weigh more: 1 / s_k"},                                                                             \
    {"pack.window", SETTING_INTEGER, offsetof(type, loader.window), "0", 0, 1e6, NULL,                                 \
     "earlier latent frames that a frame of a clip sees; 0: all"},                                                     \
    {"pack.frame_mask", SETTING_NUMBER, offsetof(type, loader.frame_mask), "0", 0, 1, NULL,                            \
     "share of a clip's latent frames hidden from later ones"}

struct loader;
/* DIR/PART of a shard folder, with the tokenizer in DIR/text. settings are copied but for their schedules, which stay
 * the caller's. */
struct loader *loader_open(const char *directory, const char *part, const struct loader_settings *settings, u64 seed);
void loader_close(struct loader *loader);
const struct vocabulary *loader_vocabulary(const struct loader *loader);
const struct shard_meta *loader_meta(const struct loader *loader);

struct loader_step {
    i64 rows, length, micro_batches;
    i64 samples, positions; /* real ones, of rows . length */
    i64 epoch;              /* of the last row */
    double totals[TARGETS]; /* sums of weights over the whole global batch */
};
/* In order, a step beyond the last row has rows = 0. -1: no row can be filled. */
int loader_step(struct loader *loader, i64 step, struct loader_step *out);
/* Rows [micro . micro_rows, + micro_rows) of the step. The batch's memory is the arena's. -1 and a message: a damaged
 * shard. Parts of the next micro-batch are asked for, so that the disk works meanwhile. */
int loader_batch(struct loader *loader, i64 step, i64 micro, struct batch *batch, struct arena *arena);
i64 loader_left_out(const struct loader *loader); /* samples longer than a row so far, in this epoch or earlier ones */

#endif
