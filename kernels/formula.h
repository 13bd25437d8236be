/* Formulas shared by the backends, written once as inline functions that compile as C and as CUDA.
 * `kernels/NAME.h` holds those of the op NAME, for one element or one row. Loads, exp and sums over
 * threads are left to each backend. Where bits are part of the contract, every product that is
 * added to something is an explicit fmaf, so that no compiler can contract it differently. */
#ifndef WEFT_FORMULA_H
#define WEFT_FORMULA_H

#ifdef __CUDACC__
#define FORMULA static __host__ __device__ inline
#else
#define FORMULA static inline __attribute__((always_inline))
#endif

#endif
