/* Which layers and experts of a model matter, measured on held-out samples: statistics of experts,
 * losses of sub-models, and greedy choices by these losses. The stages `extract` and `grid` choose by it.
 *
 * Samples are taken by direction (sequence/modalities.h), as many rows of each, and every direction
 * counts alike: otherwise long media decide alone. The memory belongs to struct choice until
 * choice_close. */
#ifndef WEFT_CHOICE_H
#define WEFT_CHOICE_H
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
/* What a sub-model loses of what the full model learned, on a scale where 0 is the full model and 1 is
 * a model that knows only frequencies. For a direction it is
 *   (loss - full model's loss) / (entropy of the targets' frequencies - full model's loss).
 * Losses of text, bits and codes differ in size; these shares do not. Brackets of media are left out.
 * Returns the root of the mean square of what the directions lose, so that no direction pays for the
 * others, less a quarter of the mean of what they gain. */
double choice_loss(struct choice *choice, const struct submodel *sub);
/* [L, E] by use, weight, man or reap, over the full model's layers; larger: kept. 1 pass. */
void choice_scores(double *scores, struct choice *choice, enum criterion criterion);

/* Ranks the experts for a sub-model with `count` of them. Experts are taken away in an order in which
 * every direction loses about the same share of its weighted norms, times a factor of the direction.
 * The factors are searched: each in turn is tried at 4 times and at a quarter of its value, and the
 * value of the least choice_loss stays. With one direction there is nothing to search.
 * Passes: 1, and up to 16 a sweep, in at most 4 sweeps. */
int choice_balanced(double *scores, struct choice *choice, const struct submodel *sub, i64 count);
/* Takes one layer away at a time until `count` are left: the one whose absence costs least. Fixed
 * layers stay. Each removal takes one pass for every layer that may go.
 * Returns 0, -1 and a message if no loss is finite, or STAGE_INTERRUPTED. */
int choice_layers_greedy(struct submodel *sub, struct choice *choice, i64 count);
/* Improves the scores by swaps, layer by layer from the last to the first. Each of the 4 lowest ranked
 * experts that stay is swapped with each of the 4 highest ranked that go, and a swap that lowers the
 * loss is kept. Repeats until no swap helps, at most 4 times. Passes: 1, and 16 a layer each time. */
int choice_experts_greedy(double *scores, struct choice *choice, const struct submodel *sub, i64 count);
/* Ranks the experts by a criterion, for a sub-model with `count` of them; auto: CRITERION_WITH_DATA.
 * Returns 0, or STAGE_INTERRUPTED. */
int choice_experts(double *scores, struct choice *choice, enum criterion criterion, const struct submodel *sub,
                   i64 count);
#endif
