/* The stage `tokenizer-audio`: trains the audio tokenizer. Reads a folder with captions.jsonl, lines {"audio": PATH,
 * "text": ..., "speaker": ...}; text serves the report alone, other keys and lines are ignored. Leaves in its folder:
 * config.json, weights.safetensors (what audio_load reads), report.json, metrics.jsonl, samples/ (originals beside
 * reconstructions), checkpoints/. */
#ifndef WEFT_CODECS_AUDIO_STAGE_H
#define WEFT_CODECS_AUDIO_STAGE_H
#include "tokenizers/audio.h"
#include "train/train.h"

struct audio_settings {
    char *data;
    i64 steps, batch;
    double crop_s;
    struct audio_config config;
    double unquantised_share, commitment, codebook_decay, augment;
    i64 vocoder_rounds, memory_mb;
    double bad_share;
    struct training_settings training;
    struct optimizer_settings optimizer;
};
extern const struct setting audio_stage_table[];
int audio_stage(const void *settings, const struct stage *stage);

#endif
