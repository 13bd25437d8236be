/* Whether training harms: the reward on held-out prompts, against the one before the first step. Each prompt is
 * compared with itself, so that prompts of different difficulty do not hide a fall. */
#ifndef WEFT_RL_HARM_H
#define WEFT_RL_HARM_H
#include "core/core.h"

struct reward_change {
    double start, now; /* mean rewards */
    double error;      /* standard error of the mean difference; NaN for fewer than two prompts */
    i64 prompts;
};
struct reward_change reward_change_of(const double *start, const double *now, i64 prompts);
/* True if the reward fell by more than `errors` standard errors. Never for fewer than HARM_PROMPTS prompts,
 * whose error is not known well enough, nor for errors 0. */
enum { HARM_PROMPTS = 20 };
bool reward_fell(const struct reward_change *change, double errors);

#endif
