/* Small elementwise ops: constants, bytes to and from floats, shifts, running means. */
#include "kernels/cpu/rows.h"

enum { TILE = 1 << 15 };

void CPU(fill)(struct device *device, float *out, i64 count, float value)
{
    (void)device;
    for (i64 i = 0; i < count; i++)
        out[i] = value;
}

void CPU(fill_ids)(struct device *device, i32 *out, i64 count, i32 value)
{
    (void)device;
    for (i64 i = 0; i < count; i++)
        out[i] = value;
}

void CPU(copy_ids)(struct device *device, i32 *out, const i32 *ids, i64 count)
{
    (void)device;
    memcpy(out, ids, (size_t)count * 4);
}

struct widen_job {
    void *out;
    const u8 *bytes;
    i64 count;
    float scale, shift;
    enum dtype dtype;
};

INLINED void widen_run(const struct widen_job *job, i64 begin, i64 end, enum dtype dtype)
{
    for (i64 i = begin; i < end; i++)
        element_store(job->out, i, (float)job->bytes[i] * job->scale + job->shift, dtype);
}

static void run_widen(void *context, i64 tile, int worker)
{
    const struct widen_job *job = context;
    (void)worker;
    BY_DTYPE(job->dtype, widen_run, job, tile * TILE, min_i64((tile + 1) * TILE, job->count));
}

void CPU(widen_bytes)(struct device *device, struct matrix out, const u8 *bytes, float scale, float shift)
{
    struct widen_job job = {out.data, bytes, out.rows * out.columns, scale, shift, out.dtype};
    (void)device;
    workers_run(ceil_div(job.count, TILE), run_widen, &job);
}

struct narrow_job {
    u8 *bytes;
    const void *x;
    i64 count;
    float shift, scale;
    enum dtype dtype;
};

INLINED void narrow_run(const struct narrow_job *job, i64 begin, i64 end, enum dtype dtype)
{
    for (i64 i = begin; i < end; i++) {
        float value = (element_load(job->x, i, dtype) + job->shift) * job->scale + 0.5f;
        job->bytes[i] = !(value > 0) ? 0 : value >= 255 ? 255 : (u8)value;
    }
}

static void run_narrow(void *context, i64 tile, int worker)
{
    const struct narrow_job *job = context;
    (void)worker;
    BY_DTYPE(job->dtype, narrow_run, job, tile * TILE, min_i64((tile + 1) * TILE, job->count));
}

void CPU(narrow_bytes)(struct device *device, u8 *bytes, struct matrix x, float shift, float scale)
{
    struct narrow_job job = {bytes, x.data, x.rows * x.columns, shift, scale, x.dtype};
    (void)device;
    workers_run(ceil_div(job.count, TILE), run_narrow, &job);
}

struct shift_job {
    struct matrix out, x;
    float shift, divisor;
    struct matrix_cut cut;
};

static void run_shift(void *context, i64 index, int worker)
{
    const struct shift_job *job = context;
    struct matrix_tile tile = cut_tile(&job->cut, index);
    (void)worker;
    for (i64 i = tile.row; i < tile.end; i++) {
        float *out = matrix_at(job->out, i, tile.column);
        const float *x = matrix_at(job->x, i, tile.column);
        for (i64 j = 0; j < tile.columns; j++)
            out[j] = (x[j] + job->shift) / job->divisor;
    }
}

void CPU(shift_divide)(struct device *device, struct matrix out, struct matrix x, float shift, float divisor)
{
    struct shift_job job = {out, x, shift, divisor, cut_of(x.rows, x.columns)};
    (void)device;
    workers_run(cut_tiles(&job.cut), run_shift, &job);
}

void CPU(running_mean)(struct device *device, float *mean, const float *x, i64 count, double keep)
{
    (void)device;
    for (i64 i = 0; i < count; i++)
        mean[i] = (float)(keep * (double)mean[i] + (1 - keep) * (double)x[i]);
}
