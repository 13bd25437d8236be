#include "rl/objective.h"

#include <math.h>

bool advantages(double *advantage, const double *reward, i64 count, const struct policy_loss_settings *s)
{
    double mean = 0, square = 0;
    bool spread = false;
    for (i64 i = 0; i < count; i++) {
        mean += reward[i] / (double)count;
        spread |= reward[i] != reward[0];
    }
    for (i64 i = 0; i < count && spread; i++)
        square += (reward[i] - mean) * (reward[i] - mean) / (double)(count - 1);
    double scale = s->divide_by_std ? 1 / (sqrt(square) + s->advantage_eps) : 1;
    for (i64 i = 0; i < count; i++)
        advantage[i] = spread ? (reward[i] - mean) * scale : 0;
    return spread;
}

double overlong_penalty(const struct policy_loss_settings *s, i64 length, i64 most)
{
    i64 over = length - (most - s->overlong_buffer);
    if (s->overlong_buffer == 0 || over <= 0)
        return 0;
    return s->overlong_penalty * fmin(1, (double)over / (double)s->overlong_buffer);
}

double well_learned_weight(const struct policy_loss_settings *s, double advantage, double entropy, double success)
{
    return advantage > 0 && entropy < s->mask_entropy && success > s->mask_success ? 1 - s->mask_share : 1;
}

double hint_share(const struct policy_loss_settings *s, i64 step, double pass)
{
    return s->hint_share * exp(-s->hint_decay * (double)step * pass);
}
