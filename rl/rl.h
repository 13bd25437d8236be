/* rl: reinforcement learning on verifiable rewards, and evaluation. Rollouts come from the same forward as training;
 * the replay buffer (pool.h) deals prompts to steps, judges (judge.h) reward their answers, the objective (objective.h)
 * turns log-probabilities into coefficients, learn.h runs train/'s step on them.
 *
 *   from, prompts -> [ draw the step's cohorts | judge | advantages | updates ] x steps -> a model directory, rl.json
 *
 * Leaves metrics.jsonl, rewards.jsonl and checkpoints too. The door to the folder: its two stages. */
#ifndef WEFT_RL_H
#define WEFT_RL_H
#include "rl/eval.h"
#include "rl/judge.h"
#include "rl/objective.h"
#include "train/train.h"

struct rl_settings {
    char *from, *prompts, *eval_prompts;
    i64 steps, prompts_per_step, group, buffer_batches, seats, speculate, minibatches, max_tokens;
    i64 eval_steps, eval_limit, micro_positions;
    struct training_settings training;
    double temperature;
    bool recompute, replay_routes;
    struct surrogate_settings surrogate;
    struct judge_settings judge;
    struct optimizer_settings optimizer;
    struct schedule bias_speed;
};
extern const struct setting rl_table[];
int rl_stage(const void *settings, const struct stage *stage);

#endif
