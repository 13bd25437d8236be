/* A refiner: makes decoded pictures and frames of clips twice as large, and sharper (ERNIE 5.0 report, 2.2.3). It is
 * trained apart from the backbone and from the tokenizer, by flow matching (Lipman et al. 2022, arXiv 2210.02747) from
 * one picture to another (Albergo & Vanden-Eijnden 2022, arXiv 2209.15571).
 *
 *   decoded u8 [H, W, 3] -- bicubic --> c u8 [2H, 2W, 3]        x_0 = c + noise e,  x_1 = the original, in -1..1
 *     x_t = (1 - t) x_0 + t x_1        v(x_t, t, c, strength) is trained towards x_1 - x_0
 *   sampling: x_0 = c + temperature noise e, and `steps` steps of Euler from t = 0 to 1
 *
 * The programs keep z = x - c, which is small, in place of x. `strength` says how much c was degraded in training:
 * 0 is what the tokenizer decodes from its own codes.
 *
 * The network reads patches of 2 x 2 pixels and is a U of three resolutions:
 *
 *   z, c, t, strength -- 3x3 --> blocks -- down --> blocks -- down --> blocks
 *                         v <-- 3x3, norm -- blocks <-- up, + -- blocks <-- up, +
 *
 * Where is what: refiner.c has the network, refiner_sample.c enlarging and sampling, refiner_file.c the configuration
 * and the folder on disk (config.json, weights.safetensors). */
#ifndef WEFT_TOKENIZERS_REFINER_H
#define WEFT_TOKENIZERS_REFINER_H
#include "tokenizers/vision/vision.h"

enum {
    REFINER_FACTOR = 2,
    REFINER_PATCH = 2,
    REFINER_LEVELS = 3,
    REFINER_STEPS_MOST = 8,
    REFINER_VALUES = REFINER_PATCH * REFINER_PATCH * 3, /* of a patch */
    REFINER_FLAGS = 8, /* 1 at each position: strength, t, cos and sin of pi t, 2 pi t and 4 pi t */
    REFINER_INPUTS = 2 * REFINER_VALUES + REFINER_FLAGS
};
struct refiner_size { /* of the decoded picture, pixels; multiples of 4 */
    i64 height, width;
};
struct refiner_config {
    i64 channels[REFINER_LEVELS]; /* width at 1/2, 1/4 and 1/8 of the resolution that is made */
    i64 blocks;                   /* residual blocks before each change of the resolution; twice as many at the last */
    double noise;                 /* standard deviation of e in x_0, pixels in -1..1 */
    double temperature;           /* share of it that sampling begins with */
    i64 steps;                    /* of sampling, 1 to REFINER_STEPS_MOST */
    i64 size_count;
    struct refiner_size sizes[VISION_SHAPES_MOST]; /* that it was trained on */
};
struct refiner_weights {
    struct weight *in, *in_bias; /* 3x3 REFINER_INPUTS -> c0 */
    struct vision_block enc[REFINER_LEVELS - 1][VISION_BLOCKS_MOST], middle[VISION_BLOCKS_MOST];
    struct weight *down[REFINER_LEVELS - 1];                          /* 1x1 4 c_l -> c_(l + 1), of 2 x 2 positions */
    struct weight *norm[REFINER_LEVELS - 1], *up[REFINER_LEVELS - 1]; /* 1x1 c_(l + 1) -> 4 c_l */
    struct vision_block dec[REFINER_LEVELS - 1][VISION_BLOCKS_MOST];
    struct weight *out_norm, *out, *out_bias; /* 3x3 c0 -> REFINER_VALUES */
};
struct refiner {
    struct refiner_config config;
    struct weights weights;
    struct device *device;
    struct refiner_weights at;
    struct tape tape; /* forward pass of refiner_sample */
};
int refiner_config_check(const struct refiner_config *config); /* -1 with a message that names the misfit */
/* Creates and allocates the weights of a checked configuration; weights_init or loading must set them. */
void refiner_open(struct refiner *refiner, struct device *device, const struct refiner_config *config, enum dtype dtype,
                  bool training);
void refiner_close(struct refiner *refiner);
/* Folder with config.json and weights.safetensors (masters in F32). refiner_load also opens. -1 with a message. */
int refiner_save(const struct refiner *refiner, const char *directory);
int refiner_load(struct refiner *refiner, struct device *device, const char *directory, enum dtype dtype);
/* -1 with a message if it was not trained on decoded pictures of height x width. directory: its folder. */
int refiner_check_size(const struct refiner *refiner, const char *directory, i64 height, i64 width);

/* ---- Pictures ---- */
/* Twice as high and wide, by the bicubic filter of Keys (1981) with a = -1/2; borders are repeated. */
void refiner_enlarge(u8 *out, const u8 *pixels, i64 height, i64 width);
/* Refines `frames` decoded pictures [height, width, 3] into out [2 height, 2 width, 3], each alone and with the same
 * noise, a function of seed, identity and position. Results do not depend on other pictures or on threads. */
struct refiner_draw {
    u64 seed;
    u32 identity;    /* of the picture or clip */
    double strength; /* 0 to 1: how much worse than the tokenizer's own reconstructions the pictures are */
};
void refiner_sample(struct refiner *refiner, u8 *out, const u8 *pixels, i64 frames, i64 height, i64 width,
                    const struct refiner_draw *draw);

/* ---- For training ---- */
/* A state between c and the original, of `count` values: z = (1 - t) noise e + t r and its velocity r - noise e, with
 * r = original - c in -1..1. Value i of e is draw (step, item, i) of the key. */
enum { REFINER_NOISE = 1, REFINER_SAMPLING, REFINER_DEGRADED, REFINER_CHOICE }; /* what is drawn */
struct refiner_state {
    double noise, t;
    struct rng_key key;
    u32 step, item;
};
void refiner_between(float *z, float *velocity, const u8 *original, const u8 *enlarged, i64 count,
                     const struct refiner_state *state);
/* The network's input rows [height/2 * width/2, REFINER_INPUTS] of a state z and an enlarged picture of
 * height x width. */
void refiner_put_rows(float *rows, const float *z, const u8 *enlarged, i64 height, i64 width, double t,
                      double strength);
/* Values [height, width, 3] as patches [height/2 * width/2, REFINER_VALUES], and back. */
void refiner_to_patches(float *patches, const float *values, i64 height, i64 width);
void refiner_of_patches(float *values, const float *patches, i64 height, i64 width);
/* Velocities [n * height/2 * width/2, REFINER_VALUES] in F32, on the tape. rows: host memory, n pictures. */
struct refiner_batch {
    i64 n, height, width; /* of the enlarged pictures */
    const float *rows, *velocity;
};
struct tensor *refiner_velocity(struct tape *tape, const struct refiner *refiner, const struct refiner_batch *batch);
/* Forward with the loss, whose backward may follow: the mean squared error of the velocity. Adds to *sum (device
 * memory) its sum over the patches. */
void refiner_loss(double *sum, struct tape *tape, const struct refiner *refiner, const struct refiner_batch *batch);
#endif
