#include "kernels/cuda/cuda.h"

#include <string.h>

#define NAME(name) .name = cuda_##name,
const struct kernels cuda_kernels = {WEFT_CUDA_OPS(NAME)};

enum { WORKSPACE_BYTES = 64 << 20, OLDEST = 80 };

static bool is_among(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

int cuda_check_ops(const char *const *names)
{
#define HAS(name, arguments, names) {#name, cuda_kernels.name != NULL},
    const struct {
        const char *name;
        bool present;
    } all[] = {WEFT_OPS(HAS)};
    struct text missing = {0};
    for (i64 i = 0; i < COUNT_OF(all); i++)
        if (!all[i].present && (!names || is_among(all[i].name, names)))
            text_printf(&missing, "%s%s", missing.length ? ", " : "", all[i].name);
    int result = missing.length ? error_set("the CUDA backend does not have these ops yet: %s", missing.data) : 0;
    text_release(&missing);
    return result;
}

static void *alloc(struct device *device, i64 bytes)
{
    (void)device;
    return cuda_alloc(bytes);
}

static void release(struct device *device, void *block, i64 bytes)
{
    (void)device, (void)bytes;
    cuda_free(block);
}

static void no_wall(struct device *device)
{
    (void)device;
}

static const struct memory cuda_memory = {.alloc = alloc,
                                          .release = release,
                                          .put = cuda_upload,
                                          .get = cuda_download,
                                          .unlock = no_wall,
                                          .lock = no_wall};

int device_open_cuda(struct device *device, int index)
{
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    struct cudaDeviceProp properties;
    if (status != cudaSuccess)
        return error_set("no GPU can be used (are there one and its driver?): %s", cudaGetErrorString(status));
    if (index < 0 || index >= count)
        return error_set("there is no GPU %d: this machine has %d, counted from 0", index, count);
    CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    if (properties.major * 10 + properties.minor < OLDEST)
        return error_set("GPU %d (%s) is sm_%d%d: sm_%d or newer is needed", index, properties.name, properties.major,
                         properties.minor, OLDEST);
    struct cuda_handles *handles = memory_alloc(sizeof *handles);
    cudaStream_t queue;
    CUDA_CHECK(cudaSetDevice(index));
    CUDA_CHECK(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    handles->workspace = cuda_alloc(WORKSPACE_BYTES);
    handles->workspace_bytes = WORKSPACE_BYTES;
    handles->products = cuda_products_open();
    *device = (struct device){.ops = &cuda_kernels,
                              .memory = &cuda_memory,
                              .backend = BACKEND_CUDA,
                              .has_bf16 = true,
                              .queue = queue,
                              .handles = handles};
    return 0;
}

void device_close_cuda(struct device *device)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    cuda_wait(device);
    cuda_products_close(handles->products);
    cuda_free(handles->workspace);
    CUDA_CHECK(cudaStreamDestroy(cuda_queue_of(device)));
    memory_free(handles);
    *device = (struct device){0};
}

void *cuda_alloc(i64 bytes)
{
    void *memory;
    cudaError_t status = cudaMalloc(&memory, (size_t)max_i64(bytes, 1));
    require(status == cudaSuccess, "no %lld bytes of device memory: %s", (long long)bytes, cudaGetErrorString(status));
    return memory;
}

void cuda_free(void *memory)
{
    CUDA_CHECK(cudaFree(memory));
}

void cuda_upload(struct device *device, void *out, const void *host, i64 bytes)
{
    CUDA_CHECK(cudaMemcpyAsync(out, host, (size_t)bytes, cudaMemcpyHostToDevice, cuda_queue_of(device)));
    cuda_wait(device);
}

void cuda_download(struct device *device, void *host, const void *memory, i64 bytes)
{
    CUDA_CHECK(cudaMemcpyAsync(host, memory, (size_t)bytes, cudaMemcpyDeviceToHost, cuda_queue_of(device)));
    cuda_wait(device);
}

void cuda_wait(struct device *device)
{
    CUDA_CHECK(cudaStreamSynchronize(cuda_queue_of(device)));
}
