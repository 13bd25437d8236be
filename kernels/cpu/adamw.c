/* AdamW over a list of parameters, the sum of squares of their gradients (for clipping), and
 * zeroing of gradients that no op has written. Parameters are cut into tiles of TILE elements, so
 * the order of sums depends on sizes alone. */
#include "kernels/adamw.h"
#include "kernels/cpu/rows.h"

enum { TILE = 1 << 16, SQUARES_RUN = 4096, SQUARES_AT_ONCE = 4, TILES_SLOT = 6, SQUARES_SLOT = 7 };

/* A list of updates cut into tiles. Update i has tiles first[i] .. first[i + 1] - 1. */
struct update_tiles {
    const struct updates *updates;
    i64 *first, tiles;
};
static struct update_tiles cut_updates(const struct updates *updates)
{
    struct update_tiles t = {updates, CPU(scratch)(0, TILES_SLOT, (updates->count + 1) * (i64)sizeof(i64)), 0};
    for (i64 i = 0; i < updates->count; i++) {
        t.first[i] = t.tiles;
        t.tiles += ceil_div(updates->list[i].count, TILE);
    }
    t.first[updates->count] = t.tiles;
    return t;
}

/* Elements begin .. end - 1 of an update. g NULL: the gradient is zero. */
struct adamw_run {
    const struct update *update;
    const float *g;
    i64 begin, end;
};
static struct adamw_run run_of(const struct update_tiles *t, i64 tile)
{
    i64 low = 0, high = t->updates->count; /* first[low] <= tile < first[high] */
    while (high - low > 1) {
        i64 middle = (low + high) / 2;
        if (t->first[middle] <= tile)
            low = middle;
        else
            high = middle;
    }
    const struct update *u = &t->updates->list[low];
    i64 begin = (tile - t->first[low]) * TILE;
    bool has_gradient = u->g && (!u->written || *u->written);
    return (struct adamw_run){u, has_gradient ? u->g : NULL, begin, min_i64(begin + TILE, u->count)};
}

INLINED void update_run(const struct adamw_run *run, struct adamw_factors f, bool has_copy, bool has_gradient,
                        enum dtype dtype)
{
    float *p = run->update->p, *m = run->update->m, *v = run->update->v;
    const float *g = run->g;
    void *copy = run->update->copy;
#pragma omp simd
    for (i64 i = run->begin; i < run->end; i++) {
        float d = has_gradient ? g[i] * f.scale : 0.0f;
        adamw_element(&p[i], &m[i], &v[i], d, f);
        if (has_copy)
            element_store(copy, i, p[i], dtype);
    }
}

struct adamw_job {
    struct update_tiles tiled;
    const struct adamw *adamw;
    struct adamw_corrections corrections;
    float scale;
};

static void run_adamw(void *context, i64 tile, int worker)
{
    const struct adamw_job *job = context;
    struct adamw_run run = run_of(&job->tiled, tile);
    const struct update *u = run.update;
    struct adamw_factors f = adamw_factors_of(job->adamw, job->corrections, u->lr_factor, u->decay_factor, job->scale);
    (void)worker;
    if (u->copy)
        BY_FLAG_DTYPE(run.g != NULL, u->copy_dtype, update_run, &run, f, true);
    else
        BY_FLAG_DTYPE(run.g != NULL, DTYPE_F32, update_run, &run, f, false);
}

void CPU(adamw)(struct device *device, const struct updates *updates, const double *sum, double clip,
                const struct adamw *adamw)
{
    double norm = sqrt(sum[0]);
    (void)device;
    if (!isfinite(norm))
        return;
    struct adamw_job job = {cut_updates(updates), adamw, adamw_corrections_of(adamw), adamw_scale(norm, clip)};
    workers_run(job.tiled.tiles, run_adamw, &job);
}

struct squares_job {
    struct update_tiles tiled;
    double *partials;
};

static float squares_of(const float *g, i64 n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (i64 i = 0; i < n; i++)
        sum += g[i] * g[i];
    return sum;
}

/* Memory delivers four streams faster than one. */
static double add_runs(double total, const float *g)
{
    float first = 0, second = 0, third = 0, fourth = 0;
#pragma omp simd reduction(+ : first, second, third, fourth)
    for (i64 i = 0; i < SQUARES_RUN; i++) {
        first += g[i] * g[i];
        second += g[SQUARES_RUN + i] * g[SQUARES_RUN + i];
        third += g[2 * SQUARES_RUN + i] * g[2 * SQUARES_RUN + i];
        fourth += g[3 * SQUARES_RUN + i] * g[3 * SQUARES_RUN + i];
    }
    return total + first + second + third + fourth;
}

static void run_squares(void *context, i64 tile, int worker)
{
    const struct squares_job *job = context;
    struct adamw_run run = run_of(&job->tiled, tile);
    double total = 0;
    (void)worker;
    i64 begin = run.g ? run.begin : run.end;
    for (; begin + SQUARES_AT_ONCE * SQUARES_RUN <= run.end; begin += SQUARES_AT_ONCE * SQUARES_RUN)
        total = add_runs(total, run.g + begin);
    for (; begin < run.end; begin += SQUARES_RUN)
        total += squares_of(run.g + begin, min_i64(SQUARES_RUN, run.end - begin));
    job->partials[tile] = total;
}

void CPU(sum_squares)(struct device *device, double *sum, const struct updates *updates)
{
    (void)device;
    struct squares_job job = {cut_updates(updates), NULL};
    job.partials = CPU(scratch)(0, SQUARES_SLOT, job.tiled.tiles * (i64)sizeof(double));
    workers_run(job.tiled.tiles, run_squares, &job);
    for (i64 tile = 0; tile < job.tiled.tiles; tile++)
        sum[0] += job.partials[tile];
}

void CPU(zero_unwritten)(struct device *device, struct matrix dw, u8 *written, i64 parts)
{
    i64 bytes = dw.rows / parts * dw.columns * 4;
    (void)device;
    for (i64 p = 0; p < parts; p++)
        if (!written[p]) {
            memset((char *)dw.data + p * bytes, 0, (size_t)bytes);
            written[p] = 1;
        }
}
