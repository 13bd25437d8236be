/* Acceptance of draft codes in speculative sampling (Leviathan et al. 2023, algorithm 1). */
#include "kernels/cpu/rows.h"

struct accept_job {
    i32 *code;
    struct matrix p, q;
    const i32 *draft;
    const u32 *identity; /* [N, 4] */
    struct rng_key key;
    i64 rows_tile;
};

/* Draws from the positive part of p - q (Leviathan et al. 2023, algorithm 1). */
static i32 draw_rest(const struct accept_job *job, i64 row, const float *p, double u, float *rest)
{
    const float *q = matrix_at(job->q, row, 0);
    i64 n = job->p.columns;
    for (i64 i = 0; i < n; i++)
        rest[i] = p[i] > q[i] ? p[i] - q[i] : 0;
    i32 code = CPU(draw)(rest, n, u);
    return rest[code] > 0 ? code : job->draft[row];
}

static i32 accept_row(const struct accept_job *job, i64 row, float *rest)
{
    const u32 *identity = job->identity + row * 4;
    const float *p = matrix_at(job->p, row, 0);
    i32 draft = job->draft[row];
    u32 draws[4];
    rng_draw(draws, job->key, identity[0], identity[1], identity[2], identity[3]);
    if (draft < 0)
        return CPU(draw)(p, job->p.columns, draws[0] * 0x1p-32);
    double q = *(const float *)matrix_at(job->q, row, draft);
    return draws[1] * 0x1p-32 * q < p[draft] ? draft : draw_rest(job, row, p, draws[2] * 0x1p-32, rest);
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct accept_job *job = context;
    i64 begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->p.rows);
    float *rest = CPU(scratch)(worker, 0, job->p.columns * 4);
    for (i64 i = begin; i < end; i++)
        job->code[i] = accept_row(job, i, rest);
}

void CPU(accept)(struct device *device, i32 *code, struct matrix p, struct matrix q, const i32 *draft,
                 const u32 *identity, struct rng_key key)
{
    (void)device;
    require(p.dtype == DTYPE_F32 && q.dtype == DTYPE_F32 && same_shape(p, q), "accept: p of %s, q of %s",
            dtype_name(p.dtype), dtype_name(q.dtype));
    struct accept_job job = {code, p, q, draft, identity, key, tile_rows(p.columns)};
    workers_run(ceil_div(p.rows, job.rows_tile), run_tile, &job);
}
