/* Learning rates: the schedule from the settings, and its value at a step. */
#include "train/train.h"

#include <math.h>

double lr_at(const struct lr_schedule *s, i64 step)
{
    static const double pi = 3.14159265358979323846;
    if (step < s->warmup)
        return s->peak * (double)(step + 1) / (double)s->warmup;
    if (s->shape == LR_CONSTANT)
        return s->peak;
    i64 start = s->shape == LR_COSINE ? s->warmup : s->decay_start;
    if (step < start)
        return s->peak;
    if (step >= s->total)
        return s->min;
    enum lr_decay decay = s->shape == LR_COSINE ? DECAY_COSINE : s->decay;
    double x = (double)(step - start) / (double)(s->total - start);
    double f = decay == DECAY_COSINE ? 0.5 * (1 + cos(pi * x)) : decay == DECAY_LINEAR ? 1 - x : 1 - sqrt(x);
    return s->min + (s->peak - s->min) * f;
}

struct lr_schedule lr_of_settings(const struct optimizer_settings *settings, i64 steps)
{
    i64 warmup = settings->warmup < 0 ? min_i64(-settings->warmup, steps / 2) : settings->warmup;
    return (struct lr_schedule){.peak = settings->lr,
                                .min = settings->lr * settings->min_lr_ratio,
                                .warmup = warmup,
                                .total = steps,
                                .decay_start = max_i64(warmup, steps - (i64)((double)steps * settings->decay_share)),
                                .shape = (enum lr_shape)settings->shape,
                                .decay = (enum lr_decay)settings->decay};
}

int lr_check(const struct optimizer_settings *settings, i64 steps, const char *key)
{
    if (settings->warmup <= steps)
        return 0;
    return error_usage("optimizer.warmup is %lld %s, and %s gives %lld: expected no more than those, or -%lld for as "
                       "many but at most half of them",
                       (long long)settings->warmup, plural(settings->warmup, "step", "steps"), key, (long long)steps,
                       (long long)settings->warmup);
}
