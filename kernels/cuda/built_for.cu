/* Determines which architecture the running kernels were compiled for. A GPU takes the nearest of
 * several compilations, or the driver compiles older PTX; then launches do not overlap, and Hopper
 * kernels are empty. */
#include "kernels/cuda/hopper.h"

__device__ static int architecture(void)
{
#ifdef WEFT_EMULATED
    return emu::built_for();
#elif defined(__CUDA_ARCH__)
    return __CUDA_ARCH__ / 10;
#else
    return 0; /* host compilation; never runs */
#endif
}

static __global__ void report_architecture(int *out)
{
    grid_wait();
    *out = architecture();
}

int cuda_built_for(struct device *device)
{
    cudaFuncAttributes attributes;
    int built_for = 0;
    if (cudaFuncGetAttributes(&attributes, report_architecture) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    int *out = (int *)cuda_alloc(device, sizeof *out);
    LAUNCH(device, report_architecture, 1, 1, 0, out);
    CUDA_CHECK(cudaMemcpyAsync(&built_for, out, sizeof built_for, cudaMemcpyDeviceToHost, cuda_queue_of(device)));
    cuda_wait(device);
    cuda_release(device, out, sizeof *out);
    return built_for;
}
