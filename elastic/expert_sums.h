/* What the experts of the full model do on samples: the numbers by which they are ranked. */
#ifndef WEFT_EXPERT_SUMS_H
#define WEFT_EXPERT_SUMS_H
#include "model/model.h"

/* Sums over the positions that choose an expert, [L, E] each; x: a position, g: the expert's weight in the
 * sum of the outputs, f: its output. */
struct expert_sums {
    struct model *model;
    const struct batch *batch;             /* of the running forward; the caller sets it */
    double *count, *weight, *norm, *gated; /* of 1, g(x), |f(x)|, g(x) |f(x)|; NULL: not summed */
};
/* Adds a layer. It is called as forward_options.see_experts, with a struct expert_sums. */
void expert_sums_add(void *sums, i64 layer, const struct routing *routing, const struct tensor *outputs);

#endif
