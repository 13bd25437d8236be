/* Elementwise ops on spectra: mel bands, their inverse, phases. */
#include "kernels/cpu/rows.h"
#include "kernels/phases.h"

struct map_job {
    struct matrix out, x;
    enum map kind;
    float least;
    struct matrix_cut cut;
};

INLINED float mapped(float x, enum map kind, float least)
{
    return kind == MAP_LOG ? logf(fmaxf(x, least)) : kind == MAP_MAX ? fmaxf(x, least) : expf(x);
}

static void run_map(void *context, i64 index, int worker)
{
    const struct map_job *job = context;
    struct matrix_tile tile = cut_tile(&job->cut, index);
    (void)worker;
    for (i64 i = tile.row; i < tile.end; i++) {
        float *out = matrix_at(job->out, i, tile.column);
        const float *x = matrix_at(job->x, i, tile.column);
        for (i64 j = 0; j < tile.columns; j++)
            out[j] = mapped(x[j], job->kind, job->least);
    }
}

void CPU(map)(struct device *device, struct matrix out, struct matrix x, enum map kind, float least)
{
    struct map_job job = {out, x, kind, least, cut_of(x.rows, x.columns)};
    (void)device;
    workers_run(cut_tiles(&job.cut), run_map, &job);
}

struct multiply_job {
    struct matrix x, over, under;
    const float *by;
    i64 repeat;
    float eps;
    struct matrix_cut cut;
};

static void run_multiply_rows(void *context, i64 index, int worker)
{
    const struct multiply_job *job = context;
    struct matrix_tile tile = cut_tile(&job->cut, index);
    (void)worker;
    for (i64 i = tile.row; i < tile.end; i++) {
        float *x = matrix_at(job->x, i, tile.column);
        const float *by = job->by + i / job->repeat * job->x.columns + tile.column;
        for (i64 j = 0; j < tile.columns; j++)
            x[j] *= by[j];
    }
}

void CPU(multiply_rows)(struct device *device, struct matrix x, const float *by, i64 repeat)
{
    struct multiply_job job = {.x = x, .by = by, .repeat = repeat, .cut = cut_of(x.rows, x.columns)};
    (void)device;
    workers_run(cut_tiles(&job.cut), run_multiply_rows, &job);
}

static void run_multiply_ratio(void *context, i64 index, int worker)
{
    const struct multiply_job *job = context;
    struct matrix_tile tile = cut_tile(&job->cut, index);
    (void)worker;
    for (i64 i = tile.row; i < tile.end; i++) {
        float *restrict x = matrix_at(job->x, i, tile.column);
        const float *over = matrix_at(job->over, i, tile.column), *under = matrix_at(job->under, i, tile.column);
        for (i64 j = 0; j < tile.columns; j++)
            x[j] = x[j] * over[j] / (under[j] + job->eps);
    }
}

void CPU(multiply_ratio)(struct device *device, struct matrix x, struct matrix over, struct matrix under, float eps)
{
    struct multiply_job job = {.x = x, .over = over, .under = under, .eps = eps, .cut = cut_of(x.rows, x.columns)};
    (void)device;
    workers_run(cut_tiles(&job.cut), run_multiply_ratio, &job);
}

/* ---- Phases ---- */

struct phases {
    struct matrix spectrum, now, last, magnitude;
    float momentum;
    struct rng_key key;
};

static const float *magnitude_of(const struct phases *p, i64 row)
{
    return matrix_at(p->magnitude, min_i64(row, p->magnitude.rows - 1), 0);
}

static void run_draw(void *context, i64 tile, int worker)
{
    const struct phases *p = context;
    i64 bins = p->magnitude.columns, rows = tile_rows(2 * bins), end = min_i64((tile + 1) * rows, p->spectrum.rows);
    (void)worker;
    for (i64 f = tile * rows; f < end; f++) {
        float *re = matrix_at(p->spectrum, f, 0), *im = re + bins;
        const float *magnitude = magnitude_of(p, f);
        for (i64 k = 0; k < bins; k++) {
            float angle = phase_drawn(rng_uniform(p->key, (u32)f, (u32)k, 0, 0));
            re[k] = magnitude[k] * cosf(angle);
            im[k] = magnitude[k] * sinf(angle);
        }
    }
}

void CPU(phases_draw)(struct device *device, struct matrix spectrum, struct matrix magnitude, struct rng_key key)
{
    struct phases p = {.spectrum = spectrum, .magnitude = magnitude, .key = key};
    (void)device;
    workers_run(ceil_div(spectrum.rows, tile_rows(spectrum.columns)), run_draw, &p);
}

static void push(float *restrict re, float *restrict im, const float *restrict now, const float *restrict last,
                 const float *restrict magnitude, i64 bins, float momentum)
{
#pragma omp simd
    for (i64 k = 0; k < bins; k++) {
        float a = phase_pushed(now[k], last[k], momentum);
        float b = phase_pushed(now[bins + k], last[bins + k], momentum);
        float scale = phase_scale(a, b, magnitude[k]);
        re[k] = a * scale;
        im[k] = b * scale;
    }
}

static void run_push(void *context, i64 tile, int worker)
{
    const struct phases *p = context;
    i64 bins = p->magnitude.columns, rows = tile_rows(2 * bins), end = min_i64((tile + 1) * rows, p->spectrum.rows);
    (void)worker;
    for (i64 f = tile * rows; f < end; f++) {
        float *re = matrix_at(p->spectrum, f, 0);
        push(re, re + bins, matrix_at(p->now, f, 0), matrix_at(p->last, f, 0), magnitude_of(p, f), bins, p->momentum);
    }
}

void CPU(phases_push)(struct device *device, struct matrix spectrum, struct matrix now, struct matrix last,
                      struct matrix magnitude, float momentum)
{
    struct phases p = {spectrum, now, last, magnitude, momentum, {0}};
    (void)device;
    workers_run(ceil_div(spectrum.rows, tile_rows(spectrum.columns)), run_push, &p);
}
