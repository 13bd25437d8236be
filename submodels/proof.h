/* Proof that a model written from another computes the same: logits equal bit for bit, of every
 * head, on random samples of every kind and on rows of the shards that the model was trained on. */
#ifndef WEFT_PROOF_H
#define WEFT_PROOF_H
#include "submodels/submodels.h"

/* Shards of the model in `directory`, as the records of its stage and of those before it name them,
 * if they are still there. NULL: none. memory_free */
char *proof_shards(const char *directory);
/* The logits of a sub-model of `from`, the model in `directory`, kept as hashes, so that `from` can be
 * closed before the model written from it is opened. Usage: take, compare, release. */
struct proof_logits {
    struct logits_hash *list; /* one for each batch */
    i64 count;
};
int proof_logits_take(struct proof_logits *out, struct model *from, const struct submodel *sub, const char *directory);
/* The same of a model on the meta backend, for an estimate of its memory. */
int proof_dry_run(struct model *meta, const struct submodel_options *options, const char *directory);
/* Compares those of `out` with them. Says in `on` what was compared. Returns 0, or -1 and a message
 * that names the head. */
int proof_logits_compare(struct buffer *on, struct proof_logits *logits, struct model *out, const char *directory);
/* Writes a sub-model of `from`, the model in `directory`, into an existing folder and opens it from there
 * as `out`, after it has closed `from`: memory holds one of both. Compares their logits and says in `on`
 * on what. Returns 0, or -1 and a message; `from` is closed either way. */
int proof_extract(struct model *out, struct buffer *on, struct model *from, const struct submodel *sub,
                  const char *directory, const char *folder);
void proof_logits_release(struct proof_logits *logits);
/* Fills ids [count] with text of these shards. False if they have none that can be read. */
bool proof_ids(i32 *ids, i64 count, struct model *model, const char *directory);

#endif
