/* Device memory. An arena reserves address space, and the driver maps more memory into it as it
 * grows, so that nothing moves and a warm step allocates nothing. The driver library is opened with
 * the first device, so that a program built with CUDA also starts on machines without it. */
#include "core/library.h"
#include "kernels/cuda/cuda.h"

#include <cuda.h>

#ifndef CUDA_DRIVER_LIBRARY /* the emulated GPU is linked into the program */
#define CUDA_DRIVER_LIBRARY "libcuda.so.1"
#endif

static struct {
    CUresult (*reserve)(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags);
    CUresult (*unreserve)(CUdeviceptr at, size_t bytes);
    CUresult (*create)(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                       unsigned long long flags);
    CUresult (*release)(CUmemGenericAllocationHandle handle);
    CUresult (*map)(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags);
    CUresult (*unmap)(CUdeviceptr at, size_t bytes);
    CUresult (*allow)(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count);
    void *encode_tiles;
} driver;

int cuda_memory_open(void)
{
    const struct library_function functions[] = {{"cuMemAddressReserve", &driver.reserve},
                                                 {"cuMemAddressFree", &driver.unreserve},
                                                 {"cuMemCreate", &driver.create},
                                                 {"cuMemRelease", &driver.release},
                                                 {"cuMemMap", &driver.map},
                                                 {"cuMemUnmap", &driver.unmap},
                                                 {"cuMemSetAccess", &driver.allow},
                                                 {"cuTensorMapEncodeTiled", &driver.encode_tiles}};
    static const char *const files[] = {CUDA_DRIVER_LIBRARY};
    return library_open(functions, COUNT_OF(functions), files, 1) ? error_prefix("no GPU can be used") : 0;
}

/* Opens the driver if necessary, because tests call kernels without opening a device. */
void *cuda_tile_map_encoder(void)
{
    require(driver.encode_tiles || cuda_memory_open() == 0, "%s", error_text());
    return driver.encode_tiles;
}

_Noreturn static void no_memory(i64 bytes)
{
    out_of_memory("the GPU has no %.2f GiB more: make batches smaller (batch.micro_rows) or recompute (recompute: "
                  "true); `weft plan --gpu` says what a stage needs",
                  (double)bytes / (1 << 30));
}

void *cuda_alloc(struct device *device, i64 bytes)
{
    void *memory;
    (void)device;
    cudaError_t status = cudaMalloc(&memory, (size_t)max_i64(bytes, 1));
    if (status == cudaErrorMemoryAllocation)
        no_memory(bytes);
    require(status == cudaSuccess, "no %lld bytes of GPU memory: %s", (long long)bytes, cudaGetErrorString(status));
    return memory;
}

/* Waits while serving ranks, which the driver's own waits do not do. */
static void wait_with_ranks(struct device *device)
{
    if (device->wait)
        device->wait(device);
}

void cuda_release(struct device *device, void *memory, i64 bytes)
{
    (void)bytes;
    wait_with_ranks(device);
    CUDA_CHECK(cudaFree(memory));
}

static CUmemLocation place_of(const struct device *device)
{
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda_handles_of(device)->index};
}

void *cuda_reserve(struct device *device, i64 bytes)
{
    CUdeviceptr at;
    (void)device;
    CUresult status = driver.reserve(&at, (size_t)bytes, 0, 0, 0);
    require(status == CUDA_SUCCESS, "the driver reserves no %lld bytes of addresses: CUDA error %d", (long long)bytes,
            (int)status);
    return (void *)(uintptr_t)at;
}

void cuda_grow(struct device *device, void *base, i64 from, i64 to)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = place_of(device)};
    CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)base + (CUdeviceptr)from;
    size_t bytes = (size_t)(to - from);
    CUresult status = driver.create(&handle, bytes, &properties, 0);
    if (status == CUDA_ERROR_OUT_OF_MEMORY)
        no_memory(to - from);
    if (status == CUDA_SUCCESS)
        status = driver.map(at, bytes, 0, handle, 0);
    if (status == CUDA_SUCCESS)
        status = driver.allow(at, bytes, &access, 1);
    require(status == CUDA_SUCCESS, "the driver maps no %lld bytes: CUDA error %d", (long long)bytes, (int)status);
    driver.release(handle); /* the mapping keeps the memory alive */
}

void cuda_unreserve(struct device *device, void *base, i64 bytes, i64 backed_bytes)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)base;
    cuda_wait(device);
    if (backed_bytes > 0)
        require(driver.unmap(at, (size_t)backed_bytes) == CUDA_SUCCESS, "an arena that cannot be unmapped");
    require(driver.unreserve(at, (size_t)bytes) == CUDA_SUCCESS, "an arena that cannot be given back");
}

void cuda_wait(struct device *device)
{
    wait_with_ranks(device);
    CUDA_CHECK(cudaStreamSynchronize(cuda_queue_of(device)));
}
