#include "sites/plan.h"

#include <math.h>

static const double room = 1.25; /* for links that are slower now and then */

/* Not limited, so a link that is too slow for any number of steps is seen to be. */
static double steps_for(const struct plan_measures *m, i64 bits)
{
    const double merging = 0.01;
    double sending_s = m->bytes[bits] / m->bytes_per_s + m->delay_s * (double)m->fragments;
    double steps = ceil(fmax(room * sending_s / m->step_s, m->merge_s / (merging * m->step_s)));
    return fmax(PLAN_STEPS_LEAST, steps);
}

/* A part goes to the site that listens, and comes back with those of others. */
static i64 delay_for(const struct plan_measures *m, const struct plan *p)
{
    const double apart = 0.25; /* steps that sites may be apart */
    double back_s = 2 * m->bytes[p->bits] / (double)m->fragments / m->bytes_per_s + m->delay_s;
    double delay = m->given.delay ? (double)m->given.delay : ceil(room * back_s / m->step_s + apart);
    return (i64)fmin(delay, (double)(p->steps - 1));
}

struct plan plan_choose(const struct plan_measures *m)
{
    struct plan p = m->given;
    if (!p.bits)
        p.bits = steps_for(m, 8) <= (p.steps ? (double)p.steps : steps_for(m, 4)) ? 8 : 4;
    if (!p.steps)
        p.steps = (i64)fmin(PLAN_STEPS_MOST, steps_for(m, p.bits));
    p.delay = delay_for(m, &p);
    return p;
}

bool plan_is_given(const struct plan *given)
{
    return given->steps && given->bits && (given->delay || given->steps == 1);
}
