/* Masks ids that must not be drawn, and stores the drawn audio codes. */
#include "kernels/cpu/rows.h"

struct forbid_job {
    struct matrix logits;
    const u32 *allowed;
    const i32 *set;
};

static void run_row(void *context, i64 row, int worker)
{
    const struct forbid_job *job = context;
    i64 columns = job->logits.columns, words = ceil_div(columns, 32);
    float *z = matrix_at(job->logits, row, 0);
    (void)worker;
    if (job->set[row] < 0)
        return;
    const u32 *allowed = job->allowed + job->set[row] * words;
    for (i64 j = 0; j < columns; j++)
        z[j] = allowed[j / 32] >> j % 32 & 1 ? z[j] : -1e30f;
}

void CPU(forbid)(struct device *device, struct matrix logits, const u32 *allowed, const i32 *set)
{
    struct forbid_job job = {logits, allowed, set};
    (void)device;
    workers_run(logits.rows, run_row, &job);
}

void CPU(settle_codes)(struct device *device, i32 *codes, i32 *row, const i32 *drawn, i64 n, i64 levels, i64 level,
                       i32 end)
{
    (void)device;
    for (i64 i = 0; i < n; i++) {
        bool ended = level > 0 && codes[i * levels] == end;
        i32 code = ended ? end : drawn[i];
        codes[i * levels + level] = code;
        row[i] = (i32)level * (end + 1) + code;
    }
}
