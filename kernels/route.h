/* Of the ops route, route_given, route_backward and route_balance: one position's choice and its derivative; of
 * route_parts and of grouped products: which part a row, which group a tile goes to. */
#ifndef WEFT_ROUTE_H
#define WEFT_ROUTE_H
#include "kernels/formula.h"
#include "kernels/kernels.h"

/* What experts are ranked by; above -inf, even for a NaN. */
FORMULA float route_score(float p, float bias)
{
    float score = p + bias;
    return score > -3e38f ? score : -3e38f;
}

/* What the chosen p are divided by. */
FORMULA float route_norm(float sum, float norm_min)
{
    return sum > norm_min ? sum : norm_min;
}

/* By logarithms, where nothing is divided by a small p: with w_j = p_j / s, dlog p_j = dlog w_j - w_j sum_k dlog w_k,
 * the sum only where s is not held at norm_min; then the softmax's dlogits = dlog p - p sum dlog p, dlog p being 0 for
 * experts not chosen. */
struct route_slope {
    i64 k;
    float pull, mean;
};

FORMULA float route_dlog_p(const struct route_slope *slope, float w, float dlog_w)
{
    return dlog_w - w * slope->pull;
}

/* Of the p [E] and the experts, weights and gradients by their logarithms [k_max] of a position. */
FORMULA struct route_slope route_slope_of(const float *p, const i32 *experts, const float *w, const float *dlog_w,
                                          struct router router)
{
    struct route_slope slope = {0, 0, 0};
    float sum = 0;
    for (; slope.k < router.k_max && experts[slope.k] >= 0; slope.k++) {
        sum += p[experts[slope.k]];
        slope.pull += dlog_w[slope.k];
    }
    if (sum <= router.norm_min)
        slope.pull = 0;
    for (i64 j = 0; j < slope.k; j++)
        slope.mean += route_dlog_p(&slope, w[j], dlog_w[j]);
    return slope;
}

/* How the bias of an expert moves. */
FORMULA float route_bias_step(float mean, float usage, float speed)
{
    return speed * (float)((mean > usage) - (mean < usage));
}

/* The last of so many runs that begins at or before `at`: of rows that go to ranks, of tiles of groups. */
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

/* Cuts the counts of a rank's experts down to what has room. Returns how many rows there were. */
FORMULA i32 route_fit(i32 *counts, i64 experts, i64 part)
{
    i32 rows = 0;
    for (i64 e = 0; e < experts; e++) {
        i32 count = counts[e], room = rows < part ? (i32)part - rows : 0;
        counts[e] = count < room ? count : room;
        rows += count;
    }
    return rows;
}

FORMULA void route_note_over(double *over, i32 rows, i64 part)
{
    if (rows <= part)
        return;
    over[0] += (double)INFINITY;
    if (rows > over[1]) {
        over[1] = (double)rows;
        over[2] = (double)part;
    }
}

#endif
