/* The distance of logarithms (DISTANCE_LOG of distance in kernels.h), for one element. */
#ifndef WEFT_DISTANCE_H
#define WEFT_DISTANCE_H
#include "kernels/formula.h"

#include <math.h>

/* Both are taken to be at least this: what is fainter is as good as silent. */
#define DISTANCE_FAINT 0.01f

FORMULA float log_distance(float x, float y)
{
    return fabsf(logf(fmaxf(x, DISTANCE_FAINT) / fmaxf(y, DISTANCE_FAINT)));
}

/* The derivative by x. An x below the least counts as if at it, so that it may rise. */
FORMULA float log_distance_slope(float x, float y)
{
    float a = fmaxf(x, DISTANCE_FAINT), b = fmaxf(y, DISTANCE_FAINT);
    return a > b ? 1 / a : a < b ? -1 / a : 0.0f;
}

#endif
