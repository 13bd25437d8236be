/* Judges: reward rollouts by built-in verifiers or an external program, and log every reward to
 * rewards.jsonl before it is used:
 *
 *   {"step":3,"prompt":97,"rollout":5,"turn":0,"answer":"9f86d081884c7d65","score":1}
 *
 * "prompt" is the number in the endless sequence of prompts, "answer" the XXH3 hash of the judged
 * text. "failed" in place of a score means that the program gave none. The file is append-only. A
 * run resumed from a checkpoint draws the same answers again and reads their rewards from the file,
 * so the program is not asked twice. A line whose answer hash differs is ignored. */
#ifndef WEFT_RL_JUDGE_H
#define WEFT_RL_JUDGE_H
#include "core/settings.h"
#include "rl/rollout.h"
#include "rl/verify.h"

struct judge_settings {
    int verifier;               /* enum verifier; auto: by the prompt (verifier_of) */
    struct string_list program; /* argv */
    double seconds;             /* time limit for all answers of a step */
    i64 turns;                  /* maximum observations per answer */
    i64 failures;               /* consecutive program failures tolerated */
};
struct judge;
/* directory: where rewards.jsonl is; NULL: no file. Lines of steps before `from_step` are not read.
 * Returns NULL and a message on failure; close with judge_close. Borrows settings and tokenizer. */
struct judge *judge_open(const struct judge_settings *settings, const struct text_tokenizer *tokenizer,
                         const char *directory, i64 from_step);
void judge_close(struct judge *judge);
/* Checks that every prompt has a verifier with a valid ground truth, and that a program is set if a
 * prompt needs one. -1 and a message otherwise. */
int judge_check(const struct judge *judge, const struct prompts *prompts);
/* Gives all rollouts that are done a reward or an observation. An observation
 * reopens the rollout; *open counts these. `most` limits the ids of an answer.
 * If the program hangs or breaks, a warning is logged and its rollouts are
 * marked `unjudged`; more than settings->failures in a row are an error. */
int judge_cohorts(i64 *open, struct judge *judge, struct cohort *const *cohorts, i64 count, i64 step, i64 most);

#endif
