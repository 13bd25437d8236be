/* What the files of draws share. */
#ifndef WEFT_ELASTIC_INSIDE_H
#define WEFT_ELASTIC_INSIDE_H
#include "elastic/elastic.h"

/* ---- pick.c ---- */
i64 elastic_first_step(const struct elastic_settings *settings, i64 steps); /* the first that draws */
i64 elastic_slot_layers(const struct elastic_settings *settings, const struct model_config *config);
i64 elastic_count_fixed(const struct elastic_settings *settings, const struct model_config *config);
bool elastic_always_full(const struct schedule *share); /* no step draws anything but the full axis */
i64 elastic_largest_reduced_topk(const struct elastic_settings *settings, const struct model_config *config);
/* Experts of each group in the smallest subset. */
i64 elastic_smallest_share(const struct elastic_settings *settings, const struct model_config *config);

/* ---- sizes.c ---- */
/* A size of the family, whole: what it does not name is the model's. */
struct elastic_size {
    i64 layers, experts, topk;
};
struct elastic_size elastic_size_of(const i64 *given, const struct model_config *config); /* given [SIZE_NAMES] */
/* Draws a size for the pass; the full model for pass 0 of several. */
void elastic_pick_size(struct submodel *sub, struct arena *arena, const struct elastic_draw *draw,
                       const struct batch *batch);
/* Keeps `count` experts of each layer, below all: the first of the order, or random ones. */
void elastic_pick_subset(struct submodel *sub, struct arena *arena, const struct elastic_draw *draw, i64 slice,
                         i64 count);
#endif
