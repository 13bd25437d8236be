/* The vision tokenizer: stills and clips to bits and back, with a causal multi-scale bitwise
 * residual code (ERNIE 5.0 2.2.1; Infinity, arXiv 2412.04431; VideoAR).
 *
 *   pixels u8 [n, frames, H, W, 3]
 *     | encoder: H, W / stride; frames 1, 5, 9, ... -> T' = 1, 2, 3, ...
 *   features [n, T', h, w, D_cnn] -- 1x1, rounded to bf16 --> latent [n, T', h, w, d]
 *     | quantizer, per latent frame: scale k of its shape gives h_k x w_k positions of d bits
 *   bits u8 [n, T', sum h_k w_k, d], sum f32 [n, T', h, w, d]
 *     | decoder, mirrors the encoder
 *   pixels u8 [n, frames, H, W, 3]
 *
 * The rounded encoder output is the latent: training, encoding and readers of shards quantize the
 * same numbers, so quantize_bits gives the same bits everywhere.
 *
 * Time is causal: frame t does not affect earlier latents, and the first frame is independent, so
 * a still is a clip of one frame. Without `inflated` the forward pass skips the temporal layers.
 * Their initial weights leave stills unchanged when `inflated` is set. The caller owns all output
 * buffers.
 *
 * Where is what: vision_config.c lists the shapes and the scales of each, so it decides how many
 * positions a picture of a shape takes (vision_add_shape, vision_tokens); which shape a file
 * gets is decided in data/shapes/shaped.c. vision_network.c has the weights and the forward pass,
 * vision_code.c encodes, quantizes and decodes batches, vision_loss.c has the losses,
 * vision_file.c the folder on disk. Bits are computed in kernels/quantize_bits.h. */
#ifndef WEFT_TOKENIZERS_VISION_H
#define WEFT_TOKENIZERS_VISION_H
#include "core/json.h"
#include "tensor/ops.h"
#include "tensor/weights.h"

enum {
    VISION_SHAPES_MOST = 16,
    VISION_SCALES_MOST = 16,
    VISION_NAME_MOST = 32,
    VISION_GROUP = 4,              /* frames per latent frame */
    VISION_PIECE_PIXELS = 1 << 19, /* pixels of stills and clips encoded or decoded at once */
    VISION_RATE_HZ = 8             /* playback rate of generated clips whose shape has no rate */
};

/* A size of stills or clips that the tokenizer codes. The backbone's shape tokens are the rows of
 * this table, in order. */
struct vision_shape {
    char name[VISION_NAME_MOST]; /* "64x64", "64x64x9" */
    i64 frames, height, width;   /* pixels; frames 1: still */
    i64 latent_frames, h, w;     /* T'; the finest grid */
    double rate_hz;              /* frames per second sampled from a clip; 0: all frames, or a still */
    i64 scale_count;
    struct scale scales[VISION_SCALES_MOST]; /* neither side ever shrinks; the last is h x w */
    i64 area;                                /* number of its area, from the smallest (data/shapes/aspects.h) */
    i64 amplitude; /* row of the amplitude table, shared by shapes with equally many scales and similar area */
    double crop;   /* largest share of a side cropped off a picture whose proportions differ */
};
struct vision_config {
    i64 stride;      /* 8 or 16 pixels */
    i64 bits;        /* d */
    i64 channels[2]; /* width at 1/4 resolution; width at the latent grid (D_cnn) */
    i64 blocks[2];   /* residual blocks at each, in encoder and decoder */
    bool inflated;   /* enables the temporal layers */
    bool centred;    /* bits are of the latent around its running mean, of stills and of clips */
    i64 kept_bits;   /* the first bits, which are those of the tokenizer with fewer bits that it grew from */
    i64 shape_count;
    struct vision_shape shapes[VISION_SHAPES_MOST];
};
int vision_config_check(const struct vision_config *config); /* -1 with a message that names the misfit */
/* Appends a shape. `sides` are the sides s_1 .. s_K of the scales of a square of about the same
 * area. In the shape's own proportions, scale k is round(s_k h / s_K) x round(s_k w / s_K), and
 * side 1 is a single position; so shapes of similar area have equally many scales of similar area.
 * NULL selects 1, 2, 3, 4, 6, 8, ... up to that square's grid. Returns -1 with a message if it
 * does not fit. */
int vision_add_shape(struct vision_config *config, i64 frames, i64 height, i64 width, double rate_hz, const i64 *sides,
                     i64 side_count);
i64 vision_usual_sides(i64 sides[VISION_SCALES_MOST], i64 grid); /* 1, 2, 3, 4, 6, 8, ... grid; returns their number */
/* A scale in config.json and shards.json: one side, or [h, w]. scale_parse returns false for other
 * values and for sides beyond 1024. */
struct json *scale_json(struct scale scale);
bool scale_parse(struct scale *out, const struct json *value);
/* True if `scale` may follow `before`: more positions, and neither side smaller. */
bool scale_grows(struct scale before, struct scale scale);
i64 vision_latent_frames(i64 frames);                /* 1 + (frames - 1) / 4, frames = 1, 5, 9, ... */
i64 vision_frames(i64 latent_frames);                /* 1 + 4 (latent_frames - 1) */
i64 vision_tokens(const struct vision_shape *shape); /* positions per latent frame: sum of h_k w_k */

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
    struct weight *amplitude; /* [shapes, VISION_SCALES_MOST] a_k, state: running mean of |u_k| */
    struct weight *centre;    /* [2, d] state: running mean of the projection, of stills, of clips; NULL: 0 */
};
struct vision {
    struct vision_config config;
    struct weights weights;
    struct device *device;
    enum dtype dtype; /* activations */
    struct vision_weights at;
    struct tape tape; /* forward pass of encode and decode */
    i64 kept_bits;    /* bits that do not learn, with all that makes them; 0: all learn */
};
/* Creates and allocates the weights of a checked configuration. vision_init or loading must set
 * them. */
void vision_open(struct vision *vision, struct device *device, const struct vision_config *config, enum dtype dtype,
                 bool training);
void vision_init(struct vision *vision, u64 seed);
void vision_close(struct vision *vision);

/* Loads or saves a folder with config.json and weights.safetensors (masters in F32). vision_load
 * also opens the tokenizer. Both return -1 with a message on failure. */
int vision_load(struct vision *vision, struct device *device, const char *directory, enum dtype dtype, bool training);
int vision_save(const struct vision *vision, const char *directory); /* the folder must exist */
int vision_config_load(struct vision_config *config, const char *directory);
/* 1: the first bits of all codes of `grown` are those of `base`, two folders, for its encoder, amplitudes and
 * centres are the same there; 0: they are not; -1 and a message: a folder cannot be read. */
int vision_bits_stay(const char *base, const char *grown);
struct json *vision_config_json(const struct vision_config *config);
int vision_config_parse(struct vision_config *config, const struct json *value, const char *origin);

/* ---- Batches: forward only, on all workers; any n, in pieces of bounded memory ---- */
/* frames must be 1, 5, 9, ...; height and width must be multiples of the stride. Long videos are
 * processed in parts. Arrays are host memory; `latent` and `features` may be NULL. */
/* latent [n, T', h, w, d] of bf16 values, features [n, T', h, w, D_cnn]. */
void vision_encode(struct vision *vision, float *latent, float *features, const u8 *pixels, i64 n, i64 frames,
                   i64 height, i64 width);
void vision_decode(struct vision *vision, u8 *pixels, const float *sum, i64 n, i64 latent_frames, i64 h, i64 w);
/* Quantizes n latent frames of a shape to bits [n, tokens, d] and their sum [n, h, w, d], or
 * back. */
void vision_quantize(struct vision *vision, u8 *bits, float *sum, const float *latent, i64 n,
                     const struct vision_shape *shape);
void vision_dequantize(struct vision *vision, float *sum, const u8 *bits, i64 n, const struct vision_shape *shape);
/* Encodes, quantizes and decodes n stills or clips of a shape. bits may be NULL. */
void vision_reconstruct(struct vision *vision, u8 *out, u8 *bits, const u8 *pixels, i64 n,
                        const struct vision_shape *shape);
/* a_k [scale_count], device memory. */
const float *vision_amplitude(const struct vision *vision, const struct vision_shape *shape);

/* Squared error of pixels scaled to 0..1, averaged over `count` values, and the PSNR in dB of a
 * mean squared error. For many pictures pass the mean of their errors. */
double vision_square_error(const u8 *a, const u8 *b, i64 count);
double vision_psnr(double square_error);

/* ---- On a tape: shared by training and the functions above ---- */
/* Rows are ordered (time, n, h, w), so that a causal convolution over time reads whole blocks of
 * rows. */
struct vision_size {
    i64 n, frames, height, width;
};
/* Pixels as patches [frames * n * H/4 * W/4, 48] with values -1..1: the encoder's input and the
 * decoder's target. */
struct tensor *vision_patches(struct tape *tape, const struct vision *vision, const u8 *pixels /* host memory */,
                              struct vision_size size);
/* Features [T' * n * h * w, D_cnn] in the activations' dtype. */
struct tensor *vision_features(struct tape *tape, const struct vision *vision, struct tensor *patches,
                               struct vision_size size);
/* vision_project returns the projection [T' * n * h * w, d] in F32. vision_latent subtracts the centre of
 * stills or clips, if there is one, and rounds to bf16 values (still F32); gradients pass the rounding
 * straight through. vision_pixels adds the centre to sums again. */
struct tensor *vision_project(struct tape *tape, const struct vision *vision, struct tensor *features);
struct tensor *vision_latent(struct tape *tape, const struct vision *vision, struct tensor *features, bool clips);
/* Decodes f32 sums to patches. `size` is that of the pixels. */
struct tensor *vision_pixels(struct tape *tape, const struct vision *vision, struct tensor *sum,
                             struct vision_size size);
/* The same in two parts: all but the decoder's last layer, and that layer. */
struct tensor *vision_inside(struct tape *tape, const struct vision *vision, struct tensor *sum,
                             struct vision_size size);
struct tensor *vision_outside(struct tape *tape, const struct vision *vision, struct tensor *inside,
                              struct vision_size size);
/* Adds to *square (device memory) the squared norm of the gradient that the weight of the last layer gets
 * if the patches that it writes from `inside` have `gradient`. */
void vision_last_square(double *square, struct tape *tape, const struct vision *vision, const struct tensor *inside,
                        struct matrix gradient, struct vision_size size);

/* The losses: LOSS(KEY, name, each, metric, default weight, help). The setting loss.NAME, the loss of a
 * step and metrics.jsonl follow from a row; its function is add_NAME in vision_loss.c. A loss is a
 * mean, with pixels in -1..1.
 *   each: of what the function adds a value: PATCHES of 4x4 pixels, behind the decoder, POSITIONS of
 *         the latent, behind the quantizer, the whole BATCH, there too, or PICTURES, of features that
 *         another network finds in them (vision_feature_losses)
 *   metric: its name in metrics.jsonl; "": it is not shown
 * OWN has its weight among other settings and is computed elsewhere, from vision_decoded: of each MEDIUM */
#define VISION_LOSS_ROWS(LOSS, OWN)                                                                                    \
    LOSS(L1, l1, PATCHES, "", "1", "weight of the mean absolute error, pixels in -1..1")                               \
    LOSS(L2, l2, PATCHES, "", "1", "weight of the mean squared error")                                                 \
    LOSS(COMMITMENT, commitment, POSITIONS, "commitment", "0.25", "weight of (latent - code)^2")                       \
    LOSS(ENTROPY, entropy, BATCH, "bit_entropy_loss", "0.1", "weight of the bit entropy term")                         \
    LOSS(FEATURES, features, PICTURES, "features_loss", "0",                                                           \
         "weight of the distance of the discriminator's features, as a share of the original's")                       \
    LOSS(GRAM, gram, PICTURES, "gram_loss", "0", "weight of the distance of their Gram matrices, as a share likewise") \
    OWN(SEMANTIC, semantic, MEDIUM, "semantic_loss")
enum {
#define VISION_LOSS_KEY(KEY, ...) VISION_##KEY,
    VISION_LOSS_ROWS(VISION_LOSS_KEY, VISION_LOSS_KEY) VISION_LOSSES
};
struct vision_losses {
    double of[VISION_LOSSES];
};
struct vision_loss_weights {
    double of[VISION_LOSSES];
    double sharpness; /* entropy term: p = sigmoid(sharpness u / a_k) */
};
extern const char *const vision_loss_metrics[VISION_LOSSES];
/* Forward pass with losses; tape_backward may follow. Adds the losses of all rows to sums
 * [VISION_LOSSES] (device memory); vision_losses_of turns these into means once they are on the
 * host. Everything after the upload of the pixels is segment 0 of the tape. */
struct vision_means {       /* device memory of the tape */
    const float *magnitude; /* [scale_count] mean |u_k| */
    float *latent;          /* [d] sum of the latent's rows; NULL: it has no centre */
    i64 rows;
};
/* What the decoder read and wrote, on the tape, for losses outside of it (op_add_gradient of `patches`). */
struct vision_decoded {
    struct tensor *original, *patches; /* [frames * n * H/4 * W/4, 48] */
    struct tensor *inside;             /* vision_inside */
    struct tensor *code;               /* [T' * n * h * w, d] sums of the scales, straight through to the latent */
};
struct vision_means vision_loss(double *sums, struct tape *tape, const struct vision *vision, const u8 *pixels,
                                struct vision_size size, const struct vision_shape *shape,
                                const struct vision_loss_weights *weights,
                                struct vision_decoded *decoded /* NULL: not wanted */);
/* The losses of PATCHES alone, of any tensor, as in vision_loss. */
void vision_patch_losses(double *sums, struct tape *tape, struct tensor *patches, struct tensor *original,
                         const struct vision_loss_weights *weights);
/* Features of decoded pictures and of the originals: `count` layers, rows (picture, position). A loss is the
 * sum over the layers of |x - y| / |y| of a picture, y of the original (the form of Arik et al. 2019, arXiv
 * 1808.06719). Of Gram matrices: x x^T of the channels over the positions of a picture (Gatys et al. 2016,
 * arXiv 1508.06576). The originals' get no gradient. */
enum { VISION_LAYERS_MOST = 8 };
struct vision_layers {
    i64 pictures, count;
    struct tensor *decoded[VISION_LAYERS_MOST], *original[VISION_LAYERS_MOST];
};
void vision_feature_losses(double *sums, struct tape *tape, const struct vision_layers *layers,
                           const struct vision_loss_weights *weights);
struct vision_losses vision_losses_of(const double *sums, const struct vision *vision, struct vision_size size);
double vision_weighted(const struct vision_losses *losses, const struct vision_loss_weights *weights); /* their sum */
/* a_k += (1 - keep) (mean |u_k| - a_k), and the centre moves by (1 - keep_centre) times the latent's mean.
 * Where bits are kept, so are all a_k and the centre of those bits. */
void vision_state_update(struct vision *vision, const struct vision_shape *shape, const struct vision_means *means,
                         double keep, double keep_centre);
/* Only the decoder and the bits behind the first `bits` learn from now on: codes of the first ones stay,
 * with all that makes them, amplitudes too. All bits: only the decoder learns. */
void vision_keep_bits(struct vision *vision, i64 bits);
/* Copies the weights of a tokenizer of the same sizes, but for `bits`, of which it may have fewer, and rows of
 * amplitudes. More bits keep their initial projection, and the decoder does not hear them: its weights of
 * them are 0. So codes of the first bits and decoded pictures are those of `from`. */
void vision_take(struct vision *vision, const struct vision *from);
/* Enables the temporal layers after training on stills; the codes of stills do not change. */
void vision_inflate(struct vision *vision);

#endif
