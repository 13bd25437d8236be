/* Formulae that backends share: one inline function in C and in CUDA. `kernels/NAME.h` has those of the op NAME, on one
 * element or one row; what a backend does in its own way (loads, exp, sums over threads) is its business. Where bits
 * are part of the contract, each product that is added to something is an fmaf: a compiler has nothing left to
 * contract. */
#ifndef WEFT_FORMULA_H
#define WEFT_FORMULA_H

#ifdef __CUDACC__
#define FORMULA static __host__ __device__ inline
#else
#define FORMULA static inline __attribute__((always_inline))
#endif

#endif
