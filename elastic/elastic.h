/* Elastic training: one run trains a whole family of sub-models. This folder draws them and lists the
 * family; model/ executes them, submodels/ names, measures and cuts them. The arrays of a sub-model
 * belong to the caller's arena. [R 3.3, 4]
 *
 * In: settings, a batch, a step. Out: a struct submodel, which model_forward executes.
 *
 * Where is what: pick.c draws the layers, the experts and the top-k of each sample in training, and
 * which of them the full model teaches (`teach` in train/step.c teaches); sizes.c draws one of given
 * sizes, and orders experts by expert_sums.c, sums over what they do on samples; check.c refuses
 * settings; family.c keeps the best of given ranks, and lists the sub-models that are measured. The op route
 * (kernels/cpu/routing/route.c) chooses the experts of a position. */
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
    /* Sizes {layers, experts, topk}; 0: the model's. With them the axes are not drawn one by one: a
     * reduced slice runs one of the sizes, and each in its turn. Without `passes`, `share` of the slices
     * are reduced. With it every slice runs the full model, and then that many sizes on the same rows,
     * whose losses count pass_weight times. smallest: the first of them is the smallest size. */
    struct size_list family;
    struct schedule share;
    i64 passes;
    double pass_weight;
    bool smallest;
    /* Reduced slices keep the first experts and layers of one order (model->order), which training fixes
     * at `start`: what is cut out later is what was trained. */
    bool nested;
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
#define ELASTIC_SIZE_NAMES "layers|experts|topk"
enum { SIZE_LAYERS, SIZE_EXPERTS, SIZE_TOPK, SIZE_NAMES };
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
        SETTING(type, elastic.family, "elastic.family", SIZES, "", 1, 65536, ELASTIC_SIZE_NAMES,                       \
                "sizes of which reduced slices run one each, in place of separate draws of each axis; what a size "    \
                "does not name is the model's"),                                                                       \
        SETTING(type, elastic.share, "elastic.share", SCHEDULE, "0.4", 0, 1, NULL,                                     \
                "with a family and without passes: probability that a slice runs one of its sizes"),                   \
        SETTING(type, elastic.passes, "elastic.passes", INTEGER, "0", 0, 64, NULL,                                     \
                "with a family: how many sizes each slice runs beside the full model"),                                \
        SETTING(type, elastic.pass_weight, "elastic.pass_weight", NUMBER, "0.3", 0, 64, NULL,                          \
                "weight of the loss of each of them; the full model's is 1"),                                          \
        SETTING(type, elastic.smallest, "elastic.smallest", BOOL, "false", 0, 0, NULL,                                 \
                "the first of them is the smallest size"),                                                             \
        SETTING(type, elastic.nested, "elastic.nested", BOOL, "false", 0, 0, NULL,                                     \
                "reduced slices keep the first experts and layers of one order, which is fixed at elastic.start by "   \
                "what the data needs"),                                                                                \
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
/* Passes over each microbatch of step `step` of `steps`: 1, and those of elastic.passes. */
i64 elastic_pass_count(const struct elastic_settings *settings, i64 step, i64 steps);
/* Flops of a run of `steps` steps over those of one without elastic.passes. */
double elastic_passes_cost(const struct elastic_settings *settings, const struct model_config *config, i64 steps);
/* The weight of a pass's loss. */
double elastic_pass_weight(const struct elastic_settings *settings, i64 pass);
/* Where in a run a draw is. */
struct elastic_draw {
    const struct elastic_settings *settings;
    const struct model_config *config;
    const double *order; /* model->order, which nested draws need from elastic.start on; NULL: none */
    u64 seed;
    i64 step, steps, pass;
};
/* Draws `sub` for a pass over one microbatch. Its arrays come from `arena` (host memory that must live
 * until the backward pass). */
void elastic_pick(struct submodel *sub, struct arena *arena, const struct elastic_draw *draw,
                  const struct batch *batch);
/* True if the draw is nested and the model has no order yet. */
bool elastic_needs_order(const struct elastic_draw *draw);
/* Ranks the experts of each layer, and of each expert group, by scores [L, E]: the first gets E, the next
 * one less; ties to the smaller id. `order` may be `scores`. */
void elastic_order(double *order, const double *scores, const struct elastic_settings *settings,
                   const struct model_config *config);

/* Adds to `expected` [L, E] the assignments that each expert would get of the batch if the router chose
 * among the sub-model's experts alike. */
void elastic_expect(double *expected, const struct submodel *sub, const struct model_config *config,
                    const struct batch *batch);

/* True if the full model teaches the sub-model that was drawn for the batch. Two things must hold: the
 * sub-model has fewer layers or experts, or a sample of the batch a smaller top-k; and the slice's draw,
 * keyed by (step, slice), is below `distill`. Only samples that run less than the full model are taught. */
bool elastic_is_taught(const struct elastic_settings *settings, const struct submodel *sub,
                       const struct model_config *config, u64 seed, i64 step, const struct batch *batch);

/* ---- The family ---- */
bool elastic_layer_fixed(const struct model_config *config, i64 layer); /* true: never dropped */
/* Keeps the `count` experts of each layer with the highest of scores [L, E]; ties to the smaller id. */
void submodel_keep_experts(struct submodel *sub, struct arena *arena, const struct model_config *config,
                           const double *scores, i64 count);
/* Keeps `count` layers, of those that may be dropped the ones of the highest places [L]; ties to the
 * earlier layer. places NULL: the others are evenly spread. */
void submodel_keep_layers(struct submodel *sub, const struct model_config *config, const double *places, i64 count);
i64 submodel_least_layers(const struct model_config *config); /* layers that are never dropped */
/* True if the model ranks its experts: an order, or counts of their use, as those trained here have. */
bool model_has_use(const struct model *model);

/* parameters: that training moves; bytes: of all weights in the dtype of the loaded model, as an
 * extracted model stores them. */
struct submodel_size {
    i64 active, parameters, bytes;
};
struct submodel_size submodel_size(const struct submodel *sub, const struct model *model);
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
    double cost;                   /* flops of a position of text in training, over the full model's */
    double tokens_per_s;           /* decode.per_s */
    struct grid_speed decode, prefill;
    /* How the layers and experts that stay were chosen: "use" (the most used experts, and layers evenly
     * spread), "order" (the first of the order that training fixed, and layers likewise), "spread"
     * (layers alone), "data" (by samples), "name" (listed under a name); NULL: all stay */
    const char *chosen;
};
void grid_point_set_size(struct grid_point *point, const struct model *model);
/* The grid: the full model; top-k k/2, k/4 and k/8; 3/4 and 1/2 of the experts; 1/8 and 2/8 of the
 * depth dropped; a mild and a strong combination of the 3. Equal ones are listed once. Returns their
 * number; the first is the full model. */
enum { GRID_SHAPES = 24 };
struct grid_shape {
    char name[64];
    i64 layers, experts, topk;
};
/* family: sizes (ELASTIC_SIZE_NAMES) that take the place of the grid behind the full model, named like
 * "12 layers, 32 experts, top-4"; NULL or empty: the grid. */
i64 elastic_grid_shapes(struct grid_shape *shapes, const struct model_config *config, const struct size_list *family);
/* Refuses sizes that no sub-model has, and too many for a grid. key: of the setting, for messages. groups:
 * their experts must be a multiple of it. Returns 0, or -1 and a message. */
int elastic_check_sizes(const char *key, const struct size_list *family, i64 groups, const struct model_config *config);
/* Fills a point: `layers` has those that stay and all experts; of these the ones with the highest of
 * scores [L, E] stay (unused if all do). */
void grid_point_set(struct grid_point *point, struct arena *arena, const struct model *model,
                    const struct grid_shape *shape, const struct submodel *layers, const double *scores);
/* Fills the grid with the experts that were used most, and layers evenly spread. Without counts of use
 * there are no points with fewer experts. Returns the number of points, at most `most`; arrays come
 * from `arena`. */
i64 elastic_grid(struct grid_point *points, i64 most, struct arena *arena, const struct model *model,
                 const struct size_list *family);

#endif
