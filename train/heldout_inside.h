/* The rows of a held-out pass, shared by heldout.c and heldout_set.c, and the spread of its losses. */
#ifndef WEFT_TRAIN_HELDOUT_INSIDE_H
#define WEFT_TRAIN_HELDOUT_INSIDE_H
#include "train/heldout.h"

struct heldout_rows { /* The loader of a pass, with the schedules that it borrows. */
    struct loader *loader;
    i64 zero;
    double rows, length;
};
/* Opens the rows of the pass, clipped to the positions there are. Returns -1 and a message if it
 * cannot, or if the shards were made with other tokenizers than the model's. */
int heldout_rows_open(struct heldout_rows *rows, const struct heldout_pass *pass, const struct model_config *config);
/* Plans a step of the pass. Returns 1 if there is such a step, 0 at the end, -1 on error. */
int heldout_rows_step(struct loader_step *plan, const struct heldout_rows *rows, const struct heldout_pass *pass,
                      i64 step);
/* Builds the batch of a step and names the streams by which its targets are measured. */
int heldout_rows_batch(struct batch *batch, const struct heldout_rows *rows, const struct heldout_pass *pass, i64 step,
                       struct arena *arena);
/* Runs this rank's chunks of the pipeline in order and collects the losses of all of them. */
void heldout_forward(struct forward *out, struct tape *tape, struct model *model, const struct batch *batch,
                     const struct submodel *sub, struct forward_options *options);

/* heldout_spread.c: sums over samples, from which the sampling error of each loss follows. Begin with
 * zeros. heldout_spread_errors reduces the sums over the ranks of the pipeline. */
enum { HELDOUT_MOMENTS = 4 };
struct heldout_spread {
    double sums[LOSS_STREAMS][TARGETS][HELDOUT_MOMENTS];
};
void heldout_spread_add(struct heldout_spread *spread, struct device *device, const struct batch *batch,
                        const struct forward *forward, const struct model_config *config);
void heldout_spread_errors(double error[LOSS_STREAMS][TARGETS], struct heldout_spread *spread, struct model *model,
                           const struct step_result *of);

#endif
