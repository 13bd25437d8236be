/* Operand checks of the skinny gemms matmul_skinny, experts_skinny_in and experts_skinny_out,
 * shared by both backends. */
#ifndef WEFT_KERNELS_SKINNY_H
#define WEFT_KERNELS_SKINNY_H
#include "kernels/rope.h"

static inline void check_skinny(struct matrix out, struct matrix x, struct matrix w, const struct gemm_fusion *fusion)
{
    const struct matrix norm = fusion->norm, add = fusion->add;
    bool as_it_was = out.dtype == DTYPE_F32 || out.dtype == x.dtype;
    require(x.rows <= (norm.data ? SKINNY_NORMED_ROWS : SKINNY_ROWS) && out.rows == x.rows && w.columns == x.columns &&
                w.rows == out.columns * (fusion->gated ? 2 : 1) && (w.dtype == x.dtype || w.dtype == DTYPE_F32) &&
                as_it_was && (!norm.data || norm.columns == x.columns),
            "matmul_skinny: [%lld,%lld] from [%lld,%lld] and [%lld,%lld]", (long long)out.rows, (long long)out.columns,
            (long long)x.rows, (long long)x.columns, (long long)w.rows, (long long)w.columns);
    require(!add.data || (add.rows == out.rows && add.columns == out.columns && add.dtype == out.dtype),
            "matmul_skinny: [%lld,%lld] is added to [%lld,%lld]", (long long)add.rows, (long long)add.columns,
            (long long)out.rows, (long long)out.columns);
    require(fusion->gated + (add.data != NULL) + (fusion->cache != NULL) <= 1,
            "matmul_skinny: two things behind one product");
    if (fusion->cache)
        check_rope_cache(out, fusion->cache);
}

static inline bool matrix_is_like(struct matrix m, struct matrix x, i64 rows, i64 columns)
{
    return m.rows == rows && m.columns == columns && m.dtype == x.dtype;
}

/* x [N, C] is the input of experts_skinny_in, or the residual that experts_skinny_out adds; only
 * its sizes and dtype are read. */
static inline void check_skinny_experts(struct matrix inside, struct matrix shared, struct matrix x,
                                        const struct skinny_experts *e)
{
    i64 c = x.columns, f = inside.columns, s = shared.columns;
    require(x.rows <= SKINNY_NORMED_ROWS && x.rows * e->k_max <= SKINNY_ASSIGNMENTS,
            "experts of few rows: %lld of %lld experts each", (long long)x.rows, (long long)e->k_max);
    require(matrix_is_like(inside, x, e->rows_bound, f) && matrix_is_like(e->gate_up, x, e->experts * 2 * f, c) &&
                matrix_is_like(e->down, x, e->experts * c, f),
            "experts of few rows: %lld of [%lld,%lld] and [%lld,%lld] with [%lld,%lld] inside, rows of %lld",
            (long long)e->experts, (long long)e->gate_up.rows, (long long)e->gate_up.columns, (long long)e->down.rows,
            (long long)e->down.columns, (long long)inside.rows, (long long)f, (long long)c);
    require(!shared.data || (matrix_is_like(shared, x, x.rows, s) && matrix_is_like(e->shared_gate_up, x, 2 * s, c) &&
                             matrix_is_like(e->shared_down, x, c, s)),
            "experts of few rows: a shared one of [%lld,%lld] and [%lld,%lld] with [%lld,%lld] inside",
            (long long)e->shared_gate_up.rows, (long long)e->shared_gate_up.columns, (long long)e->shared_down.rows,
            (long long)e->shared_down.columns, (long long)shared.rows, (long long)s);
}

#endif
