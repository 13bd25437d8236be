/* One training step of the vision tokenizer, and the media it draws from. */
#ifndef WEFT_TOKENIZER_TRAINING_VISION_STEP_H
#define WEFT_TOKENIZER_TRAINING_VISION_STEP_H
#include "tokenizer_training/tokenizer_training.h"
#include "data/shapes/aspects.h"
#include "data/sources/media_buffer.h"

/* ---- Media: a folder's stills and clips as bytes, each in the shape nearest to its proportions.
 * Media beyond memory_mb are decoded again when drawn, if possible. ---- */
struct vision_label {
    char *path, *text; /* text: its caption, "" if there is none */
};
/* Size of the picture inside its shape; the rest is white, with the picture centred. */
struct content_size {
    i64 height, width;
};
struct vision_media_request {
    struct aspect_list shapes[2]; /* shapes of stills; of clips */
    /* frames per clip: shorter clips repeat their last frame, longer ones keep
     * up to 8 times as many */
    i64 frames;
    double rate_hz; /* 0: every frame */
    /* unreadable files are logged and skipped; a share above this is an error */
    double bad_share;
    struct picture_rules rules;
    i64 memory_mb;
    double shuffle_buffer; /* MiB per shuffle window, one of stills and one of clips; 0: none */
    double crop;           /* largest share to crop if no shape has the proportions (aspects.h) */
    i64 side_least;        /* smaller pictures are counted (tiny_count) */
};
struct vision_media {
    struct vision_media_request request;
    i64 still_count, clip_count;
    u8 *still_shape, *clip_shape;                    /* [count] index into the kind's request.shapes; NULL: all 0 */
    u8 **stills;                                     /* [height, width, 3] each; NULL: beyond memory_mb */
    u8 **clips;                                      /* [clip_frames[i], height, width, 3] each; NULL: as above */
    struct medium_place *still_places, *clip_places; /* media in a window: `at` is their index there */
    struct media_buffer *still_buffer, *clip_buffer; /* NULL: no window */
    i64 *clip_frames;
    struct content_size *still_inner, *clip_inner;
    struct vision_label *still_labels, *clip_labels; /* NULL: not known */
    /* cut_count: clips with more frames than are kept; short_count: with fewer than a shape has; tiny_count:
     * pictures with a side below side_least; small_count: stills smaller than their shape, which were enlarged;
     * bytes: size of the media in memory */
    i64 bad_count, cut_count, short_count, tiny_count, small_count, bytes;
    /* sums over the media: share of white margin, share of the picture cropped */
    double white, cropped;
    struct hash_list hashes; /* of the files */
    i64 trained_on;          /* of held-out files: those that are training files too */
};
int vision_media_load(struct vision_media *media, const struct media_request *from,
                      const struct vision_media_request *request);
void vision_media_release(struct vision_media *media);
/* Index into request.shapes[clip] of a still or clip; number of media of the kind with a shape. */
i64 vision_media_shape(const struct vision_media *media, bool clip, i64 index);
i64 vision_media_count(const struct vision_media *media, bool clip, i64 shape);

/* Random order of all stills or clips (memory_free), of which the first `most` are to be read; those in
 * windows come in the order of the windows. */
i32 *vision_media_order(const struct vision_media *media, bool clips, i64 most, u64 seed);

/* A batch of stills or clips of one shape. `first` is the number of media of this kind and shape
 * drawn before. The items follow one permutation per epoch. A share `augment` of them is flipped,
 * rotated, scaled and shifted, the same way in all frames of a clip. whole: flipped, and shifted by whole
 * pixels, alone, which keeps their sharpness. */
struct vision_draw {
    i64 n, frames, shape, first, step;
    double augment;
    bool whole;
    u64 seed;
    i32 *drawn; /* [n] which stills the items are, or clips with several frames or if there are no stills; NULL:
                 * not wanted */
};
int vision_media_draw(u8 *pixels, const struct vision_media *media, const struct vision_draw *draw);
/* Copies the first frames of a still or clip. */
int vision_media_copy(u8 *pixels, const struct vision_media *media, bool clip, i64 index, i64 frames);

/* ---- The discriminator (vision_discriminator.c) ---- */
enum { VISION_DISCRIMINATOR_BLOCKS = 2 };
struct vision_discriminator_block {
    struct discriminator_layer same, down, skip;
};
struct vision_discriminator {
    struct discriminator common;
    struct discriminator_layer in, last, logits;
    struct vision_discriminator_block blocks[VISION_DISCRIMINATOR_BLOCKS];
    i64 height, width;                                      /* of the pictures of a pass, pixels */
    struct tensor *layers[1 + VISION_DISCRIMINATOR_BLOCKS]; /* of the last pass, on its tape */
};
bool vision_has_discriminator(const struct vision_settings *settings);
/* With new weights. Close it by discriminator_close(&common). */
void vision_discriminator_open(struct vision_discriminator *discriminator, struct device *device, enum dtype dtype,
                               const struct vision_settings *settings, u64 seed);
struct vision_trainer;
/* Between the forward and the backward of a step: adds losses of features to sums [VISION_LOSSES], and what
 * the decoder learns from the discriminator to the gradient of the decoded patches; gradients of the
 * discriminator's own weights. */
void vision_discriminate(double *sums, struct vision_trainer *trainer, const struct vision_decoded *decoded,
                         struct vision_size size);

/* ---- The step ---- */
struct vision_trainer {
    const struct vision_settings *settings;
    const struct vision_media *media;
    struct vision vision;
    struct vision_discriminator discriminator; /* with vision_has_discriminator */
    const struct semantic_targets *targets;    /* of stills, then of clips; NULL: no semantics */
    struct semantic semantic;
    struct tape tape;
    u8 *pixels; /* room for the largest batch, in the largest shape */
    i32 *drawn; /* media of a batch, as the targets count them */
    u64 seed;
    bool begun;                  /* running means go on from those of another tokenizer */
    i64 still_steps, clip_steps; /* clip steps follow the still steps */
};
/* The shapes of all areas. -1: usage error. */
int vision_stage_shapes(struct aspect_list *out, const struct vision_settings *settings);
/* The tokenizer configuration for these settings and the shapes of these media;
 * `clips`: also for clips. */
int vision_stage_config(struct vision_config *config, const struct vision_settings *settings,
                        const struct vision_media *media, bool clips);
void vision_trainer_open(struct vision_trainer *trainer, struct device *device, const struct vision_config *config,
                         enum dtype dtype);
void vision_trainer_close(struct vision_trainer *trainer);
/* The configuration's shape of stills or clips with that size; NULL: none. */
const struct vision_shape *vision_shape_of(const struct vision_config *config, bool clips, struct aspect size);
/* Batch of a step, determined by its number: media of one shape. Shapes are drawn as
 * often as media have them. */
struct vision_batch {
    const struct vision_shape *shape;
    struct vision_draw draw;
    bool clips;
};
struct vision_batch vision_step_batch(const struct vision_trainer *trainer, i64 step);
struct vision_step_result {
    struct vision_losses losses;
    struct optimizer_result optimizer;
    double loss, psnr_db;      /* means over the batch */
    i64 frames;                /* number of pictures in the batch */
    bool clips, discriminates; /* the figures of the discriminator are of this step */
    const struct vision_shape *shape;
};
i64 vision_discriminator_begin(const struct vision_trainer *trainer); /* its first step */
/* Runs one optimizer step. Returns -1 and a message if a medium can no longer be read. */
int vision_step(struct vision_step_result *result, struct vision_trainer *trainer, i64 step);
/* Flops of one step, forward and backward, counted by a dry run. */
double vision_step_flops(const struct vision_trainer *trainer, i64 step);

/* ---- The report ---- */
/* Reconstructs media of `held_out`, and training media. Logs, and writes to report.json, PSNR, and
 * entropy and dead bits per scale, also per shape. Writes contact sheets to samples/. */
int vision_report(struct vision_trainer *trainer, const struct vision_media *held_out, const char *folder);

/* vision_components.c: adds to *sum the mean squared error of held-out pictures of one shape, held_out[order
 * [count]], as the report measures it, after principal components of up to 2000 training pictures (fewer of
 * more than 12 kB), one byte each. *used: their number, the bytes of the code. -1: there is no such training picture,
 * or a message. */
int vision_components_error(double *sum, i64 *used, const struct vision_trainer *trainer,
                            const struct vision_media *held_out, const i32 *order, i64 count,
                            const struct vision_shape *shape);

#endif
