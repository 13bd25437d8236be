/* One training step of the refiner, the pictures it draws, and the report. */
#ifndef WEFT_TOKENIZER_TRAINING_REFINER_STEP_H
#define WEFT_TOKENIZER_TRAINING_REFINER_STEP_H
#include "tokenizer_training/vision_step.h"
#include "tokenizers/vision/refiner.h"

struct refiner_trainer {
    const struct refiner_settings *settings;
    const struct vision_media *media; /* in twice the shapes of the tokenizer */
    struct vision *vision;            /* which makes the pictures to refine, and stays as it is */
    struct refiner refiner;
    struct tape tape;
    u64 seed;
};
void refiner_trainer_open(struct refiner_trainer *trainer, const struct refiner_config *config, enum dtype dtype);
void refiner_trainer_close(struct refiner_trainer *trainer);

/* ---- Pictures (refiner_data.c) ---- */
/* What the tokenizer decodes of n media: pixels [n, frames, 2 height, 2 width, 3] are halved, encoded and decoded into
 * out [n, frames, height, width, 3]. The media are of twice `shape`. */
void refiner_decoded(u8 *out, struct vision *vision, const u8 *pixels, i64 n, const struct vision_shape *shape);
/* Degrades a decoded picture [height, width, 3] in place: adds noise of a deviation of 24 * strength grey levels, then
 * moves it by `strength` towards its blur by 1 2 1 in both directions. Noise of value i: draw (step, item, i). */
void refiner_degrade(u8 *pixels, i64 height, i64 width, double strength, struct rng_key key, u32 step, u32 item);
/* The pictures of a step, determined by its number. */
struct refiner_pictures {
    const struct vision_shape *shape; /* of the tokenizer */
    bool clips;
    i64 n;
    u8 *original, *enlarged; /* [n, 2 height, 2 width, 3]; memory_free */
    double *strength, *t;    /* [n]; t is spread evenly over 0..1; memory_free */
};
int refiner_pictures_draw(struct refiner_pictures *out, const struct refiner_trainer *trainer, i64 step);
void refiner_pictures_release(struct refiner_pictures *pictures);

/* ---- The step ---- */
struct refiner_step_result {
    struct optimizer_result optimizer;
    double loss;
    bool clips;
};
/* Runs one optimizer step. Returns -1 and a message if a medium can no longer be read. */
int refiner_step(struct refiner_step_result *result, struct refiner_trainer *trainer, i64 step);
/* Flops of one step of pictures of the first shape, forward and backward, without those of the tokenizer. */
double refiner_step_flops(const struct refiner_trainer *trainer);

/* What a run with these settings needs (tokenizer_estimate), the tokenizer's own work included. Its `vision` is a
 * folder. */
struct tokenizer_needs;
int refiner_estimate(struct tokenizer_needs *needs, const struct refiner_settings *settings, struct device *meta,
                     enum dtype dtype);

/* ---- The report ---- */
/* Refines media of `held_out`, and training media. Logs, and writes to report.json, PSNR, structural similarity and
 * edges of refined pictures and of bicubic ones beside the originals. Writes contact sheets to samples/. */
int refiner_report(struct refiner_trainer *trainer, const struct vision_media *held_out, const char *folder);
#endif
