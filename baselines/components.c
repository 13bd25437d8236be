#include "baselines/baselines.h"

#include <math.h>
#include <string.h>

/* The axes are found from the products of the items: with far fewer items than values, items x items is the
 * smaller matrix. Its largest eigenvectors are those of a subspace that powers of the matrix turn towards
 * them (Halko et al. 2011, algorithm 4.4). */
enum { POWERS = 12, SPARE = 10, SWEEPS = 12 };

/* Items less the mean, [count, values] in device memory. */
static struct matrix put_centred(struct device *device, const u8 *items, i64 count, const float *mean, i64 values)
{
    float *x = memory_alloc(max_i64(count * values, 1) * 4);
    struct matrix m = matrix_of(device_alloc(device, count * values * 4), DTYPE_F32, count, values);
    for (i64 i = 0; i < count * values; i++)
        x[i] = (float)items[i] - mean[i % values];
    device_put(device, m.data, x, count * values * 4);
    memory_free(x);
    return m;
}

static void drop(struct device *device, struct matrix m)
{
    device_free(device, m.data, m.rows * m.columns * 4);
}

/* Returns a b, or a b^T, on the host; memory_free. */
static float *product(struct device *device, struct matrix a, struct matrix b, bool transpose)
{
    i64 columns = transpose ? b.rows : b.columns, bytes = a.rows * columns * 4;
    struct matrix out = matrix_of(device_alloc(device, bytes), DTYPE_F32, a.rows, columns);
    float *host = memory_alloc(max_i64(bytes, 4));
    device->ops->matmul(device, out, a, false, b, transpose, false);
    device_get(device, host, out.data, bytes);
    drop(device, out);
    return host;
}

/* Gram-Schmidt over rows [count, width], each against those before it. */
static void make_orthonormal(float *rows, i64 count, i64 width)
{
    for (i64 i = 0; i < count; i++) {
        float *row = rows + i * width;
        double norm = 0;
        for (i64 k = 0; k < i; k++) {
            const float *other = rows + k * width;
            double dot = 0;
#pragma omp simd reduction(+ : dot)
            for (i64 c = 0; c < width; c++)
                dot += (double)row[c] * other[c];
#pragma omp simd
            for (i64 c = 0; c < width; c++)
                row[c] -= (float)dot * other[c];
        }
        for (i64 c = 0; c < width; c++)
            norm += (double)row[c] * row[c];
        for (i64 c = 0; c < width; c++)
            row[c] = norm > 0 ? (float)(row[c] / sqrt(norm)) : 0;
    }
}

/* Diagonalizes a symmetric matrix by rotations (Jacobi): its diagonal becomes the eigenvalues, the rows of
 * `vectors` the eigenvectors. */
static void diagonalize(double *a, double *vectors, i64 n)
{
    for (i64 i = 0; i < n * n; i++)
        vectors[i] = i % (n + 1) == 0;
    for (i64 sweep = 0; sweep < SWEEPS; sweep++)
        for (i64 p = 0; p < n; p++)
            for (i64 q = p + 1; q < n; q++) {
                double off = a[p * n + q], scale = sqrt(fabs(a[p * n + p] * a[q * n + q]));
                if (fabs(off) <= 1e-12 * scale || off == 0)
                    continue;
                double angle = (a[q * n + q] - a[p * n + p]) / (2 * off);
                double t = (angle < 0 ? -1 : 1) / (fabs(angle) + sqrt(angle * angle + 1));
                double c = 1 / sqrt(t * t + 1), s = t * c;
                for (i64 k = 0; k < n; k++) {
                    double x = a[k * n + p], y = a[k * n + q];
                    a[k * n + p] = c * x - s * y;
                    a[k * n + q] = s * x + c * y;
                }
                for (i64 k = 0; k < n; k++) {
                    double x = a[p * n + k], y = a[q * n + k], v = vectors[p * n + k], w = vectors[q * n + k];
                    a[p * n + k] = c * x - s * y;
                    a[q * n + k] = s * x + c * y;
                    vectors[p * n + k] = c * v - s * w;
                    vectors[q * n + k] = s * v + c * w;
                }
            }
}

/* Turns an orthonormal basis [size, n] of a subspace of a symmetric matrix, with image = basis matrix, into
 * eigenvectors. Returns those of the `count` largest eigenvalues, [count, n], scaled by 1 / sqrt(value). */
static float *largest_vectors(double *values, const float *basis, const float *image, i64 size, i64 n, i64 count)
{
    double *a = memory_alloc(2 * size * size * 8), *turned = a + size * size;
    float *out = memory_alloc(max_i64(count * n, 1) * 4);
    for (i64 i = 0; i < size; i++)
        for (i64 k = 0; k < size; k++)
            for (i64 c = 0; c < n; c++)
                a[i * size + k] += (double)basis[i * n + c] * image[k * n + c];
    diagonalize(a, turned, size);
    for (i64 j = 0; j < count; j++) {
        i64 best = 0;
        for (i64 i = 1; i < size; i++)
            if (a[i * (size + 1)] > a[best * (size + 1)])
                best = i;
        values[j] = fmax(a[best * (size + 1)], 0);
        for (i64 i = 0; i < size && values[j] > 0; i++)
            for (i64 c = 0; c < n; c++)
                out[j * n + c] += (float)(turned[best * size + i] / sqrt(values[j])) * basis[i * n + c];
        a[best * (size + 1)] = -1;
    }
    memory_free(a);
    return out;
}

void components_find(struct components *out, struct device *device, const u8 *items, i64 n, i64 values, i64 count)
{
    i64 size = min_i64(count + SPARE, n);
    *out = (struct components){.values = values, .count = min_i64(count, n), .mean = memory_alloc(values * 4)};
    for (i64 k = 0; k < values; k++) {
        double sum = 0;
        for (i64 i = 0; i < n; i++)
            sum += items[i * values + k];
        out->mean[k] = (float)(sum / (double)n);
    }
    struct matrix x = put_centred(device, items, n, out->mean, values);
    float *gram = product(device, x, x, true), *basis = memory_alloc(size * n * 4), *image = NULL;
    struct matrix g = matrix_of(device_alloc(device, n * n * 4), DTYPE_F32, n, n);
    struct matrix b = matrix_of(device_alloc(device, size * n * 4), DTYPE_F32, size, n);
    device_put(device, g.data, gram, n * n * 4);
    for (i64 i = 0; i < size * n; i++)
        basis[i] = (float)rng_normal((struct rng_key){1, RNG_INIT}, (u32)i, (u32)(i >> 32), 0, 0);
    for (i64 power = 0; power <= POWERS; power++) {
        if (image)
            memcpy(basis, image, (size_t)(size * n) * 4);
        memory_free(image);
        make_orthonormal(basis, size, n);
        device_put(device, b.data, basis, size * n * 4);
        image = product(device, b, g, false);
    }
    double *lambda = memory_alloc(max_i64(out->count, 1) * 8);
    float *vectors = largest_vectors(lambda, basis, image, size, n, out->count);
    struct matrix v = matrix_of(device_alloc(device, out->count * n * 4), DTYPE_F32, out->count, n);
    device_put(device, v.data, vectors, out->count * n * 4);
    out->axes = product(device, v, x, false);
    out->steps = memory_alloc(max_i64(out->count, 1) * 4);
    for (i64 j = 0; j < out->count; j++)
        out->steps[j] = (float)(sqrt(lambda[j] / (double)n) / 16);
    drop(device, v);
    drop(device, b);
    drop(device, g);
    drop(device, x);
    void *blocks[] = {gram, basis, image, lambda, vectors};
    for (i64 i = 0; i < COUNT_OF(blocks); i++)
        memory_free(blocks[i]);
}

void components_release(struct components *c)
{
    memory_free(c->mean);
    memory_free(c->axes);
    memory_free(c->steps);
}

void components_rebuild(u8 *out, const struct components *c, struct device *device, const u8 *items, i64 n)
{
    struct matrix x = put_centred(device, items, n, c->mean, c->values);
    struct matrix axes = matrix_of(device_alloc(device, c->count * c->values * 4), DTYPE_F32, c->count, c->values);
    device_put(device, axes.data, c->axes, c->count * c->values * 4);
    float *code = product(device, x, axes, true);
    for (i64 i = 0; i < n * c->count; i++) {
        float step = c->steps[i % c->count];
        code[i] = step > 0 ? step * fminf(fmaxf(roundf(code[i] / step), -128), 127) : 0;
    }
    struct matrix coded = matrix_of(device_alloc(device, n * c->count * 4), DTYPE_F32, n, c->count);
    device_put(device, coded.data, code, n * c->count * 4);
    float *again = product(device, coded, axes, false);
    for (i64 i = 0; i < n * c->values; i++)
        out[i] = (u8)lrintf(fminf(fmaxf(again[i] + c->mean[i % c->values], 0), 255));
    drop(device, coded);
    drop(device, axes);
    drop(device, x);
    memory_free(code);
    memory_free(again);
}
