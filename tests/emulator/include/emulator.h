/* The emulated GPU as kernels see it: the CUDA extensions to C++, on one thread of the host.
 *
 * The threads of a block are fibers. Each runs until it waits (for a barrier, for its warp, for an
 * mbarrier), then the next one of its warp runs, in the order of WEFT_EMU_ORDER. When all of a
 * warp wait for others, the next warp continues. Blocks run one after another, in that order too.
 * Shared memory holds NaN until it is written, dynamic shared memory ends at an inaccessible page,
 * and static arrays (SHARED of cuda.h) have a margin behind them that is checked at the end of the
 * block. All threads of a block must reach the same __syncthreads of the source. The .cu files are
 * compiled with checks of alignment and of constant bounds, whose handlers are in checks.cpp.
 *
 * Compiled with -fsanitize=thread (EMULATOR_TSAN here) each fiber is a thread for ThreadSanitizer,
 * and consecutive blocks of a launch are ordered only by __threadfence (for blocks of at most 128
 * threads: ThreadSanitizer distinguishes 256). It reports both lines of a race in shared or global
 * memory. Shuffles and votes do not order memory, __syncwarp does.
 *
 * A launch may begin before the previous one has ended: device memory is inaccessible to each
 * block until one of its threads has called grid_wait (to each launch, without protection keys),
 * and every thread must call it. This detects early accesses, but does not run the kernels
 * concurrently.
 *
 * The copy engine and the tensor cores see the shared memory that threads wrote before the last
 * fence.proxy.async of any thread (a fence missing in one thread only is found if the fences of
 * the others came earlier, which holds in some order). Each group of a warpgroup's products must
 * begin after a wgmma.fence, as compilers require too.
 *
 * Not emulated: concurrent blocks, bank conflicts, clusters, rounding of tensor cores, the number
 * of registers of a kernel, time. */
#ifndef EMULATOR_H
#define EMULATOR_H
#include <math.h>
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <utility>

#define __CUDA_ARCH__ 900
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __shared__ shared_memory_is_declared_by_SHARED_of_cuda_h /* does not compile */
#define __constant__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

#define EMU_UNSEEN __attribute__((no_sanitize("thread"))) /* hardware accesses are not those of a thread */
#define EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

struct CUtensorMap_st; /* cuda.h */

namespace emu
{
struct thread {
    uint3 index;
    int number, warp, lane;
};
extern thread *self;
extern uint3 block_index;
extern dim3 block_dim, grid_dim;

/* Ends the program with a message, the kernel, block and thread, and a stack trace. */
[[noreturn]] void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Launches ---- */
struct launch {
    const char *name;
    dim3 grid, block;
    size_t shared; /* dynamic, bytes */
    cudaStream_t stream;
};
/* waits for previous grids: until a block's first thread has called it, device memory is
 * inaccessible */
void grid_wait();
void prefetch(const void *at);
int built_for(); /* architecture of this program's kernels */
void enqueue(const launch &launch, const void *kernel, void (*body)(void *), void *arguments, size_t bytes);

template <class T> void clear_padding(T *argument) /* zeroes padding copied from the caller's struct */
{
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(argument);
#else
    (void)argument;
#endif
}

template <class... P, class... A> void call(const launch &launch, void (*kernel)(P...), A &&...a)
{
    struct packed {
        void (*kernel)(P...);
        std::tuple<P...> arguments;
    };
    void *memory = calloc(1, sizeof(packed)); /* zero padding: arguments are searched for addresses */
    packed *p = new (memory) packed{kernel, std::tuple<P...>(std::forward<A>(a)...)};
    std::apply([](auto &...argument) { (clear_padding(&argument), ...); }, p->arguments);
    enqueue(
        launch, (const void *)kernel, [](void *p) { std::apply(((packed *)p)->kernel, ((packed *)p)->arguments); },
        memory, sizeof(packed));
}

/* ---- Meetings ---- */
/* All lanes of the mask meet; the last to arrive runs `run` on the operands of all, by lane. */
typedef void meeting(void **operands, unsigned mask);
void meet_warp(unsigned mask, const char *what, void *operand, meeting *run);
void meet_warpgroup(const char *what, void *operand, void (*run)(void **operands)); /* 128 threads */
/* Barrier 0 is __syncthreads, for all threads that have not ended (count 0); `wait` false:
 * bar.arrive. */
void barrier(int id, int count, bool wait, const char *file, int line);
enum vote { ANY, ALL, COUNT };
int barrier_votes(bool vote, enum vote kind, const char *file, int line);
unsigned ballot(unsigned mask, bool vote);
void sync_warp(unsigned mask);
void fence();
void atomic_at(void *at); /* announces an atomic operation */
void wait_until(const char *what, bool (*ready)(void *), void *context);
void others_first(); /* scheduling point: other threads may run here */

/* ---- Shared memory ---- */
void *dynamic_shared();
void *static_shared(const void *tag, size_t bytes, size_t alignment, const char *name);
uint64_t shared_address(const void *shared); /* address as in PTX; faults outside of shared memory */
void *shared_at(uint64_t address);

/* ---- Asynchronous work (asynchronous.cpp, hopper.cpp) ---- */
void copy_async(void *shared, const void *from, int bytes, bool there);
void copies_commit();
void copies_wait(int left);
void mbarrier_init(uint64_t *barrier, unsigned arrivals);
void mbarrier_arrive(uint64_t *barrier, unsigned bytes);
void mbarrier_wait(uint64_t *barrier, unsigned parity);
void fence_proxy_async();
void load_box(void *shared, const CUtensorMap_st *map, uint64_t *barrier, int column, int row, int outer);
void store_box(const CUtensorMap_st *map, const void *shared, int column, int row, int outer);
void box_stores_commit();
void box_stores_wait_read(int left);
enum numbers { BF16, E4M3, E5M2 }; /* type of a; b is bf16, or e4m3 */
struct product { /* one thread's part of a warpgroup's d [64, n] = (d +) a [64, k] b [k, n]; k is 32 bytes */
    float *d;
    const unsigned *a_registers; /* NULL: a is in shared memory */
    uint64_t a, b;               /* descriptors */
    int n;
    bool add, a_by_columns, b_by_columns;
    enum numbers numbers = BF16;
};
void wgmma(const product &own);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int left);
void set_registers(int count, bool more); /* for the threads of the own warpgroup */

template <class T> struct shuffled {
    T in, out;
    int from;
};
template <class T> EMU_UNSEEN void run_shuffle(void **all, unsigned mask)
{
    for (int lane = 0; lane < 32; lane++) {
        shuffled<T> *s = (shuffled<T> *)all[lane];
        if (!(mask >> lane & 1))
            continue;
        if (!(mask >> s->from & 1))
            fault("shuffle: lane %d reads lane %d, which is not in the mask %08x", lane, s->from, mask);
        s->out = ((shuffled<T> *)all[s->from])->in;
    }
}
template <class T> T shuffle(unsigned mask, T value, int from)
{
    shuffled<T> s = {value, value, from};
    meet_warp(mask, "a shuffle", &s, run_shuffle<T>);
    return s.out;
}
} // namespace emu

#define threadIdx (emu::self->index)
#define blockIdx (emu::block_index)
#define blockDim (emu::block_dim)
#define gridDim (emu::grid_dim)
enum { warpSize = 32 };

/* ---- Warps ---- */
template <class T> inline T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
    return emu::shuffle(mask, value, (emu::self->lane & ~(width - 1)) | (from & (width - 1)));
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    int lane = emu::self->lane, from = lane ^ bits;
    return emu::shuffle(mask, value, from / width <= lane / width ? from : lane);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T value, int by, int width = 32)
{
    int lane = emu::self->lane, from = lane + by;
    return emu::shuffle(mask, value, from / width == lane / width ? from : lane);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T value, int by, int width = 32)
{
    int lane = emu::self->lane;
    return emu::shuffle(mask, value, lane % width >= by ? lane - by : lane);
}
inline unsigned __ballot_sync(unsigned mask, int vote)
{
    return emu::ballot(mask, vote != 0);
}
inline int __any_sync(unsigned mask, int vote)
{
    return emu::ballot(mask, vote != 0) != 0;
}
inline int __all_sync(unsigned mask, int vote)
{
    return emu::ballot(mask, vote != 0) == mask;
}
inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emu::sync_warp(mask);
}

/* ---- Blocks ---- */
inline void __syncthreads(EMU_SITE)
{
    emu::barrier(0, 0, true, file, line);
}
inline int __syncthreads_or(int vote, EMU_SITE)
{
    return emu::barrier_votes(vote != 0, emu::ANY, file, line);
}
inline int __syncthreads_and(int vote, EMU_SITE)
{
    return emu::barrier_votes(vote != 0, emu::ALL, file, line);
}
inline int __syncthreads_count(int vote, EMU_SITE)
{
    return emu::barrier_votes(vote != 0, emu::COUNT, file, line);
}
inline void __threadfence()
{
    emu::fence();
}
inline void __threadfence_block() {}

/* ---- Atomics: no fiber stops within one ---- */
template <class T> EMU_UNSEEN T atomicAdd(T *at, std::common_type_t<T> value)
{
    emu::atomic_at(at);
    T old = *at;
    *at = old + value;
    return old;
}
template <class T> EMU_UNSEEN T atomicMax(T *at, std::common_type_t<T> value)
{
    emu::atomic_at(at);
    T old = *at;
    *at = old < value ? value : old;
    return old;
}
template <class T> EMU_UNSEEN T atomicMin(T *at, std::common_type_t<T> value)
{
    emu::atomic_at(at);
    T old = *at;
    *at = value < old ? value : old;
    return old;
}
template <class T> EMU_UNSEEN T atomicOr(T *at, std::common_type_t<T> value)
{
    emu::atomic_at(at);
    T old = *at;
    *at = old | value;
    return old;
}
template <class T> EMU_UNSEEN T atomicExch(T *at, std::common_type_t<T> value)
{
    emu::atomic_at(at);
    T old = *at;
    *at = value;
    return old;
}
template <class T> EMU_UNSEEN T atomicCAS(T *at, std::common_type_t<T> expected, std::common_type_t<T> value)
{
    emu::atomic_at(at);
    T old = *at;
    if (old == expected)
        *at = value;
    return old;
}

/* ---- Vectors ---- */
#define EMU_VECTOR2(type, name)                                                                                        \
    struct alignas(2 * sizeof(type)) name##2                                                                           \
    {                                                                                                                  \
        type x, y;                                                                                                     \
    };                                                                                                                 \
    inline name##2 make_##name##2(type x, type y)                                                                      \
    {                                                                                                                  \
        return {x, y};                                                                                                 \
    }
#define EMU_VECTOR4(type, name)                                                                                        \
    struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4                                              \
    {                                                                                                                  \
        type x, y, z, w;                                                                                               \
    };                                                                                                                 \
    inline name##4 make_##name##4(type x, type y, type z, type w)                                                      \
    {                                                                                                                  \
        return {x, y, z, w};                                                                                           \
    }
#define EMU_VECTORS(type, name) EMU_VECTOR2(type, name) EMU_VECTOR4(type, name)
EMU_VECTORS(float, float)
EMU_VECTORS(int, int)
EMU_VECTORS(unsigned, uint)
EMU_VECTORS(unsigned short, ushort)
EMU_VECTORS(unsigned char, uchar)
EMU_VECTOR2(double, double)

/* ---- Numbers ---- */
EMU_UNSEEN inline float __uint_as_float(unsigned bits)
{
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}
EMU_UNSEEN inline unsigned __float_as_uint(float value)
{
    unsigned bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
}
inline float __int_as_float(int bits)
{
    return __uint_as_float((unsigned)bits);
}
inline int __float_as_int(float value)
{
    return (int)__float_as_uint(value);
}
inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
inline float __expf(float x)
{
    return expf(x);
}
inline float __logf(float x)
{
    return logf(x);
}
inline float __fdividef(float x, float y)
{
    return x / y;
}
inline void sincospif(float x, float *sine, float *cosine)
{
    *sine = (float)sin(M_PI * (double)x);
    *cosine = (float)cos(M_PI * (double)x);
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
/* Byte i of the result is the byte of y, x (x is the lower
 * half) that nibble i of `which` selects. */
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which)
{
    uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++)
        out |= (unsigned)(bytes >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return out;
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
template <class T> inline T __ldg(const T *at)
{
    return *at;
}
#endif
