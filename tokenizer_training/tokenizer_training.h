/* codecs: the training of tokenizers. Text by counting pairs; vision and audio on the loop of train/train.h, each with
 * a step of its own (vision_step.h, audio_step.h) that draws from media kept in memory. The door to the folder: its
 * three stages. Each reads the part train of its folder (data/sources/sources.h); what would be drawn from it for
 * validation and test by `prepare`, with the same seed and shares, is not learned from. */
#ifndef WEFT_CODECS_H
#define WEFT_CODECS_H
#include "data/media/aspects.h"
#include "data/media/media.h"
#include "data/sources/sources.h"
#include "tokenizers/audio/audio.h"
#include "tokenizers/vision/vision.h"
#include "train/train.h"

/* ---- Text ---- */
/* The stage `tokenizer-text`: byte-level BPE trained on the texts of a folder, saved as tokenizer.json. */
struct text_settings {
    char *data;
    i64 vocabulary, bytes;
    double validation, test;
    struct source_columns columns;
    double bad_share; /* of samples that could not be read: more is an error */
    int family;
    bool nfc;
    struct string_list special;
};
extern const struct setting text_stage_table[];
int text_stage(const void *settings, const struct stage *stage);

/* Of a stage that learns from media. */
#define SHUFFLE_ROW(type)                                                                                              \
    SETTING(                                                                                                           \
        type, shuffle_buffer, "shuffle_buffer", NUMBER, "0", 0, 1e9, NULL,                                             \
        "MiB in which media of packed archives and tables beyond memory_mb are shuffled, a window after the other; "   \
        "0: they stay in memory")

/* ---- Vision ---- */
/* The stage `tokenizer-vision`: trains the vision tokenizer on stills, inflates it, trains it on clips, with or
 * without captions. Leaves in its folder: config.json, weights.safetensors (what vision_load reads), report.json,
 * metrics.jsonl, samples/ (originals beside reconstructions), checkpoints/. */
struct vision_settings {
    char *data;
    double validation, test;
    struct source_columns columns;
    i64 steps, clip_steps, batch, clip_batch, still_batch; /* still_batch: of the stills among clips */
    double still_share;
    i64 size, frames, stride, bits;
    double rate_hz;
    struct integer_list channels, blocks, scales;
    double augment, amplitude_keep, clip_lr, bad_share;
    i64 memory_mb;
    double shuffle_buffer;
    struct picture_settings pictures;
    struct aspect_settings aspects;
    struct vision_loss_weights loss;
    struct training_settings training;
    struct optimizer_settings optimizer;
};
extern const struct setting vision_stage_table[];
int vision_stage(const void *settings, const struct stage *stage);

/* ---- Audio ---- */
/* The stage `tokenizer-audio`: trains the audio tokenizer; what is said serves the report alone. Leaves in its folder:
 * config.json, weights.safetensors (what audio_load reads), report.json, metrics.jsonl, samples/ (originals beside
 * reconstructions), checkpoints/. */
struct audio_settings {
    char *data;
    double validation, test;
    struct source_columns columns;
    i64 steps, batch;
    double crop_s;
    struct audio_config config;
    bool films; /* sounds of clips too */
    double unquantised_share, commitment, codebook_decay, augment;
    i64 vocoder_rounds, memory_mb;
    double shuffle_buffer, bad_share;
    struct training_settings training;
    struct optimizer_settings optimizer;
};
extern const struct setting audio_stage_table[];
int audio_stage(const void *settings, const struct stage *stage);

#endif
