/* Verifiers: how good an answer is, from 0 to 1, by rules. Which rule a prompt asks for is told by its
 * reward_model.style, else its data_source, else its ability. Everything up to the last </think> is left out, but for
 * `format`.
 *
 *   exact   the answer is the ground truth, white space at both ends apart
 *   gsm8k   the last "#### NUMBER" of the last 300 characters (verl's rule), without commas as text, then as a number
 *   math    the last \boxed{...}, else the last "#### ...", else the last number: as text without dressing, then as a
 *           number. Integers are met exactly, other numbers within 1e-6; commas stand between thousands alone; p % may
 *           be p or p / 100; a unit in \text and "x=" may stand on one side alone
 *   choice  one letter from A to J: boxed, after "answer", in parentheses or alone
 *   regex   the ground truth is a pattern that is found in the answer
 *   format  one <think>...</think> at the beginning, and something after it
 *   wer     1 - word errors / words of the ground truth, not below 0; letters of any script, without case (text_fold),
 *           no punctuation; characters of scripts without spaces count as words
 *   program an external one (program.h) */
#ifndef WEFT_RL_VERIFY_H
#define WEFT_RL_VERIFY_H
#include "rl/prompts.h"

enum verifier {
    VERIFY_AUTO,
    VERIFY_EXACT,
    VERIFY_GSM8K,
    VERIFY_MATH,
    VERIFY_CHOICE,
    VERIFY_REGEX,
    VERIFY_FORMAT,
    VERIFY_WER,
    VERIFY_PROGRAM
};
#define VERIFIER_CHOICES "auto|exact|gsm8k|math|choice|regex|format|wer|program"

/* -1: no rule fits the prompt, with what it says and what there is. */
int verifier_of(enum verifier *out, const struct task *prompt);
/* Any verifier but program. -1 and a message: a ground truth that is none (a broken pattern, an empty one, no letter).
 */
int verify(double *score, enum verifier verifier, const char *ground_truth, const char *answer);

#endif
