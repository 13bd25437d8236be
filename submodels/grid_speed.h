/* Speed of several sub-models of one model, measured so that their order can be trusted on a busy
 * machine: all of them in turn, in many short rounds, each beside the full model in the same
 * round. */
#ifndef WEFT_GRID_SPEED_H
#define WEFT_GRID_SPEED_H
#include "submodels/submodels.h"

/* Fills `out` from seconds [rounds, points] that `positions` take. The ratio of a round is
 * seconds[r][0] / seconds[r][point], so what slows a whole round cancels. */
void grid_speed_summarize(struct grid_speed *out, const double *seconds, i64 rounds, i64 points, i64 point,
                          double positions);

struct grid_speed_settings {
    i64 rounds; /* 0: the decoders are only warmed up */
    i64 prompt; /* positions of the prompt whose reading is timed */
    i64 tokens; /* decoded in each round */
};
/* Fills `decode`, `prefill` and tokens_per_s of the points; the first is the full model. One request
 * at a time. A round times a prompt and the median of `tokens` decode steps of every sub-model;
 * rounds begin with a different one each. Returns 0, or STAGE_INTERRUPTED. */
int grid_speed_measure(struct grid_point *points, i64 count, struct model *model,
                       const struct grid_speed_settings *settings);
#endif
