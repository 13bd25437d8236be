#include "rl/advantages.h"

#include <math.h>

double answer_penalty(const struct policy_loss_settings *s, const struct answer *a, i64 most)
{
    bool scaled = a->medium.kind == STREAM_IMAGE_OUT || a->medium.kind == STREAM_VIDEO_OUT;
    if (a->has_medium && scaled)
        return 0;
    return overlong_penalty(s, a->has_medium ? a->medium.frames : a->count, most);
}

/* False: some are missing. */
static bool fill_rewards(double *reward, const struct policy_loss_settings *s, const struct rollout_group *c, i64 most)
{
    bool graded = true;
    for (i64 r = 0; r < c->size; r++) {
        reward[r] = c->rollouts[r].reward - answer_penalty(s, &c->rollouts[r].answer, most);
        graded &= !c->rollouts[r].ungraded;
    }
    return graded;
}

int group_spread(const struct policy_loss_settings *s, const struct rollout_group *c, i64 most)
{
    double *reward = memory_alloc(c->size * 8);
    int spread = fill_rewards(reward, s, c, most) ? 0 : -1;
    for (i64 r = 1; r < c->size && spread == 0; r++)
        spread = reward[r] != reward[0];
    memory_free(reward);
    return spread;
}

struct reward_moments { /* of the answers of a set */
    double n, mean, squares;
};

/* One more reward (Welford 1962). */
static void add_reward(struct reward_moments *m, double reward)
{
    double off = reward - m->mean;
    m->n++;
    m->mean += off / m->n;
    m->squares += off * (reward - m->mean);
}

double *set_deviations(const struct policy_loss_settings *s, struct rollout_group *const *groups, i64 count, i64 most)
{
    i64 sets = 1, size = 1;
    for (i64 i = 0; i < count; i++) {
        sets = max_i64(sets, groups[i]->prompt->set + 1);
        size = max_i64(size, groups[i]->size);
    }
    struct reward_moments *all = memory_alloc(sets * (i64)sizeof *all);
    double *deviation = memory_alloc(sets * 8), *reward = memory_alloc(size * 8);
    for (i64 i = 0; i < count; i++) {
        bool graded = fill_rewards(reward, s, groups[i], most);
        for (i64 r = 0; r < groups[i]->size && graded; r++)
            add_reward(&all[groups[i]->prompt->set], reward[r]);
    }
    for (i64 i = 0; i < sets; i++)
        deviation[i] = all[i].n > 1 ? sqrt(all[i].squares / (all[i].n - 1)) : 0;
    memory_free(all);
    memory_free(reward);
    return deviation;
}

bool group_advantages(double *advantage, const struct policy_loss_settings *s, const struct rollout_group *c, i64 most,
                      const double *deviation)
{
    struct policy_loss_settings plain = *s;
    double *reward = memory_alloc(c->size * 8);
    plain.divide_by_std &= !deviation;
    bool spread = fill_rewards(reward, s, c, most) && advantages(advantage, reward, c->size, &plain);
    for (i64 r = 0; r < c->size && spread && deviation; r++)
        advantage[r] /= deviation[c->prompt->set] + s->advantage_eps;
    memory_free(reward);
    return spread;
}
