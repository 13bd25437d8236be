/* rl: reinforcement learning with verifiable rewards, and evaluation. This is the folder's main
 * header; it declares the stage `rl` and, through eval.h, the stage `eval`.
 *
 * The replay buffer (replay_buffer.h) assigns prompts to steps, the sampler (rollout.h) draws
 * rollouts with the same forward as training, graders (grader.h) reward them, the policy loss
 * (objective.h) turns log-probabilities into coefficients, and learn.h runs the training step of
 * train/ on them.
 *
 *   from, prompts -> [ sample the step's rollout groups | grade | advantages | updates ] x steps
 *                 -> model directory, rl.json
 *
 * Input is a model directory and a file of prompts. Output in the stage's folder: the trained
 * model, rl.json, metrics.jsonl, rewards.jsonl and checkpoints.
 *
 * Where is what:
 *   stage.c      the stage rl: its loop, measurements, checkpoints; settings.c: its settings;
 *                step_figures.c: figures of a step, and whether the held-out reward fell
 *   prompts.c    files of prompts and their order; prompt_media.c: prompts with media and for media;
 *                prompt_sets.c: several sets, and which comes when
 *   replay_buffer.c  answers sampled ahead for later steps
 *   rollout.c    sampling of answers; policy.c: the temperature and forbidden ids, for both sides
 *   grader.c     rewards and rewards.jsonl; verify*.c: the rules; program.c: external programs,
 *                program_process.c: their limits; program_sandbox.c, program_calls.c: their sandbox
 *   objective.c  weights, hints and how advantages are computed, advantages.c: of rollout groups; the loss
 *                itself is the op policy_loss
 *   learn.c      answers into micro-batches and updates; eval.c: the stage eval
 *   memory_estimate.c  memory before it begins
 * The stage owns buffer, sampler and learner; they borrow its model. */
#ifndef WEFT_RL_H
#define WEFT_RL_H
#include "rl/eval.h"
#include "rl/grader.h"
#include "rl/objective.h"
#include "submodels/submodels.h"
#include "train/step_memory.h"
#include "train/train.h"

#define ORDER_CHOICES "assigned|first"
enum rollout_order { ORDER_ASSIGNED, ORDER_FIRST };
struct rl_settings {
    char *from, *day; /* day: YYYY-MM-DD of a chat template that writes it */
    struct source_list prompts, eval_prompts;
    char *sub; /* name of the sub-model that is the policy; "": the full model */
    i64 steps, prompts_per_step, group, buffer_batches, slots, minibatches, max_tokens;
    i64 eval_steps, eval_limit, micro_positions, redraw;
    int order, rollout_weights; /* of ORDER_CHOICES and ROLLOUT_WEIGHTS_CHOICES */
    i64 speculate;              /* retired */
    struct training_settings training;
    struct best_settings best;
    double temperature, stop_below;
    bool recompute, replay_routes, weigh_scales;
    struct policy_loss_settings policy_loss;
    struct grader_settings grader;
    struct optimizer_settings optimizer;
    struct schedule bias_speed;
};
extern const struct setting rl_table[];
int rl_check_settings(const void *settings); /* of what a recipe says alone */
int rl_check_machine(const void *settings);  /* whether this system has what they ask for */
int rl_stage(const void *settings, const struct stage *stage);
/* What the stage will need, for `weft plan`: a dry run on a device of the meta backend. Reads the model's
 * configuration, the prompts and their media, with the device and dtype of `stage`. References are resolved. 0, or
 * -1 and a message. */
struct rl_needs {
    struct step_memory memory;
    i64 parameters, active, prompts, held_out;
};
int rl_stage_needs(struct rl_needs *out, const void *settings, const struct stage *stage, struct device *meta);

#endif
