/* Elastic training: one run trains a whole family of sub-models. This folder draws sub-models
 * (pick), measures many of them (grid) and extracts one as a checkpoint of its own (extract);
 * model/ executes them. The arrays of a sub-model belong to the caller's arena; the caller closes
 * an extracted model. [R 3.3, 4]
 *
 * In: settings, a batch, a step. Out: a struct submodel, which model_forward executes.
 *
 * Where is what: pick.c draws the layers, the experts and the top-k of each sample in training;
 * distill.c draws which of them the full model teaches;
 * options.c reads --layers, --experts, --topk; choose.c keeps the best of given ranks, and finds
 * what fits a target; named.c keeps names of sub-models; grid.c lists the sub-models that are measured;
 * extract.c cuts one out and compares its logits. The op route (kernels/cpu/routing/route.c)
 * chooses the experts of a position. */
#ifndef WEFT_ELASTIC_H
#define WEFT_ELASTIC_H
#include "core/settings.h"
#include "model/model.h"

/* ---- Draws ----
 * The 3 axes are independent. Depth and experts are drawn per slice of the global batch, keyed by
 * (step, slice, layer) and (step, slice, layer, expert group); top-k is drawn per sample, keyed by
 * (step, sample). Layers with audio heads, the first and the last layer are never dropped. With
 * depth_groups, a group of layers takes the place of a layer; a group with such a layer is kept. */
struct elastic_settings {
    /* depth_full: probability that all L layers run. Otherwise there are two ways. Without depth_min,
     * each eligible layer is dropped with probability depth_drop. With it, a number n of layers is
     * drawn from [depth_min, L), where n has the weight (n / L)^depth_power; n layers then stay, drawn
     * uniformly from the eligible ones beside the fixed ones. */
    struct schedule depth_full, depth_drop;
    i64 depth_min, depth_groups;
    double depth_power;
    struct schedule experts_full;      /* probability of all experts; otherwise a random subset */
    i64 experts_min, expert_groups;    /* smallest subset (0: half); equal shares from each of the fixed groups */
    struct integer_list experts_sizes; /* sizes of subsets, in place of all from experts_min on */
    /* topk_full: probability of the model's top-k K. Otherwise k is drawn from the other values of
     * [topk_min, topk_max], uniformly. With topk_mean the mean of k is K: with a = K - topk_min and
     * b = topk_max - K, k is below K with probability (b + 1) / (a + b + 2), and uniform on either
     * side of K. */
    struct schedule topk_full;
    i64 topk_min, topk_max; /* topk_max 0: K */
    bool topk_mean;
    int balance; /* enum elastic_balance */
    i64 slice_rows;
    double start; /* share of the steps before which every slice and sample is full */
    /* Online distillation: share of the slices with a smaller sub-model in which the full model
     * teaches it, and the weight of the teacher's distribution in their loss. */
    double distill, distill_weight;
};
/* Which samples move the router's bias.
 *   full   those at full width (all experts) and full top-k
 *   all    every sample. The counts of a subset are compared with equal shares among its experts, so
 *          that an expert that was absent does not count as one that nobody chose
 *   width  every sample, but samples of subsets move a second bias, which subsets use
 *          (config.reduced_bias) */
enum elastic_balance { BALANCE_FULL, BALANCE_ALL, BALANCE_WIDTH };
#define ELASTIC_ROWS(type)                                                                                             \
    SETTING(type, elastic.depth_full, "elastic.depth_full", SCHEDULE, "0.75", 0, 1, NULL,                              \
            "probability that a slice runs all layers"),                                                               \
        SETTING(type, elastic.depth_drop, "elastic.depth_drop", SCHEDULE, "0.25", 0, 1, NULL,                          \
                "otherwise, without depth_min: drop probability of each eligible layer"),                              \
        SETTING(type, elastic.depth_min, "elastic.depth_min", INTEGER, "0", 0, LAYERS_MOST, NULL,                      \
                "otherwise: fewest layers, of a number drawn below all; 0: each layer is drawn with depth_drop"),      \
        SETTING(type, elastic.depth_power, "elastic.depth_power", NUMBER, "0", -64, 64, NULL,                          \
                "weight of n of L layers in that draw: (n/L)^depth_power; 0: uniform"),                                \
        SETTING(type, elastic.depth_groups, "elastic.depth_groups", INTEGER, "0", 0, LAYERS_MOST, NULL,                \
                "equal runs of consecutive layers that are dropped together; 0: each layer alone"),                    \
        SETTING(type, elastic.experts_full, "elastic.experts_full", SCHEDULE, "0.8", 0, 1, NULL,                       \
                "probability that a slice uses all experts"),                                                          \
        SETTING(type, elastic.experts_min, "elastic.experts_min", INTEGER, "0", 0, 65536, NULL,                        \
                "minimum size of a random expert subset; 0: half"),                                                    \
        SETTING(type, elastic.experts_sizes, "elastic.experts_sizes", INTEGERS, "", 1, 65536, NULL,                    \
                "sizes of random expert subsets, drawn uniformly; none: all from experts_min on"),                     \
        SETTING(type, elastic.expert_groups, "elastic.expert_groups", INTEGER, "1", 1, 65536, NULL,                    \
                "expert groups; a subset takes an equal share of each"),                                               \
        SETTING(type, elastic.topk_full, "elastic.topk_full", SCHEDULE, "0.8", 0, 1, NULL,                             \
                "probability that a sample uses the full top-k"),                                                      \
        SETTING(type, elastic.topk_min, "elastic.topk_min", INTEGER, "1", 1, 1024, NULL, "minimum random top-k"),      \
        SETTING(type, elastic.topk_max, "elastic.topk_max", INTEGER, "0", 0, 1024, NULL,                               \
                "maximum random top-k, which may exceed model.topk; 0: model.topk"),                                   \
        SETTING(type, elastic.topk_mean, "elastic.topk_mean", BOOL, "false", 0, 0, NULL,                               \
                "weight random top-k below and above model.topk so that their mean is model.topk"),                    \
        SETTING(                                                                                                       \
            type, elastic.balance, "balance", CHOICE, "full", 0, 0, "full|all|width",                                  \
            "what moves the router's bias: passes at full width and top-k, or all; width: a second bias for subsets"), \
        SETTING(type, elastic.slice_rows, "elastic.slice_rows", INTEGER, "4", 1, 1e6, NULL,                            \
                "consecutive rows of the global batch per slice"),                                                     \
        SETTING(type, elastic.start, "elastic.start", NUMBER, "0.875", 0, 1, NULL,                                     \
                "share of the steps before which nothing is drawn, below 1"),                                          \
        SETTING(type, elastic.distill, "elastic.distill", NUMBER, "0", 0, 1, NULL,                                     \
                "share of the slices with a smaller sub-model in which the full model teaches it, at the cost of its " \
                "forward"),                                                                                            \
        SETTING(type, elastic.distill_weight, "elastic.distill_weight", NUMBER, "0.5", 0, 1, NULL,                     \
                "there: weight of the cross entropy against the full model's predictions; the rest is that of the "    \
                "targets")

/* Returns a usage error if groups do not divide the model's layers or experts, or if the bounds of an
 * axis exclude each other or leave nothing to draw. Logs a line for each axis of which the model has only one
 * choice, and warns if expert-parallel ranks may get unequal shares. */
int elastic_check(const struct elastic_settings *settings, const struct model_config *config, i64 expert_ranks);
/* The errors alone, for the settings of a model that is not made yet. */
int elastic_check_settings(const struct elastic_settings *settings, const struct model_config *config);
/* The largest top-k of any sample. */
i64 elastic_largest_topk(const struct elastic_settings *settings, const struct model_config *config);
/* Draws `sub` for one microbatch of step `step` of `steps`. Its arrays come from `arena` (host memory
 * that must live until the backward pass). */
void elastic_pick(struct submodel *sub, struct arena *arena, const struct elastic_settings *settings,
                  const struct model_config *config, u64 seed, i64 step, i64 steps, const struct batch *batch);

/* Adds to `expected` [L, E] the assignments that each expert would get of the batch if the router chose
 * among the sub-model's experts alike. */
void elastic_expect(double *expected, const struct submodel *sub, const struct model_config *config,
                    const struct batch *batch);

/* True if the full model teaches the sub-model that was drawn for the batch. Two things must hold: the
 * sub-model has fewer layers or experts, or a sample of the batch a smaller top-k; and the slice's draw,
 * keyed by (step, slice), is below `distill`. Only samples that run less than the full model are taught. */
bool elastic_is_taught(const struct elastic_settings *settings, const struct submodel *sub,
                       const struct model_config *config, u64 seed, i64 step, const struct batch *batch);

/* ---- The 3 options that select a sub-model: --layers, --experts, --topk ---- */
struct submodel_options {
    const char *layers, *experts, *topk;
}; /* unparsed text; NULL: full */
/* Settings rows for a struct that has a `struct submodel_options member`. */
#define SUBMODEL_ROWS(type, member)                                                                                    \
    SETTING(type, member.layers, "layers", STRING, "", 0, 0, NULL,                                                     \
            "sub-model: layers to keep, e.g. 0,2,4-7, or their number; layers with audio heads must stay"),            \
        SETTING(type, member.experts, "experts", STRING, "", 0, 0, NULL,                                               \
                "sub-model: the N most used experts, a list such as 0,2,5-9, or @FILE.json with one list per layer"),  \
        SETTING(type, member.topk, "topk", STRING, "", 0, 0, NULL, "sub-model: experts per token")
/* Parses the options and checks them against the model. experts: "16" keeps the most used experts
 * by the model's counts over training, "0,2,5-9" a list, "@FILE.json" one list per layer, or those
 * lists themselves, "[[0, 2], [1, 3]]". layers: "6" keeps 6, the others evenly spread; "0,2,4-7" a list.
 * Invalid options are usage errors, and a number of experts where the model has no counts, except on
 * the meta backend. Arrays come from `arena`. */
int submodel_parse(struct submodel *sub, struct arena *arena, const struct submodel_options *options,
                   const struct model *model);
/* The same; a number of experts keeps those with the highest of scores [L, E]. */
int submodel_parse_by(struct submodel *sub, struct arena *arena, const struct submodel_options *options,
                      const struct model *model, const double *scores);
/* The number in `text` if it is one and not a list; 0: it is no number, or there is no text. */
i64 submodel_number(const char *text);
/* Keeps the `count` experts of each layer with the highest of scores [L, E]; ties to the smaller id. */
void submodel_keep_experts(struct submodel *sub, struct arena *arena, const struct model_config *config,
                           const double *scores, i64 count);
/* Keeps `count` layers: the others are evenly spread among those that may be dropped. */
void submodel_spread_layers(struct submodel *sub, const struct model_config *config, i64 count);
i64 submodel_least_layers(const struct model_config *config); /* layers that are never dropped */
/* Returns a usage error if fewer experts stay than a token chooses. */
int submodel_check(const struct submodel *sub, const struct model_config *config);
/* True if the model counts how often its experts are chosen, as those trained here do. */
bool model_has_use(const struct model *model);

/* The kept layers as a list, and the numbers "experts" and "topk". The caller frees the object. */
struct json *submodel_to_json(const struct submodel *sub, const struct model_config *config);

bool elastic_layer_fixed(const struct model_config *config, i64 layer); /* true: never dropped */

/* The config of the sub-model as a model of its own. */
struct model_config submodel_config(const struct submodel *sub, const struct model_config *config);

/* ---- Named sub-models ----
 * MODEL/weft/submodels.json: {"NAME": {"layers": [0, 2, ...], "experts": [[0, 3, ...], ...] or null,
 * "topk": 2}, ...}, with one list of experts for each layer of the model, empty for dense layers. */
struct submodel_name {
    char *directory; /* of the model */
    char *layers, *experts, *topk;
    struct submodel_options options; /* that select it; those given if the text names none */
};
/* MODEL, or MODEL@NAME where no file of that whole name exists. Reads and checks the sub-model. It is
 * a usage error if `given` selects one as well. After 0 the caller calls submodel_name_release. */
int submodel_name_open(struct submodel_name *out, const char *text, const struct submodel_options *given);
int submodel_name_load(struct submodel_name *out, const char *directory, const char *name);
void submodel_name_release(struct submodel_name *name);
/* Adds a name. One that exists is refused. */
int submodel_name_save(const char *directory, const char *name, const struct submodel *sub,
                       const struct model_config *config);
struct json *submodel_names(const char *directory); /* the file's object; empty without it; json_free */

/* ---- Sizes and targets ---- */
/* parameters: that training moves; bytes: of all weights in the dtype of the loaded model, as an
 * extracted model stores them. */
struct submodel_size {
    i64 active, parameters, bytes;
};
struct submodel_size submodel_size(const struct submodel *sub, const struct model *model);
struct submodel_target {       /* upper bounds; 0: none */
    double active, parameters; /* shares of the full model's */
    i64 bytes;
};
bool submodel_fits(const struct submodel_size *size, const struct submodel_size *full,
                   const struct submodel_target *target);
struct submodel_shape {
    i64 layers, experts, topk;
};
/* Shapes between `least` and `top` that fit and that no larger one makes needless: every number of
 * layers, experts in eighths, and the largest k. Returns their number, at most `most`. */
i64 submodel_shapes(struct submodel_shape *shapes, i64 most, const struct model *model,
                    const struct submodel_shape *least, const struct submodel_shape *top,
                    const struct submodel_target *target);
/* The shape by a fixed order, for a choice without data: k goes down first, then layers, then
 * experts, as the report's tables 9 to 11 name the axes: first to a quarter of k, 3/4 of the layers
 * and half of the experts, then as far as `least`. False if it does not fit even then. */
bool submodel_shape_in_order(struct submodel_shape *shape, const struct model *model,
                             const struct submodel_shape *least, const struct submodel_shape *top,
                             const struct submodel_target *target);
/* Appends what was asked for beside what the sub-model has, and why it has less: "active parameters:
 * asked for at most 0.500, got 0.437: one more layer would make it 0.520". top: the most of each axis
 * that the options leave; by_data: held-out losses chose among the shapes. Nothing without a target. */
void submodel_target_print(struct buffer *out, const struct submodel *sub, const struct model *model,
                           const struct submodel_shape *top, const struct submodel_target *target, bool by_data);

/* ---- Extraction ----
 * Writes a model of its own with the kept layers and experts into an existing folder, piece by piece, so
 * memory holds `from` alone. Compares nothing. Returns 0, or -1 and a message. */
int elastic_save(const char *directory, struct model *from, const struct submodel *sub);
/* What is left of logits to compare them by: hashes (XXH3) and sizes, 0: no targets. */
struct logits_hash {
    u64 hash[TARGETS][LEVELS_MOST];
    i64 bytes[TARGETS][LEVELS_MOST];
};
void elastic_logits(struct logits_hash *out, struct model *model, const struct submodel *sub,
                    const struct batch *batch);
/* Adds to *heads the targets of these logits, as bits 1 << kind. Returns 0, or -1 and a message that
 * names the head whose logits differ. */
int elastic_logits_equal(unsigned *heads, const struct logits_hash *a, const struct logits_hash *b);
/* The same comparison on any batch, of the logits of every head that it has targets for. */
int elastic_compare(unsigned *heads, struct model *out, struct model *from, const struct submodel *sub,
                    const struct batch *batch);

/* ---- Grid: a family of sub-models, measured by the caller's function ---- */
struct grid_speed { /* positions per second, and over the full model's in the same round; quartiles of the rounds */
    double per_s, low, high;
    double ratio, ratio_low, ratio_high;
};
struct grid_point {
    char name[64];
    struct submodel sub;
    double loss[TARGETS];          /* per target kind; NaN: no such target */
    double loss_all;               /* weighted as in training */
    i64 parameters, active, bytes; /* submodel_size */
    double tokens_per_s;           /* decode.per_s */
    struct grid_speed decode, prefill;
};
void grid_point_set_size(struct grid_point *point, const struct model *model);
/* Fills the grid: the full model; top-k k/2, k/4 and k/8; 3/4 and 1/2 of the experts; 1/8 and 2/8 of
 * the depth dropped; a mild and a strong combination of the 3. Equal points are listed once, and
 * those with fewer experts only if the model has counts of use. Returns the number of points; arrays
 * come from `arena`. */
i64 elastic_grid(struct grid_point *points, i64 most, struct arena *arena, const struct model *model);

#endif
