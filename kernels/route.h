/* Routing formulas. Ops route, route_given, route_backward and route_balance: one position's choice
 * and its derivative. For route_capacity and grouped gemms: part of a row, group of a tile. */
#ifndef WEFT_ROUTE_H
#define WEFT_ROUTE_H
#include "kernels/formula.h"
#include "kernels/kernels.h"

/* The ranking score of an expert. It is above -inf even for a NaN. */
FORMULA float route_score(float p, float bias)
{
    float score = p + bias;
    return score > -3e38f ? score : -3e38f;
}

/* The weight of a chosen expert, from its p and the sum of the chosen p. */
FORMULA float route_weight(float p, float sum, struct router router)
{
    return p / (sum > router.norm_min ? sum : router.norm_min);
}

/* Derivative in log space, which never divides by a small p. With w_j = p_j / s: dlog p_j = dlog
 * w_j - w_j sum_k dlog w_k, where the sum is dropped if s is clamped to norm_min. The softmax then
 * gives dlogits = dlog p - p sum dlog p, with dlog p = 0 for experts not chosen. */
struct route_slope {
    i64 k;
    float sum, pull, mean;
};

/* Of chosen expert `expert`. */
FORMULA float route_dlog_p(const struct route_slope *slope, const float *p, i32 expert, float dlog_w,
                           struct router router)
{
    return dlog_w - route_weight(p[expert], slope->sum, router) * slope->pull;
}

/* The slope of one position, from p [E] and its experts and gradients of log weights, [k_max] each. */
FORMULA struct route_slope route_slope_of(const float *p, const i32 *experts, const float *dlog_w, struct router router)
{
    struct route_slope slope = {0, 0, 0, 0};
    for (; slope.k < router.k_max && experts[slope.k] >= 0; slope.k++) {
        slope.sum += p[experts[slope.k]];
        slope.pull += dlog_w[slope.k];
    }
    if (slope.sum <= router.norm_min)
        slope.pull = 0;
    for (i64 j = 0; j < slope.k; j++)
        slope.mean += route_dlog_p(&slope, p, experts[j], dlog_w[j], router);
    return slope;
}

/* The step of an expert's bias: towards equal usage. */
FORMULA float route_bias_step(float mean, float usage, float speed)
{
    return speed * (float)((mean > usage) - (mean < usage));
}

/* The same towards a sum of shares of an expert, whose rounding is no reason for a step. */
FORMULA float route_bias_step_to(double expected, float usage, float speed)
{
    double gap = expected - (double)usage, least = 1e-12 * expected;
    return speed * (float)((gap > least) - (gap < -least));
}

/* Index of the last of `runs` runs that begins at or before `at`. Runs are rows for ranks, or tiles
 * of groups. */
FORMULA i64 route_run_of(const i32 *begins, i64 runs, i32 at)
{
    i64 low = 0, high = runs;
    while (high - low > 1) {
        i64 middle = (low + high) / 2;
        if (begins[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Clamps the counts of a rank's experts to the rows that fit in `capacity`. Returns the rows before
 * clamping. */
FORMULA i32 route_fit(i32 *counts, i64 experts, i64 capacity)
{
    i32 rows = 0;
    for (i64 e = 0; e < experts; e++) {
        i32 count = counts[e], room = rows < capacity ? (i32)capacity - rows : 0;
        counts[e] = count < room ? count : room;
        rows += count;
    }
    return rows;
}

FORMULA void route_note_overflow(double *over, i32 rows, i64 capacity)
{
    if (rows <= capacity)
        return;
    over[0] += (double)INFINITY;
    if (rows > over[1]) {
        over[1] = (double)rows;
        over[2] = (double)capacity;
    }
}

#endif
