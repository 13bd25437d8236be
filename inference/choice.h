/* Which layers and experts of a model matter, measured on held-out samples: statistics of experts,
 * losses of sub-models, and greedy choices by these losses. The stage `extract` chooses by it.
 *
 * Samples are taken by direction (sequence/modalities.h), as many rows of each, and every direction
 * counts alike: otherwise long media decide alone. The memory belongs to struct choice until
 * choice_close. */
#ifndef WEFT_INFERENCE_CHOICE_H
#define WEFT_INFERENCE_CHOICE_H
#include "train/heldout.h"

/* What an expert is kept for. x: the positions that choose expert e, in the full model; f_e: its
 * output, g_e: its weight in the sum of the outputs.
 *   use     how often it is chosen, over training or on given data
 *   weight  sum over x of g_e(x)
 *   man     mean over x of |f_e(x)|: mean activation norm, arXiv 2606.15716
 *   reap    mean over x of g_e(x) |f_e(x)|: router-weighted expert activation pruning,
 *           arXiv 2510.13999, eq. 9
 *   balanced  sum over x of g_e(x) |f_e(x)|, balanced over the directions (choice_balanced)
 *   greedy  balanced, then swaps by which the loss falls (choice_experts_greedy) */
enum criterion {
    CRITERION_AUTO,
    CRITERION_USE,
    CRITERION_WEIGHT,
    CRITERION_MAN,
    CRITERION_REAP,
    CRITERION_BALANCED,
    CRITERION_GREEDY
};
#define CRITERION_NAMES "auto|use|weight|man|reap|balanced|greedy"
/* auto: use without data, this one with data */
enum { CRITERION_WITH_DATA = CRITERION_BALANCED };
#define CRITERION_AUTO_HELP "use without data, balanced with data"

struct choice {
    struct model *model; /* borrowed */
    struct heldout_batches rows[DIRECTIONS];
    unsigned directions;                            /* with samples, as bits */
    double full[DIRECTIONS][LOSS_STREAMS][TARGETS]; /* losses of the full model; NaN: no such targets */
    i64 forwards;                                   /* over all rows, so far */
    struct tape tape;
    struct step_sums *sums; /* device memory */
};
/* Reads `rows` rows of each direction. directions: bits 1 << direction; 0: all. It is an error if
 * none has samples. Returns 0, -1 and a message, or STAGE_INTERRUPTED. */
int choice_open(struct choice *choice, struct model *model, const struct heldout_pass *pass);
void choice_close(struct choice *choice);
/* What a sub-model loses of what the full model learned: the root of the mean square, over the
 * directions, of (loss - full model's) / (entropy of the targets' frequencies - full model's),
 * brackets of media left out. 0: as the full model, 1: all. Losses of text, bits and codes differ in
 * size, and these shares do not; the square keeps one direction from paying for the others. Of
 * gains, the mean counts a quarter. */
double choice_loss(struct choice *choice, const struct submodel *sub);
/* [L, E] by use, weight, man or reap, over the full model's layers; larger: kept. 1 pass. */
void choice_scores(double *scores, struct choice *choice, enum criterion criterion);

/* Ranks by an order of taking away in which no direction loses much more of the sum of its weighted
 * norms than another, times a factor: a search that takes one factor at a time 4 times or a quarter
 * as large, for the least loss of the sub-model with `count` experts. With one direction there is
 * nothing to search. Passes: 1, and up to 16 a sweep, of which there are at most 4. */
int choice_balanced(double *scores, struct choice *choice, const struct submodel *sub, i64 count);
/* Takes layers away one at a time, each time the one without which the loss is least, until `count`
 * are left; fixed ones stay. Passes over the rows: the sum of the eligible layers left each time.
 * Returns 0, or STAGE_INTERRUPTED. */
int choice_layers_greedy(struct submodel *sub, struct choice *choice, i64 count);
/* Swaps scores of experts of a layer, layer by layer from the last to the first, where the loss falls
 * by it: each of the 4 that stay by the least margin with each of the 4 that go by the least. Goes
 * on until no swap helps, at most 4 times. Passes: 1, and 16 a layer each time. */
int choice_experts_greedy(double *scores, struct choice *choice, const struct submodel *sub, i64 count);
#endif
