/* submodels: sub-models of a trained model. They are chosen, named, measured, cut out as models of
 * their own, proved to compute the same, and written for other software. The stages `grid`,
 * `extract` and `export` and their commands share these functions.
 *
 * In: a model directory (`from`), and which sub-model. Out: files in the stage's folder or in a new one.
 * The caller closes what it opens. Functions return 0, or -1 and a message, unless they say otherwise.
 *
 * Where is what:
 *   options.c         reads layers, experts, topk
 *   named.c           names of sub-models, MODEL@NAME
 *   targets.c         the sub-models that fit a target
 *   choice.c          layers and experts by statistics and losses on samples
 *   grid_stage.c      quality and speed (grid_speed.c) of a family, chosen by samples (grid_choice.c)
 *   cut.c             a sub-model as a model of its own; extract_stage.c: the stage
 *   repair.c          a cut model trained on; record.c: records of the stages that made a model
 *   proof.c           logits before and after, on random samples and on the model's shards
 *   export.c          HF and GGUF (model/gguf.c writes the keys), checked by reading them back */
#ifndef WEFT_SUBMODELS_H
#define WEFT_SUBMODELS_H
#include "data/sources/sources.h"
#include "elastic/elastic.h"
#include "submodels/repair.h"
#include "train/heldout.h"

/* ---- Options: --layers, --experts, --topk select a sub-model ---- */
struct submodel_options {
    const char *layers, *experts, *topk;
}; /* unparsed text; NULL: full */
#define SUBMODEL_LAYERS_HELP                                                                                           \
    "sub-model: layers to keep, their number or a list, e.g. 0,2,4-7; layers with audio heads must stay"
#define SUBMODEL_EXPERTS_HELP                                                                                          \
    "sub-model: experts to keep: the N first of the order that nested training fixed, else the N most used; a list "   \
    "such as 0,2,5-9, or @FILE.json with one list per layer"
#define SUBMODEL_TOPK_HELP "sub-model: experts per token (top-k)"
/* Settings rows for a struct that has a `struct submodel_options member`. */
#define SUBMODEL_ROWS(type, member)                                                                                    \
    SETTING(type, member.layers, "layers", STRING, "", 0, 0, NULL, SUBMODEL_LAYERS_HELP),                              \
        SETTING(type, member.experts, "experts", STRING, "", 0, 0, NULL, SUBMODEL_EXPERTS_HELP),                       \
        SETTING(type, member.topk, "topk", STRING, "", 0, 0, NULL, SUBMODEL_TOPK_HELP)
/* Parses the options and checks them against the model. experts: "16" keeps those that
 * model_ranking puts first, "0,2,5-9" a list, "@FILE.json" one list per layer, or those
 * lists themselves, "[[0, 2], [1, 3]]". layers: "6" keeps the first 6 of the order that nested training
 * fixed, else the others are evenly spread; "0,2,4-7" a list.
 * Invalid options are usage errors, and a number of experts where the model has no counts, except on
 * the meta backend. Arrays come from `arena`. */
int submodel_parse(struct submodel *sub, struct arena *arena, const struct submodel_options *options,
                   const struct model *model);
/* The same; a number of experts keeps those with the highest of scores [L, E]. */
int submodel_parse_by(struct submodel *sub, struct arena *arena, const struct submodel_options *options,
                      const struct model *model, const double *scores);
/* The number in `text` if it is one and not a list; 0: it is no number, or there is no text. */
i64 submodel_number(const char *text);
/* Returns a usage error if fewer experts stay than a token chooses. */
int submodel_check(const struct submodel *sub, const struct model_config *config);
/* The kept layers as a list, and the numbers "experts" and "topk". The caller frees the object. */
struct json *submodel_to_json(const struct submodel *sub, const struct model_config *config);

/* heldout_dry_run with the sub-model that the options select. */
int submodel_dry_run(struct model *meta, const struct submodel_options *options, const struct heldout_pass *pass);

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

/* ---- Targets ---- */
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
int submodel_save(const char *directory, struct model *from, const struct submodel *sub);
/* What is left of logits to compare them by: hashes (XXH3) and sizes, 0: no targets. */
struct logits_hash {
    u64 hash[TARGETS][LEVELS_MOST];
    i64 bytes[TARGETS][LEVELS_MOST];
};
void submodel_logits(struct logits_hash *out, struct model *model, const struct submodel *sub,
                     const struct batch *batch);
/* Adds to *heads the targets of these logits, as bits 1 << kind. Returns 0, or -1 and a message that
 * names the head whose logits differ. */
int submodel_logits_equal(unsigned *heads, const struct logits_hash *a, const struct logits_hash *b);
/* The same comparison on any batch, of the logits of every head that it has targets for. */
int submodel_compare(unsigned *heads, struct model *out, struct model *from, const struct submodel *sub,
                     const struct batch *batch);

/* ---- Grid ---- */
/* The stage `grid`: quality and speed of a family of sub-models of one
 * model. For each it measures held-out loss by target kind, number of
 * parameters, and the speed of reading a prompt and of decoding with one request at a time
 * (grid_speed.h). Sub-models with names (elastic.h) follow the fixed ones, as "@NAME". */
enum { GRID_MOST = 32 };
enum grid_choice { GRID_AUTO, GRID_BY_DATA, GRID_BY_USE };
struct grid_settings {
    char *from, *data, *split;
    i64 rows, length, decode_tokens, rounds;
    int choose;                    /* enum grid_choice */
    char *choose_part;             /* "": validation, or train where validation is what is measured or has no samples */
    i64 choose_rows;               /* of each direction */
    struct size_list family;       /* in place of the grid: elastic.h, ELASTIC_SIZE_NAMES */
    struct repair_settings repair; /* of each sub-model before it is measured */
    const char
        *name; /* no setting: the full model and the sub-model of this name alone; NULL: the grid and all names */
};
struct grid_result {
    struct grid_point points[GRID_MOST];              /* their arrays are in `memory` */
    double streams[GRID_MOST][LOSS_STREAMS][TARGETS]; /* each point's losses; NaN: no such targets */
    i64 count;
    i64 repaired;               /* steps by which all but the first were trained on before they were measured */
    char chosen_on[64];         /* the part by which points were chosen; "": by none */
    struct model_config config; /* the full model */
    struct arena memory;
};
extern const struct setting grid_table[];
/* grid_choice.c: the part by which the settings choose; NULL: they choose by use, or no part that may be
 * taken has samples. Returns 0, or -1 and a message. */
int grid_choice_part(const char **part, const struct grid_settings *settings);
/* Fills points and count with the grid, as `extract` with data chooses: layers go one by one, and experts
 * by their ranks in the full model, which are measured once, for the fewest of the grid. Points of fewer
 * layers continue from those of more. Returns 0, -1 and a message, or STAGE_INTERRUPTED. */
int grid_choose(struct grid_result *out, struct model *model, const struct heldout_pass *pass,
                const struct size_list *family);
/* Returns 0, -1 and a message, or STAGE_INTERRUPTED. After 0 the caller calls grid_result_release.
 * A point's loss_all is the weighted sum of the kinds' mean losses, without MTP. */
int grid_measure_all(struct grid_result *out, const struct grid_settings *settings, struct device *device);
void grid_result_release(struct grid_result *result);
struct json *grid_point_json(const struct grid_result *result, i64 point);
/* Two aligned tables, ordered by the speed of decoding: size, losses, and speeds with the quartile
 * range of their ratio; and the losses by stream. */
void grid_print(struct buffer *out, const struct grid_result *result);
int grid_check_settings(const void *settings);                   /* of what a recipe says alone */
int grid_stage(const void *settings, const struct stage *stage); /* $OUT/grid.json */

/* ---- Cut-outs ---- */
/* The stage `extract`: a sub-model as a model of its own. Lists of layers and experts stay as given.
 * Numbers and targets are chosen: by counts over training and fixed orders (elastic.h), or with
 * `data` by what held-out samples show (choice.h). Of the shapes that fit a target the one of least
 * loss on the data is taken. */
struct extract_settings {
    char *from;
    struct submodel_options sub;
    char *data, *split;
    i64 rows, length;
    struct string_list only; /* directions */
    int criterion;           /* enum criterion */
    struct submodel_target target;
    struct repair_settings repair;
};
int extract_check_settings(const void *settings);
bool extract_has_target(const struct extract_settings *settings); /* the shape is known only once it is chosen */
/* Writes a sub-model as a model directory of its own, tokenizers included, into the existing folder
 * `out`. Nothing is written until the logits of the sub-model and of the cut model are found equal,
 * of every head (proof.h).
 * The stage `extract` and `weft extract` share it. Returns 0, -1 and a message, or STAGE_INTERRUPTED. */
int extract_directory(const struct extract_settings *settings, const char *out, struct device *device);
/* Gives the sub-model a name in the model's directory instead (submodel_name_save). */
int extract_name(const struct extract_settings *settings, const char *name, struct device *device);
extern const struct setting extract_table[];
int extract_stage(const void *settings, const struct stage *stage);

/* ---- Exports ---- */
/* Exports the text backbone for other software, then reads the files back and compares them. `out`
 * must not exist. dtype DTYPE_OTHER keeps the stored dtype. options: a sub-model of it; NULL: all. */
int export_hf(const char *model, const struct submodel_options *options, const char *out, enum dtype dtype,
              struct device *device);
int export_gguf(const char *model, const struct submodel_options *options, const char *out, enum dtype dtype,
                struct device *device);

struct export_settings {
    char *from;
    int to, dtype;
};
extern const struct setting export_table[];
enum dtype export_dtype(int choice);                               /* of the setting `dtype` */
int export_stage(const void *settings, const struct stage *stage); /* $OUT/hf or $OUT/model.gguf */

#endif
