/* Who uses which expert: how often each of the six streams chooses each expert of each MoE layer, over held-out
 * samples; how much the most used experts of two streams overlap; how evenly a stream spreads (ERNIE 5.0 report 6.4.1,
 * figures 8 to 10). */
#ifndef WEFT_STUDIO_ROUTING_H
#define WEFT_STUDIO_ROUTING_H
#include "inference/inference.h"

/* Counts over positions that are no padding. Layers are the routed ones that the sub-model keeps, experts those it
 * keeps. */
struct routing_counts {
    i64 layers, experts, topk;
    i32 *layer;  /* [layers] number in the model */
    i32 *expert; /* [layers, experts] id in the model */
    i64 *count;  /* [layers, STREAMS, experts] positions of the stream that chose the expert */
    i64 positions[STREAMS];
};
void routing_counts_init(struct routing_counts *counts, const struct model_config *config, const struct submodel *sub);
void routing_counts_release(struct routing_counts *counts);
static inline const i64 *routing_use(const struct routing_counts *counts, i64 layer, enum stream stream)
{
    return counts->count + (layer * STREAMS + stream) * counts->experts;
}
/* routes [L, n, K] as the forward keeps them: by the model's layers, -1 where nothing was chosen. */
void routing_count(struct routing_counts *counts, const struct batch *batch, const i32 *routes);

/* Intersection over union of the quarter (rounded to nearest, at least one) of experts that each uses most; ties to the
 * smaller id, unused experts never belong. NaN if both sets are empty. Of independent choices about 1/7. */
double routing_overlap(const i64 *use_a, const i64 *use_b, i64 experts);
/* -sum p log p / log E of p = use / sum: 1 is even, 0 one expert alone. NaN without use or with a single expert. */
double routing_entropy(const i64 *use, i64 experts);

/* What routing_measure writes of the counts: routing_files.c, routing_pictures.c. */
struct json *routing_json(const struct routing_counts *counts);
int routing_save_tables(const struct routing_counts *counts, const char *directory);
int routing_save_pictures(const struct routing_counts *counts, const char *directory);

#endif
