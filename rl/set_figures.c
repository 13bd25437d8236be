#include "rl/set_figures.h"

#include "core/settings.h"
#include "rl/advantages.h"
#include "train/train.h"

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

void set_figures_put(struct metrics *metrics, const struct rl_settings *s, const struct prompts *prompts,
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
