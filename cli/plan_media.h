/* The parts of `weft plan` that know no backbone. */
#ifndef WEFT_CLI_PLAN_MEDIA_H
#define WEFT_CLI_PLAN_MEDIA_H
#include "cli/stages.h"

enum { PLAN_UNKNOWN = 1 }; /* a status, with a message: known once the stages before it have run */

/* Lines of data with the folders that stages of the recipe make in the place of their names: memory_free. */
char *plan_resolved(const struct recipe *r, const char *lines);

/* Each prints what its stage will need: 0, -1 with a message, or PLAN_UNKNOWN with one. */
int plan_prepare(const struct recipe *r, const struct recipe_stage *s, bool json);
bool is_media_tokenizer(const struct recipe_stage *s);
int plan_tokenizer(const struct recipe_stage *s, enum dtype dtype, bool gpu, double gflops, bool json);

#endif
