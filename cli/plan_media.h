/* `weft plan` for stages other than backbones: shards, and tokenizers of media. */
#ifndef WEFT_CLI_PLAN_MEDIA_H
#define WEFT_CLI_PLAN_MEDIA_H
#include "cli/stages.h"

enum { PLAN_UNKNOWN = 1 }; /* status with a message: depends on stages that have not run */

/* Replaces the names of recipe stages in lines of data by their folders. Free with memory_free. */
char *plan_resolved(const struct recipe *r, const char *lines);

/* Checkpoints kept, one more while it is written, and the model or tokenizer. */
double plan_disk_bytes(i64 parameters, const struct training_settings *training, enum dtype dtype);

/* Print what a stage will need. Return 0, -1 and a message, or PLAN_UNKNOWN and a message. */
int plan_prepare(const struct recipe *r, const struct recipe_stage *s, bool json);
bool is_media_tokenizer(const struct recipe_stage *s);
int plan_tokenizer(const struct recipe_stage *s, enum dtype dtype, bool gpu, double gflops, bool json);

#endif
