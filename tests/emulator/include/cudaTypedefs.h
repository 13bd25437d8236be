/* Replaces the driver's function types. */
#ifndef EMULATED_CUDA_TYPEDEFS_H
#define EMULATED_CUDA_TYPEDEFS_H
#include <cuda.h>

typedef CUresult (*PFN_cuTensorMapEncodeTiled_v12000)(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                                      void *base, const cuuint64_t *size, const cuuint64_t *stride,
                                                      const cuuint32_t *box, const cuuint32_t *step,
                                                      CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                                      CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);
#endif
