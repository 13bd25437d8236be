#include "model/inside.h"

struct tensor *parallel_enter(struct pass *p, struct tensor *x)
{
    (void)p;
    return x;
}

struct tensor *parallel_sum(struct pass *p, struct tensor *x)
{
    (void)p;
    return x;
}
