/* A discriminator: a second network that learns to tell decoded media from originals while a decoder
 * learns to deceive it. This file knows no medium. The stage supplies the network: rows of a table and a
 * function from media to logits, positive for originals.
 *
 *     decoded -> network, frozen -> gradient of -mean logit at `decoded`   (discriminator_listen)
 *                                     | times the adaptive weight          (discriminator_weigh)
 *                                     +-> into the backward of the decoder
 *     originals, decoded -> network -> gradients of its weights            (discriminator_learn)
 *     both networks are updated, or neither                                (discriminator_update)
 *
 * Its loss is the hinge of Lim & Ye (2017, arXiv 1705.02894) and the LeCAM regularizer (Tseng et al. 2021,
 * arXiv 2104.03310, eq. 3). The table of weights goes into checkpoints (struct further_weights), and with
 * it all that the next step depends on, but not into the finished tokenizer. */
#ifndef WEFT_TOKENIZER_TRAINING_DISCRIMINATOR_H
#define WEFT_TOKENIZER_TRAINING_DISCRIMINATOR_H
#include "tensor/ops.h"
#include "train/train.h"

struct discriminator_settings {
    double weight, start, most, lecam, lr;
    i64 width;
};
/* Rows for a settings table whose struct has a field `struct discriminator_settings discriminator`. */
#define DISCRIMINATOR_ROWS(type)                                                                                       \
    SETTING(type, discriminator.weight, "discriminator.weight", NUMBER, "0", 0, 1e6, NULL,                             \
            "adversarial loss: share of its gradient beside that of the other losses, at the decoder's last layer; "   \
            "0: none"),                                                                                                \
        SETTING(type, discriminator.start, "discriminator.start", NUMBER, "0.5", 0, 1, NULL,                           \
                "share of all steps after which the discriminator begins to learn and the decoder to learn from it"),  \
        SETTING(type, discriminator.most, "discriminator.most", NUMBER, "100", 0, 1e6, NULL,                           \
                "largest ratio of these gradients' norms"),                                                            \
        SETTING(type, discriminator.lecam, "discriminator.lecam", NUMBER, "0.01", 0, 1e6, NULL,                        \
                "weight of the LeCAM regularizer of the discriminator"),                                               \
        SETTING(type, discriminator.lr, "discriminator.lr", NUMBER, "1", 0, 100, NULL,                                 \
                "its learning rate, relative to optimizer.lr"),                                                        \
        SETTING(type, discriminator.width, "discriminator.width", INTEGER, "16", 1, 1024, NULL,                        \
                "its channels at the finest resolution; they double where it halves")

/* ---- Layers of its network ---- */
struct discriminator_layer {
    struct weight *weight, *bias;
};
struct discriminator_plane { /* rows [count * h * w, channels] that a layer sees */
    i64 count, h, w;
};
struct discriminator_kernel {
    i64 size[2], stride[2]; /* along h and w */
};
/* The plane after a convolution, padded so that it is a plane of h / stride x w / stride, rounded up. */
struct discriminator_plane discriminator_plane_after(struct discriminator_plane before,
                                                     const struct discriminator_kernel *kernel);
/* A convolution with bias. Moves *plane to the one after it. */
struct tensor *discriminator_convolve(struct tape *tape, struct tensor *x, const struct discriminator_layer *layer,
                                      struct discriminator_plane *plane, const struct discriminator_kernel *kernel);
/* Adds rows discriminator.STEM.weight [rows, columns] and .bias to its table. silu: SiLU follows the layer, and the
 * weight is drawn wider. */
struct discriminator;
struct discriminator_layer discriminator_add_layer(struct discriminator *d, const char *stem, i64 rows, i64 columns,
                                                   bool silu);

/* ---- In a step ---- */
/* Figures of the last step, and their running means. DISCRIMINATOR_REAL and _DECODED are mean logits, of
 * which LeCAM needs the running means. */
enum {
    DISCRIMINATOR_REAL,
    DISCRIMINATOR_DECODED,
    DISCRIMINATOR_LOSS,        /* hinge and regularizer */
    DISCRIMINATOR_ADVERSARIAL, /* -mean logit of decoded media */
    DISCRIMINATOR_WEIGHT,      /* adaptive weight times the setting */
    DISCRIMINATOR_FIGURES
};
extern const char *const discriminator_names[DISCRIMINATOR_FIGURES]; /* in metrics.jsonl, after "discriminator/" */

/* Logits [N, 1] in F32 of media, a tensor of the stage's own shape. Or those media of what a decoder writes. */
typedef struct tensor *discriminator_network(struct tape *tape, void *context, struct tensor *media);
struct discriminator {
    const struct discriminator_settings *settings;
    struct weights weights;
    struct weight *state; /* [1, DISCRIMINATOR_FIGURES + 1] running means, and the number of updates */
    struct tape tape;
    discriminator_network *network;
    discriminator_network *media; /* of what discriminator_listen is given; NULL: it is given media */
    void *context;                /* of both */
    double now[DISCRIMINATOR_FIGURES];
};
/* Opens the table. The caller adds the rows of the network, then calls weights_allocate and weights_init. */
void discriminator_open(struct discriminator *d, struct device *device, enum dtype dtype,
                        const struct discriminator_settings *settings);
void discriminator_close(struct discriminator *d);
/* The first of so many steps in which it learns. */
i64 discriminator_begin(const struct discriminator_settings *settings, i64 steps);

/* Clears its tape for ops on its network whose gradients go to media alone, not to its weights. */
void discriminator_freeze(struct discriminator *d);
/* A tensor over the data of `media` on its tape, which gets a gradient there. */
struct tensor *discriminator_input(struct discriminator *d, const struct tensor *media);
/* The gradient of -mean logit at `decoded`, on its tape until the next use. `decoded`: media, or what they are made
 * of (`media`). */
struct matrix discriminator_listen(struct discriminator *d, const struct tensor *decoded);
/* The adaptive weight from two squared norms in device memory, of the gradient of other losses and of the
 * adversarial one (discriminator_weight). It becomes a figure of the step. */
double discriminator_weigh(struct discriminator *d, const double *squares);
/* Gradients of its weights, for as many originals as decoded media of one shape, as rows. */
void discriminator_learn(struct discriminator *d, const struct tensor *original, const struct tensor *decoded);

/* Updates the network of `weights` and the discriminator, or neither: if one norm of gradients is not
 * finite, both updates are skipped and no running mean moves. `step` counts updates from 0. */
struct discriminator_update {
    struct weights *weights;
    const struct optimizer_settings *optimizer;
    double lr;
    i64 step, own_step; /* of `weights`; of the discriminator */
    double *squares;    /* device memory, as in optimizer_step_over; infinite on entry suppresses both updates */
};
void discriminator_update(struct discriminator *d, const struct discriminator_update *update);
/* The figures of the step as "discriminator/NAME". */
void discriminator_put_metrics(struct metrics *metrics, const struct discriminator *d);
/* The running means, by name (discriminator_names); empty before it began. */
struct json *discriminator_json(const struct discriminator *d);

/* ---- Formulas ---- */
/* Hinge loss and regularizer of logits [2n], those of n originals first; means: the running means of
 * originals and of decoded media, NULL before there are any. Writes the gradient [2n]. */
double discriminator_loss(float *gradient, const float *logits, i64 n, const double *means, double lecam);
/* Weight of the adversarial loss from the squared norms of two gradients at the decoder's last layer, of its
 * other losses and of the adversarial one: their ratio (Esser et al. 2021, arXiv 2012.09841, eq. 7), at
 * most settings->most, times settings->weight. NaN if a norm is not finite. */
double discriminator_weight(double others, double adversarial, const struct discriminator_settings *settings);

#endif
