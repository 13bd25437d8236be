/* Image resizing (the arithmetic of F.interpolate), shared by every op that resizes and compiled as
 * C and as CUDA. Bits are part of the contract, so every product that is added to something is an
 * explicit fmaf that no compiler can contract differently. */
#ifndef WEFT_RESAMPLE_H
#define WEFT_RESAMPLE_H
#include "kernels/formula.h"

#include <math.h>

/* Area: output i of n_out is the mean of inputs [area_begin, area_end). */
FORMULA long area_begin(long i, long n_in, long n_out)
{
    return i * n_in / n_out;
}
FORMULA long area_end(long i, long n_in, long n_out)
{
    return ((i + 1) * n_in + n_out - 1) / n_out;
}

/* Bilinear: output i is (1 - weight) low + weight high. low and high are equal at the edge. */
struct bilinear_source {
    long low, high;
    float weight;
};
FORMULA struct bilinear_source bilinear_source_of(long i, long n_in, long n_out)
{
    /* (i + 0.5) n_in / n_out - 0.5 = ((2 i + 1) n_in - n_out) / (2 n_out), floored in integers so
     * that no rounding affects it. */
    long numerator = (2 * i + 1) * n_in - n_out;
    numerator = numerator < 0 ? 0 : numerator;
    struct bilinear_source b;
    b.low = numerator / (2 * n_out);
    b.high = b.low + 1 < n_in ? b.low + 1 : b.low;
    b.weight = (float)(numerator - b.low * 2 * n_out) / (float)(2 * n_out);
    return b;
}
FORMULA float bilinear_blend(float low, float high, float weight)
{
    return fmaf(weight, high, (1.0f - weight) * low);
}

/* The transpose: the weight of input i in output o. */
FORMULA float area_weight(long i, long o, long n_in, long n_out)
{
    long begin = area_begin(o, n_in, n_out), end = area_end(o, n_in, n_out);
    return begin <= i && i < end ? 1.0f / (float)(end - begin) : 0.0f;
}
FORMULA float bilinear_weight(long i, long o, long n_in, long n_out)
{
    struct bilinear_source b = bilinear_source_of(o, n_in, n_out);
    if (b.low == b.high)
        return i == b.low ? 1.0f : 0.0f;
    return i == b.low ? 1.0f - b.weight : i == b.high ? b.weight : 0.0f;
}
/* The range of outputs that read input i. Area: o n_in / n_out < i + 1 and (o + 1) n_in / n_out >
 * i, i.e. area_begin and area_end with the sizes exchanged. Bilinear: i - 1 < (o + 0.5) n_in /
 * n_out - 0.5 < i + 1. */
FORMULA long bilinear_reader_begin(long i, long n_in, long n_out)
{
    long numerator = (2 * i - 1) * n_out - n_in;
    return numerator < 0 ? 0 : numerator / (2 * n_in) + 1;
}
FORMULA long bilinear_reader_end(long i, long n_in, long n_out)
{
    long end = ((2 * i + 3) * n_out + n_in - 1) / (2 * n_in);
    return i == n_in - 1 || end > n_out ? n_out : end;
}

#endif
