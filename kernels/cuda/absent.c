/* Stands for the CUDA backend in a build without a CUDA toolkit. */
#include "kernels/cuda/device.h"

const struct kernels cuda_kernels = {0};

int device_open_cuda(struct device *device, int index)
{
    (void)device;
    return error_set(
        "GPU %d cannot be used: this program was built without CUDA. Install a CUDA toolkit (12.4 or newer) "
        "and build again with -DWEFT_CUDA=ON",
        index);
}

int cuda_check_ops(const char *const *names)
{
    (void)names;
    return error_set("this program was built without CUDA");
}

static _Noreturn void no_device(void)
{
    panic("built without CUDA");
}

void device_close_cuda(struct device *device)
{
    (void)device;
    no_device();
}

void *cuda_alloc(i64 bytes)
{
    (void)bytes;
    no_device();
}

void cuda_free(void *memory)
{
    (void)memory;
    no_device();
}

void cuda_upload(struct device *device, void *out, const void *host, i64 bytes)
{
    (void)device, (void)out, (void)host, (void)bytes;
    no_device();
}

void cuda_download(struct device *device, void *host, const void *memory, i64 bytes)
{
    (void)device, (void)host, (void)memory, (void)bytes;
    no_device();
}

void cuda_wait(struct device *device)
{
    (void)device;
    no_device();
}
