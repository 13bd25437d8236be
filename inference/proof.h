/* Proof that a model written from another computes the same: logits equal bit for bit, of every
 * head, on random samples of every kind and on rows of the shards that the model was trained on. */
#ifndef WEFT_INFERENCE_PROOF_H
#define WEFT_INFERENCE_PROOF_H
#include "elastic/elastic.h"

/* Shards of the model in `directory`, as the records of its stage and of those before it name them,
 * if they are still there. NULL: none. memory_free */
char *proof_shards(const char *directory);
/* Compares `out` with the sub-model of `from`, the model in `directory`. Says in `on` what was
 * compared. Returns 0, or -1 and a message that names the head. */
int proof_heads(struct buffer *on, struct model *out, struct model *from, const struct submodel *sub,
                const char *directory);
/* Fills ids [count] with text of these shards. False if they have none that can be read. */
bool proof_ids(i32 *ids, i64 count, struct model *model, const char *directory);

#endif
