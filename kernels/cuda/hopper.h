/* Hopper instructions (sm_90a), as ptx.h has the others: shared memory barriers (mbarrier), the
 * copy engine (TMA), warpgroup gemms (wgmma) and register reallocation between warpgroups. A kernel
 * that uses them has its body in `#ifdef WEFT_HOPPER`. Layouts: PTX ISA 5.5 (tensors), 9.7.13.15
 * (mbarrier), 9.7.15 (wgmma). */
#ifndef WEFT_CUDA_HOPPER_H
#define WEFT_CUDA_HOPPER_H
#include "kernels/cuda/ptx.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#if defined(WEFT_EMULATED) || !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WEFT_HOPPER 1
#elif __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
#error "kernels for sm_90 have its own instructions: build for 90a (-DCMAKE_CUDA_ARCHITECTURES=90a)"
#endif

enum { WARPGROUP_THREADS = 128 };

/* Index of this thread's warp. The shuffle tells the compiler that it is uniform in the warp; wgmma
 * in a branch that the compiler considers divergent is serialized. */
__device__ inline int warp_of_block(void)
{
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP_THREADS, 0);
}

/* ---- Barriers ----
 * A phase of an mbarrier ends when all arrivals and all expected bytes have come. */
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
/* Releases a stage that a warp has read. Every warp arrives for itself: a warp that waited for
 * another one to arrive on its behalf could miss two phases of a barrier and wait forever. */
__device__ inline void mbarrier_release(u64 *empty)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(empty);
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
/* Position in a ring of stages: the next stage, and the parity of this round. */
struct copy_ring {
    u32 at, phase;
};
template <int STAGES> __device__ inline void advance(struct copy_ring *r)
{
    r->at = r->at + 1 == STAGES ? 0 : r->at + 1;
    r->phase ^= r->at == 0;
}
/* Initializes the barriers of a ring. A stage is full when its bytes have come and `writers` have
 * arrived, and empty when all `readers` have arrived. */
template <int STAGES>
__device__ inline void ring_init(u64 (&full)[STAGES], u64 (&empty)[STAGES], u32 readers, u32 writers = 1)
{
    for (int i = 0; i < STAGES; i++) {
        mbarrier_init(&full[i], writers);
        mbarrier_init(&empty[i], readers);
    }
}
/* Makes this thread's writes to shared memory, mbarriers included, visible to TMA and the tensor
 * cores. */
__device__ inline void fence_proxy_async(void)
{
    PTX(asm volatile("fence.proxy.async.shared::cta;" ::: "memory"), emu::fence_proxy_async());
}

/* ---- TMA ----
 * TMA copies boxes of TILE_COLUMNS bf16 (or TILE_ROW_BYTES 8-bit codes) x `rows[0]` x `rows[1]` of
 * a 3-dimensional array. In shared memory a box is a sequence of 128-byte rows with 128-byte
 * swizzle, aligned to 1024 bytes. Elements outside the array are read as zero and not written. */
enum { TILE_COLUMNS = 64, TILE_ROW_BYTES = 128, TILE_ALIGNMENT = 1024 };
typedef CUtensorMap tile_map;

__device__ inline void tile_load(void *shared, const tile_map *map, u64 *barrier, i32 column, i32 row, i32 outer)
{
    PTX(asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(SHARED_ADDRESS(shared)),
                     "l"(map), "r"(SHARED_ADDRESS(barrier)), "r"(column), "r"(row), "r"(outer)
                     : "memory"),
        emu::load_box(shared, map, barrier, column, row, outer));
}
/* Stores a box that threads have written, after a fence_proxy_async. */
__device__ inline void tile_store(const tile_map *map, const void *shared, i32 column, i32 row, i32 outer)
{
    PTX(asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                     "r"(SHARED_ADDRESS(shared)), "r"(column), "r"(row), "r"(outer)
                     : "memory"),
        emu::store_box(map, shared, column, row, outer));
}
__device__ inline void tile_stores_commit(void)
{
    PTX(asm volatile("cp.async.bulk.commit_group;" ::: "memory"), emu::box_stores_commit());
}
/* Waits until TMA has read all but the last `left` store groups of this thread from shared memory.
 */
template <int left> __device__ inline void tile_stores_wait_read(void)
{
    PTX(asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(left) : "memory"), emu::box_stores_wait_read(left));
}

/* ---- Warpgroup gemms (wgmma) ---- */
/* Matrix descriptor of an operand stored in boxes. BY_ROWS: rows of the operand (of a, or of b
 * transposed) are rows of the box, and k runs along its columns. Rows continue through all boxes;
 * advancing k by 16 adds 2. BY_COLUMNS: rows of the box are k, and its 64 columns are those of the
 * operand, whose next 64 columns are `box_bytes` further; advancing k by 16 adds 128.
 * bench/peers/tensor_cores.sh compares it with CUTLASS. */
__host__ __device__ constexpr u64 descriptor_at(u64 address, u32 box_bytes)
{
    return (address & 0x3ffff) >> 4 | (u64)(box_bytes >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
__device__ inline u64 tile_descriptor(const void *tile, u32 box_bytes = 16)
{
    return descriptor_at(PTX(SHARED_ADDRESS(tile), emu::shared_address(tile)), box_bytes);
}
enum tile_layout { BY_ROWS, BY_COLUMNS };
/* k: a multiple of 16 */
template <enum tile_layout lies> __host__ __device__ constexpr u64 further(u64 descriptor, int k)
{
    return descriptor + (u64)(lies == BY_ROWS ? k / 8 : k * 8);
}

/* Orders registers and earlier shared memory writes before the first wgmma of a group. */
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
/* Prevents the compiler from moving accesses of these registers across this point; use it next to a
 * fence or a wait. */
template <int N> __device__ inline void keep_in_place(float (&d)[N])
{
#ifndef WEFT_EMULATED
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
#endif
}
/* The same for operands in registers, which belong to a wgmma until it has been waited for. CUDA
 * before 13.3 may reuse them at once. */
template <int N> __device__ inline void keep_in_place(u32 (&a)[N][4])
{
#ifndef WEFT_EMULATED
#pragma unroll
    for (int i = 0; i < 4 * N; i++)
        asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
#endif
}

/* Accumulator layout. Of d [64, N], thread t of a warpgroup has in registers 4 j and 4 j + 1
 * columns 8 j + t % 4 * 2 and the next of row warp . 16 + lane / 4, and in registers 4 j + 2 and 4
 * j + 3 the same columns of that row + 8. As operand a, registers 0 .. 3 hold two columns of k
 * each, of these two rows, then of the same rows for the next eight columns of k. */
#ifndef WEFT_EMULATED
#define NAMES_64                                                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_128                                                                                                      \
    NAMES_64 ", "                                                                                                      \
             "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                        \
             "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_256                                                                                                      \
    NAMES_128 ", "                                                                                                     \
              "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                       \
              "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                       \
              "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "           \
              "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define PTX_4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define PTX_16(c, i) PTX_4(c, i), PTX_4(c, i + 4), PTX_4(c, i + 8), PTX_4(c, i + 12)
#define REGISTERS_64(c) PTX_16(c, 0), PTX_16(c, 16)
#define REGISTERS_128(c) REGISTERS_64(c), PTX_16(c, 32), PTX_16(c, 48)
#define REGISTERS_256(c) REGISTERS_128(c), PTX_16(c, 64), PTX_16(c, 80), PTX_16(c, 96), PTX_16(c, 112)
/* add: name of the asm operand that says whether to add. operands: names of the asm operands from a
 * on. The asm operands follow. */
#define WGMMA(n, access, add, operands, ...) WGMMA_OF("k16.f32.bf16.bf16", n, access, add, operands, __VA_ARGS__)
#define WGMMA_OF(kind, n, access, add, operands, ...)                                                                  \
    asm volatile("{\n"                                                                                                 \
                 ".reg .pred add;\n"                                                                                   \
                 "setp.ne.b32 add, " add ", 0;\n"                                                                      \
                 "wgmma.mma_async.sync.aligned.m64n" #n kind " {" NAMES_##n "}, " operands ";\n"                       \
                                                                            "}\n"                                      \
                 : REGISTERS_##n(access)                                                                               \
                 : __VA_ARGS__)
#endif

/* d [64, N] (+)= a [64, 16] b [16, N], by the threads of a warpgroup. N is 64, 128 or 256. */
template <enum tile_layout lies_a, enum tile_layout lies_b, int HALF>
__device__ inline void warpgroup_mma(float (&d)[HALF], u64 of_a, u64 of_b, bool adds)
{
#ifdef WEFT_EMULATED
    emu::wgmma({d, NULL, of_a, of_b, 2 * HALF, adds, lies_a == BY_COLUMNS, lies_b == BY_COLUMNS});
#else
    static_assert(HALF == 32 || HALF == 64 || HALF == 128, "products of these widths");
#define OPERANDS "l"(of_a), "l"(of_b), "r"((int)adds), "n"((int)lies_a), "n"((int)lies_b)
    if constexpr (HALF == 32)
        WGMMA(64, "+f", "%34", "%32, %33, add, 1, 1, %35, %36", OPERANDS);
    else if constexpr (HALF == 64)
        WGMMA(128, "+f", "%66", "%64, %65, add, 1, 1, %67, %68", OPERANDS);
    else
        WGMMA(256, "+f", "%130", "%128, %129, add, 1, 1, %131, %132", OPERANDS);
#undef OPERANDS
#endif
}
/* d = a b; the old d occupies no registers. N is 64 or 128. */
template <enum tile_layout lies_a, enum tile_layout lies_b, int HALF>
__device__ inline void warpgroup_mma_first(float (&d)[HALF], u64 of_a, u64 of_b)
{
#ifdef WEFT_EMULATED
    emu::wgmma({d, NULL, of_a, of_b, 2 * HALF, false, lies_a == BY_COLUMNS, lies_b == BY_COLUMNS});
#else
    static_assert(HALF == 32 || HALF == 64, "products of these widths");
#define OPERANDS "l"(of_a), "l"(of_b), "n"((int)lies_a), "n"((int)lies_b)
    if constexpr (HALF == 32)
        WGMMA(64, "=f", "0", "%32, %33, add, 1, 1, %34, %35", OPERANDS);
    else
        WGMMA(128, "=f", "0", "%64, %65, add, 1, 1, %66, %67", OPERANDS);
#undef OPERANDS
#endif
}
/* d (+)= a b with a in registers. N is 64 or 128. */
template <enum tile_layout lies_b, int HALF>
__device__ inline void warpgroup_mma(float (&d)[HALF], const u32 (&of_a)[4], u64 of_b, bool adds)
{
#ifdef WEFT_EMULATED
    emu::wgmma({d, of_a, 0, of_b, 2 * HALF, adds, false, lies_b == BY_COLUMNS});
#else
    static_assert(HALF == 32 || HALF == 64, "products of these widths");
#define OPERANDS "r"(of_a[0]), "r"(of_a[1]), "r"(of_a[2]), "r"(of_a[3]), "l"(of_b), "r"((int)adds), "n"((int)lies_b)
    if constexpr (HALF == 32)
        WGMMA(64, "+f", "%37", "{%32, %33, %34, %35}, %36, add, 1, 1, %38", OPERANDS);
    else
        WGMMA(128, "+f", "%69", "{%64, %65, %66, %67}, %68, add, 1, 1, %70", OPERANDS);
#undef OPERANDS
#endif
}

/* fp8 gemm: d [64, 128] (+)= a [64, 32] b [128, 32]^T, a of the given format and b e4m3. With
 * `first`, it overwrites d and the old d occupies no registers. Operands are stored BY_ROWS only;
 * advancing k by 32 adds 2 (fp8_further). Sums keep about 14 bits: DeepSeek-V3, arXiv 2412.19437,
 * 3.3.2. */
__host__ __device__ constexpr u64 fp8_further(u64 descriptor, int k) /* k: a multiple of 32 */
{
    return descriptor + (u64)(k / 16);
}
template <enum fp8 format, bool first> __device__ inline void warpgroup_mma_fp8(float (&d)[64], u64 of_a, u64 of_b)
{
#ifdef WEFT_EMULATED
    emu::wgmma({d, NULL, of_a, of_b, 128, !first, false, false, format == FP8_E4M3 ? emu::E4M3 : emu::E5M2});
#else
#define MULTIPLY(kind, access, add) WGMMA_OF(kind, 128, access, add, "%64, %65, add, 1, 1", "l"(of_a), "l"(of_b))
    if constexpr (first && format == FP8_E4M3)
        MULTIPLY("k32.f32.e4m3.e4m3", "=f", "0");
    else if constexpr (first)
        MULTIPLY("k32.f32.e5m2.e4m3", "=f", "0");
    else if constexpr (format == FP8_E4M3)
        MULTIPLY("k32.f32.e4m3.e4m3", "+f", "1");
    else
        MULTIPLY("k32.f32.e5m2.e4m3", "+f", "1");
#undef MULTIPLY
#endif
}

/* Packs accumulators d [64, 16 STEPS] as operands a of gemms along its columns. */
template <int STEPS> __device__ inline void pack_factors(u32 (&a)[STEPS][4], const float (&d)[8 * STEPS])
{
#pragma unroll
    for (int i = 0; i < 4 * STEPS; i++)
        a[i / 4][i % 4] = pack_bf16(d[2 * i], d[2 * i + 1]);
}

/* d [64, N] = a b^T for operands with D columns, stored in boxes of TILE_COLUMNS. Queued, not
 * committed. */
template <int D, int HALF, int A, int B>
__device__ inline void multiply_rows(float (&d)[HALF], const bf16 (&a)[D / TILE_COLUMNS][A],
                                     const bf16 (&b)[D / TILE_COLUMNS][B])
{
    warpgroup_mma_first<BY_ROWS, BY_ROWS>(d, tile_descriptor(a[0]), tile_descriptor(b[0]));
#pragma unroll
    for (int k = 16; k < D; k += 16)
        warpgroup_mma<BY_ROWS, BY_ROWS>(d, further<BY_ROWS>(tile_descriptor(a[k / TILE_COLUMNS]), k % TILE_COLUMNS),
                                        further<BY_ROWS>(tile_descriptor(b[k / TILE_COLUMNS]), k % TILE_COLUMNS), true);
}

/* Writes a warp's 16 rows of the first N columns of d as bf16 to its own boxes, once TMA has read
 * their old content. */
enum { WARP_ROWS = 16 };
template <int N, int HALF>
__device__ inline void fill_boxes_of_warp(bf16 (*box)[WARP_ROWS * TILE_COLUMNS], const float (&d)[HALF])
{
    int lane = threadIdx.x % WARP_THREADS, own = lane / 4;
    if (lane == 0)
        tile_stores_wait_read<0>(); /* the previous tile's stores */
    __syncwarp();
#pragma unroll
    for (int i = 0; i < N / 2; i += 2) {
        int chunk = i / 4 % 8, half = i / 2 % 2;
        bf16 *to = box[i / 32] + (own + 8 * half) * TILE_COLUMNS + ((chunk ^ own) * 8 + lane % 4 * 2);
        *(u32 *)to = pack_bf16(d[i], d[i + 1]);
    }
    fence_proxy_async();
    __syncwarp();
}
/* Stores the boxes at (`row`, `column`) of an array with `columns` columns; TMA clips rows past the
 * end. One thread of the warp calls it. */
template <int BOXES>
__device__ inline void send_boxes(const bf16 (*box)[WARP_ROWS * TILE_COLUMNS], const tile_map *out, i32 row, i32 column,
                                  i32 columns, i32 outer)
{
    for (int i = 0; i < BOXES && column + i * TILE_COLUMNS < columns; i++)
        tile_store(out, box[i], column + i * TILE_COLUMNS, row, outer);
}
template <int N, int HALF>
__device__ inline void store_boxes_of_warp(bf16 (*box)[WARP_ROWS * TILE_COLUMNS], const float (&d)[HALF],
                                           const tile_map *out, i32 row, i32 column, i32 columns)
{
    fill_boxes_of_warp<N>(box, d);
    if (threadIdx.x % WARP_THREADS != 0)
        return;
    send_boxes<N / TILE_COLUMNS>(box, out, row, column, columns, 0);
    tile_stores_commit();
}

/* ---- Registers ----
 * One warpgroup releases registers, another one waits until it can have that many; multiples of 8.
 */
template <int count> __device__ inline void registers_give(void)
{
    PTX(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count)), emu::set_registers(count, false));
}
template <int count> __device__ inline void registers_take(void)
{
    PTX(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count)), emu::set_registers(count, true));
}

/* ---- Host side ---- */
/* An array of bf16 or codes, innermost dimension first. `stride` of dimensions 1 and 2 in elements;
 * strides and `data` are multiples of 16 bytes. */
struct tile_array {
    const void *data;
    i64 size[3], stride[2];
    int box_rows[2]; /* box sizes of dimensions 1 and 2 */
    bool codes;      /* 8-bit codes */
};

static inline PFN_cuTensorMapEncodeTiled_v12000 tile_map_encoder(void)
{
    return (PFN_cuTensorMapEncodeTiled_v12000)cuda_tile_map_encoder();
}

static inline tile_map tile_map_of(const struct tile_array &of)
{
    tile_map map;
    cuuint64_t bytes = of.codes ? 1 : 2;
    cuuint64_t size[3], stride[2] = {(cuuint64_t)of.stride[0] * bytes, (cuuint64_t)of.stride[1] * bytes};
    cuuint32_t box[3] = {(cuuint32_t)(TILE_ROW_BYTES / bytes), (cuuint32_t)of.box_rows[0], (cuuint32_t)of.box_rows[1]};
    cuuint32_t step[3] = {1, 1, 1};
    for (int i = 0; i < 3; i++)
        size[i] = (cuuint64_t)of.size[i];
    CUresult made = tile_map_encoder()(
        &map, of.codes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)of.data, size,
        stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    require(made == CUDA_SUCCESS, "a tensor map of [%lld,%lld,%lld]: error %d", (long long)of.size[2],
            (long long)of.size[1], (long long)of.size[0], (int)made);
    return map;
}
/* Tensor map of a bf16 matrix of `parts` equal slices of rows. Coordinates: column, row of a slice,
 * slice. */
static inline tile_map tile_map_of(struct matrix m, i64 parts, int box_rows)
{
    i64 rows = m.rows / parts;
    return tile_map_of({m.data, {m.columns, rows, parts}, {m.stride, rows * m.stride}, {box_rows, 1}, false});
}
/* Tensor map of an fp8 operand of `parts` equal slices along outer. Coordinates: depth, outer of a
 * slice, slice. */
static inline tile_map tile_map_of(const struct fp8_matrix &m, i64 parts, int box_rows)
{
    i64 outer = m.outer / parts;
    return tile_map_of({m.codes, {m.depth, outer, parts}, {m.depth, outer * m.depth}, {box_rows, 1}, true});
}
/* Tensor map of a matrix [rows, heads * width]. Coordinates: column of a head, head, row. */
static inline tile_map map_of_heads(struct matrix m, i64 width, int box_heads, int box_rows)
{
    return tile_map_of({m.data, {width, m.columns / width, m.rows}, {width, m.stride}, {box_heads, box_rows}, false});
}

/* True if TMA can read and write the matrix. */
static inline bool has_tile_map(struct matrix m)
{
    return m.dtype == DTYPE_BF16 && (uintptr_t)m.data % 16 == 0 && m.stride % 8 == 0 && m.rows > 0 && m.columns > 0 &&
           m.rows < INT32_MAX && m.columns < INT32_MAX;
}

#endif
