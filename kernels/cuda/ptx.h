/* The instructions C++ has no words for, each twice: as PTX, and as what it means on the emulated GPU (tests/emulator).
 * No kernel writes asm itself; tests/test_emulator.cu holds each against plain loops. Layouts: PTX ISA 9.7.14 (mma,
 * ldmatrix) and 9.7.15 (wgmma). The body of a kernel that uses what stands under "Hopper" stands in `#ifdef
 * WEFT_HOPPER`. */
#ifndef WEFT_CUDA_PTX_H
#define WEFT_CUDA_PTX_H
#include "kernels/cuda/cuda.h"

#if defined(WEFT_EMULATED) || !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WEFT_HOPPER 1
#endif

#ifdef WEFT_EMULATED
#define PTX(device, emulated) emulated
typedef emu::tile_map tile_map;
#else
#include <cuda.h>
#include <cudaTypedefs.h>
#define PTX(device, emulated) device
typedef CUtensorMap tile_map;
#define SHARED_ADDRESS(pointer) ((u32)__cvta_generic_to_shared(pointer))
#endif

/* ---- What the emulated GPU does ---- */
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

/* Lane 4 g + t holds of a rows g and g + 8, of b column g, of d rows g and g + 8. */
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
    (void)((const volatile u64 *)row)[0], (void)((const volatile u64 *)row)[1]; /* this thread's, for race detectors */
    meet_warp(0xffffffffu, "ldmatrix", &l, run_load_matrices);
}
} // namespace emu
#endif

/* ---- Ampere ---- */
/* Two floats rounded to bf16, `low` in the lower half. */
__device__ inline u32 pack_bf16(float low, float high)
{
    u32 out;
    PTX(asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
            : "=r"(out)
            : "f"(high), "f"(low)),
        out = (u32)from_f32<bf16>(low) | (u32)from_f32<bf16>(high) << 16);
    return out;
}

/* 2^x; on the device within 2 ulp. */
__device__ inline float exp2_approximate(float x)
{
    float out;
    PTX(asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x)), out = exp2f(x));
    return out;
}

/* d += a b by a warp: a 16 x 16, b 16 x 8, both bf16. */
__device__ inline void mma(float (&d)[4], const u32 (&a)[4], const u32 *b)
{
    PTX(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])),
        emu::mma(d, a, b));
}

/* Four 8 x 8 matrices of 16 bits from shared memory by a warp; lanes 8 m .. 8 m + 7 point to the rows of matrix m. */
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

/* 16 bytes to shared memory, or zeros where there is nothing. */
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
/* All but the last `left` groups of this thread have arrived; others see them behind a barrier. */
template <int left> __device__ inline void copies_wait(void)
{
    PTX(asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory"), emu::copies_wait(left));
}

/* Barrier `id` (1 to 15) of `count` threads, a multiple of 32: some of a block's warps. */
__device__ inline void barrier_sync(int id, int count)
{
    PTX(asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory"), emu::barrier(id, count, true, "", 0));
}
__device__ inline void barrier_arrive_only(int id, int count)
{
    PTX(asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory"), emu::barrier(id, count, false, "", 0));
}

/* ---- Hopper ---- */
/* An mbarrier in shared memory: a phase of it ends when its arrivals and the bytes expected have come. */
__device__ inline void mbarrier_init(u64 *barrier, u32 arrivals)
{
    PTX(asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SHARED_ADDRESS(barrier)), "r"(arrivals)
                     : "memory"),
        emu::mbarrier_init(barrier, arrivals));
}
__device__ inline void mbarrier_arrive(u64 *barrier)
{
    PTX(asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SHARED_ADDRESS(barrier))
                     : "memory"),
        emu::mbarrier_arrive(barrier, 0));
}
__device__ inline void mbarrier_arrive_expecting(u64 *barrier, u32 bytes)
{
    PTX(asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SHARED_ADDRESS(barrier)), "r"(bytes)
                     : "memory"),
        emu::mbarrier_arrive(barrier, bytes));
}
/* Returns once the phase of this parity has ended. */
__device__ inline void mbarrier_wait(u64 *barrier, u32 parity)
{
    PTX(asm volatile("{\n"
                     ".reg .pred ended;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
                     "@!ended bra again;\n"
                     "}\n" ::"r"(SHARED_ADDRESS(barrier)),
                     "r"(parity)
                     : "memory"),
        emu::mbarrier_wait(barrier, parity));
}
/* What was written to shared memory by threads, mbarriers too, is seen by the copy engine and the tensor cores. */
__device__ inline void fence_proxy_async(void)
{
    PTX(asm volatile("fence.proxy.async.shared::cta;" ::: "memory"), (void)0);
}

/* A box of a row-major matrix of 16-bit elements, by the copy engine (TMA); rows of 128 bytes, swizzled by 128. What
 * lies outside of the matrix is zero. */
__device__ inline void tile_load(void *shared, const tile_map *map, u64 *barrier, i32 column, i32 row)
{
    PTX(asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4}], [%2];" ::"r"(SHARED_ADDRESS(shared)),
                     "l"(map), "r"(SHARED_ADDRESS(barrier)), "r"(column), "r"(row)
                     : "memory"),
        emu::load_box(shared, map, barrier, column, row));
}

/* What wgmma wants to be told of a tile of 128-byte swizzled rows along k, 8 of them 1024 bytes apart; 16 columns of k
 * further is + 2. */
__device__ inline u64 tile_descriptor(const void *tile)
{
    u64 address = PTX(SHARED_ADDRESS(tile), emu::shared_address(tile));
    return (address & 0x3ffff) >> 4 | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
__device__ inline void warpgroup_fence(void)
{
    PTX(asm volatile("wgmma.fence.sync.aligned;" ::: "memory"), emu::wgmma_fence());
}
__device__ inline void warpgroup_commit(void)
{
    PTX(asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"), emu::wgmma_commit());
}
template <int left> __device__ inline void warpgroup_wait(void)
{
    PTX(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory"), emu::wgmma_wait(left));
}

/* d [64, 128] += or = a [64, 16] b^T [128, 16], by the 128 threads of a warpgroup. */
__device__ inline void warpgroup_mma_64x128(float (&d)[64], u64 a, u64 b, bool add)
{
#ifdef WEFT_EMULATED
    emu::wgmma(d, 128, a, b, add);
#else
#define PTX_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PTX_16(i) PTX_4(i), PTX_4(i + 4), PTX_4(i + 8), PTX_4(i + 12)
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, add, 1, 1, 0, 0;\n"
                 "}\n"
                 : PTX_16(0), PTX_16(16), PTX_16(32), PTX_16(48)
                 : "l"(a), "l"(b), "r"((int)add));
#undef PTX_16
#undef PTX_4
#endif
}

/* ---- The host's side ---- */
/* Boxes of 64 columns and `box_rows` rows of a bf16 matrix; its data and stride are multiples of 16 bytes. */
enum { TILE_COLUMNS = 64 };
static inline tile_map tile_map_of(struct matrix m, int box_rows)
{
#ifdef WEFT_EMULATED
    return {(const char *)m.data, m.columns, m.rows, m.stride * 2, TILE_COLUMNS, box_rows};
#else
    static PFN_cuTensorMapEncodeTiled_v12000 encode;
    cudaDriverEntryPointQueryResult found;
    tile_map map;
    if (!encode)
        CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000,
                                                    cudaEnableDefault, &found));
    cuuint64_t size[2] = {(cuuint64_t)m.columns, (cuuint64_t)m.rows}, stride[1] = {(cuuint64_t)m.stride * 2};
    cuuint32_t box[2] = {TILE_COLUMNS, (cuuint32_t)box_rows}, step[2] = {1, 1};
    CUresult made = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, m.data, size, stride, box, step,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    require(made == CUDA_SUCCESS, "a tensor map: error %d", (int)made);
    return map;
#endif
}

#endif
