/* Rollouts: answers of the model to prompts, sampled with the same forward as training, many decode
 * sequences at a time. A cohort is a rollout group: one prompt with its G rollouts. The prompt is
 * in the KV cache once:
 *
 *     seat | prompt and hint | rollout 0 | rollout 1 | ...    each with room for its longest answer
 *
 * A seat is the cache slot of one cohort. Caches are rebuilt at the beginning of every call, cohort
 * by cohort, so a rollout depends only on its ids and not on when the program was started.
 *
 * Router choices (routes) of each id are kept. Caches are rebuilt and training runs with the same
 * experts although the weights have changed (R3, arXiv 2510.11370). Between two calls a rollout has
 * the routes of all its ids but the last, which no forward has read yet; a prompt has routes once
 * an id was sampled after it. */
#ifndef WEFT_RL_ROLLOUT_H
#define WEFT_RL_ROLLOUT_H
#include "model/decode.h"
#include "rl/policy.h"
#include "rl/prompts.h"

struct rollout {
    struct answer answer; /* answer.given marks the ids of observations */
    i64 turns;            /* observations so far */
    bool judged;
    double reward; /* once judged */
    bool unjudged; /* the program failed to give a reward */
};
struct cohort {
    const struct task *prompt;
    i64 prompt_index, number; /* index in its file; number in the endless sequence of prompts */
    struct id_list ids;       /* prompt, then the hint: "<think>\n" and reference reasoning */
    i64 hint;                 /* number of hint ids */
    struct routes routes;     /* routes of ids */
    struct rollout *rollouts;
    i64 size; /* G, rollouts per group */
};
void cohort_init(struct cohort *cohort, const struct task *prompt, i64 prompt_index, i64 number, i64 size);
void cohort_release(struct cohort *cohort);
void cohort_rest(struct cohort *cohort); /* forgets the routes of an unanswered prompt, which is read again */
bool cohort_done(const struct cohort *cohort);
/* Share of the answers with a reward of at least `solved`; -1
 * if the cohort has a hint or unjudged answers. */
double cohort_success(const struct cohort *cohort, double solved);
/* rollout_routed: number of ids whose routes are kept between two calls. rollout_text: replaces
 * `out` by the text of the hint and the answer, without special tokens. 0, or -1 and a message. */
i64 rollout_routed(const struct rollout *rollout);
int rollout_text(struct text *out, const struct cohort *cohort, i64 copy, const struct text_tokenizer *tokenizer);

struct sampler {
    struct model *model;
    const struct text_tokenizer *tokenizer;
    struct vocabulary vocabulary;
    struct sampling sampling; /* keyed by (cohort, rollout, position in the answer, 0) */
    i64 most;                 /* maximum ids of an answer, observations included */
    i32 *forbidden;           /* ids that open a medium or that the tokenizer cannot write */
    i64 forbidden_count;
    i64 route_width; /* L * K; 0: no experts */
    struct decoder decoder;
};
struct sampler_room {
    /* Cohorts at a time; rollouts per cohort; maximum ids of a prompt and of an answer. */
    i64 seats, size, longest, most;
    bool as_trained; /* see decoder_options: for rollouts to learn from */
};
/* Borrows its arguments. -1 and a message: the tokenizer lacks the ids of the chat layout or does
 * not match the model. sampler_close is safe after a failure. */
int sampler_open(struct sampler *sampler, struct model *model, const struct submodel *sub,
                 const struct text_tokenizer *tokenizer, const struct sampler_room *room);
void sampler_close(struct sampler *sampler);
struct policy sampler_policy(const struct sampler *sampler); /* borrows from the sampler */

/* Samples until all rollouts of the first `until` cohorts are done. Free seats go to the other
 * cohorts meanwhile. Returns 0, or ROLLOUT_STOPPED once interrupted() is true. */
enum { ROLLOUT_STOPPED = 1 };
int rollouts_draw(struct sampler *sampler, struct cohort *const *cohorts, i64 count, i64 until, struct progress *bar);

#endif
