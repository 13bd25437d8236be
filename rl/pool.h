/* The unbiased replay buffer [R 5.1]: prompts are dealt to steps in advance; while the longest answer of a step's
 * prompts is drawn, answers to the prompts of later steps are drawn beside it, and wait. So no step is stalled for
 * long, and none prefers short or easy answers: it trains on exactly its own prompts.
 *
 *     step t     | D_t: drawn to the end | D_t+1: as far as they came | ... N batches
 *     step t+1                           | D_t+1: drawn to the end, by newer weights | D_t+2 | ... */
#ifndef WEFT_RL_POOL_H
#define WEFT_RL_POOL_H
#include "rl/objective.h"
#include "rl/rollout.h"

struct pool {
    const struct prompts *prompts;
    const struct text_tokenizer *tokenizer;
    struct prompt_order order;
    struct cohort **cohorts; /* [count], in the order of their numbers */
    i64 count, per_step, group, batches;
    i64 route_width; /* of the sampler that draws; 0: no routes are kept */
    double *pass;    /* [prompts] pass@k at the start, for hints; -1: not known */
};
void pool_open(struct pool *pool, const struct prompts *prompts, const struct text_tokenizer *tokenizer, i64 per_step,
               i64 group, i64 batches, u64 seed);
void pool_close(struct pool *pool);
/* Adds cohorts until the buffer is full; hints are cut for `step`. */
int pool_fill(struct pool *pool, i64 step, const struct surrogate_settings *settings);
void pool_drop(struct pool *pool); /* the first per_step cohorts: they were trained on */

/* Unfinished work between two steps. A mark says how far it was, going back forgets cohorts that were added
 * and what was drawn since. */
struct pool_mark {
    i64 *values;
    i64 count;
};
void pool_mark(struct pool_mark *mark, const struct pool *pool);
void pool_go_back(struct pool *pool, const struct pool_mark *mark);
void pool_mark_release(struct pool_mark *mark);
int pool_save(const struct pool *pool, const char *path); /* safetensors */
int pool_load(struct pool *pool, const char *path);       /* into a pool just opened */

#endif
