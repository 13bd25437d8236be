/* Declarations shared by the fp8 gemm kernels. */
#ifndef WEFT_CUDA_MATMUL_FP8_H
#define WEFT_CUDA_MATMUL_FP8_H
#include "kernels/cuda/gemm/matmul_grouped.h"
#include "kernels/round_fp8.h"

struct fp8_gemm {
    struct matrix out;
    struct fp8_matrix a, b;
    struct groups groups; /* offsets NULL: one group of all rows, or of the whole depth */
    u8 *written;          /* weight gradient: a, b packed transposed by groups; NULL: forward */
    i64 slice_rows;       /* weight gradient only */
    i64 add;              /* flag */
};
/* The gemm of one group: out[row + i, c] from a[outer + i] and b[column + c] along [begin, end) of
 * the depth. */
struct fp8_gemm_slice {
    i64 row, rows, outer, column, begin, end;
    bool add;
};

__device__ inline i64 fp8_groups(const struct fp8_gemm &p)
{
    return p.groups.offsets ? p.groups.count : 1;
}
__device__ inline i32 fp8_rows_of(const struct fp8_gemm &p, i64 group)
{
    return p.groups.offsets[group + 1] - p.groups.offsets[group];
}
/* blocks along the depth; weight gradient only */
__device__ inline i32 fp8_blocks_of(const struct fp8_gemm &p, i64 group)
{
    return (fp8_rows_of(p, group) + FP8_BLOCK - 1) / FP8_BLOCK;
}
/* The gemm of a group. blocks: blocks of all earlier groups, for the weight gradient. */
__device__ inline struct fp8_gemm_slice fp8_gemm_slice_of(const struct fp8_gemm &p, i64 group, i64 blocks)
{
    i64 slice = p.groups.member ? p.groups.member[group] : group;
    if (!p.groups.offsets)
        return {0, p.out.rows, 0, 0, 0, p.a.depth, p.add != 0};
    if (!p.written) {
        i64 begin = p.groups.offsets[group];
        return {begin, fp8_rows_of(p, group), begin, slice * p.out.columns, 0, p.a.depth, p.add != 0};
    }
    i64 begin = blocks * FP8_BLOCK, end = begin + fp8_blocks_of(p, group) * FP8_BLOCK;
    return {slice * p.slice_rows, end > begin ? p.slice_rows : 0, 0, 0, begin, end, p.written[slice] != 0};
}

/* Hopper kernel (matmul_fp8_hopper.cu). Returns false, with nothing launched, if the device or the
 * operands do not suit it. */
bool fp8_hopper(struct device *device, const struct fp8_gemm &p);

#endif
