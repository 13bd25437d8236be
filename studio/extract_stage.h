/* The stage `extract`, and what `weft extract` shares with it: a sub-model as a model directory of its own. */
#ifndef WEFT_STUDIO_EXTRACT_STAGE_H
#define WEFT_STUDIO_EXTRACT_STAGE_H
#include "elastic/elastic.h"
#include "train/train.h"

/* Writes into the existing folder `out`, tokenizers included. Nothing is written before the logits were found equal. */
int extract_directory(const char *from, const char *out, const struct submodel_options *options, struct device *device);

struct extract_settings {
    char *from;
    struct submodel_options sub;
};
extern const struct setting extract_table[];
int extract_stage(const void *settings, const struct stage *stage);
#endif
