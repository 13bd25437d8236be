/* Student's t: quantiles, and what paired differences say. */
#include "report/arms.h"

#include <math.h>

/* Regularized incomplete beta function I_x(a, b) by its continued fraction, evaluated as in Lentz 1976
 * (Press et al., Numerical Recipes, 6.4). It converges fast for x < (a + 1) / (a + b + 2). */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 / fmax(fabs(1 - (a + b) * x / (a + 1)), tiny), h = d;
    for (int m = 1; m < 1000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / (1 + even * d);
        c = 1 + even / c;
        h *= d * c;
        d = 1 / (1 + odd * d);
        c = 1 + odd / c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-15)
            break;
    }
    return h;
}

static double incomplete_beta(double a, double b, double x)
{
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

/* Probability of a value of at most t, for t >= 0. */
static double student_below(double t, double degrees)
{
    return 1 - incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2;
}

double student_quantile(double share, double degrees)
{
    double low = 0, high = 1;
    if (!(degrees >= 1) || !(share >= 0.5) || !(share < 1))
        return NAN;
    while (student_below(high, degrees) < share && high < 1e12)
        high *= 2;
    for (int i = 0; i < 200; i++) {
        double middle = (low + high) / 2;
        if (student_below(middle, degrees) < share)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

struct paired_difference paired_difference(const double *values, const double *baseline, i64 count)
{
    struct paired_difference d = {.mean = 0, .error = NAN, .low = NAN, .high = NAN, .smallest = NAN};
    double squares = 0;
    for (i64 i = 0; i < count; i++)
        if (isfinite(values[i]) && isfinite(baseline[i])) {
            d.mean += values[i] - baseline[i];
            d.pairs++;
        }
    d.mean = d.pairs ? d.mean / (double)d.pairs : NAN;
    if (d.pairs < 2)
        return d;
    for (i64 i = 0; i < count; i++)
        if (isfinite(values[i]) && isfinite(baseline[i]))
            squares += pow(values[i] - baseline[i] - d.mean, 2);
    double degrees = (double)(d.pairs - 1), reach = student_quantile(0.975, degrees);
    d.error = sqrt(squares / degrees / (double)d.pairs);
    d.low = d.mean - reach * d.error;
    d.high = d.mean + reach * d.error;
    d.smallest = (reach + student_quantile(0.8, degrees)) * d.error;
    d.resolved = d.low > 0 || d.high < 0;
    return d;
}
