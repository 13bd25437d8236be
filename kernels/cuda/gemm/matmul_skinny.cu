/* Skinny gemm with fused prologue and epilogue; skinny.h has the kernel. */
#include "kernels/cuda/gemm/skinny.h"

/* With 64 rows and rope only one block per multiprocessor: two would spill registers, and q, k, v
 * have fewer blocks than there are multiprocessors. */
template <int TILES, bool rotates>
static __global__ void __launch_bounds__(THREADS, rotates &&TILES > 4 ? 1 : 2) skinny_mma(struct skinny_gemm p)
{
    struct skinny_part part = part_of_block(p);
    fetch_weight<bf16>(p, part);
    double frequency = rotates ? frequency_at(p.cache, pair_of_thread(part)) : 0;
    grid_wait();
    DYNAMIC_SHARED(float, sums);
    multiply_mma<TILES, rotates>(p, part, sums, frequency);
}

template <typename T, bool rotates>
static __global__ void __launch_bounds__(THREADS, 2) skinny_plain(struct skinny_gemm p)
{
    fetch_weight<float>(p, part_of_block(p));
    grid_wait();
    multiply_plain<T, rotates>(p, part_of_block(p));
}

template <int TILES, bool rotates> static void launch_tiles(struct device *device, const struct skinny_gemm &p)
{
    i64 bytes = WARPS * TILES * COLUMNS_OF_MMA * OUTPUTS * 4;
    LAUNCH(device, (skinny_mma<TILES, rotates>), (unsigned)blocks_of_skinny(p), THREADS, bytes, p);
}

/* Splits the rows too if there are fewer blocks than multiprocessors. */
template <typename T, bool rotates> static void launch_floats(struct device *device, const struct skinny_gemm &p)
{
    unsigned blocks = (unsigned)blocks_of_skinny(p);
    bool has_few_blocks = blocks < (unsigned)cuda_handles_of(device)->multiprocessors;
    unsigned parts = has_few_blocks ? (unsigned)ceil_div(p.out.rows, ROWS_AT_ONCE) : 1;
    LAUNCH(device, (skinny_plain<T, rotates>), dim3(blocks, parts), THREADS, 0, p);
}

template <bool rotates> static void launch(struct device *device, const struct skinny_gemm &p)
{
    if (p.w.dtype == DTYPE_F32 && p.x.dtype == DTYPE_F32)
        launch_floats<float, rotates>(device, p);
    else if (p.w.dtype == DTYPE_F32)
        launch_floats<bf16, rotates>(device, p);
    else if (p.x.rows <= COLUMNS_OF_MMA)
        launch_tiles<1, rotates>(device, p);
    else if (p.x.rows <= 2 * COLUMNS_OF_MMA)
        launch_tiles<2, rotates>(device, p);
    else if (p.x.rows <= 4 * COLUMNS_OF_MMA)
        launch_tiles<4, rotates>(device, p);
    else
        launch_tiles<8, rotates>(device, p);
}

extern "C" void cuda_matmul_skinny(struct device *device, struct matrix out, struct matrix x, struct matrix w,
                                   const struct gemm_fusion *fusion)
{
    if (out.rows == 0 || out.columns == 0)
        return;
    struct skinny_gemm p = skinny_gemm(out, x, w, fusion);
    if (p.cache.k.data)
        launch<true>(device, p);
    else
        launch<false>(device, p);
}
