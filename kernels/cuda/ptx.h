/* Instructions that C++ cannot express, each written twice: as PTX, and as code for the emulated
 * GPU (tests/emulator). No kernel contains asm itself. tests/kernels/test_instructions.cu compares
 * each with plain loops. Layouts: PTX ISA 9.7.14 (mma, ldmatrix). hopper.h has the instructions of
 * sm_90a. */
#ifndef WEFT_CUDA_PTX_H
#define WEFT_CUDA_PTX_H
#include "kernels/cuda/cuda.h"

#ifdef WEFT_EMULATED
#define PTX(device, emulated) emulated
#else
#define PTX(device, emulated) device
#define SHARED_ADDRESS(pointer) ((u32)__cvta_generic_to_shared(pointer))
#endif

/* ---- Emulated GPU ---- */
#ifdef WEFT_EMULATED
namespace emu
{
EMU_UNSEEN inline float half_of(u32 pair, int upper)
{
    return __uint_as_float(upper ? pair & 0xffff0000u : pair << 16);
}

struct mma_operands {
    float *d;
    const u32 *a, *b;
};

/* Lane 4 g + t holds rows g and g + 8 of a, column g of b, and rows g and g + 8 of d. */
EMU_UNSEEN inline void run_mma(void **all, unsigned)
{
    float a[16][16], b[16][8];
    mma_operands **m = (mma_operands **)all;
    for (int lane = 0; lane < 32; lane++)
        for (int upper = 0, g = lane / 4, t = lane % 4; upper < 2; upper++) {
            for (int r = 0; r < 4; r++)
                a[g + r % 2 * 8][2 * t + r / 2 * 8 + upper] = half_of(m[lane]->a[r], upper);
            for (int r = 0; r < 2; r++)
                b[2 * t + r * 8 + upper][g] = half_of(m[lane]->b[r], upper);
        }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            float sum = m[lane]->d[i];
            for (int k = 0; k < 16; k++)
                sum += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
            m[lane]->d[i] = sum;
        }
}
inline void mma(float *d, const u32 *a, const u32 *b)
{
    mma_operands m = {d, a, b};
    meet_warp(0xffffffffu, "mma", &m, run_mma);
}

struct load_operands {
    u32 *out;
    const void *row;
    bool transposed;
};

EMU_UNSEEN inline u32 loaded(load_operands **l, int matrix, int lane)
{
    u32 pair = 0;
    for (int upper = 0, g = lane / 4, t = lane % 4; upper < 2; upper++) {
        int row = l[0]->transposed ? 2 * t + upper : g, column = l[0]->transposed ? g : 2 * t + upper;
        const u16 *at = (const u16 *)l[8 * matrix + row]->row;
        if ((uintptr_t)at % 16)
            fault("ldmatrix: a row at %p, which is no multiple of 16", (const void *)at);
        pair |= (u32)at[column] << 16 * upper;
    }
    return pair;
}

EMU_UNSEEN inline void run_load_matrices(void **all, unsigned)
{
    load_operands **l = (load_operands **)all;
    for (int lane = 0; lane < 32; lane++)
        for (int matrix = 0; matrix < 4; matrix++)
            l[lane]->out[matrix] = loaded(l, matrix, lane);
}
inline void load_matrices(u32 *out, const void *row, bool transposed)
{
    load_operands l = {out, row, transposed};
    shared_address(row);
    /* read by this thread, for race detectors */
    (void)((const volatile u64 *)row)[0], (void)((const volatile u64 *)row)[1];
    meet_warp(0xffffffffu, "ldmatrix", &l, run_load_matrices);
}
} // namespace emu
#endif

/* ---- Ampere ---- */
/* Packs two floats rounded to bf16; `low` goes to the lower half. */
__device__ inline u32 pack_bf16(float low, float high)
{
    u32 out;
    PTX(asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
            : "=r"(out)
            : "f"(high), "f"(low)),
        out = (u32)from_f32<bf16>(low) | (u32)from_f32<bf16>(high) << 16);
    return out;
}
/* Stores two neighbours at once. */
__device__ inline void put_pair(float *to, float first, float second)
{
    *(float2 *)to = make_float2(first, second);
}
__device__ inline void put_pair(bf16 *to, float first, float second)
{
    *(u32 *)to = pack_bf16(first, second);
}

/* 2^x; on the device within 2 ulp. */
__device__ inline float exp2_approximate(float x)
{
    float out;
    PTX(asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x)), out = exp2f(x));
    return out;
}
/* 1 / (1 + e^-x). For bf16 it uses the hardware power and reciprocal units; the relative error is
 * below 2^-17. */
template <typename T> __device__ inline float sigmoid_for(float x)
{
    return sizeof(T) == 2 ? __fdividef(1.0f, 1.0f + exp2_approximate(-1.44269504f * x)) : sigmoid(x);
}

/* d += a b by a warp; a is 16 x 16 and b 16 x 8, both bf16. */
__device__ inline void mma(float (&d)[4], const u32 (&a)[4], const u32 *b)
{
    PTX(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])),
        emu::mma(d, a, b));
}

/* Loads four 8 x 8 matrices of 16-bit elements from shared memory by a warp. Lanes 8 m .. 8 m + 7
 * point to the rows of matrix m. */
__device__ inline void load_matrices(u32 (&out)[4], const void *row)
{
    PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(SHARED_ADDRESS(row))
                     : "memory"),
        emu::load_matrices(out, row, false));
}
__device__ inline void load_matrices_transposed(u32 (&out)[4], const void *row)
{
    PTX(asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(SHARED_ADDRESS(row))
                     : "memory"),
        emu::load_matrices(out, row, true));
}

/* Prefetches the cache line of global memory at this address to L2. */
__device__ inline void prefetch(const void *at)
{
    PTX(asm volatile("prefetch.global.L2 [%0];" ::"l"(at)), emu::prefetch(at));
}

/* Copies 16 bytes to shared memory, or writes zeros if !there. */
__device__ inline void copy_async(void *shared, const void *from, bool there)
{
    PTX(asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SHARED_ADDRESS(shared)), "l"(from),
                     "r"(there ? 16 : 0)
                     : "memory"),
        emu::copy_async(shared, from, 16, there));
}
__device__ inline void copies_commit(void)
{
    PTX(asm volatile("cp.async.commit_group;" ::: "memory"), emu::copies_commit());
}
/* Waits for all but the last `left` groups of this thread. Other threads see the data after a
 * barrier. */
template <int left> __device__ inline void copies_wait(void)
{
    PTX(asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory"), emu::copies_wait(left));
}

/* Barrier `id` (1 to 15) for `count` threads, a multiple of 32, i.e. for some of the block's warps.
 */
__device__ inline void barrier_sync(int id, int count)
{
    PTX(asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory"), emu::barrier(id, count, true, "", 0));
}
__device__ inline void barrier_arrive_only(int id, int count)
{
    PTX(asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory"), emu::barrier(id, count, false, "", 0));
}

#endif
