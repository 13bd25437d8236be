#include "kernels/cpu/cpu.h"

/* The FMA gemm reads weights in place: packing a panel costs little beside its product. This
 * backend has no packed images. */
void CPU(pack_weight)(struct device *device, void *image, struct matrix w, i64 parts)
{
    (void)device;
    panic("image at %p of %lld weights [%lld,%lld]: this backend wants none", image, (long long)parts,
          (long long)(w.rows / parts), (long long)w.columns);
}
