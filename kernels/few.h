/* Operand checks of the skinny gemms matmul_few, experts_few_in and experts_few_out, shared by both
 * backends. */
#ifndef WEFT_FEW_H
#define WEFT_FEW_H
#include "kernels/rope.h"

static inline void check_few(struct matrix out, struct matrix x, struct matrix w, const struct around *around)
{
    const struct matrix norm = around->norm, add = around->add;
    bool as_it_was = out.dtype == DTYPE_F32 || out.dtype == x.dtype;
    require(x.rows <= (norm.data ? FEW_NORMED : FEW_ROWS) && out.rows == x.rows && w.columns == x.columns &&
                w.rows == out.columns * (around->gated ? 2 : 1) && (w.dtype == x.dtype || w.dtype == DTYPE_F32) &&
                as_it_was && (!norm.data || norm.columns == x.columns),
            "matmul_few: [%lld,%lld] from [%lld,%lld] and [%lld,%lld]", (long long)out.rows, (long long)out.columns,
            (long long)x.rows, (long long)x.columns, (long long)w.rows, (long long)w.columns);
    require(!add.data || (add.rows == out.rows && add.columns == out.columns && add.dtype == out.dtype),
            "matmul_few: [%lld,%lld] is added to [%lld,%lld]", (long long)add.rows, (long long)add.columns,
            (long long)out.rows, (long long)out.columns);
    require(around->gated + (add.data != NULL) + (around->cache != NULL) <= 1,
            "matmul_few: two things behind one product");
    if (around->cache)
        check_rope_cache(out, around->cache);
}

static inline bool few_are_like(struct matrix m, struct matrix x, i64 rows, i64 columns)
{
    return m.rows == rows && m.columns == columns && m.dtype == x.dtype;
}

/* x [N, C] is the input of experts_few_in, or the residual that experts_few_out adds; only its
 * sizes and dtype are read. */
static inline void check_few_experts(struct matrix inside, struct matrix shared, struct matrix x,
                                     const struct few_experts *e)
{
    i64 c = x.columns, f = inside.columns, s = shared.columns;
    require(x.rows <= FEW_NORMED && x.rows * e->k_max <= FEW_ASSIGNMENTS,
            "experts of few rows: %lld of %lld experts each", (long long)x.rows, (long long)e->k_max);
    require(few_are_like(inside, x, e->rows_bound, f) && few_are_like(e->gate_up, x, e->experts * 2 * f, c) &&
                few_are_like(e->down, x, e->experts * c, f),
            "experts of few rows: %lld of [%lld,%lld] and [%lld,%lld] with [%lld,%lld] inside, rows of %lld",
            (long long)e->experts, (long long)e->gate_up.rows, (long long)e->gate_up.columns, (long long)e->down.rows,
            (long long)e->down.columns, (long long)inside.rows, (long long)f, (long long)c);
    require(!shared.data || (few_are_like(shared, x, x.rows, s) && few_are_like(e->shared_gate_up, x, 2 * s, c) &&
                             few_are_like(e->shared_down, x, c, s)),
            "experts of few rows: a shared one of [%lld,%lld] and [%lld,%lld] with [%lld,%lld] inside",
            (long long)e->shared_gate_up.rows, (long long)e->shared_gate_up.columns, (long long)e->shared_down.rows,
            (long long)e->shared_down.columns, (long long)shared.rows, (long long)s);
}

#endif
