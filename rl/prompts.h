/* Prompts with what their answers are judged by, in verl's JSON fields (one object a line, a .json array, or a table;
 * packed, or at an address, too):
 *
 *   {"data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": "..."}], "ability": "math",
 *    "reward_model": {"style": "rule", "ground_truth": "72"}, "extra_info": {"index": 0, ...}}
 *
 * extra_info.think: a reference's reasoning, from which hints are cut; extra_info.pass: the model's pass@k at the
 * start, if it is known. Prompts are text; `images`, `videos` and contents that are no strings are refused. */
#ifndef WEFT_RL_PROMPTS_H
#define WEFT_RL_PROMPTS_H
#include "core/json.h"
#include "tokenizers/text/text.h"

struct task {                                                 /* a prompt with what its answers are judged by */
    struct json *source;                                      /* the whole object */
    const char *data_source, *ability, *style, *ground_truth; /* of it; "" where absent */
    char *origin;                                             /* "FILE:LINE", for messages */
    char *truth_text;                                         /* owns a ground truth that is no string */
    struct id_list ids;   /* in the chat layout, the assistant's header at the end */
    struct id_list think; /* the reference's reasoning behind "<think>\n"; empty: none */
    i64 think_head;       /* ids of "<think>\n" */
    double pass;          /* -1: not known */
};
struct prompts {
    struct task *list;
    i64 count, longest; /* ids of the longest prompt with its whole hint */
};
/* At most `limit` prompts (0: all). -1: a line that is no prompt, with its number; a tokenizer without the chat's ids.
 */
int prompts_load(struct prompts *prompts, const char *path, const struct text_tokenizer *tokenizer, i64 limit);
void prompts_release(struct prompts *prompts);

/* In the tokenizer's chat layout: a message of the user, which is plain text whatever it looks like, and what an answer
 * stands behind; what follows an answer that has ended. */
int chat_question(struct id_list *out, const struct text_tokenizer *tokenizer, const char *text);
int chat_after_answer(struct id_list *out, const struct text_tokenizer *tokenizer);

/* The endless sequence of prompts: every epoch has each once, in an order of its own. */
struct prompt_order {
    u64 seed;
    i64 count, epoch; /* epoch of `place`; -1: none yet */
    i32 *place;
};
void prompt_order_init(struct prompt_order *order, i64 count, u64 seed);
void prompt_order_release(struct prompt_order *order);
i64 prompt_order_at(struct prompt_order *order, i64 number); /* which prompt is the number-th */

#endif
