/* What the kernels of products in 8 bits share. */
#ifndef WEFT_CUDA_MATMUL_FP8_H
#define WEFT_CUDA_MATMUL_FP8_H
#include "kernels/cuda/gemm/matmul_grouped.h"
#include "kernels/round_fp8.h"

struct fp8_product {
    struct matrix out;
    struct fp8_matrix a, b;
    struct groups groups; /* offsets NULL: all rows, or the whole depth, are one */
    u8 *written;          /* of weights: a and b were turned by the groups; NULL: of rows */
    i64 slice_rows;       /* of weights */
    i64 add;              /* a flag */
};
/* What a group multiplies: out[row + i, c] of a[outer + i] and b[column + c] along [begin, end) of the depth. */
struct fp8_part {
    i64 row, rows, outer, column, begin, end;
    bool add;
};

__device__ inline i64 fp8_groups(const struct fp8_product &p)
{
    return p.groups.offsets ? p.groups.count : 1;
}
__device__ inline i32 fp8_rows_of(const struct fp8_product &p, i64 group)
{
    return p.groups.offsets[group + 1] - p.groups.offsets[group];
}
__device__ inline i32 fp8_blocks_of(const struct fp8_product &p, i64 group) /* of the depth; of weights */
{
    return (fp8_rows_of(p, group) + FP8_BLOCK - 1) / FP8_BLOCK;
}
/* blocks: how many the groups before have; of weights. */
__device__ inline struct fp8_part fp8_part_of(const struct fp8_product &p, i64 group, i64 blocks)
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

/* matmul_fp8_hopper.cu; false: the device or the operands are not for it, nothing is done. */
bool fp8_hopper(struct device *device, const struct fp8_product &p);

#endif
