/* Log-normalizers of rows of logits, and shifts of rows by the difference of two of them. */
#include "kernels/cpu/rows.h"

void CPU(log_normalizers)(struct device *device, float *out, const float *loss, struct matrix logits, const i32 *target)
{
    (void)device;
    for (i64 i = 0; i < logits.rows; i++)
        out[i] = loss[i] + *(const float *)matrix_at(logits, i, target[i]);
}

struct shift_rows_job {
    struct matrix x;
    const float *to, *from;
};

static void run_row(void *context, i64 row, int worker)
{
    const struct shift_rows_job *job = context;
    float *x = matrix_at(job->x, row, 0), by = job->to[row] - job->from[row];
    (void)worker;
    for (i64 j = 0; j < job->x.columns; j++)
        x[j] += by;
}

void CPU(shift_rows)(struct device *device, struct matrix x, const float *to, const float *from)
{
    struct shift_rows_job job = {x, to, from};
    (void)device;
    workers_run(x.rows, run_row, &job);
}
