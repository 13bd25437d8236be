/* Gathers rows by index, and adds rows to a table by index (the gradient of an embedding). */
#include "kernels/cpu/rows.h"

struct gather_job {
    struct matrix out, x;
    const i32 *index;
    bool add;
    i64 tile;
};
enum { SCATTER_COLUMNS = 32 };

INLINED void gather_row(void *out, const void *x, i64 n, bool add, enum dtype out_dtype, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float value = element_load(x, i, dtype);
        element_store(out, i, add ? element_load(out, i, out_dtype) + value : value, out_dtype);
    }
}

static void run_gather(void *context, i64 tile, int worker)
{
    const struct gather_job *job = context;
    (void)worker;
    i64 n = job->out.columns, begin = tile * job->tile, end = min_i64(begin + job->tile, job->out.rows);
    size_t bytes = (size_t)(n * element_bytes(job->out.dtype));
    for (i64 i = begin; i < end; i++) {
        void *out = matrix_at(job->out, i, 0);
        const void *x = matrix_at(job->x, max_i64(job->index[i], 0), 0);
        if (job->index[i] < 0) {
            if (!job->add)
                memset(out, 0, bytes);
        } else if (!job->add && job->out.dtype == job->x.dtype) {
            memcpy(out, x, bytes);
        } else {
            BY_FLAG_DTYPES(job->add, job->out.dtype, job->x.dtype, gather_row, out, x, n);
        }
    }
}

static void check_index(const char *op, const i32 *index, i64 count, i64 rows)
{
    i32 most = -1;
#pragma omp simd reduction(max : most)
    for (i64 i = 0; i < count; i++)
        most = index[i] > most ? index[i] : most;
    require(most < rows, "%s: index %d of %lld rows", op, most, (long long)rows);
}

void CPU(gather)(struct device *device, struct matrix out, struct matrix table, const i32 *index, bool add)
{
    (void)device;
    check_index("gather", index, out.rows, table.rows);
    struct gather_job job = {out, table, index, add, tile_rows(out.columns)};
    workers_run(ceil_div(out.rows, job.tile), run_gather, &job);
}

/* A tile owns columns, not rows, so it can follow the order of i without a lock. */
static void run_scatter(void *context, i64 tile, int worker)
{
    const struct gather_job *job = context;
    (void)worker;
    i64 column = tile * job->tile, n = min_i64(job->tile, job->x.columns - column);
    for (i64 i = 0; i < job->x.rows; i++)
        if (job->index[i] >= 0)
            BY_DTYPES(job->out.dtype, job->x.dtype, gather_row, matrix_at(job->out, job->index[i], column),
                      matrix_at(job->x, i, column), n, true);
}

void CPU(scatter_add)(struct device *device, struct matrix out, struct matrix x, const i32 *index)
{
    (void)device;
    check_index("scatter_add", index, x.rows, out.rows);
    struct gather_job job = {out, x, index, true, SCATTER_COLUMNS};
    workers_run(ceil_div(x.columns, job.tile), run_scatter, &job);
}
