/* Counts of how often each of the six streams chooses each expert in each MoE layer, and figures of
 * such counts: load, unused experts, entropy, and the overlap of the most used experts of two
 * streams (ERNIE 5.0 report 6.4.1, figures 8 to 10). Counts also say which expert rank is to hold which experts. */
#ifndef WEFT_TRAIN_ROUTING_COUNTS_H
#define WEFT_TRAIN_ROUTING_COUNTS_H
#include "model/model.h"

/* Counts over positions other than padding. They cover the MoE
 * layers and the experts that the sub-model keeps. */
struct routing_counts {
    i64 layers, experts, topk;
    i32 *layer;  /* [layers] number in the model */
    i32 *expert; /* [layers, experts] id in the model */
    i64 *count;  /* [layers, STREAMS, experts] positions of the stream routed to the expert */
    i64 positions[STREAMS];
};
void routing_counts_init(struct routing_counts *counts, const struct model_config *config, const struct submodel *sub);
void routing_counts_release(struct routing_counts *counts);
static inline const i64 *routing_use(const struct routing_counts *counts, i64 layer, enum stream stream)
{
    return counts->count + (layer * STREAMS + stream) * counts->experts;
}
/* Adds a batch. routes [L, n, K] as returned by the forward: over all layers of the model, -1 where
 * no expert was chosen. sample_topk [samples]: samples whose k is less than K are left out; NULL:
 * none. */
void routing_count(struct routing_counts *counts, const struct batch *batch, const i32 *routes, const i32 *sample_topk);

/* Uses of the most used expert over the mean of all; NaN without any use. */
double routing_load(const i64 *use, i64 experts);
/* Uses of the busiest expert rank over the mean of all, NaN without any use: in the layer where that is largest
 * (*layer), and the mean of layers that have some use. use [layers, experts]; placement: as in struct weights_layout,
 * NULL: experts lie in a row. */
double routing_rank_load(i64 *layer, const double *use, const i32 *placement, i64 layers, i64 experts, i64 ranks);
double routing_rank_load_mean(const double *use, const i32 *placement, i64 layers, i64 experts, i64 ranks);
/* Share of the experts without any use; NaN if that is all of them. */
double routing_unused(const i64 *use, i64 experts);
/* Normalized entropy -sum p log p / log E of p = use / sum: 1 is uniform, 0 a single expert. NaN
 * without any use or if E is 1. */
double routing_entropy(const i64 *use, i64 experts);
/* Marks the set of most used experts: the top quarter by use (rounded to nearest, at least one
 * expert); ties go to the smaller id, and unused experts are never included. */
void routing_most_used(bool *marks, const i64 *use, i64 experts);
/* Intersection over union of two sets. NaN if both are empty. Independent top quarters give about
 * 1/7. routing_overlap: that of the most used experts. */
double routing_overlap_of_sets(const bool *a, const bool *b, i64 experts);
double routing_overlap(const i64 *use_a, const i64 *use_b, i64 experts);

/* Places the experts on expert ranks for all weights that are read from now on: by `use` (model_use_count, changed),
 * in a row if that is wanted, or as a replay says. Without expert ranks it does nothing. 0, or -1 and a message. */
struct stage;
int routing_place_experts(struct model *model, const struct stage *stage, double *use, bool in_a_row);
/* Call when the weights and model->use are there: says how the experts are placed, and checks that memory for rows
 * suffices for the use so far. 0, or -1 and a message. */
int routing_check_room(const struct model *model, const struct stage *stage);

#endif
