#include "kernels/cpu/rows.h"

enum { TILE = 1 << 16, SQUARES_RUN = 4096 };

struct update {
    float keep, beta1, beta2, rate, root, eps, scale; /* p = keep p - rate m / (root sqrt(v) + eps) */
};
struct job {
    float *p, *m, *v;
    void *copy;
    enum dtype copy_dtype;
    const float *g;
    i64 count;
    struct update update;
};

INLINED void update_run(const struct job *job, i64 begin, i64 end, bool has_copy, bool has_gradient, enum dtype dtype)
{
    float *p = job->p, *m = job->m, *v = job->v;
    const float *g = job->g;
    void *copy = job->copy;
    struct update u = job->update;
#pragma omp simd
    for (i64 i = begin; i < end; i++) {
        float d = has_gradient ? g[i] * u.scale : 0.0f;
        m[i] = u.beta1 * m[i] + (1 - u.beta1) * d;
        v[i] = u.beta2 * v[i] + (1 - u.beta2) * d * d;
        p[i] = u.keep * p[i] - u.rate * m[i] / (u.root * __builtin_sqrtf(v[i]) + u.eps);
        if (has_copy)
            element_store(copy, i, p[i], dtype);
    }
}

static void run_adamw(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    (void)worker;
    i64 begin = tile * TILE, end = min_i64(begin + TILE, job->count);
    if (job->copy)
        BY_FLAG_DTYPE(job->g != NULL, job->copy_dtype, update_run, job, begin, end, true);
    else
        BY_FLAG_DTYPE(job->g != NULL, DTYPE_F32, update_run, job, begin, end, false);
}

void CPU(adamw)(struct device *device, float *p, float *m, float *v, void *copy, enum dtype copy_dtype, const float *g,
                float scale, i64 count, const struct adamw *adamw)
{
    (void)device;
    double correction1 = 1 - pow(adamw->beta1, (double)adamw->step);
    double correction2 = 1 - pow(adamw->beta2, (double)adamw->step);
    struct job job = {p, m, v, copy, copy_dtype, g, count};
    job.update = (struct update){.keep = 1 - adamw->lr * adamw->decay,
                                 .beta1 = adamw->beta1,
                                 .beta2 = adamw->beta2,
                                 .rate = (float)(adamw->lr / correction1),
                                 .root = (float)(1 / sqrt(correction2)),
                                 .eps = adamw->eps,
                                 .scale = scale};
    workers_run(ceil_div(count, TILE), run_adamw, &job);
}

struct squares_job {
    const float *g;
    double *partials;
    i64 count;
};

static void run_squares(void *context, i64 tile, int worker)
{
    const struct squares_job *job = context;
    (void)worker;
    i64 tile_end = min_i64((tile + 1) * TILE, job->count);
    double total = 0;
    for (i64 begin = tile * TILE; begin < tile_end; begin += SQUARES_RUN) {
        const float *g = job->g + begin;
        i64 n = min_i64(SQUARES_RUN, tile_end - begin);
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (i64 i = 0; i < n; i++)
            sum += g[i] * g[i];
        total += sum;
    }
    job->partials[tile] = total;
}

void CPU(sum_squares)(struct device *device, double *out, const float *g, i64 count)
{
    (void)device;
    i64 tiles = ceil_div(count, TILE);
    struct squares_job job = {g, CPU(scratch)(0, 7, tiles * (i64)sizeof(double)), count};
    workers_run(tiles, run_squares, &job);
    for (i64 tile = 0; tile < tiles; tile++)
        out[0] += job.partials[tile];
}
