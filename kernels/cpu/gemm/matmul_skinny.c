/* matmul_skinny with its norm, gate, sum or cache, as one op after the other: a CPU has no launch
 * cost, and intermediates stay in its caches. */
#include "kernels/cpu/cpu.h"

enum { SLOT_ROWS = 5, SLOT_GEMM };

/* Returns rmsnorm(x), or x if there is no norm, in w's dtype. */
static struct matrix rows_of(struct device *device, struct matrix x, struct matrix norm, float eps, enum dtype dtype)
{
    const struct kernels *ops = cpu_kernels(device->isa);
    struct skinny_scratch room = skinny_scratch_of(x.rows, x.columns);
    char *memory = CPU(scratch)(0, SLOT_ROWS, room.rstd + room.normed + room.wide);
    struct matrix normed = matrix_of(memory + room.rstd, x.dtype, x.rows, x.columns);
    struct matrix wide = matrix_of(memory + room.rstd + room.normed, DTYPE_F32, x.rows, x.columns);
    if (norm.data) {
        ops->rmsnorm(device, normed, (float *)memory, x, norm, eps);
        x = normed;
    }
    if (x.dtype == dtype)
        return x;
    ops->copy(device, wide, x, 1, false);
    return wide;
}

void CPU(matmul_skinny)(struct device *device, struct matrix out, struct matrix x, struct matrix w,
                        const struct gemm_fusion *fusion)
{
    if (out.rows == 0 || out.columns == 0)
        return;
    /* Not the device's own ops: those of a test device would inspect scratch, too. */
    const struct kernels *ops = cpu_kernels(device->isa);
    struct matrix rows = rows_of(device, x, fusion->norm, fusion->eps, w.dtype), gemm_out = out;
    if (fusion->gated || fusion->add.data)
        gemm_out = matrix_of(CPU(scratch)(0, SLOT_GEMM, x.rows * w.rows * 4), out.dtype, x.rows, w.rows);
    ops->matmul(device, gemm_out, rows, false, w, true, false);
    if (fusion->gated)
        ops->swiglu(device, out, gemm_out);
    else if (fusion->add.data)
        ops->add(device, out, fusion->add, gemm_out);
    else if (fusion->cache)
        ops->rope_cache(device, out, fusion->cache);
}
