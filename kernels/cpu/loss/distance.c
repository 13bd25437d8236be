/* Mean distance of the rows of x and y, and the backward with respect to x. */
#include "kernels/cpu/cpu.h"
#include "kernels/distance.h"

struct distance_job {
    struct matrix dx, x, y;
    const float *coefficient;
    float *loss;
    enum distance kind;
    bool add;
};
enum { SLOT_X, SLOT_Y, SLOT_DX };

static float row_distance(const float *restrict x, const float *restrict y, i64 n, enum distance kind)
{
    float sum = 0;
    if (kind == DISTANCE_L1) {
#pragma omp simd reduction(+ : sum)
        for (i64 i = 0; i < n; i++)
            sum += fabsf(x[i] - y[i]);
    } else if (kind == DISTANCE_LOG) {
        for (i64 i = 0; i < n; i++)
            sum += log_distance(x[i], y[i]);
    } else {
#pragma omp simd reduction(+ : sum)
        for (i64 i = 0; i < n; i++)
            sum += (x[i] - y[i]) * (x[i] - y[i]);
    }
    return sum / (float)n;
}

static void row_derivative(float *restrict dx, const float *restrict x, const float *restrict y, i64 n, float scale,
                           enum distance kind)
{
    if (kind == DISTANCE_L1) {
#pragma omp simd
        for (i64 i = 0; i < n; i++)
            dx[i] = x[i] > y[i] ? scale : x[i] < y[i] ? -scale : 0.0f;
    } else if (kind == DISTANCE_LOG) {
#pragma omp simd
        for (i64 i = 0; i < n; i++)
            dx[i] = scale * log_distance_slope(x[i], y[i]);
    } else {
#pragma omp simd
        for (i64 i = 0; i < n; i++)
            dx[i] = 2.0f * scale * (x[i] - y[i]);
    }
}

static void run_rows(void *context, i64 tile, int worker)
{
    const struct distance_job *job = context;
    i64 columns = job->x.columns, rows = tile_rows(columns), end = min_i64((tile + 1) * rows, job->x.rows);
    float *x_row = CPU(scratch)(worker, SLOT_X, columns * 4), *y_row = CPU(scratch)(worker, SLOT_Y, columns * 4);
    float *dx_row = CPU(scratch)(worker, SLOT_DX, columns * 4);
    for (i64 i = tile * rows; i < end; i++) {
        const float *x = row_load(x_row, job->x, i), *y = row_load(y_row, job->y, i);
        if (job->loss) {
            job->loss[i] = row_distance(x, y, columns, job->kind);
            continue;
        }
        row_derivative(dx_row, x, y, columns, job->coefficient[i] / (float)columns, job->kind);
        (job->add ? row_store_add : row_store)(job->dx, i, dx_row);
    }
}

static void run(struct distance_job *job)
{
    workers_run(ceil_div(job->x.rows, tile_rows(job->x.columns)), run_rows, job);
}

void CPU(distance)(struct device *device, float *loss, struct matrix x, struct matrix y, enum distance kind)
{
    (void)device;
    run(&(struct distance_job){.loss = loss, .x = x, .y = y, .kind = kind});
}

void CPU(distance_backward)(struct device *device, struct matrix dx, struct matrix x, struct matrix y,
                            enum distance kind, const float *coefficient, bool add)
{
    (void)device;
    run(&(struct distance_job){.dx = dx, .x = x, .y = y, .kind = kind, .coefficient = coefficient, .add = add});
}
