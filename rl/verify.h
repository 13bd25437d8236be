/* Verifiers: rule-based scores of answers, 0 to 1. The prompt's reward_model.style selects the
 * rule, else its data_source, else its ability. All rules but `format` ignore text up to the last
 * </think>, and give 0 to an answer whose <think> is not closed.
 *
 *   exact   equals the ground truth, without white space at both ends
 *   gsm8k   the last "#### NUMBER", whatever follows it, compared without "$" and commas
 *   math    the last \boxed{...}, else the last "#### ...", else the line after the last "Answer:",
 *           else the last number; compared as text without formatting, as a number, then as a
 *           formula. Integers must match exactly, other numbers within 1e-6. Formulas are equal if
 *           their values are (\frac{x+2}{7} and \frac{x}{7}+\frac{2}{7}). Lists, sets and unions
 *           match in any order, tuples and intervals in theirs; \pm a is the list of both. Commas
 *           are allowed between thousands only. p % matches p and p / 100. A unit, in \text or in
 *           words, or "x=" may be missing on one side
 *   choice  a letter from A to J: boxed, after "answer", in parentheses, or alone. Several letters
 *           ("B or C") choose none
 *   regex   the ground truth is a pattern, searched in the answer
 *   format  one <think>...</think> at the beginning, followed by text
 *   wer     1 - word errors / words of the ground truth, at least 0. Letters of any script,
 *           case-folded (text_fold), without punctuation; in scripts without spaces every character
 *           is a word
 *   program an external program (program.h)
 *   model   a judge (judge.h): wer of what it reads in a medium */
#ifndef WEFT_RL_VERIFY_H
#define WEFT_RL_VERIFY_H
#include "rl/prompts.h"

/* The rules, which score an answer alone. A row makes VERIFY_VALUE, a name for settings and commands, and the
 * declaration of the function verify_name (verify_inside.h). */
#define VERIFIER_ROWS(FIRST, RULE)                                                                                     \
    FIRST(EXACT, exact)                                                                                                \
    RULE(GSM8K, gsm8k)                                                                                                 \
    RULE(MATH, math)                                                                                                   \
    RULE(CHOICE, choice)                                                                                               \
    RULE(REGEX, regex)                                                                                                 \
    RULE(FORMAT, format)                                                                                               \
    RULE(WER, wer)
enum verifier {
    VERIFY_AUTO,
#define RULE(VALUE, name) VERIFY_##VALUE,
    VERIFIER_ROWS(RULE, RULE)
#undef RULE
        VERIFY_PROGRAM,
    VERIFY_MODEL
};
#define VERIFIER_NAME(VALUE, name) #name
#define VERIFIER_BAR_NAME(VALUE, name) "|" #name
#define VERIFIER_RULES VERIFIER_ROWS(VERIFIER_NAME, VERIFIER_BAR_NAME) /* "exact|gsm8k|..." */
#define VERIFIER_CHOICES "auto|" VERIFIER_RULES "|program|model"

/* Selects the verifier for VERIFY_AUTO. The style "model" is that of prompts for media: of texts, as verl
 * has it, it says nothing. -1 and a message, which lists the rules, if none matches the prompt. */
int verifier_of(enum verifier *out, const struct task *prompt);
/* Scores an answer by a rule. -1 and a message: invalid ground truth (empty, a
 * broken pattern, or no letter). */
int verify(double *score, enum verifier verifier, const char *ground_truth, const char *answer);

#endif
