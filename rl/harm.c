#include "rl/harm.h"

#include <math.h>

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
