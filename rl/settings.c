/* The settings of the stage rl, and what is wrong with some together. */
#include "rl/prompt_sets.h"
#include "rl/rl.h"
#include "rl/rollout.h"

#include <string.h>

#define ROW(member, ...) SETTING(struct rl_settings, member, __VA_ARGS__)
const struct setting rl_table[] = {
    ROW(from, "from", REFERENCE, NULL, 0, 0, NULL, "initial model; optimizer moments start at zero"),
    ROW(sub, "sub", STRING, "", 0, 0, NULL,
        "named sub-model of `from` (weft extract --name) that is drawn from and trained; none: the full model"),
    ROW(prompts, "prompts", SOURCES, NULL, 0, 0, NULL,
        "prompts with the fields of verl, .jsonl or .json; or named sets, {NAME: {data: .., share: 2}, ..}: prompts "
        "of a step in proportion to `share`, or to `weight` times the prompts of a set"),
    ROW(eval_prompts, "eval_prompts", SOURCES, "", 0, 0, NULL,
        "held-out prompts; or named sets, whose rewards are shown each: {NAME: {data: ..}, ..}"),
    ROW(eval_steps, "eval_steps", INTEGER, "20", 0, 1e9, NULL,
        "steps between held-out evaluations; 0: only at start and end"),
    ROW(stop_below, "stop_below", NUMBER, "3", 0, 1e9, NULL,
        "the stage ends when the held-out reward is below its start by more standard errors than this, of the "
        "differences by prompt (20 prompts at least): an error, or with keep_best the best step; 0: never"),
    ROW(eval_limit, "eval_limit", INTEGER, "0", 0, 1e9, NULL, "maximum held-out prompts of each file; 0: all"),
    ROW(day, "day", STRING, "", 0, 0, NULL,
        "YYYY-MM-DD that a chat template which writes the day gets; none: the day of each call"),
    ROW(steps, "steps", INTEGER, "40", 1, 1e9, NULL, "training steps, each on its own prompts"),
    ROW(prompts_per_step, "prompts_per_step", INTEGER, "32", 1, 1e6, NULL, "prompts per step"),
    ROW(group, "group", INTEGER, "8", 2, 1e4, NULL, "answers per prompt"),
    ROW(redraw, "redraw", INTEGER, "0", 0, 100, NULL,
        "times that groups of equal rewards are drawn again in a step, with the same prompts"),
    ROW(buffer_batches, "buffer_batches", INTEGER, "1", 1, 1000, NULL,
        "steps whose prompts are sampled concurrently; more hide long answers, but train on samples of older weights"),
    ROW(order, "order", CHOICE, "assigned", 0, 0, ORDER_CHOICES,
        "what a step trains on: assigned: its own prompts; first: those of the buffer whose answers end first, which "
        "favours short ones"),
    ROW(rollout_weights, "rollout_weights", CHOICE, "stored", 0, 0, ROLLOUT_WEIGHTS_CHOICES,
        "form of the weights that answers are drawn with; int8, int4, fp8: the backbone's gemm weights, rounded in "
        "each step"),
    ROW(slots, "seats", INTEGER, "0", 0, 1e6, NULL, "prompts sampled concurrently; 0: all in the buffer"),
    ROW(speculate, "speculate", INTEGER, "0", 0, 4, NULL, NULL),
    ROW(temperature, "temperature", NUMBER, "1", 0.01, 100, NULL, "temperature of sampling and of the trained policy"),
    ROW(max_tokens, "max_tokens", INTEGER, "64", 1, 1 << 20, NULL,
        "maximum answer length, tokens, or frames of a sound"),
    ROW(minibatches, "minibatches", INTEGER, "2", 1, 1000, NULL, "optimizer updates per step"),
    ROW(micro_positions, "micro_positions", INTEGER, "4096", 16, 1 << 24, NULL, "training microbatch size, positions"),
    ROW(policy_loss.algorithm, "algorithm", CHOICE, "misc", 0, 0, "misc|gspo|grpo",
        "misc: ratio and clip per sequence, mismatch mask per token; gspo: both per sequence; grpo: both per token"),
    ROW(policy_loss.eps, "eps", NUMBER, "0.2", 0, 10, NULL,
        "clip range of the ratio; lower for long answers, e.g. 3e-4"),
    ROW(policy_loss.clip_high, "clip_high", NUMBER, "0", 0, 10, NULL,
        "clip range upwards, where eps is then the one downwards; 0: eps both ways"),
    ROW(policy_loss.mismatch_low, "mismatch_low", NUMBER, "0.5", 0, 1, NULL,
        "minimum ratio of training to rollout probability"),
    ROW(policy_loss.mismatch_high, "mismatch_high", NUMBER, "5", 1, 1e9, NULL,
        "maximum of this ratio; values outside are masked"),
    ROW(policy_loss.kl, "kl", NUMBER, "0", 0, 100, NULL, "weight of the KL divergence from the initial model"),
    ROW(policy_loss.kl_estimator, "kl_estimator", CHOICE, "k3", 0, 0, "k3|k2|k1",
        "estimate of this divergence by a drawn token, d = log pi_start - log pi: k3: exp(d) - d - 1; k2: d^2 / 2; "
        "k1: -d"),
    ROW(policy_loss.entropy, "entropy", NUMBER, "0", 0, 100, NULL,
        "weight of the mean entropy per token, which is maximized; 0: none"),
    ROW(policy_loss.overlong_buffer, "overlong.buffer", INTEGER, "0", 0, 1 << 20, NULL,
        "last tokens before max_tokens where answers lose reward for their length; 0: none"),
    ROW(policy_loss.overlong_penalty, "overlong.penalty", NUMBER, "1", 0, 1e9, NULL,
        "reward that an answer of max_tokens loses"),
    ROW(policy_loss.divide_by_std, "divide_by_std", BOOL, "true", 0, 0, NULL,
        "divide advantages by the group's sample standard deviation"),
    ROW(policy_loss.divide_by_set, "divide_by_set", BOOL, "false", 0, 0, NULL,
        "divide advantages by the sample standard deviation of the step's rewards in their set, not in their group"),
    ROW(policy_loss.advantage_eps, "advantage_eps", NUMBER, "1e-4", 0, 10, NULL, "added to this standard deviation"),
    ROW(policy_loss.mask_share, "mask.share", NUMBER, "0", 0, 1, NULL,
        "masking of well-learned positive answers; 0: none, 1: full"),
    ROW(policy_loss.mask_entropy, "mask.entropy", NUMBER, "0.05", 0, 100, NULL,
        "well learned: mean entropy below this, nats per token"),
    ROW(policy_loss.mask_success, "mask.success", NUMBER, "0.75", 0, 1, NULL,
        "and success rate of the prompt without hints above this"),
    ROW(policy_loss.mask_solved, "mask.solved", NUMBER, "1", -1e9, 1e9, NULL, "minimum reward of a successful answer"),
    ROW(policy_loss.hint_share, "hint.share", NUMBER, "0", 0, 1, NULL,
        "initial share of extra_info.think given as hint; 0: no hints"),
    ROW(policy_loss.hint_decay, "hint.decay", NUMBER, "0.05", 0, 100, NULL,
        "decay rate: hint.share * exp(-decay * step * pass@k of the initial model)"),
    ROW(policy_loss.hint_attempts, "hint.attempts", INTEGER, "4", 1, 1000, NULL,
        "k: answers whose best reward is pass@k, if extra_info.pass is missing"),
    ROW(policy_loss.hint_recheck, "hint.recheck", INTEGER, "0", 0, 1e9, NULL,
        "every so many times that a prompt comes it has no hint, and its answers are its pass@k from then on; 0: "
        "never"),
    GRADER_ROWS(struct rl_settings),
    OPTIMIZER_ROWS_SHAPED(struct rl_settings, "1e-4", "0.99", "0", "-10", "constant"), /* counted in updates */
    ROW(bias_speed, "bias_speed", SCHEDULE, "0", 0, 1, NULL, "update rate of the router's balancing bias"),
    ROW(weigh_scales, "weigh_scales", BOOL, "false", 0, 0, NULL,
        "weigh the positions of a picture's scale by 1 / side in its ratio and means; false: all alike"),
    ROW(replay_routes, "replay_routes", BOOL, "true", 0, 0, NULL, "train with the experts that the rollout selected"),
    ROW(recompute, "recompute", BOOL, "false", 0, 0, NULL, "activation checkpointing: keep only layer inputs"),
    TRAINING_ROWS(struct rl_settings, "10"),
    BEST_ROWS(struct rl_settings, "heldout, the mean reward on eval_prompts"),
    {0}};

/* Each held-out prompt counts alike. */
static int held_out_check(const struct source_list *sources)
{
    for (i64 i = 0; i < sources->count; i++) {
        const struct data_source *s = &sources->values[i];
        if (s->share.count || s->weight.count || s->epochs > 0)
            return error_usage("eval_prompts.%s: each held-out prompt counts alike: expected data alone", s->name);
    }
    return 0;
}

int rl_check_settings(const void *settings)
{
    const struct rl_settings *s = settings;
    if (lr_check(&s->optimizer, s->steps * s->minibatches, "steps times minibatches") ||
        best_check(&s->best, "eval_steps", s->eval_steps))
        return -1;
    if (best_on(&s->best) && strcmp(s->best.measure, "heldout") != 0)
        return error_usage("keep_best is %s: expected heldout, the mean reward on eval_prompts", s->best.measure);
    if (best_on(&s->best) && !prompt_sets_given(&s->eval_prompts))
        return error_usage("keep_best measures rewards on held-out prompts: expected eval_prompts");
    if (s->order == ORDER_FIRST && s->buffer_batches < 2)
        return error_usage("order is first, which chooses from a buffer: expected buffer_batches above 1");
    if (s->policy_loss.hint_recheck && s->policy_loss.hint_share <= 0)
        return error_usage("hint.recheck measures prompts with hints: expected hint.share above 0");
    if (s->policy_loss.overlong_buffer > s->max_tokens)
        return error_usage("overlong.buffer is %lld: expected at most max_tokens, %lld",
                           (long long)s->policy_loss.overlong_buffer, (long long)s->max_tokens);
    return prompt_sets_check(&s->prompts) || held_out_check(&s->eval_prompts) || grader_check_settings(&s->grader) ? -1
                                                                                                                   : 0;
}

int rl_check_machine(const void *settings)
{
    return grader_check_machine(&((const struct rl_settings *)settings)->grader);
}
