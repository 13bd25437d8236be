/* Internal header of the CUDA backend, for C and CUDA. Ops are queued on device->queue. Floating
 * point sums follow an order fixed by shapes, never atomics, so that bits are the same from run to
 * run.
 *
 * Other folders include device.h, which opens a GPU and lists the ops of this backend.
 * All device memory belongs to the caller; the workspace, counters and pinned buffers in struct
 * cuda_handles belong to the device and are shared by its ops.
 *
 * Where is what, also of the subfolders, of which routing, loss, draw and media have no main header:
 *   here        device.c (opening, which ops exist), memory.c (arenas), staging.c (copies), graph.c
 *               (CUDA graphs), ptx.h and hopper.h (instructions), built_for.cu (architecture),
 *               adamw.cu, bias.cu, rmsnorm.cu, rope.cu
 *   gemm/       matmul.c (dense, cuBLASLt); start at matmul_grouped.h for the others;
 *               matmul_fp8_hopper.cu
 *   attention/  attention.h; attention.cu and attention_backward.cu choose the Hopper kernels
 *   routing/    route.cu (softmax and top-k, one warp a position), route_sort.cu (rows by expert),
 *               combine.cu, gather.cu, scatter.cu, route_capacity.cu (rows for other ranks)
 *   loss/       cross_entropy.cu, soft_cross_entropy.cu (distillation)
 *   draw/       sample.cu (temperature, top_k, top_p; draw.h)
 *   media/      conv.cu, conv_cudnn.c (cuDNN), stft.cu, resize.cu, quantize_bits.cu,
 *               quantize_vectors.cu, codebook.cu, phases.cu */
#ifndef WEFT_CUDA_H
#define WEFT_CUDA_H
#include <cuda_runtime.h>
#include <math.h>

#ifdef __cplusplus
#define _Noreturn [[noreturn]]
extern "C" {
#include "kernels/cuda/device.h"
}
#undef _Noreturn
#else
#include "kernels/cuda/device.h"
#endif

/* True for errors caused by a failed capture. The end of the capture reports them too, and the ops
 * are then called again. */
static inline bool cuda_is_of_capture(cudaError_t status)
{
    return status >= cudaErrorStreamCaptureUnsupported && status <= cudaErrorStreamCaptureWrongThread;
}
#define CUDA_CHECK(call)                                                                                               \
    do {                                                                                                               \
        cudaError_t status_ = (call);                                                                                  \
        require(status_ == cudaSuccess || cuda_is_of_capture(status_), "CUDA: %s: %s", #call,                          \
                cudaGetErrorString(status_));                                                                          \
    } while (0)

/* The struct behind device->handles. All ops share the workspace, because the queue runs one op at
 * a time. */
struct cuda_handles {
    int index, major, minor, multiprocessors; /* GPU index, compute capability, multiprocessors */
    int built_for;                            /* architecture of the running kernels: 80, 90 */
    bool hopper;                              /* ops use their sm_90 kernels where they have one */
    bool overlaps;                            /* launches may begin before the previous one has ended: grid_wait */
    struct cuda_blas *blas;                   /* matmul.c */
    struct cuda_cudnn *cudnn;                 /* conv_cudnn.c; NULL: own kernels */
    struct cuda_staging *staging;             /* staging.c */
    void *workspace;
    i64 workspace_bytes;
    u32 *counters;    /* [CUDA_COUNTERS], zero between kernels; a kernel fault destroys the context anyway */
    i64 launched;     /* launches since device->pace was called, or since recording began */
    bool recording;   /* the queue is being captured */
    const char *lost; /* what a library refused while recording; NULL: nothing */
    bool has_warned;  /* the warning that recording fails was logged */
};
static inline struct cuda_handles *cuda_handles_of(const struct device *device)
{
    return (struct cuda_handles *)device->handles;
}
static inline cudaStream_t cuda_queue_of(struct device *device)
{
    return (cudaStream_t)device->queue;
}

/* Counts launches and paces the host. A driver's queue has room for about a thousand launches, and
 * a launch into a full queue blocks forever if a dead rank holds the queue up. With ranks, the host
 * therefore runs at most a few hundred launches ahead of its GPU. */
enum { LAUNCHES_PACED = 128 };
static inline void cuda_count_launches(struct device *device, i64 count)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    handles->launched += count;
    if (handles->recording || handles->launched < LAUNCHES_PACED)
        return;
    handles->launched = 0;
    if (device->pace)
        device->pace(device);
}

/* The first `bytes` of the workspace, aligned like an allocation. Panics if the workspace is too
 * small. */
static inline void *cuda_workspace_of(struct device *device, const char *op, i64 bytes)
{
    struct cuda_handles *handles = cuda_handles_of(device);
    require(bytes <= handles->workspace_bytes, "%s needs %lld bytes of workspace, there are %lld", op, (long long)bytes,
            (long long)handles->workspace_bytes);
    return handles->workspace;
}

/* Declares each op with the type that the contract gives it, so that a file that defines another
 * type does not compile. */
#ifdef __cplusplus
extern "C" {
#endif
#define DECLARE(name) __typeof__(*((struct kernels *)0)->name) cuda_##name;
WEFT_CUDA_OPS(DECLARE)
#undef DECLARE
bool cuda_launches_overlap(int major);     /* on a GPU of that compute capability; false with WEFT_OVERLAP=0 */
int cuda_built_for(struct device *device); /* see struct cuda_handles; 0: no kernels for this GPU */
/* memory.c and staging.c: the functions of struct memory. Copies are queued behind earlier ops. */
int cuda_memory_open(void);
void *cuda_tile_map_encoder(void); /* the driver's cuTensorMapEncodeTiled */
void *cuda_alloc(struct device *device, i64 bytes);
void cuda_release(struct device *device, void *memory, i64 bytes);
void *cuda_reserve(struct device *device, i64 bytes);
void cuda_grow(struct device *device, void *base, i64 from, i64 to);
void cuda_unreserve(struct device *device, void *base, i64 bytes, i64 backed_bytes);
void cuda_put(struct device *device, void *out, const void *host, i64 bytes);
void cuda_get(struct device *device, void *host, const void *memory, i64 bytes);
void cuda_wait(struct device *device);
struct cuda_staging *cuda_staging_open(void);
void cuda_staging_close(struct cuda_staging *staging);
i64 cuda_staging_bytes(const struct cuda_staging *staging); /* pinned host memory */
extern const struct recorder cuda_recorder;                 /* graph.c */
struct cuda_blas *cuda_blas_open(void);
void cuda_blas_close(struct cuda_blas *blas);
size_t cuda_blas_version(void);            /* opens cuBLASLt on the first call; 0 and a message on failure */
__typeof__(cuda_matmul) cuda_matmul_plain; /* slow fallback for shapes that cuBLASLt lacks */
size_t cuda_cudnn_version(void);           /* opens cuDNN on the first call; 0: there is none */
/* Opens cuDNN for this device if WEFT_CONV=cudnn. Returns -1 and a message if it cannot be used. */
int cuda_cudnn_open(struct device *device);
void cuda_cudnn_close(struct cuda_cudnn *cudnn);
/* out[c] (+)= the sum over rows of partials [count, columns] (bias.cu). */
void cuda_add_partials(struct device *device, float *out, const float *partials, i64 count, i64 columns, bool add);
#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
#include "core/philox.h"

#include <utility>

/* ---- Kernel side ----
 * nvcc compiles these sources, and so does g++ for the emulated GPU of tests/emulator, which
 * supports neither <<<>>> nor __shared__. Kernels are therefore launched by LAUNCH and its
 * variants, shared memory is declared by SHARED and DYNAMIC_SHARED, and code that needs PTX is in
 * ptx.h. An elementwise kernel uses LAUNCH_ELEMENTS and ELEMENTS, or LAUNCH_RUNS and RUNS to
 * process four elements at once (see activate.cu). A kernel that sums over rows uses LAUNCH_ROWS,
 * one block per row, COLUMNS and block_sum (see rmsnorm.cu). Kernels of a file are static, because
 * a linker merges two templates with the same name and signature. */
enum { BLOCK_THREADS = 256, WARP_THREADS = 32, CACHE_LINE = 128 };

/* LAUNCH(device, kernel, grid, threads, dynamic shared bytes, arguments...); put a template with a
 * comma in parentheses. SHARED(float, sums, 8) declares a per-block array. DYNAMIC_SHARED(float,
 * tile) declares the dynamic bytes, aligned to 16, and to 1024 if their number is a multiple of
 * 1024.
 *
 * Launches overlap (programmatic dependent launch, sm_90): once all blocks of a grid have begun,
 * blocks of the next grid use the free room. Every thread of every kernel must therefore call
 * grid_wait before it touches global memory. After it, all earlier grids have ended and their
 * writes are visible. Before it, a kernel may only compute from its arguments and prefetch (ptx.h).
 * The emulated GPU aborts if a kernel touches global memory before grid_wait or never calls it. */
#ifdef WEFT_EMULATED
#define LAUNCH(device, kernel, grid, threads, bytes, ...)                                                              \
    do {                                                                                                               \
        emu::call({#kernel, grid, threads, (size_t)(bytes), cuda_queue_of(device)}, kernel, __VA_ARGS__);              \
        CUDA_CHECK(cudaGetLastError());                                                                                \
        cuda_count_launches(device, 1);                                                                                \
    } while (0)
__device__ inline void grid_wait(void)
{
    emu::grid_wait();
}
#define SHARED(type, name, count)                                                                                      \
    static char name##_tag;                                                                                            \
    auto &name = *(type(*)[count])emu::static_shared(&name##_tag, sizeof(type[count]), alignof(type), #name)
#define DYNAMIC_SHARED(type, name) type *name = (type *)emu::dynamic_shared()
#else
#define LAUNCH(device, kernel, grid, threads, bytes, ...)                                                              \
    CUDA_CHECK(cuda_launch(device, grid, threads, (size_t)(bytes), kernel, __VA_ARGS__))
template <class... P, class... A>
static inline cudaError_t cuda_launch(struct device *device, dim3 grid, dim3 threads, size_t bytes,
                                      void (*kernel)(P...), A &&...arguments)
{
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {
        grid, threads, bytes, cuda_queue_of(device), &overlap, cuda_handles_of(device)->overlaps ? 1u : 0u};
    cudaError_t status = cudaLaunchKernelEx(&config, kernel, std::forward<A>(arguments)...);
    cudaError_t other = cudaGetLastError();
    cuda_count_launches(device, 1);
    return status == cudaSuccess ? other : status;
}
__device__ inline void grid_wait(void)
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
}
#define SHARED(type, name, count) __shared__ type name[count]
#define DYNAMIC_SHARED(type, name)                                                                                     \
    extern __shared__ __align__(1024) char dynamic_shared_memory[];                                                    \
    type *name = (type *)dynamic_shared_memory
#endif

/* kernel<bf16> or kernel<float> */
#define LAUNCH_BY_DTYPE(device, dtype, kernel, grid, threads, bytes, ...)                                              \
    do {                                                                                                               \
        if ((dtype) == DTYPE_BF16)                                                                                     \
            LAUNCH(device, kernel<bf16>, grid, threads, bytes, __VA_ARGS__);                                           \
        else                                                                                                           \
            LAUNCH(device, kernel<float>, grid, threads, bytes, __VA_ARGS__);                                          \
    } while (0)
/* kernel<first, second> */
#define LAUNCH_BY_DTYPES(device, first, second, kernel, grid, threads, bytes, ...)                                     \
    do {                                                                                                               \
        if ((first) == DTYPE_BF16 && (second) == DTYPE_BF16)                                                           \
            LAUNCH(device, (kernel<bf16, bf16>), grid, threads, bytes, __VA_ARGS__);                                   \
        else if ((first) == DTYPE_BF16)                                                                                \
            LAUNCH(device, (kernel<bf16, float>), grid, threads, bytes, __VA_ARGS__);                                  \
        else if ((second) == DTYPE_BF16)                                                                               \
            LAUNCH(device, (kernel<float, bf16>), grid, threads, bytes, __VA_ARGS__);                                  \
        else                                                                                                           \
            LAUNCH(device, (kernel<float, float>), grid, threads, bytes, __VA_ARGS__);                                 \
    } while (0)

/* Blocks for one thread per element, up to the grid limit. */
static inline unsigned blocks_for(i64 elements)
{
    return (unsigned)min_i64(max_i64(ceil_div(elements, BLOCK_THREADS), 1), 1 << 16);
}
/* Threads of a block that handles one row of `columns`; narrow rows get fewer. */
static inline unsigned threads_for(i64 columns)
{
    unsigned threads = BLOCK_THREADS;
    while (threads > WARP_THREADS && threads / 2 >= columns)
        threads /= 2;
    return threads;
}
/* These launch nothing for 0 elements or 0 rows. */
#define LAUNCH_ELEMENTS(device, dtype, kernel, elements, ...)                                                          \
    do {                                                                                                               \
        if ((elements) > 0)                                                                                            \
            LAUNCH_BY_DTYPE(device, dtype, kernel, blocks_for(elements), BLOCK_THREADS, 0, __VA_ARGS__);               \
    } while (0)
#define LAUNCH_ROWS(device, dtype, kernel, rows, columns, ...)                                                         \
    do {                                                                                                               \
        if ((rows) > 0)                                                                                                \
            LAUNCH_BY_DTYPE(device, dtype, kernel, (unsigned)(rows), threads_for(columns), 0, __VA_ARGS__);            \
    } while (0)

/* Grid-stride loop over `count` elements. */
#define GRID_STRIDE(i, count)                                                                                          \
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += (i64)gridDim.x * blockDim.x)
/* The same over a matrix, with at.row and at.column. */
#define ELEMENTS(at, rows, columns)                                                                                    \
    for (struct element at = first_element(columns); at.row < (rows); at = next_element(at, columns))
/* Loop of a block over the columns of its row. */
#define COLUMNS(i, columns) for (i64 i = threadIdx.x; i < (columns); i += blockDim.x)

struct element {
    i64 row, column, rows_step, columns_step;
};
__device__ inline struct element first_element(i64 columns)
{
    i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
    return {first / columns, first % columns, step / columns, step % columns};
}
__device__ inline struct element next_element(struct element at, i64 columns)
{
    at.row += at.rows_step;
    at.column += at.columns_step;
    if (at.column >= columns) {
        at.column -= columns;
        at.row++;
    }
    return at;
}

/* ---- Elements ---- */
__device__ inline float to_f32(float value)
{
    return value;
}
__device__ inline float to_f32(bf16 value)
{
    return __uint_as_float((u32)value << 16);
}

/* Round to nearest, ties to even; a NaN stays one (core.h). */
template <typename T> __device__ inline T from_f32(float value);
template <> __device__ inline float from_f32<float>(float value)
{
    return value;
}
template <> __device__ inline bf16 from_f32<bf16>(float value)
{
    u32 bits = __float_as_uint(value), rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    return (bf16)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40 : rounded);
}

template <typename T> __device__ inline T *row_of(struct matrix m, i64 row)
{
    return (T *)m.data + row * m.stride;
}

/* One element of a matrix of either dtype. */
__device__ inline float element_of(struct matrix m, i64 row, i64 column)
{
    return m.dtype == DTYPE_BF16 ? to_f32(row_of<bf16>(m, row)[column]) : row_of<float>(m, row)[column];
}

__device__ inline float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Device versions of the functions of these names in core. */
__device__ inline void rng_draw_on_device(u32 out[4], struct rng_key key, u32 a, u32 b, u32 c, u32 d)
{
    philox(out, key.seed, (u32)key.purpose, a, b, c, d);
}
__device__ inline double rng_uniform_on_device(struct rng_key key, u32 a, u32 b, u32 c, u32 d)
{
    u32 out[4];
    rng_draw_on_device(out, key, a, b, c, d);
    return philox_uniform(out);
}

/* ---- Block reductions ----
 * f32 or f64, result in every thread, in a tree order fixed by the number of threads. */
struct sum_operator {
    template <typename T> __device__ T operator()(T a, T b) const { return a + b; }
};
struct max_operator {
    template <typename T> __device__ T operator()(T a, T b) const { return a > b ? a : b; }
};

/* All threads of the block call it; their number is a multiple of 32. */
template <typename T, typename Combine> __device__ inline T block_combine(T value, T none, Combine combine)
{
    SHARED(T, warps, 1024 / WARP_THREADS);
    for (int step = WARP_THREADS / 2; step; step /= 2)
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
    __syncthreads(); /* for the previous call */
    if (threadIdx.x % WARP_THREADS == 0)
        warps[threadIdx.x / WARP_THREADS] = value;
    __syncthreads();
    for (unsigned i = 0; i < blockDim.x / WARP_THREADS; i++)
        none = combine(none, warps[i]);
    return none;
}
template <typename T> __device__ inline T block_sum(T value)
{
    return block_combine(value, (T)0, sum_operator());
}
__device__ inline float block_max(float value)
{
    return block_combine(value, -INFINITY, max_operator());
}

/* Sum of value(i) for i = first, first + step, ... below end, by one thread in that order. It reads
 * AHEAD values before adding them, to hide the latency of reads. */
template <typename T, typename Value> __device__ inline T sum_of(i64 first, i64 end, i64 step, Value value)
{
    enum { AHEAD = 8 };
    T sum = 0, values[AHEAD];
    for (; first < end; first += AHEAD * step) {
        for (int i = 0; i < AHEAD; i++)
            values[i] = first + i * step < end ? value(first + i * step) : 0;
        for (int i = 0; i < AHEAD; i++)
            sum += values[i];
    }
    return sum;
}

/* ---- Runs of neighbouring elements, read and written at once ----
 * Use kernels<T, N> with N = QUAD if every row of every operand begins at a multiple of QUAD
 * elements and has a multiple of QUAD elements, otherwise N = 1 (see activate.cu). */
enum { QUAD = 4 };
template <typename T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) elements {
    T at[N];
};
template <int N, typename T> __device__ inline elements<T, N> load(const T *from)
{
    return *(const elements<T, N> *)from;
}

__device__ inline u32 bits_of(float value)
{
    return __float_as_uint(value);
}
template <typename T> __device__ inline u32 bits_of(T value)
{
    return value;
}
template <typename T> __device__ inline T from_bits(u32 bits)
{
    return (T)bits;
}
template <> __device__ inline float from_bits<float>(u32 bits)
{
    return __uint_as_float(bits);
}

/* A run of up to 16 bytes as one integer, first element in the lowest bits. Keep a run in this form
 * until it is used if it may be missing or if many loads are in flight: nvcc splits `elements` at
 * the load and waits there. */
template <int bytes> struct number_of_bytes;
#define NUMBER_OF(bytes, number)                                                                                       \
    template <> struct number_of_bytes<bytes> {                                                                        \
        typedef number type __attribute__((may_alias));                                                                \
    };
NUMBER_OF(1, u8)
NUMBER_OF(2, u16)
NUMBER_OF(4, u32)
NUMBER_OF(8, u64)
NUMBER_OF(16, unsigned __int128)
#undef NUMBER_OF
template <typename T, int N> using packed = typename number_of_bytes<N * sizeof(T)>::type;

template <int N, typename T> __device__ inline packed<T, N> load_packed(const T *from)
{
    return *(const packed<T, N> *)from;
}
template <typename T, int N> __device__ inline packed<T, N> pack(const elements<T, N> &run)
{
    packed<T, N> number = 0;
    for (int k = 0; k < N; k++)
        number |= (packed<T, N>)bits_of(run.at[k]) << (int)(8 * sizeof(T)) * k;
    return number;
}
template <typename T, int N> __device__ inline elements<T, N> unpack(packed<T, N> number)
{
    elements<T, N> run;
    for (int k = 0; k < N; k++)
        run.at[k] = from_bits<T>((u32)(number >> (int)(8 * sizeof(T)) * k));
    return run;
}

/* Stores a run as one integer. For a struct assignment, nvcc emits one store per element, 2 bytes
 * each, wherever its vectorizer gives up. */
template <typename T, int N> __device__ inline void store(T *to, const elements<T, N> &run)
{
    if constexpr (N * sizeof(T) > 16) {
        const int half = N / 2;
        elements<T, half> first, second;
        for (int k = 0; k < half; k++) {
            first.at[k] = run.at[k];
            second.at[k] = run.at[half + k];
        }
        store(to, first);
        store(to + half, second);
    } else {
        *(packed<T, N> *)to = pack(run);
    }
}

/* True if every row begins and ends at a multiple of 16 bytes, the size of one vector load. */
template <typename T> __device__ inline bool is_vector(struct matrix m)
{
    return ((uintptr_t)m.data | (uintptr_t)(m.stride * sizeof(T)) | (uintptr_t)(m.columns * sizeof(T))) % 16 == 0;
}

static inline bool array_in_quads(const void *data, i64 element_bytes, i64 columns)
{
    return (uintptr_t)data % (uintptr_t)(QUAD * element_bytes) == 0 && columns % QUAD == 0;
}
static inline bool in_quads(struct matrix m)
{
    return array_in_quads(m.data, dtype_bytes(m.dtype), m.columns) && (m.stride % QUAD == 0 || m.rows <= 1);
}
template <typename... More> static inline bool in_quads(struct matrix m, More... more)
{
    return in_quads(m) && in_quads(more...);
}

/* Loop in which each thread handles N elements: columns `column` .. column + N - 1 of row at.row.
 */
#define RUNS(N, at, column, rows, columns)                                                                             \
    for (struct element at = first_element((columns) / (N)); at.row < (rows); at = next_element(at, (columns) / (N)))  \
        for (i64 column = at.column * (N), once = 1; once; once = 0)

/* Launches kernel<T, N> for the dtype; nothing for 0 elements. */
#define LAUNCH_RUNS(device, quads, dtype, kernel, elements, ...)                                                       \
    do {                                                                                                               \
        bool quads_ = (quads), bf16_ = (dtype) == DTYPE_BF16;                                                          \
        i64 elements_ = (elements);                                                                                    \
        unsigned blocks_ = blocks_for(quads_ ? elements_ / QUAD : elements_);                                          \
        if (elements_ > 0 && quads_ && bf16_)                                                                          \
            LAUNCH(device, (kernel<bf16, QUAD>), blocks_, BLOCK_THREADS, 0, __VA_ARGS__);                              \
        else if (elements_ > 0 && quads_)                                                                              \
            LAUNCH(device, (kernel<float, QUAD>), blocks_, BLOCK_THREADS, 0, __VA_ARGS__);                             \
        else if (elements_ > 0 && bf16_)                                                                               \
            LAUNCH(device, (kernel<bf16, 1>), blocks_, BLOCK_THREADS, 0, __VA_ARGS__);                                 \
        else if (elements_ > 0)                                                                                        \
            LAUNCH(device, (kernel<float, 1>), blocks_, BLOCK_THREADS, 0, __VA_ARGS__);                                \
    } while (0)
#define LAUNCH_ROWS_OF_RUNS(device, quads, dtype, kernel, rows, columns, ...)                                          \
    do {                                                                                                               \
        bool quads_ = (quads), bf16_ = (dtype) == DTYPE_BF16;                                                          \
        i64 rows_ = (rows);                                                                                            \
        unsigned threads_ = threads_for(quads_ ? (columns) / QUAD : (columns));                                        \
        if (rows_ > 0 && quads_ && bf16_)                                                                              \
            LAUNCH(device, (kernel<bf16, QUAD>), (unsigned)rows_, threads_, 0, __VA_ARGS__);                           \
        else if (rows_ > 0 && quads_)                                                                                  \
            LAUNCH(device, (kernel<float, QUAD>), (unsigned)rows_, threads_, 0, __VA_ARGS__);                          \
        else if (rows_ > 0 && bf16_)                                                                                   \
            LAUNCH(device, (kernel<bf16, 1>), (unsigned)rows_, threads_, 0, __VA_ARGS__);                              \
        else if (rows_ > 0)                                                                                            \
            LAUNCH(device, (kernel<float, 1>), (unsigned)rows_, threads_, 0, __VA_ARGS__);                             \
    } while (0)
/* kernel<first, second, N> */
#define LAUNCH_BY_DTYPES_N(device, N, first, second, kernel, grid, threads, ...)                                       \
    do {                                                                                                               \
        if ((first) == DTYPE_BF16 && (second) == DTYPE_BF16)                                                           \
            LAUNCH(device, (kernel<bf16, bf16, N>), grid, threads, 0, __VA_ARGS__);                                    \
        else if ((first) == DTYPE_BF16)                                                                                \
            LAUNCH(device, (kernel<bf16, float, N>), grid, threads, 0, __VA_ARGS__);                                   \
        else if ((second) == DTYPE_BF16)                                                                               \
            LAUNCH(device, (kernel<float, bf16, N>), grid, threads, 0, __VA_ARGS__);                                   \
        else                                                                                                           \
            LAUNCH(device, (kernel<float, float, N>), grid, threads, 0, __VA_ARGS__);                                  \
    } while (0)
#define LAUNCH_RUNS_BY_DTYPES(device, quads, first, second, kernel, grid, threads, ...)                                \
    do {                                                                                                               \
        if (quads)                                                                                                     \
            LAUNCH_BY_DTYPES_N(device, QUAD, first, second, kernel, grid, threads, __VA_ARGS__);                       \
        else                                                                                                           \
            LAUNCH_BY_DTYPES_N(device, 1, first, second, kernel, grid, threads, __VA_ARGS__);                          \
    } while (0)
/* ---- Warp reductions: the result is in every lane, and all lanes call it ---- */
template <typename T, typename Combine> __device__ inline T warp_combine(T value, Combine combine)
{
    for (int step = WARP_THREADS / 2; step; step /= 2)
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
}
__device__ inline float warp_sum(float value)
{
    return warp_combine(value, sum_operator());
}
__device__ inline float warp_max(float value)
{
    return warp_combine(value, max_operator());
}

/* Exclusive prefix sum over the threads; the total goes to *total. All threads call it; their
 * number is a multiple of 32. */
template <typename T> __device__ inline T block_scan(T value, T *total)
{
    SHARED(T, warps, 1024 / WARP_THREADS);
    unsigned lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
    T sum = value, before = 0;
    for (unsigned step = 1; step < WARP_THREADS; step *= 2) {
        T from = __shfl_up_sync(0xffffffffu, sum, step);
        sum += lane >= step ? from : 0;
    }
    __syncthreads(); /* for the previous call */
    if (lane == WARP_THREADS - 1)
        warps[warp] = sum;
    __syncthreads();
    *total = 0;
    for (unsigned i = 0; i < blockDim.x / WARP_THREADS; i++) {
        before += i < warp ? warps[i] : 0;
        *total += warps[i];
    }
    return before + sum - value;
}

/* True in the last of `blocks` blocks to call it, which then sees the writes of the others. All
 * threads call it. *arrived is a counter of cuda_handles and is zero again afterwards. */
__device__ inline bool block_is_last(u32 *arrived, u32 blocks)
{
    bool last = false;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(arrived, 1) == blocks - 1;
        __threadfence();
        if (last)
            *arrived = 0; /* for the next launch */
    }
    return __syncthreads_or(last);
}
#endif

#endif
