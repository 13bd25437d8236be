/* Replaces the CUDA driver's header: virtual memory as used by kernels/cuda/memory.c, and tensor
 * maps as used by kernels/cuda/hopper.h. */
#ifndef EMULATED_CUDA_H
#define EMULATED_CUDA_H
#include <stddef.h>
#include <stdint.h>

#define CUDA_DRIVER_LIBRARY NULL /* the program itself */

typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle;
typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2 } CUresult;
typedef enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 } CUmemAllocationType;
typedef enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 } CUmemLocationType;
typedef enum { CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 } CUmemAccess_flags;
typedef struct {
    CUmemLocationType type;
    int id;
} CUmemLocation;
typedef struct {
    CUmemAllocationType type;
    CUmemLocation location;
} CUmemAllocationProp;
typedef struct {
    CUmemLocation location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef enum { CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9 } CUtensorMapDataType;
typedef enum { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 } CUtensorMapInterleave;
typedef enum { CU_TENSOR_MAP_SWIZZLE_NONE = 0, CU_TENSOR_MAP_SWIZZLE_128B = 3 } CUtensorMapSwizzle;
typedef enum { CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3 } CUtensorMapL2promotion;
typedef enum { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 } CUtensorMapFloatOOBfill;
typedef struct CUtensorMap_st { /* 3 dimensions, innermost first; strides in bytes */
    char *base;
    int64_t size[3], stride[2];
    int box[3], element_bytes;
} CUtensorMap;
#endif
