/* The stage `tokenizer-vision`: trains the vision tokenizer on stills, inflates it, trains it on clips. Reads a folder
 * with captions.jsonl, lines {"image": PATH, ...} and {"video": PATH, ...}; other keys and lines are ignored. Leaves in
 * its folder: config.json, weights.safetensors (what vision_load reads), report.json, metrics.jsonl, samples/
 * (originals beside reconstructions), checkpoints/. */
#ifndef WEFT_CODECS_VISION_STAGE_H
#define WEFT_CODECS_VISION_STAGE_H
#include "tokenizers/vision.h"
#include "train/train.h"

struct vision_settings {
    char *data;
    i64 steps, clip_steps, batch, clip_batch, still_batch; /* still_batch: of the stills among clips */
    double still_share;
    i64 size, frames, stride, bits;
    double rate_hz;
    struct integer_list channels, blocks, scales;
    double augment, amplitude_keep, clip_lr, bad_share;
    struct vision_loss_weights loss;
    struct training_settings training;
    struct optimizer_settings optimizer;
};
extern const struct setting vision_stage_table[];
int vision_stage(const void *settings, const struct stage *stage);

#endif
