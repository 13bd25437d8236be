/* Operand checks of rope_cache, shared by both backends. */
#ifndef WEFT_ROPE_H
#define WEFT_ROPE_H
#include "kernels/kernels.h"

static inline void check_rope_cache(struct matrix x, const struct rope_cache *to)
{
    i64 width = to->k.columns / to->kv_heads;
    require(to->k.columns == to->kv_heads * width && to->v.columns == to->k.columns &&
                x.columns == (to->heads + 2 * to->kv_heads) * width && width % 2 == 0 && to->k.dtype == x.dtype &&
                to->v.dtype == x.dtype && to->t_pairs >= 0 && 2 * to->t_pairs <= width,
            "rope_cache: %lld columns, %lld heads, %lld of keys and values, which have %lld and %lld columns",
            (long long)x.columns, (long long)to->heads, (long long)to->kv_heads, (long long)to->k.columns,
            (long long)to->v.columns);
}

#endif
