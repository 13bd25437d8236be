/* A step as it was foreseen, beside the steps of a run. */
#include "dist/cluster.h"
#include "dist/deal.h"

#include <math.h>
#include <stdlib.h>

#define TOLERATED 0.15

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct foreseen *)a)->seconds, y = ((const struct foreseen *)b)->seconds;
    return (x > y) - (x < y);
}

bool foreseen_add(struct foreseen *measured, struct foreseen_check *c, double seconds, const struct rank_pace *all,
                  i64 ranks)
{
    i64 at = c->seen - FORESEEN_SKIPS;
    double calls_s = 0, least_s = all ? INFINITY : 0;
    if (at >= FORESEEN_STEPS)
        return false;
    c->seen++;
    for (i64 r = 0; r < ranks && all; r++) {
        calls_s += all[r].calls_s / (double)ranks;
        least_s = fmin(least_s, all[r].calls_s);
    }
    if (at >= 0)
        c->steps[at] = (struct foreseen){
            .seconds = seconds, .computing_s = seconds - calls_s, .links_s = least_s, .waiting_s = calls_s - least_s};
    if (at + 1 < FORESEEN_STEPS)
        return false;
    qsort(c->steps, FORESEEN_STEPS, sizeof c->steps[0], by_seconds);
    *measured = c->steps[FORESEEN_STEPS / 2];
    return true;
}

void foreseen_say(struct buffer *out, const struct foreseen *f, const struct foreseen *m)
{
    const struct {
        const char *name;
        double foreseen_s, measured_s;
    } parts[] = {{"computing", f->computing_s, m->computing_s},
                 {"messages", f->links_s, m->links_s},
                 {"waiting for ranks", f->waiting_s, m->waiting_s}};
    i64 most = 0;
    buffer_printf(out, "a step takes %.3f s, foreseen were %.3f:", m->seconds, f->seconds);
    for (i64 i = 0; i < COUNT_OF(parts); i++) {
        buffer_printf(out, "%s %s %.3f (%.3f)", i ? "," : "", parts[i].name, parts[i].measured_s, parts[i].foreseen_s);
        if (fabs(parts[i].measured_s - parts[i].foreseen_s) > fabs(parts[most].measured_s - parts[most].foreseen_s))
            most = i;
    }
    if (fabs(m->seconds - f->seconds) > TOLERATED * f->seconds)
        buffer_printf(out, "; off by %+.0f %%, most of it %s", 100 * (m->seconds / f->seconds - 1), parts[most].name);
}
