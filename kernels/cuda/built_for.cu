/* What this program was compiled for. Of several compilations a GPU takes the one that is nearest to it, or the driver
 * compiles an older one's PTX: then launches do not wait for each other, and kernels for Hopper do nothing. */
#include "kernels/cuda/hopper.h"

__device__ static int architecture(void)
{
#ifdef WEFT_EMULATED
    return emu::built_for();
#elif defined(__CUDA_ARCH__)
    return __CUDA_ARCH__ / 10;
#else
    return 0; /* the host's compilation, which does not run it */
#endif
}

static __global__ void say(int *out)
{
    grid_wait();
    *out = architecture();
}

int cuda_built_for(struct device *device)
{
    cudaFuncAttributes attributes;
    int built_for = 0;
    if (cudaFuncGetAttributes(&attributes, say) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    int *out = (int *)cuda_alloc(device, sizeof *out);
    LAUNCH(device, say, 1, 1, 0, out);
    CUDA_CHECK(cudaMemcpyAsync(&built_for, out, sizeof built_for, cudaMemcpyDeviceToHost, cuda_queue_of(device)));
    cuda_wait(device);
    cuda_release(device, out, sizeof *out);
    return built_for;
}
