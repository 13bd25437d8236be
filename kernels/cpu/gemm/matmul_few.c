/* matmul_few with its norm, gate, sum or cache, as one op after the other: a CPU has no launch
 * cost, and intermediates stay in its caches. */
#include "kernels/cpu/cpu.h"
#include "kernels/few.h"

enum { SLOT_ROWS = 5, SLOT_PRODUCT };

/* Returns rmsnorm(x), or x if there is no norm, in w's dtype. */
static struct matrix rows_of(struct device *device, struct matrix x, struct matrix norm, float eps, enum dtype dtype)
{
    const struct kernels *ops = cpu_kernels(device->level);
    struct few_room room = few_room_of(x.rows, x.columns);
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

void CPU(matmul_few)(struct device *device, struct matrix out, struct matrix x, struct matrix w,
                     const struct around *around)
{
    check_few(out, x, w, around);
    if (out.rows == 0 || out.columns == 0)
        return;
    /* Not the device's own ops: those of a test device would inspect scratch, too. */
    const struct kernels *ops = cpu_kernels(device->level);
    struct matrix rows = rows_of(device, x, around->norm, around->eps, w.dtype), product = out;
    if (around->gated || around->add.data)
        product = matrix_of(CPU(scratch)(0, SLOT_PRODUCT, x.rows * w.rows * 4), out.dtype, x.rows, w.rows);
    ops->matmul(device, product, rows, false, w, true, false);
    if (around->gated)
        ops->swiglu(device, out, product);
    else if (around->add.data)
        ops->add(device, out, around->add, product);
    else if (around->cache)
        ops->rope_cache(device, out, around->cache);
}
