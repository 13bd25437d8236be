/* Of the ops route, route_given, route_backward and route_balance: one position's choice and its derivative. */
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

/* With w_j = p_j / s: dp_j = (dw_j - sum_k dw_k w_k) / s, the sum only where s is not held at norm_min; then the
 * softmax's dlogits = p (dp - sum dp p), dp being 0 for experts not chosen. */
struct route_slope {
    i64 k;
    float sum, pull, mean;
};

FORMULA float route_dp(const struct route_slope *slope, float dw)
{
    return (dw - slope->pull) / slope->sum;
}

/* Of the p [E] and the experts, weights and their gradients [k_max] of a position. */
FORMULA struct route_slope route_slope_of(const float *p, const i32 *experts, const float *w, const float *dw,
                                          struct router router)
{
    struct route_slope slope = {0, 0, 0, 0};
    for (; slope.k < router.k_max && experts[slope.k] >= 0; slope.k++) {
        slope.sum += p[experts[slope.k]];
        slope.pull += dw[slope.k] * w[slope.k];
    }
    if (slope.sum <= router.norm_min) {
        slope.sum = router.norm_min;
        slope.pull = 0;
    }
    for (i64 j = 0; j < slope.k; j++)
        slope.mean += route_dp(&slope, dw[j]) * p[experts[j]];
    return slope;
}

/* How the bias of an expert moves. */
FORMULA float route_bias_step(float mean, float usage, float speed)
{
    return speed * (float)((mean > usage) - (mean < usage));
}

#endif
