/* Replaces the CUDA backend in a build without a CUDA toolkit: asking for a GPU is refused. */
#include "kernels/cuda/device.h"

const struct kernels cuda_kernels = {0};

int cuda_runtime(void)
{
    return 0;
}

int cuda_count(void)
{
    return 0;
}

int device_open_cuda(struct device *device, int index)
{
    (void)device;
    return error_set(
        "GPU %d cannot be used: this program was built without CUDA. Install a CUDA toolkit (12.4 or newer) "
        "and build again with -DWEFT_CUDA=ON",
        index);
}

int cuda_describe(struct buffer *out)
{
    (void)out;
    return device_open_cuda(NULL, 0);
}

int cuda_check_ops(const char *const *names)
{
    (void)names;
    return device_open_cuda(NULL, 0);
}

double cuda_matrix_peak(const struct device *device, enum dtype dtype)
{
    (void)device, (void)dtype;
    return 0;
}

i64 cuda_cudnn_calls(const struct device *device)
{
    (void)device;
    return 0;
}

bool cuda_is_hopper(const struct device *device)
{
    (void)device;
    return false;
}

bool cuda_has_two_kernels(const struct device *device, const char *op)
{
    (void)device, (void)op;
    return false;
}

void cuda_use_hopper(struct device *device, bool use)
{
    (void)device;
    require(!use, "kernels for sm_90 in a program built without CUDA");
}
