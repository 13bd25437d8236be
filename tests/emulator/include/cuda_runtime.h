/* Replaces the CUDA runtime where kernels run on the CPU: the emulated GPU. g++ compiles the
 * sources of kernels/cuda unchanged against the headers of this folder; emulator.h lists what is
 * emulated.
 *
 * Device memory is a separate region. Only kernels, copies and the emulated libraries may touch
 * it. A host access to it, a kernel access past the end of a buffer, and other errors that a GPU
 * would ignore or report late end the program with a message that names kernel, block and thread.
 * A copy of pageable memory is done when the call returns (to the device: its source was read); a
 * copy of pinned memory (cudaMallocHost) runs when its stream reaches it.
 *
 * Environment variables, read when the devices are counted:
 *   WEFT_EMU_ORDER=up|down|mixed      order of the blocks of a launch, and of a block's threads
 *                                     between two barriers; mixed also switches in between
 *   WEFT_EMU_ASYNC=early|late|mixed   asynchronous copies and products run at once, when waited
 *                                     for, or at random
 *   WEFT_EMU_STREAMS=early|late       late: streams run only when somebody waits for them
 *   WEFT_EMU_FP8_BITS=14              bits kept in sums of FP8 products (default: f32)
 *   WEFT_EMU_NO_PKEY=1                guard device memory by mprotect (slower), not protection keys
 *   WEFT_EMU_LIST=1                   print the host's calls: launches, graphs, copies, waits
 *   WEFT_EMU_CUBLASLT=FILE            library opened as cuBLASLt (default: the program)
 *   WEFT_EMU_CUDNN=FILE               library opened as cuDNN (default: the program)
 *   WEFT_EMU_NCCL_FILE=FILE           library opened as NCCL (default: the program)
 *   WEFT_EMU_MEMORY=BYTES             limit of all arenas together (default: none)
 *   WEFT_EMU_LEFT=BYTES               free memory that the device reports (default: the truth)
 *   WEFT_EMU_NCCL_S=1800              timeout of a rank that waits for another one (nccl.c)
 *   WEFT_EMU_NCCL=21805               version of NCCL (default: 22809)
 *   WEFT_EMU_DRIVER=12020             only a driver of this version, which is too old; 0: no driver
 *   WEFT_EMU_SM=75                    architecture of the device (default: 90)
 *   WEFT_EMU_BUILT_FOR=80             architecture that kernels report to be compiled for
 *                                     (default: 90); 0: another GPU */
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
/* sums the times given to emu_spend */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);
/* A capture is linear: work of one stream. Faults: anything that CUDA forbids during a capture or
 * that a replay would not repeat, i.e. waits, queries, allocations and frees, copies of pageable
 * memory, work on another stream. */
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

/* For emulated libraries: `run` is executed in stream order, with access to device memory, and
 * again for each launch of a graph that captured it. context is malloc'd (its `bytes` identify the
 * work: padding is zero) and freed after the last use. */
void emu_enqueue(cudaStream_t stream, void (*run)(void *context), void *context, size_t bytes);
/* For work that involves other processes: `poll` is called until it returns 1, and may let other
 * work run meanwhile. */
void emu_enqueue_polled(cudaStream_t stream, int (*poll)(void *context), void *context);
void emu_inside(void (*run)(void *context), void *context); /* now, with access to device memory */
void emu_advance(void);   /* one step of each stream, like a GPU while its host is busy */
void emu_spend(float ms); /* adds to the time of the running work; there is no other clock */
int emu_is_device(const void *memory);
/* Counts of host calls so far, for tests of the cost of a step: launches (a graph is one),
 * allocations and frees of device or pinned memory, waits of the host, copies of pageable memory
 * (for which a GPU's host waits too), graph launches, and graph nodes that an update changed. */
struct emu_counts {
    long launches, allocations, waits, pageable_copies, graphs, changed_nodes;
};
extern struct emu_counts emu_counts;
/* The next call of a function that captures or launches a graph fails, or ("cudaLaunchKernel") the
 * next launch within a capture, which then becomes invalid. */
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
