/* Several sets of prompts in one run, and the endless sequence in which prompts come.
 *
 *     number    0    1    2    3    4    5   ..       shares 2 : 1
 *     set       a    b    a    a    b    a   ..
 *     prompt   a.0  b.0  a.1  a.2  b.1  a.3  ..       each set in an order of its own
 *
 * The set of a number is the one that is owed the most: with n prompts given, set i is owed n times its part
 * of the shares, less those it gave. So each set comes as often as its share says, to about one prompt at
 * constant shares, and the sequence depends on the seed alone. Shares are those of the step
 * that the number belongs to. */
#ifndef WEFT_RL_PROMPT_SETS_H
#define WEFT_RL_PROMPT_SETS_H
#include "core/settings.h"
#include "rl/prompts.h"

/* What a recipe says of sets, before anything is read. -1: usage error, such as shares that are all 0. */
int prompt_sets_check(const struct source_list *sources);
bool prompt_sets_given(const struct source_list *sources); /* false: the setting is empty */
/* Loads the file or files of a single set, or of all sets, each as prompts_load does. setting: their name in
 * messages. The sources are borrowed until prompts_release. */
struct prompt_files {
    const struct source_list *sources;
    const char *setting;
    i64 limit; /* prompts of a file; 0: all */
};
int prompt_sets_load(struct prompts *prompts, const struct prompt_files *files, const struct text_tokenizer *tokenizer,
                     struct prompt_media *media);

struct prompt_mix {
    const struct prompts *prompts;
    i64 per_step;
    struct prompt_order *orders; /* [sets], of a single unnamed one too */
    double *owed;                /* [sets] after `next` prompts */
    i64 *given;                  /* [sets] */
    i64 next, set;               /* numbers below `next` are walked; set of the last of them */
};
/* Borrows the prompts. */
void prompt_mix_init(struct prompt_mix *mix, const struct prompts *prompts, i64 per_step, u64 seed);
void prompt_mix_release(struct prompt_mix *mix);
/* Index of prompt `number` of the sequence. Numbers that fall are walked from 0 again. times, unless NULL: how
 * often the sequence had this prompt before. */
i64 prompt_mix_at(struct prompt_mix *mix, i64 number, i64 *times);

#endif
