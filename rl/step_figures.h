/* Figures of a step in metrics.jsonl: of its answers, of hints, and by set of prompts; and whether training harms. */
#ifndef WEFT_RL_STEP_FIGURES_H
#define WEFT_RL_STEP_FIGURES_H
#include "rl/rl.h"
#include "rl/rollout.h"

/* What the sampler drew in a step, for this step and for later ones. */
struct step_draws {
    double ids;             /* that were drawn */
    double answers, length; /* answers that ended, and the sum of their ids */
};
/* step_draws_before and _after: call around each call of the sampler, for the ids that the groups have more behind
 * it. step_draws_end: once grading has opened none of the answers again, which count once. */
void step_draws_before(struct step_draws *draws, struct rollout_group *const *groups, i64 count);
void step_draws_after(struct step_draws *draws, struct rollout_group *const *groups, i64 count);
void step_draws_end(struct step_draws *draws, struct rollout_group *const *groups, i64 count);

/* Means over the answers of the step's groups [prompts_per_step], before any update on them. */
struct eval_scores step_scores(const struct rl_settings *settings, struct rollout_group *const *groups);
/* Puts, of the groups that are trained on, `age` (steps of training since an id was drawn, mean over ids) and
 * `oldest` (since an answer was begun, the most), if prompts are sampled ahead. Of hints, if there are any:
 * hint/prompts (share of the step's prompts that have one), hint/solved and hint/solved_without (share of the
 * answers behind a hint, and of the others, that solve their prompt). With sets: set/NAME/reward, length (mean
 * over the answers) and spread (share of the groups whose answers differ in reward) of each that has a group. */
void step_figures_put(struct metrics *metrics, const struct rl_settings *settings, const struct prompts *prompts,
                      struct rollout_group *const *groups /* [prompts_per_step] */);

/* Of named sets of held-out prompts, from the reward of each prompt: puts heldout/NAME/reward, or returns {NAME:
 * {"reward": mean, "prompts": number}}. */
void heldout_sets_put(struct metrics *metrics, const struct prompts *held_out, const double *rewards);
struct json *heldout_sets_json(const struct prompts *held_out, const double *rewards);

/* Whether training harms: the reward on held-out prompts, against the one before the first step. Each prompt is
 * compared with itself, so that prompts of different difficulty do not hide a fall. */
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
