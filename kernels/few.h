/* What both backends ask of matmul_few's operands. */
#ifndef WEFT_FEW_H
#define WEFT_FEW_H
#include "kernels/kernels.h"

static inline void check_few(struct matrix out, struct matrix x, struct matrix norm, struct matrix w, bool gated,
                             struct matrix add)
{
    bool as_it_was = out.dtype == DTYPE_F32 || out.dtype == x.dtype;
    require(x.rows <= (norm.data ? FEW_NORMED : FEW_ROWS) && out.rows == x.rows && w.columns == x.columns &&
                w.rows == out.columns * (gated ? 2 : 1) && (w.dtype == x.dtype || w.dtype == DTYPE_F32) && as_it_was &&
                (!norm.data || norm.columns == x.columns),
            "matmul_few: [%lld,%lld] from [%lld,%lld] and [%lld,%lld]", (long long)out.rows, (long long)out.columns,
            (long long)x.rows, (long long)x.columns, (long long)w.rows, (long long)w.columns);
    require(!add.data || (!gated && add.rows == out.rows && add.columns == out.columns && add.dtype == out.dtype),
            "matmul_few: [%lld,%lld] is added to [%lld,%lld]", (long long)add.rows, (long long)add.columns,
            (long long)out.rows, (long long)out.columns);
}

#endif
