#include "kernels/cpu/rows.h"

/* Angles are computed and reduced in f64, because positions reach 1e5. The rotation itself is in
 * f32. */
struct rope_job {
    struct matrix x;
    const float *positions;
    /* Frequencies [3, pairs] of the axes t, h, w; 0 if the pair belongs to another axis. */
    const double *frequencies;
    i64 heads, pairs, rows_tile;
    bool inverse;
    /* KV cache that receives row i at slot index[i]; -1: not kept. index NULL: no cache. */
    struct matrix k, v;
    const i32 *index;
};

typedef u32 bf16_pair __attribute__((may_alias, aligned(2)));

/* cos and sin from the remainder of a quarter turn (Cephes sinf and cosf on [-pi/4, pi/4]). The
 * error is below 1e-7. */
INLINED void cos_sin(float *cosine, float *sine, double angle)
{
    double turns = __builtin_rint(angle * 0.63661977236758134308);
    float r = (float)(angle - turns * 1.57079632679489661923), s = r * r;
    i32 quadrant = (i32)turns;
    float sin_r = ((-1.9515295891e-4f * s + 8.3321608736e-3f) * s - 1.6666654611e-1f) * s * r + r;
    float cos_r =
        ((2.443315711809948e-5f * s - 1.388731625493765e-3f) * s + 4.166664568298827e-2f) * s * s - 0.5f * s + 1;
    float c = quadrant & 1 ? sin_r : cos_r, d = quadrant & 1 ? cos_r : sin_r;
    *cosine = (quadrant + 1) & 2 ? -c : c;
    *sine = quadrant & 2 ? -d : d;
}

static void fill_angles(float *cosine, float *sine, const struct rope_job *job, i64 row)
{
    double t = job->positions[row * 3], h = job->positions[row * 3 + 1], w = job->positions[row * 3 + 2];
    const double *of_t = job->frequencies, *of_h = of_t + job->pairs, *of_w = of_h + job->pairs;
    double turn = job->inverse ? -1 : 1;
#pragma omp simd
    for (i64 j = 0; j < job->pairs; j++)
        cos_sin(&cosine[j], &sine[j], turn * (t * of_t[j] + h * of_h[j] + w * of_w[j]));
}

static void rotate_f32(float *x, const float *cosine, const float *sine, i64 pairs)
{
#pragma omp simd
    for (i64 j = 0; j < pairs; j++) {
        float a = x[2 * j], b = x[2 * j + 1];
        x[2 * j] = a * cosine[j] - b * sine[j];
        x[2 * j + 1] = b * cosine[j] + a * sine[j];
    }
}

/* Reads a pair as one 32-bit word with its first element in the lower half, which needs no
 * shuffles. */
static void rotate_bf16(bf16_pair *x, const float *cosine, const float *sine, i64 pairs)
{
#pragma omp simd
    for (i64 j = 0; j < pairs; j++) {
        float a = bf16_to_f32((bf16)x[j]), b = bf16_to_f32((bf16)(x[j] >> 16));
        x[j] = bf16_from_f32(a * cosine[j] - b * sine[j]) | (u32)bf16_from_f32(b * cosine[j] + a * sine[j]) << 16;
    }
}

/* Copies row i's keys (the last of the rotated heads) and its values, which follow them, to their
 * cache slot. */
static void keep_row(const struct rope_job *job, i64 i)
{
    size_t bytes = (size_t)(job->k.columns * element_bytes(job->k.dtype));
    i64 values = job->heads * 2 * job->pairs;
    memcpy(matrix_at(job->k, job->index[i], 0), matrix_at(job->x, i, values - job->k.columns), bytes);
    memcpy(matrix_at(job->v, job->index[i], 0), matrix_at(job->x, i, values), bytes);
}

static void run_tile(void *context, i64 tile, int worker)
{
    const struct rope_job *job = context;
    i64 begin = tile * job->rows_tile, end = min_i64(begin + job->rows_tile, job->x.rows);
    float *cosine = CPU(scratch)(worker, 0, job->pairs * 4), *sine = CPU(scratch)(worker, 1, job->pairs * 4);
    for (i64 i = begin; i < end; i++) {
        fill_angles(cosine, sine, job, i);
        for (i64 head = 0; head < job->heads; head++) {
            void *x = matrix_at(job->x, i, head * 2 * job->pairs);
            if (job->x.dtype == DTYPE_BF16)
                rotate_bf16(x, cosine, sine, job->pairs);
            else
                rotate_f32(x, cosine, sine, job->pairs);
        }
        if (job->index && job->index[i] >= 0)
            keep_row(job, i);
    }
}

static void fill_frequencies(double *out, i64 pairs, float theta, i64 t_pairs)
{
    memset(out, 0, (size_t)(3 * pairs) * sizeof *out);
    for (i64 j = 0; j < pairs; j++) {
        i64 axis = j >= pairs - t_pairs ? 0 : j % 2 == 0 ? 1 : 2;
        out[axis * pairs + j] = pow(theta, -(double)j / (double)pairs);
    }
}

static void run(struct rope_job job, float theta, i64 t_pairs)
{
    double *frequencies = CPU(scratch)(0, 7, 3 * job.pairs * (i64)sizeof *frequencies);
    fill_frequencies(frequencies, job.pairs, theta, t_pairs);
    job.frequencies = frequencies;
    job.rows_tile = tile_rows(job.x.columns);
    workers_run(ceil_div(job.x.rows, job.rows_tile), run_tile, &job);
}

void CPU(rope)(struct device *device, struct matrix x, const float *positions, i64 heads, float theta, i64 t_pairs,
               bool inverse)
{
    (void)device;
    struct rope_job job = {
        .x = x, .positions = positions, .heads = heads, .pairs = x.columns / (2 * heads), .inverse = inverse};
    run(job, theta, t_pairs);
}

void CPU(rope_cache)(struct device *device, struct matrix x, const struct rope_cache *to)
{
    (void)device;
    struct rope_job job = {.x = x,
                           .positions = to->positions,
                           .heads = to->heads + to->kv_heads,
                           .pairs = to->k.columns / to->kv_heads / 2,
                           .k = to->k,
                           .v = to->v,
                           .index = to->index};
    run(job, to->theta, to->t_pairs);
}
