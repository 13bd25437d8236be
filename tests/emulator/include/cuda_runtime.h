/* Stands for the CUDA runtime where kernels run on the CPU: the emulated GPU. Sources of kernels/cuda are compiled
 * against this folder's headers by g++ and run as they are; what is emulated, and what is not, is told in emulator.h.
 *
 * Device memory is a region of its own. Only kernels, copies and the stand-ins of libraries may touch it; a host that
 * looks into it, a kernel that passes the end of a buffer, and whatever else a GPU would bear in silence or answer with
 * a late error ends the program with a message that names kernel, block and thread. A copy of pageable memory has
 * happened (to the device: was taken) when the call returns, one of pinned memory (cudaMallocHost) happens when its
 * stream comes to it.
 *
 * Read from the environment when the devices are counted:
 *   WEFT_EMU_ORDER=up|down|mixed      the order of a launch's blocks and of a block's threads between two barriers;
 *                                     mixed also breaks in between
 *   WEFT_EMU_ASYNC=early|late|mixed   when asynchronous copies and products happen: at once, when waited for, by dice
 *   WEFT_EMU_STREAMS=early|late       late: streams stand still until somebody waits for them
 *   WEFT_EMU_FP8_BITS=14              what sums of products in 8 bits keep (default: as f32)
 *   WEFT_EMU_NO_PKEY=1                guard device memory by mprotect (slower) where there are protection keys too
 *   WEFT_EMU_LIST=1                   say what the host asks for: launches, graphs, copies, waits
 *   WEFT_EMU_CUBLASLT=FILE            the library that is opened as cuBLASLt (default: the program), likewise
 *   WEFT_EMU_NCCL_FILE=FILE           as NCCL
 *   WEFT_EMU_MEMORY=BYTES             what arenas may take in all (default: what they like)
 *   WEFT_EMU_LEFT=BYTES               what it says is left of that, whatever is (default: the truth)
 *   WEFT_EMU_NCCL_S=1800              seconds after which a rank no longer waits for another one (nccl.c)
 *   WEFT_EMU_NCCL=21805               which version of NCCL it says it is (default: 22809)
 *   WEFT_EMU_DRIVER=12020             a driver of that version alone, which is too old; 0: none
 *   WEFT_EMU_SM=75                    which architecture it says it is (default: 90)
 *   WEFT_EMU_BUILT_FOR=80             what kernels say they were compiled for (default: 90); 0: another GPU */
#ifndef EMULATED_CUDA_RUNTIME_H
#define EMULATED_CUDA_RUNTIME_H
#include <stddef.h>
#include <stdint.h>

#define WEFT_EMULATED 1
#define CUDART_VERSION 12040

typedef enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorNotReady = 600,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureWrongThread = 908,
    cudaErrorGraphExecUpdateFailure = 910
} cudaError_t;
typedef struct emu_stream *cudaStream_t;
typedef struct emu_event *cudaEvent_t;
typedef struct emu_graph *cudaGraph_t, *cudaGraphExec_t;
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlockOptin;
    int major, minor, multiProcessorCount, l2CacheSize;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
enum cudaDeviceAttr { cudaDevAttrClockRate = 13 };
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **memory, size_t bytes);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end); /* of what emu_spend was told */
/* A capture is a line: work of one stream. What CUDA forbids while one lasts, or what a replay would not do again, is a
 * fault: waits, questions, memory taken or given back, copies of pageable memory, work on another stream. */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);
typedef struct {
    int result;
} cudaGraphExecUpdateResultInfo;
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *result);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t status);

/* For stand-ins of libraries: `run` happens in the stream's order, with device memory open to it, and again with each
 * launch of a graph it was captured in; context is malloc'd (its `bytes` say what is done: padding is zero) and freed
 * with the last of them. */
void emu_enqueue(cudaStream_t stream, void (*run)(void *context), void *context, size_t bytes);
/* For what other processes have a part in: `poll` is called until it returns 1, and may let others work meanwhile. */
void emu_enqueue_polled(cudaStream_t stream, int (*poll)(void *context), void *context);
void emu_inside(void (*run)(void *context), void *context); /* now, with device memory open to this thread */
void emu_advance(void);   /* one step of each stream, as a GPU goes on while its host is elsewhere */
void emu_spend(float ms); /* by the work that runs now; there is no other time */
int emu_is_device(const void *memory);
/* What the host has asked for so far, for tests of what a step costs it: launches (a graph is one), blocks of device or
 * pinned memory taken or given back, waits of the host, copies of pageable memory (which a GPU's host waits for, too);
 * launches of graphs, and pieces of work that an update of a graph found to be other than they were. */
struct emu_counts {
    long launches, allocations, waits, pageable_copies, graphs, changed_nodes;
};
extern struct emu_counts emu_counts;
/* The next call of a function that captures or launches a graph fails, or ("cudaLaunchKernel") the next launch within a
 * capture, which then records nothing any more. */
void emu_fail_next(const char *function);
cudaError_t emu_limit_shared(const void *kernel, int bytes);
cudaError_t emu_find_image(void);
#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
template <class K> inline cudaError_t cudaFuncSetAttribute(K kernel, cudaFuncAttribute, int bytes)
{
    return emu_limit_shared((const void *)kernel, bytes);
}
struct cudaFuncAttributes {
    int ptxVersion;
};
template <class K> inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, K)
{
    return emu_find_image();
}
#ifdef __CUDACC__
#include "emulator.h"
#endif
#else
typedef struct {
    unsigned x, y, z;
} dim3;
#endif
#endif
