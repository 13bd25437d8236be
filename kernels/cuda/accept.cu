/* Drafts accepted or drawn anew, a block a row: each thread sums a run of what may be drawn, one walks the sums. */
#include "kernels/cuda/cuda.h"

enum { THREADS = 256 };

struct weights { /* of ids: p, or what it has more than q */
    const float *p, *q;
};

__device__ static float weight_of(const struct weights &w, i64 i)
{
    float more = w.q ? w.p[i] - w.q[i] : w.p[i];
    return more > 0 ? more : 0;
}

/* The first id at which the running sum passes u of the total; of none where nothing weighs. */
__device__ static i32 walk(const struct weights &w, const double *masses, i64 length, i64 n, double u, i32 none)
{
    double target = 0, sum = 0;
    i64 run = 0, id = -1;
    for (i64 i = 0; i < THREADS; i++)
        target += u * masses[i];
    while (run + 1 < THREADS && sum + masses[run] <= target)
        sum += masses[run++];
    for (i64 i = run * length; i < n && (id < 0 || sum <= target); i++) {
        sum += (double)weight_of(w, i);
        id = weight_of(w, i) > 0 ? i : id;
    }
    for (i64 i = run * length < n ? run * length : n; id < 0 && i-- > 0;) /* the sums differ in the last bit */
        id = weight_of(w, i) > 0 ? i : id;
    return id < 0 ? none : (i32)id;
}

static __global__ void accept_drafts(i32 *code, struct matrix p, struct matrix q, const i32 *draft, const u32 *identity,
                                     struct rng_key key)
{
    grid_wait();
    SHARED(double, masses, THREADS);
    i64 index = blockIdx.x, n = p.columns, length = (n + THREADS - 1) / THREADS, first = threadIdx.x * length;
    i32 drafted = draft[index];
    const u32 *of = identity + index * 4;
    struct weights w = {row_of<float>(p, index), drafted < 0 ? NULL : row_of<float>(q, index)};
    u32 draws[4];
    rng_draw_on_device(draws, key, of[0], of[1], of[2], of[3]);
    if (drafted >= 0 && draws[1] * 0x1p-32 * (double)w.q[drafted] < (double)w.p[drafted]) {
        if (threadIdx.x == 0)
            code[index] = drafted;
        return;
    }
    double mass = 0;
    for (i64 i = first; i < first + length && i < n; i++)
        mass += (double)weight_of(w, i);
    masses[threadIdx.x] = mass;
    __syncthreads();
    if (threadIdx.x == 0)
        code[index] = walk(w, masses, length, n, draws[drafted < 0 ? 0 : 2] * 0x1p-32, drafted < 0 ? 0 : drafted);
}

extern "C" void cuda_accept(struct device *device, i32 *code, struct matrix p, struct matrix q, const i32 *draft,
                            const u32 *identity, struct rng_key key)
{
    require(p.dtype == DTYPE_F32 && q.dtype == DTYPE_F32 && p.rows == q.rows && p.columns == q.columns,
            "accept: p of %s, q of %s", dtype_name(p.dtype), dtype_name(q.dtype));
    if (p.rows > 0)
        LAUNCH(device, accept_drafts, (unsigned)p.rows, THREADS, 0, code, p, q, draft, identity, key);
}
