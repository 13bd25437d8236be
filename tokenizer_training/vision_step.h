/* One training step of the vision tokenizer, and the media it draws from. */
#ifndef WEFT_CODECS_VISION_STEP_H
#define WEFT_CODECS_VISION_STEP_H
#include "tokenizer_training/tokenizer_training.h"
#include "data/media/aspects.h"
#include "data/sources/media_window.h"

/* ---- Media: a folder's stills and clips as bytes, each in the shape nearest to its proportions; those beyond
 * memory_mb are read again when they are drawn, where they can be ---- */
struct inner { /* size of the picture in it, which stands centred on white */
    i64 height, width;
};
struct vision_media_request {
    struct aspect_list shapes[2]; /* of stills, of clips */
    i64 frames;       /* of a clip; shorter ones hold their last frame, of longer ones up to 8 times as many are kept */
    double rate_hz;   /* 0: every frame */
    double bad_share; /* of files that cannot be read: past it an error, below it each is logged and skipped */
    struct picture_rules rules;
    i64 memory_mb;
    double shuffle_buffer; /* MiB of a window of stills, and of one of clips; 0: none */
    double crop;           /* of pictures that have no shape's proportions (aspects.h) */
};
struct vision_media {
    struct vision_media_request request;
    i64 still_count, clip_count;
    u8 *still_shape, *clip_shape;                    /* [count] in request.shapes of the kind; NULL: all of the first */
    u8 **stills;                                     /* [height, width, 3] each; NULL: beyond memory_mb */
    u8 **clips;                                      /* [clip_frames[i], height, width, 3] each; NULL: the same */
    struct medium_place *still_places, *clip_places; /* of what stands in a window `at` is the index there */
    struct media_window *still_window, *clip_window; /* NULL: there is none */
    i64 *clip_frames;
    struct inner *still_inner, *clip_inner;
    i64 bad_count, cut_count, bytes; /* cut_count: clips with more frames than are kept; bytes: in memory */
    double white, cropped;           /* sums over media: share that is margin, share of the picture that was cut off */
};
int vision_media_load(struct vision_media *media, const struct media_request *from,
                      const struct vision_media_request *request);
void vision_media_release(struct vision_media *media);
/* Index in request.shapes[clip] of a still or clip, and how many of the kind have it. */
i64 vision_media_shape(const struct vision_media *media, bool clip, i64 index);
i64 vision_media_count(const struct vision_media *media, bool clip, i64 shape);

/* A batch of stills or clips of a shape: `first` is how many of kind and shape were drawn before. Items follow a
 * permutation an epoch; a share `augment` of them is flipped, turned, scaled and shifted, all frames of a clip alike.
 */
struct vision_draw {
    i64 n, frames, shape, first, step;
    double augment;
    u64 seed;
};
int vision_media_draw(u8 *pixels, const struct vision_media *media, const struct vision_draw *draw);
/* The first frames of a still or clip. */
int vision_media_copy(u8 *pixels, const struct vision_media *media, bool clip, i64 index, i64 frames);

/* ---- The step ---- */
struct vision_trainer {
    const struct vision_settings *settings;
    const struct vision_media *media;
    struct vision vision;
    struct tape tape;
    u8 *pixels; /* of the largest batch: that of the largest shape */
    u64 seed;
    i64 still_steps, clip_steps; /* clips follow stills */
};
/* The tokenizer that these settings and the shapes of these media make; `clips`: of clips too. */
int vision_stage_config(struct vision_config *config, const struct vision_settings *settings,
                        const struct vision_media *media, bool clips);
void vision_trainer_open(struct vision_trainer *trainer, struct device *device, const struct vision_config *config,
                         enum dtype dtype);
void vision_trainer_close(struct vision_trainer *trainer);
/* The configuration's shape of stills or of clips of that size; NULL: there is none. */
const struct vision_shape *vision_shape_of(const struct vision_config *config, bool clips, struct aspect size);
struct vision_batch { /* what a step trains on, from its number alone: media of one shape, drawn as often as it has */
    const struct vision_shape *shape;
    struct vision_draw draw;
    bool clips;
};
struct vision_batch vision_step_batch(const struct vision_trainer *trainer, i64 step);
struct vision_step_result {
    struct vision_losses losses;
    struct optimizer_result optimizer;
    double loss, psnr_db; /* of the batch */
    i64 frames;           /* pictures seen */
    bool clips;
    const struct vision_shape *shape;
};
int vision_step(struct vision_step_result *result, struct vision_trainer *trainer, i64 step);
/* Products of one step, forward and backward, counted on shapes alone. */
double vision_step_flops(const struct vision_trainer *trainer, i64 step);

/* ---- What came out ---- */
/* Reconstructs `held_out` (and, where it has none, training media): PSNR, entropy and dead bits per scale, printed and
 * written to report.json, of each shape; contact sheets in samples/. */
int vision_report(struct vision_trainer *trainer, const struct vision_media *held_out, const char *folder);

#endif
