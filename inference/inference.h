/* studio: what is made of a trained model. The door to the folder: its stages, and what the command line shares with
 * them. Prompts and answers of any modality: preview.h. Counts of experts' use: routing.h. */
#ifndef WEFT_STUDIO_H
#define WEFT_STUDIO_H
#include "data/sources/sources.h"
#include "train/heldout.h"

/* ---- Samples ---- */
/* The stage `generate`: pictures, clips and speech from captions, words from pictures, clips and speech; for training
 * and held-out captions, with how often what was made is nearer to its own original than to another's.
 *
 * pair: share of (own, other) pairs in which the original of the same caption is nearer, chance 0.5; first: it is the
 * nearest of all. Of what is said of media: how often word for word, and the share of words right, see words_right.h.
 * Pictures by pixels, clips by frames (squared difference), speech by log-mel, the shorter padded with
 * silence. */
struct samples_settings {
    char *from, *data;
    i64 pictures, clips, sounds, show, texts;
    double temperature, sound_temperature, top_p, guidance;
    double validation, test; /* drawn where data names no parts */
    struct source_columns columns;
    struct string_list prompts;
};
extern const struct setting samples_table[];
int samples_stage(const void *settings, const struct stage *stage); /* $OUT/samples.json and the media it names */

/* ---- Routing ---- */
/* The stage `routing`: who uses which expert. */
struct routing_settings {
    char *from, *data, *part;
    i64 rows, length, trace;
    struct submodel_options sub;
};
extern const struct setting routing_table[];
/* Measures and writes into the existing folder `out`: routing.json, use.csv, overlap.csv, entropy.csv, pictures as SVG
 * and PNG, routing.html; trace.jsonl with the choices at the first `trace` positions. 0, -1 or STAGE_INTERRUPTED. */
int routing_measure(const struct routing_settings *settings, const char *out, struct device *device);
int routing_stage(const void *settings, const struct stage *stage);

/* ---- Grid ---- */
/* The stage `grid`: what a family of sub-models of one model reaches. Held-out loss by target kind, parameters, and how
 * fast each decodes text, one request at a time. */
enum { GRID_MOST = 16 };
struct grid_settings {
    char *from, *data, *part;
    i64 rows, length, decode_tokens;
};
struct grid_result {
    struct grid_point points[GRID_MOST]; /* their sub-models' arrays are the result's */
    i64 count;
    struct model_config config; /* of the full model */
    struct arena memory;
};
extern const struct setting grid_table[];
/* 0, -1 or STAGE_INTERRUPTED; after 0 the caller releases. loss_all: the sum of the kinds' means, without MTP. */
int grid_measure_all(struct grid_result *out, const struct grid_settings *settings, struct device *device);
void grid_result_release(struct grid_result *result);
struct json *grid_point_json(const struct grid_point *point, const struct model_config *config);
void grid_print(struct text *out, const struct grid_result *result); /* an aligned table */
int grid_stage(const void *settings, const struct stage *stage);     /* $OUT/grid.json */

/* ---- Cut-outs ---- */
/* The stage `extract`, and what `weft extract` shares with it: a sub-model as a model directory of its own.
 * Writes into the existing folder `out`, tokenizers included. Nothing is written before the logits were found equal. */
int extract_directory(const char *from, const char *out, const struct submodel_options *options, struct device *device);

struct extract_settings {
    char *from;
    struct submodel_options sub;
};
extern const struct setting extract_table[];
int extract_stage(const void *settings, const struct stage *stage);

/* ---- Exports ---- */
/* The text backbone for other software. What was written is read again and compared before it is called done.
 * dtype DTYPE_OTHER: as stored. out must not exist. */
int export_hf(const char *model, const char *out, enum dtype dtype, struct device *device);
int export_gguf(const char *model, const char *out, enum dtype dtype, struct device *device);

struct export_settings {
    char *from;
    int to, dtype;
};
extern const struct setting export_table[];
int export_stage(const void *settings, const struct stage *stage); /* $OUT/hf or $OUT/model.gguf */

#endif
