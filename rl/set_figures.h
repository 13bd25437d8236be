/* Figures of a step by set of prompts, in metrics.jsonl. */
#ifndef WEFT_RL_SET_FIGURES_H
#define WEFT_RL_SET_FIGURES_H
#include "rl/rl.h"
#include "rl/rollout.h"

/* Puts set/NAME/reward, length (mean over the answers) and spread (share of the groups whose answers differ in
 * reward) of each named set that has a group. Nothing without sets. */
void set_figures_put(struct metrics *metrics, const struct rl_settings *settings, const struct prompts *prompts,
                     struct rollout_group *const *groups /* [prompts_per_step] */);

#endif
