#include "kernels/cuda/cuda.h"

template <typename Out, typename In, int N>
static __global__ void gather_rows(struct matrix out, struct matrix table, const i32 *index, bool add)
{
    grid_wait();
    RUNS(N, at, column, out.rows, out.columns)
    {
        Out *to = row_of<Out>(out, at.row) + column;
        i64 row = index[at.row];
        elements<In, N> from = {};
        elements<Out, N> values = {};
        if (row >= 0)
            from = load<N>(row_of<In>(table, row) + column);
        if (add)
            values = load<N>(to);
        for (int k = 0; k < N; k++)
            values.at[k] = from_f32<Out>(add ? to_f32(values.at[k]) + to_f32(from.at[k]) : to_f32(from.at[k]));
        store(to, values);
    }
}

extern "C" void cuda_gather(struct device *device, struct matrix out, struct matrix table, const i32 *index, bool add)
{
    bool quads = in_quads(out, table);
    i64 runs = out.rows * out.columns / (quads ? QUAD : 1);
    if (runs > 0)
        LAUNCH_RUNS_BY_DTYPES(device, quads, out.dtype, table.dtype, gather_rows, blocks_for(runs), BLOCK_THREADS, out,
                              table, index, add);
}
