#include "rl/step_figures.h"

#include "core/settings.h"
#include "rl/advantages.h"
#include "train/train.h"

#include <math.h>

/* ---- What was drawn ---- */

static double ids_of(struct rollout_group *const *groups, i64 count)
{
    double ids = 0;
    for (i64 i = 0; i < count; i++)
        for (i64 r = 0; r < groups[i]->size; r++)
            ids += (double)groups[i]->rollouts[r].answer.count;
    return ids;
}

void step_draws_before(struct step_draws *d, struct rollout_group *const *groups, i64 count)
{
    d->ids -= ids_of(groups, count);
}

void step_draws_after(struct step_draws *d, struct rollout_group *const *groups, i64 count)
{
    d->ids += ids_of(groups, count);
}

void step_draws_end(struct step_draws *d, struct rollout_group *const *groups, i64 count)
{
    for (i64 i = 0; i < count; i++)
        for (i64 c = 0; c < groups[i]->size; c++) {
            struct rollout *r = &groups[i]->rollouts[c];
            if (!r->answer.done || r->counted)
                continue;
            r->counted = true;
            d->answers++;
            d->length += (double)r->answer.count;
        }
}

/* ---- Answers that are trained on ---- */

struct eval_scores step_scores(const struct rl_settings *s, struct rollout_group *const *groups)
{
    struct eval_scores x = {0};
    double drawn = 0;
    for (i64 i = 0; i < s->prompts_per_step; i++)
        for (i64 c = 0; c < s->group; c++) {
            const struct answer *y = &groups[i]->rollouts[c].answer;
            x.reward += groups[i]->rollouts[c].reward;
            x.length += (double)y->count;
            x.ended += y->ended;
            x.answers++;
            for (i64 j = 0; j < y->count; j++) {
                x.entropy += y->given[j] ? 0 : y->entropy[j];
                drawn += !y->given[j];
            }
        }
    x.reward /= (double)x.answers;
    x.length /= (double)x.answers;
    x.ended /= (double)x.answers;
    x.entropy /= drawn;
    return x;
}

static void put_ages(struct metrics *metrics, const struct rl_settings *s, struct rollout_group *const *groups)
{
    double age = 0, ids = 0, oldest = 0;
    for (i64 i = 0; i < s->prompts_per_step; i++)
        for (i64 c = 0; c < s->group; c++) {
            const struct rollout *r = &groups[i]->rollouts[c];
            age += (double)r->age;
            ids += (double)rollout_drawn(r);
            oldest = fmax(oldest, (double)r->steps);
        }
    metrics_put(metrics, "age", age / ids);
    metrics_put(metrics, "oldest", oldest);
}

static void put_hints(struct metrics *metrics, const struct rl_settings *s, struct rollout_group *const *groups)
{
    double count[2] = {0, 0}, solved[2] = {0, 0};
    for (i64 i = 0; i < s->prompts_per_step; i++) {
        bool hinted = groups[i]->hint > 0;
        count[hinted]++;
        for (i64 c = 0; c < s->group; c++)
            solved[hinted] += groups[i]->rollouts[c].reward >= s->policy_loss.mask_solved;
    }
    metrics_put(metrics, "hint/prompts", count[1] / (double)s->prompts_per_step);
    if (count[1] > 0)
        metrics_put(metrics, "hint/solved", solved[1] / count[1] / (double)s->group);
    if (count[0] > 0)
        metrics_put(metrics, "hint/solved_without", solved[0] / count[0] / (double)s->group);
}

/* ---- By set ---- */

struct set_sums {
    double groups, answers, reward, length, spread;
};

static void add_group(struct set_sums *to, const struct rl_settings *s, const struct rollout_group *c)
{
    to->groups++;
    to->answers += (double)c->size;
    to->spread += group_spread(&s->policy_loss, c, s->max_tokens) == 1;
    for (i64 r = 0; r < c->size; r++) {
        to->reward += c->rollouts[r].reward;
        to->length += (double)c->rollouts[r].answer.count;
    }
}

static void put(struct metrics *metrics, const char *set, const char *figure, double value)
{
    char *key = string_format("set/%s/%s", set, figure);
    metrics_put(metrics, key, value);
    memory_free(key);
}

static void put_sets(struct metrics *metrics, const struct rl_settings *s, const struct prompts *prompts,
                     struct rollout_group *const *groups)
{
    for (i64 i = 0; i < prompts->set_count; i++) {
        struct set_sums sums = {0};
        for (i64 j = 0; j < s->prompts_per_step; j++)
            if (groups[j]->prompt->set == i)
                add_group(&sums, s, groups[j]);
        if (sums.groups == 0)
            continue;
        const char *name = prompts->sets[i].source->name;
        put(metrics, name, "reward", sums.reward / sums.answers);
        put(metrics, name, "length", sums.length / sums.answers);
        put(metrics, name, "spread", sums.spread / sums.groups);
    }
}

void step_figures_put(struct metrics *metrics, const struct rl_settings *s, const struct prompts *prompts,
                      struct rollout_group *const *groups)
{
    if (s->buffer_batches > 1)
        put_ages(metrics, s, groups);
    if (s->policy_loss.hint_share > 0)
        put_hints(metrics, s, groups);
    put_sets(metrics, s, prompts, groups);
}

static double mean_of_set(const struct prompt_set *set, const double *rewards)
{
    double sum = 0;
    for (i64 i = 0; i < set->count; i++)
        sum += rewards[set->first + i];
    return sum / (double)max_i64(set->count, 1);
}

void heldout_sets_put(struct metrics *metrics, const struct prompts *held_out, const double *rewards)
{
    for (i64 i = 0; i < held_out->set_count; i++) {
        char *key = string_format("heldout/%s/reward", held_out->sets[i].source->name);
        metrics_put(metrics, key, mean_of_set(&held_out->sets[i], rewards));
        memory_free(key);
    }
}

struct json *heldout_sets_json(const struct prompts *held_out, const double *rewards)
{
    struct json *out = json_object();
    for (i64 i = 0; i < held_out->set_count; i++) {
        struct json *set = json_object();
        json_set(set, "reward", json_of_number(mean_of_set(&held_out->sets[i], rewards)));
        json_set(set, "prompts", json_of_integer(held_out->sets[i].count));
        json_set(out, held_out->sets[i].source->name, set);
    }
    return out;
}

/* ---- Harm ---- */

struct reward_change reward_change_of(const double *start, const double *now, i64 prompts)
{
    struct reward_change c = {.prompts = prompts};
    double n = (double)prompts, squares = 0;
    for (i64 i = 0; i < prompts; i++) {
        c.start += start[i] / n;
        c.now += now[i] / n;
    }
    for (i64 i = 0; i < prompts; i++) {
        double off = now[i] - start[i] - (c.now - c.start);
        squares += off * off;
    }
    c.error = prompts > 1 ? sqrt(squares / (n - 1) / n) : NAN;
    return c;
}

bool reward_fell(const struct reward_change *c, double errors)
{
    double fall = c->start - c->now;
    return errors > 0 && c->prompts >= HARM_PROMPTS && fall > 0 && fall > errors * c->error;
}
