/* routing: expert usage of an MoE model, by stream and layer over held-out samples
 * (train/routing_counts.h), as files and figures (ERNIE 5.0 report 6.4.1, figures 8 to 10). The stage
 * `routing` and `weft routing`.
 *
 * In: a model directory and shards. Out: files in an existing folder.
 *
 * Where is what: routing.c measures; routing_files.c writes JSON and CSV; report/routing.c draws the figures
 * and their page. */
#ifndef WEFT_ROUTING_H
#define WEFT_ROUTING_H
#include "submodels/submodels.h"
#include "train/routing_counts.h"

/* The stage `routing`: expert usage of each stream, over shards. */
struct routing_settings {
    char *from, *data, *split;
    i64 rows, length, trace;
    struct submodel_options sub;
};
extern const struct setting routing_table[];
/* Measures and writes into the existing folder `out`: routing.json, use.csv, overlap.csv,
 * entropy.csv, figures as SVG, and routing.html; with `trace` > 0 also trace.jsonl, the
 * experts chosen at the first `trace` positions. Returns 0, -1 and a message, or
 * STAGE_INTERRUPTED. */
int routing_measure(const struct routing_settings *settings, const char *out, struct device *device);
int routing_check_settings(const void *settings); /* of what a recipe says alone */
int routing_stage(const void *settings, const struct stage *stage);

/* Output of routing_measure as JSON and CSV (routing_files.c). The caller frees routing_json with
 * json_free. */
struct json *routing_json(const struct routing_counts *counts);
int routing_save_tables(const struct routing_counts *counts, const char *directory);

#endif
