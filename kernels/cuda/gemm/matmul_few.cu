/* Skinny gemm with fused prologue and epilogue; few.h has the kernel. */
#include "kernels/cuda/gemm/few.h"

/* With 64 rows and rope only one block per multiprocessor: two would spill registers, and q, k, v
 * have fewer blocks than there are multiprocessors. */
template <int TILES, bool turns>
static __global__ void __launch_bounds__(THREADS, turns &&TILES > 4 ? 1 : 2) by_tensor_cores(struct product_of_few p)
{
    struct part_of_few part = part_of_block(p);
    fetch_weight<bf16>(p, part);
    double frequency = turns ? frequency_at(p.cache, pair_of_thread(part)) : 0;
    grid_wait();
    DYNAMIC_SHARED(float, sums);
    multiply_mma<TILES, turns>(p, part, sums, frequency);
}

template <typename T, bool turns>
static __global__ void __launch_bounds__(THREADS, 2) by_floats(struct product_of_few p)
{
    fetch_weight<float>(p, part_of_block(p));
    grid_wait();
    multiply_plain<T, turns>(p, part_of_block(p));
}

template <int TILES, bool turns> static void launch_tiles(struct device *device, const struct product_of_few &p)
{
    i64 bytes = WARPS * TILES * COLUMNS_OF_MMA * OUTPUTS * 4;
    LAUNCH(device, (by_tensor_cores<TILES, turns>), (unsigned)blocks_of_few(p), THREADS, bytes, p);
}

/* Splits the rows too if there are fewer blocks than multiprocessors. */
template <typename T, bool turns> static void launch_floats(struct device *device, const struct product_of_few &p)
{
    unsigned blocks = (unsigned)blocks_of_few(p);
    bool is_narrow = blocks < (unsigned)cuda_handles_of(device)->multiprocessors;
    unsigned parts = is_narrow ? (unsigned)ceil_div(p.out.rows, ROWS_AT_ONCE) : 1;
    LAUNCH(device, (by_floats<T, turns>), dim3(blocks, parts), THREADS, 0, p);
}

template <bool turns> static void launch(struct device *device, const struct product_of_few &p)
{
    if (p.w.dtype == DTYPE_F32 && p.x.dtype == DTYPE_F32)
        launch_floats<float, turns>(device, p);
    else if (p.w.dtype == DTYPE_F32)
        launch_floats<bf16, turns>(device, p);
    else if (p.x.rows <= COLUMNS_OF_MMA)
        launch_tiles<1, turns>(device, p);
    else if (p.x.rows <= 2 * COLUMNS_OF_MMA)
        launch_tiles<2, turns>(device, p);
    else if (p.x.rows <= 4 * COLUMNS_OF_MMA)
        launch_tiles<4, turns>(device, p);
    else
        launch_tiles<8, turns>(device, p);
}

extern "C" void cuda_matmul_few(struct device *device, struct matrix out, struct matrix x, struct matrix w,
                                const struct around *around)
{
    check_few(out, x, w, around);
    if (out.rows == 0 || out.columns == 0)
        return;
    struct product_of_few p = product_of_few(out, x, w, around);
    if (p.cache.k.data)
        launch<true>(device, p);
    else
        launch<false>(device, p);
}
