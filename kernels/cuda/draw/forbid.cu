#include "kernels/cuda/cuda.h"

static __global__ void forbid_ids(struct matrix logits, const u32 *allowed, const i32 *set)
{
    grid_wait();
    i64 words = (logits.columns + 31) / 32;
    ELEMENTS(at, logits.rows, logits.columns)
    {
        i64 of = set[at.row];
        if (of >= 0 && !(allowed[of * words + at.column / 32] >> at.column % 32 & 1))
            row_of<float>(logits, at.row)[at.column] = -1e30f;
    }
}

extern "C" void cuda_forbid(struct device *device, struct matrix logits, const u32 *allowed, const i32 *set)
{
    i64 elements = logits.rows * logits.columns;
    if (elements > 0)
        LAUNCH(device, forbid_ids, blocks_for(elements), BLOCK_THREADS, 0, logits, allowed, set);
}

static __global__ void settle(i32 *codes, i32 *row, const i32 *drawn, i64 n, i64 levels, i64 level, i32 end)
{
    grid_wait();
    GRID_STRIDE(i, n)
    {
        bool ended = level > 0 && codes[i * levels] == end;
        i32 code = ended ? end : drawn[i];
        codes[i * levels + level] = code;
        row[i] = (i32)level * (end + 1) + code;
    }
}

extern "C" void cuda_settle_codes(struct device *device, i32 *codes, i32 *row, const i32 *drawn, i64 n, i64 levels,
                                  i64 level, i32 end)
{
    if (n > 0)
        LAUNCH(device, settle, blocks_for(n), BLOCK_THREADS, 0, codes, row, drawn, n, levels, level, end);
}
