/* The experts of few positions (decoding), as one op after the other; see matmul_skinny.c. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tiles.h"

enum { SLOT_ROWS = 10 };

void CPU(experts_skinny_in)(struct device *device, struct matrix inside, struct matrix shared, struct matrix x,
                            struct matrix norm, float eps, const struct skinny_experts *e)
{
    if (x.rows == 0)
        return;
    const struct kernels *ops = cpu_kernels(device->isa);
    struct matrix none = {0};
    char *memory = CPU(scratch)(0, SLOT_ROWS, skinny_experts_in_bytes(x));
    struct matrix rows = matrix_of(memory + skinny_rstd_bytes(x), x.dtype, x.rows, x.columns);
    ops->rmsnorm(device, rows, (float *)memory, x, norm, eps);
    ops->matmul_grouped_swiglu(device, inside, none, rows, e->source, e->gate_up, e->experts, &e->groups);
    if (shared.data)
        ops->matmul_skinny(device, shared, rows, e->shared_gate_up, &(struct gemm_fusion){.gated = true});
}

void CPU(experts_skinny_out)(struct device *device, struct matrix out, struct matrix x, struct matrix inside,
                             struct matrix shared, const struct skinny_experts *e)
{
    if (x.rows == 0)
        return;
    const struct kernels *ops = cpu_kernels(device->isa);
    i64 bytes = dtype_bytes(x.dtype);
    char *memory = CPU(scratch)(0, SLOT_ROWS, skinny_experts_out_bytes(x, e));
    struct matrix routed = matrix_of(memory, x.dtype, e->rows_bound, x.columns), sum = {0};
    ops->matmul_grouped(device, routed, inside, e->down, e->experts, true, &e->groups);
    if (shared.data) {
        sum = matrix_of(memory + round_up(e->rows_bound * x.columns * bytes, 64), x.dtype, x.rows, x.columns);
        ops->matmul(device, sum, shared, false, e->shared_down, true, false);
    }
    ops->combine(device, out, x, sum, routed, e->slot, e->weights, e->k_max);
}
