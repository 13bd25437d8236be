/* Measurements while pretrain or sft trains, into the step's line of metrics.jsonl: the router
 * (routing_steps), held-out losses (heldout_steps) and those of sub-models (grid_steps). Each
 * depends only on the step's batch and the weights after it, and moves nothing: a run trains the
 * same weights with and without them, and a resumed one measures the same. */
#ifndef WEFT_TRAIN_MONITOR_H
#define WEFT_TRAIN_MONITOR_H
#include "train/heldout_set.h"
#include "train/pretrain.h"

struct monitor {
    const struct pretrain_settings *settings;
    const char *name; /* of the stage */
    struct routing_monitor routing;
    struct heldout_set rows; /* empty without heldout_steps and grid_steps */
    struct step_result full; /* losses of the full model on these rows after `measured` steps */
    i64 measured;            /* -1: not measured yet */
};
/* pass: where held-out rows are, their length, and the kinds of samples. Returns -1 and a message. */
int monitor_open(struct monitor *monitor, const struct pretrain_settings *settings, const char *name,
                 const struct heldout_pass *pass, const struct model *model);
void monitor_close(struct monitor *monitor);
/* The trainer's monitor for step number `done` (1, 2, ..); NULL: the step is not measured. */
struct routing_monitor *monitor_routing(struct monitor *monitor, i64 done);
/* Called by all ranks after the step; metrics NULL except on rank 0. */
void monitor_measure(struct monitor *monitor, struct metrics *metrics, struct model *model, i64 done);
/* Measures `keep_best` after `done` steps: a name of metrics.jsonl, such as `heldout/chat/text`, or
 * `heldout`: over all target kinds, the sum of weight * mean loss / loss of a uniform guess. NaN if
 * the step is not to be measured. With keep_best the first and the last step are. All ranks call it together. Returns
 * -1 and a message that lists the measures there are. */
int monitor_best(double *value, struct monitor *monitor, struct model *model, i64 done);

#endif
