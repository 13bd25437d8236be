/* The driver's virtual memory: addresses are reserved, and become a buffer that grows as memory is mapped behind them.
 */
#include "inside.h"

#include <cuda.h>
#include <stdlib.h>

using namespace emu;
enum { GRANULARITY = 2 << 20 };

/* What cuMemCreate hands out is its size; WEFT_EMU_MEMORY bounds the sum of those that are mapped. */
static size_t mapped;

static size_t bytes_of(const char *variable, size_t otherwise)
{
    const char *bytes = getenv(variable);
    return bytes ? strtoull(bytes, nullptr, 10) : otherwise;
}

static size_t most_mapped()
{
    return bytes_of("WEFT_EMU_MEMORY", SIZE_MAX);
}

size_t emu::arenas_left()
{
    return bytes_of("WEFT_EMU_LEFT", most_mapped() - mapped);
}

extern "C" {
CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t, CUdeviceptr, unsigned long long)
{
    *at = (CUdeviceptr)(uintptr_t)reserve_pages(bytes);
    return bytes % GRANULARITY ? CUDA_ERROR_INVALID_VALUE : *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
    unreserve_pages((char *)(uintptr_t)at, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *,
                     unsigned long long)
{
    *handle = bytes;
    not_in_capture("an arena grows");
    emu_counts.allocations++;
    if (bytes % GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    return mapped + bytes > most_mapped() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle)
{
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle handle, unsigned long long)
{
    if (at % GRANULARITY || handle != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    mapped += bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t)
{
    if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    buffer_grow((char *)(uintptr_t)at, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
    mapped -= bytes;
    buffer_drop((char *)(uintptr_t)at, bytes);
    return CUDA_SUCCESS;
}
}
