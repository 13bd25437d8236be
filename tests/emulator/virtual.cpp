/* The driver's virtual memory: reserved addresses become a buffer that grows as memory is mapped
 * behind them. */
#include "inside.h"

#include <cuda.h>
#include <map>
#include <stdlib.h>

using namespace emu;
enum { GRANULARITY = 2 << 20 };

/* The handle of cuMemCreate is its size; WEFT_EMU_MEMORY limits the sum of mapped handles. */
static size_t mapped;
typedef std::map<CUdeviceptr, size_t> ranges; /* bytes, keyed by start */
static ranges reserved, pieces;               /* address ranges; mapped pieces */

/* The first piece that ends after `at`. */
static ranges::iterator piece_behind(CUdeviceptr at)
{
    auto next = pieces.upper_bound(at);
    if (next == pieces.begin() || std::prev(next)->first + std::prev(next)->second <= at)
        return next;
    return std::prev(next);
}

static bool is_free(CUdeviceptr at, size_t bytes)
{
    auto piece = piece_behind(at);
    return piece == pieces.end() || piece->first >= at + bytes;
}

static bool is_reserved(CUdeviceptr at, size_t bytes)
{
    auto next = reserved.upper_bound(at);
    return next != reserved.begin() && at + bytes <= std::prev(next)->first + std::prev(next)->second;
}

/* True if the range consists of whole adjacent pieces. */
static bool is_of_pieces(CUdeviceptr at, size_t bytes)
{
    CUdeviceptr end = at;
    for (auto p = pieces.find(at); end < at + bytes && p != pieces.end() && p->first == end; ++p)
        end += p->second;
    return bytes > 0 && end == at + bytes;
}

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
    if (bytes == 0 || bytes % GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    *at = (CUdeviceptr)(uintptr_t)reserve_pages(bytes);
    if (!*at)
        return CUDA_ERROR_OUT_OF_MEMORY;
    reserved[*at] = bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
    auto range = reserved.find(at);
    if (range == reserved.end() || range->second != bytes || !is_free(at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    reserved.erase(range);
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
    if (at % GRANULARITY || handle != bytes || !is_reserved(at, bytes) || !is_free(at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    pieces[at] = bytes;
    mapped += bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t)
{
    if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE || !is_of_pieces(at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    buffer_grow((char *)(uintptr_t)at, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
    if (!is_of_pieces(at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    pieces.erase(pieces.find(at), pieces.lower_bound(at + bytes));
    mapped -= bytes;
    buffer_drop((char *)(uintptr_t)at, bytes);
    return CUDA_SUCCESS;
}
}
