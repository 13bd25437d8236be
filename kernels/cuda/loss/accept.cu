/* Speculative sampling, one block per row. */
#include "kernels/cuda/loss/draw.h"

static __global__ __launch_bounds__(WIDE_THREADS) void accept_drafts(i32 *code, struct matrix p, struct matrix q,
                                                                     const i32 *draft, const u32 *identity,
                                                                     struct rng_key key)
{
    grid_wait();
    i64 index = blockIdx.x;
    i32 drafted = draft[index];
    const u32 *of = identity + index * 4;
    const float *of_p = row_of<float>(p, index), *of_q = drafted < 0 ? NULL : row_of<float>(q, index);
    u32 draws[4];
    rng_draw_on_device(draws, key, of[0], of[1], of[2], of[3]);
    if (drafted >= 0 && draws[1] * 0x1p-32 * (double)of_q[drafted] < (double)of_p[drafted]) {
        if (threadIdx.x == 0)
            code[index] = drafted;
        return;
    }
    double total, u = draws[drafted < 0 ? 0 : 2] * 0x1p-32;
    i64 drawn = draw_by_weight(
        &total, p.columns, u, [&](i64 i) { return of_q ? of_p[i] - of_q[i] : of_p[i]; },
        [](float more) { return more > 0 ? more : 0; });
    if (threadIdx.x == 0)
        code[index] = drawn >= 0 ? (i32)drawn : drafted < 0 ? 0 : drafted;
}

extern "C" void cuda_accept(struct device *device, i32 *code, struct matrix p, struct matrix q, const i32 *draft,
                            const u32 *identity, struct rng_key key)
{
    require(p.dtype == DTYPE_F32 && q.dtype == DTYPE_F32 && p.rows == q.rows && p.columns == q.columns,
            "accept: p of %s, q of %s", dtype_name(p.dtype), dtype_name(q.dtype));
    if (p.rows > 0)
        LAUNCH(device, accept_drafts, (unsigned)p.rows, threads_of_row(p.columns), 0, code, p, q, draft, identity, key);
}
