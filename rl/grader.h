/* Graders reward rollouts by built-in verifiers, an external program or a judge, and log every reward
 * to rewards.jsonl before it is used:
 *
 *   {"step":3,"prompt":97,"rollout":5,"turn":0,"answer":"9f86d081884c7d65","score":1}
 *
 * "prompt" is the number in the endless sequence of prompts, "answer" the XXH3 hash of the graded
 * text, or of a medium's bits or codes. "failed" in place of a score means that the program gave none.
 * "read" beside a score is what a judge (judge.h) wrote of the medium; the score is 1 - its word errors
 * against the ground truth, or without one against the prompt's text.
 * The file is append-only. A run resumed from a checkpoint draws the same answers again and reads
 * their rewards from the file, so the program is not asked twice. A line whose answer hash differs is
 * ignored.
 *
 * A program gets the path of a medium's file, in a folder made for the step and removed behind it. */
#ifndef WEFT_RL_GRADER_H
#define WEFT_RL_GRADER_H
#include "core/settings.h"
#include "generate/judge.h"
#include "rl/program.h"
#include "rl/rollout.h"
#include "rl/verify.h"

struct grader_settings {
    int verifier;               /* enum verifier; auto: by the prompt (verifier_of) */
    struct string_list program; /* argv */
    char *judge;                /* directory of a model; NULL or "": none */
    struct program_limits limits;
    i64 turns;    /* maximum observations per answer */
    i64 failures; /* consecutive program failures tolerated */
};
/* -1 and a message if every prompt would lack a program or a judge. */
int grader_check_settings(const struct grader_settings *settings);
/* -1 and a message if a program is to run in a sandbox that this system does not permit. */
int grader_check_machine(const struct grader_settings *settings);
struct grader;
/* directory: where rewards.jsonl is; NULL: no file. Lines of steps before `from_step` are not read.
 * media: decodes answers that are media; NULL: text alone. judge: NULL: none. Returns NULL and a
 * message on failure; close with grader_close. Borrows settings, tokenizer, media and judge. */
struct grader *grader_open(const struct grader_settings *settings, const struct text_tokenizer *tokenizer,
                           struct generator *media, struct judge *judge, const char *directory, i64 from_step);
void grader_close(struct grader *grader);
/* Checks that every prompt has a verifier with a valid ground truth, and that a program or a judge is
 * there if a prompt needs one. -1 and a message otherwise. */
int grader_check(const struct grader *grader, const struct prompts *prompts);
/* Gives all rollouts that are done a reward or an observation. An observation
 * reopens the rollout; *open counts these. `most` limits the ids of an answer.
 * If the program hangs or breaks, a warning is logged and its rollouts are
 * marked `ungraded`; more than settings->failures in a row are an error.
 * Returns 0, -1 and a message, or ROLLOUT_STOPPED if interrupted while a judge reads. */
int grade_rollouts(i64 *open, struct grader *grader, struct rollout_group *const *rollout_groups, i64 count, i64 step,
                   i64 most);

#endif
