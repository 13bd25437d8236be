#include "sites/plan.h"

#include <math.h>

/* Not limited, so a link that is too slow for any number of steps is seen to be. */
static double steps_for(const struct plan_measures *m, i64 bits)
{
    const double sending = 0.8, merging = 0.01;
    double step_s = fmax(1e-4, m->step_s);
    double sent = (m->bytes[bits] / m->bytes_per_s + m->delay_s * (double)m->messages) / (sending * step_s);
    return fmax(PLAN_STEPS_LEAST, ceil(fmax(sent, m->merge_s / (merging * step_s))));
}

struct plan plan_choose(const struct plan_measures *m)
{
    double given = (double)m->given_steps;
    struct plan p = {m->given_steps, m->given_bits};
    if (!p.bits)
        p.bits = steps_for(m, 8) <= (p.steps ? given : steps_for(m, 4)) ? 8 : 4;
    if (!p.steps)
        p.steps = (i64)fmin(PLAN_STEPS_MOST, steps_for(m, p.bits));
    return p;
}
