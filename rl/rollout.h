/* Rollouts: answers of the model to prompts, by the same forward as training, many at once through one cache. A cohort
 * is a prompt with its rollouts; its prompt stands in the cache once.
 *
 *     seat | prompt and hint | rollout 0 | rollout 1 | ...    each with room for its longest answer
 *
 * Caches are rebuilt at the beginning of every call, cohort by cohort, so what a rollout becomes depends on its ids
 * alone, not on when the program was started.
 *
 * Which experts each id went to is kept: caches are rebuilt, and training runs, with the same choices, though weights
 * have moved on (R3, arXiv 2510.11370). Between two calls a rollout has those of all its ids but the last, which no
 * forward has read yet; a prompt has them once something was drawn from it. */
#ifndef WEFT_RL_ROLLOUT_H
#define WEFT_RL_ROLLOUT_H
#include "model/decode.h"
#include "rl/policy.h"
#include "rl/prompts.h"

struct rollout {
    struct answer answer; /* given: an observation's ids */
    i64 turns;            /* observations so far */
    bool judged;
    double reward; /* once judged */
    bool unjudged; /* the program that should have said it failed */
};
struct cohort {
    const struct task *prompt;
    i64 prompt_index, number; /* in its file; in the endless sequence of prompts */
    struct id_list ids;       /* prompt, then the hint: "<think>\n" and thoughts of the reference */
    i64 hint;                 /* how many of the ids are hint */
    struct routes routes;     /* of the ids */
    struct rollout *rollouts;
    i64 size; /* G */
};
void cohort_init(struct cohort *cohort, const struct task *prompt, i64 prompt_index, i64 number, i64 size);
void cohort_release(struct cohort *cohort);
void cohort_rest(struct cohort *cohort); /* a prompt read but not answered is read anew: its routes are forgotten */
bool cohort_done(const struct cohort *cohort);
/* Share of its answers with a reward of at least `solved`; -1: hinted, or not all of them judged. */
double cohort_success(const struct cohort *cohort, double solved);
/* The answer as text, its hint before it; special tokens are left out. */
i64 rollout_routed(const struct rollout *rollout); /* ids whose routes are kept between two calls */
int rollout_text(struct text *out, const struct cohort *cohort, i64 copy, const struct text_tokenizer *tokenizer);

struct sampler {
    struct model *model;
    const struct text_tokenizer *tokenizer;
    struct vocabulary vocabulary;
    struct sampling sampling; /* draws keyed by (cohort, rollout, place in the answer, 0) */
    i64 most;                 /* ids of an answer, given ones included */
    i32 *forbidden;           /* ids that open a medium, or that no text has */
    i64 forbidden_count;
    i64 route_width; /* L . K; 0: a model without experts */
    struct decoder decoder;
};
struct sampler_room {
    i64 seats, size, longest, most; /* cohorts at a time, their rollouts; ids of a prompt, of an answer */
    i64 speculate;                  /* ids drafted ahead; 0: none */
    bool as_trained;                /* as in decoder_options: answers to learn from */
};
/* -1: the tokenizer lacks what chats need, or the model what drafts. */
int sampler_open(struct sampler *sampler, struct model *model, const struct submodel *sub,
                 const struct text_tokenizer *tokenizer, const struct sampler_room *room);
void sampler_close(struct sampler *sampler);
struct policy sampler_policy(const struct sampler *sampler); /* what it draws from; borrows from the sampler */

/* Draws until all rollouts of the first `until` cohorts are done, the others go on meanwhile as far as there are seats.
 * STOPPED when interrupted() says so. */
enum { ROLLOUT_STOPPED = 1 };
int rollouts_draw(struct sampler *sampler, struct cohort *const *cohorts, i64 count, i64 until, struct progress *bar);

#endif
