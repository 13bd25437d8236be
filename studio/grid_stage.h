/* The stage `grid`: what a family of sub-models of one model reaches. Held-out loss by target kind, parameters, and how
 * fast each decodes text, one request at a time. */
#ifndef WEFT_STUDIO_GRID_STAGE_H
#define WEFT_STUDIO_GRID_STAGE_H
#include "train/heldout.h"

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
#endif
