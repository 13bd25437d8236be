/* Rollouts: answers of the model to prompts, sampled with the same forward as training, many decode
 * sequences at a time. An answer is text, or a picture, clip or sound. A rollout group is one prompt
 * with its G rollouts. The prompt is in the KV cache once:
 *
 *     slot | prompt and hint | rollout 0 | rollout 1 | ...    each with room for its longest answer
 *
 * A slot is the cache slot of one rollout group. Caches are rebuilt at the beginning of every
 * call, rollout group by rollout group, so a rollout depends only on its ids and not on when the
 * program was started.
 *
 * Router choices (routes) of each id are kept. Caches are rebuilt and training runs with the same
 * experts although the weights have changed (R3, arXiv 2510.11370). Between two calls a rollout has
 * the routes of all its ids but the last, which no forward has read yet; a prompt has routes once
 * an id was sampled after it.
 *
 * A medium that is not done when a call ends is drawn anew by the next one, with the same random
 * numbers, so a long one is not favoured or put off. A medium that is done has the routes of all
 * positions that were read. */
#ifndef WEFT_RL_ROLLOUT_H
#define WEFT_RL_ROLLOUT_H
#include "model/decode.h"
#include "rl/policy.h"
#include "rl/prompts.h"

struct rollout {
    struct answer answer; /* answer.given marks the ids of observations */
    i64 turns;            /* observations so far */
    bool graded;
    double reward; /* once graded */
    bool ungraded; /* the program failed to give a reward */
    bool counted;  /* in the mean length of what was drawn */
    i64 steps;     /* of training since it was begun */
    i64 age;       /* sum over its drawn ids of the steps since each was drawn */
};
struct rollout_group {
    const struct task *prompt;
    i64 prompt_index, number; /* index in its file; number in the endless sequence of prompts */
    /* prompt, then the hint: "<think>\n" and reference reasoning; behind task.asked: the hint alone */
    struct id_list ids;
    u32 identity;         /* of its random numbers: the number, unless it is drawn again */
    i64 hint;             /* number of hint ids */
    bool recheck;         /* without its hint, to measure pass@k anew */
    struct routes routes; /* routes of the prompt's positions; before a medium all but the last */
    struct rollout *rollouts;
    i64 size; /* G, rollouts per group */
};
void rollout_group_init(struct rollout_group *rollout_group, const struct task *prompt, i64 prompt_index, i64 number,
                        i64 size);
void rollout_group_release(struct rollout_group *rollout_group);
void rollout_group_forget_routes(
    struct rollout_group *rollout_group); /* forgets the routes of an unanswered prompt, which is read again */
bool rollout_group_done(const struct rollout_group *rollout_group);
/* Share of the answers with a reward of at least `solved`; -1
 * if the rollout group has a hint or ungraded answers. */
double rollout_group_success(const struct rollout_group *rollout_group, double solved);
/* Positions of the prompt with its hint and what opens a medium. rollout_group_parts: the prompt as
 * parts, at most PROMPT_PARTS_MOST; returns their number. */
i64 rollout_group_positions(const struct rollout_group *rollout_group);
enum { PROMPT_PARTS_MOST = 17 };
i64 rollout_group_parts(struct part parts[PROMPT_PARTS_MOST], const struct rollout_group *rollout_group);
/* rollout_routed: number of ids whose routes are kept between two calls. rollout_text: replaces
 * `out` by the text of the hint and the answer, without special tokens: of a medium nothing. 0, or -1 and a message. */
i64 rollout_routed(const struct rollout *rollout);
i64 rollout_drawn(const struct rollout *rollout); /* ids that were drawn, not given */
int rollout_text(struct buffer *out, const struct rollout_group *rollout_group, i64 copy,
                 const struct text_tokenizer *tokenizer);

/* The form of the weights that answers are drawn with, where it is not that of training: gemm weights of 8 or 4
 * bits, or products in fp8. Sampler and trainer then differ, as two programs do. rollout_model_open opens a model
 * of its own; rollout_model_take rounds the weights of the trained one into it. */
#define ROLLOUT_WEIGHTS_CHOICES "stored|int8|int4|fp8"
enum rollout_weights { ROLLOUT_STORED, ROLLOUT_INT8, ROLLOUT_INT4, ROLLOUT_FP8 };
int rollout_model_open(struct model *out, struct device *device, const struct model_config *config, enum dtype dtype,
                       enum rollout_weights form);
void rollout_model_take(struct model *out, const struct model *trained);

struct sampler {
    struct model *model;
    const struct text_tokenizer *tokenizer;
    const struct generator *media; /* tokenizers of prompts with media; NULL: text alone */
    struct vocabulary vocabulary;
    struct sampling sampling; /* keyed by (rollout group, rollout, position in the answer, 0) */
    i64 most;                 /* maximum ids of an answer, observations included */
    i32 *forbidden;           /* ids that open a medium or that the tokenizer cannot write */
    i64 forbidden_count;
    i64 route_width; /* L * K; 0: no experts */
    struct decoder decoder;
};
struct sampler_room {
    /* Rollout groups at a time; rollouts per rollout group; maximum ids of a prompt and of an
     * answer. */
    i64 slots, size, longest, most;
    bool as_trained;               /* see decoder_options: for rollouts to learn from */
    const struct generator *media; /* borrowed; NULL: text alone */
    i64 longest_medium;            /* positions of a picture or clip; 0: none */
};
i64 sampler_room_most(const struct sampler_room *room); /* maximum positions of any answer */
/* Borrows its arguments. -1 and a message: the tokenizer lacks the ids of a conversation or does
 * not match the model. sampler_close is safe after a failure. */
int sampler_open(struct sampler *sampler, struct model *model, const struct submodel *sub,
                 const struct text_tokenizer *tokenizer, const struct sampler_room *room);
void sampler_close(struct sampler *sampler);
struct policy sampler_policy(const struct sampler *sampler); /* borrows from the sampler */

/* Samples until all rollouts of the first `until` rollout groups are done. Free slots go to the
 * other rollout groups meanwhile. Returns 0, or ROLLOUT_STOPPED once interrupted() is true. */
enum { ROLLOUT_STOPPED = 1 };
int rollouts_draw(struct sampler *sampler, struct rollout_group *const *rollout_groups, i64 count, i64 until,
                  struct progress *bar);
/* The same until any `until` of them are done, whichever come first. */
int rollouts_draw_any(struct sampler *sampler, struct rollout_group *const *rollout_groups, i64 count, i64 until,
                      struct progress *bar);

#endif
