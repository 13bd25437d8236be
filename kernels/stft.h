/* Where the windows of a short-time Fourier transform (stft in kernels.h) read. */
#ifndef WEFT_STFT_H
#define WEFT_STFT_H
#include "kernels/formula.h"

/* Sample `at` of a signal of n, reflected at both ends without repeating them. */
FORMULA long reflect(long at, long n)
{
    at = at < 0 ? -at : at;
    return at < n ? at : 2 * (n - 1) - at;
}

#endif
