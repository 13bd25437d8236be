/* Attention's forward in two versions: on tensor cores (attention_mma.cu), and in f32 for what those do not take. */
#ifndef WEFT_CUDA_ATTENTION_FORWARD_H
#define WEFT_CUDA_ATTENTION_FORWARD_H
#include "kernels/cuda/cuda.h"

struct attention_problem {
    struct matrix out, q, k, v;
    float *lse;
    i64 heads, kv_heads, width;
    struct intervals intervals;
};

__device__ inline bool sees(const struct intervals &of, i32 i, i64 j)
{
    return of.begin[j] <= i && i < of.end[j] && !(of.hole_begin[j] <= i && i < of.hole_end[j]);
}

/* Whether any query of [first, last] may see key j: exact but for holes narrower than the run of queries. */
__device__ inline bool any_sees(const struct intervals &of, i32 first, i32 last, i64 j)
{
    return of.begin[j] <= last && first < of.end[j] && !(of.hole_begin[j] <= first && last < of.hole_end[j]);
}

/* False where shapes, dtypes or alignments are not its own: then nothing was done. */
bool attention_on_tensor_cores(struct device *device, const struct attention_problem &problem);

#endif
