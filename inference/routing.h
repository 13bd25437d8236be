/* Expert usage of an MoE model: counts of how often each of the six streams chooses each expert in
 * each MoE layer over held-out samples, the overlap of the most used experts of two streams, and
 * the entropy of a stream's use (ERNIE 5.0 report 6.4.1, figures 8 to 10). */
#ifndef WEFT_INFERENCE_ROUTING_H
#define WEFT_INFERENCE_ROUTING_H
#include "inference/inference.h"

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
 * no expert was chosen. */
void routing_count(struct routing_counts *counts, const struct batch *batch, const i32 *routes);

/* Intersection over union of the two sets of most used experts. A set is the top quarter by use
 * (rounded to nearest, at least one expert); ties go to the smaller id, and unused experts are
 * never included. NaN if both sets are empty. Independent sets give about 1/7. */
double routing_overlap(const i64 *use_a, const i64 *use_b, i64 experts);
/* Normalized entropy -sum p log p / log E of p = use / sum: 1 is uniform, 0 a single expert. NaN
 * without any use or if E is 1. */
double routing_entropy(const i64 *use, i64 experts);

/* Output of routing_measure: JSON and CSV (routing_files.c), SVG and PNG figures and routing.html
 * (routing_pictures.c). The caller frees routing_json with json_free. */
struct json *routing_json(const struct routing_counts *counts);
int routing_save_tables(const struct routing_counts *counts, const char *directory);
int routing_save_pictures(const struct routing_counts *counts, const char *directory);

#endif
