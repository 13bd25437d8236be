/* The stage rl: its loop over steps, measurements in between, checkpoints. */
#include "rl/rl.h"

#include "core/json.h"
#include "rl/advantages.h"
#include "rl/memory_estimate.h"
#include "rl/learn.h"
#include "rl/prompt_media.h"
#include "rl/replay_buffer.h"
#include "rl/step_figures.h"
#include "train/pretrain.h"
#include "train/taught.h"

#include <math.h>
#include <string.h>

struct stage_run { /* state of one call */
    const struct rl_settings *s;
    const struct stage *stage;
    struct model model, start, rollout; /* rollout: in the form that answers are drawn with */
    bool has_start, has_rollout;
    struct submodel policy; /* the full model, or settings.sub */
    struct arena policy_memory;
    struct text_tokenizer *tokenizer;
    struct prompt_media media;
    struct prompts prompts, held_out;
    struct replay_buffer buffer;
    struct replay_buffer_mark mark;
    struct sampler sampler;
    struct learner learner;
    struct grader *grader;
    struct judge judge;
    struct json *heldout;                /* rewards on held-out prompts, at start and end */
    double *start_rewards, *now_rewards; /* [held-out prompts] before the first step, and as measured last */
    bool knows_start;
    i64 texts_held_out;        /* held-out prompts that ask for text, when measured last */
    struct best_settings best; /* the settings', until a fall ends the stage */
    double *success;           /* [prompts] running success rate; -1: unknown */
    i64 updates;
};
struct step_times {
    double draw, grader, learn;
    struct step_draws draws;
};

/* ---- Opening ---- */

static int open_start(struct stage_run *r)
{
    if (r->s->policy_loss.kl <= 0)
        return 0;
    if (model_load(&r->start, r->stage->device, r->s->from, r->stage->dtype, false))
        return error_prefix("the model of kl");
    r->has_start = true;
    return 0;
}

static int open_rollout(struct stage_run *r)
{
    enum rollout_weights form = (enum rollout_weights)r->s->rollout_weights;
    if (form == ROLLOUT_STORED)
        return 0;
    if (rollout_model_open(&r->rollout, r->stage->device, &r->model.config, r->stage->dtype, form))
        return -1;
    r->has_rollout = true;
    return 0;
}

static bool is_set(const char *text)
{
    return text && *text;
}

static int open_policy(struct stage_run *r)
{
    struct submodel_name name;
    submodel_full(&r->policy, &r->model.config);
    if (!is_set(r->s->sub))
        return 0;
    if (submodel_name_load(&name, r->s->from, r->s->sub))
        return -1;
    int status = submodel_parse(&r->policy, &r->policy_memory, &name.options, &r->model);
    submodel_name_release(&name);
    r->policy.counts = false;
    return status;
}

static int open_prompts(struct stage_run *r)
{
    r->tokenizer = text_tokenizer_load(r->s->from);
    r->media = (struct prompt_media){r->stage->device, r->s->from, r->stage->dtype};
    if (!r->tokenizer || text_chat_set_day(r->tokenizer, r->s->day) < 0 ||
        prompt_sets_load(&r->prompts, &(struct prompt_files){&r->s->prompts, "prompts", 0}, r->tokenizer, &r->media))
        return -1;
    if (!prompt_sets_given(&r->s->eval_prompts))
        return 0;
    const struct prompt_files held_out = {&r->s->eval_prompts, "eval_prompts", r->s->eval_limit};
    if (prompt_sets_load(&r->held_out, &held_out, r->tokenizer, &r->media))
        return -1;
    i64 common = prompts_in_common(&r->held_out, &r->prompts);
    if (common)
        log_warn("held-out: %lld of %lld %s of eval_prompts %s, so their rewards flatter", (long long)common,
                 (long long)r->held_out.count, plural(r->held_out.count, "prompt", "prompts"),
                 plural(common, "is a training prompt too", "are training prompts too"));
    return 0;
}

struct sampler_room rl_room(const struct rl_settings *s, const struct prompts *prompts, const struct generator *media)
{
    i64 all = s->prompts_per_step * s->buffer_batches;
    return (struct sampler_room){min_i64(s->slots ? s->slots : all, all),
                                 s->group,
                                 prompts->longest,
                                 s->max_tokens,
                                 .as_trained = true,
                                 .media = media,
                                 .longest_medium = prompts->longest_medium};
}

static int open_sampler(struct stage_run *r)
{
    const struct rl_settings *s = r->s;
    const struct sampler_room room = rl_room(s, &r->prompts, prompt_media_of(&r->media));
    if (sampler_open(&r->sampler, r->has_rollout ? &r->rollout : &r->model, &r->policy, r->tokenizer, &room))
        return -1;
    r->buffer.route_width = r->sampler.route_width;
    r->buffer.media = room.media;
    r->sampler.sampling.temperature = (float)s->temperature;
    r->sampler.sampling.key = (struct rng_key){r->stage->seed, RNG_SAMPLING};
    return 0;
}

static void open_learner(struct stage_run *r)
{
    const struct rl_settings *s = r->s;
    learner_open(&r->learner, &r->model, &r->sampler.vocabulary, &s->policy_loss, s->minibatches, s->micro_positions);
    r->learner.route_width = s->replay_routes ? r->sampler.route_width : 0;
    r->learner.policy = sampler_policy(&r->sampler);
    r->learner.media = r->sampler.media;
    r->learner.weigh_scales = s->weigh_scales;
    r->learner.max_tokens = s->max_tokens;
    r->learner.trainer.sub = is_set(s->sub) ? &r->policy : NULL;
    r->learner.start = r->has_start ? &r->start : NULL;
    r->learner.trainer.optimizer = &s->optimizer;
    r->learner.trainer.lr = lr_of_settings(&s->optimizer, s->steps * s->minibatches);
    r->learner.trainer.bias_speed = s->bias_speed;
    r->learner.trainer.seed = r->stage->seed;
    r->learner.trainer.recompute = s->recompute;
}

/* ---- Held-out prompts ---- */

/* What decodes answers that are media; NULL: they are text. */
static struct generator *media_decoder(struct stage_run *r)
{
    return r->media.opened ? &r->media.generator : NULL;
}

static struct judge *judge_of(struct stage_run *r)
{
    return is_set(r->s->grader.judge) ? &r->judge : NULL;
}

static int measure(struct eval_scores *out, const struct eval_details *kept, struct stage_run *r,
                   const struct prompts *prompts, double temperature, i64 copies)
{
    struct sampler sampler;
    const struct sampler_room room = {min_i64(RL_EVAL_SEATS, prompts->count),
                                      copies,
                                      prompts->longest,
                                      r->s->max_tokens,
                                      .media = prompt_media_of(&r->media),
                                      .longest_medium = prompts->longest_medium};
    struct grader *grader = grader_open(&r->s->grader, r->tokenizer, media_decoder(r), judge_of(r), NULL, 0);
    int status = sampler_open(&sampler, &r->model, &r->policy, r->tokenizer, &room);
    if (status == 0)
        status = eval_prompts(out, kept, &sampler, grader, prompts, temperature, copies,
                              hash_bytes("held out", 8, r->stage->seed));
    sampler_close(&sampler);
    grader_close(grader);
    return status;
}

/* Compares what was measured last with the start. -1 and a message: it fell, and no better step is kept. */
static int check_harm(struct stage_run *r, i64 step)
{
    if (!r->knows_start || r->held_out.count == 0)
        return 0;
    struct reward_change c = reward_change_of(r->start_rewards, r->now_rewards, r->held_out.count);
    if (!reward_fell(&c, r->s->stop_below))
        return 0;
    char *said = string_format("step %lld: the held-out reward fell from %.3f to %.3f, by more than %g standard "
                               "errors of %.3f over %lld %s",
                               (long long)step, c.start, c.now, r->s->stop_below, c.error, (long long)c.prompts,
                               plural(c.prompts, "prompt", "prompts"));
    r->best.patience = 1; /* and this measurement is not the best */
    int status = 0;
    if (best_on(&r->s->best))
        log_warn("%s: training ends here, and the best step is the result", said);
    else
        status = error_set("%s: training harms the model. Lower optimizer.lr, which is %g, or keep the best step "
                           "(keep_best: heldout); stop_below: 0 goes on",
                           said, r->s->optimizer.lr);
    memory_free(said);
    return status;
}

/* Measures at the training temperature and greedily. */
static int measure_heldout(struct stage_run *r, const char *when)
{
    struct eval_scores sampled, greedy;
    if (r->held_out.count == 0)
        return 0;
    char *name = string_format("heldout-%s", when);
    struct eval_details shown = {
        .answers = json_array(), .folder = r->stage->out, .name = name, .media = media_decoder(r)};
    int status =
        measure(&sampled, &(struct eval_details){.best = r->now_rewards}, r, &r->held_out, r->s->temperature, 1);
    if (status == 0)
        status = measure(&greedy, &shown, r, &r->held_out, 0, 1);
    memory_free(name);
    if (status) {
        json_free(shown.answers);
        return status;
    }
    log_info("held-out %s: reward %.3f +- %.3f, greedy %.3f, entropy %.3f, length %.1f", when, sampled.reward,
             sampled.error, greedy.reward, sampled.entropy, sampled.length);
    r->texts_held_out = sampled.texts;
    if (sampled.texts)
        log_info("held-out %s: %.1f %% of the answers (greedy %.1f %%) have the characters of the right one in another "
                 "order",
                 when, 100 * sampled.reordered, 100 * greedy.reordered);
    struct json *both = json_object();
    json_set(both, "sampled", eval_scores_json(&sampled));
    json_set(both, "greedy", eval_scores_json(&greedy));
    json_set(both, "answers", shown.answers);
    if (r->held_out.set_count)
        json_set(both, "sets", heldout_sets_json(&r->held_out, r->now_rewards));
    json_set(r->heldout, when, both);
    return 0;
}

/* ---- Hints: success of the model without them ---- */

/* Measures pass@k of the initial model: the best reward of k answers [R eq. 5]. */
static int measure_passes(struct stage_run *r)
{
    struct eval_scores scores;
    struct prompts unknown = {.list = memory_alloc(r->prompts.count * (i64)sizeof(struct task)),
                              .longest = r->prompts.longest,
                              .longest_medium = r->prompts.longest_medium};
    double *passes = memory_alloc(r->prompts.count * 8);
    i64 *index = memory_alloc(r->prompts.count * 8);
    for (i64 i = 0; i < r->prompts.count && r->s->policy_loss.hint_share > 0; i++)
        if (r->buffer.pass[i] < 0 && r->prompts.list[i].think.count) {
            index[unknown.count] = i;
            unknown.list[unknown.count++] = r->prompts.list[i];
        }
    struct eval_details kept = {.best = passes};
    int status =
        unknown.count ? measure(&scores, &kept, r, &unknown, r->s->temperature, r->s->policy_loss.hint_attempts) : 0;
    for (i64 i = 0; i < unknown.count && status == 0; i++)
        r->buffer.pass[index[i]] = passes[i];
    if (unknown.count && status == 0)
        log_info("hints: without any, the answers to %lld %s a mean reward of %.3f", (long long)unknown.count,
                 plural(unknown.count, "prompt have", "prompts have"), scores.reward);
    memory_free(unknown.list); /* its prompts are borrowed */
    memory_free(passes);
    memory_free(index);
    return status;
}

/* ---- Checkpoints ---- */

/* The trained sub-model keeps its name, and the others theirs. */
static int copy_names(const struct stage_run *r, const char *folder)
{
    static const char file[] = "weft/submodels.json";
    if (!is_set(r->s->sub))
        return 0;
    char *from = path_join(r->s->from, file), *to = path_join(folder, file);
    int status = file_copy(to, from);
    memory_free(from);
    memory_free(to);
    return status;
}

static int save(void *context, const char *folder)
{
    struct stage_run *r = context;
    int status = model_save(&r->model, folder) || copy_tokenizers(folder, r->s->from) || copy_names(r, folder) ? -1 : 0;
    return status ? status : taught_copy(folder, r->s->from);
}

static const char pool_file[] = "weft/rollouts.safetensors";

static int write_state(void *context, struct json *state, const char *folder)
{
    struct stage_run *r = context;
    char *path = path_join(folder, pool_file);
    i64 uses = model_use_count(&r->model.config);
    double *use = memory_alloc(uses * 8);
    model_use_get(use, &r->model);
    json_set(state, "updates", json_of_integer(r->updates));
    json_set(state, "success", json_of_numbers(r->success, r->prompts.count));
    json_set(state, "pass", json_of_numbers(r->buffer.pass, r->prompts.count));
    json_set(state, "expert_use", json_of_numbers(use, uses));
    json_set(state, "heldout", json_copy(r->heldout));
    if (r->knows_start)
        json_set(state, "start_rewards", json_of_numbers(r->start_rewards, r->held_out.count));
    int status = replay_buffer_save(&r->buffer, path);
    memory_free(use);
    memory_free(path);
    return status;
}

/* What the model's files and rl.json say of the steps so far. */
static int restore(void *context, i64 step, const struct json *state, const char *folder)
{
    struct stage_run *r = context;
    i64 uses = model_use_count(&r->model.config);
    double *use = memory_alloc(uses * 8);
    (void)step;
    (void)folder;
    r->updates = json_integer(json_get(state, "updates"), 0);
    json_numbers(use, uses, json_get(state, "expert_use"));
    model_use_put(&r->model, use);
    memory_free(use);
    return 0;
}

static int read_state(struct stage_run *r, const struct json *state, const char *folder)
{
    if (json_count(json_get(state, "success")) != r->prompts.count)
        return error_set("%s belongs to other prompts; remove %s/checkpoints to start again", folder, r->stage->out);
    char *path = path_join(folder, pool_file);
    json_numbers(r->success, r->prompts.count, json_get(state, "success"));
    json_numbers(r->buffer.pass, r->prompts.count, json_get(state, "pass"));
    json_free(r->heldout);
    r->heldout = json_copy(json_get(state, "heldout"));
    const struct json *rewards = json_get(state, "start_rewards"); /* checkpoints of before have none */
    r->knows_start = r->held_out.count && json_count(rewards) == r->held_out.count;
    if (r->knows_start)
        json_numbers(r->start_rewards, r->held_out.count, rewards);
    int status = replay_buffer_load(&r->buffer, path);
    memory_free(path);
    return status;
}

/* Measurements before the first step are skipped when
 * resuming; they are in the checkpoint's state. */
static int begin(void *context, i64 step, const struct json *state, const char *folder)
{
    struct stage_run *r = context;
    r->grader = grader_open(&r->s->grader, r->tokenizer, media_decoder(r), judge_of(r), r->stage->out, step);
    if (!r->grader || grader_check(r->grader, &r->prompts) || grader_check(r->grader, &r->held_out))
        return -1;
    if (state)
        return restore(r, step, state, folder) || read_state(r, state, folder) ? -1 : 0;
    int status = measure_heldout(r, "start");
    if (status == 0 && r->held_out.count) {
        memcpy(r->start_rewards, r->now_rewards, (size_t)r->held_out.count * 8);
        r->knows_start = true;
    }
    if (status == 0)
        status = measure_passes(r);
    return status == ROLLOUT_STOPPED ? STAGE_INTERRUPTED : status;
}

/* ---- One step ---- */

/* Samples the step's rollout groups to the end and others as far as they come. While the grader
 * answers with observations, sampling continues. */
static int draw_and_grade(struct stage_run *r, struct step_times *times, i64 step, struct progress *bar)
{
    struct replay_buffer *p = &r->buffer;
    i64 open = 1, mine = r->s->prompts_per_step;
    bool choose = r->s->order == ORDER_FIRST && p->replaced_count == 0;
    while (open) {
        double begin = clock_s();
        step_draws_before(&times->draws, p->rollout_groups, p->count);
        int status = choose ? rollouts_draw_any(&r->sampler, p->rollout_groups, p->count, mine, NULL)
                            : rollouts_draw(&r->sampler, p->rollout_groups, p->count, mine, NULL);
        if (choose)
            replay_buffer_choose_done(p);
        choose = false; /* observations go to those that were chosen */
        step_draws_after(&times->draws, p->rollout_groups, p->count);
        times->draw += clock_s() - begin;
        begin = clock_s();
        if (status == 0)
            status = grade_rollouts(&open, r->grader, p->rollout_groups, mine, step, r->s->max_tokens);
        times->grader += clock_s() - begin;
        if (status)
            return status;
        progress_update(bar, step, "answered");
    }
    step_draws_end(&times->draws, p->rollout_groups, p->count);
    return 0;
}

/* Running success rate per prompt, an average with weight 0.5, since a prompt recurs only a few
 * times. Rollout groups with a hint or ungraded answers are skipped. */
static void move_success(struct stage_run *r, struct rollout_group *const *groups)
{
    for (i64 i = 0; i < r->s->prompts_per_step; i++) {
        const struct rollout_group *c = groups[i];
        double *success = &r->success[c->prompt_index], now = rollout_group_success(c, r->s->policy_loss.mask_solved);
        if (now >= 0)
            *success = *success < 0 ? now : 0.5 * (*success + now);
    }
}

/* Answers of a recheck are pass@k from now on: the best reward of the first k. */
static void move_passes(struct stage_run *r, struct rollout_group *const *groups)
{
    for (i64 i = 0; i < r->s->prompts_per_step; i++) {
        const struct rollout_group *c = groups[i];
        double best = -INFINITY;
        bool graded = c->recheck;
        for (i64 k = 0; k < min_i64(c->size, r->s->policy_loss.hint_attempts); k++) {
            best = fmax(best, c->rollouts[k].reward);
            graded &= !c->rollouts[k].ungraded;
        }
        if (graded)
            r->buffer.pass[c->prompt_index] = best;
    }
}

/* Of the prompts for media; NaN: there are none. */
static double mean_distance(const struct stage_run *r, struct rollout_group *const *groups)
{
    double sum = 0, count = 0;
    for (i64 i = 0; i < r->s->prompts_per_step; i++) {
        double distance = media_distance(groups[i], &r->sampler);
        sum += isfinite(distance) ? distance : 0;
        count += isfinite(distance);
    }
    return sum / count;
}

static void log_step(struct training_step *said, const struct stage_run *r, const struct eval_scores *x,
                     const struct learn_result *y, const struct step_times *t, i64 redrawn)
{
    struct metrics *m = said->metrics;
    double responses = fmax(1, y->sums.responses), spread = (double)y->spread / (double)y->rollout_groups;
    metrics_put(m, "reward", x->reward);
    metrics_put(m, "entropy", x->entropy);
    metrics_put(m, "length", x->length);
    if (r->s->buffer_batches > 1 && t->draws.answers > 0)
        metrics_put(m, "length_drawn", t->draws.length / t->draws.answers);
    metrics_put(m, "ended", x->ended);
    metrics_put(m, "spread", spread);
    metrics_put(m, "clipped", y->sums.clipped / responses);
    metrics_put(m, "masked", y->sums.masked / responses);
    metrics_put(m, "masked_answers", y->sums.all_masked / responses);
    metrics_put(m, "mismatch", y->sums.mismatch / responses);
    metrics_put(m, "ratio_distance", y->sums.ratio / responses);
    if (r->has_start)
        metrics_put(m, "kl", y->sums.kl / responses);
    if (r->s->policy_loss.mask_share > 0)
        metrics_put(m, "well_learned", y->well_learned);
    if (r->s->redraw)
        metrics_put(m, "redrawn", (double)redrawn);
    if (r->s->policy_loss.overlong_buffer)
        metrics_put(m, "overlong", y->overlong);
    metrics_put(m, "draw_s", t->draw);
    metrics_put(m, "judge_s", t->grader);
    metrics_put(m, "learn_s", t->learn);
    if (t->draws.ids > 0)
        metrics_put(m, "drawn_per_s", t->draws.ids / t->draw);
    said->optimizer = y->optimizer;
    said->count = (double)y->positions;
    said->seconds = y->seconds;
    said->flops = y->flops;
    buffer_printf(&said->note, "reward %.3f spread %.2f entropy %.3f clipped %.2f length %.1f", x->reward, spread,
                  x->entropy, y->sums.clipped / responses, x->length);
}

/* Share of the held-out prompts, which have no hint, whose answer solves them. */
static double heldout_solved(const struct stage_run *r)
{
    double solved = 0;
    for (i64 i = 0; i < r->held_out.count; i++)
        solved += r->now_rewards[i] >= r->s->policy_loss.mask_solved;
    return solved / (double)r->held_out.count;
}

/* Measures every eval_steps steps, and for keep_best before the first step and after the last. */
static int measure_step(double *value, void *context, i64 step, struct metrics *metrics)
{
    struct stage_run *r = context;
    struct eval_scores x;
    bool keeps = best_on(&r->s->best), edge = step == 0 || step == r->s->steps;
    *value = NAN;
    if (r->held_out.count == 0 || r->s->eval_steps == 0 || (edge ? !keeps : step % r->s->eval_steps != 0))
        return 0;
    int status = measure(&x, &(struct eval_details){.best = r->now_rewards}, r, &r->held_out, r->s->temperature, 1);
    if (status)
        return interrupted() ? STAGE_INTERRUPTED : status;
    log_info("step %lld: held-out reward %.3f, entropy %.3f", (long long)step, x.reward, x.entropy);
    metrics_put(metrics, "heldout/reward", x.reward);
    metrics_put(metrics, "heldout/entropy", x.entropy);
    metrics_put(metrics, "heldout/length", x.length);
    metrics_put(metrics, "heldout/solved", heldout_solved(r));
    heldout_sets_put(metrics, &r->held_out, r->now_rewards);
    *value = x.reward;
    return check_harm(r, step);
}

/* Replaces groups of equal rewards, for the `time`-th time. Returns their number. */
static i64 replace_flat(struct stage_run *r, i64 time)
{
    i64 count = 0;
    for (i64 i = 0; i < r->s->prompts_per_step; i++)
        if (group_spread(&r->s->policy_loss, r->buffer.rollout_groups[i], r->s->max_tokens) == 0) {
            replay_buffer_redraw(&r->buffer, i, time);
            count++;
        }
    return count;
}

/* Draws groups without spread again, at most `redraw` times. *redrawn: how many, each time counted. */
static int draw_again(i64 *redrawn, struct stage_run *r, struct step_times *times, i64 step, struct progress *bar)
{
    int status = 0;
    for (i64 time = 1; time <= r->s->redraw && status == 0; time++) {
        i64 count = replace_flat(r, time);
        if (count == 0)
            break;
        *redrawn += count;
        status = draw_and_grade(r, times, step, bar);
    }
    return status;
}

/* Figures and success are of the first draws, which no reward has chosen. */
static struct eval_scores note_answers(struct stage_run *r, struct metrics *metrics)
{
    struct rollout_group **first = memory_alloc(r->s->prompts_per_step * (i64)sizeof *first);
    replay_buffer_first(first, &r->buffer);
    move_success(r, first);
    move_passes(r, first);
    struct eval_scores scores = step_scores(r->s, first);
    double distance = mean_distance(r, first);
    if (isfinite(distance))
        metrics_put(metrics, "media_distance", distance);
    step_figures_put(metrics, r->s, &r->prompts, first);
    memory_free(first);
    return scores;
}

static int run_step(void *context, i64 step, struct training_step *said)
{
    struct stage_run *r = context;
    struct learn_result learnt;
    struct step_times times = {0};
    i64 redrawn = 0;
    replay_buffer_mark(&r->mark, &r->buffer);
    if (r->has_rollout)
        rollout_model_take(&r->rollout, &r->model);
    if (replay_buffer_fill(&r->buffer, step, &r->s->policy_loss))
        return -1;
    int status = draw_and_grade(r, &times, step, said->bar);
    if (status == 0)
        status = draw_again(&redrawn, r, &times, step, said->bar);
    if (status && interrupted()) { /* discard: the repeated step gives the same result */
        replay_buffer_rewind(&r->buffer, &r->mark);
        return STAGE_INTERRUPTED;
    }
    if (status)
        return status;
    struct eval_scores scores = note_answers(r, said->metrics);
    if (learner_step(&learnt, &r->learner, r->buffer.rollout_groups, r->s->prompts_per_step, r->success, r->updates))
        return -1;
    r->updates += learnt.updates;
    replay_buffer_drop(&r->buffer);
    times.learn = learnt.seconds;
    log_step(said, r, &scores, &learnt, &times, redrawn);
    return 0;
}

static int finish(struct stage_run *r)
{
    int status = measure_heldout(r, "end");
    if (status)
        return status == ROLLOUT_STOPPED ? STAGE_INTERRUPTED : status;
    struct json *j = json_object();
    char *path = path_join(r->stage->out, "rl.json");
    json_set(j, "steps", json_of_integer(r->s->steps));
    json_set(j, "updates", json_of_integer(r->updates));
    json_set(j, "heldout", json_copy(r->heldout));
    if (r->held_out.count) {
        json_set(j, "heldout_prompts", json_of_integer(r->held_out.count));
        json_set(j, "trained_on", json_of_integer(prompts_in_common(&r->held_out, &r->prompts)));
    }
    if (r->texts_held_out) {
        const char *truth;
        json_set(j, "constant", json_of_number(prompts_constant(&r->held_out, &r->prompts, &truth)));
        json_set(j, "constant_answer", json_of_string(truth));
    }
    status = json_save(path, j);
    memory_free(path);
    json_free(j);
    return status ? status : check_harm(r, r->s->steps);
}

static int train(struct stage_run *r)
{
    struct training training = {.stage = r->stage,
                                .settings = &r->s->training,
                                .steps = r->s->steps,
                                .unit = "tokens",
                                .weights = &r->model.weights,
                                .best = &r->best,
                                .higher = true,
                                .context = r,
                                .begin = begin,
                                .measure = measure_step,
                                .restore = restore,
                                .step = run_step,
                                .save = save,
                                .state = write_state};
    int status = training_run(&training);
    return status ? status : finish(r);
}

/* What is estimated before it begins: weights, rollout cache and the training step together. */
static struct rl_work work_of(const struct stage_run *r, const struct model_config *config)
{
    return (struct rl_work){.settings = r->s,
                            .config = config,
                            .tokenizer = r->tokenizer,
                            .prompts = &r->prompts,
                            .held_out = &r->held_out,
                            .dtype = r->stage->dtype,
                            .fp8 = r->stage->fp8,
                            .media = prompt_media_of(&r->media)};
}

static int check_memory(const struct stage_run *r)
{
    struct model_config config;
    if (model_config_load(&config, r->s->from))
        return -1;
    const struct rl_work work = work_of(r, &config);
    return rl_check_memory(&work, r->stage->device);
}

static void close_prompts(struct stage_run *r)
{
    if (r->tokenizer)
        text_tokenizer_free(r->tokenizer);
    prompts_release(&r->prompts);
    prompts_release(&r->held_out);
    prompt_media_close(&r->media);
}

int rl_stage_needs(struct rl_needs *out, const void *settings, const struct stage *stage, struct device *meta)
{
    struct stage_run r = {.s = settings, .stage = stage};
    struct model_config config;
    int status = model_config_load(&config, r.s->from) || open_prompts(&r) ? -1 : 0;
    if (status == 0) {
        const struct rl_work work = work_of(&r, &config);
        struct model *model = memory_alloc(sizeof *model);
        *out = (struct rl_needs){
            .active = model_parameters_active(&config), .prompts = r.prompts.count, .held_out = r.held_out.count};
        status = model_open(model, meta, &config, stage->dtype, false, NULL);
        out->parameters = weights_parameters(&model->weights);
        model_close(model);
        memory_free(model);
        if (status == 0)
            status = rl_estimate(&out->memory, &work, meta);
    }
    close_prompts(&r);
    return status;
}

static int open_model(struct stage_run *r)
{
    const struct stage *stage = r->stage;
    if (open_prompts(r) || check_memory(r))
        return -1;
    return model_load(&r->model, stage->device, r->s->from, stage->dtype, true);
}

static int run_with_model(struct stage_run *r)
{
    if (open_start(r) || open_rollout(r))
        return -1;
    if (is_set(r->s->grader.judge) && judge_open(&r->judge, r->stage->device, r->s->grader.judge, r->stage->dtype))
        return -1;
    if (open_policy(r))
        return -1;
    r->success = memory_alloc(r->prompts.count * 8);
    r->start_rewards = memory_alloc(max_i64(1, 2 * r->held_out.count) * 8);
    r->now_rewards = r->start_rewards + r->held_out.count;
    for (i64 i = 0; i < r->prompts.count; i++)
        r->success[i] = -1;
    replay_buffer_open(&r->buffer, &r->prompts, r->tokenizer, r->s->prompts_per_step, r->s->group, r->s->buffer_batches,
                       r->stage->seed);
    r->buffer.redraw = r->s->redraw;
    r->buffer.recheck = r->s->policy_loss.hint_share > 0 ? r->s->policy_loss.hint_recheck : 0;
    int status = open_sampler(r);
    if (status == 0) {
        struct model_config *c = &r->model.config;
        i64 longest = r->prompts.longest + max_i64(r->s->max_tokens, r->prompts.longest_medium);
        c->max_positions = max_i64(c->max_positions, longest);
        model_config_add_end(c, r->sampler.vocabulary.end);
        model_config_add_end(c, r->sampler.vocabulary.message_end);
        open_learner(r);
        status = train(r);
        learner_close(&r->learner);
    }
    sampler_close(&r->sampler);
    replay_buffer_close(&r->buffer);
    return status;
}

int rl_stage(const void *settings, const struct stage *stage)
{
    const struct rl_settings *s = settings;
    struct stage_run *r = memory_alloc(sizeof *r);
    r->s = s;
    r->best = s->best;
    r->stage = stage;
    r->heldout = json_object();
    arena_open(&r->policy_memory, 64 << 20);
    int status = open_model(r);
    if (status == 0) {
        if (stage->fp8)
            weights_fp8(&r->model.weights);
        status = run_with_model(r);
        model_close(&r->model);
    }
    if (r->has_start)
        model_close(&r->start);
    if (r->has_rollout)
        model_close(&r->rollout);
    close_prompts(r);
    replay_buffer_mark_release(&r->mark);
    grader_close(r->grader);
    judge_close(&r->judge);
    json_free(r->heldout);
    arena_close(&r->policy_memory);
    memory_free(r->success);
    memory_free(r->start_rewards);
    memory_free(r);
    return status;
}
