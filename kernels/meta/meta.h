/* What the meta backend knows of the CPU's: which primitives and how much scratch the shapes it saw would need there.
 * What data decides is taken as it comes out in the long run: experts' groups end anywhere. */
#ifndef WEFT_META_H
#define WEFT_META_H
#include "kernels/kernels.h"

enum { META_SHAPES_MOST = 1 << 15, META_SLOTS = 8 };
struct meta_shapes {             /* a meta device's `handles` */
    u64 shape[META_SHAPES_MOST]; /* hashed; 0: free */
    i64 count;
    i64 slot_bytes[META_SLOTS]; /* scratch, as in kernels/cpu/: slots 5 to 7 exist once, the others in each worker */
};
void meta_see_matmul(struct device *device, struct matrix out, struct matrix a, bool transpose_a, struct matrix b,
                     bool transpose_b, bool add);
void meta_see_grouped(struct device *device, struct matrix out, struct matrix a, struct matrix w, bool transpose,
                      const struct groups *groups);
void meta_see_grouped_weights(struct device *device, struct matrix dw, i64 experts, struct matrix dy, struct matrix x);
void meta_see_attention(struct device *device, struct matrix q, struct matrix k, i64 heads, i64 kv_heads,
                        const struct intervals *intervals, bool backward);
struct held meta_held(const struct device *device);

#endif
