/* The unbiased replay buffer [R 5.1]. Prompts are assigned to steps in advance. While the longest
 * answers of a step's prompts D_t are being sampled, free decode slots sample answers to prompts of
 * later steps, which are kept in the buffer. Long answers thus do not stall a step, and no step
 * prefers short or easy answers, since it trains on exactly its own prompts.
 *
 *     step t     | D_t: to the end | D_t+1: as far as they come | ... `batches` of them
 *     step t+1                     | D_t+1: to the end, by newer weights | D_t+2 | ...
 *
 * replay_buffer_choose_done is for comparison with steps that train on whatever comes first (APRIL, arXiv
 * 2509.18521): the others wait in the buffer. */
#ifndef WEFT_RL_REPLAY_BUFFER_H
#define WEFT_RL_REPLAY_BUFFER_H
#include "rl/objective.h"
#include "rl/prompt_sets.h"
#include "rl/rollout.h"

struct replay_buffer {
    const struct prompts *prompts;
    const struct text_tokenizer *tokenizer;
    struct prompt_mix mix;
    struct rollout_group **rollout_groups; /* [count], ordered by number */
    i64 count, per_step, group, batches;
    const struct generator *media; /* tokenizers of prompts with media; NULL: text alone */
    i64 route_width;               /* the sampler's; 0: no routes are kept */
    /* [prompts] pass@k without a hint, of the initial model or as measured since; -1: unknown */
    double *pass;
    i64 recheck;            /* every so many times that a prompt with a hint comes it has none; 0: never */
    i64 redraw;             /* times that a group may be drawn again */
    struct replaced_group { /* groups of this step that were drawn again, as they were before */
        struct rollout_group *group;
        i64 index;
    } * replaced;
    i64 replaced_count;
};
void replay_buffer_open(struct replay_buffer *buffer, const struct prompts *prompts,
                        const struct text_tokenizer *tokenizer, i64 per_step, i64 group, i64 batches, u64 seed);
void replay_buffer_close(struct replay_buffer *buffer);
/* Adds rollout groups until the buffer holds per_step * batches. Hints are cut to their length at
 * `step`. Call in each step, once. 0, or -1 and a message. */
int replay_buffer_fill(struct replay_buffer *buffer, i64 step, const struct policy_loss_settings *settings);
/* Moves the groups that are done to the front, those of lower numbers first. */
void replay_buffer_choose_done(struct replay_buffer *buffer);
/* Frees the first per_step rollout groups, after training on them. What the others have drawn is a step older. */
void replay_buffer_drop(struct replay_buffer *buffer);
/* Puts a group of the same prompt and hint without answers in place of one of the first per_step, for the
 * `time`-th time, from 1 on: its draws have other random numbers. replay_buffer_rewind puts the old ones
 * back. */
void replay_buffer_redraw(struct replay_buffer *buffer, i64 index, i64 time);
void replay_buffer_first(struct rollout_group **groups,
                         const struct replay_buffer *buffer); /* [per_step] as first drawn */

/* A mark records the progress of unfinished rollouts between two steps. replay_buffer_rewind drops
 * rollout groups and ids that were added after the mark. */
struct replay_buffer_mark {
    i64 *values;
    i64 count;
};
void replay_buffer_mark(struct replay_buffer_mark *mark, const struct replay_buffer *buffer);
void replay_buffer_rewind(struct replay_buffer *buffer, const struct replay_buffer_mark *mark);
void replay_buffer_mark_release(struct replay_buffer_mark *mark);
int replay_buffer_save(const struct replay_buffer *buffer, const char *path); /* safetensors */
int replay_buffer_load(struct replay_buffer *buffer, const char *path);       /* into a buffer just opened */

#endif
