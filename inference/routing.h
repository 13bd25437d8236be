/* Expert usage of an MoE model: counts by stream and layer over held-out samples
 * (train/routing_counts.h), as files and figures (ERNIE 5.0 report 6.4.1, figures 8 to 10). */
#ifndef WEFT_INFERENCE_ROUTING_H
#define WEFT_INFERENCE_ROUTING_H
#include "inference/inference.h"
#include "train/routing_counts.h"

/* Output of routing_measure: JSON and CSV (routing_files.c), SVG and PNG figures and routing.html
 * (routing_pictures.c). The caller frees routing_json with json_free. */
struct json *routing_json(const struct routing_counts *counts);
int routing_save_tables(const struct routing_counts *counts, const char *directory);
int routing_save_pictures(const struct routing_counts *counts, const char *directory);

#endif
