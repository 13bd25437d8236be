/* Short-time Fourier transform (stft in kernels.h): sample indices of a window, and the
 * factorization of its length. */
#ifndef WEFT_STFT_H
#define WEFT_STFT_H
#include "kernels/formula.h"

/* Sample `at` of a signal of n, reflected at both ends without repeating them. */
FORMULA long reflect(long at, long n)
{
    at = at < 0 ? -at : at;
    return at < n ? at : 2 * (n - 1) - at;
}

/* Radices of an FFT of n elements: as many 4s as divide n, then primes. */
enum { RADICES_MOST = 32 };
struct radices {
    int count, list[RADICES_MOST];
};
FORMULA struct radices radices_of(int n)
{
    struct radices r = {0};
    for (; n % 4 == 0; n /= 4)
        r.list[r.count++] = 4;
    for (int radix = 2; n > 1; radix++)
        for (; n % radix == 0; n /= radix)
            r.list[r.count++] = radix;
    return r;
}

#endif
