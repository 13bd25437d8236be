/* Fallback gemm for shapes that cuBLASLt refuses (matmul.c): tiles of TILE x TILE, one output per
 * thread, f32 sums along K. */
#include "kernels/cuda/cuda.h"

enum { TILE = 16, PITCH = TILE + 1, TILE_FLOATS = TILE * PITCH, TILE_THREADS = TILE * TILE };

/* Loads a tile of op(m) [outer, depth] from (outer, depth) on, zeros past the ends. Reads follow
 * the memory layout. */
__device__ static void load_tile(float *tile, struct matrix m, bool transpose, i64 outer, i64 depth)
{
    int along = threadIdx.x % TILE, down = threadIdx.x / TILE;
    i64 row = (transpose ? depth : outer) + down, column = (transpose ? outer : depth) + along;
    tile[transpose ? along * PITCH + down : down * PITCH + along] =
        row < m.rows && column < m.columns ? element_of(m, row, column) : 0;
}

template <typename T>
static __global__ void multiply(struct matrix out, struct matrix a, bool transpose_a, struct matrix b, bool transpose_b,
                                bool add, unsigned across)
{
    SHARED(float, of_a, TILE_FLOATS);
    SHARED(float, of_b, TILE_FLOATS);
    int along = threadIdx.x % TILE, down = threadIdx.x / TILE;
    i64 depth = transpose_a ? a.rows : a.columns;
    i64 first_row = (i64)(blockIdx.x / across) * TILE, first_column = (i64)(blockIdx.x % across) * TILE;
    float sum = 0;
    grid_wait();
    for (i64 k = 0; k < depth; k += TILE) {
        load_tile(of_a, a, transpose_a, first_row, k);
        load_tile(of_b, b, !transpose_b, first_column, k);
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += of_a[down * PITCH + i] * of_b[along * PITCH + i];
        __syncthreads();
    }
    if (first_row + down >= out.rows || first_column + along >= out.columns)
        return;
    T *to = row_of<T>(out, first_row + down) + first_column + along;
    *to = from_f32<T>(add ? to_f32(*to) + sum : sum);
}

void cuda_matmul_plain(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                       bool transpose_b, bool add)
{
    unsigned down = (unsigned)ceil_div(out.rows, TILE), across = (unsigned)ceil_div(out.columns, TILE);
    LAUNCH_BY_DTYPE(device, out.dtype, multiply, down * across, TILE_THREADS, 0, out, a, transpose_a, b, transpose_b,
                    add, across);
}
