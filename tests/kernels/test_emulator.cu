/* Tests of the emulated GPU: kernels with a planted bug are caught, by a message or by a wrong
 * result in one of the thread orders and async timings; the repaired kernels pass in all of
 * them. */
#include "tests/gpu_child.h"

#include <cuda.h>

/* ---- Barriers and shared memory ---- */
template <bool RIGHT> __global__ void reverse(float *out, const float *in)
{
    grid_wait();
    SHARED(float, all, THREADS);
    all[threadIdx.x] = in[threadIdx.x];
    if (RIGHT)
        __syncthreads();
    out[threadIdx.x] = all[THREADS - 1 - threadIdx.x];
}
template <bool RIGHT> static void missing_barrier()
{
    float *out = device_array<float>(THREADS);
    LAUNCH(&gpu, reverse<RIGHT>, 1, THREADS, 0, out, counting(THREADS));
    expect_line(out, THREADS, THREADS - 1, -1);
}

/* Without the barrier this is still right if threads run one after another from the first on. */
template <bool RIGHT> __global__ void shift(float *data)
{
    grid_wait();
    float next = threadIdx.x + 1 < blockDim.x ? data[threadIdx.x + 1] : (float)blockDim.x;
    if (RIGHT)
        __syncthreads();
    data[threadIdx.x] = next;
}
template <bool RIGHT> static void race_in_one_order()
{
    float *data = counting(THREADS);
    LAUNCH(&gpu, shift<RIGHT>, 1, THREADS, 0, data);
    expect_line(data, THREADS, 1, 1);
}

/* The last block to finish sums what all blocks stored. */
template <bool BEFORE, bool BEHIND> __global__ void sum_parts(float *out, float *parts, int *ended)
{
    grid_wait();
    parts[blockIdx.x * THREADS + threadIdx.x] = 1;
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) {
        if (BEFORE)
            __threadfence();
        last = atomicAdd(ended, 1) == (int)gridDim.x - 1;
        if (BEHIND)
            __threadfence();
    }
    if (__syncthreads_or(last)) {
        float sum = 0;
        for (unsigned i = 0; i < gridDim.x; i++)
            sum += parts[i * THREADS + threadIdx.x];
        out[threadIdx.x] = sum;
    }
}
template <bool BEFORE, bool BEHIND> static void race_of_blocks()
{
    enum { BLOCKS = 3, SOME = THREADS / 2 }; /* ThreadSanitizer distinguishes 256 threads */
    float *out = device_array<float>(THREADS), *parts = device_array<float>(BLOCKS * THREADS);
    int *ended = device_array<int>(1);
    CUDA_CHECK(cudaMemsetAsync(ended, 0, sizeof *ended, 0));
    LAUNCH(&gpu, (sum_parts<BEFORE, BEHIND>), BLOCKS, SOME, 0, out, parts, ended);
    expect_line(out, SOME, BLOCKS, 0);
}

template <bool RIGHT> __global__ void sum_some(float *out, int count)
{
    grid_wait();
    SHARED(float, all, THREADS);
    if (RIGHT || threadIdx.x < 100)
        all[threadIdx.x] = threadIdx.x < 100;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < count; i++)
        sum += all[i];
    out[threadIdx.x] = sum;
}
template <bool RIGHT> static void unwritten_shared_memory()
{
    float *out = device_array<float>(THREADS);
    LAUNCH(&gpu, sum_some<true>, 1, THREADS, 0, out, THREADS); /* leaves zeros in shared memory */
    LAUNCH(&gpu, sum_some<RIGHT>, 1, THREADS, 0, out, THREADS);
    expect_line(out, THREADS, 100, 0);
}

template <bool RIGHT> __global__ void store_shared(float *out)
{
    grid_wait();
    SHARED(float, all, THREADS);
    SHARED(float, neighbour, THREADS);
    float *at = all;
    neighbour[threadIdx.x] = 0;
    at[threadIdx.x + !RIGHT] = 1;
    __syncthreads();
    out[threadIdx.x] = at[threadIdx.x] + neighbour[threadIdx.x];
}
template <bool RIGHT> static void past_static_shared_memory()
{
    float *out = device_array<float>(THREADS);
    LAUNCH(&gpu, store_shared<RIGHT>, 1, THREADS, 0, out);
    cuda_wait(&gpu);
}

__global__ void store_dynamic(float *out, int count)
{
    grid_wait();
    DYNAMIC_SHARED(float, all);
    for (int i = threadIdx.x; i < count; i += THREADS)
        all[i] = 1;
    __syncthreads();
    out[threadIdx.x] = all[threadIdx.x];
}
template <bool RIGHT> static void past_dynamic_shared_memory()
{
    float *out = device_array<float>(THREADS);
    LAUNCH(&gpu, store_dynamic, 1, THREADS, THREADS * 4, out, RIGHT ? THREADS : THREADS + 1);
    expect_line(out, THREADS, 1, 0);
}

template <bool RIGHT> __global__ void wait_apart(float *out)
{
    grid_wait();
    SHARED(float, all, THREADS);
    if (RIGHT || threadIdx.x < 32) {
        all[threadIdx.x] = 1;
        __syncthreads();
    } else {
        all[threadIdx.x] = 1;
        __syncthreads();
    }
    out[threadIdx.x] = all[THREADS - 1 - threadIdx.x];
}
template <bool RIGHT> static void divergent_barrier()
{
    float *out = device_array<float>(THREADS);
    LAUNCH(&gpu, wait_apart<RIGHT>, 1, THREADS, 0, out);
    expect_line(out, THREADS, 1, 0);
}

/* ---- Warps ---- */
template <bool RIGHT> __global__ void sum_pairs(float *out)
{
    grid_wait();
    unsigned mask = RIGHT ? 0xffffffffu : 0x0000ffffu;
    float value = 1;
    if (RIGHT || threadIdx.x < 16)
        value += __shfl_xor_sync(mask, value, 16);
    out[threadIdx.x] = value;
}
template <bool RIGHT> static void shuffle_outside_of_mask()
{
    float *out = device_array<float>(32);
    LAUNCH(&gpu, sum_pairs<RIGHT>, 1, 32, 0, out);
    expect_line(out, 32, 2, 0);
}

template <bool RIGHT> __global__ void sum_after_return(float *out, int count)
{
    grid_wait();
    bool there = (int)threadIdx.x < count;
    if (!RIGHT && !there)
        return;
    int sum = there;
    for (int step = 16; step; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (there)
        out[threadIdx.x] = (float)sum;
}
template <bool RIGHT> static void shuffle_of_ended_lanes()
{
    float *out = device_array<float>(20);
    LAUNCH(&gpu, sum_after_return<RIGHT>, 1, 32, 0, out, 20);
    expect_line(out, 20, 20, 0);
}

/* ---- Device memory ---- */
__global__ void copy_from(float *out, const float *in, int first)
{
    grid_wait();
    out[threadIdx.x] = in[(int)threadIdx.x + first];
}
template <bool RIGHT> static void read_past_a_buffer()
{
    float *out = device_array<float>(THREADS);
    LAUNCH(&gpu, copy_from, 1, THREADS, 0, out, counting(THREADS), RIGHT ? 0 : 1);
    expect_line(out, THREADS, 0, 1);
}

__global__ void store_at(float *out, int first)
{
    grid_wait();
    out[(int)threadIdx.x + first] = 1;
}
template <bool RIGHT> static void write_before_a_buffer()
{
    float *out = device_array<float>(THREADS);
    LAUNCH(&gpu, store_at, 1, THREADS, 0, out, RIGHT ? 0 : -1);
    CUDA_CHECK(cudaFree(out));
}

template <bool RIGHT> static void freed_buffer()
{
    float *out = device_array<float>(THREADS), *in = counting(THREADS);
    if (!RIGHT)
        CUDA_CHECK(cudaFree(in));
    LAUNCH(&gpu, copy_from, 1, THREADS, 0, out, in, 0);
    expect_line(out, THREADS, 0, 1);
}

template <bool RIGHT> static void pointer_of_the_host()
{
    float *out = device_array<float>(THREADS);
    float *values = (float *)calloc(THREADS, 4);
    LAUNCH(&gpu, copy_from, 1, THREADS, 0, out, RIGHT ? counting(THREADS) : values, 0);
    expect_line(out, THREADS, 0, 1);
}

template <bool RIGHT> static void host_reads_the_device()
{
    const float *memory = counting(4);
    float value[4] = {0, 0, 0, 3};
    if (RIGHT)
        cuda_get(&gpu, value, memory, sizeof value);
    if ((RIGHT ? value : memory)[3] != 3)
        _exit(WRONG_RESULT);
}

template <bool RIGHT> __global__ void load_four(float *out, const float *in)
{
    grid_wait();
    float4 four = *(const float4 *)(in + 4 * threadIdx.x + !RIGHT);
    out[threadIdx.x] = four.x;
}
template <bool RIGHT> static void misaligned_vector()
{
    float *out = device_array<float>(32);
    LAUNCH(&gpu, load_four<RIGHT>, 1, 32, 0, out, counting(32 * 4 + 1) + 1 - 1);
    expect_line(out, 32, 0, 4);
}

template <bool RIGHT> __global__ void index_registers(float *out, int last)
{
    grid_wait();
    float own[4] = {1, 1, 1, 1};
    out[threadIdx.x] = own[RIGHT ? 3 : last];
}
template <bool RIGHT> static void index_outside_of_an_array()
{
    float *out = device_array<float>(32);
    LAUNCH(&gpu, index_registers<RIGHT>, 1, 32, 0, out, 4);
    expect_line(out, 32, 1, 0);
}

/* ---- Launches that overlap ---- */
template <bool RIGHT> __global__ void copy_early(float *out, const float *in)
{
    float value = 0;
    if (!RIGHT)
        value = in[threadIdx.x];
    prefetch(in + threadIdx.x);
    grid_wait();
    out[threadIdx.x] = RIGHT ? in[threadIdx.x] : value;
}
template <bool RIGHT> static void read_before_its_wait()
{
    float *out = device_array<float>(THREADS);
    LAUNCH(&gpu, copy_early<RIGHT>, 2, THREADS, 0, out, counting(THREADS));
    expect_line(out, THREADS, 0, 1);
}

template <bool RIGHT> __global__ void fill_shared(float *out)
{
    SHARED(float, all, 32);
    if (RIGHT || threadIdx.x < 31)
        grid_wait();
    all[threadIdx.x] = 1;
    if (threadIdx.x == 0)
        out[0] = all[0];
}
template <bool RIGHT> static void thread_without_its_wait()
{
    float *out = device_array<float>(THREADS);
    LAUNCH(&gpu, fill_shared<RIGHT>, 1, 32, 0, out);
    expect_line(out, 1, 1, 0);
}

template <bool RIGHT> __global__ void copy_early_to_shared(float *out, const float *in)
{
    SHARED(float4, all, 32);
    if (RIGHT)
        grid_wait();
    copy_async(&all[threadIdx.x], in + 4 * threadIdx.x, true);
    copies_commit();
    if (!RIGHT)
        grid_wait();
    copies_wait<0>();
    out[threadIdx.x] = all[threadIdx.x].x;
}
template <bool RIGHT> static void copy_before_its_wait()
{
    float *out = device_array<float>(32);
    LAUNCH(&gpu, copy_early_to_shared<RIGHT>, 1, 32, 0, out, counting(128));
    expect_line(out, 32, 0, 4);
}

/* ---- Copies that happen later ---- */
template <bool RIGHT> __global__ void copy_through_shared(float *out, const float *in)
{
    grid_wait();
    SHARED(float4, all, 32);
    copy_async(&all[threadIdx.x], in + 4 * threadIdx.x, true);
    copies_commit();
    if (RIGHT)
        copies_wait<0>();
    __syncthreads();
    out[threadIdx.x] = all[31 - threadIdx.x].x;
}
template <bool RIGHT> static void copy_read_before_its_wait()
{
    float *out = device_array<float>(32);
    LAUNCH(&gpu, copy_through_shared<RIGHT>, 1, 32, 0, out, counting(128));
    expect_line(out, 32, 124, -4);
}

/* Two alternating stages; a stage is refilled once all threads have read it. */
template <bool RIGHT> __global__ void add_tiles(float *out, const float *in, int tiles)
{
    grid_wait();
    struct stage {
        float at[128];
    };
    SHARED(stage, stages, 2);
    float sum = 0;
    copy_async(&stages[0].at[threadIdx.x * 4], in + threadIdx.x * 4, true);
    copies_commit();
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles)
            copy_async(&stages[(i + 1) % 2].at[threadIdx.x * 4], in + (i + 1) * 128 + threadIdx.x * 4, true);
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        sum += stages[i % 2].at[127 - threadIdx.x];
        if (RIGHT)
            __syncthreads();
    }
    out[threadIdx.x] = sum;
}
template <bool RIGHT> static void stage_freed_too_early()
{
    float *out = device_array<float>(32);
    LAUNCH(&gpu, add_tiles<RIGHT>, 1, 32, 0, out, counting(8 * 128), 8);
    expect_line(out, 32, 8 * 127 + 28 * 128, -8);
}

/* ---- Streams ---- */
[[maybe_unused]] static void wait_for(cudaStream_t stream, cudaStream_t other)
{
    cudaEvent_t event;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CUDA_CHECK(cudaEventRecord(event, other));
    CUDA_CHECK(cudaStreamWaitEvent(stream, event, 0));
}
template <bool RIGHT> static void stream_not_waited_for()
{
    struct device other = gpu;
    cudaStream_t stream;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    other.queue = stream;
    float *out = device_array<float>(THREADS), *data = counting(THREADS);
    LAUNCH(&other, shift<true>, 1, THREADS, 0, data);
    if (RIGHT)
        wait_for(cuda_queue_of(&gpu), stream);
    LAUNCH(&gpu, copy_from, 1, THREADS, 0, out, data, 0);
    expect_line(out, THREADS, 1, 1);
}

/* Captures a line of two kernels into a graph; host actions
 * that are invalid during capture must be caught. */
static float *spare;
static cudaStream_t other_stream;
template <bool RIGHT> static void captured(void (*host_does)())
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float *out = device_array<float>(THREADS), *data = counting(THREADS);
    cudaStream_t queue = cuda_queue_of(&gpu);
    spare = device_array<float>(1);
    CUDA_CHECK(cudaStreamCreateWithFlags(&other_stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
    LAUNCH(&gpu, shift<true>, 1, THREADS, 0, data);
    if (!RIGHT)
        host_does();
    LAUNCH(&gpu, copy_from, 1, THREADS, 0, out, data, 0);
    CUDA_CHECK(cudaStreamEndCapture(queue, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++)
        CUDA_CHECK(cudaGraphLaunch(exec, queue));
    if (RIGHT)
        host_does();
    expect_line(out, THREADS - 1, 2, 1); /* shifted twice; the last element stays THREADS */
}
template <bool RIGHT> static void wait_in_a_capture()
{
    captured<RIGHT>([] { CUDA_CHECK(cudaStreamSynchronize(cuda_queue_of(&gpu))); });
}
template <bool RIGHT> static void question_in_a_capture()
{
    captured<RIGHT>([] { (void)cudaStreamQuery(cuda_queue_of(&gpu)); });
}
template <bool RIGHT> static void memory_taken_in_a_capture()
{
    captured<RIGHT>([] { device_array<float>(1); });
}
template <bool RIGHT> static void pageable_copy_in_a_capture()
{
    captured<RIGHT>([] {
        float one = 1;
        CUDA_CHECK(cudaMemcpyAsync(spare, &one, 4, cudaMemcpyHostToDevice, cuda_queue_of(&gpu)));
    });
}
template <bool RIGHT> static void other_stream_in_a_capture()
{
    captured<RIGHT>([] { CUDA_CHECK(cudaMemsetAsync(spare, 0, 4, other_stream)); });
}

/* Gradients are summed on a second stream while the real AdamW reads them in the queue. */
template <bool RIGHT> static void update_before_its_sum()
{
    struct device stream_device;
    cudaStream_t stream;
    float *g, *p, *m, *v, zeros[THREADS] = {};
    double *squares, one = 1;
    if (device_open_cuda(&gpu, 0))
        _exit(NO_GPU);
    for (float **block : {&g, &p, &m, &v})
        *block = upload(zeros, THREADS);
    squares = upload(&one, 1);
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_device = gpu;
    stream_device.queue = stream;
    wait_for(stream, cuda_queue_of(&gpu));
    LAUNCH(&stream_device, store_at, 1, THREADS, 0, g, 0);
    if (RIGHT)
        wait_for(cuda_queue_of(&gpu), stream);
    struct update update = {};
    update.p = p, update.m = m, update.v = v, update.g = g;
    update.count = THREADS;
    update.lr_factor = 1;
    struct updates updates = {1, &update};
    struct adamw adamw = {1, 0, 0, 1e-8f, 0, 1};
    gpu.ops->adamw(&gpu, &updates, squares, 0, &adamw);
    expect_line(p, THREADS, -1, 0);
}

template <bool RIGHT> static void pinned_copy_not_waited_for()
{
    void *pinned;
    float *data = counting(THREADS);
    CUDA_CHECK(cudaMallocHost(&pinned, THREADS * 4));
    memset(pinned, 0, THREADS * 4);
    CUDA_CHECK(cudaMemcpyAsync(pinned, data, THREADS * 4, cudaMemcpyDeviceToHost, cuda_queue_of(&gpu)));
    if (RIGHT)
        cuda_wait(&gpu);
    if (((float *)pinned)[THREADS - 1] != THREADS - 1)
        _exit(WRONG_RESULT);
}

#ifdef WEFT_EMULATED
/* Launches that a driver refuses are refused. */
static void impossible_launches_are_errors()
{
    float *out = device_array<float>(4);
    emu::call({"store_at", 1, 1025, 0, cuda_queue_of(&gpu)}, store_at, out, 0);
    bool refused = cudaGetLastError() == cudaErrorInvalidConfiguration;
    emu::call({"store_at", dim3(1, 65536), 1, 0, cuda_queue_of(&gpu)}, store_at, out, 0);
    refused &= cudaGetLastError() == cudaErrorInvalidConfiguration;
    emu::call({"store_at", 1, 1, 49 << 10, cuda_queue_of(&gpu)}, store_at, out, 0);
    refused &= cudaGetLastError() == cudaErrorInvalidConfiguration;
    refused &= cudaMemcpyAsync(out, &refused, 17, cudaMemcpyHostToDevice, cuda_queue_of(&gpu)) != cudaSuccess;
    refused &= cudaGetLastError() == cudaSuccess && cudaFree(out + 1) != cudaSuccess;
    if (!refused)
        _exit(WRONG_RESULT);
}
#endif

#if defined(WEFT_EMULATED) && !defined(__SANITIZE_THREAD__)

TEST(planted_bugs_are_caught)
{
#define PLANTED(name, words)                                                                                           \
    {                                                                                                                  \
#name, name < false>, name < true>, words                                                                      \
    }
    static const struct planted_bug planted[] = {
        PLANTED(missing_barrier, NULL),
        PLANTED(race_in_one_order, NULL),
        PLANTED(unwritten_shared_memory, NULL),
        PLANTED(past_static_shared_memory, "byte 0 past the end of the shared array all was written"),
        PLANTED(past_dynamic_shared_memory, "the end of dynamic shared memory is passed"),
        PLANTED(divergent_barrier, "a barrier that not all threads of the block come to"),
        PLANTED(shuffle_outside_of_mask, "which is not in the mask 0000ffff"),
        PLANTED(shuffle_of_ended_lanes, "12 of its 32 threads have ended; 20 wait at a shuffle"),
        PLANTED(read_past_a_buffer, "thread (255,0,0): byte 1024 of a buffer of 1024 is touched"),
        PLANTED(write_before_a_buffer, "byte -4 of a buffer of 1024 was written"),
        PLANTED(freed_buffer, "where there is no buffer"),
        PLANTED(pointer_of_the_host, "copy_from is given an address of the host"),
        PLANTED(host_reads_the_device, "the host touches device memory"),
        PLANTED(misaligned_vector, "a misaligned access: 'const struct float4' at"),
        PLANTED(index_outside_of_an_array, "index 4 is outside of 'float [4]'"),
        PLANTED(read_before_its_wait, "is touched before grid_wait"),
        PLANTED(thread_without_its_wait, "thread (31,0,0): the thread's end, before grid_wait"),
        PLANTED(copy_before_its_wait, "cp.async, before grid_wait"),
        PLANTED(copy_read_before_its_wait, NULL),
        PLANTED(stage_freed_too_early, NULL),
        PLANTED(stream_not_waited_for, NULL),
        PLANTED(update_before_its_sum, NULL),
        PLANTED(pinned_copy_not_waited_for, NULL),
        PLANTED(wait_in_a_capture, "the host waits for a stream while a stream is being captured"),
        PLANTED(question_in_a_capture, "the host asks for a stream while a stream is being captured"),
        PLANTED(memory_taken_in_a_capture, "memory is taken or given back while a stream is being captured"),
        PLANTED(pageable_copy_in_a_capture, "a copy of pageable memory while a stream is being captured"),
        PLANTED(other_stream_in_a_capture, "work on another stream while a stream is being captured"),
    };
    are_caught(planted, COUNT_OF(planted));
}

#elif defined(WEFT_EMULATED)
/* Races are reported with both locations, in every order. */
TEST(races_are_named)
{
    void (*const wrong[])(void) = {race_in_one_order<false>, race_of_blocks<false, true>, race_of_blocks<true, false>};
    void (*const right[])(void) = {race_in_one_order<true>, race_of_blocks<true, true>};
    for (i64 i = 0; i < COUNT_OF(wrong); i++)
        for (i64 order = 0; order < COUNT_OF(ORDERS); order++) {
            struct child_outcome o = outcome_of(wrong[i], (int)order, 0);
            assert_non_null(strstr(o.said, "data race"));
            assert_non_null(strstr(o.said, "test_emulator.cu"));
        }
    for (i64 i = 0; i < COUNT_OF(right); i++)
        for (i64 order = 0; order < COUNT_OF(ORDERS); order++)
            assert_true(outcome_of(right[i], (int)order, 0).passed);
}
#endif

#ifdef WEFT_EMULATED
extern "C" {
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, size_t);
}

/* The first of two reservations is given back first, more often than the region has room for. */
static void reserve_often()
{
    const size_t bytes = (size_t)64 << 30;
    CUdeviceptr first, second;
    bool failed = false;
    for (int i = 0; i < 200; i++)
        failed |= cuMemAddressReserve(&first, bytes, 0, 0, 0) || cuMemAddressReserve(&second, bytes, 0, 0, 0) ||
                  cuMemAddressFree(first, bytes) || cuMemAddressFree(second, bytes);
    if (failed)
        _exit(WRONG_RESULT);
}

TEST(addresses_that_were_given_back_are_reserved_anew)
{
    passes_in_all_modes("reservations", reserve_often);
}

TEST(impossible_launches)
{
    passes_in_all_modes("launches", impossible_launches_are_errors);
}
#endif

int main(void)
{
    return tests_run(NULL, NULL);
}
