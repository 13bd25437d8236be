/* Copies rows to the rows of out that an index gives; a negative index skips the row. */
#include "kernels/cpu/cpu.h"

struct scatter_job {
    struct matrix out, x;
    const i32 *index;
    i64 rows_tile;
};

static void run_tile(void *context, i64 tile, int worker)
{
    const struct scatter_job *job = context;
    (void)worker;
    i64 begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->x.rows);
    for (i64 i = begin; i < end; i++)
        if (job->index[i] >= 0)
            memcpy(matrix_at(job->out, job->index[i], 0), matrix_at(job->x, i, 0),
                   (size_t)(job->x.columns * element_bytes(job->x.dtype)));
}

void CPU(scatter)(struct device *device, struct matrix out, struct matrix x, const i32 *index)
{
    (void)device;
    struct scatter_job job = {out, x, index, tile_rows(x.columns)};
    workers_run(ceil_div(x.rows, job.rows_tile), run_tile, &job);
}
