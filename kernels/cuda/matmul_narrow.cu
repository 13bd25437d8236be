#include "kernels/cuda/cuda.h"
#include "kernels/narrow.h"

struct narrowed {
    struct matrix out, a;
    struct narrow w;
    struct groups groups;
};

/* The part that row `row` is multiplied with; -1: none. */
__device__ static i64 part_of(const struct groups &groups, i64 row)
{
    i64 low = 0, high = groups.count; /* offsets[low] <= row < offsets[high] */
    if (!groups.offsets)
        return 0;
    if (groups.count == 0 || row >= groups.offsets[groups.count])
        return -1;
    while (high - low > 1) {
        i64 middle = (low + high) / 2;
        if (groups.offsets[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return groups.member ? groups.member[low] : low;
}

/* A thread sums one output along the depth; the 32 of a warp read a strip's step side by side. */
template <typename Out, typename T> static __global__ void multiply(struct narrowed p)
{
    i64 width = narrow_strips(p.w.rows) * NARROW_ROWS;
    GRID_STRIDE(i, p.out.rows * width)
    {
        i64 row = i / width, column = i % width, part = part_of(p.groups, row);
        if (part < 0 || column >= p.out.columns)
            continue;
        const T *a = row_of<T>(p.a, row);
        float sum = 0;
        for (i64 k = 0; k < p.w.columns; k++)
            sum += to_f32(a[k]) * (float)narrow_at(&p.w, part * width + column, k);
        row_of<Out>(p.out, row)[column] = from_f32<Out>(sum * p.w.scale[part * width + column]);
    }
}

extern "C" void cuda_matmul_narrow(struct device *device, struct matrix out, struct matrix a, const struct narrow *w,
                                   const struct groups *groups)
{
    require(a.columns == w->columns && out.columns == w->rows,
            "matmul_narrow: [%lld,%lld] from [%lld,%lld] and %lld parts of [%lld,%lld]", (long long)out.rows,
            (long long)out.columns, (long long)a.rows, (long long)a.columns, (long long)w->parts, (long long)w->rows,
            (long long)w->columns);
    struct narrowed p = {out, a, *w, {}};
    if (groups)
        p.groups = *groups;
    i64 outputs = out.rows * narrow_strips(w->rows) * NARROW_ROWS;
    if (outputs > 0)
        LAUNCH_BY_DTYPES(device, out.dtype, a.dtype, multiply, blocks_for(outputs), BLOCK_THREADS, 0, p);
}
