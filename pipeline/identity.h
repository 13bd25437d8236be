/* The identity of a stage: its kind, seed, precision, settings and inputs. A finished stage whose
 * identity is that of the recipe is not run again. */
#ifndef WEFT_PIPELINE_IDENTITY_H
#define WEFT_PIPELINE_IDENTITY_H
#include "core/json.h"
#include "pipeline/pipeline.h"

void identity_hash(char out[20], const struct json *identity);
/* Appends the differences between a stored identity and the present one; nothing if they match. run:
 * folder of the run. */
void identity_compare(struct buffer *out, const struct json *was, const struct json *now, const struct recipe_stage *s,
                      const char *run);
/* An identity without what depends on where the run and its inputs are: checkpoints carry it, whose
 * bytes are the same everywhere. */
struct json *identity_maker(const struct json *identity);
/* What a run of a stage is recognized by wherever it is: {"recipe", "seed", "inputs"}, a digest each. */
struct json *identity_digests(const struct json *identity);
/* True if an input has a digest of names and sizes only, from an older version. */
bool identity_has_old_digest(const struct json *was, const struct json *now);
/* Appends the paths at which two JSON values differ. where: of `a`, for the message; NULL: it was before. */
void json_differences(struct buffer *out, const struct json *a, const struct json *b, const char *path,
                      const char *where);

#endif
