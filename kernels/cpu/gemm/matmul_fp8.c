/* fp8 gemm written as its definition. CPUs multiply bf16 faster than this and do not ask for it
 * (has_fp8). */
#include "kernels/cpu/cpu.h"
#include "kernels/round_fp8.h"

struct matmul_fp8_job {
    struct matrix out;
    struct fp8_matrix a, b;
    const struct groups *groups; /* NULL: no groups */
    u8 *written;                 /* weight gradients only: [experts] */
    i64 slice_rows;              /* weight gradients only */
    bool add;
};
/* out[row + i, c] = sum of a[outer + i] b[columns_at + c] over [begin, end) of the depth. */
struct matmul_fp8_part {
    i64 row, rows, outer, columns_at, begin, end;
    bool add;
};

static void read_row(float *out, const struct fp8_matrix *m, i64 outer, const struct matmul_fp8_part *part)
{
    const u8 *codes = m->codes + outer * m->depth;
    for (i64 d = part->begin; d < part->end; d++)
        out[d - part->begin] = fp8_number(codes[d], m->format);
}

static float scale_at(const struct fp8_matrix *m, i64 outer, i64 depth)
{
    return m->scales[depth / FP8_BLOCK * m->outer + outer];
}

static float sum_of(const struct matmul_fp8_job *job, const struct matmul_fp8_part *part, const float *a,
                    const float *b, i64 row, i64 column)
{
    float sum = 0;
    for (i64 d = 0; d < part->end - part->begin; d += FP8_BLOCK) {
        float block = 0;
        for (i64 i = d; i < d + FP8_BLOCK; i++)
            block += a[i] * b[i];
        sum += block * (scale_at(&job->a, part->outer + row, part->begin + d) *
                        scale_at(&job->b, part->columns_at + column, part->begin + d));
    }
    return sum;
}

static void store_sum(struct matrix out, i64 row, i64 column, float sum, bool add)
{
    void *at = matrix_at(out, row, column);
    if (out.dtype == DTYPE_BF16)
        *(bf16 *)at = bf16_from_f32(add ? bf16_to_f32(*(bf16 *)at) + sum : sum);
    else
        *(float *)at = add ? *(float *)at + sum : sum;
}

static void multiply(const struct matmul_fp8_job *job, const struct matmul_fp8_part *part, int worker)
{
    i64 depth = part->end - part->begin;
    float *a = CPU(scratch)(worker, 0, (GROUP_ROWS + 1) * depth * 4), *b = a + GROUP_ROWS * depth;
    for (i64 r = 0; r < part->rows; r++)
        read_row(a + r * depth, &job->a, part->outer + r, part);
    for (i64 c = 0; c < job->out.columns; c++) {
        read_row(b, &job->b, part->columns_at + c, part);
        for (i64 r = 0; r < part->rows; r++)
            store_sum(job->out, part->row + r, c, sum_of(job, part, a + r * depth, b, r, c), part->add);
    }
}

static i64 member_of(const struct groups *groups, i64 g)
{
    return groups->member ? groups->member[g] : g;
}

/* ---- Rows: groups begin at tile boundaries ---- */
static void run_rows(void *context, i64 tile, int worker)
{
    const struct matmul_fp8_job *job = context;
    i64 row = tile * GROUP_ROWS, g = 0;
    struct matmul_fp8_part part = {row, min_i64(GROUP_ROWS, job->out.rows - row), row, 0, 0, job->a.depth, job->add};
    if (job->groups) {
        while (g < job->groups->count && row >= job->groups->offsets[g + 1])
            g++;
        if (g == job->groups->count)
            return;
        part.columns_at = member_of(job->groups, g) * job->out.columns;
    }
    multiply(job, &part, worker);
}

void CPU(matmul_fp8)(struct device *device, struct matrix out, const struct fp8_matrix *a, const struct fp8_matrix *b,
                     const struct groups *groups, bool add)
{
    (void)device;
    struct matmul_fp8_job job = {out, *a, *b, groups, NULL, 0, add};
    workers_run(ceil_div(out.rows, GROUP_ROWS), run_rows, &job);
}

/* ---- Weight gradients ---- */
static i64 blocks_of(const struct groups *groups, i64 g)
{
    return ceil_div(groups->offsets[g + 1] - groups->offsets[g], FP8_BLOCK);
}

static void run_weights(void *context, i64 tile, int worker)
{
    const struct matmul_fp8_job *job = context;
    i64 down = ceil_div(job->slice_rows, GROUP_ROWS), g = tile / down, row = tile % down * GROUP_ROWS;
    i64 slice = member_of(job->groups, g), begin = 0, end = blocks_of(job->groups, g) * FP8_BLOCK;
    for (i64 before = 0; before < g; before++)
        begin += blocks_of(job->groups, before) * FP8_BLOCK;
    struct matmul_fp8_part part = {slice * job->slice_rows + row,
                                   min_i64(GROUP_ROWS, job->slice_rows - row),
                                   row,
                                   0,
                                   begin,
                                   begin + end,
                                   job->written[slice]};
    if (end > 0)
        multiply(job, &part, worker);
}

void CPU(matmul_fp8_weights)(struct device *device, struct matrix dw, u8 *written, i64 experts,
                             const struct fp8_matrix *dy, const struct fp8_matrix *x, const struct groups *groups)
{
    (void)device;
    struct matmul_fp8_job job = {dw, *dy, *x, groups, written, dw.rows / experts, false};
    workers_run(groups->count * ceil_div(job.slice_rows, GROUP_ROWS), run_weights, &job);
    for (i64 g = 0; g < groups->count; g++)
        if (blocks_of(groups, g) > 0)
            written[member_of(groups, g)] = 1;
}
