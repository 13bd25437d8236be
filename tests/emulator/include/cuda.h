/* Stands for the CUDA driver's header: virtual memory, as far as kernels/cuda/memory.c uses it. */
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
#endif
