/* The unbiased replay buffer [R 5.1]. Prompts are assigned to steps in advance. While the longest
 * answers of a step's prompts D_t are being sampled, free decode slots sample answers to prompts of
 * later steps, which are kept in the buffer. Long answers thus do not stall a step, and no step
 * prefers short or easy answers, since it trains on exactly its own prompts.
 *
 *     step t     | D_t: to the end | D_t+1: as far as they come | ... `batches` of them
 *     step t+1                     | D_t+1: to the end, by newer weights | D_t+2 | ... */
#ifndef WEFT_RL_POOL_H
#define WEFT_RL_POOL_H
#include "rl/objective.h"
#include "rl/rollout.h"

struct pool {
    const struct prompts *prompts;
    const struct text_tokenizer *tokenizer;
    struct prompt_order order;
    struct cohort **cohorts; /* [count], ordered by number */
    i64 count, per_step, group, batches;
    i64 route_width; /* the sampler's; 0: no routes are kept */
    double *pass;    /* [prompts] pass@k of the initial model, for hints; -1: unknown */
};
void pool_open(struct pool *pool, const struct prompts *prompts, const struct text_tokenizer *tokenizer, i64 per_step,
               i64 group, i64 batches, u64 seed);
void pool_close(struct pool *pool);
/* Adds cohorts until the buffer holds per_step * batches. Hints are cut to their length at `step`.
 * 0, or -1 and a message. */
int pool_fill(struct pool *pool, i64 step, const struct surrogate_settings *settings);
void pool_drop(struct pool *pool); /* frees the first per_step cohorts, after training on them */

/* A mark records the progress of unfinished rollouts between two steps. pool_go_back drops cohorts
 * and ids that were added after the mark. */
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
