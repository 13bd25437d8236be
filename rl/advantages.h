/* From the rewards of rollout groups to the advantages of their answers: what they lose for their length, and
 * what the differences are divided by (objective.h). most: the longest text in tokens, or sound in frames. */
#ifndef WEFT_RL_ADVANTAGES_H
#define WEFT_RL_ADVANTAGES_H
#include "rl/objective.h"
#include "rl/rollout.h"

/* What the reward of an answer loses for its length. Pictures and clips, whose length `most` does not limit,
 * lose nothing. */
double answer_penalty(const struct policy_loss_settings *settings, const struct answer *answer, i64 most);
/* 1: answers differ in reward less penalty; 0: they do not, and teach nothing; -1: some have no reward. */
int group_spread(const struct policy_loss_settings *settings, const struct rollout_group *group, i64 most);
/* Sample standard deviations of reward less penalty over all answers of each set, of groups that have all their
 * rewards. The caller frees the list, [largest set of a prompt + 1]. */
double *set_deviations(const struct policy_loss_settings *settings, struct rollout_group *const *groups, i64 count,
                       i64 most);
/* Fills advantage [size]. deviation: of the sets, in place of the group's; NULL: not. False: rewards are equal
 * or missing. */
bool group_advantages(double *advantage, const struct policy_loss_settings *settings, const struct rollout_group *group,
                      i64 most, const double *deviation);

#endif
