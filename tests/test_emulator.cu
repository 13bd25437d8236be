/* The emulated GPU itself: kernels with a planted bug are caught, by a message or by a wrong result in one of its
 * orders and moments, and repaired they pass in all of them; tensor cores, copies and barriers of ptx.h mean what plain
 * loops say. The latter is tested on a real GPU too (test_instructions_gpu), which tells whether the emulated one is
 * like it. */
#include "kernels/cuda/ptx.h"

extern "C" {
#include <setjmp.h>
#include <cmocka.h>
}
#include <sys/wait.h>
#include <unistd.h>

static struct device gpu; /* a queue is all of it that launches need */

enum { THREADS = 256, WRONG_RESULT = 3, NO_GPU = 4 };
#ifdef WEFT_EMULATED
static const char *const ORDERS[] = {"up", "down", "mixed"}, *const MOMENTS[] = {"early", "late", "mixed"};
#else
static const char *const ORDERS[] = {"any"}, *const MOMENTS[] = {"any"};
#endif

/* ---- Memory of the device ---- */
template <class T> static T *device_array(i64 count)
{
    void *memory;
    CUDA_CHECK(cudaMalloc(&memory, (size_t)count * sizeof(T)));
    return (T *)memory;
}

template <class T> static T *upload(const T *values, i64 count)
{
    T *memory = device_array<T>(count);
    cuda_put(&gpu, memory, values, count * (i64)sizeof(T));
    return memory;
}

/* 0, 1, 2, ... */
static float *counting(i64 count)
{
    float values[4096];
    for (i64 i = 0; i < count; i++)
        values[i] = (float)i;
    return upload(values, count);
}

/* Ends the child where out[i] is not first + i . step. */
static void expect_line(const float *out, i64 count, float first, float step)
{
    float values[4096];
    cuda_get(&gpu, values, out, count * 4);
    for (i64 i = 0; i < count; i++)
        if (values[i] != first + (float)i * step)
            _exit(WRONG_RESULT);
}

/* ---- Barriers and shared memory ---- */
template <bool RIGHT> __global__ void reverse(float *out, const float *in)
{
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

/* One thread after the other from the first on, this is right without a barrier too. */
template <bool RIGHT> __global__ void shift(float *data)
{
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

template <bool RIGHT> __global__ void sum_some(float *out, int count)
{
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
    LAUNCH(&gpu, sum_some<true>, 1, THREADS, 0, out, THREADS); /* leaves zeros behind */
    LAUNCH(&gpu, sum_some<RIGHT>, 1, THREADS, 0, out, THREADS);
    expect_line(out, THREADS, 100, 0);
}

template <bool RIGHT> __global__ void store_shared(float *out)
{
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
    float own[4] = {1, 1, 1, 1};
    out[threadIdx.x] = own[RIGHT ? 3 : last];
}
template <bool RIGHT> static void index_outside_of_an_array()
{
    float *out = device_array<float>(32);
    LAUNCH(&gpu, index_registers<RIGHT>, 1, 32, 0, out, 4);
    expect_line(out, 32, 1, 0);
}

/* ---- Copies that happen later ---- */
template <bool RIGHT> __global__ void copy_through_shared(float *out, const float *in)
{
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

/* Two stages in turn; a stage is filled again once all have read it. */
template <bool RIGHT> __global__ void add_tiles(float *out, const float *in, int tiles)
{
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

/* ---- Hopper: a tile by the copy engine, products of a warpgroup ---- */
enum { M = 64, N = 128, K = 128, STEPS = K / TILE_COLUMNS };
struct tiles {
    bf16 a[M * TILE_COLUMNS], b[N * TILE_COLUMNS];
};
enum { LOADED_WITHOUT_WAIT = 1, PRODUCT_WITHOUT_WAIT = 2, NO_BARRIER = 4 };

template <int BUG>
__global__ void multiply(float *out, const __grid_constant__ tile_map a, const __grid_constant__ tile_map b)
{
#ifdef WEFT_HOPPER
    DYNAMIC_SHARED(tiles, tile);
    SHARED(u64, full, 1);
    float d[64];
    if (threadIdx.x == 0 && BUG != NO_BARRIER)
        mbarrier_init(full, 1);
    fence_proxy_async();
    __syncthreads();
    for (int step = 0; step < STEPS; step++) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expecting(full, sizeof(tiles));
            tile_load(tile->a, &a, full, step * TILE_COLUMNS, 0);
            tile_load(tile->b, &b, full, step * TILE_COLUMNS, 0);
        }
        if (BUG != LOADED_WITHOUT_WAIT || step == 0)
            mbarrier_wait(full, step % 2);
        warpgroup_fence();
        for (int i = 0; i < TILE_COLUMNS / 16; i++)
            warpgroup_mma_64x128(d, tile_descriptor(tile->a) + 2 * i, tile_descriptor(tile->b) + 2 * i, step || i);
        warpgroup_commit();
        if (BUG != PRODUCT_WITHOUT_WAIT || step + 1 == STEPS)
            warpgroup_wait<0>();
        __syncthreads();
    }
    for (int i = 0; i < 64; i++) {
        int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
        out[row * N + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = d[i];
    }
#endif
}

/* Small whole numbers: sums are exact. */
static struct matrix whole_numbers(bf16 *values, i64 rows, i64 columns, i64 seed)
{
    for (i64 i = 0; i < rows * columns; i++)
        values[i] = bf16_from_f32((float)((i * 7 + seed + i / columns) % 9 - 4));
    return matrix_of(upload(values, rows * columns), DTYPE_BF16, rows, columns);
}

/* out [m, n] against a [m, k] b^T [n, k] */
static void expect_product(const float *out, const bf16 *a, const bf16 *b, i64 m, i64 n, i64 k)
{
    static float got[M * N];
    cuda_get(&gpu, got, out, m * n * 4);
    for (i64 i = 0; i < m * n; i++) {
        float sum = 0;
        for (i64 c = 0; c < k; c++)
            sum += bf16_to_f32(a[i / n * k + c]) * bf16_to_f32(b[i % n * k + c]);
        if (got[i] != sum)
            _exit(WRONG_RESULT);
    }
}

template <int BUG> static void products_of_a_warpgroup()
{
    struct cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    if (properties.major != 9)
        return;
    static bf16 a[M * K], b[N * K];
    float *out = device_array<float>(M * N);
    struct matrix of_a = whole_numbers(a, M, K, 1), of_b = whole_numbers(b, N, K, 2);
    CUDA_CHECK(cudaFuncSetAttribute(multiply<BUG>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(tiles)));
    LAUNCH(&gpu, multiply<BUG>, 1, 128, sizeof(tiles), out, tile_map_of(of_a, M), tile_map_of(of_b, N));
    expect_product(out, a, b, M, N, K);
}

/* ---- Ampere: d [16, 16] of a [16, 16] and b^T [16, 16], by ldmatrix and mma ---- */
template <bool TRANSPOSED> __global__ void multiply_by_a_warp(float *out, const bf16 *a, const bf16 *b)
{
    struct rows {
        bf16 at[16][24]; /* padded: rows stay multiples of 16 bytes */
    };
    SHARED(rows, left, 1);
    SHARED(rows, right, 1);
    u32 of_a[4], of_b[4];
    float d[2][4] = {};
    int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) {
        left->at[i / 16][i % 16] = a[i];
        (TRANSPOSED ? right->at[i % 16][i / 16] : right->at[i / 16][i % 16]) = b[i];
    }
    __syncwarp();
    load_matrices(of_a, &left->at[lane % 16][lane / 16 * 8]);
    if (TRANSPOSED)
        load_matrices_transposed(of_b, &right->at[lane % 16][lane / 16 * 8]);
    else
        load_matrices(of_b, &right->at[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
    mma(d[0], of_a, of_b);
    mma(d[1], of_a, of_b + 2);
    for (int i = 0; i < 8; i++)
        out[(lane / 4 + i / 2 % 2 * 8) * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i / 4][i % 4];
}
template <bool TRANSPOSED> static void products_of_a_warp()
{
    static bf16 a[256], b[256];
    float *out = device_array<float>(256);
    struct matrix of_a = whole_numbers(a, 16, 16, 1), of_b = whole_numbers(b, 16, 16, 2);
    LAUNCH(&gpu, multiply_by_a_warp<TRANSPOSED>, 1, 32, 0, out, (const bf16 *)of_a.data, (const bf16 *)of_b.data);
    expect_product(out, a, b, 16, 16, 16);
}

/* ---- Small things, each into a row of `out` of 32 ---- */
__global__ void small_things(float *out)
{
    int lane = threadIdx.x;
    SHARED(int, counter, 1);
    float rows[] = {
        __shfl_up_sync(~0u, (float)lane, 1) + (lane == 0), /* 1, 0, 1, 2, ... */
        __shfl_down_sync(~0u, (float)lane, 1),             /* 1, 2, ..., 31, 31 */
        __shfl_sync(~0u, (float)lane, lane / 8, 8),        /* lane / 8 of the own eight */
        (float)__popc(__ballot_sync(~0u, lane % 3 == 0)),
        (float)__all_sync(~0u, lane < 31),
        (float)__any_sync(~0u, lane == 31),
        (float)__syncthreads_count(lane < 7),
        (float)__syncthreads_or(lane == 5),
        (float)__syncthreads_and(lane == 5),
    };
    if (lane == 0)
        counter[0] = 0;
    __syncthreads();
    atomicAdd(counter, lane);
    __syncthreads();
    for (int i = 0; i < 9; i++)
        out[i * 32 + lane] = rows[i];
    out[9 * 32 + lane] = (float)counter[0];
    out[10 * 32 + lane] = block_max((float)(lane * 5 % 32));
    out[11 * 32 + lane] = (float)block_sum(0.1 * lane);
}
static void meetings_mean_what_they_say()
{
    float *out = device_array<float>(12 * 32), got[12 * 32];
    LAUNCH(&gpu, small_things, 1, 32, 0, out);
    cuda_get(&gpu, got, out, sizeof got);
    for (int lane = 0; lane < 32; lane++) {
        float wanted[12] = {(float)(lane == 0 ? 1 : lane - 1),
                            (float)(lane == 31 ? 31 : lane + 1),
                            (float)(lane / 8 * 9),
                            11,
                            0,
                            1,
                            7,
                            1,
                            0,
                            496,
                            31,
                            49.6f};
        for (int i = 0; i < 12; i++)
            if (got[i * 32 + lane] != wanted[i])
                _exit(WRONG_RESULT);
    }
}

static void graphs_run_again()
{
    cudaStream_t stream = cuda_queue_of(&gpu);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float *data = counting(THREADS);
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    LAUNCH(&gpu, shift<true>, 1, THREADS, 0, data);
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    expect_line(data, THREADS, 0, 1);
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    expect_line(data, THREADS, 1, 1);
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    expect_line(data, THREADS - 1, 2, 1);
    CUDA_CHECK(cudaGraphExecDestroy(exec));
}

#ifdef WEFT_EMULATED
/* What a driver refuses, is refused. */
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

/* ---- Children ---- */
struct outcome {
    bool no_gpu, passed, wrong; /* neither: stopped with a message */
    char said[4096];
};

static void run_child(void (*run)(), int order, int moment, int out)
{
    int count;
    cudaStream_t queue;
    dup2(out, STDERR_FILENO);
    setenv("WEFT_EMU_ORDER", ORDERS[order], 1);
    setenv("WEFT_EMU_ASYNC", MOMENTS[moment], 1);
    setenv("WEFT_EMU_STREAMS", moment ? "late" : "early", 1);
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        _exit(NO_GPU);
    CUDA_CHECK(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    gpu.queue = queue;
    run();
    _exit(0);
}

static struct outcome outcome_of(void (*run)(), int order, int moment)
{
    struct outcome o = {};
    int pipe_of[2], status = 0;
    size_t length = 0;
    assert_int_equal(pipe(pipe_of), 0);
    pid_t child = fork();
    if (child == 0)
        run_child(run, order, moment, pipe_of[1]);
    close(pipe_of[1]);
    for (ssize_t n; (n = read(pipe_of[0], o.said + length, sizeof o.said - 1 - length)) > 0;)
        length += (size_t)n;
    close(pipe_of[0]);
    waitpid(child, &status, 0);
    o.no_gpu = WIFEXITED(status) && WEXITSTATUS(status) == NO_GPU;
    o.passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    o.wrong = WIFEXITED(status) && WEXITSTATUS(status) == WRONG_RESULT;
    return o;
}

static void passes_in_all_modes(const char *name, void (*run)())
{
    for (int order = 0; order < COUNT_OF(ORDERS); order++)
        for (int moment = 0; moment < COUNT_OF(MOMENTS); moment++) {
            struct outcome o = outcome_of(run, order, moment);
            if (o.no_gpu)
                skip();
            if (!o.passed)
                fail_msg("%s, %s, %s: %s", name, ORDERS[order], MOMENTS[moment], o.said[0] ? o.said : "wrong result");
        }
}

#if defined(WEFT_EMULATED) && !defined(__SANITIZE_THREAD__)
/* Caught in some mode; where it is, it is with these words, or without any by a wrong result. */
static void is_caught(const char *name, void (*run)(), const char *words)
{
    int caught = 0;
    for (int order = 0; order < COUNT_OF(ORDERS); order++)
        for (int moment = 0; moment < COUNT_OF(MOMENTS); moment++) {
            struct outcome o = outcome_of(run, order, moment);
            caught += !o.passed;
            if (!o.passed && (words ? !strstr(o.said, words) : !o.wrong))
                fail_msg("%s, %s, %s: expected %s: '%s'", name, ORDERS[order], MOMENTS[moment],
                         words ? words : "a wrong result", o.said);
        }
    print_message("%s: caught in %d of 9 modes\n", name, caught);
    if (!caught)
        fail_msg("%s was not caught", name);
}

static void planted_bugs_are_caught(void **state)
{
    (void)state;
/* clang-format off */
#define PLANTED(name, words) {#name, name<false>, name<true>, words}
#define HOPPER(bug, words) {#bug, products_of_a_warpgroup<bug>, products_of_a_warpgroup<0>, words}
    /* clang-format on */
    static const struct {
        const char *name;
        void (*wrong)(), (*right)();
        const char *words; /* NULL: a wrong result */
    } planted[] = {
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
        PLANTED(copy_read_before_its_wait, NULL),
        PLANTED(stage_freed_too_early, NULL),
        PLANTED(stream_not_waited_for, NULL),
        PLANTED(pinned_copy_not_waited_for, NULL),
        HOPPER(LOADED_WITHOUT_WAIT, NULL),
        HOPPER(PRODUCT_WITHOUT_WAIT, NULL),
        HOPPER(NO_BARRIER, "an mbarrier that nobody has initialised"),
    };
    for (i64 i = 0; i < COUNT_OF(planted); i++) {
        is_caught(planted[i].name, planted[i].wrong, planted[i].words);
        passes_in_all_modes(planted[i].name, planted[i].right);
    }
}

#elif defined(WEFT_EMULATED)
/* With both places, in every order. */
static void races_are_named(void **state)
{
    (void)state;
    for (i64 order = 0; order < COUNT_OF(ORDERS); order++) {
        struct outcome o = outcome_of(race_in_one_order<false>, (int)order, 0);
        assert_non_null(strstr(o.said, "data race"));
        assert_non_null(strstr(o.said, "test_emulator.cu"));
    }
}
#endif

#ifdef WEFT_EMULATED
static void impossible_launches(void **state)
{
    (void)state;
    passes_in_all_modes("launches", impossible_launches_are_errors);
}
#endif

static void instructions_mean_what_they_say(void **state)
{
    (void)state;
    passes_in_all_modes("a warp's products", products_of_a_warp<false>);
    passes_in_all_modes("a warp's products, transposed", products_of_a_warp<true>);
    passes_in_all_modes("a warpgroup's products", products_of_a_warpgroup<0>);
    passes_in_all_modes("meetings", meetings_mean_what_they_say);
    passes_in_all_modes("graphs", graphs_run_again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef __SANITIZE_THREAD__
        cmocka_unit_test(races_are_named),
#elif defined(WEFT_EMULATED)
        cmocka_unit_test(planted_bugs_are_caught),
#endif
#ifdef WEFT_EMULATED
        cmocka_unit_test(impossible_launches),
#endif
        cmocka_unit_test(instructions_mean_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
