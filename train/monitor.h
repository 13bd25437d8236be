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
};
/* pass: where held-out rows are, their length, and the kinds of samples. Returns -1 and a message. */
int monitor_open(struct monitor *monitor, const struct pretrain_settings *settings, const char *name,
                 const struct heldout_pass *pass, const struct model *model);
void monitor_close(struct monitor *monitor);
/* The trainer's monitor for step number `done` (1, 2, ..); NULL: the step is not measured. */
struct routing_monitor *monitor_routing(struct monitor *monitor, i64 done);
/* Called by all ranks after the step; metrics NULL except on rank 0. */
void monitor_measure(struct monitor *monitor, struct metrics *metrics, struct model *model, i64 done);

#endif
