/* Phases of Griffin-Lim for one bin (phases_draw and phases_push in kernels.h). */
#ifndef WEFT_PHASES_H
#define WEFT_PHASES_H
#include "kernels/formula.h"

#include <math.h>

/* A random phase from a uniform draw in [0, 1). */
FORMULA float phase_drawn(double uniform)
{
    return 6.2831853f * (float)uniform;
}

/* c = now + momentum (now - last), real or imaginary part. */
FORMULA float phase_pushed(float now, float last, float momentum)
{
    return now + momentum * (now - last);
}

/* magnitude / |c| */
FORMULA float phase_scale(float re, float im, float magnitude)
{
    return magnitude / sqrtf(re * re + im * im + 1e-16f);
}

#endif
