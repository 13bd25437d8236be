#include "baselines/baselines.h"

#include <math.h>

/* a = u^T u, in place, in the upper half (Cholesky, row by row). Only the upper half is read. */
static void factor(double *a, i64 n)
{
    for (i64 i = 0; i < n; i++) {
        double *row = a + i * n, root = sqrt(row[i]);
        for (i64 k = i; k < n; k++)
            row[k] /= root;
        for (i64 j = i + 1; j < n; j++) {
            double share = row[j], *other = a + j * n;
#pragma omp simd
            for (i64 k = j; k < n; k++)
                other[k] -= share * row[k];
        }
    }
}

/* z = (u^T u)^-1 z */
static void solve(double *z, const double *u, i64 n)
{
    for (i64 i = 0; i < n; i++) {
        z[i] /= u[i * n + i];
#pragma omp simd
        for (i64 k = i + 1; k < n; k++)
            z[k] -= u[i * n + k] * z[i];
    }
    for (i64 i = n - 1; i >= 0; i--) {
        for (i64 k = i + 1; k < n; k++)
            z[i] -= u[i * n + k] * z[k];
        z[i] /= u[i * n + i];
    }
}

void ridge_weights(double *weights, const float *kernel, i64 n, const float *queries, i64 query_count, double lambda)
{
    double *u = memory_alloc(max_i64(n * n, 1) * 8);
    for (i64 i = 0; i < n * n; i++)
        u[i] = kernel[i] + (i % (n + 1) ? 0 : lambda);
    factor(u, n);
    for (i64 q = 0; q < query_count; q++) {
        double *w = weights + q * n, sum = 0;
        for (i64 i = 0; i < n; i++)
            w[i] = queries[q * n + i];
        solve(w, u, n);
        for (i64 i = 0; i < n; i++)
            sum += w[i];
        for (i64 i = 0; i < n; i++)
            w[i] += (1 - sum) / (double)n;
    }
    memory_free(u);
}

void ridge_map(double *map, const float *rows, i64 n, i64 width, const u8 *targets, i64 count, double lambda)
{
    double *u = memory_alloc(max_i64(width * width, 1) * 8);
    for (i64 i = 0; i < width; i++)
        u[i * width + i] = lambda;
    for (i64 k = 0; k < n; k++)
        for (i64 i = 0; i < width; i++)
            for (i64 j = i; j < width; j++)
                u[i * width + j] += (double)rows[k * width + i] * (double)rows[k * width + j];
    factor(u, width);
    for (i64 t = 0; t < count; t++) {
        double *z = map + t * width;
        for (i64 i = 0; i < width; i++)
            z[i] = 0;
        for (i64 k = 0; k < n; k++)
            for (i64 i = 0; i < width && targets[k * count + t]; i++)
                z[i] += (double)rows[k * width + i]; /* their mean is 0, so the target's mean is no matter */
        solve(z, u, width);
    }
    memory_free(u);
}
