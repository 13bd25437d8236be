/* Prompts and ground truths in verl's JSON fields. Files hold one object per line, a .json array,
 * or a table; they may be compressed or at a URL:
 *
 *   {"data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": "..."}],
 *    "ability": "math", "reward_model": {"style": "rule", "ground_truth": "72"},
 *    "extra_info": {"index": 0, ...}}
 *
 * extra_info.think: reference reasoning, from which hints are cut. extra_info.pass: pass@k of the
 * initial model, if known. `tools`, `documents` and the members of `chat_template_kwargs` are variables
 * of the chat template.
 *
 * Media of a prompt are in parts of its contents, {"type": "image", "image": FILE}, or listed under
 * `images`, `videos`, `audios` and marked as <image> in its texts. "to": "image", "video" or "audio":
 * the answer is such a medium, drawn behind the prompt as behind a caption (prompt_media.h). */
#ifndef WEFT_RL_PROMPTS_H
#define WEFT_RL_PROMPTS_H
#include "core/json.h"
#include "generate/generator.h"
#include "data/sources/source_readers.h"
#include "tokenizers/text/text.h"

struct task {                                                 /* a prompt and the data to grade its answers */
    struct json *source;                                      /* the whole object; owned */
    const char *data_source, *ability, *style, *ground_truth; /* strings in source; "" if absent */
    char *origin;                                             /* "FILE:LINE", for messages */
    char *truth_text;                                         /* owns a ground truth that is not a string */
    /* In the chat template, with the generation prompt; with `asked` only to compare prompts. */
    struct id_list ids;
    struct id_list think; /* "<think>\n" and the reference reasoning; empty: none */
    i64 think_head;       /* ids of "<think>\n"; 0: the prompt ends with it */
    double pass;          /* pass@k; -1: unknown */
    struct prompt *asked; /* a prompt with media, or for one, laid out; owned. NULL: `ids` are all */
    i64 positions;        /* of the prompt without hint, with what opens a medium */
    i64 set;              /* index of its set; 0 without sets */
};
static inline enum modality task_makes(const struct task *task)
{
    return task->asked ? task->asked->to : MODALITY_TEXT;
}
struct data_source;
struct prompt_set {                   /* prompts with a share of their own: prompt_sets.h */
    const struct data_source *source; /* borrowed */
    i64 first, count;                 /* in the list */
};
struct prompts {
    struct task *list;
    struct prompt_set *sets;
    i64 set_count;           /* 0: all prompts are one set without a name */
    i64 count, longest;      /* positions of the longest prompt with its full hint */
    i64 longest_medium;      /* positions of the longest picture or clip that is asked for; 0: none */
    struct skip_notes notes; /* keys that are not read */
};
struct prompt_media;
/* Loads at most `limit` prompts (0: all). media: tokenizers of the model, for prompts with media
 * (prompt_media.h); NULL: such prompts are refused. -1 and a message: a line that is not a prompt, with
 * its number, or a tokenizer without a chat template. Release with prompts_release. */
int prompts_load(struct prompts *prompts, const char *path, const struct text_tokenizer *tokenizer,
                 struct prompt_media *media, i64 limit);
/* Number of prompts of `held_out` whose ids are those of a prompt in `train`. */
i64 prompts_in_common(const struct prompts *held_out, const struct prompts *train);
/* Share of `held_out` whose ground truth is the most frequent one of `train`: what an answer that
 * never looks at the prompt gets. *truth receives that ground truth, borrowed from `train`. */
double prompts_constant(const struct prompts *held_out, const struct prompts *train, const char **truth);
void prompts_release(struct prompts *prompts);

/* The endless sequence of prompts. Every epoch contains each prompt once, in its own order. */
struct prompt_order {
    u64 seed;
    i64 count, epoch; /* epoch of `place`; -1: none */
    i32 *place;
};
void prompt_order_init(struct prompt_order *order, i64 count, u64 seed);
void prompt_order_release(struct prompt_order *order);
i64 prompt_order_at(struct prompt_order *order, i64 number); /* index of the prompt */

#endif
