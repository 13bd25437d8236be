/* The router in training: what the positions of one step chose, layer by layer, and a warning where
 * a layer has collapsed to few experts for many steps.
 *
 * A step is measured while the trainer has a monitor. Its own forwards keep their routes, so there
 * is no further pass. Positions count that chose among all experts with the full top-k; a slice that
 * drew fewer experts, a sample that drew a smaller k, and layers that a slice dropped do not. They
 * are the positions by which the router's bias is balanced. */
#ifndef WEFT_TRAIN_ROUTING_MONITOR_H
#define WEFT_TRAIN_ROUTING_MONITOR_H
#include "train/routing_counts.h"

struct metrics;
struct routing_monitor {
    struct routing_counts counts; /* over the MoE layers of all ranks */
    double *bias;                 /* [layers] standard deviation of the balancing bias */
    /* The warning looks at all steps since the last look, not at one: a step of few rows may show a
     * single medium, whose positions choose alike. */
    double *use;      /* [L, E] model->use at the last look */
    i64 begin;        /* the step before which nothing is looked at */
    i64 looked;       /* the step of the last look; -1: none yet */
    double *evenness; /* [layers] at the last look; NaN: enough experts were used */
    bool *told;       /* [layers] the warning was logged */
};
/* warmup: steps of it. While the learning rate rises a router may collapse and be balanced again, so
 * the warning begins after it, or after 100 steps. */
void routing_monitor_open(struct routing_monitor *monitor, const struct model_config *config, i64 warmup);
void routing_monitor_close(struct routing_monitor *monitor);
/* The trainer's calls: once at the beginning of a step, after each forward that kept its routes
 * (device memory), and once after the last one, before the bias moves. The last one sums over the
 * data and pipeline ranks. */
void routing_monitor_begin(struct routing_monitor *monitor);
void routing_monitor_add(struct routing_monitor *monitor, struct arena *arena, const struct model *model,
                         const struct batch *batch, const struct submodel *sub, const i32 *routes);
void routing_monitor_end(struct routing_monitor *monitor, const struct model *model);
/* Puts the step's figures; none of a layer or stream that no counted position ran through:
 *
 *     routing/LAYER/load, /unused, /entropy, /bias     largest use over the mean; share of unused
 *                                                      experts; entropy, 1 if even; see above
 *     routing/LAYER/load/STREAM, /unused/STREAM, /entropy/STREAM
 *     routing/LAYER/overlap/STREAM/STREAM              of the most used quarters */
void routing_monitor_put(struct metrics *metrics, const struct routing_monitor *monitor);
/* Call after a measured step; `done` steps are complete. Looks at the use of each layer's experts in
 * the steps since the last look, at least 10, and warns once of each layer that used few of them in
 * two looks in a row and does not recover. name: the stage. */
void routing_monitor_look(struct routing_monitor *monitor, const struct model *model, const char *name, i64 done);

#endif
