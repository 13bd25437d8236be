/* Judging rollouts: built-in verifiers and programs, and rewards.jsonl, where every reward stands before it is used:
 *
 *   {"step":3,"prompt":97,"rollout":5,"turn":0,"answer":"9f86d081884c7d65","score":1}
 *
 * "prompt" is the number in the endless sequence of prompts, "answer" the XXH3 of the text that was judged. The file is
 * only ever added to; "failed" instead of a score: the program gave none. A run that goes on from a checkpoint comes by
 * the same answers again and reads their rewards from it, so no program is asked twice; a line whose answer differs is
 * not used. */
#ifndef WEFT_RL_JUDGE_H
#define WEFT_RL_JUDGE_H
#include "core/settings.h"
#include "rl/rollout.h"
#include "rl/verify.h"

struct judge_settings {
    int verifier;               /* enum verifier; auto: what each prompt asks for */
    struct string_list program; /* argv */
    double seconds;             /* for all answers of a step together */
    i64 turns;                  /* observations an answer may get */
    i64 failures;               /* of the program, one after another, that RL goes on after */
};
struct judge;
/* directory: of rewards.jsonl, NULL: nothing is written; lines of steps before `from_step` are not read. */
struct judge *judge_open(const struct judge_settings *settings, const struct text_tokenizer *tokenizer,
                         const char *directory, i64 from_step);
void judge_close(struct judge *judge);
/* Every prompt has a verifier, and the program is there if one is asked for. */
int judge_check(const struct judge *judge, const struct prompts *prompts);
/* All rollouts that are done get their reward, or an observation: then they are not done any more, and *open counts
 * them. What a program that hangs or breaks leaves open is `unjudged`, and said; only too many failures are an error.
 */
int judge_cohorts(i64 *open, struct judge *judge, struct cohort *const *cohorts, i64 count, i64 step, i64 most);

#endif
