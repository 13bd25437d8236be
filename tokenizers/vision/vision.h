/* The vision tokenizer: stills and clips to bits and back; a causal multi-scale bit-wise residual code
 * (ERNIE 5.0 2.2.1; Infinity, arXiv 2412.04431; VideoAR).
 *
 *   pixels u8 [n, frames, H, W, 3]
 *     | encoder: H, W / stride; frames 1, 5, 9, ... -> T' = 1, 2, 3, ...
 *   features [n, T', h, w, D_cnn] -- 1x1, rounded to bf16 --> latent [n, T', h, w, d]
 *     | quantiser, each latent frame by itself: scale k of its shape gives h_k x w_k positions of d bits
 *   bits u8 [n, T', sum h_k w_k, d], sum f32 [n, T', h, w, d]
 *     | decoder, the encoder's mirror
 *   pixels u8 [n, frames, H, W, 3]
 *
 * The rounded encoder output *is* the latent: the quantiser in training, encode() and whoever reads latents from a
 * shard all start from the same numbers, and quantize_bits gives the same bits everywhere.
 *
 * Time is causal: frame t moves no latent before it, and the first frame stands alone, so a still is a clip of one
 * frame through the same network. Before `inflated` is set the temporal weights do not exist for the forward; they
 * start such that setting it changes nothing for a still. */
#ifndef WEFT_TOKENIZERS_VISION_H
#define WEFT_TOKENIZERS_VISION_H
#include "core/json.h"
#include "tensor/ops.h"
#include "tensor/weights.h"

enum {
    VISION_SHAPES_MOST = 16,
    VISION_SCALES_MOST = 16,
    VISION_NAME_MOST = 32,
    VISION_GROUP = 4,              /* frames of a latent frame */
    VISION_PIECE_PIXELS = 1 << 19, /* of pictures and clips that are encoded or decoded together */
    VISION_RATE_HZ = 8             /* at which clips of a shape without a rate are played when they are made */
};

/* A kind of picture or clip the tokenizer codes. The backbone's shape tokens are this table's rows, in order. */
struct vision_shape {
    char name[VISION_NAME_MOST]; /* "64x64", "64x64x9" */
    i64 frames, height, width;   /* pixels; frames 1: a still */
    i64 latent_frames, h, w;     /* T', the finest grid */
    double rate_hz;              /* frames a second taken of a clip; 0: every frame; 0 for a still */
    i64 scale_count;
    struct scale scales[VISION_SCALES_MOST]; /* neither side ever shrinks; the last is h x w */
    i64 amplitude; /* row of the table of amplitudes: equal for shapes of as many scales and about as many positions */
    double crop;   /* at most this share of a picture's side is cut off, where its proportions are not the shape's */
};
struct vision_config {
    i64 stride;      /* 8 or 16 pixels */
    i64 bits;        /* d */
    i64 channels[2]; /* width at a quarter of the resolution, and at the latent grid (D_cnn) */
    i64 blocks[2];   /* residual blocks at each, encoder and decoder alike */
    bool inflated;   /* temporal layers take part */
    i64 shape_count;
    struct vision_shape shapes[VISION_SHAPES_MOST];
};
int vision_config_check(const struct vision_config *config); /* -1 and what does not fit */
/* Appends a shape. sides: of the scales of a square of about as many positions, s_1 .. s_K: in the shape's own
 * proportions scale k is round(s_k h / s_K) x round(s_k w / s_K), the scale of side 1 a single position; so shapes of
 * like area have as many scales, each of like area. NULL: 1, 2, 3, 4, 6, 8, ... up to that square's grid. -1 and a
 * message if it does not fit. */
int vision_add_shape(struct vision_config *config, i64 frames, i64 height, i64 width, double rate_hz, const i64 *sides,
                     i64 side_count);
i64 vision_usual_sides(i64 sides[VISION_SCALES_MOST], i64 grid); /* 1, 2, 3, 4, 6, 8, ... grid; returns how many */
/* As config.json and shards.json have it: a side, or [h, w]. False: neither, or beyond 1024. */
struct json *scale_json(struct scale scale);
bool scale_parse(struct scale *out, const struct json *value);
/* A scale that follows another: it is larger, and in neither side smaller. */
bool scale_grows(struct scale before, struct scale scale);
i64 vision_latent_frames(i64 frames);                /* 1 + (frames - 1) / 4, frames = 1, 5, 9, ... */
i64 vision_frames(i64 latent_frames);                /* 1 + 4 (latent_frames - 1) */
i64 vision_tokens(const struct vision_shape *shape); /* positions of one latent frame: sum of h_k w_k */

enum { VISION_BLOCKS_MOST = 8 };
struct vision_block { /* x + out(silu(in(norm x))), both 3x3 */
    struct weight *norm, *in, *out;
};
struct vision_weights {                  /* stride = 4 * ratio; P = 48 values of a 4x4 patch */
    struct weight *enc_in, *enc_in_bias; /* 3x3 P -> c0 */
    struct vision_block enc_fine[VISION_BLOCKS_MOST];
    struct weight *enc_down;              /* 1x1 ratio^2 c0 -> c1 */
    struct weight *enc_time1, *enc_time2; /* 3x1x1, added; before and after the reduction */
    struct weight *enc_reduce;            /* 4x1x1, stride 4: frames -3..0, 1..4, ... */
    struct vision_block enc_coarse[VISION_BLOCKS_MOST];
    struct weight *enc_norm, *enc_out, *enc_out_bias; /* 1x1 c1 -> d */
    struct weight *dec_in, *dec_in_bias;              /* 3x3 d -> c1 */
    struct vision_block dec_coarse[VISION_BLOCKS_MOST];
    struct weight *dec_time1, *dec_time2, *dec_expand; /* c1 -> 4 c1: frames -3..0 (three dropped), 1..4, ... */
    struct weight *dec_norm, *dec_up;                  /* 1x1 c1 -> ratio^2 c0 */
    struct vision_block dec_fine[VISION_BLOCKS_MOST];
    struct weight *dec_out_norm, *dec_out, *dec_out_bias; /* 3x3 c0 -> P */
    struct weight *amplitude; /* [shapes, VISION_SCALES_MOST] a_k, state: a running mean of |u_k| */
};
struct vision {
    struct vision_config config;
    struct weights weights;
    struct device *device;
    enum dtype dtype; /* of activations */
    struct vision_weights at;
    struct tape tape; /* forward only: encode and decode */
};
/* Adds the table's rows and allocates; then vision_init, or weights are loaded. The configuration has been checked. */
void vision_open(struct vision *vision, struct device *device, const struct vision_config *config, enum dtype dtype,
                 bool training);
void vision_init(struct vision *vision, u64 seed);
void vision_close(struct vision *vision);

/* A folder with config.json and weights.safetensors (masters in F32). load opens. */
int vision_load(struct vision *vision, struct device *device, const char *directory, enum dtype dtype, bool training);
int vision_save(const struct vision *vision, const char *directory); /* into an existing folder */
struct json *vision_config_json(const struct vision_config *config);
int vision_config_parse(struct vision_config *config, const struct json *value, const char *origin);

/* ---- Many at once: forward only, on all workers; n of any size, as pieces of a bounded memory ---- */
/* frames must be 1, 5, 9, ...; height and width multiples of the stride. A long video is worked on part by part.
 * Arrays are host memory; outputs may be NULL where not wanted. */
/* latent [n, T', h, w, d] of bf16 values, features [n, T', h, w, D_cnn]. */
void vision_encode(struct vision *vision, float *latent, float *features, const u8 *pixels, i64 n, i64 frames,
                   i64 height, i64 width);
void vision_decode(struct vision *vision, u8 *pixels, const float *sum, i64 n, i64 latent_frames, i64 h, i64 w);
/* Of n latent frames of a shape. bits [n, tokens, d], sum [n, h, w, d]. */
void vision_quantize(struct vision *vision, u8 *bits, float *sum, const float *latent, i64 n,
                     const struct vision_shape *shape);
void vision_dequantize(struct vision *vision, float *sum, const u8 *bits, i64 n, const struct vision_shape *shape);
/* Encode, quantise, decode: what the code keeps of n stills or clips of a shape. bits may be NULL. */
void vision_reconstruct(struct vision *vision, u8 *out, u8 *bits, const u8 *pixels, i64 n,
                        const struct vision_shape *shape);
/* a_k [scale_count], device memory. */
const float *vision_amplitude(const struct vision *vision, const struct vision_shape *shape);

/* Squared error of pixels in 0..1, mean over count values; PSNR in dB of a mean squared error (of many pictures: of the
 * mean of their errors). */
double vision_square_error(const u8 *a, const u8 *b, i64 count);
double vision_psnr(double square_error);

/* ---- On a tape: what training and the functions above share ---- */
/* Inside, rows are ordered (time, n, h, w): a causal convolution over time then reads whole blocks of rows. */
struct vision_size {
    i64 n, frames, height, width;
};
/* Pixels as patches [frames * n * H/4 * W/4, 48], values -1..1: what the encoder reads and the decoder must return. */
struct tensor *vision_patches(struct tape *tape, const struct vision *vision, const u8 *pixels /* host memory */,
                              struct vision_size size);
/* features [T' * n * h * w, D_cnn], activations' dtype. */
struct tensor *vision_features(struct tape *tape, const struct vision *vision, struct tensor *patches,
                               struct vision_size size);
/* The projection [T' * n * h * w, d], F32; and rounded to bf16 (still F32): the latent. Gradients pass the rounding. */
struct tensor *vision_project(struct tape *tape, const struct vision *vision, struct tensor *features);
struct tensor *vision_latent(struct tape *tape, const struct vision *vision, struct tensor *features);
/* Patches again, from f32 sums. `size` is that of the pixels. */
struct tensor *vision_pixels(struct tape *tape, const struct vision *vision, struct tensor *sum,
                             struct vision_size size);

/* The losses of one batch, means over all pixels or positions; pixels in -1..1. */
struct vision_losses {
    double l1, l2, commitment, entropy;
};
struct vision_loss_weights {
    double l1, l2, commitment, entropy;
    double sharpness; /* of the entropy term: p = sigmoid(sharpness u / a_k) */
};
enum { VISION_L1, VISION_L2, VISION_COMMITMENT, VISION_ENTROPY, VISION_SUMS };
/* Forward with losses; tape_backward may follow. sums [VISION_SUMS] (device memory) gain those of all rows, of which
 * vision_losses_of makes means once the host has them. Returns mean |u_k| [scale_count], device memory of the tape. All
 * but the pixels' way to the device is a segment of the tape, its place 0. */
const float *vision_loss(double *sums, struct tape *tape, const struct vision *vision, const u8 *pixels,
                         struct vision_size size, const struct vision_shape *shape,
                         const struct vision_loss_weights *weights);
struct vision_losses vision_losses_of(const double *sums, const struct vision *vision, struct vision_size size);
/* a_k += (1 - keep) (mean |u_k| - a_k) */
void vision_amplitude_update(struct vision *vision, const struct vision_shape *shape, const float *magnitude,
                             double keep);
/* After training on stills: temporal layers join; stills are coded as before. */
void vision_inflate(struct vision *vision);

#endif
