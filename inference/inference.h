/* inference: everything done with a trained model. This is the folder's main header: it declares
 * the stages `generate`, `routing`, `grid`, `extract` and `export`, and the functions that the
 * command line shares with them. Input is a model directory (`from`); output are files in the
 * stage's folder. Prompts and answers of any modality are in generator.h, counts of expert use in
 * routing.h. Functions return 0, or -1 and a message, unless they say otherwise.
 *
 * Where is what:
 *   generator.c          a model with its tokenizers: prompts from files, answers to text and media
 *   samples.c            the stage generate; nearness.c: scores of its media
 *   descriptions.c       texts for media; caption_accuracy.c, caption_baseline.c: their scores
 *   routing.c            the stage routing, on train/routing_counts.h: routing_files.c,
 *                        routing_pictures.c; canvas.c: SVG and pixels
 *   choice.c             layers and experts by statistics and losses on samples
 *   grid_stage.c         quality and speed (grid_speed.h) of sub-models; extract_stage.c: one of
 *                        them as a model
 *   proof.c              logits before and after, on random samples and on the model's shards
 *   export.c             HF and GGUF (model/gguf.c writes the keys), checked by reading them back
 *   samples_estimate.c   memory of the stage generate before it begins; generator_dry_run.c: its parts
 * The caller closes what it opens; a generator owns its model and its tokenizers.
 * model/draw.c and the op `sample` draw ids from logits. */
#ifndef WEFT_INFERENCE_H
#define WEFT_INFERENCE_H
#include "data/sources/sources.h"
#include "train/heldout.h"

/* ---- Samples ---- */
/* The stage `generate`: pictures, clips and speech from captions, and text from pictures, clips and
 * speech, for captions of the parts train, validation and test.
 *
 * Retrieval scores of generated media: `pair` is the share of pairs (own, other) in which the
 * original of the same caption is nearer than another's, 0.5 at chance; `first` counts media whose
 * own original is the nearest of all. Distances: mean squared difference of pixels for pictures, of
 * all frames for clips, of log-mel spectra for speech, the shorter padded with silence. Scores of
 * generated text: exact matches, and the share of words right (caption_accuracy.h), as a whole and
 * by classes of words. Scores have 95 % intervals over media and stand beside those of answers that
 * need no model (nearness.c, caption_baseline.h). */
struct samples_settings {
    char *from, *data;
    i64 pictures, clips, sounds, show, texts;
    double train_share, temperature, sound_temperature, top_p, guidance;
    double validation, test; /* shares, drawn where data has no split */
    struct source_columns columns;
    struct string_list parts, prompts;
};
extern const struct setting samples_table[];
int samples_check_settings(const void *settings);                   /* of what a recipe says alone */
int samples_stage(const void *settings, const struct stage *stage); /* $OUT/samples.json and the media it names */

/* ---- Routing ---- */
/* The stage `routing`: expert usage of each stream, over shards. */
struct routing_settings {
    char *from, *data, *split;
    i64 rows, length, trace;
    struct submodel_options sub;
};
extern const struct setting routing_table[];
/* Measures and writes into the existing folder `out`: routing.json, use.csv, overlap.csv,
 * entropy.csv, figures as SVG and PNG, and routing.html; with `trace` > 0 also trace.jsonl, the
 * experts chosen at the first `trace` positions. Returns 0, -1 and a message, or
 * STAGE_INTERRUPTED. */
int routing_measure(const struct routing_settings *settings, const char *out, struct device *device);
int routing_check_settings(const void *settings); /* of what a recipe says alone */
int routing_stage(const void *settings, const struct stage *stage);

/* ---- Grid ---- */
/* The stage `grid`: quality and speed of a family of sub-models of one
 * model. For each it measures held-out loss by target kind, number of
 * parameters, and the speed of reading a prompt and of decoding with one request at a time
 * (grid_speed.h). Sub-models with names (elastic.h) follow the fixed ones, as "@NAME". */
enum { GRID_MOST = 32 };
struct grid_settings {
    char *from, *data, *split;
    i64 rows, length, decode_tokens, rounds;
    const char
        *name; /* no setting: the full model and the sub-model of this name alone; NULL: the grid and all names */
};
struct grid_result {
    struct grid_point points[GRID_MOST];              /* their arrays are in `memory` */
    double streams[GRID_MOST][LOSS_STREAMS][TARGETS]; /* each point's losses; NaN: no such targets */
    i64 count;
    struct model_config config; /* the full model */
    struct arena memory;
};
extern const struct setting grid_table[];
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
