/* A bin of a spectrum from the logarithm of its magnitude and its phase (polar in kernels.h). */
#ifndef WEFT_POLAR_H
#define WEFT_POLAR_H
#include "kernels/formula.h"

#define POLAR_MOST 7.0f /* of logarithms: a full wave in a window of 2048 samples has 6.9 */

/* Real and imaginary part of a bin, turned by `quarters` right angles. */
FORMULA float polar_re(float magnitude, float cosine, float sine, long long quarters)
{
    float part = quarters & 1 ? -sine : cosine;
    return magnitude * (quarters & 2 ? -part : part);
}

FORMULA float polar_im(float magnitude, float cosine, float sine, long long quarters)
{
    float part = quarters & 1 ? cosine : sine;
    return magnitude * (quarters & 2 ? -part : part);
}

/* Gradients of the logarithm and of the phase. */
FORMULA float polar_dlog(float x, float re, float im, float dre, float dim)
{
    return x < POLAR_MOST ? dre * re + dim * im : 0.0f;
}

FORMULA float polar_dphase(float re, float im, float dre, float dim)
{
    return dim * re - dre * im;
}

#endif
