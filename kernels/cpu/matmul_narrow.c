/* Products with weights in few bits: a strip of weights becomes f32, and is multiplied as it then lies. */
#include "kernels/cpu/few_groups.h"
#include "kernels/cpu/narrow_steps.h"
#include "kernels/cpu/rows.h"

enum { PIECE_ROWS = 256, SLOT_STRIP = 2, SLOT_PIECES = 7 };

struct job {
    struct matrix out, a;
    const struct narrow *w;
    i64 steps, strips; /* of a part */
    struct piece *pieces;
    struct narrow_tables tables;
};

INLINED void scale_row(float *restrict out, const signed char *restrict v, float scale)
{
#pragma omp simd
    for (int i = 0; i < NARROW_COLUMNS; i++)
        out[i] = scale * (float)v[i];
}

/* The strip in f32, [32 rows][steps of 64]. */
static struct matrix strip_of(const struct job *job, i64 strip, int worker)
{
    i64 width = job->steps * NARROW_COLUMNS;
    float *out = CPU(scratch)(worker, SLOT_STRIP, NARROW_ROWS * width * 4);
    const float *scale = job->w->scale + strip * NARROW_ROWS;
    for (i64 step = 0; step < job->steps; step++) {
        signed char widened[NARROW_ROWS * NARROW_COLUMNS];
        const signed char *v = widened;
        if (job->w->bits == 8)
            v = (const signed char *)job->w->codes + (strip * job->steps + step) * narrow_step_bytes(job->w);
        else
            narrow_widen(widened, job->w, &job->tables, strip * job->steps + step);
        for (i64 row = 0; row < NARROW_ROWS; row++)
            scale_row(out + row * width + step * NARROW_COLUMNS, v + row * NARROW_COLUMNS, scale[row]);
    }
    struct matrix m = matrix_of(out, DTYPE_F32, NARROW_ROWS, job->a.columns);
    m.stride = width;
    return m;
}

static void run_strip(void *context, i64 tile, int worker)
{
    const struct job *job = context;
    const struct piece *piece = &job->pieces[tile / job->strips];
    i64 strip = tile % job->strips, column = strip * NARROW_ROWS;
    i64 rows = rows_of_piece(job->out, job->a, piece, strip == 0);
    i64 columns = min_i64(NARROW_ROWS, job->out.columns - column);
    if (rows == 0)
        return;
    struct matrix w = matrix_rows(strip_of(job, piece->member * job->strips + strip, worker), 0, columns);
    CPU(few_rows)
    (matrix_columns(matrix_rows(job->out, piece->begin, rows), column, columns),
     matrix_rows(job->a, piece->begin, rows), w, false, worker);
}

static i64 cut_rows(struct piece *pieces, i64 rows)
{
    i64 count = 0;
    for (i64 at = 0; at < rows; at += PIECE_ROWS)
        pieces[count++] = (struct piece){0, at, min_i64(PIECE_ROWS, rows - at)};
    return count;
}

void CPU(matmul_narrow)(struct device *device, struct matrix out, struct matrix a, const struct narrow *w,
                        const struct groups *groups)
{
    (void)device;
    require(a.columns == w->columns && out.columns == w->rows && (groups || (w->parts == 1 && out.rows == a.rows)),
            "matmul_narrow: [%lld,%lld] from [%lld,%lld] and %lld parts of [%lld,%lld]", (long long)out.rows,
            (long long)out.columns, (long long)a.rows, (long long)a.columns, (long long)w->parts, (long long)w->rows,
            (long long)w->columns);
    i64 bound = groups ? pieces_bound(groups, PIECE_ROWS) : ceil_div(a.rows, PIECE_ROWS);
    struct job job = {.out = out, .a = a, .w = w, .steps = narrow_steps(w->columns), .strips = narrow_strips(w->rows)};
    job.pieces = CPU(scratch)(0, SLOT_PIECES, bound * (i64)sizeof *job.pieces);
    if (w->bits == 4)
        narrow_tables_fill(&job.tables);
    i64 count = groups ? cut_few_rows(job.pieces, groups, PIECE_ROWS) : cut_rows(job.pieces, a.rows);
    workers_run(count * job.strips, run_strip, &job);
}
