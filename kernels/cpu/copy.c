/* Copies with conversion, scaling and accumulation; sums of two matrices; zeroing; the helpers pack
 * and store_sums of cpu.h. */
#include "kernels/cpu/rows.h"

struct copy_job {
    struct matrix out, x, b;
    float scale;
    bool add;
    struct matrix_cut cut;
};

INLINED void copy_row(void *out, const void *x, float scale, i64 n, bool add, enum dtype out_dtype, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++) {
        float value = scale * element_load(x, i, dtype);
        element_store(out, i, add ? element_load(out, i, out_dtype) + value : value, out_dtype);
    }
}

static void run_copy(void *context, i64 index, int worker)
{
    const struct copy_job *job = context;
    struct matrix_tile tile = cut_tile(&job->cut, index);
    (void)worker;
    bool plain = !job->add && job->scale == 1 && job->out.dtype == job->x.dtype;
    for (i64 i = tile.row; i < tile.end; i++) {
        void *out = matrix_at(job->out, i, tile.column);
        const void *x = matrix_at(job->x, i, tile.column);
        if (plain)
            memcpy(out, x, (size_t)(tile.columns * element_bytes(job->x.dtype)));
        else
            BY_FLAG_DTYPES(job->add, job->out.dtype, job->x.dtype, copy_row, out, x, job->scale, tile.columns);
    }
}

void CPU(copy)(struct device *device, struct matrix out, struct matrix x, float scale, bool add)
{
    (void)device;
    struct copy_job job = {.out = out, .x = x, .scale = scale, .add = add};
    if (matrix_is_dense(out) && matrix_is_dense(x)) {
        job.out = matrix_flat(out);
        job.x = matrix_flat(x);
    }
    job.cut = cut_of(job.x.rows, job.x.columns);
    workers_run(cut_tiles(&job.cut), run_copy, &job);
}

INLINED void add_row(void *out, const void *a, const void *b, i64 n, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        element_store(out, i, element_load(a, i, dtype) + element_load(b, i, dtype), dtype);
}

static void run_add(void *context, i64 index, int worker)
{
    const struct copy_job *job = context;
    struct matrix_tile tile = cut_tile(&job->cut, index);
    (void)worker;
    for (i64 i = tile.row; i < tile.end; i++)
        BY_DTYPE(job->x.dtype, add_row, matrix_at(job->out, i, tile.column), matrix_at(job->x, i, tile.column),
                 matrix_at(job->b, i, tile.column), tile.columns);
}

void CPU(add)(struct device *device, struct matrix out, struct matrix a, struct matrix b)
{
    (void)device;
    struct copy_job job = {.out = out, .x = a, .b = b};
    if (matrix_is_dense(out) && matrix_is_dense(a) && matrix_is_dense(b)) {
        job.out = matrix_flat(out);
        job.x = matrix_flat(a);
        job.b = matrix_flat(b);
    }
    job.cut = cut_of(job.x.rows, job.x.columns);
    workers_run(cut_tiles(&job.cut), run_add, &job);
}

enum { ZERO_BYTES = 1 << 18 };
struct zero_job {
    char *data;
    i64 bytes;
};

static void run_zero(void *context, i64 tile, int worker)
{
    const struct zero_job *job = context;
    (void)worker;
    memset(job->data + tile * ZERO_BYTES, 0, (size_t)min_i64(ZERO_BYTES, job->bytes - tile * ZERO_BYTES));
}

void CPU(zero)(struct device *device, void *data, i64 bytes)
{
    (void)device;
    workers_run(ceil_div(bytes, ZERO_BYTES), run_zero, &(struct zero_job){data, bytes});
}

INLINED void store_sums_row(void *out, const float *sums, i64 n, bool add, enum dtype dtype)
{
#pragma omp simd
    for (i64 i = 0; i < n; i++)
        element_store(out, i, add ? element_load(out, i, dtype) + sums[i] : sums[i], dtype);
}

void CPU(pack)(void *out, struct matrix m, i64 first, i64 rows, i64 column, i64 width)
{
    i64 bytes = width * element_bytes(m.dtype), there = max_i64(0, min_i64(rows, m.rows - first));
    char *to = out;
    for (i64 i = 0; i < there; i++, to += bytes)
        memcpy(to, matrix_at(m, first + i, column), (size_t)bytes);
    memset(to, 0, (size_t)((rows - there) * bytes));
}

void CPU(store_sums)(struct matrix out, const float *sums, bool add)
{
    for (i64 i = 0; i < out.rows; i++, sums += out.columns)
        BY_FLAG_DTYPE(add, out.dtype, store_sums_row, matrix_at(out, i, 0), sums, out.columns);
}
