#include "kernels/cuda/gemm/matmul_fp8.h"

/* Reference fp8 gemm for any GPU, one element per thread; too slow for training.
 * matmul_fp8_hopper.cu has the tensor core kernel. */
__device__ static float number_of(const struct fp8_matrix &m, i64 outer, i64 depth)
{
    return fp8_number(m.codes[outer * m.depth + depth], m.format);
}
__device__ static float scale_of(const struct fp8_matrix &m, i64 outer, i64 depth)
{
    return m.scales[depth / FP8_BLOCK * m.outer + outer];
}

__device__ static float sum_of(const struct fp8_gemm &p, const struct fp8_gemm_slice &part, i64 row, i64 column)
{
    float sum = 0;
    for (i64 d = part.begin; d < part.end; d += FP8_BLOCK) {
        float block = 0;
        for (i64 i = d; i < d + FP8_BLOCK; i++)
            block += number_of(p.a, part.outer + row, i) * number_of(p.b, part.column + column, i);
        sum += block * (scale_of(p.a, part.outer + row, d) * scale_of(p.b, part.column + column, d));
    }
    return sum;
}

/* One y index of the grid handles one group. */
static __global__ void multiply(struct fp8_gemm p)
{
    grid_wait();
    i64 blocks = 0;
    for (i64 g = 0; p.written && g < (i64)blockIdx.y; g++)
        blocks += fp8_blocks_of(p, g);
    struct fp8_gemm_slice part = fp8_gemm_slice_of(p, blockIdx.y, blocks);
    GRID_STRIDE(i, part.rows * p.out.columns)
    {
        i64 row = i / p.out.columns, column = i % p.out.columns;
        store(p.out, part.add, part.row + row, column, sum_of(p, part, row, column));
    }
}

static void launch(struct device *device, const struct fp8_gemm &p)
{
    i64 rows = p.written ? p.slice_rows : p.out.rows, groups = p.groups.offsets ? p.groups.count : 1;
    require(groups <= GROUPS_MOST, "products of %lld groups", (long long)groups);
    if (rows * p.out.columns * groups > 0 && !fp8_hopper(device, p))
        LAUNCH(device, multiply, dim3(blocks_for(rows * p.out.columns), (unsigned)groups), BLOCK_THREADS, 0, p);
}

extern "C" void cuda_matmul_fp8(struct device *device, struct matrix out, const struct fp8_matrix *a,
                                const struct fp8_matrix *b, const struct groups *groups, bool add)
{
    launch(device, {out, *a, *b, groups ? *groups : (struct groups){}, NULL, 0, add});
}

extern "C" void cuda_matmul_fp8_weights(struct device *device, struct matrix dw, u8 *written, i64 experts,
                                        const struct fp8_matrix *dy, const struct fp8_matrix *x,
                                        const struct groups *groups)
{
    launch(device, {dw, *dy, *x, *groups, written, dw.rows / experts, 0});
    mark_written(device, written, *groups);
}
