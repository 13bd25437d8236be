#include "kernels/cpu/cpu.h"

/* Distances are expanded: |r - c|^2 = |r|^2 + |c|^2 - 2 r.c. The first term is the same for all
 * codes and is left out; r.c of a tile of rows with a whole codebook is one gemm. */
enum { SLOT_REST, SLOT_PRODUCTS, SLOT_NORMS };

struct quantize_vectors_job {
    i32 *codes;
    float *sum, *residual;
    struct matrix x;
    const float *codebooks;
    float *norms; /* squared norms of the code words [levels * codes] */
    i64 levels, codes_count;
};

static void run_norms(void *context, i64 tile, int worker)
{
    const struct quantize_vectors_job *job = context;
    i64 d = job->x.columns, first = tile * tile_rows(d);
    i64 end = min_i64(first + tile_rows(d), job->levels * job->codes_count);
    (void)worker;
    for (i64 i = first; i < end; i++) {
        const float *word = job->codebooks + i * d;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (i64 c = 0; c < d; c++)
            sum += word[c] * word[c];
        job->norms[i] = sum;
    }
}

/* Turns products into distances and returns the first of the smallest. */
static i32 nearest(float *products, const float *norms, i64 count)
{
    enum { LANES = 16 };
    float lanes[LANES], least = INFINITY;
    for (i64 l = 0; l < LANES; l++)
        lanes[l] = INFINITY;
    for (i64 j = 0; j < count; j++)
        products[j] = norms[j] - 2.0f * products[j];
    for (i64 j = 0; j + LANES <= count; j += LANES)
#pragma omp simd
        for (i64 l = 0; l < LANES; l++)
            lanes[l] = products[j + l] < lanes[l] ? products[j + l] : lanes[l];
    for (i64 l = 0; l < LANES; l++)
        least = fminf(least, lanes[l]);
    for (i64 j = count / LANES * LANES; j < count; j++)
        least = fminf(least, products[j]);
    for (i64 j = 0; j < count; j++)
        if (products[j] == least)
            return (i32)j;
    return 0; /* only NaNs */
}

static void take_word(float *restrict sum, float *restrict rest, const float *restrict word, i64 d)
{
#pragma omp simd
    for (i64 c = 0; c < d; c++) {
        sum[c] += word[c];
        rest[c] -= word[c];
    }
}

static void run_rows(void *context, i64 tile, int worker)
{
    const struct quantize_vectors_job *job = context;
    i64 d = job->x.columns, count = job->codes_count, first = tile * NEAREST_ROWS,
        rows = min_i64(NEAREST_ROWS, job->x.rows - first);
    float *rest = CPU(scratch)(worker, SLOT_REST, NEAREST_ROWS * d * 4), *sum = job->sum + first * d;
    float *products = CPU(scratch)(worker, SLOT_PRODUCTS, NEAREST_ROWS * max_i64(count, d) * 4);
    for (i64 i = 0; i < rows; i++)
        row_store(matrix_of(rest, DTYPE_F32, rows, d), i, row_load(products, job->x, first + i));
    memset(sum, 0, (size_t)(rows * d) * 4);
    struct gemm gemm = {.m = rows, .n = count, .k = d, .lda = d, .ldb = d, .ldc = count, .transpose_b = true};
    for (i64 level = 0; level < job->levels; level++) {
        const float *book = job->codebooks + level * count * d;
        CPU(gemm)(products, rest, book, &gemm, worker);
        for (i64 i = 0; i < rows; i++) {
            i64 at = (first + i) * job->levels + level;
            job->codes[at] = nearest(products + i * count, job->norms + level * count, count);
            if (job->residual)
                memcpy(job->residual + at * d, rest + i * d, (size_t)d * 4);
            take_word(sum + i * d, rest + i * d, book + job->codes[at] * d, d);
        }
    }
}

void CPU(quantize_vectors)(struct device *device, i32 *codes, float *sum, float *residual, struct matrix x,
                           const float *codebooks, i64 levels, i64 codes_count)
{
    (void)device;
    struct quantize_vectors_job job = {codes, sum, residual, x, codebooks, NULL, levels, codes_count};
    job.norms = CPU(scratch)(0, SLOT_NORMS, levels * codes_count * 4);
    workers_run(ceil_div(levels * codes_count, tile_rows(x.columns)), run_norms, &job);
    workers_run(ceil_div(x.rows, NEAREST_ROWS), run_rows, &job);
}
