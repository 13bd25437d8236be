/* Elastic training: one run trains a whole family of sub-models. This folder draws sub-models
 * (pick), measures many of them (grid) and extracts one as a checkpoint of its own (extract);
 * model/ executes them. The arrays of a sub-model belong to the caller's arena; the caller closes
 * an extracted model. [R 3.3, 4]
 *
 * In: settings, a batch, a step. Out: a struct submodel, which model_forward executes.
 *
 * Where is what: pick.c draws the layers, the experts and the top-k of each sample in training;
 * distill.c draws which of them the full model teaches;
 * options.c reads --layers, --experts, --topk; grid.c lists the sub-models that are measured;
 * extract.c cuts one out and compares its logits. The op route (kernels/cpu/routing/route.c)
 * chooses the experts of a position. */
#ifndef WEFT_ELASTIC_H
#define WEFT_ELASTIC_H
#include "core/settings.h"
#include "model/model.h"

/* ---- Draws ----
 * The 3 axes are independent. Depth and experts are drawn per slice of the global batch, keyed by
 * (step, slice, layer) and (step, slice, layer, expert group); top-k is drawn per sample, keyed by
 * (step, sample). Layers with audio heads, the first and the last layer are never dropped. */
struct elastic_settings {
    /* Probability of all layers; otherwise each eligible layer is dropped with probability
     * depth_drop. */
    double depth_full, depth_drop;
    double experts_full;            /* probability of all experts; otherwise a random subset */
    i64 experts_min, expert_groups; /* smallest subset (0: half); equal shares from each of the fixed groups */
    double topk_full;               /* probability of the full top-k; otherwise uniform in [topk_min, k) */
    i64 topk_min;
    i64 slice_rows;
    /* Online distillation: share of the slices with a smaller sub-model in which the full model
     * teaches it, and the weight of the teacher's distribution in their loss. */
    double distill, distill_weight;
};
#define ELASTIC_ROWS(type)                                                                                             \
    SETTING(type, elastic.depth_full, "elastic.depth_full", NUMBER, "0.75", 0, 1, NULL,                                \
            "probability that a slice runs all layers"),                                                               \
        SETTING(type, elastic.depth_drop, "elastic.depth_drop", NUMBER, "0.25", 0, 1, NULL,                            \
                "otherwise: drop probability of each eligible layer"),                                                 \
        SETTING(type, elastic.experts_full, "elastic.experts_full", NUMBER, "0.8", 0, 1, NULL,                         \
                "probability that a slice uses all experts"),                                                          \
        SETTING(type, elastic.experts_min, "elastic.experts_min", INTEGER, "0", 0, 65536, NULL,                        \
                "minimum size of a random expert subset; 0: half"),                                                    \
        SETTING(type, elastic.expert_groups, "elastic.expert_groups", INTEGER, "1", 1, 65536, NULL,                    \
                "expert groups; a subset takes an equal share of each"),                                               \
        SETTING(type, elastic.topk_full, "elastic.topk_full", NUMBER, "0.8", 0, 1, NULL,                               \
                "probability that a sample uses the full top-k"),                                                      \
        SETTING(type, elastic.topk_min, "elastic.topk_min", INTEGER, "1", 1, 1024, NULL, "minimum random top-k"),      \
        SETTING(type, elastic.slice_rows, "elastic.slice_rows", INTEGER, "4", 1, 1e6, NULL,                            \
                "consecutive rows of the global batch per slice"),                                                     \
        SETTING(type, elastic.distill, "elastic.distill", NUMBER, "0", 0, 1, NULL,                                     \
                "share of the slices with a smaller sub-model in which the full model teaches it, at the cost of its " \
                "forward"),                                                                                            \
        SETTING(type, elastic.distill_weight, "elastic.distill_weight", NUMBER, "0.5", 0, 1, NULL,                     \
                "there: weight of the cross entropy against the full model's predictions; the rest is that of the "    \
                "targets")

/* Returns a usage error if the groups do not divide the model's experts, or if topk_min or
 * experts_min leave nothing to draw. Logs a line for each axis of which the model has only one
 * choice, and warns if expert-parallel ranks may get unequal shares. */
int elastic_check(const struct elastic_settings *settings, const struct model_config *config, i64 expert_ranks);
/* The errors alone, for the settings of a model that is not made yet. */
int elastic_check_settings(const struct elastic_settings *settings, const struct model_config *config);
/* Draws `sub` for one microbatch. Its arrays come from `arena` (host memory that must live until
 * the backward pass). */
void elastic_pick(struct submodel *sub, struct arena *arena, const struct elastic_settings *settings,
                  const struct model_config *config, u64 seed, i64 step, const struct batch *batch);

/* True if the full model teaches the sub-model that was drawn for the batch: it has fewer layers or
 * experts, or some sample of the batch a smaller top-k, and the slice's draw, keyed by (step, slice),
 * is below `distill`. Targets of the samples for which it is smaller are then taught. */
bool elastic_is_taught(const struct elastic_settings *settings, const struct submodel *sub,
                       const struct model_config *config, u64 seed, i64 step, const struct batch *batch);

/* ---- The 3 options that select a sub-model: --layers, --experts, --topk ---- */
struct submodel_options {
    const char *layers, *experts, *topk;
}; /* unparsed text; NULL: full */
/* Settings rows for a struct that has a `struct submodel_options member`. */
#define SUBMODEL_ROWS(type, member)                                                                                    \
    SETTING(type, member.layers, "layers", STRING, "", 0, 0, NULL,                                                     \
            "sub-model: layers to keep, e.g. 0,2,4-7; layers with audio heads must stay"),                             \
        SETTING(type, member.experts, "experts", STRING, "", 0, 0, NULL,                                               \
                "sub-model: the N most used experts, a list such as 0,2,5-9, or @FILE.json with one list per layer"),  \
        SETTING(type, member.topk, "topk", STRING, "", 0, 0, NULL, "sub-model: experts per token")
/* Parses the options and checks them against the model. experts: "16" keeps the most used experts
 * by the model's statistics (the first ones without statistics), "0,2,5-9" a list, "@FILE.json" one
 * list per layer. Invalid options are usage errors. Arrays come from `arena`. */
int submodel_parse(struct submodel *sub, struct arena *arena, const struct submodel_options *options,
                   const struct model *model);
/* The kept layers as a list, and the numbers "experts" and "topk". The caller frees the object. */
struct json *submodel_to_json(const struct submodel *sub, const struct model_config *config);

bool elastic_layer_fixed(const struct model_config *config, i64 layer); /* true: never dropped */

/* The config of the sub-model as a model of its own. */
struct model_config submodel_config(const struct submodel *sub, const struct model_config *config);

/* ---- Extraction ----
 * `out` becomes a model of its own with the kept layers and experts. The function compares the
 * logits of the sub-model and of `out` on the same random ids bit for bit; a difference is an
 * error. Returns 0, or -1 with a message and `out` closed. */
int elastic_extract(struct model *out, struct model *from, const struct submodel *sub);
/* The same comparison on any batch, of the logits of every head that it has targets for. Adds these
 * targets to *heads, as bits 1 << kind. A message names the head that differs. */
int elastic_compare(unsigned *heads, struct model *out, struct model *from, const struct submodel *sub,
                    const struct batch *batch);

/* ---- Grid: a family of sub-models, measured by the caller's function ---- */
struct grid_point {
    char name[64];
    struct submodel sub;
    double loss[TARGETS]; /* per target kind; NaN: no such target */
    double loss_all;      /* weighted as in training */
    i64 parameters, active;
    double tokens_per_s;
};
typedef int grid_measure(void *context, struct grid_point *point);
/* Fills the grid: the full model; top-k k/2 and k/4; 3/4 and 1/2 of the experts; 1/8 and 2/8 of the
 * depth dropped; a mild and a strong combination of the 3. Equal points are listed once. Returns
 * the number of points; arrays come from `arena`. */
i64 elastic_grid(struct grid_point *points, i64 most, struct arena *arena, const struct model *model);

#endif
