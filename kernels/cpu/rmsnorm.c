/* RMSNorm (Zhang and Sennrich 2019): y = w . x rstd with rstd = 1 / sqrt(mean(x^2) + eps),
 * optionally fused with the residual sum x = a + b, and its backward. */
#include "kernels/cpu/rows.h"

struct rmsnorm_job {
    struct matrix y, x, w;
    struct matrix sum, b; /* add_rmsnorm only */
    float *rstd, eps;
    i64 rows_tile;
};
struct rmsnorm_backward_job {
    struct matrix dx, dy, x, w;
    const float *rstd;
    float *partials; /* partial dw, one row per tile */
    i64 rows_tile;
    bool add_dx;
};

static const float *load_weight(float *buffer, struct matrix w, i64 columns)
{
    if (w.data)
        return row_load(buffer, w, 0);
    for (i64 i = 0; i < columns; i++)
        buffer[i] = 1;
    return buffer;
}

INLINED float sum_of_squares(const void *x, i64 n, enum dtype dtype)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++)
        sum += element_load(x, i, dtype) * element_load(x, i, dtype);
    return sum;
}

/* Squares the rounded sum, because that is what the backward reads. */
INLINED float add_and_square(void *sum, const void *a, const void *b, i64 n, enum dtype dtype)
{
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (i64 i = 0; i < n; i++) {
        float x = element_round(element_load(a, i, dtype) + element_load(b, i, dtype), dtype);
        element_store(sum, i, x, dtype);
        squares += x * x;
    }
    return squares;
}

INLINED void scale(void *y, const void *x, const float *w, float r, i64 n, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        element_store(y, i, w[i] * element_round(element_load(x, i, dtype) * r, dtype), dtype);
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct rmsnorm_job *job = context;
    i64 n = job->x.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->x.rows);
    enum dtype dtype = job->x.dtype;
    const float *w = load_weight(CPU(scratch)(worker, 0, n * 4), job->w, n);
    for (i64 i = begin; i < end; i++) {
        const void *x = matrix_at(job->x, i, 0);
        float squares;
        if (job->b.data) {
            void *sum = matrix_at(job->sum, i, 0);
            squares = BY_DTYPE(dtype, add_and_square, sum, x, matrix_at(job->b, i, 0), n);
            x = sum;
        } else {
            squares = BY_DTYPE(dtype, sum_of_squares, x, n);
        }
        job->rstd[i] = 1 / sqrtf(squares / (float)n + job->eps);
        BY_DTYPE(dtype, scale, matrix_at(job->y, i, 0), x, w, job->rstd[i], n);
    }
}

static void run(struct rmsnorm_job *job)
{
    job->rows_tile = tile_rows(job->x.columns);
    workers_run(ceil_div(job->x.rows, job->rows_tile), run_tile, job);
}

void CPU(rmsnorm)(struct device *device, struct matrix y, float *rstd, struct matrix x, struct matrix w, float eps)
{
    (void)device;
    run(&(struct rmsnorm_job){.y = y, .x = x, .w = w, .rstd = rstd, .eps = eps});
}

void CPU(add_rmsnorm)(struct device *device, struct matrix sum, struct matrix y, float *rstd, struct matrix a,
                      struct matrix b, struct matrix w, float eps)
{
    (void)device;
    run(&(struct rmsnorm_job){.y = y, .sum = sum, .x = a, .b = b, .w = w, .rstd = rstd, .eps = eps});
}

INLINED float project(const void *dy, const void *x, const float *w, i64 n, enum dtype dtype)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++)
        sum += element_load(dy, i, dtype) * w[i] * element_load(x, i, dtype);
    return sum;
}

/* With g = w . dy and n = x . r: dx = r (g - n mean(g n)), dw = dy . n. */
INLINED void backward_row(void *dx, float *dw, const void *dy, const void *x, const float *w, float r, float mean,
                          i64 n, bool add, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float d = element_load(dy, i, dtype), normed = element_load(x, i, dtype) * r;
        float g = r * (d * w[i] - normed * mean);
        element_store(dx, i, add ? element_load(dx, i, dtype) + g : g, dtype);
        dw[i] += d * normed;
    }
}

static void run_backward(void *context, i64 tile, int worker)
{
    const struct rmsnorm_backward_job *job = context;
    i64 n = job->x.columns, begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->x.rows);
    enum dtype dtype = job->x.dtype;
    const float *w = load_weight(CPU(scratch)(worker, 0, n * 4), job->w, n);
    float *dw = job->partials + tile * partials_stride(n);
    memset(dw, 0, (size_t)n * 4);
    for (i64 i = begin; i < end; i++) {
        const void *dy = matrix_at(job->dy, i, 0), *x = matrix_at(job->x, i, 0);
        float mean = job->rstd[i] * BY_DTYPE(dtype, project, dy, x, w, n) / (float)n;
        BY_FLAG_DTYPE(job->add_dx, dtype, backward_row, matrix_at(job->dx, i, 0), dw, dy, x, w, job->rstd[i], mean, n);
    }
}

void CPU(rmsnorm_backward)(struct device *device, struct matrix dx, struct matrix dw, struct matrix dy, struct matrix x,
                           struct matrix w, const float *rstd, bool add_dx, bool add_dw)
{
    (void)device;
    i64 rows_tile = partials_rows(x.rows, x.columns), tiles = ceil_div(x.rows, rows_tile);
    struct rmsnorm_backward_job job = {dx, dy, x, w, rstd, CPU(partials)(tiles, x.columns), rows_tile, add_dx};
    workers_run(tiles, run_backward, &job);
    if (dw.data)
        CPU(partials_sum)(dw.data, job.partials, tiles, x.columns, add_dw);
}
